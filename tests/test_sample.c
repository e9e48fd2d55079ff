/* Sampling: what may be drawn, against a full sort; how often, against softmax; which, by (seed, position) alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/rng.h"
#include "model/sample.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 2000

/* --- the reference: everything sorted, in double ------------------------------------------ */

typedef struct entry {
    float logit;
    size_t id;
} entry;

static int by_order(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    if (a->logit > b->logit || a->logit < b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* p[i]: the probability of token i, 0 outside of the sets. */
static void reference(const ls_sample_opts *o, const float *logits, size_t V, double *p)
{
    static entry e[MOST];
    double sum = 0, front = 0;
    size_t n = V;
    for (size_t i = 0; i < V; i++) e[i] = (entry){ logits[i], i };
    qsort(e, V, sizeof *e, by_order);
    if (o->top_k > 0 && (size_t)o->top_k < n) n = (size_t)o->top_k;
    for (size_t i = 0; i < V; i++) p[i] = 0;
    for (size_t i = 0; i < n; i++) sum += exp(((double)e[i].logit - (double)e[0].logit) / o->temperature);
    for (size_t i = 0; i < n && (i == 0 || front < o->top_p); i++) {
        p[e[i].id] = exp(((double)e[i].logit - (double)e[0].logit) / o->temperature) / sum;
        front += p[e[i].id];
    }
    for (size_t i = 0; i < V; i++) p[i] /= front;
}

static void assert_weights(const ls_sample_opts *o, const float *logits, size_t V, const char *what)
{
    static double p[MOST];
    static uint64_t w[MOST];
    double sum = 0;
    reference(o, logits, V, p);
    if (ls_sample_weights(o, logits, V, w) != LS_OK) fail_msg("%s: %s", what, ls_last_error());
    for (size_t i = 0; i < V; i++) sum += (double)w[i];
    for (size_t i = 0; i < V; i++) /* a weight is rounded down to 2^-38 of the largest, its share no more */
        if (!(fabs((double)w[i] / sum - p[i]) <= 0x1p-38 * (double)V))
            fail_msg("%s: T %g k %lld p %g: token %zu of %zu, logit %g: probability %.12g, want %.12g", what,
                     o->temperature, (long long)o->top_k, o->top_p, i, V, (double)logits[i], (double)w[i] / sum, p[i]);
}

/* --- sets ---------------------------------------------------------------------------------- */

static void sets_are_those_of_a_full_sort(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 2, 7, 256, 1999 };
    static const int64_t ks[] = { 0, 1, 2, 5, 200, 1998, 5000 };
    static const double ps[] = { 1e-9, 0.1, 0.37, 0.5, 0.93, 0.999, 1.0 }, temperatures[] = { 0.05, 0.8, 1.0, 7.0 };
    static float logits[MOST];
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (int spread = 0; spread < 3; spread++) { /* apart; many ties; most at -infinity */
            ls_philox_normal(s, (uint64_t)spread, 0, sizes[s], 3.0f, logits);
            for (size_t i = 0; i < sizes[s]; i++) {
                if (spread > 0) logits[i] = roundf(logits[i]); /* 0 and -0 among them */
                if (spread == 2 && i % 3) logits[i] = -INFINITY;
            }
            for (size_t k = 0; k < COUNT(ks); k++)
                for (size_t p = 0; p < COUNT(ps); p++)
                    for (size_t t = 0; t < COUNT(temperatures); t++) {
                        const ls_sample_opts o = { .temperature = temperatures[t], .top_k = ks[k], .top_p = ps[p] };
                        assert_weights(&o, logits, sizes[s], spread == 0 ? "apart" : spread == 1 ? "ties" : "zeros");
                    }
        }
}

/* By hand: which of eight are left. */
static void ties_are_cut_by_the_lower_id(void **state)
{
    (void)state;
    const float flat[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, steps[8] = { 0, -0.0f, 2, 2, -INFINITY, 2, 0, -1 };
    const struct { const float *logits; int64_t k; double p; const char *left; } row[] = {
        { flat, 3, 1.0, "11100000" },  { flat, 0, 0.5, "11110000" },  { flat, 0, 0.501, "11111000" },
        { flat, 4, 0.5, "11000000" },  { flat, 8, 1.0, "11111111" },  { flat, 0, 1e-300, "10000000" },
        { steps, 2, 1.0, "00110000" }, { steps, 4, 1.0, "10110100" }, { steps, 5, 1.0, "11110100" },
        { steps, 7, 1.0, "11110111" }, { steps, 8, 1.0, "11110111" }, { steps, 0, 0.1, "00100000" },
        { steps, 2, 0.5, "00100000" },
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        uint64_t w[8];
        char left[9] = "";
        const ls_sample_opts o = { .temperature = 1, .top_k = row[r].k, .top_p = row[r].p };
        assert_int_equal(ls_sample_weights(&o, row[r].logits, 8, w), LS_OK);
        for (int i = 0; i < 8; i++) left[i] = w[i] ? '1' : '0';
        if (strcmp(left, row[r].left) != 0) fail_msg("row %zu: %s, want %s", r, left, row[r].left);
    }
}

/* --- draws ------------------------------------------------------------------------------------ */

/* Pearson's statistic of 100,000 draws against softmax. Of 7 degrees of freedom it exceeds 40.5 once in a
 * million; the seed is fixed, so the test says the same every time. */
static void frequencies_are_those_of_softmax(void **state)
{
    (void)state;
    enum { V = 8, DRAWS = 100000 };
    const float logits[V] = { 0.3f, -1.2f, 2.0f, 0.0f, 1.1f, -0.4f, 0.9f, -2.0f };
    static const ls_sample_opts row[] = {
        { .temperature = 1, .top_p = 1, .seed = 1 },
        { .temperature = 0.5, .top_p = 1, .seed = 2 },
        { .temperature = 3, .top_p = 1, .top_k = 5, .seed = 3 },
        { .temperature = 1, .top_p = 0.8, .seed = 4 },
        { .temperature = 1, .top_p = 1, .vocab = 3, .seed = 5 },
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        double p[V] = { 0 }, chi2 = 0;
        int64_t seen[V] = { 0 };
        reference(&row[r], logits, row[r].vocab ? (size_t)row[r].vocab : V, p);
        for (uint64_t i = 0; i < DRAWS; i++) {
            uint64_t w[V];
            uint32_t id;
            assert_int_equal(ls_sample(&row[r], logits, V, i, w, &id), LS_OK);
            seen[id]++;
        }
        for (int i = 0; i < V; i++) {
            const double want = DRAWS * p[i];
            if (want > 0) chi2 += ((double)seen[i] - want) * ((double)seen[i] - want) / want;
            else if (seen[i]) fail_msg("row %zu: token %d was drawn, its probability is 0", r, i);
        }
        if (!(chi2 < 40.5)) fail_msg("row %zu: chi-square %g", r, chi2);
    }
}

static void a_token_of_no_weight_is_never_picked(void **state)
{
    (void)state;
    const uint64_t w[6] = { 0, 2, 0, 3, 5, 0 };
    static const struct { double u; size_t i; } row[] = {
        { 0, 1 }, { 0.19, 1 }, { 0.2, 3 }, { 0.49, 3 }, { 0.5, 4 }, { 1 - 0x1p-53, 4 },
    };
    for (size_t r = 0; r < COUNT(row); r++) assert_int_equal(ls_sample_pick(w, 6, row[r].u), row[r].i);
    for (uint64_t n = 1; n < 64; n++) { /* the largest u with sums that no double has */
        const uint64_t large[2] = { ((uint64_t)1 << 62) - n, 0 };
        assert_int_equal(ls_sample_pick(large, 2, 1 - 0x1p-53), 0);
    }
}

static void a_draw_depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    enum { V = 64, N = 200 };
    float logits[V];
    uint32_t forth[N], back[N], other[N];
    uint64_t w[V];
    int same = 0;
    ls_philox_normal(3, 0, 0, V, 1.0f, logits);
    ls_sample_opts o = { .temperature = 1, .top_p = 1, .seed = 11 };
    for (uint64_t i = 0; i < N; i++) assert_int_equal(ls_sample(&o, logits, V, i, w, &forth[i]), LS_OK);
    for (uint64_t i = N; i-- > 0;) assert_int_equal(ls_sample(&o, logits, V, i, w, &back[i]), LS_OK);
    assert_memory_equal(forth, back, sizeof forth);
    o.seed = 12;
    for (uint64_t i = 0; i < N; i++) assert_int_equal(ls_sample(&o, logits, V, i, w, &other[i]), LS_OK);
    for (int i = 0; i < N; i++) same += forth[i] == other[i];
    assert_true(same < N / 2);
}

static void temperature_0_takes_the_first_of_the_largest(void **state)
{
    (void)state;
    const float logits[6] = { -1, 3, 2, 3, -INFINITY, 3 };
    for (int64_t vocab = 0; vocab < 2; vocab++) {
        ls_sample_opts o = { .temperature = 0, .top_p = 1, .top_k = 3, .vocab = vocab };
        uint32_t id = 9;
        uint64_t w[6];
        assert_int_equal(ls_sample(&o, logits, 6, 5, w, &id), LS_OK);
        assert_int_equal(id, vocab ? 0 : 1);
        o.temperature = 1e-300; /* as good as 0: all others have e^-infinity */
        o.top_k = 1;
        assert_int_equal(ls_sample(&o, logits, 6, 5, w, &id), LS_OK);
        assert_int_equal(id, vocab ? 0 : 1);
    }
}

/* --- refusals ------------------------------------------------------------------------------------- */

static void refuses_what_has_no_distribution(void **state)
{
    (void)state;
    static const struct {
        double temperature, p;
        int64_t k, vocab;
        float logit;
        ls_status status;
        const char *says;
    } row[] = {
        { 1, 1, 0, 0, 0, LS_OK, "" },
        { -0.1, 1, 0, 0, 0, LS_INVALID, "a temperature of -0.1" },
        { (double)NAN, 1, 0, 0, 0, LS_INVALID, "temperature" },
        { (double)INFINITY, 1, 0, 0, 0, LS_INVALID, "temperature" },
        { 1, 0, 0, 0, 0, LS_INVALID, "top_p is 0" },
        { 1, 1.01, 0, 0, 0, LS_INVALID, "top_p is 1.01" },
        { 1, (double)NAN, 0, 0, 0, LS_INVALID, "top_p" },
        { 1, 1, -1, 0, 0, LS_INVALID, "top_k is -1" },
        { 1, 1, 0, -1, 0, LS_INVALID, "vocabulary of -1" },
        { 1, 1, 0, 0, NAN, LS_NAN, "logit of token 1 is nan" },
        { 0, 1, 0, 0, NAN, LS_NAN, "logit of token 1 is nan" },
        { 1, 1, 0, 0, INFINITY, LS_NAN, "logit of token 1 is inf" },
        { 1, 1, 0, 1, INFINITY, LS_OK, "" }, /* nobody asks for it */
        { 1, 1, 0, 0, -INFINITY, LS_OK, "" },
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        const ls_sample_opts o = { .temperature = row[r].temperature, .top_k = row[r].k, .top_p = row[r].p,
                                   .vocab = row[r].vocab };
        const float logits[2] = { 0, row[r].logit };
        uint64_t w[2];
        uint32_t id;
        const ls_status st = ls_sample(&o, logits, 2, 0, w, &id);
        if (st != row[r].status || (st < 0 && !strstr(ls_last_error(), row[r].says)))
            fail_msg("row %zu: %d: %s", r, st, st < 0 ? ls_last_error() : "");
    }
    const float none[2] = { -INFINITY, -INFINITY };
    uint64_t w[2];
    uint32_t id;
    assert_int_equal(ls_sample(&(ls_sample_opts){ .top_p = 1 }, none, 2, 0, w, &id), LS_NAN);
    assert_non_null(strstr(ls_last_error(), "no token of 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_those_of_a_full_sort),
        cmocka_unit_test(ties_are_cut_by_the_lower_id),
        cmocka_unit_test(frequencies_are_those_of_softmax),
        cmocka_unit_test(a_token_of_no_weight_is_never_picked),
        cmocka_unit_test(a_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(temperature_0_takes_the_first_of_the_largest),
        cmocka_unit_test(refuses_what_has_no_distribution),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
