/* hash: CRC-32C against published values, and against the rule bit by bit. */
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

static void goes_on_where_a_piece_ends(void **state)
{
    (void)state;
    uint32_t whole = ls_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 1777)
        assert_int_equal(ls_crc32c(ls_crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_checksums),
        cmocka_unit_test(follows_the_rule_at_every_length_and_offset),
        cmocka_unit_test(goes_on_where_a_piece_ends),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
