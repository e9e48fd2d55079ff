/* Several tapes with one scratch memory, and weight halves that are put off: the bits of one tape and one backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/model.h"
#include "lockstep/op.h"
#include "lockstep/unit.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                \
    do {                                                                 \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error()); \
    } while (0)

enum { V = 96, T = 8, B = 2, MICRO = 2 };

typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    int64_t ids[MICRO * B * T], labels[MICRO * B * T];
    ls_tape *t[MICRO];
    ls_tape_scratch *scratch;
    ls_tensor *loss[MICRO];
    ls_loss_sums sums[MICRO];
    char told[4096]; /* which tape told what */
} fixture;

static void build(fixture *f, const char *name)
{
    *f = (fixture){ 0 };
    ls_model_config mc = {
        .name = name, .init = LS_INIT_PHILOX, .seed = 5,
        .lm = { .vocab_size = V, .seq_len = T, .n_layer = 3, .n_head = 4, .d_model = 32, .d_ff = 96 },
    };
    mc.lm.tied = strcmp(name, "gpt2") == 0;
    if (mc.lm.tied) mc.lm.embd_dropout = mc.lm.resid_dropout = 0.25;
    else mc.lm.n_kv_head = 2;
    assert_done(ls_model_create(&mc, &f->m));
    ls_params *ps = &f->m->params;
    const size_t bytes = ls_params_nbytes(ps) + 64u * (size_t)ps->n;
    assert_done(ls_arena_create(bytes, false, NULL, &f->values));
    assert_done(ls_arena_create(bytes, false, NULL, &f->grads));
    assert_done(ls_params_bind(ps, f->values, f->grads));
    assert_done(ls_model_init(f->m, &mc));
    for (size_t i = 0; i < COUNT(f->ids); i++) {
        f->ids[i] = (int64_t)(i * 37 % V);
        f->labels[i] = (int64_t)((i * 53 + 7) % V);
    }
    f->m->draw.seed = 11;
}

static void drop(fixture *f)
{
    for (int k = 0; k < MICRO; k++) ls_tape_destroy(f->t[k]);
    ls_tape_scratch_destroy(f->scratch);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

static void forward(fixture *f, int k)
{
    const int64_t dim[2] = { B, T };
    ls_tape_reset(f->t[k]);
    f->m->draw.sample = (uint64_t)(k * B);
    ls_tensor *x = ls_tape_input(f->t[k], LS_I64, 2, dim, f->ids + k * B * T);
    ls_tensor *y = ls_tape_input(f->t[k], LS_I64, 2, dim, f->labels + k * B * T);
    f->loss[k] = ls_model_loss(f->m, f->t[k], x, y, &f->sums[k]);
    assert_done(ls_tape_status(f->t[k]));
}

/* The tape's number, then R for a gradient, D for the end. */
static void note(fixture *f, const ls_tape *t, char what)
{
    const size_t n = strlen(f->told);
    if (n + 3 < sizeof f->told) snprintf(f->told + n, 3, "%d%c", t == f->t[1], what);
}

typedef struct ear {
    fixture *f;
    const ls_tape *t;
} ear;

static ls_status on_ready(void *arg, ls_tensor *p)
{
    const ear *e = arg;
    (void)p;
    note(e->f, e->t, 'R');
    return LS_OK;
}

static ls_status on_done(void *arg)
{
    const ear *e = arg;
    note(e->f, e->t, 'D');
    return LS_OK;
}

/* F forward, B backward, W weights, each of tape 0 or 1: "F0B0W0F1B1W1". */
static void play(fixture *f, const char *schedule)
{
    ear e[MICRO];
    f->told[0] = 0;
    for (int k = 0; k < MICRO; k++) {
        e[k] = (ear){ f, f->t[k] };
        assert_done(ls_tape_listen(f->t[k], &(ls_tape_events){ .grad_ready = on_ready, .done = on_done }, &e[k]));
    }
    ls_params_zero_grad(&f->m->params);
    for (const char *s = schedule; *s; s += 2) {
        const int k = s[1] - '0';
        if (*s == 'F') forward(f, k);
        else if (*s == 'B') assert_done(ls_backward(f->t[k], f->loss[k]));
        else assert_done(ls_backward_weights(f->t[k]));
        const char after = s[2] && s[3] - '0' == k ? s[2] : 0;
        if (*s != 'F') assert_int_equal(ls_tape_pending(f->t[k]), after == 'W' || strstr(s + 2, k ? "W1" : "W0") != NULL);
    }
    for (int k = 0; k < MICRO; k++) ls_tape_unlisten(f->t[k], &e[k]);
}

/* A tape with all for itself, backward in one. */
static void reference(fixture *f, const char *name, ls_recompute how)
{
    build(f, name);
    for (int k = 0; k < MICRO; k++) {
        assert_done(ls_tape_create(1 << 20, NULL, NULL, &f->t[k]));
        ls_tape_set_recompute(f->t[k], how);
    }
    play(f, "F0B0F1B1");
}

static void open_shared(fixture *f, const char *name, ls_recompute how, bool defer, size_t own, size_t scratch)
{
    build(f, name);
    assert_done(ls_tape_scratch_create(scratch, NULL, &f->scratch));
    for (int k = 0; k < MICRO; k++) {
        assert_done(ls_tape_create_shared(f->scratch, own, NULL, NULL, &f->t[k]));
        ls_tape_set_recompute(f->t[k], how);
        assert_done(ls_tape_defer_weights(f->t[k], defer));
    }
}

static void assert_same(const fixture *got, const fixture *want, const char *what, ls_recompute how)
{
    for (int k = 0; k < MICRO; k++) assert_memory_equal(&got->sums[k].sum, &want->sums[k].sum, sizeof(double));
    for (int i = 0; i < got->m->params.n; i++) {
        const ls_param *a = &got->m->params.item[i], *b = &want->m->params.item[i];
        if (memcmp(a->grad.data, b->grad.data, ls_tensor_nbytes(&a->t)) != 0)
            fail_msg("%s, %s, %s: the gradient of %s differs", got->m->cls->name, what, ls_recompute_name(how), a->name);
    }
}

static const char *const names[] = { "gpt2", "llama" };

static void tapes_that_share_scratch_memory_give_the_bits_of_tapes_that_do_not(void **state)
{
    (void)state;
    static const char *const schedules[] = { "F0B0F1B1", "F0F1B0B1", "F1F0B0B1" };
    for (size_t n = 0; n < COUNT(names); n++)
        for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++) {
            fixture want, f;
            reference(&want, names[n], (ls_recompute)how);
            open_shared(&f, names[n], (ls_recompute)how, false, 1 << 20, 1 << 20);
            for (size_t s = 0; s < COUNT(schedules); s++) {
                play(&f, schedules[s]);
                assert_same(&f, &want, schedules[s], (ls_recompute)how);
                assert_string_equal(f.told, want.told);
            }
            drop(&f);
            drop(&want);
        }
}

static void weight_halves_that_are_put_off_give_the_bits_of_one_backward(void **state)
{
    (void)state;
    static const char *const schedules[] = {
        "F0B0W0F1B1W1", "F0F1B0B1W0W1", "F0B0F1W0B1W1", "F0B0F1B1W0W1", "F1F0B0W0B1W1",
    };
    for (size_t n = 0; n < COUNT(names); n++)
        for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++) {
            fixture want, f;
            reference(&want, names[n], (ls_recompute)how);
            open_shared(&f, names[n], (ls_recompute)how, true, 1 << 20, 1 << 20);
            for (size_t s = 0; s < COUNT(schedules); s++)
                for (int twice = 0; twice < 2; twice++) { /* a step leaves nothing behind */
                    play(&f, schedules[s]);
                    assert_same(&f, &want, schedules[s], (ls_recompute)how);
                    int ready[2] = { 0 }, done[2] = { 0 };
                    for (const char *c = f.told; *c; c += 2) *(c[1] == 'R' ? &ready[*c - '0'] : &done[*c - '0']) += 1;
                    for (int k = 0; k < MICRO; k++) {
                        assert_int_equal(ready[k], f.m->params.n); /* each once, */
                        assert_int_equal(done[k], 1);
                    }
                    assert_int_equal(f.told[strlen(f.told) - 1], 'D'); /* and then the end */
                }
            assert_true(ls_tape_flops(f.t[0]) == ls_tape_flops(want.t[0]));
            drop(&f);
            drop(&want);
        }
}

static void weight_halves_wait_for_their_turn(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(names); n++) {
        fixture f;
        open_shared(&f, names[n], LS_RECOMPUTE_NONE, true, 1 << 20, 1 << 20);
        ls_params_zero_grad(&f.m->params);
        forward(&f, 0);
        assert_done(ls_backward(f.t[0], f.loss[0]));
        int early = 0;
        for (int i = 0; i < f.m->params.n; i++) early += f.m->params.item[i].t.grad_ready;
        assert_int_equal(early, 0);
        assert_true(ls_tape_pending(f.t[0]));
        ls_tape_reset(f.t[0]); /* forgets them */
        assert_false(ls_tape_pending(f.t[0]));
        assert_done(ls_backward_weights(f.t[0]));
        for (int i = 0; i < f.m->params.n; i++) early -= f.m->params.item[i].t.grad_ready;
        assert_int_equal(early, 0);
        drop(&f);
    }
}

/* Forward, backward, weights of the same on dry tapes; the bytes of a tape and of the scratch. */
static void dry_peaks(const char *name, ls_recompute how, bool defer, size_t *own, size_t *scratch)
{
    fixture f;
    build(&f, name);
    assert_done(ls_tape_scratch_create_dry(&f.scratch));
    for (int k = 0; k < MICRO; k++) {
        assert_done(ls_tape_create_shared(f.scratch, 0, NULL, NULL, &f.t[k]));
        ls_tape_set_recompute(f.t[k], how);
        assert_done(ls_tape_defer_weights(f.t[k], defer));
    }
    play(&f, defer ? "F0F1B0B1W0W1" : "F0F1B0B1");
    *own = ls_tape_peak(f.t[0]);
    assert_int_equal(*own, ls_tape_peak(f.t[1]));
    *scratch = ls_tape_scratch_peak(f.scratch);
    drop(&f);
}

static void dry_tapes_know_the_memory_to_the_byte(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(names); n++)
        for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++)
            for (int defer = 0; defer < 2; defer++) {
                size_t own, scratch;
                fixture f;
                dry_peaks(names[n], (ls_recompute)how, defer, &own, &scratch);
                open_shared(&f, names[n], (ls_recompute)how, defer, own, scratch); /* it is enough */
                play(&f, defer ? "F0F1B0B1W0W1" : "F0F1B0B1");
                for (int k = 0; k < MICRO; k++) assert_int_equal(ls_tape_peak(f.t[k]), own);
                assert_int_equal(ls_tape_scratch_peak(f.scratch), scratch);
                drop(&f);
                /* Together they take what a tape with all for itself takes; but selective leaves holes in forward,
                 * which only such a tape fills in backward. */
                if (defer || how == LS_RECOMPUTE_SELECTIVE) continue;
                reference(&f, names[n], (ls_recompute)how);
                assert_int_equal(own + scratch, ls_tape_peak(f.t[0]));
                drop(&f);
            }
}

/* --- an op of one's own, in a block, and recomputed ---------------------------------------------- */

static float image[2 * 3 * 6 * 5], kernel[4 * 3 * 3 * 3], kernel_slope[4 * 3 * 3 * 3], last[4 * 4 * 3 * 3],
    last_slope[4 * 4 * 3 * 3];
static ls_tensor w[2], grad[2];

static ls_tensor *convolutions(ls_tape *t, ls_tensor *x, const void *unused)
{
    (void)unused;
    x = ls_conv2d(t, ls_tanh(t, ls_scale(t, x, 0.5f)), &w[0], NULL, 1, 1);
    return ls_conv2d(t, ls_sigmoid(t, x), &w[1], NULL, 1, 0);
}

static void an_op_of_op_h_is_put_off_like_the_others(void **state)
{
    (void)state;
    float want[2][COUNT(last)];
    for (size_t i = 0; i < COUNT(image); i++) image[i] = (float)(i * 29 % 31) / 31.0f - 0.5f;
    for (size_t i = 0; i < COUNT(kernel); i++) kernel[i] = (float)(i * 17 % 37) / 37.0f - 0.5f;
    for (size_t i = 0; i < COUNT(last); i++) last[i] = (float)(i * 23 % 41) / 41.0f - 0.5f;
    for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++)
        for (int defer = 0; defer < 2; defer++) {
            ls_tape_scratch *s;
            ls_tape *t;
            assert_done(ls_tape_scratch_create(1 << 20, NULL, &s));
            assert_done(ls_tape_create_shared(s, 1 << 20, NULL, NULL, &t));
            assert_done(ls_tape_defer_weights(t, defer));
            ls_tape_set_recompute(t, (ls_recompute)how);
            for (int k = 0; k < 2; k++) {
                grad[k] = (ls_tensor){ .dtype = LS_F32, .ndim = 4, .dim = { 4, k ? 4 : 3, 3, 3 },
                                       .data = k ? last_slope : kernel_slope };
                w[k] = grad[k];
                w[k].data = k ? last : kernel;
                w[k].grad = &grad[k];
            }
            memset(kernel_slope, 0, sizeof kernel_slope);
            memset(last_slope, 0, sizeof last_slope);
            ls_tensor *x = ls_tape_input(t, LS_F32, 4, (int64_t[]){ 2, 3, 6, 5 }, image);
            ls_tensor *loss = ls_mean(t, ls_block(t, x, convolutions, NULL, 0), LS_ALL_DIMS);
            assert_done(ls_backward(t, loss));
            assert_int_equal(w[0].grad_ready, !defer);
            assert_done(ls_backward_weights(t));
            if (how == 0 && !defer) memcpy(want[0], kernel_slope, sizeof kernel_slope);
            if (how == 0 && !defer) memcpy(want[1], last_slope, sizeof last_slope);
            assert_memory_equal(kernel_slope, want[0], sizeof kernel_slope);
            assert_memory_equal(last_slope, want[1], sizeof last_slope);
            ls_tape_destroy(t);
            ls_tape_scratch_destroy(s);
        }
}

static ls_tensor *tanh_of(ls_tape *t, ls_tensor *x, const void *unused)
{
    (void)unused;
    return ls_tanh(t, x);
}

static ls_tensor *failing(ls_tape *t, ls_tensor *x, const void *unused)
{
    (void)unused;
    return ls_matmul(t, ls_tanh(t, x), ls_tanh(t, x)); /* [2, 3] and [2, 3] do not fit */
}

static void a_failure_leaves_nothing_in_the_scratch_memory(void **state)
{
    (void)state;
    ls_tape_scratch *s;
    ls_tape *t[2];
    float value[6] = { 0 };
    assert_done(ls_tape_scratch_create(4096, NULL, &s));
    for (int k = 0; k < 2; k++) assert_done(ls_tape_create_shared(s, 1 << 14, NULL, NULL, &t[k]));
    for (int i = 0; i < 100; i++) { /* it would be full otherwise */
        ls_tape_set_recompute(t[0], LS_RECOMPUTE_FULL);
        ls_tensor *x = ls_tape_input(t[0], LS_F32, 2, (int64_t[]){ 2, 3 }, value);
        assert_null(ls_block(t[0], x, failing, NULL, 0));
        assert_int_equal(ls_tape_status(t[0]), LS_SHAPE);
        ls_tape_reset(t[0]);
    }
    ls_tape_set_grad(t[1], false);
    ls_tensor *x = ls_tape_input(t[1], LS_F32, 2, (int64_t[]){ 2, 3 }, value);
    assert_non_null(ls_block(t[1], x, tanh_of, NULL, 0));
    for (int k = 0; k < 2; k++) ls_tape_destroy(t[k]);
    ls_tape_scratch_destroy(s);
}

static void misuse_is_named(void **state)
{
    (void)state;
    ls_tape *t;
    assert_done(ls_tape_create(1 << 16, NULL, NULL, &t));
    assert_int_equal(ls_tape_defer_weights(t, true), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "create the tape by ls_tape_create_shared"));
    assert_done(ls_tape_defer_weights(t, false));
    assert_done(ls_backward_weights(t)); /* there is nothing to do */
    ls_tape_destroy(t);
    ls_tape_scratch_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tapes_that_share_scratch_memory_give_the_bits_of_tapes_that_do_not),
        cmocka_unit_test(weight_halves_that_are_put_off_give_the_bits_of_one_backward),
        cmocka_unit_test(weight_halves_wait_for_their_turn),
        cmocka_unit_test(dry_tapes_know_the_memory_to_the_byte),
        cmocka_unit_test(an_op_of_op_h_is_put_off_like_the_others),
        cmocka_unit_test(a_failure_leaves_nothing_in_the_scratch_memory),
        cmocka_unit_test(misuse_is_named),
    };
    return cmocka_run_group_tests_name("shared_tapes", tests, NULL, NULL);
}
