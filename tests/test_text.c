/* text: UTF-8 against its definition (RFC 3629) for every code point in every length, and JSON strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"

/* The bytes of a code point below 2^21 in `n` bytes, valid or not. */
static void encode(uint32_t c, size_t n, char out[4])
{
    static const unsigned char lead[5] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
}

static size_t shortest(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

static void accepts_every_code_point_in_its_shortest_form_only(void **state)
{
    (void)state;
    static const uint32_t limit[5] = { 0, 0x80, 0x800, 0x10000, 0x200000 }; /* what n bytes can hold */
    for (size_t n = 1; n <= 4; n++)
        for (uint32_t c = 0; c < limit[n]; c++) {
            char p[4];
            bool valid;
            encode(c, n, p);
            const bool want = n == shortest(c) && c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
            const size_t used = ls_utf8_next(p, n, &valid);
            if (valid != want || (valid && used != n)) fail_msg("U+%04X in %zu bytes: valid %d, %zu bytes", c, n, valid, used);
            if (valid && ls_utf8_code(p, n) != c) fail_msg("U+%04X in %zu bytes: taken for U+%04X", c, n, ls_utf8_code(p, n));
            if ((ls_utf8_check(p, n) == n) != want) fail_msg("U+%04X in %zu bytes: ls_utf8_check differs", c, n);
        }
}

/* Python: b.decode("utf-8", "replace") has one U+FFFD for each error. */
static void takes_the_longest_beginning_of_a_character_as_one_error(void **state)
{
    (void)state;
    static const struct { const char *p; size_t n, used; } row[] = {
        { "\x80", 1, 1 },         { "\xc0\x80", 2, 1 },     { "\xc2", 1, 1 },     { "\xc2" "a", 2, 1 },
        { "\xe2\x82", 2, 2 },     { "\xe2\x82" "a", 3, 2 }, { "\xe0\x80\x80", 3, 1 }, { "\xed\xa0\x80", 3, 1 },
        { "\xf0\x9f\x98", 3, 3 }, { "\xf4\x90\x80\x80", 4, 1 }, { "\xf5\x80\x80\x80", 4, 1 }, { "\xff", 1, 1 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        bool valid;
        const size_t used = ls_utf8_next(row[i].p, row[i].n, &valid);
        if (valid || used != row[i].used) fail_msg("row %zu: valid %d, %zu bytes, expected %zu", i, valid, used, row[i].used);
    }
}

/* Eight bytes are looked at together where they are ASCII: an error is found at every place. */
static void finds_the_first_error_at_every_place(void **state)
{
    (void)state;
    char text[40];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'a', sizeof text);
        text[at] = (char)0xff;
        assert_int_equal(ls_utf8_check(text, sizeof text), at);
        assert_int_equal(ls_utf8_check(text, at), at);
    }
}

static void json_strings_are_safe_in_html_and_logs(void **state)
{
    (void)state;
    ls_text t = { 0 };
    ls_json_string(&t, "a\"\\\n\x7f<b>\xff\xe2\x82\xac");
    assert_string_equal(ls_text_str(&t), "\"a\\\"\\\\\\u000a\\u007f\\u003cb\\u003e\\ufffd\xe2\x82\xac\"");
    ls_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_every_code_point_in_its_shortest_form_only),
        cmocka_unit_test(takes_the_longest_beginning_of_a_character_as_one_error),
        cmocka_unit_test(finds_the_first_error_at_every_place),
        cmocka_unit_test(json_strings_are_safe_in_html_and_logs),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
