/* GPT-2 and Llama against transformers: logits, loss, every gradient, twenty steps of AdamW, from the files that
 * tests/golden/hf_models.py made. And what training relies on: memory known before the first step, the same bits
 * twice, the same gradients however a batch is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/hf.h"
#include "lockstep/optim.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define B 2
#define T 16
#define V 64
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

static const char *const names[] = { "gpt2", "llama" };

/* A model with all its memory, the values that transformers saved, and its batch. */
typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    ls_tape *t;
    ls_ckpt *golden; /* ids, labels, logits, loss, grad.*, losses */
    int64_t ids[B * T], labels[B * T];
} fixture;

static void read_golden(const fixture *f, const char *name, void *out, size_t nbytes)
{
    const ls_ckpt_tensor *t = ls_ckpt_find(f->golden, name);
    if (!t || t->end - t->begin != nbytes) fail_msg("golden '%s' is not there or not of %zu bytes", name, nbytes);
    assert_done(ls_ckpt_read(f->golden, t, out));
}

static fixture build(const char *name, bool with_grads)
{
    fixture f = { 0 };
    char path[512];
    ls_hf_config c;
    snprintf(path, sizeof path, "%s/tests/golden/hf/%s", LOCKSTEP_SOURCE, name);
    assert_done(ls_hf_config_read(path, &c));
    const ls_model_config mc = { .name = c.model, .lm = c.lm };
    assert_done(ls_model_create(&mc, &f.m));
    ls_params *ps = &f.m->params;
    const size_t room = 4 * (ls_params_nbytes(ps) + 64u * (size_t)ps->n); /* and AdamW's state */
    assert_done(ls_arena_create(room, false, NULL, &f.values));
    assert_done(ls_arena_create(room, false, NULL, &f.grads));
    assert_done(ls_params_bind(ps, f.values, with_grads ? f.grads : NULL));
    assert_done(ls_hf_load(path, &c, ps));
    assert_done(ls_tape_create(ls_model_tape_bytes_of(f.m, B, T), NULL, NULL, &f.t));
    snprintf(path, sizeof path, "%s/tests/golden/hf/%s.safetensors", LOCKSTEP_SOURCE, name);
    assert_done(ls_ckpt_open(path, &f.golden));
    read_golden(&f, "ids", f.ids, sizeof f.ids);
    read_golden(&f, "labels", f.labels, sizeof f.labels);
    return f;
}

static void drop(fixture *f)
{
    ls_ckpt_close(f->golden);
    ls_tape_destroy(f->t);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

/* Forward and backward of samples [first, first + n), whose gradients count `weight` (0: ls_backward, which gives
 * them 1); the sum of their losses. */
static double run(fixture *f, int first, int n, float weight)
{
    ls_loss_sums sums;
    const int64_t dim[2] = { n, T };
    ls_tape_reset(f->t);
    ls_tensor *x = ls_tape_input(f->t, LS_I64, 2, dim, f->ids + first * T);
    ls_tensor *y = ls_tape_input(f->t, LS_I64, 2, dim, f->labels + first * T);
    ls_tensor *loss = ls_model_loss(f->m, f->t, x, y, &sums);
    assert_done(ls_tape_status(f->t));
    if (ls_tape_grad(f->t)) assert_done(weight > 0 ? ls_backward_from(f->t, loss, &weight) : ls_backward(f->t, loss));
    assert_int_equal(sums.counted, n * T);
    assert_int_equal(sums.correct, -1);
    const double mean = sums.sum / (double)(n * T);
    if (!(fabs((double)*(float *)loss->data - mean) <= 1e-6 * mean)) /* a few roundings */
        fail_msg("the loss is %.9g, the sum says %.9g", (double)*(float *)loss->data, mean);
    return sums.sum;
}

static float *logits(fixture *f)
{
    const int64_t dim[2] = { B, T };
    ls_tape_reset(f->t);
    ls_tape_set_grad(f->t, false);
    ls_tensor *y = ls_model_forward(f->m, f->t, ls_tape_input(f->t, LS_I64, 2, dim, f->ids));
    ls_tape_set_grad(f->t, true);
    assert_done(ls_tape_status(f->t));
    assert_true(y->ndim == 3 && y->dim[0] == B && y->dim[1] == T && y->dim[2] == V);
    return y->data;
}

/* --- parity -------------------------------------------------------------------------------- */

static void logits_and_loss_are_transformers(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        static float want[B * T * V];
        float loss;
        read_golden(&f, "logits", want, sizeof want);
        read_golden(&f, "loss", &loss, sizeof loss);
        const float *got = logits(&f);
        for (int i = 0; i < B * T * V; i++)
            if (!(fabsf(got[i] - want[i]) <= 1e-4f)) fail_msg("%s: logit %d: %.9g, want %.9g", names[k], i, (double)got[i], (double)want[i]);
        const double mean = run(&f, 0, B, 1.0f) / (B * T);
        if (!(fabs(mean - (double)loss) <= 1e-5)) fail_msg("%s: loss %.9g, want %.9g", names[k], mean, (double)loss);
        ls_tape_set_grad(f.t, false); /* evaluation */
        assert_true(fabs(run(&f, 0, B, 1.0f) / (B * T) - mean) <= 1e-6 * mean);
        drop(&f);
    }
}

/* |got - want| / |want|; the files have gpt2's matrices transposed. */
static double difference(const ls_param *p, const float *want, bool transposed)
{
    const float *got = p->grad.data;
    const int64_t n = ls_tensor_count(&p->t), I = p->t.ndim == 2 ? p->t.dim[1] : 1, O = p->t.dim[0];
    double d = 0, w = 0;
    for (int64_t k = 0; k < n; k++) {
        const double ref = (double)want[transposed ? k % I * O + k / I : k];
        d += ((double)got[k] - ref) * ((double)got[k] - ref);
        w += ref * ref;
    }
    return sqrt(d / w);
}

static void every_gradient_is_transformers(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        run(&f, 0, B, 1.0f);
        for (int i = 0; i < f.m->params.n; i++) {
            const ls_param *p = &f.m->params.item[i];
            char name[LS_NAME_BYTES + 8];
            snprintf(name, sizeof name, "grad.%s", p->name);
            float *want = malloc(ls_tensor_nbytes(&p->t));
            assert_non_null(want);
            read_golden(&f, name, want, ls_tensor_nbytes(&p->t));
            assert_true(p->t.grad_ready);
            const double d = difference(p, want, k == 0 && p->t.ndim == 2 && strstr(p->name, ".h."));
            if (!(d <= 1e-3)) fail_msg("%s: the gradient differs by %g of itself", p->name, d);
            free(want);
        }
        drop(&f);
    }
}

static void twenty_steps_of_adamw_are_torchs(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        float want[20];
        ls_optim_config oc;
        ls_optim *o;
        read_golden(&f, "losses", want, sizeof want);
        assert_done(ls_optim_defaults("adamw", &oc));
        oc.lr = 1e-3;
        oc.weight_decay = 0.01;
        assert_done(ls_optim_create(&oc, &f.m->params, f.values, &o));
        for (int step = 0; step < 20; step++) {
            ls_params_zero_grad(&f.m->params);
            const double loss = run(&f, 0, B, 1.0f) / (B * T);
            if (!(fabs(loss - (double)want[step]) <= 1e-4))
                fail_msg("%s: step %d: loss %.9g, want %.9g", names[k], step, loss, (double)want[step]);
            assert_done(ls_optim_step(o));
        }
        assert_true(want[19] < want[0]);
        ls_optim_destroy(o);
        drop(&f);
    }
}

/* --- what training relies on ------------------------------------------------------------------- */

static float *copy_grads(const fixture *f)
{
    float *p = malloc(ls_params_nbytes(&f->m->params)), *at = p;
    assert_non_null(p);
    for (int i = 0; i < f->m->params.n; i++) {
        const ls_param *q = &f->m->params.item[i];
        memcpy(at, q->grad.data, ls_tensor_nbytes(&q->t));
        at += ls_tensor_count(&q->t);
    }
    return p;
}

static void a_step_takes_the_memory_that_was_foretold(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        run(&f, 0, B, 0);
        assert_int_equal(ls_tape_peak(f.t), ls_model_tape_bytes_of(f.m, B, T));
        assert_int_equal(ls_model_tape_bytes(f.m, B), ls_model_tape_bytes_of(f.m, B, T)); /* T is the longest */
        assert_true(ls_model_tape_bytes_of(f.m, B, T / 2) < ls_model_tape_bytes(f.m, B));
        drop(&f);
    }
}

static void the_same_batch_gives_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        const double first = run(&f, 0, B, 1.0f);
        float *a = copy_grads(&f);
        ls_params_zero_grad(&f.m->params);
        const double second = run(&f, 0, B, 1.0f);
        float *b = copy_grads(&f);
        assert_memory_equal(&first, &second, sizeof first);
        assert_memory_equal(a, b, ls_params_nbytes(&f.m->params));
        free(a);
        free(b);
        drop(&f);
    }
}

/* Two micro-batches of one sample, each half of the step, against both samples at once. Gradients
 * are sums of B T = 32 terms in another order: 32 roundings of 2^-24, 2e-6 of the largest. */
static void a_cut_batch_gives_the_same_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        const double whole = run(&f, 0, B, 1.0f);
        float *a = copy_grads(&f);
        ls_params_zero_grad(&f.m->params);
        double parts = 0;
        for (int i = 0; i < B; i++) parts += run(&f, i, 1, 1.0f / B);
        assert_true(fabs(whole - parts) <= 1e-6 * whole);
        float *b = copy_grads(&f);
        const int64_t n = ls_params_count(&f.m->params);
        float most = 0;
        for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a[i]));
        for (int64_t i = 0; i < n; i++)
            if (!(fabsf(a[i] - b[i]) <= 2e-6f * most)) fail_msg("%s: element %lld: %g and %g", names[k], (long long)i, (double)a[i], (double)b[i]);
        free(a);
        free(b);
        drop(&f);
    }
}

/* A label that does not count leaves the others as they are: the loss is still by N, so the caller decides by what. */
static void ignored_labels_do_not_count(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        ls_loss_sums all, part, rest;
        const int64_t dim[2] = { B, T };
        double sums[3];
        int64_t keep[B * T];
        memcpy(keep, f.labels, sizeof keep);
        ls_loss_sums *const out[] = { &all, &part, &rest };
        ls_tape_set_grad(f.t, false);
        for (int which = 0; which < 3; which++) {
            for (int i = 0; i < B * T; i++)
                f.labels[i] = which == 0 || (i % 3 == 0) == (which == 1) ? keep[i] : LS_IGNORE_INDEX;
            ls_tape_reset(f.t);
            ls_tensor *x = ls_tape_input(f.t, LS_I64, 2, dim, f.ids), *y = ls_tape_input(f.t, LS_I64, 2, dim, f.labels);
            ls_model_loss(f.m, f.t, x, y, out[which]);
            assert_done(ls_tape_status(f.t));
            sums[which] = out[which]->sum;
        }
        assert_true(all.counted == B * T && part.counted == (B * T + 2) / 3);
        assert_true(part.counted + rest.counted == all.counted);
        assert_true(fabs(sums[1] + sums[2] - sums[0]) <= 1e-6 * sums[0]);
        drop(&f);
    }
}

static void refuses_what_the_model_cannot_read(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = build(names[k], true);
        int64_t ids[B * 2 * T] = { 0 };
        struct { ls_dtype dtype; int ndim; int64_t dim[3]; int64_t id; ls_status status; const char *says; } row[] = {
            { LS_I64, 2, { B, T + 1, 0 }, 0, LS_SHAPE, "a sequence of 17 tokens, the model's longest is 16" },
            { LS_I64, 1, { T, 0, 0 }, 0, LS_SHAPE, "expected [B, T] of int64" },
            { LS_I64, 3, { 1, B, T }, 0, LS_SHAPE, "expected [B, T] of int64" },
            { LS_F32, 2, { B, T, 0 }, 0, LS_SHAPE, "expected [B, T] of int64" },
            { LS_I64, 2, { B, T, 0 }, V, LS_INVALID, "64" },
            { LS_I64, 2, { B, T, 0 }, -1, LS_INVALID, "-1" },
        };
        for (size_t i = 0; i < COUNT(row); i++) {
            ids[3] = row[i].id;
            ls_tape_reset(f.t);
            ls_model_forward(f.m, f.t, ls_tape_input(f.t, row[i].dtype, row[i].ndim, row[i].dim, ids));
            assert_int_equal(ls_tape_status(f.t), row[i].status);
            if (!strstr(ls_last_error(), row[i].says)) fail_msg("row %zu: %s", i, ls_last_error());
        }
        drop(&f);
    }
}

/* --- dropout ---------------------------------------------------------------------------------------- */

static ls_model *with_dropout(double embd, double attn, double resid, ls_arena **arena)
{
    const ls_model_config c = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 1,
                                .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 4, .d_model = 32,
                                        .tied = true, .embd_dropout = embd, .attn_dropout = attn,
                                        .resid_dropout = resid } };
    ls_model *m;
    assert_done(ls_model_create(&c, &m));
    assert_done(ls_arena_create(3 * ls_params_nbytes(&m->params), false, NULL, arena));
    assert_done(ls_params_bind(&m->params, *arena, *arena));
    assert_done(ls_model_init(m, &c));
    return m;
}

/* The sum of the losses of samples [first, first + n) of a batch of two, in a step of training. */
static double sum_of(ls_model *m, ls_tape *t, bool grad, int first, int n)
{
    int64_t ids[B * T];
    ls_loss_sums sums;
    for (int i = 0; i < B * T; i++) ids[i] = (7 * i + i * i) % V;
    const int64_t dim[2] = { n, T };
    ls_tape_reset(t);
    ls_tape_set_grad(t, grad);
    m->draw.sample = (uint64_t)first;
    ls_tensor *x = ls_tape_input(t, LS_I64, 2, dim, ids + first * T);
    ls_tensor *loss = ls_model_loss(m, t, x, x, &sums);
    assert_done(ls_tape_status(t));
    if (grad) assert_done(ls_backward(t, loss));
    return sums.sum;
}

static void dropout_depends_on_the_step_and_not_on_the_cut(void **state)
{
    (void)state;
    static const struct { double embd, attn, resid; } row[] = { { 0.1, 0.0, 0.2 }, { 0.0, 0.3, 0.0 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_arena *arena;
        ls_model *m = with_dropout(row[i].embd, row[i].attn, row[i].resid, &arena);
        ls_tape *t;
        assert_done(ls_tape_create(ls_model_tape_bytes(m, B), NULL, NULL, &t));
        m->draw.seed = 9;
        m->draw.step = 4;
        const double whole = sum_of(m, t, true, 0, B), again = sum_of(m, t, true, 0, B);
        const double cut = sum_of(m, t, true, 0, 1) + sum_of(m, t, true, 1, 1), off = sum_of(m, t, false, 0, B);
        m->draw.step = 5;
        const double next = sum_of(m, t, true, 0, B);
        assert_true(whole == again);
        assert_true(fabs(whole - cut) <= 1e-6 * whole); /* the same elements are dropped; sums in another order */
        assert_true(fabs(whole - next) > 1e-5 * whole);
        assert_true(fabs(whole - off) > 1e-5 * whole);
        assert_true(off == sum_of(m, t, false, 0, B));
        ls_tape_destroy(t);
        ls_model_destroy(m);
        ls_arena_destroy(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_loss_are_transformers),
        cmocka_unit_test(every_gradient_is_transformers),
        cmocka_unit_test(twenty_steps_of_adamw_are_torchs),
        cmocka_unit_test(a_step_takes_the_memory_that_was_foretold),
        cmocka_unit_test(the_same_batch_gives_the_same_bits),
        cmocka_unit_test(a_cut_batch_gives_the_same_gradients),
        cmocka_unit_test(ignored_labels_do_not_count),
        cmocka_unit_test(refuses_what_the_model_cannot_read),
        cmocka_unit_test(dropout_depends_on_the_step_and_not_on_the_cut),
    };
    return cmocka_run_group_tests_name("lm", tests, NULL, NULL);
}
