/* address: what is the loopback, who may listen elsewhere, and how HOST:PORT is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "meet/address.h"

#define N(x) (sizeof(x) / sizeof *(x))

static void only_the_loopback_is_the_loopback(void **state)
{
    (void)state;
    static const char *const here[] = { "127.0.0.1", "127.9.8.7", "127.255.255.255", "::1", "localhost" };
    static const char *const elsewhere[] = { "0.0.0.0", "10.0.0.1", "126.0.0.1", "128.0.0.1", "::", "::2", "", "127", "127.", "127.0.0",
                                             "127.0.0.1.example.org", "127.0.0.256", "127.0.0.1 ", "127..0.1", "127.0.0.1111" };
    for (size_t i = 0; i < N(here); i++) {
        assert_true(ls_address_is_loopback(here[i]));
        assert_int_equal(ls_address_check(here[i], false), LS_OK);
    }
    for (size_t i = 0; i < N(elsewhere); i++) {
        assert_false(ls_address_is_loopback(elsewhere[i]));
        assert_int_equal(ls_address_check(elsewhere[i], true), LS_OK);
        assert_int_equal(ls_address_check(elsewhere[i], false), LS_AUTH_FAILED);
        assert_non_null(strstr(ls_last_error(), "lockstep secret new FILE"));
    }
}

static void reads_hosts_and_ports(void **state)
{
    (void)state;
    static const struct { const char *text, *host; int port; } row[] = {
        { "a:1", "a", 1 },          { "a.example.org:65535", "a.example.org", 65535 }, { "10.0.0.1", "10.0.0.1", 7 },
        { "[::1]:29500", "::1", 29500 }, { "[::1]", "::1", 7 },                        { "fe80::1", "fe80::1", 7 },
    };
    static const char *const wrong[] = { "", ":1", "a:", "a:b", "a:65536", "a:-1", "a:1x", "[::1", "[::1]x", "[]:1" };
    char host[64];
    for (size_t i = 0; i < N(row); i++) {
        int port = 7;
        assert_int_equal(ls_address_parse(row[i].text, host, sizeof host, &port), LS_OK);
        assert_string_equal(host, row[i].host);
        assert_int_equal(port, row[i].port);
    }
    for (size_t i = 0; i < N(wrong); i++) {
        int port = 7;
        assert_int_equal(ls_address_parse(wrong[i], host, sizeof host, &port), LS_INVALID);
    }
    int port;
    assert_int_equal(ls_address_parse("abcd:1", host, 4, &port), LS_INVALID); /* too long by the end of the text */
    assert_int_equal(ls_address_parse("abc:1", host, 4, &port), LS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_loopback_is_the_loopback),
        cmocka_unit_test(reads_hosts_and_ports),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
