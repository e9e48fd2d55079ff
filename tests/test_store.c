/* The store: a key that holds a descriptor is set once, since a reply may be about to send it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_net.h"
#include "meet/page.h"
#include "meet/store.h"

#define END (fake.now_ns + 3000000000u)

static const uint8_t secret[LS_SECRET_BYTES] = { 1 };

static void step_store(void *arg) { (void)ls_store_step(arg, fake.now_ns); }

static ls_store_client *come(int rank)
{
    ls_store_client *c = NULL;
    int none = -1;
    ls_store_caller who = { .unix_name = "x", .secret = secret, .rank = rank, .size = 2 };
    assert_int_equal(ls_store_connect(&who, END, &c, &none), LS_OK);
    if (none >= 0) fake_close(none);
    return c;
}

static void a_descriptor_is_set_once(void **state)
{
    (void)state;
    ls_store *s = NULL;
    ls_store_config c = { .unix_name = "x", .nranks = 2, .page_fd = -1 };
    c.secret[0] = 1;
    for (int other = 0; other < 2; other++) { /* by another descriptor, and by a value */
        fake_begin();
        assert_int_equal(ls_store_create(&c, &s), LS_OK);
        fake.idle = step_store;
        fake.idle_arg = s;
        ls_store_client *a = come(0), *b = come(1);
        assert_int_equal(ls_store_set_fd(a, "fd", 0, END), LS_OK);
        ls_status st = other ? ls_store_set(b, "fd", "x", 1, END) : ls_store_set_fd(b, "fd", 0, END);
        assert_int_equal(st, LS_INVALID);
        assert_non_null(strstr(fake.context.error, "holds a descriptor: it is set once"));
        int fd = -1;
        assert_int_equal(ls_store_get_fd(a, "fd", &fd, END), LS_OK); /* the first is as it was */
        fake_close(fd);
        assert_int_equal(ls_store_set(a, "value", "x", 1, END), LS_OK);
        assert_int_equal(ls_store_set(a, "value", "y", 1, END), LS_OK); /* a value may change */
        ls_store_disconnect(a);
        ls_store_disconnect(b);
        ls_store_destroy(s);
        fake_end_net();
    }
}

/* All ranks say as much for a key, and nobody gets an answer before all have. */
static void an_exchange_is_of_all_ranks(void **state)
{
    (void)state;
    ls_store *s = NULL;
    ls_store_config c = { .unix_name = "x", .nranks = 2, .page_fd = -1 };
    char all[16];
    c.secret[0] = 1;
    for (size_t n = 3; n <= 5; n += 2) {
        fake_begin();
        assert_int_equal(ls_store_create(&c, &s), LS_OK);
        fake.idle = step_store;
        fake.idle_arg = s;
        ls_store_client *a = come(0), *b = come(1);
        assert_int_equal(ls_store_exchange(a, "key", "abcd", 4, 2, all, END), LS_JOIN_TIMEOUT);
        assert_non_null(strstr(fake.context.error, "not all ranks provided 'key'"));
        assert_int_equal(ls_store_exchange(b, "key", "abcde", n, 2, all, END), LS_PROTOCOL);
        assert_non_null(strstr(fake.context.error, n == 3 ? "rank 1 provided 3 bytes for 'key', rank 0 4"
                                                          : "rank 1 provided 5 bytes for 'key', rank 0 4"));
        ls_store_disconnect(a);
        ls_store_disconnect(b);
        ls_store_destroy(s);
        fake_end_net();
    }
    fake_begin(); /* a world of one */
    c.nranks = 1;
    assert_int_equal(ls_store_create(&c, &s), LS_OK);
    fake.idle = step_store;
    fake.idle_arg = s;
    ls_store_client *a = NULL;
    int none = -1;
    ls_store_caller who = { .unix_name = "x", .secret = secret, .rank = 0, .size = 1 };
    assert_int_equal(ls_store_connect(&who, END, &a, &none), LS_OK);
    assert_int_equal(ls_store_exchange(a, "key", "abcd", 4, 1, all, END), LS_OK);
    assert_memory_equal(all, "abcd", 4);
    assert_int_equal(ls_store_exchange(a, "key", "abcd", 4, 1, all, END), LS_INVALID);
    assert_non_null(strstr(fake.context.error, "'key' twice"));
    ls_store_disconnect(a);
    ls_store_destroy(s);
    fake_end_net();
}

/* Whoever asks n-th whether the other end is our own user's is told that it is not. */
static int asked, stranger;

static int sometimes_a_stranger(int fd)
{
    (void)fd;
    return asked++ != stranger;
}

static void another_user_is_not_let_in(void **state)
{
    (void)state;
    ls_store *s = NULL;
    ls_store_config c = { .unix_name = "x", .nranks = 2, .page_fd = -1 };
    c.secret[0] = 1;
    for (stranger = 0; stranger < 3; stranger++) { /* for the rank, for the store, for neither */
        fake_begin();
        fake.env.peer_uid_is_ours = sometimes_a_stranger;
        asked = 0;
        assert_int_equal(ls_store_create(&c, &s), LS_OK);
        fake.idle = step_store;
        fake.idle_arg = s;
        ls_store_client *a = NULL;
        int none = -1;
        ls_store_caller who = { .unix_name = "x", .secret = secret, .rank = 0, .size = 2 };
        ls_status st = ls_store_connect(&who, END, &a, &none);
        if (stranger == 0) {
            assert_int_equal(st, LS_AUTH_FAILED);
            assert_non_null(strstr(fake.context.error, "belongs to another user"));
            assert_int_equal(ls_store_connected(s), 0);
        } else if (stranger == 1) { /* dropped without a word */
            assert_true(st < 0);
            assert_int_equal(ls_store_rejected(s), 1);
            assert_int_equal(ls_store_connected(s), 0);
        } else {
            assert_int_equal(st, LS_OK);
            assert_int_equal(ls_store_rejected(s), 0);
        }
        ls_store_disconnect(a);
        ls_store_destroy(s);
        fake_end_net();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_descriptor_is_set_once),
                                        cmocka_unit_test(an_exchange_is_of_all_ranks),
                                        cmocka_unit_test(another_user_is_not_let_in) };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
