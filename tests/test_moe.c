/* A mixture of experts on one rank: routing, dispatch and combine against a dense reference in double, their gradients
 * against finite differences, capacity, and the losses by hand (R139-R141, R143, R144). */
#include "harness_slopes.h"

#include <string.h>

#include "lockstep/place.h"
#include "lockstep/status.h"
#include "model/moe.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { B = 2, T = 3, C = 4, E = 4, F = 5, N = B * T };

/* One layer: x through two matrices of each token's experts, and both losses. */
typedef struct layer {
    leaf x, logits, w1, w2, bias;
    float r[N * C]; /* L = sum r y + aux and z */
    ls_moe_rule rule;
    ls_moe_stats stats;
    double chosen[E], dropped[E], sums[LS_MOE_SUMS];
    int place_is_there[N * E]; /* what the op under test has sent on; 0: not chosen, or dropped */
} layer;

static double weight_of(const double *p, int e, bool renormalize, const int *all)
{
    double sum = 0;
    for (int i = 0; i < E; i++) sum += all[i] ? p[i] : 0;
    return renormalize ? p[e] / sum : p[e];
}

static void softmax(double *p, const double *logit, double *lse)
{
    double most = logit[0], sum = 0;
    for (int e = 1; e < E; e++) most = logit[e] > most ? logit[e] : most;
    for (int e = 0; e < E; e++) sum += p[e] = exp(logit[e] - most);
    for (int e = 0; e < E; e++) p[e] /= sum;
    *lse = most + log(sum);
}

/* The experts with the largest p + bias, by counting who is ahead. */
static void chosen_of(const layer *l, const double *p, int *all)
{
    for (int e = 0; e < E; e++) {
        int ahead = 0;
        for (int i = 0; i < E; i++) {
            const double a = p[i] + (l->rule.bias ? l->bias.d[i] : 0), b = p[e] + (l->rule.bias ? l->bias.d[e] : 0);
            ahead += a > b || (i < e && !(a < b) && !(a > b));
        }
        all[e] = ahead < l->rule.top_k;
    }
}

/* w2_e^T (w1_e x) into y. */
static void expert(const layer *l, int e, const double *x, double *y)
{
    double h[F] = { 0 };
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++) h[f] += l->w1.d[(e * F + f) * C + c] * x[c];
    for (int c = 0; c < C; c++) y[c] = 0;
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++) y[c] += l->w2.d[(e * F + f) * C + c] * h[f];
}

/* y [N, C] by the sum over all experts, those that were not chosen times 0; returns L. */
static double dense(const layer *l, double *y)
{
    double loss = 0, z = 0;
    for (int b = 0; b < B; b++) {
        double f[E] = { 0 }, mean[E] = { 0 }, aux = 0;
        for (int n = b * T; n < (b + 1) * T; n++) {
            double p[E], lse;
            int all[E];
            softmax(p, l->logits.d + n * E, &lse);
            chosen_of(l, p, all);
            z += lse * lse / N;
            for (int c = 0; y && c < C; c++) y[n * C + c] = 0;
            for (int e = 0; e < E; e++) {
                double of[C];
                mean[e] += p[e] / T;
                f[e] += all[e] ? 1.0 / (double)(T * l->rule.top_k) : 0;
                if (!all[e] || (l->rule.capacity > 0 && !l->place_is_there[n * E + e])) continue;
                const double w = weight_of(p, e, l->rule.renormalize, all);
                expert(l, e, l->x.d + n * C, of);
                for (int c = 0; c < C; c++) {
                    if (y) y[n * C + c] += w * of[c];
                    loss += (double)l->r[n * C + c] * w * of[c];
                }
            }
        }
        for (int e = 0; e < E; e++) aux += E * f[e] * mean[e];
        loss += l->rule.aux * aux / B;
    }
    return loss + l->rule.z * z;
}

static double loss_of(const void *problem) { return dense(problem, NULL); }

static layer *a_layer(ls_moe_rule rule)
{
    static layer l;
    memset(&l, 0, sizeof l);
    dice = 7;
    fill(&l.x, 2, 3, B, T, C);
    fill(&l.logits, 2, 3, B, T, E);
    fill(&l.w1, 2, 2, E * F, C, 0);
    fill(&l.w2, 2, 2, E * F, C, 0);
    fill(&l.bias, 0.25f, 1, E, 0, 0);
    for (int i = 0; i < N * C; i++) l.r[i] = fraction(1);
    l.rule = rule;
    l.stats = (ls_moe_stats){ l.chosen, l.dropped, l.sums };
    l.rule.stats = &l.stats;
    return &l;
}

/* Forward; *out is its loss, on the tape. */
static ls_tensor *run(layer *l, ls_tape *t, ls_routing **r, ls_tensor **loss)
{
    ls_tensor *w = ls_route(t, &l->logits.t, &l->rule, r);
    ls_tensor *rows = ls_dispatch(t, &l->x.t, *r, &(ls_along){ 0 });
    ls_tensor *y = ls_combine(t, ls_experts(t, ls_experts(t, rows, &l->w1.t, *r, false), &l->w2.t, *r, true), w, *r);
    if (ls_tape_status(t) < 0) fail_msg("%s", ls_last_error());
    for (int i = 0; i < N * (*r)->k; i++)
        if ((*r)->place[i] >= 0) l->place_is_there[i / (*r)->k * E + (*r)->choice[i]] = 1;
    ls_tensor *as = ls_tape_input(t, LS_F32, 3, (int64_t[]){ B, T, C }, l->r);
    *loss = ls_sum(t, ls_mul(t, y, as), LS_ALL_DIMS);
    return y;
}

static const ls_moe_rule rules[] = {
    { .top_k = 2 },
    { .top_k = 2, .renormalize = true },
    { .top_k = 1 },
    { .top_k = 4, .renormalize = true },
    { .top_k = 2, .renormalize = true, .capacity = 0.75 },
    { .top_k = 2, .capacity = 0.75, .by_probability = true },
    { .top_k = 2, .renormalize = true, .aux = 0.5, .z = 0.25 },
    { .top_k = 1, .aux = 0.5 },
};

static void the_result_is_the_sum_over_the_chosen_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(rules); i++) {
        layer *l = a_layer(rules[i / 2]);
        ls_tape *t = tape();
        ls_routing *r;
        ls_tensor *loss, *y;
        double want[N * C];
        if (i % 2) l->rule.bias = &l->bias.t;
        y = run(l, t, &r, &loss);
        (void)dense(l, want);
        for (int k = 0; k < N * C; k++) assert_near(((float *)y->data)[k], want[k], 4 * sum_tolerance(F * C), "y", k);
        ls_tape_destroy(t);
    }
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    const double tolerance = 16 * sum_tolerance(F * C);
    for (size_t i = 0; i < 2 * COUNT(rules); i++) {
        layer *l = a_layer(rules[i / 2]);
        ls_tape *t = tape();
        ls_routing *r;
        ls_tensor *loss;
        const float one = 1.0f;
        if (i % 2) l->rule.bias = &l->bias.t;
        (void)run(l, t, &r, &loss);
        assert_int_equal(ls_backward_from(t, loss, &one), LS_OK);
        assert_slopes(&l->logits, l->logits.d, loss_of, l, tolerance, "dlogits");
        assert_slopes(&l->x, l->x.d, loss_of, l, tolerance, "dx");
        assert_slopes(&l->w1, l->w1.d, loss_of, l, tolerance, "dw1");
        assert_slopes(&l->w2, l->w2.d, loss_of, l, tolerance, "dw2");
        for (int e = 0; i % 2 && e < E; e++) assert_true(l->bias.slope[e] == 0.0f);
        ls_tape_destroy(t);
    }
}

/* Losses inside a layer have the scale of the model's loss. */
static void losses_are_scaled_as_the_models_loss(void **state)
{
    (void)state;
    layer *l = a_layer(rules[6]);
    float once[N * E];
    for (int k = 0; k < 2; k++) {
        ls_tape *t = tape();
        ls_routing *r;
        ls_tensor *loss;
        const float scale = k ? 4.0f : 1.0f;
        clear(&l->logits);
        (void)run(l, t, &r, &loss);
        assert_int_equal(ls_backward_from(t, loss, &scale), LS_OK);
        if (k == 0) memcpy(once, l->logits.slope, sizeof once);
        for (int i = 0; i < N * E; i++) assert_near(l->logits.slope[i], (double)(scale * once[i]), 1e-5, "dlogits", i);
        ls_tape_destroy(t);
        clear(&l->x), clear(&l->w1), clear(&l->w2);
    }
}

/* f = (2/4, 1/4, 1/4, 0): of four assignments of T = 2 tokens, top 2. P by softmax of logits that are logs. */
static void the_balancing_loss_is_that_of_the_formula(void **state)
{
    (void)state;
    const double p[2][4] = { { 0.5, 0.3, 0.1, 0.1 }, { 0.4, 0.2, 0.3, 0.1 } };
    float logits[8];
    double chosen[4] = { 0 }, dropped[4] = { 0 }, sums[LS_MOE_SUMS] = { 0 };
    ls_moe_stats stats = { chosen, dropped, sums };
    for (int i = 0; i < 8; i++) logits[i] = (float)log(p[i / 4][i % 4]);
    ls_tape *t = tape();
    ls_routing *r;
    const ls_moe_rule rule = { .top_k = 2, .stats = &stats };
    assert_non_null(ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 1, 2, 4 }, logits), &rule, &r));
    const double f[4] = { 0.5, 0.25, 0.25, 0 };
    double want = 0;
    for (int e = 0; e < 4; e++) want += 4 * f[e] * (p[0][e] + p[1][e]) / 2;
    assert_near(sums[LS_MOE_AUX], want, 1e-6, "aux", 0);
    assert_near(sums[LS_MOE_Z], 0, 1e-6, "z", 0); /* log of a sum of 1 */
    for (int e = 0; e < 4; e++) assert_true(chosen[e] == 4 * f[e]);
    assert_true(r->choice[0] == 0 && r->choice[1] == 1 && r->choice[2] == 0 && r->choice[3] == 2);
    ls_tape_destroy(t);
}

static void equal_probabilities_go_to_the_lower_experts(void **state)
{
    (void)state;
    float logits[2 * 4] = { 1, 1, 1, 1, 0, 2, 2, 2 };
    ls_tape *t = tape();
    ls_routing *r;
    assert_non_null(
        ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 1, 2, 4 }, logits), &(ls_moe_rule){ .top_k = 2 }, &r));
    assert_true(r->choice[0] == 0 && r->choice[1] == 1 && r->choice[2] == 1 && r->choice[3] == 2);
    ls_tape_destroy(t);
}

/* Whatever its probabilities are, each expert has its part of the first tokens, but for three, and no token twice. */
static void tokens_go_where_loads_say(void **state)
{
    (void)state;
    enum { TOKENS = 1000 };
    static const float row[][5] = { { 1, 1, 0, 0, 0 },     { 1, .5f, 0, .5f, 0 },          { .4f, .4f, .4f, .4f, .4f },
                                    { 0, 0, 0, 1, 1 },     { .25f, .125f, .625f, .9f, .1f },
                                    { 1, .9995f, 0, 0, 0 } }; /* a token whose point is above that goes to the last */
    static float logits[TOKENS * 5];
    for (int i = 0; i < TOKENS * 5; i++) logits[i] = (float)(i * 29 % 17 - 8) / 8;
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_moe_rule rule = { .top_k = 2, .loads = row[i] };
        double sum[5] = { 0 };
        ls_tape *t = tape();
        ls_routing *r;
        const ls_tensor *w = ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 1, TOKENS, 5 }, logits), &rule, &r);
        assert_non_null(w);
        for (int n = 0; n < TOKENS; n++) {
            const int32_t *e = r->choice + 2 * n;
            double all = 0;
            assert_true(e[0] < e[1]);
            for (int k = 0; k < 5; k++) all += exp((double)logits[5 * n + k]);
            for (int k = 0; k < 2; k++) {
                assert_in_range(e[k], 0, 4);
                assert_near(((const float *)w->data)[2 * n + k], exp((double)logits[5 * n + e[k]]) / all, 1e-6, "weight", n);
                sum[e[k]]++;
            }
            for (int k = 0; k < 5; k++)
                if (fabs(sum[k] - (double)row[i][k] * (n + 1)) > 3)
                    fail_msg("row %zu: of %d tokens %g are expert %d's", i, n + 1, sum[k], k);
        }
        ls_tape_destroy(t);
    }
    float far[] = { 0, -500, -500 }; /* whose probabilities are next to 0: still weights, and no 0 / 0 */
    const ls_moe_rule rule = { .top_k = 2, .renormalize = true, .loads = (const float[]){ 0, 1, 1 } };
    ls_tape *t = tape();
    ls_routing *r;
    const ls_tensor *w = ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 1, 1, 3 }, far), &rule, &r);
    for (int k = 0; k < 2; k++) assert_near(((const float *)w->data)[k], .5, 1e-6, "weight", k);
    ls_tape_destroy(t);
}

/* Experts that give back what they get: weights that add up to 1 make it the input (R140). */
static void what_is_dispatched_comes_back(void **state)
{
    (void)state;
    layer *l = a_layer(rules[1]);
    ls_tape *t = tape();
    ls_routing *r;
    ls_tensor *w = ls_route(t, &l->logits.t, &l->rule, &r);
    const ls_tensor *y = ls_combine(t, ls_dispatch(t, &l->x.t, r, &(ls_along){ 0 }), w, r);
    assert_non_null(y);
    assert_int_equal(r->sent, 2 * N);
    for (int i = 0; i < N * C; i++) assert_near(((float *)y->data)[i], l->x.d[i], 1e-6, "y", i);
    ls_tape_destroy(t);
}

/* E 4, k 1, everything to expert 2, T 8: capacity ceil(8 / 4 cf). */
static void capacity_drops_what_is_beyond_it(void **state)
{
    (void)state;
    static const struct {
        double factor;
        int taken;
    } row[] = { { 0, 8 }, { 1, 2 }, { 1.25, 3 }, { 0.1, 1 }, { 4, 8 }, { 100, 8 } };
    for (size_t i = 0; i < 2 * COUNT(row); i++) {
        const bool by_probability = i % 2;
        float logits[2 * 8 * 4] = { 0 };
        double chosen[4] = { 0 }, dropped[4] = { 0 }, sums[LS_MOE_SUMS] = { 0 };
        ls_moe_stats stats = { chosen, dropped, sums };
        const ls_moe_rule rule = {
            .top_k = 1, .capacity = row[i / 2].factor, .by_probability = by_probability, .stats = &stats
        };
        for (int n = 0; n < 16; n++) logits[n * 4 + 2] = 5.0f + (float)(n % 8) / 8; /* the last is the most probable */
        ls_tape *t = tape();
        ls_routing *r;
        assert_non_null(ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 2, 8, 4 }, logits), &rule, &r));
        const int taken = row[i / 2].taken;
        assert_int_equal(r->capacity, row[i / 2].factor > 0 ? taken : 8);
        assert_true(chosen[2] == 16 && dropped[2] == 2 * (8 - taken));
        for (int n = 0; n < 16; n++) {
            const bool stays = by_probability ? n % 8 >= 8 - taken : n % 8 < taken;
            assert_int_equal(r->place[n] >= 0, stays);
        }
        ls_tape_destroy(t);
    }
}

static void an_expert_without_tokens_has_a_gradient_of_zeros(void **state)
{
    (void)state;
    layer *l = a_layer(rules[2]);
    ls_tape *t = tape();
    ls_routing *r;
    ls_tensor *loss;
    const float one = 1.0f;
    for (int n = 0; n < N; n++) l->logits.value[n * E + 1] = 9;
    (void)run(l, t, &r, &loss);
    assert_int_equal(ls_backward_from(t, loss, &one), LS_OK);
    assert_true(r->count[0] == 0 && r->count[1] == N);
    for (int i = 0; i < E * F * C; i++) assert_int_equal(l->w1.slope[i] == 0.0f, i / (F * C) != 1);
    ls_tape_destroy(t);
}

/* Pieces of so many rows that they are multiplied in several runs: y, dx and dw against sums in double, both ways
 * round, dx and dw twice, so that the second backward adds to the first. */
static void pieces_of_many_rows_are_multiplied_in_runs(void **state)
{
    (void)state;
    enum { I = 3, O = 7, ROWS = 37 + 26 + 21, PIECES = 3 };
    static float x[ROWS * I], dx[ROWS * I], w[2 * O * I], dw[2 * O * I], dy[ROWS * O];
    ls_moe_piece piece[PIECES] = { { 0, 0, 37 }, { 1, 37, 26 }, { 0, 63, 21 } };
    const ls_routing r = { .here = 2, .rows = ROWS, .npieces = PIECES, .piece = piece };
    for (int i = 0; i < ROWS * I; i++) x[i] = (float)(i * 29 % 17 - 8);
    for (int i = 0; i < 2 * O * I; i++) w[i] = (float)(i * 13 % 11 - 5);
    for (int i = 0; i < ROWS * O; i++) dy[i] = (float)(i * 31 % 13 - 6);
    for (int transposed = 0; transposed < 2; transposed++) {
        double want_y[ROWS * O] = { 0 }, want_dx[ROWS * I] = { 0 }, want_dw[2 * O * I] = { 0 };
        for (int p = 0; p < PIECES; p++)
            for (int64_t n = piece[p].first; n < piece[p].first + piece[p].count; n++)
                for (int o = 0; o < O; o++)
                    for (int i = 0; i < I; i++) {
                        const int64_t at = piece[p].expert * O * I + (transposed ? i * O + o : o * I + i);
                        want_y[n * O + o] += (double)x[n * I + i] * (double)w[at];
                        want_dx[n * I + i] += 2 * (double)dy[n * O + o] * (double)w[at];
                        want_dw[at] += 2 * (double)dy[n * O + o] * (double)x[n * I + i];
                    }
        ls_tensor gx = { .ndim = 2, .dim = { ROWS, I }, .data = dx }, gw = { .ndim = 2, .data = dw };
        ls_tensor tx = { .ndim = 2, .dim = { ROWS, I }, .data = x, .grad = &gx };
        ls_tensor tw = { .ndim = 2, .dim = { transposed ? 2 * I : 2 * O, transposed ? O : I }, .data = w, .grad = &gw };
        memcpy(gw.dim, tw.dim, sizeof gw.dim);
        for (int i = 0; i < ROWS * I; i++) dx[i] = NAN; /* written, then added to */
        for (int i = 0; i < 2 * O * I; i++) dw[i] = NAN;
        ls_tape *t = tape();
        for (int again = 0; again < 2; again++) {
            ls_tape_reset(t);
            ls_tensor *y = ls_experts(t, &tx, &tw, &r, transposed);
            assert_non_null(y);
            for (int i = 0; i < ROWS * O; i++) assert_true(((const float *)y->data)[i] == (float)want_y[i]);
            assert_int_equal(ls_backward_from(t, y, dy), LS_OK);
        }
        for (int i = 0; i < ROWS * I; i++) assert_true(dx[i] == (float)want_dx[i]); /* whole numbers: exact */
        for (int i = 0; i < 2 * O * I; i++) assert_true(dw[i] == (float)want_dw[i]);
        ls_tape_destroy(t);
    }
}

static void what_cannot_be_routed_is_refused(void **state)
{
    (void)state;
    float logits[8] = { 0 }, bias[3] = { 0 };
    ls_tensor short_bias = { .dtype = LS_F32, .ndim = 1, .dim = { 3 }, .data = bias };
    const struct {
        ls_moe_rule rule;
        const char *says;
    } row[] = {
        { { .top_k = 0 }, "the 0 most probable of 4 experts: expected 1 to 4" },
        { { .top_k = 5 }, "the 5 most probable of 4 experts" },
        { { .top_k = 1, .capacity = -1 }, "a capacity factor of -1" },
        { { .top_k = 1, .bias = &short_bias }, "a bias [3] for 4 experts" },
        { { .top_k = 1, .forced = 5 }, "tokens are forced to expert 4 of 4: expected 0 to 3" },
        { { .top_k = 2, .loads = (const float[]){ 1, 1.5f, 0, -.5f } }, "loads of 4 experts: expected numbers from 0 to 1 that add up to 2" },
        { { .top_k = 2, .loads = (const float[]){ 1, 0, 0, .9f } }, "that add up to 2" },
        { { .top_k = 1, .loads = (const float[]){ 1, NAN, 0, 0 } }, "that add up to 1" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_tape *t = tape();
        ls_routing *r;
        assert_null(ls_route(t, ls_tape_input(t, LS_F32, 3, (int64_t[]){ 1, 2, 4 }, logits), &row[i].rule, &r));
        assert_non_null(strstr(ls_last_error(), row[i].says));
        ls_tape_destroy(t);
    }
}

/* y = x sigmoid(g). */
typedef struct gated {
    leaf x, g;
    float r[N * C];
} gated;

static double gated_loss(const void *problem)
{
    const gated *p = problem;
    double loss = 0;
    for (int i = 0; i < N * C; i++) loss += (double)p->r[i] * p->x.d[i] / (1 + exp(-p->g.d[i / C]));
    return loss;
}

static void rows_are_gated(void **state)
{
    (void)state;
    static gated p;
    const float one = 1.0f;
    ls_tape *t = tape();
    dice = 3;
    fill(&p.x, 2, 3, B, T, C);
    fill(&p.g, 2, 3, B, T, 1);
    for (int i = 0; i < N * C; i++) p.r[i] = fraction(1);
    ls_tensor *y = ls_gate_rows(t, &p.x.t, &p.g.t);
    ls_tensor *loss = ls_sum(t, ls_mul(t, y, ls_tape_input(t, LS_F32, 3, (int64_t[]){ B, T, C }, p.r)), LS_ALL_DIMS);
    assert_int_equal(ls_backward_from(t, loss, &one), LS_OK);
    assert_near(*(float *)loss->data, gated_loss(&p), sum_tolerance(N), "loss", 0);
    assert_slopes(&p.x, p.x.d, gated_loss, &p, sum_tolerance(C), "dx");
    assert_slopes(&p.g, p.g.d, gated_loss, &p, sum_tolerance(C), "dg");
    ls_tape_destroy(t);
}

static ls_model_config config(int64_t experts, int64_t top_k, double bias_rate)
{
    return (ls_model_config){ .name = "moe", .init = LS_INIT_PHILOX,
                              .lm = { .vocab_size = 11, .seq_len = 4, .n_layer = 2, .n_head = 2, .d_model = 8,
                                      .d_expert = 6, .n_experts = experts, .top_k = top_k, .first_dense = 1,
                                      .bias_rate = bias_rate } };
}

/* bias += rate sign(mean - count): expert 1 was chosen as often as the mean, 0 more often, 2 less often. */
static void the_bias_moves_by_the_sign_of_what_is_missing(void **state)
{
    (void)state;
    ls_model *m;
    const ls_model_config c = config(3, 1, 0.25);
    assert_int_equal(ls_model_create(&c, &m), LS_OK);
    ls_param *bias = ls_params_find(&m->params, "model.layers.1.block_sparse_moe.gate.balance");
    assert_non_null(bias);
    assert_null(ls_params_find(&m->params, "model.layers.0.block_sparse_moe.gate.balance")); /* dense */
    float v[3] = { 1, 1, 1 };
    bias->t.data = v;
    double *words = ls_moe_counts(m);
    const int64_t first = ls_moe_layer_words(m, words, 1) - words;
    for (int i = 0; i < ls_moe_words(m); i++) words[i] = 0;
    words[first] = 7, words[first + 1] = 4, words[first + 2] = 1;
    ls_moe_balance(m, words);
    assert_true(v[0] == 0.75f && v[1] == 1.0f && v[2] == 1.25f);
    bias->t.data = NULL;
    ls_model_destroy(m);
}

/* With k of E experts: as many operations as with k of k, and E / k times the experts' parameters (R141). */
static void more_experts_are_more_parameters_and_not_more_operations(void **state)
{
    (void)state;
    const ls_model_config few = config(2, 2, 0), many = config(8, 2, 0);
    ls_model_config a, b;
    ls_model_flops of_few, of_many;
    assert_int_equal(ls_model_resolve(&few, &a), LS_OK);
    assert_int_equal(ls_model_resolve(&many, &b), LS_OK);
    ls_model_moe.flops(&a, &of_few);
    ls_model_moe.flops(&b, &of_many);
    const int64_t router = 6 * 8, experts = 3 * 8 * 6; /* of a layer: six more rows; and one expert */
    assert_int_equal(ls_model_count(&b) - ls_model_count(&a), router + 6 * experts);
    assert_int_equal((ls_model_count(&b) - of_many.tables) - (ls_model_count(&a) - of_few.tables), router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_result_is_the_sum_over_the_chosen_experts),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(losses_are_scaled_as_the_models_loss),
        cmocka_unit_test(the_balancing_loss_is_that_of_the_formula),
        cmocka_unit_test(equal_probabilities_go_to_the_lower_experts),
        cmocka_unit_test(tokens_go_where_loads_say),
        cmocka_unit_test(what_is_dispatched_comes_back),
        cmocka_unit_test(capacity_drops_what_is_beyond_it),
        cmocka_unit_test(an_expert_without_tokens_has_a_gradient_of_zeros),
        cmocka_unit_test(rows_are_gated),
        cmocka_unit_test(the_bias_moves_by_the_sign_of_what_is_missing),
        cmocka_unit_test(more_experts_are_more_parameters_and_not_more_operations),
        cmocka_unit_test(pieces_of_many_rows_are_multiplied_in_runs),
        cmocka_unit_test(what_cannot_be_routed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
