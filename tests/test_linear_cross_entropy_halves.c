/* linear_cross_entropy with logits in forward, and in halves: the same bits as at once, and what is stored in between.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_head.h"

/* Logits in forward, or in backward: loss and gradients have the same bits. */
static void gives_the_same_bits_with_logits_in_forward(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 16, 37, 70 };
    for (int i = 0; i < 4; i++) {
        head h = make(rows[i], 32, 5000, 2);
        const size_t n = (size_t)(h.V * h.C), nx = (size_t)(h.N * h.C);
        float *dw = room(n * sizeof *dw), *dx = room(nx * sizeof *dx);
        double sum[2] = { 0 };
        for (int k = 0; k < 2; k++) {
            ls_tape *t = tape(16 << 20);
            leaf_w(&h);
            ls_tape_logits_in_forward(t, k == 1);
            (void)fused(t, &h, 0, h.N, 0.1, true, &sum[k], NULL);
            if (k == 0) memcpy(dw, h.dw, n * sizeof *dw);
            if (k == 0) memcpy(dx, h.dx, nx * sizeof *dx);
            ls_tape_destroy(t);
        }
        assert_memory_equal(&sum[0], &sum[1], sizeof sum[0]);
        assert_memory_equal(dw, h.dw, n * sizeof *dw);
        assert_memory_equal(dx, h.dx, nx * sizeof *dx);
        free(dw);
        free(dx);
        drop(&h);
    }
}

/* The loss is there before backward, and forward's operations are those of the logits: a third of the products. */
static void has_its_loss_after_forward_with_logits_in_forward(void **state)
{
    (void)state;
    head h = make(33, 16, 600, 2);
    double early = 0, late = 0;
    for (int k = 0; k < 2; k++) {
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        ls_tape_logits_in_forward(t, k == 1);
        ls_tensor x, *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        double *const sum = k ? &early : &late;
        ls_tensor *loss = ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, sum, NULL);
        if (!loss) fail_msg("%s", ls_last_error());
        assert_true(k == 1 ? isfinite(early) && early > 0 : isnan(late));
        const double forward = ls_tape_flops(t), before = k ? early : 0;
        assert_true(k == 1 ? forward >= 2.0 * 33 * 16 * 600 : forward == 0);
        assert_int_equal(ls_backward(t, loss), LS_OK);
        if (k == 1) assert_memory_equal(&before, &early, sizeof before);
        ls_tape_destroy(t);
    }
    assert_memory_equal(&early, &late, sizeof early);
    drop(&h);
}

/* --- in halves -------------------------------------------------------------------------------------- */

/* Two micro-batches of the same rows, and where their gradients go. */
typedef struct halves {
    head h;
    ls_dtype dtype;
    bool early;                /* logits in forward */
    uint16_t *x16, *w16;       /* of bfloat16 */
    ls_tensor x[2], dx[2];     /* one per micro-batch; */
    ls_tape *t[2];
    ls_tensor *loss[2];
    double sum[2];
} halves;

static halves make_halves(int64_t N, int64_t V, ls_dtype dtype, bool early)
{
    halves f = { .h = make(N, 24, V, 5), .dtype = dtype, .early = early };
    if (N > 2) f.h.label[N / 2] = LS_IGNORE_INDEX;
    f.x16 = round_all(f.h.x, f.h.xd, N * f.h.C);
    f.w16 = round_all(f.h.wv, f.h.wd, V * f.h.C);
    return f;
}

static void leaf_halves(halves *f)
{
    leaf_w(&f->h);
    f->h.w.bf16 = f->w16;
    for (int k = 0; k < 2; k++) {
        f->dx[k] = (ls_tensor){ .dtype = f->dtype, .ndim = 2, .dim = { f->h.N, f->h.C } };
        f->dx[k].data = room((size_t)(f->h.N * f->h.C) * sizeof(float));
        f->x[k] = f->dx[k];
        f->x[k].data = f->dtype == LS_BF16 ? (void *)f->x16 : f->h.x;
        f->x[k].grad = &f->dx[k];
    }
}

/* F forward, B backward, W weights, each of tape 0 or 1. */
static void play_halves(halves *f, const char *schedule)
{
    for (const char *s = schedule; *s; s += 2) {
        const int k = s[1] - '0';
        ls_tape *t = f->t[k];
        if (*s == 'F') {
            ls_tape_reset(t);
            ls_tape_logits_in_forward(t, f->early);
            ls_tensor *y = ls_tape_input(t, LS_I64, 1, &f->h.N, f->h.label);
            f->loss[k] = ls_linear_cross_entropy(t, &f->x[k], &f->h.w, y, 0.25, &f->sum[k], NULL);
            if (!f->loss[k]) fail_msg("%s", ls_last_error());
        } else if ((*s == 'B' ? ls_backward(t, f->loss[k]) : ls_backward_weights(t)) < 0) {
            fail_msg("%s", ls_last_error());
        }
    }
}

static void drop_halves(halves *f)
{
    for (int k = 0; k < 2; k++) {
        ls_tape_destroy(f->t[k]);
        free(f->dx[k].data);
    }
    free(f->x16);
    free(f->w16);
    drop(&f->h);
}

/* A weight half of its own, however late, changes no bit of loss and gradients. */
static void gives_the_same_bits_in_halves(void **state)
{
    (void)state;
    static const char *const schedules[] = { "F0B0W0F1B1W1", "F0B0F1B1W0W1", "F0F1B0B1W0W1" };
    static const struct { int64_t N, V; } sizes[] = { { 1, 1 }, { 5, 15 }, { 17, 257 }, { 37, 4097 }, { 70, 9001 } };
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int how = 0; how < 4; how++) {
            const ls_dtype dtype = how & 1 ? LS_BF16 : LS_F32;
            halves want = make_halves(sizes[i].N, sizes[i].V, dtype, (how & 2) != 0);
            const size_t nw = (size_t)(want.h.V * want.h.C) * sizeof(float);
            for (int k = 0; k < 2; k++) want.t[k] = tape(16 << 20);
            leaf_halves(&want);
            play_halves(&want, "F0B0F1B1");
            for (size_t s = 0; s < COUNT(schedules); s++) {
                halves got = make_halves(sizes[i].N, sizes[i].V, dtype, (how & 2) != 0);
                ls_tape_scratch *scratch;
                assert_int_equal(ls_tape_scratch_create(16 << 20, NULL, &scratch), LS_OK);
                for (int k = 0; k < 2; k++) {
                    assert_int_equal(ls_tape_create_shared(scratch, 16 << 20, NULL, NULL, &got.t[k]), LS_OK);
                    assert_int_equal(ls_tape_defer_weights(got.t[k], true), LS_OK);
                }
                leaf_halves(&got);
                play_halves(&got, schedules[s]);
                for (int k = 0; k < 2; k++) {
                    assert_memory_equal(&got.sum[k], &want.sum[k], sizeof(double));
                    assert_memory_equal(got.dx[k].data, want.dx[k].data, ls_tensor_nbytes(&want.dx[k]));
                    assert_true(ls_tape_flops(got.t[k]) == ls_tape_flops(want.t[k]));
                }
                assert_memory_equal(got.h.dw, want.h.dw, nw);
                drop_halves(&got);
                ls_tape_scratch_destroy(scratch);
            }
            drop_halves(&want);
        }
}

/* The half of the input is two products of three, and leaves 4 bytes per logit (of bfloat16 2) in the tape; logits of
 * more than 64 MiB are not stored, so both gradients come at once. */
static void stores_slopes_of_logits_until_the_weight_half(void **state)
{
    (void)state;
    static const struct { int64_t N; bool halves; } sizes[] = { { 64, true }, { 320, true }, { 512, false } };
    const int64_t C = 768, V = 50257;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const int64_t N = sizes[i].N;
            ls_tape_scratch *scratch;
            ls_tape *t;
            ls_tensor dw = { .dtype = LS_F32, .ndim = 2, .dim = { V, C } }, w = dw;
            ls_tensor dx = { .dtype = bf16 ? LS_BF16 : LS_F32, .ndim = 2, .dim = { N, C } }, x = dx;
            w.grad = &dw;
            x.grad = &dx;
            assert_int_equal(ls_tape_scratch_create_dry(&scratch), LS_OK);
            assert_int_equal(ls_tape_create_shared(scratch, 0, NULL, NULL, &t), LS_OK);
            assert_int_equal(ls_tape_defer_weights(t, true), LS_OK);
            ls_tensor *y = ls_tape_input(t, LS_I64, 1, &N, NULL);
            ls_tensor *loss = ls_linear_cross_entropy(t, &x, &w, y, 1.0, NULL, NULL);
            assert_int_equal(ls_backward(t, loss), LS_OK);
            const double product = 2.0 * (double)(N * V * C), first = ls_tape_flops(t);
            assert_true(first > (sizes[i].halves ? 2 : 3) * product && first < (sizes[i].halves ? 2.1 : 3.1) * product);
            assert_int_equal(ls_tape_pending(t), sizes[i].halves);
            assert_int_equal(w.grad_ready, !sizes[i].halves);
            assert_int_equal(ls_backward_weights(t), LS_OK);
            assert_true(ls_tape_flops(t) - first == (sizes[i].halves ? product : 0.0));
            assert_true(w.grad_ready);
            const size_t slopes = sizes[i].halves ? (size_t)(N * V) * (bf16 ? 2 : 4) : 0, own = ls_tape_peak(t);
            assert_true(own >= slopes && own < slopes + slopes / 200 + 4096); /* blocks of the vocabulary are alike */
            ls_tape_destroy(t);
            ls_tape_scratch_destroy(scratch);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_bits_with_logits_in_forward),
        cmocka_unit_test(has_its_loss_after_forward_with_logits_in_forward),
        cmocka_unit_test(gives_the_same_bits_in_halves),
        cmocka_unit_test(stores_slopes_of_logits_until_the_weight_half),
    };
    return cmocka_run_group_tests_name("linear_cross_entropy_halves", tests, NULL, NULL);
}
