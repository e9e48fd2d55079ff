/* The reduction kernels against plain loops: every operator, type, count and alignment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/copy.h"
#include "coll/reduce.h"
#include "lockstep/dtype.h"

#define MOST 9        /* vectors */
#define COUNT 2100    /* elements: two blocks and a tail */
#define BYTES (COUNT * 8 + 64)

/* --- one element, by the contract --------------------------------------------------- */

typedef union number { double f; int64_t i; } number; /* floats of any width, or integers */

static bool is_integer(ls_dtype t) { return t == LS_I32 || t == LS_I64 || t == LS_U8; }

static number load(ls_dtype t, const char *p, size_t i)
{
    number v = { .i = 0 };
    switch (t) {
    case LS_F32: { float x; memcpy(&x, p + 4 * i, 4); v.f = (double)x; break; }
    case LS_F64: memcpy(&v.f, p + 8 * i, 8); break;
    case LS_BF16: { uint16_t x; memcpy(&x, p + 2 * i, 2); v.f = (double)ls_bf16_to_f32(x); break; }
    case LS_F16: { uint16_t x; memcpy(&x, p + 2 * i, 2); v.f = (double)ls_f16_to_f32(x); break; }
    case LS_I32: { int32_t x; memcpy(&x, p + 4 * i, 4); v.i = x; break; }
    case LS_I64: memcpy(&v.i, p + 8 * i, 8); break;
    default: v.i = (uint8_t)p[i]; break;
    }
    return v;
}

/* The value as it is when it has been stored: rounded, or wrapped. */
static number stored(ls_dtype t, number v)
{
    switch (t) {
    case LS_F32: v.f = (double)(float)v.f; break;
    case LS_BF16: v.f = (double)ls_bf16_to_f32(ls_f32_to_bf16((float)v.f)); break;
    case LS_F16: v.f = (double)ls_f16_to_f32(ls_f32_to_f16((float)v.f)); break;
    case LS_I32: v.i = (int32_t)(uint32_t)(uint64_t)v.i; break;
    case LS_U8: v.i = (uint8_t)v.i; break;
    default: break;
    }
    return v;
}

/* a op b in the accumulator: double for f64, float for the narrower ones. */
static number op2(ls_dtype t, ls_redop op, number a, number b)
{
    number v;
    if (is_integer(t)) {
        uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i;
        v.i = op == LS_MAX ? (a.i > b.i ? a.i : b.i) : op == LS_MIN ? (a.i < b.i ? a.i : b.i)
            : (int64_t)(op == LS_PROD ? x * y : x + y);
        return stored(t, v);
    }
    bool a_below = a.f < b.f || (a.f == b.f && signbit(a.f)); /* -0 < +0 */
    if (op == LS_MAX) v.f = isnan(a.f) ? a.f : isnan(b.f) ? b.f : a_below ? b.f : a.f;
    else if (op == LS_MIN) v.f = isnan(a.f) ? a.f : isnan(b.f) ? b.f : a_below ? a.f : b.f;
    else if (t == LS_F64) v.f = op == LS_PROD ? a.f * b.f : a.f + b.f;
    else v.f = (double)(op == LS_PROD ? (float)a.f * (float)b.f : (float)a.f + (float)b.f);
    return v;
}

static number times(ls_dtype t, number a, double s)
{
    if (t == LS_F64) a.f *= s;
    else if (!is_integer(t)) a.f = (double)((float)a.f * (float)s);
    return a;
}

static bool same(ls_dtype t, number a, number b)
{
    if (is_integer(t)) return a.i == b.i;
    return (isnan(a.f) && isnan(b.f)) || (a.f == b.f && signbit(a.f) == signbit(b.f));
}

/* --- vectors ------------------------------------------------------------------------- */

static uint64_t dice(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 20;
}

/* Finite values of every size, now and then a special one. */
static void fill(ls_dtype t, char *p, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t u = dice(seed);
        double x = ldexp((double)(int32_t)(uint32_t)u, -31) * ldexp(1.0, (int)(u >> 40 & 15) - 8);
        if (u % 97 == 0) x = (double)INFINITY;
        if (u % 101 == 0) x = (double)NAN;
        if (u % 53 == 0) x = -0.0;
        float f = (float)x;
        uint16_t h = t == LS_BF16 ? ls_f32_to_bf16(f) : ls_f32_to_f16(f);
        int64_t k = (int64_t)(u * 2654435761u);
        switch (t) {
        case LS_F32: memcpy(p + 4 * i, &f, 4); break;
        case LS_F64: memcpy(p + 8 * i, &x, 8); break;
        case LS_BF16:
        case LS_F16: memcpy(p + 2 * i, &h, 2); break;
        case LS_I32: memcpy(p + 4 * i, &k, 4); break;
        case LS_I64: memcpy(p + 8 * i, &k, 8); break;
        default: p[i] = (char)k; break;
        }
    }
}

/* Unaligned on purpose, each vector differently; guards on both sides. */
static char *vector_of(ls_dtype t, size_t n, int shift, uint64_t *seed, char **block)
{
    *block = malloc(BYTES);
    memset(*block, 0x5a, BYTES);
    fill(t, *block + 16 + shift, n, seed);
    return *block + 16 + shift;
}

static void check_guards(const char *block, int shift, size_t nbytes)
{
    for (int i = 0; i < 16 + shift; i++) assert_int_equal(block[i], 0x5a);
    for (size_t i = 16 + (size_t)shift + nbytes; i < BYTES; i++) assert_int_equal(block[i], 0x5a);
}

static const size_t counts[] = { 0, 1, 2, 3, 7, 16, 31, 33, 100, 1023, 1025, COUNT };
#define NCOUNTS (sizeof counts / sizeof *counts)

/* --- tests ---------------------------------------------------------------------------- */

static void two_vectors_equal_a_plain_loop(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int d = 0; d < LS_DTYPES; d++)
        for (int op = 0; op < LS_REDOPS; op++)
            for (size_t c = 0; c < NCOUNTS; c++) {
                ls_dtype t = (ls_dtype)d;
                size_t n = counts[c], bytes = n * ls_dtype_size(t);
                char *b[3], *dst = vector_of(t, n, 1, &seed, &b[0]), *src = vector_of(t, n, 2, &seed, &b[1]);
                char *was = vector_of(t, n, 0, &seed, &b[2]);
                memcpy(was, dst, bytes);
                ls_reduce_2(dst, src, n, t, (ls_redop)op);
                for (size_t i = 0; i < n; i++) {
                    number want = stored(t, op2(t, (ls_redop)op, load(t, was, i), load(t, src, i)));
                    if (!same(t, load(t, dst, i), want))
                        fail_msg("%s %s, %zu elements: [%zu] differs", ls_dtype_name(t), ls_redop_name((ls_redop)op), n, i);
                }
                check_guards(b[0], 1, bytes);
                for (int i = 0; i < 3; i++) free(b[i]);
            }
}

/* LS_SUM_TREE by its contract, of vectors [first, first + n): of two halves; or of the largest tree and the rest. */
static number tree(ls_dtype t, char *const *v, size_t i, int first, int n)
{
    int most = 1;
    if (n == 1) return load(t, v[first], i);
    while (2 * most < n) most *= 2;
    return op2(t, LS_SUM, tree(t, v, i, first, most), tree(t, v, i, first + most, n - most));
}

/* nsrc vectors into the first ndst of them, in place, and into one apart. */
static void check_many(ls_dtype t, ls_redop op, int nsrc, int ndst, bool in_place, size_t n, uint64_t *seed)
{
    char *b[2 * MOST], *v[MOST], *was[MOST];
    void *dst[MOST];
    const void *src[MOST];
    size_t bytes = n * ls_dtype_size(t);
    double scale = 1.0 / nsrc;
    for (int k = 0; k < MOST; k++) {
        v[k] = vector_of(t, n, k % 5, seed, &b[k]);
        was[k] = vector_of(t, n, 0, seed, &b[MOST + k]);
        memcpy(was[k], v[k], bytes);
        src[k] = v[k];
    }
    for (int k = 0; k < MOST; k++) dst[k] = in_place ? v[k] : v[MOST - 1 - k];
    ls_reduce_n(dst, ndst, src, nsrc, n, t, op, scale);
    for (size_t i = 0; i < n; i++) {
        number want = load(t, was[0], i);
        if (op == LS_AVG) want = times(t, want, scale);
        if (op == LS_SUM_TREE) want = tree(t, was, i, 0, nsrc);
        for (int k = 1; k < nsrc && op != LS_SUM_TREE; k++) {
            number x = load(t, was[k], i);
            want = op2(t, op, want, op == LS_AVG ? times(t, x, scale) : x);
        }
        want = stored(t, want);
        for (int j = 0; j < ndst; j++)
            if (!same(t, load(t, dst[j], i), want))
                fail_msg("%s %s of %d into %d, %zu elements: [%zu] of %d differs", ls_dtype_name(t), ls_redop_name(op),
                         nsrc, ndst, n, i, j);
    }
    for (int k = 0; k < MOST; k++) {
        bool written = false;
        for (int j = 0; j < ndst; j++) written = written || dst[j] == v[k];
        if (!written) assert_memory_equal(v[k], was[k], bytes);
        check_guards(b[k], k % 5, bytes);
    }
    for (int k = 0; k < 2 * MOST; k++) free(b[k]);
}

static void many_vectors_equal_a_plain_loop(void **state)
{
    (void)state;
    static const int shape[][2] = { { 1, 1 }, { 2, 1 }, { 2, 2 }, { 3, 1 }, { 3, 3 }, { 4, 1 }, { 4, 4 }, { 5, 2 },
                                    { 6, 1 }, { 7, 1 }, { 9, 9 } };
    uint64_t seed = 2;
    for (int d = 0; d < LS_DTYPES; d++)
        for (int op = 0; op < LS_REDOPS; op++)
            for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
                for (size_t c = 0; c < NCOUNTS; c += op == LS_SUM || op == LS_AVG ? 1 : 3) {
                    check_many((ls_dtype)d, (ls_redop)op, shape[s][0], shape[s][1], true, counts[c], &seed);
                    if (shape[s][0] + shape[s][1] <= MOST)
                        check_many((ls_dtype)d, (ls_redop)op, shape[s][0], shape[s][1], false, counts[c], &seed);
                }
}

static void a_tree_is_added_pairwise(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int d = 0; d < LS_DTYPES; d++)
        for (int nsrc = 1; nsrc <= MOST; nsrc++)
            for (size_t c = 0; c < NCOUNTS; c += 2) {
                check_many((ls_dtype)d, LS_SUM_TREE, nsrc, nsrc, true, counts[c], &seed);
                if (nsrc < MOST) check_many((ls_dtype)d, LS_SUM_TREE, nsrc, 1, false, counts[c], &seed);
            }
}

/* 1 + 2^-24 is 1 in float, and 2^-24 + 2^-24 is not nothing: ranks 2 and 3 are a pair, ranks 1 and 2 are none. */
static void a_tree_is_not_the_ascending_sum(void **state)
{
    (void)state;
    const float v[4] = { 1.0f, 0x1p-24f, 0x1p-24f, 0x1p-24f };
    const void *src[4] = { &v[0], &v[1], &v[2], &v[3] };
    float out;
    void *dst = &out;
    ls_reduce_n(&dst, 1, src, 4, 1, LS_F32, LS_SUM, 1.0);
    assert_true(out == 1.0f);
    ls_reduce_n(&dst, 1, src, 4, 1, LS_F32, LS_SUM_TREE, 1.0);
    assert_true(out == 1.0f + 0x1p-23f);
    ls_reduce_n_past_cache(dst, src, 4, 1, LS_F32, LS_SUM_TREE, 1.0);
    assert_true(out == 1.0f + 0x1p-23f);
}

static void sixteen_bits_are_rounded_once_in_a_sum_of_many(void **state)
{
    (void)state;
    /* 256 + 1 is 256 in bfloat16 (8 bits of mantissa), but 256 + 1 + 1 + 1 is 259, nearest 260 */
    uint16_t v[4][2], out[2];
    const void *src[4] = { v[0], v[1], v[2], v[3] };
    void *dst = out;
    for (int k = 0; k < 4; k++) v[k][0] = v[k][1] = ls_f32_to_bf16(k ? 1.0f : 256.0f);
    ls_reduce_n(&dst, 1, src, 4, 2, LS_BF16, LS_SUM, 1.0);
    assert_true(ls_bf16_to_f32(out[1]) == 260.0f);
    for (int k = 1; k < 4; k++) ls_reduce_2(v[0], v[k], 2, LS_BF16, LS_SUM);
    assert_true(ls_bf16_to_f32(v[0][1]) == 256.0f);
}

static void averages_scale_before_they_add(void **state)
{
    (void)state;
    /* FLT_MAX/3 three times: the sum of the scaled ones is finite, the sum would not be */
    float x = 3e38f, out;
    const void *src[3] = { &x, &x, &x };
    void *dst = &out;
    ls_reduce_n(&dst, 1, src, 3, 1, LS_F32, LS_AVG, 1.0 / 3);
    assert_true(out == x * (float)(1.0 / 3) + x * (float)(1.0 / 3) + x * (float)(1.0 / 3) && isfinite(out));
    ls_reduce_n(&dst, 1, src, 3, 1, LS_F32, LS_SUM, 1.0 / 3); /* the scale is for averages */
    assert_true(isinf(out));
}

static void scales_and_divides_floats_only(void **state)
{
    (void)state;
    float f[3] = { 3.0f, -6.0f, 1.0f };
    int32_t i[1] = { 10 };
    uint16_t h[1] = { ls_f32_to_f16(3.0f) };
    ls_scale_values(f, 2, LS_F32, 1.0 / 3);
    assert_true(f[0] == 3.0f * (float)(1.0 / 3) && f[1] == -6.0f * (float)(1.0 / 3));
    ls_divide(f + 2, 1, LS_F32, 3.0);
    assert_true(f[2] == 1.0f / 3.0f);
    ls_scale_values(i, 1, LS_I32, 0.5);
    ls_divide(i, 1, LS_I32, 2.0);
    assert_int_equal(i[0], 10);
    ls_divide(h, 1, LS_F16, 2.0);
    assert_true(ls_f16_to_f32(h[0]) == 1.5f);
}

static void half_goes_there_and_back(void **state)
{
    (void)state;
    static const struct { float f; uint16_t h; } row[] = {
        { 0.0f, 0 },          { -0.0f, 0x8000 },       { 1.0f, 0x3c00 },       { -2.0f, 0xc000 },
        { 65504.0f, 0x7bff }, { 65519.9f, 0x7bff },    { 65520.0f, 0x7c00 },   { 1e9f, 0x7c00 },
        { 0x1p-14f, 0x0400 }, { 0x1p-24f, 0x0001 },    { 0x1p-25f, 0x0000 },   { 0x1.000002p-25f, 0x0001 },
        { 0x1.8p-24f, 0x0002 }, { 0x1.ff8p-15f, 0x03ff }, { 0x1.ffbp-15f, 0x03ff }, { 0x1.ffcp-15f, 0x0400 },
        { 1.00048828125f, 0x3c00 }, { 1.0014648f, 0x3c02 }, /* halfway: to even */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) assert_int_equal(ls_f32_to_f16(row[i].f), row[i].h);
    for (uint32_t h = 0; h < 65536; h++) {
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
        float f = ls_f16_to_f32((uint16_t)h);
        assert_int_equal(isnan(f) != 0, nan);
        if (nan) assert_true(isnan(ls_f16_to_f32(ls_f32_to_f16(f))));
        else assert_int_equal(ls_f32_to_f16(f), h);
    }
    assert_true(ls_f16_to_f32(0x3555) == 0x1.554p-2f);
    assert_true(ls_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(isinf(ls_f16_to_f32(0xfc00)) && ls_f16_to_f32(0xfc00) < 0);
}

static void orders_zeros_by_their_sign(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_F32, LS_F64, LS_BF16, LS_F16 };
    for (int k = 0; k < 4; k++)
        for (int order = 0; order < 2; order++)
            for (int op = LS_MAX; op <= LS_MIN; op++) {
                size_t size = ls_dtype_size(types[k]);
                char zero[2][8 * 9] = { { 0 }, { 0 } }, sum[8 * 9];
                for (size_t i = 0; i < 9; i++) zero[1][i * size + size - 1] = (char)0x80; /* -0 */
                void *dst = sum;
                const void *src[2] = { zero[order], zero[!order] };
                ls_reduce_n(&dst, 1, src, 2, 9, types[k], (ls_redop)op, 1.0);
                assert_memory_equal(sum, zero[op == LS_MIN], 9 * size);
                memcpy(sum, zero[order], 9 * size);
                ls_reduce_2(sum, zero[!order], 9, types[k], (ls_redop)op);
                assert_memory_equal(sum, zero[op == LS_MIN], 9 * size);
            }
}

/* --- past the caches ---------------------------------------------------------------------- */

static void copies_past_the_caches_every_byte_and_no_other(void **state)
{
    (void)state;
    static unsigned char from[700], to[700];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 7 + 1);
    for (size_t at = 0; at < 70; at += 3)
        for (size_t n = 0; n < 600; n += 1 + n / 9) {
            memset(to, 0xee, sizeof to);
            ls_copy_past_cache(to + at, from + at / 2, n);
            for (size_t i = 0; i < sizeof to; i++) {
                bool inside = i >= at && i < at + n;
                assert_int_equal(to[i], inside ? from[i - at + at / 2] : 0xee);
            }
        }
}

static void copies_to_several_places_at_once(void **state)
{
    (void)state;
    static unsigned char from[20000], to[3][20000];
    static const size_t lengths[] = { 0, 1, 63, 64, 4095, 4096, 4097, 9000, 19900 };
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 7 + i / 251);
    for (int nto = 0; nto <= 3; nto++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            size_t n = lengths[k];
            memset(to, 0xee, sizeof to);
            void *dst[3] = { to[0], to[1] + 5, to[2] + 64 };
            ls_spread_past_cache(dst, nto, from + 3, n);
            for (int j = 0; j < 3; j++) {
                size_t at = (size_t)((unsigned char *)dst[j] - to[j]), m = j < nto ? n : 0;
                for (size_t i = 0; i < sizeof to[j]; i++)
                    if (to[j][i] != (i >= at && i < at + m ? from[i - at + 3] : 0xee))
                        fail_msg("%zu bytes to %d places: byte %zu of place %d", n, nto, i, j);
            }
        }
}

static void sums_past_the_caches_have_the_same_bits(void **state)
{
    (void)state;
    enum { N = 300, ROOM = N + 40 };
    static float from[20][ROOM], want[ROOM], to[ROOM];
    for (int r = 0; r < 20; r++)
        for (size_t i = 0; i < ROOM; i++) from[r][i] = (float)((i * 7919 + (size_t)r * 104729) % 1000) * 0.37f - 100.0f;
    for (int nsrc = 1; nsrc <= 20; nsrc++)
        for (size_t at = 0; at < 20; at += 3)
            for (size_t n = 0; n < N; n += 1 + n / 3) {
                for (int op = 0; op < 2; op++) {
                    const void *src[20];
                    void *dst = want + at;
                    for (int r = 0; r < nsrc; r++) src[r] = from[r] + (at + (size_t)r) % 5;
                    memset(want, 0xee, sizeof want);
                    memset(to, 0xee, sizeof to);
                    ls_redop sum = op ? LS_AVG : LS_SUM;
                    if (n > 0) ls_reduce_n(&dst, 1, src, nsrc, n, LS_F32, sum, 0.3);
                    ls_reduce_n_past_cache(to + at, src, nsrc, n, LS_F32, sum, 0.3);
                    assert_memory_equal(to, want, sizeof to);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_vectors_equal_a_plain_loop),
        cmocka_unit_test(many_vectors_equal_a_plain_loop),
        cmocka_unit_test(a_tree_is_added_pairwise),
        cmocka_unit_test(a_tree_is_not_the_ascending_sum),
        cmocka_unit_test(sixteen_bits_are_rounded_once_in_a_sum_of_many),
        cmocka_unit_test(averages_scale_before_they_add),
        cmocka_unit_test(scales_and_divides_floats_only),
        cmocka_unit_test(half_goes_there_and_back),
        cmocka_unit_test(orders_zeros_by_their_sign),
        cmocka_unit_test(copies_past_the_caches_every_byte_and_no_other),
        cmocka_unit_test(copies_to_several_places_at_once),
        cmocka_unit_test(sums_past_the_caches_have_the_same_bits),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
