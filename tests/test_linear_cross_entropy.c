/* linear_cross_entropy: loss and gradients against the formula in double, against finite differences of it, and
 * against the ops it fuses; any split of a batch adds up to the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "harness_head.h"

/* Vocabularies below, at and above a block, and no multiple of 16; rows below, at and above 16. */
static const struct { int64_t N, C, V; } shapes[] = {
    { 1, 1, 1 }, { 1, 3, 2 }, { 5, 7, 15 }, { 17, 4, 16 }, { 16, 9, 100 }, { 33, 8, 257 }, { 3, 5, 4097 }, { 9, 6, 9001 },
};

static void equals_its_formula_in_double(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int ignored = 0; ignored < 2; ignored++) {
            head h = make(shapes[s].N, shapes[s].C, shapes[s].V, s + 1);
            if (ignored)
                for (int64_t n = 0; n < h.N; n += 3) h.label[n] = LS_IGNORE_INDEX;
            ls_tape *t = tape(16 << 20);
            const double scale = 0.25;
            double *dx = room((size_t)(h.N * h.C) * sizeof *dx), *dw = room((size_t)(h.V * h.C) * sizeof *dw);
            double sum, again;
            int64_t counted;
            leaf_w(&h);
            const float loss = fused(t, &h, 0, h.N, scale, true, &sum, &counted);
            slopes_of(&h, scale, dx, dw);
            assert_int_equal(counted, ignored ? h.N - (h.N + 2) / 3 : h.N);
            assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
            assert_true(loss == (float)(scale * sum));
            for (int64_t i = 0; i < h.N * h.C; i++)
                assert_near((double)h.dx[i], dx[i], tolerance(&h, scale, h.V), "dx", i);
            for (int64_t i = 0; i < h.V * h.C; i++)
                assert_near((double)h.dw[i], dw[i], 2.0 * tolerance(&h, scale, h.N), "dw", i);
            (void)fused(t, &h, 0, h.N, scale, false, &again, &counted);
            assert_near(again, sum, 1e-6 * sum, "sum without gradients", 0);
            ls_tape_destroy(t);
            free(dx);
            free(dw);
            drop(&h);
        }
}

/* --- bfloat16 ------------------------------------------------------------------------ */

/* |dl[n, v]| summed over the rows. */
static double slope_sizes(const head *h, const double *lse, int64_t v, double scale)
{
    double sum = 0.0;
    for (int64_t i = 0; i < h->N; i++) {
        if (h->label[i] == LS_IGNORE_INDEX) continue;
        double l = 0.0;
        for (int64_t c = 0; c < h->C; c++) l += h->xd[i * h->C + c] * h->wd[v * h->C + c];
        sum += fabs(exp(l - lse[i]) - (v == h->label[i] ? 1.0 : 0.0)) * scale;
    }
    return sum;
}

static double lse_of(const head *h, int64_t i)
{
    double most = -INFINITY, sum = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t v = 0; v < h->V; v++) {
            double l = 0.0;
            for (int64_t c = 0; c < h->C; c++) l += h->xd[i * h->C + c] * h->wd[v * h->C + c];
            if (pass == 0) most = l > most ? l : most;
            else sum += exp(l - most);
        }
    return most + log(sum);
}

/* Gradients of the logits are rounded: by 2^-8 of each, |dl| summing to less than 2 scale in a row; then dx is. */
static void bf16_equals_its_formula_in_double(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int again = 0; again < 2; again++) { /* the second time it adds */
            head h = make(shapes[s].N, shapes[s].C, shapes[s].V, s + 21);
            h.label[h.N / 2] = LS_IGNORE_INDEX;
            uint16_t *x = round_all(h.x, h.xd, h.N * h.C), *w = round_all(h.wv, h.wd, h.V * h.C);
            uint16_t *dx16 = room((size_t)(h.N * h.C) * sizeof *dx16);
            double *dx = room((size_t)(h.N * h.C) * sizeof *dx), *dw = room((size_t)(h.V * h.C) * sizeof *dw);
            ls_tape *t = tape(16 << 20);
            const double scale = 0.25;
            double sum, without;
            leaf_w(&h);
            h.w.bf16 = w;
            for (int64_t i = 0; i < h.V * h.C; i++) h.wv[i] = NAN; /* not read */
            ls_tensor gx = { .dtype = LS_BF16, .ndim = 2, .dim = { h.N, h.C }, .data = dx16 }, tx = gx;
            tx.data = x;
            tx.grad = &gx;
            ls_tensor *y = NULL, *loss = NULL;
            for (int i = 0; i <= again; i++) {
                ls_tape_reset(t);
                y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
                loss = ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &sum, NULL);
                if (!loss) fail_msg("%s", ls_last_error());
                assert_int_equal(loss->dtype, LS_F32);
                if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
            }
            slopes_of(&h, scale, dx, dw);
            double *lse = room((size_t)h.N * sizeof *lse);
            for (int64_t i = 0; i < h.N; i++) lse[i] = lse_of(&h, i);
            assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
            const double times = 1.0 + again;
            for (int64_t i = 0; i < h.N * h.C; i++)
                assert_near((double)ls_bf16_to_f32(dx16[i]), times * dx[i], times * tolerance(&h, scale, h.V) +
                            times * 0x1p-8 * (2.0 * scale + fabs(times * dx[i])), "dx", i);
            for (int64_t v = 0; v < h.V; v++) { /* |x| <= 2 */
                const double lost = 0x1p-8 * 2.0 * slope_sizes(&h, lse, v, scale);
                for (int64_t c = 0; c < h.C; c++)
                    assert_near((double)h.dw[v * h.C + c], times * dw[v * h.C + c],
                                times * (2.0 * tolerance(&h, scale, h.N) + lost), "dw", v * h.C + c);
            }
            ls_tape_set_grad(t, false);
            ls_tape_reset(t);
            y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
            (void)ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &without, NULL);
            assert_near(without, sum, 1e-6 * sum, "sum without gradients", 0);
            ls_tape_reset(t);
            h.w.bf16 = NULL;
            y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
            assert_null(ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &without, NULL));
            assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
            ls_tape_destroy(t);
            free(dx);
            free(dw);
            free(dx16);
            free(lse);
            free(x);
            free(w);
            drop(&h);
        }
}

/* 64 rows of a block of 4096: enough for threads. */
static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    const int threads = ls_team_size();
    head h = make(80, 24, 9001, 4);
    const size_t nx = (size_t)(h.N * h.C) * sizeof(float), nw = (size_t)(h.V * h.C) * sizeof(float);
    float *dx = room(nx), *dw = room(nw);
    double sum[4];
    for (int n = 1; n <= 3; n++) {
        ls_team_resize(n);
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        (void)fused(t, &h, 0, h.N, 0.5, true, &sum[n], NULL);
        if (n == 1) {
            memcpy(dx, h.dx, nx);
            memcpy(dw, h.dw, nw);
        }
        assert_true(sum[n] == sum[1]);
        assert_memory_equal(h.dx, dx, nx);
        assert_memory_equal(h.dw, dw, nw);
        ls_tape_destroy(t);
    }
    ls_team_resize(threads);
    free(dx);
    free(dw);
    drop(&h);
}

/* The central difference with h = 1e-5 is off by about h^2 + 2^-52 V / h = 1e-9. */
static void has_the_slopes_of_its_formula(void **state)
{
    (void)state;
    const double step = 1e-5, scale = 0.5;
    head h = make(6, 5, 41, 11);
    h.label[2] = LS_IGNORE_INDEX;
    ls_tape *t = tape(16 << 20);
    double sum;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, scale, true, &sum, NULL);
    const struct { double *d; const float *slope; int64_t n; const char *what; } row[] = {
        { h.xd, h.dx, h.N * h.C, "dx" }, { h.wd, h.dw, h.V * h.C, "dw" },
    };
    for (size_t k = 0; k < COUNT(row); k++)
        for (int64_t i = 0; i < row[k].n; i++) {
            const double at = row[k].d[i];
            row[k].d[i] = at + step;
            const double up = formula(&h, 0, h.N);
            row[k].d[i] = at - step;
            const double down = formula(&h, 0, h.N);
            row[k].d[i] = at;
            assert_near((double)row[k].slope[i], scale * (up - down) / (2.0 * step), tolerance(&h, scale, h.V) + 1e-8,
                        row[k].what, i);
        }
    ls_tape_destroy(t);
    drop(&h);
}

static void equals_the_ops_it_fuses(void **state)
{
    (void)state;
    head h = make(48, 24, 5003, 5);
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    double sum, unfused;
    ls_tensor x;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0 / (double)h.N, true, &sum, NULL);
    memcpy(dx, h.dx, nx * sizeof *dx);
    memcpy(dw, h.dw, nw * sizeof *dw);
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
    ls_tensor *loss = ls_softmax_cross_entropy(t, ls_linear(t, &x, &h.w, NULL), y, &unfused, NULL);
    if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
    assert_near(sum, unfused, 1e-6 * unfused, "sum", 0);
    for (size_t i = 0; i < nx; i++) assert_near((double)dx[i], (double)h.dx[i], 1e-6, "dx", (int64_t)i);
    for (size_t i = 0; i < nw; i++) assert_near((double)dw[i], (double)h.dw[i], 1e-6, "dw", (int64_t)i);
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

/* Micro-batches of unequal sizes, some of them without a counted row, add to one gradient. */
static void adds_up_to_the_same_however_a_batch_is_split(void **state)
{
    (void)state;
    static const int64_t splits[][6] = { { 40 }, { 1, 39 }, { 16, 8, 16 }, { 7, 3, 10, 10, 10 } };
    head h = make(40, 12, 300, 9);
    for (int64_t n = 0; n < h.N; n++)
        if (n % 4 == 1 || (n >= 20 && n < 30)) h.label[n] = LS_IGNORE_INDEX;
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    double whole = 0.0;
    for (size_t s = 0; s < COUNT(splits); s++) {
        double loss = 0.0, scale = 1.0 / 23.0, sum;
        int64_t counted = 0, some;
        leaf_w(&h);
        for (int64_t i = 0, first = 0; i < 6 && splits[s][i] > 0; first += splits[s][i++]) {
            loss += (double)fused(t, &h, first, splits[s][i], scale, true, &sum, &some);
            counted += some;
        }
        assert_int_equal(counted, 23);
        if (s == 0) {
            whole = loss;
            memcpy(dx, h.dx, nx * sizeof *dx);
            memcpy(dw, h.dw, nw * sizeof *dw);
            assert_near(loss, formula(&h, 0, h.N) / 23.0, 1e-6 * loss, "loss", 0);
        }
        assert_near(loss, whole, 1e-6 * whole, "loss of a split", (int64_t)s);
        for (size_t i = 0; i < nx; i++) assert_near((double)h.dx[i], (double)dx[i], 1e-6, "dx", (int64_t)i);
        for (size_t i = 0; i < nw; i++) assert_near((double)h.dw[i], (double)dw[i], 1e-6, "dw", (int64_t)i);
    }
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

static void counts_none_or_one(void **state)
{
    (void)state;
    head h = make(20, 6, 70, 3);
    ls_tape *t = tape(16 << 20);
    double sum = -1.0;
    int64_t counted = -1;
    const int64_t kept = h.label[13];
    for (int64_t n = 0; n < h.N; n++) h.label[n] = LS_IGNORE_INDEX;
    leaf_w(&h);
    assert_true(fused(t, &h, 0, h.N, 1.0, true, &sum, &counted) == 0.0f);
    assert_true(sum == 0.0 && counted == 0);
    for (int64_t i = 0; i < h.N * h.C; i++) assert_true(h.dx[i] == 0.0f);
    for (int64_t i = 0; i < h.V * h.C; i++) assert_true(h.dw[i] == 0.0f);

    h.label[13] = kept;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, &counted);
    assert_int_equal(counted, 1);
    assert_near(sum, formula(&h, 13, 1), tolerance(&h, 1.0, 0), "sum", 0);
    for (int64_t i = 0; i < h.N * h.C; i++) assert_true((h.dx[i] != 0.0f) == (i / h.C == 13));
    ls_tape_destroy(t);
    drop(&h);
}

/* A tensor of the tape as x, and a weight that another op uses, too: what is there is added to. */
static void adds_to_gradients_that_are_there(void **state)
{
    (void)state;
    head h = make(5, 8, 8, 21); /* square: w is used twice */
    ls_tape *t = tape(16 << 20);
    const size_t n = (size_t)(h.V * h.C);
    float *whole = room(n * sizeof *whole);
    for (int fuse = 0; fuse < 2; fuse++) {
        ls_tensor x;
        double sum;
        leaf_w(&h);
        leaf_x(&h, 0, h.N, &x);
        ls_tape_reset(t);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label), *z = ls_gelu(t, ls_linear(t, &x, &h.w, NULL));
        ls_tensor *loss = fuse ? ls_linear_cross_entropy(t, z, &h.w, y, 0.2, &sum, NULL)
                               : ls_softmax_cross_entropy(t, ls_linear(t, z, &h.w, NULL), y, &sum, NULL);
        if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
        for (size_t i = 0; fuse && i < n; i++)
            assert_near((double)h.dw[i], (double)whole[i], 1e-6, "dw of a weight used twice", (int64_t)i);
        memcpy(whole, h.dw, n * sizeof *whole);
    }
    ls_tape_destroy(t);
    free(whole);
    drop(&h);
}

static void adds_a_second_backward_to_the_first(void **state)
{
    (void)state;
    head h = make(5, 6, 5000, 23); /* two blocks */
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    ls_tensor x;
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    for (int k = 0; k < 2; k++) {
        ls_tape_reset(t);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        if (ls_backward(t, ls_linear_cross_entropy(t, &x, &h.w, y, 0.2, NULL, NULL)) < 0) fail_msg("%s", ls_last_error());
        if (k > 0) break;
        memcpy(dx, h.dx, nx * sizeof *dx);
        memcpy(dw, h.dw, nw * sizeof *dw);
    }
    for (size_t i = 0; i < nx; i++) assert_near((double)h.dx[i], 2.0 * (double)dx[i], 1e-6, "dx", (int64_t)i);
    for (size_t i = 0; i < nw; i++) assert_near((double)h.dw[i], 2.0 * (double)dw[i], 1e-6, "dw", (int64_t)i);
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

static void multiplies_by_the_gradient_it_is_given(void **state)
{
    (void)state;
    head h = make(7, 4, 30, 31);
    ls_tape *t = tape(16 << 20);
    const size_t n = (size_t)(h.V * h.C);
    float *one = room(n * sizeof *one), g = 4.0f;
    double sum;
    ls_tensor x;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 0.5, true, &sum, NULL);
    memcpy(one, h.dw, n * sizeof *one);
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
    ls_tensor *loss = ls_linear_cross_entropy(t, &x, &h.w, y, 0.5, NULL, NULL);
    assert_int_equal(ls_backward_from(t, loss, &g), LS_OK);
    for (size_t i = 0; i < n; i++) assert_true(h.dw[i] == 4.0f * one[i]); /* a power of two */
    ls_tape_destroy(t);
    free(one);
    drop(&h);
}

static void gives_the_same_bits_twice(void **state)
{
    (void)state;
    head h = make(70, 32, 5000, 2);
    const size_t n = (size_t)(h.V * h.C);
    float *first = room(n * sizeof *first);
    double sum[2];
    for (int k = 0; k < 2; k++) {
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        (void)fused(t, &h, 0, h.N, 0.1, true, &sum[k], NULL);
        if (k == 0) memcpy(first, h.dw, n * sizeof *first);
        ls_tape_destroy(t);
    }
    assert_memory_equal(&sum[0], &sum[1], sizeof sum[0]);
    assert_memory_equal(first, h.dw, n * sizeof *first);
    free(first);
    drop(&h);
}

/* --- the last row ----------------------------------------------------------------------------------- */

static void gives_the_logits_after_the_last_token(void **state)
{
    (void)state;
    head h = make(12, 10, 37, 17); /* 3 sequences of 4 */
    ls_tape *t = tape(1 << 20);
    ls_tape_set_grad(t, false);
    leaf_w(&h);
    for (int sequences = 1; sequences <= 3; sequences += 2) {
        const int64_t dim[3] = { sequences, h.N / sequences, h.C };
        ls_tape_reset(t);
        const int flat = sequences == 1; /* [T, C] */
        ls_tensor *x = ls_tape_input(t, LS_F32, 3 - flat, dim + flat, h.x);
        ls_tensor *y = ls_last_logits(t, x, &h.w);
        if (!y) fail_msg("%s", ls_last_error());
        assert_int_equal(y->ndim, 2);
        assert_int_equal(y->dim[0], sequences);
        assert_int_equal(y->dim[1], h.V);
        for (int64_t b = 0; b < sequences; b++)
            for (int64_t v = 0; v < h.V; v++) {
                const double *last = h.xd + ((b + 1) * dim[1] - 1) * h.C;
                double want = 0.0;
                for (int64_t c = 0; c < h.C; c++) want += last[c] * h.wd[v * h.C + c];
                assert_near((double)((float *)y->data)[b * h.V + v], want, tolerance(&h, 1.0, 0), "logit", v);
            }
    }
    ls_tape_reset(t);
    ls_tape_set_grad(t, true);
    ls_tensor x;
    assert_null(ls_last_logits(t, leaf_x(&h, 0, h.N, &x), &h.w));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    ls_tape_destroy(t);
    drop(&h);
}

/* --- failures --------------------------------------------------------------------------------------- */

static void names_what_does_not_fit(void **state)
{
    (void)state;
    head h = make(4, 3, 10, 1);
    ls_tape *t = tape(1 << 20);
    ls_tensor x;
    leaf_w(&h);
    static const struct { int64_t label; const char *says; } row[] = {
        { 10, "label 10 of row 2: expected 0 to 9, the vocabulary of 10, or -100: not counted" },
        { -1, "label -1 of row 2" },
        { -101, "label -101 of row 2" },
        { INT64_MAX, "label 9223372036854775807 of row 2" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_tape_reset(t);
        h.label[2] = row[i].label;
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
        assert_int_equal(ls_tape_status(t), LS_INVALID);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("expected \"%s\" in \"%s\"", row[i].says, ls_last_error());
    }
    h.label[2] = 0;
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, (const int64_t[]){ 3 }, h.label);
    assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "input [4, 3], weight [10, 3], labels [3]"));
    ls_tape_reset(t);
    y = ls_tape_input(t, LS_F32, 1, &h.N, h.x);
    assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    ls_tape_destroy(t);
    drop(&h);
}

static void counts_its_work(void **state)
{
    (void)state;
    head h = make(32, 16, 100, 1);
    ls_tape *t = tape(1 << 20);
    const double product = 2.0 * 32.0 * 16.0 * 100.0, elements = 32.0 * 100.0;
    double sum;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
    assert_true(ls_tape_flops(t) >= 3.0 * product && ls_tape_flops(t) <= 3.0 * product + 20.0 * elements);
    (void)fused(t, &h, 0, h.N, 1.0, false, &sum, NULL);
    assert_true(ls_tape_flops(t) >= product && ls_tape_flops(t) <= product + 20.0 * elements);
    ls_tape_destroy(t);
    drop(&h);
}

static void lets_a_value_that_is_not_finite_be_seen(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t k = 0; k < COUNT(bad); k++) {
        head h = make(6, 3, 40, 1);
        ls_tape *t = tape(1 << 20);
        double sum;
        leaf_w(&h);
        h.x[4] = bad[k];
        (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
        assert_true(!isfinite(sum));
        ls_tape_destroy(t);
        drop(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_formula_in_double),
        cmocka_unit_test(bf16_equals_its_formula_in_double),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(has_the_slopes_of_its_formula),
        cmocka_unit_test(equals_the_ops_it_fuses),
        cmocka_unit_test(adds_up_to_the_same_however_a_batch_is_split),
        cmocka_unit_test(counts_none_or_one),
        cmocka_unit_test(adds_to_gradients_that_are_there),
        cmocka_unit_test(adds_a_second_backward_to_the_first),
        cmocka_unit_test(multiplies_by_the_gradient_it_is_given),
        cmocka_unit_test(gives_the_same_bits_twice),
        cmocka_unit_test(gives_the_logits_after_the_last_token),
        cmocka_unit_test(names_what_does_not_fit),
        cmocka_unit_test(counts_its_work),
        cmocka_unit_test(lets_a_value_that_is_not_finite_be_seen),
    };
    return cmocka_run_group_tests_name("linear_cross_entropy", tests, NULL, NULL);
}
