/* noise, aead: the published vector, and everything that must not open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "golden/noise.h"
#include "meet/noise.h"

#define N(x) (sizeof(x) / sizeof *(x))
#define M LS_NOISE_MESSAGE_BYTES

static size_t bytes_of(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return n;
}

static void assert_hex(const void *p, size_t n, const char *hex)
{
    uint8_t want[256];
    assert_int_equal(bytes_of(hex, want), n);
    assert_memory_equal(p, want, n);
}

static void one_side(ls_noise *s, bool initiator, const char *psk, const char *prologue)
{
    uint8_t key[32], e[32], p[64];
    bytes_of(psk, key);
    bytes_of(initiator ? noise_init_e : noise_resp_e, e);
    size_t n = bytes_of(prologue, p);
    ls_noise_init(s, initiator, key, e, p, n);
}

static void two_sides(ls_noise *a, ls_noise *b)
{
    one_side(a, true, noise_psk, noise_prologue);
    one_side(b, false, noise_psk, noise_prologue);
}

static void gives_the_published_messages(void **state)
{
    (void)state;
    ls_noise s[2];
    ls_aead send[2], receive[2];
    uint8_t payload[64], message[128], got[64];
    two_sides(&s[0], &s[1]);
    for (size_t i = 0; i < N(noise_message); i++) {
        size_t from = i % 2, n = bytes_of(noise_message[i][0], payload), m = n + LS_AEAD_TAG_BYTES;
        if (i < 2) {
            m = n + M;
            assert_true(ls_noise_write(&s[from], payload, n, message));
            assert_true(ls_noise_read(&s[1 - from], message, m, got));
        } else {
            assert_true(ls_aead_seal(&send[from], NULL, 0, payload, n, message));
            assert_true(ls_aead_open(&receive[1 - from], NULL, 0, message, m, got));
        }
        assert_hex(message, m, noise_message[i][1]);
        assert_memory_equal(got, payload, n);
        if (i != 1) continue;
        for (int k = 0; k < 2; k++) {
            assert_true(ls_noise_complete(&s[k]));
            ls_noise_split(&s[k], &send[k], &receive[k]);
            assert_hex(s[k].h, sizeof s[k].h, noise_hash);
        }
    }
}

/* Runs a handshake with both messages handed through `spoil`; how far it came: 0, 1 or 2 messages were accepted. */
static int accepted(ls_noise *a, ls_noise *b, void (*spoil)(int which, uint8_t *m, size_t *n))
{
    uint8_t m[2 * M], got[1];
    size_t n = M;
    assert_true(ls_noise_write(a, NULL, 0, m));
    if (spoil) spoil(0, m, &n);
    if (!ls_noise_read(b, m, n, got)) return 0;
    n = M;
    assert_true(ls_noise_write(b, NULL, 0, m));
    if (spoil) spoil(1, m, &n);
    return ls_noise_read(a, m, n, got) ? 2 : 1;
}

static void another_key_is_refused_at_the_first_message(void **state)
{
    (void)state;
    ls_noise a, b;
    two_sides(&a, &b);
    assert_int_equal(accepted(&a, &b, NULL), 2);
    for (int bit = 0; bit < 256; bit++) {
        two_sides(&a, &b);
        b.psk[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(accepted(&a, &b, NULL), 0);
        assert_false(ls_noise_complete(&b));
    }
}

static void another_prologue_is_refused_at_the_first_message(void **state)
{
    (void)state;
    static const char *const other[] = { "", "4a", "4a6f686e2047616c75", "4a6f686e2047616c7400" };
    for (size_t i = 0; i < N(other); i++) {
        ls_noise a, b;
        one_side(&a, true, noise_psk, noise_prologue);
        one_side(&b, false, noise_psk, other[i]);
        assert_int_equal(accepted(&a, &b, NULL), 0);
    }
}

static int flip_which, flip_bit;
static void flip(int which, uint8_t *m, size_t *n)
{
    (void)n;
    if (which == flip_which) m[flip_bit / 8] ^= (uint8_t)(1 << flip_bit % 8);
}

static size_t cut_to;
static void cut(int which, uint8_t *m, size_t *n)
{
    (void)m;
    if (which == flip_which) *n = cut_to;
}

/* The top bit of a public key is ignored by X25519, but not by the hash. */
static void no_bit_may_change(void **state)
{
    (void)state;
    for (flip_which = 0; flip_which < 2; flip_which++)
        for (flip_bit = 0; flip_bit < 8 * (int)M; flip_bit++) {
            ls_noise a, b;
            two_sides(&a, &b);
            assert_int_equal(accepted(&a, &b, flip), flip_which);
        }
}

static void no_byte_may_be_missing_or_more(void **state)
{
    (void)state;
    for (flip_which = 0; flip_which < 2; flip_which++)
        for (cut_to = 0; cut_to <= M + 1; cut_to++) {
            ls_noise a, b;
            two_sides(&a, &b);
            assert_int_equal(accepted(&a, &b, cut), cut_to == M ? 2 : flip_which);
        }
}

/* A message sent back to whoever sent it, and one of an earlier handshake. */
static void neither_reflected_nor_replayed(void **state)
{
    (void)state;
    ls_noise a, b, c;
    uint8_t first[M], second[M], got[1];
    two_sides(&a, &b);
    assert_true(ls_noise_write(&a, NULL, 0, first));
    assert_false(ls_noise_read(&a, first, M, got)); /* back to the initiator, in place of the second */

    two_sides(&a, &b);
    assert_true(ls_noise_write(&a, NULL, 0, first));
    assert_true(ls_noise_read(&b, first, M, got));
    assert_true(ls_noise_write(&b, NULL, 0, second));
    assert_false(ls_noise_read(&b, first, M, got)); /* once only */

    /* recorded messages against fresh keys: the first is accepted, and leads nowhere */
    uint8_t key[32], e[32] = { 7 }, p[64], answer[M];
    bytes_of(noise_psk, key);
    size_t n = bytes_of(noise_prologue, p);
    ls_aead send, receive, stale;
    ls_noise_init(&c, false, key, e, p, n);
    assert_true(ls_noise_read(&c, first, M, got));
    assert_true(ls_noise_write(&c, NULL, 0, answer));
    assert_memory_not_equal(answer, second, M);
    ls_noise_split(&c, &send, &receive);
    ls_noise_split(&b, &send, &stale);
    uint8_t frame[4 + LS_AEAD_TAG_BYTES];
    assert_true(ls_aead_seal(&stale, NULL, 0, "go!", 4, frame));
    assert_false(ls_aead_open(&receive, NULL, 0, frame, sizeof frame, frame));

    ls_noise_init(&c, true, key, e, p, n); /* and the second is not even that */
    assert_true(ls_noise_write(&c, NULL, 0, answer));
    assert_false(ls_noise_read(&c, second, M, got));
}

/* Points whose product with any key is zero (RFC 7748, section 6.1; Noise, section 12.1). */
static void keys_of_small_order_are_refused(void **state)
{
    (void)state;
    static const char *const small[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    for (size_t i = 0; i < N(small); i++) {
        ls_noise a, b;
        uint8_t m[M], got[1];
        two_sides(&a, &b);
        assert_true(ls_noise_write(&a, NULL, 0, m));
        assert_true(ls_noise_read(&b, m, M, got));
        bytes_of(small[i], b.re); /* what b would have read from somebody who knows the key */
        assert_false(ls_noise_write(&b, NULL, 0, m));
        assert_false(ls_noise_complete(&b));
    }
}

static void turns_are_kept(void **state)
{
    (void)state;
    ls_noise a, b;
    uint8_t m[M], got[1];
    two_sides(&a, &b);
    assert_false(ls_noise_write(&b, NULL, 0, m));
    assert_true(ls_noise_write(&a, NULL, 0, m));
    assert_false(ls_noise_write(&a, NULL, 0, m));
    assert_true(ls_noise_read(&b, m, M, got));
    assert_true(ls_noise_write(&b, NULL, 0, m));
    assert_true(ls_noise_read(&a, m, M, got));
    assert_false(ls_noise_write(&a, NULL, 0, m));
    assert_false(ls_noise_read(&a, m, M, got));
    assert_true(ls_noise_complete(&a));
}

static void keys_are_wiped(void **state)
{
    (void)state;
    ls_noise a, b, zero;
    ls_aead send, receive;
    uint8_t m[M], got[1];
    two_sides(&a, &b);
    assert_int_equal(accepted(&a, &b, NULL), 2);
    ls_noise_split(&a, &send, &receive);
    memset(a.h, 0, sizeof a.h);
    memset(&zero, 0, sizeof zero);
    assert_memory_equal(&a, &zero, sizeof zero);
    two_sides(&a, &b);
    assert_true(ls_noise_write(&a, NULL, 0, m));
    m[40] ^= 1;
    assert_false(ls_noise_read(&b, m, M, got));
    b.failed = false;
    assert_memory_equal(&b, &zero, sizeof zero);
    ls_aead_wipe(&send);
    assert_memory_equal(&send, &zero, sizeof send);
    assert_false(ls_aead_seal(&send, NULL, 0, "x", 1, m));
    assert_false(ls_aead_open(&send, NULL, 0, m, 17, m));
}

/* --- frames after the handshake ---------------------------------------------------------------------- */

static void frames_open_once_in_order_and_unchanged(void **state)
{
    (void)state;
    static const uint8_t key[32] = { 1, 2, 3 };
    ls_aead out, in;
    uint8_t frame[3][5 + LS_AEAD_TAG_BYTES], got[5];
    ls_aead_init(&out, key);
    ls_aead_init(&in, key);
    for (int i = 0; i < 3; i++) assert_true(ls_aead_seal(&out, "ad", 2, "lorem", 5, frame[i]));
    assert_memory_not_equal(frame[0], frame[1], 5);
    assert_false(ls_aead_open(&in, "ad", 2, frame[1], sizeof frame[1], got)); /* one is missing */
    assert_false(ls_aead_open(&in, "aD", 2, frame[0], sizeof frame[0], got));
    assert_false(ls_aead_open(&in, "ad", 1, frame[0], sizeof frame[0], got));
    for (size_t n = 0; n < sizeof frame[0]; n++) assert_false(ls_aead_open(&in, "ad", 2, frame[0], n, got));
    for (size_t bit = 0; bit < 8 * sizeof frame[0]; bit++) {
        frame[0][bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(ls_aead_open(&in, "ad", 2, frame[0], sizeof frame[0], got));
        frame[0][bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(ls_aead_open(&in, "ad", 2, frame[0], sizeof frame[0], got));
    assert_memory_equal(got, "lorem", 5);
    assert_false(ls_aead_open(&in, "ad", 2, frame[0], sizeof frame[0], got)); /* a replay */
    assert_true(ls_aead_open(&in, "ad", 2, frame[1], sizeof frame[1], got));
    assert_true(ls_aead_open(&in, "ad", 2, frame[2], sizeof frame[2], frame[2])); /* in place */
    assert_memory_equal(frame[2], "lorem", 5);
}

static void both_ends_change_the_key_together(void **state)
{
    (void)state;
    static const uint8_t key[32] = { 9 };
    ls_aead out, in;
    uint8_t frame[LS_AEAD_TAG_BYTES];
    ls_aead_init(&out, key);
    ls_aead_init(&in, key);
    out.n = in.n = LS_AEAD_REKEY - 2;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(memcmp(out.key, key, 32) == 0, i < 2);
        assert_true(ls_aead_seal(&out, NULL, 0, "", 0, frame));
        assert_true(ls_aead_open(&in, NULL, 0, frame, sizeof frame, frame));
    }
    assert_memory_equal(out.key, in.key, 32);
    assert_int_equal(out.n, LS_AEAD_REKEY + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_messages),
        cmocka_unit_test(another_key_is_refused_at_the_first_message),
        cmocka_unit_test(another_prologue_is_refused_at_the_first_message),
        cmocka_unit_test(no_bit_may_change),
        cmocka_unit_test(no_byte_may_be_missing_or_more),
        cmocka_unit_test(neither_reflected_nor_replayed),
        cmocka_unit_test(keys_of_small_order_are_refused),
        cmocka_unit_test(turns_are_kept),
        cmocka_unit_test(keys_are_wiped),
        cmocka_unit_test(frames_open_once_in_order_and_unchanged),
        cmocka_unit_test(both_ends_change_the_key_together),
    };
    return cmocka_run_group_tests_name("noise", tests, NULL, NULL);
}
