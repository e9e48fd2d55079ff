/* hash: CRC-32C against published values, and against the rule bit by bit; XXH3's digest against published values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"

/* RFC 3720, appendix B.4; and the check value of the catalogue of CRCs. */
static void gives_the_published_checksums(void **state)
{
    (void)state;
    unsigned char b[32];
    assert_int_equal(ls_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(ls_crc32c(0, "", 0), 0);
    memset(b, 0, sizeof b);
    assert_int_equal(ls_crc32c(0, b, sizeof b), 0x8a9136aau);
    memset(b, 0xff, sizeof b);
    assert_int_equal(ls_crc32c(0, b, sizeof b), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof b; i++) b[i] = (unsigned char)i;
    assert_int_equal(ls_crc32c(0, b, sizeof b), 0x46dd794eu);
}

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *b, size_t n)
{
    crc = ~crc;
    for (; n > 0; n--) {
        crc ^= *b++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static unsigned char bytes[70000];

static void follows_the_rule_at_every_length_and_offset(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    static const size_t n[] = { 1,    7,    8,    9,     15,    255,   256,   767,   768,   769,
                                1535, 1536, 2047, 2048,  2049,  2304,  4095,  12287, 12288, 12289,
                                13055, 13056, 36871, 65536 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (size_t offset = 0; offset < 9; offset += 4) {
            uint32_t want = bit_by_bit((uint32_t)i, bytes + offset, n[i]);
            assert_int_equal(ls_crc32c((uint32_t)i, bytes + offset, n[i]), want);
            assert_int_equal(ls_crc32c_narrow((uint32_t)i, bytes + offset, n[i]), want);
        }
}

static void a_step_is_eight_bytes(void **state)
{
    (void)state;
    static const unsigned char b[8] = { 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12 };
    for (uint32_t crc = 1; crc != 0; crc <<= 3)
        assert_int_equal(ls_crc32c_step(crc, 0x123456789abcdef0ull), ~bit_by_bit(~crc, b, sizeof b));
}

static void goes_on_where_a_piece_ends(void **state)
{
    (void)state;
    uint32_t whole = ls_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 1777)
        assert_int_equal(ls_crc32c(ls_crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}

/* XXH3-128 and XXH3-64 with seed 0, as xxhsum prints them: the high word comes first. */
static void digests_are_the_published_ones(void **state)
{
    (void)state;
    static const struct { const char *text, *hex; uint64_t low; } row[] = {
        { "", "99aa06d3014798d86001c324468d497f", 0x2d06800538d394c2 },
        { "a", "a96faf705af16834e6c632b61e964e1f", 0xe6c632b61e964e1f },
        { "abc", "06b05ab6733a618578af5f94892f3950", 0x78af5f94892f3950 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_digest *d = ls_digest_create();
        char hex[33];
        ls_digest_add(d, row[i].text, strlen(row[i].text));
        ls_digest_hex(d, hex);
        assert_string_equal(hex, row[i].hex);
        assert_true(ls_digest_u64(d) == row[i].low);
        ls_digest_destroy(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_the_published_ones),
        cmocka_unit_test(gives_the_published_checksums),
        cmocka_unit_test(follows_the_rule_at_every_length_and_offset),
        cmocka_unit_test(a_step_is_eight_bytes),
        cmocka_unit_test(goes_on_where_a_piece_ends),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
