/* rng: published vectors of both generators, PyTorch's golden draws, and independence from sharding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/rng.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Known-answer vectors published with Random123 for philox4x32, 10 rounds. */
static void philox_gives_its_published_answers(void **state)
{
    (void)state;
    static const struct { uint64_t seed, stream, block; uint32_t want[4]; } row[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        uint32_t got[4];
        ls_philox_block(row[i].seed, row[i].stream, row[i].block, got);
        for (int k = 0; k < 4; k++) assert_int_equal(got[k], row[i].want[k]);
    }
}

static void many_blocks_are_blocks_one_by_one(void **state)
{
    (void)state;
    enum { MOST = 70 };
    const uint64_t first[] = { 0, 0xffffffe0, UINT64_MAX - 20 }; /* across a carry, and around */
    uint32_t got[4 * MOST + 1], want[4];
    for (size_t f = 0; f < COUNT(first); f++)
        for (size_t n = 0; n <= MOST; n++) {
            got[4 * n] = 0x5eed;
            ls_philox_blocks(0x1234567890abcdef, 0xfedcba0987654321, first[f], n, got);
            assert_int_equal(got[4 * n], 0x5eed);
            for (size_t i = 0; i < n; i++) {
                ls_philox_block(0x1234567890abcdef, 0xfedcba0987654321, first[f] + i, want);
                assert_memory_equal(got + 4 * i, want, sizeof want);
            }
        }
}

static void philox_does_not_depend_on_the_shard(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float whole[N], part[N];
    for (int normal = 0; normal < 2; normal++) {
        uint64_t at = 0xfffffff0; /* across a carry of the low counter word */
        if (normal) ls_philox_normal(7, 3, at, N, 2.0f, whole);
        else ls_philox_uniform(7, 3, at, N, -1.0f, 1.0f, whole);
        for (size_t step = 1; step < 20; step++) {
            memset(part, 0, sizeof part);
            for (size_t i = 0; i < N; i += step) {
                size_t n = N - i < step ? N - i : step;
                if (normal) ls_philox_normal(7, 3, at + i, n, 2.0f, part + i);
                else ls_philox_uniform(7, 3, at + i, n, -1.0f, 1.0f, part + i);
            }
            assert_memory_equal(whole, part, sizeof whole);
        }
    }
}

static void philox_streams_and_seeds_differ(void **state)
{
    (void)state;
    float a[64], b[64], c[64];
    ls_philox_uniform(1, 1, 0, 64, 0.0f, 1.0f, a);
    ls_philox_uniform(1, 2, 0, 64, 0.0f, 1.0f, b);
    ls_philox_uniform(2, 1, 0, 64, 0.0f, 1.0f, c);
    for (int i = 0; i < 64; i++) assert_true(a[i] != b[i] && a[i] != c[i]); /* chance of one equal: 2^-18 */
}

static const ls_stream_use uses[] = { LS_STREAM_VALUES, LS_STREAM_SAMPLE, LS_STREAM_ORDER, LS_STREAM_DROPOUT };

/* A stream says which use and which number it is of; the old streams of all but dropout are what they were. */
static void a_stream_belongs_to_one_use_and_one_number(void **state)
{
    (void)state;
    static const uint64_t number[] = { 0, 1, 2, 0xffff, 0x10000, ((uint64_t)1 << 56) - 1 };
    for (size_t u = 0; u < COUNT(uses); u++)
        for (size_t i = 0; i < COUNT(number); i++) {
            const uint64_t s = ls_stream(uses[u], number[i]);
            assert_true(s >> 56 == (uint64_t)uses[u] && s << 8 >> 8 == number[i]);
            assert_true(ls_stream(uses[u], number[i] | (uint64_t)0xa5 << 56) == s); /* no number reaches another use */
            for (size_t v = 0; v < u; v++) assert_true(uses[v] != uses[u]);
        }
    assert_true(ls_stream(LS_STREAM_VALUES, 7) == 7);
    assert_true(ls_stream(LS_STREAM_SAMPLE, 0) == (uint64_t)1 << 62);
    assert_true(ls_stream(LS_STREAM_ORDER, 7) == ((uint64_t)1 << 63 | 7));
}

/* Words of two uses for the same seed, number and block: never equal, and as unlike as words of chance. */
static void uses_draw_independent_words(void **state)
{
    (void)state;
    enum { N = 64 }; /* blocks */
    for (size_t a = 0; a < COUNT(uses); a++)
        for (size_t b = 0; b < a; b++) {
            double agree = 0, bits = 0;
            for (uint64_t seed = 0; seed < 4; seed++)
                for (uint64_t number = 0; number < 16; number++) {
                    uint32_t x[4 * N], y[4 * N];
                    ls_philox_blocks(seed, ls_stream(uses[a], number), 0, N, x);
                    ls_philox_blocks(seed, ls_stream(uses[b], number), 0, N, y);
                    for (int i = 0; i < N; i++) assert_memory_not_equal(x + 4 * i, y + 4 * i, 4 * sizeof *x);
                    for (int i = 0; i < 4 * N; i++) agree += 32 - __builtin_popcount(x[i] ^ y[i]);
                    bits += 4 * N * 32;
                }
            assert_true(fabs(agree / bits - 0.5) < 5.0 * 0.5 / sqrt(bits)); /* five standard errors */
        }
}

static void philox_uniform_stays_below_its_upper_bound(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N];
    const float lo = 1e6f, hi = nextafterf(lo, 2e6f); /* half of the sums would round up to hi */
    ls_philox_uniform(1, 0, 0, N, lo, hi, x);
    for (int i = 0; i < N; i++) assert_true(x[i] >= lo && x[i] < hi);
}

static void check_moments(const float *x, size_t n, double mean, double variance)
{
    double sum = 0.0, sq = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i];
    for (size_t i = 0; i < n; i++) sq += ((double)x[i] - mean) * ((double)x[i] - mean);
    /* five standard errors: sqrt(v / n) of the mean, v sqrt(k / n) of the variance with k <= 2 for both shapes */
    assert_true(fabs(sum / (double)n - mean) < 5.0 * sqrt(variance / (double)n));
    assert_true(fabs(sq / (double)n - variance) < 5.0 * variance * sqrt(2.0 / (double)n));
}

static void draws_have_the_right_mean_and_variance(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static float x[N];
    ls_mt19937 g;
    ls_philox_uniform(5, 0, 0, N, -1.0f, 3.0f, x);
    check_moments(x, N, 1.0, 16.0 / 12.0);
    ls_philox_normal(5, 0, 0, N, 0.5f, x);
    check_moments(x, N, 0.0, 0.25);
    ls_mt19937_seed(&g, 5);
    ls_mt19937_normal(&g, N, x);
    check_moments(x, N, 0.0, 1.0);
}

/* Box and Muller by hand from the words of a block, and no two of its four values alike. */
static void philox_normal_follows_box_and_muller(void **state)
{
    (void)state;
    enum { N = 64 };
    float x[N];
    ls_philox_normal(11, 4, 0, N, 1.0f, x);
    for (uint64_t b = 0; b < N / 4; b++) {
        uint32_t word[4];
        ls_philox_block(11, 4, b, word);
        for (int k = 0; k < 4; k++) {
            const uint32_t *pair = word + k / 2 * 2;
            const double u1 = ((double)pair[0] + 1.0) / 4294967296.0, u2 = (double)pair[1] / 4294967296.0;
            const double r = sqrt(-2.0 * log(u1)), angle = 2.0 * acos(-1.0) * u2;
            const double want = r * (k % 2 ? sin(angle) : cos(angle));
            assert_true(fabs((double)x[4 * b + (uint64_t)k] - want) <= 0x1p-22 * (1.0 + fabs(want)));
        }
    }
}

/* The paper's reference program, seeded with its default 5489. */
static void mt19937_gives_its_published_answers(void **state)
{
    (void)state;
    ls_mt19937 g;
    ls_mt19937_seed(&g, 5489);
    assert_int_equal(ls_mt19937_next(&g), 3499211612u);
    assert_int_equal(ls_mt19937_next(&g), 581869302u);
    for (int i = 2; i < 9999; i++) ls_mt19937_next(&g);
    assert_int_equal(ls_mt19937_next(&g), 4123659995u); /* the 10,000th, as the C++ standard demands */

    ls_mt19937 low;
    ls_mt19937_seed(&low, 5489);
    ls_mt19937_seed(&g, 5489 + (UINT64_C(9) << 32)); /* the low 32 bits count */
    assert_int_equal(ls_mt19937_next(&g), ls_mt19937_next(&low));
}

static void randperm_matches_pytorch(void **state)
{
    (void)state;
    static const struct { uint64_t seed; size_t n; int64_t want[20]; } row[] = {
        { 0, 10, { 4, 1, 7, 5, 3, 9, 0, 8, 6, 2 } },
        { 1, 10, { 5, 6, 1, 2, 0, 8, 9, 3, 7, 4 } },
        { 0, 20, { 4, 5, 13, 19, 7, 14, 3, 6, 9, 17, 11, 2, 16, 18, 10, 12, 15, 8, 1, 0 } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_mt19937 g;
        int64_t got[20];
        ls_mt19937_seed(&g, row[i].seed);
        assert_int_equal(ls_mt19937_randperm(&g, row[i].n, got), LS_OK);
        assert_memory_equal(got, row[i].want, row[i].n * sizeof *got);
    }
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    assert_int_equal(ls_mt19937_randperm(&g, 0, NULL), LS_OK);
    assert_int_equal(ls_mt19937_randperm(&g, (size_t)1 << 32, NULL), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "randperm of 4294967296"));
}

static void uniform_matches_pytorch(void **state)
{
    (void)state;
    static const float want[] = { 0x1.fc2abp-2f, 0x1.89545ep-1f, 0x1.6a675p-4f, 0x1.0e66p-3f, 0x1.3acd0cp-2f };
    float got[5];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    ls_mt19937_uniform(&g, 0.0f, 1.0f, 5, got);
    assert_memory_equal(got, want, sizeof want);

    /* torch.empty(8).uniform_(-0.123, 0.123): bounds that are not powers of two show how sums are rounded */
    static const float skew[] = { -0x1.e2ce46p-11f, 0x1.0e43bcp-4f,  -0x1.9ea82p-4f,  -0x1.72c5ap-4f,
                                  -0x1.841674p-5f,  0x1.0e331cp-5f, -0x1.3f6cdcp-9f, 0x1.8f76cep-4f };
    float skewed[8];
    ls_mt19937_seed(&g, 0);
    ls_mt19937_uniform(&g, -0.123f, 0.123f, 8, skewed);
    assert_memory_equal(skewed, skew, sizeof skew);
}

static void randint_matches_pytorch(void **state)
{
    (void)state;
    static const int64_t want[] = { 4, 9, 3, 0, 3, 9, 7, 3, 7, 3 };
    int64_t got[10];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    assert_int_equal(ls_mt19937_randint(&g, 0, 10, 10, got), LS_OK);
    assert_memory_equal(got, want, sizeof want);

    ls_mt19937_seed(&g, 0); /* the same draws, counted from -5 */
    assert_int_equal(ls_mt19937_randint(&g, -5, 5, 10, got), LS_OK);
    for (int i = 0; i < 10; i++) assert_int_equal(got[i], want[i] - 5);

    static const struct { int64_t lo, hi; } bad[] = {
        { 0, 0 }, { 1, 0 }, { 0, INT64_C(1) << 32 }, { INT64_MIN, INT64_MAX },
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(ls_mt19937_randint(&g, bad[i].lo, bad[i].hi, 1, got), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "expected lo < hi"));
    assert_int_equal(ls_mt19937_randint(&g, 0, (INT64_C(1) << 32) - 1, 1, got), LS_OK);
}

static void short_randn_matches_pytorch(void **state)
{
    (void)state;
    static const float want[] = { 1.5409960747f, -0.2934288979f, -2.1787893772f, 0.5684312582f, -1.0845223665f };
    float got[5];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    ls_mt19937_normal(&g, 5, got);
    assert_memory_equal(got, want, sizeof want);

    ls_mt19937_seed(&g, 0); /* the second of a pair waits for the next call */
    for (int i = 0; i < 5; i++) ls_mt19937_normal(&g, 1, &got[i]);
    assert_memory_equal(got, want, sizeof want);
}

static void long_randn_matches_pytorch(void **state)
{
    (void)state;
    static const float want[] = { -1.1258398294f, -1.1523602009f, -0.2505785823f, -0.4338788092f };
    static float got[4000];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    ls_mt19937_normal(&g, 16, got);
    /* 1e-6: PyTorch's vectorised log and cos work in float and are good to a few units in the last place */
    for (size_t i = 0; i < COUNT(want); i++) assert_true(fabsf(got[i] - want[i]) <= 1e-6f);

    /* the exercise's data: randn(1000, 4), then randint(0, 3) */
    static const int64_t label[] = { 1, 2, 1, 1, 1, 2, 2, 1, 2, 2 };
    int64_t drawn[10];
    ls_mt19937_seed(&g, 0);
    ls_mt19937_normal(&g, 4000, got);
    assert_int_equal(ls_mt19937_randint(&g, 0, 3, 10, drawn), LS_OK);
    assert_memory_equal(drawn, label, sizeof label);
}

static void long_randn_redraws_a_ragged_end(void **state)
{
    (void)state;
    float ragged[20], first[16], last[16], u[20];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 3);
    ls_mt19937_normal(&g, 20, ragged);
    ls_mt19937_seed(&g, 3);
    ls_mt19937_normal(&g, 16, first);
    ls_mt19937_uniform(&g, 0.0f, 1.0f, 4, u); /* drawn for elements 16..19, then thrown away */
    ls_mt19937_normal(&g, 16, last);
    assert_memory_equal(ragged, first, 4 * sizeof *first);
    assert_memory_equal(ragged + 4, last, sizeof last);
}

/* nn.Linear(4, 3) after manual_seed(0): 12 weights, then 3 biases, all within 1 / sqrt(4). */
static void a_linear_layers_draws_match_pytorch(void **state)
{
    (void)state;
    static const float bias[] = { -0.4776742458f, -0.3311410546f, -0.2061115503f };
    float w[12], b[3];
    ls_mt19937 g;
    ls_mt19937_seed(&g, 0);
    ls_mt19937_uniform(&g, -0.5f, 0.5f, 12, w);
    ls_mt19937_uniform(&g, -0.5f, 0.5f, 3, b);
    assert_true(w[0] == -0.0037434101f);
    assert_true(w[1] == 0.2682217956f);
    assert_memory_equal(b, bias, sizeof bias);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_published_answers),
        cmocka_unit_test(many_blocks_are_blocks_one_by_one),
        cmocka_unit_test(philox_does_not_depend_on_the_shard),
        cmocka_unit_test(philox_streams_and_seeds_differ),
        cmocka_unit_test(a_stream_belongs_to_one_use_and_one_number),
        cmocka_unit_test(uses_draw_independent_words),
        cmocka_unit_test(philox_uniform_stays_below_its_upper_bound),
        cmocka_unit_test(draws_have_the_right_mean_and_variance),
        cmocka_unit_test(philox_normal_follows_box_and_muller),
        cmocka_unit_test(mt19937_gives_its_published_answers),
        cmocka_unit_test(randperm_matches_pytorch),
        cmocka_unit_test(uniform_matches_pytorch),
        cmocka_unit_test(randint_matches_pytorch),
        cmocka_unit_test(short_randn_matches_pytorch),
        cmocka_unit_test(long_randn_matches_pytorch),
        cmocka_unit_test(long_randn_redraws_a_ragged_end),
        cmocka_unit_test(a_linear_layers_draws_match_pytorch),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
