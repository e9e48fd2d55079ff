/* Packed copies of weights: a step by them is the step without to rounding, the same bits twice, and no weight of
 * before is ever read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness_text.h"
#include "tensor/tape.h"
#include "train/trainer.h"

#define N 64
#define I 96
#define O 200

/* --- one linear layer ----------------------------------------------------------------------------- */

typedef struct layer {
    ls_tape *tape;
    ls_tensor w, grad;
    float *weight, *slope, *x;
    uint16_t *half, *half_x;
    void *memory;
    size_t nbytes;
} layer;

static void *room(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0, (n + 63) / 64 * 64);
    return p;
}

static float number(uint32_t *dice)
{
    *dice = *dice * 1664525u + 1013904223u;
    return ls_bf16_to_f32(ls_f32_to_bf16((float)(*dice >> 8) * 0x1p-23f - 1.0f));
}

static void set_weight(layer *l, uint32_t dice)
{
    for (int i = 0; i < O * I; i++) l->half[i] = ls_f32_to_bf16(l->weight[i] = number(&dice));
}

static void open_layer(layer *l, ls_dtype dtype)
{
    uint32_t dice = 7;
    *l = (layer){ .weight = room(O * I * 4), .slope = room(O * I * 4), .half = room(O * I * 2), .x = room(N * I * 4),
                  .half_x = room(N * I * 2) };
    l->grad = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { O, I }, .data = l->slope };
    l->w = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { O, I }, .data = l->weight, .bf16 = l->half,
                        .grad = &l->grad };
    for (int i = 0; i < N * I; i++) l->half_x[i] = ls_f32_to_bf16(l->x[i] = number(&dice));
    set_weight(l, 1);
    assert_int_equal(ls_tape_create((size_t)4 << 20, NULL, NULL, &l->tape), LS_OK);
    assert_int_equal(ls_tape_set_dtype(l->tape, dtype), LS_OK);
    const ls_gemm_call c = { .m = N, .n = O, .k = I, .trans_b = true, .in = dtype, .out = dtype };
    l->nbytes = ls_gemm_packed_bytes(&c);
    l->memory = room(l->nbytes);
    assert_int_equal(ls_tape_pack_memory(l->tape, l->memory, l->nbytes), LS_OK);
}

static void close_layer(layer *l)
{
    ls_tape_destroy(l->tape);
    free(l->weight);
    free(l->slope);
    free(l->half);
    free(l->x);
    free(l->half_x);
    free(l->memory);
}

/* x w^T of the weights that there are now: to rounding of sums and of the result. */
static void expect_current(layer *l)
{
    const bool bf16 = ls_tape_dtype(l->tape) == LS_BF16;
    const int64_t dim[2] = { N, I };
    ls_tape_reset(l->tape);
    ls_tensor *x = ls_tape_input(l->tape, ls_tape_dtype(l->tape), 2, dim, bf16 ? (void *)l->half_x : l->x);
    const ls_tensor *y = ls_linear(l->tape, x, &l->w, NULL);
    assert_int_equal(ls_tape_status(l->tape), LS_OK);
    for (int n = 0; n < N; n++)
        for (int o = 0; o < O; o++) {
            double want = 0;
            for (int i = 0; i < I; i++) want += (double)l->x[n * I + i] * (double)l->weight[o * I + i];
            const float got = bf16 ? ls_bf16_to_f32(((uint16_t *)y->data)[n * O + o]) : ((float *)y->data)[n * O + o];
            /* 6 sqrt(I) 2^-24 of at most I, and half a unit in the last place of bfloat16 */
            const double most = 6.0 * sqrt(I) * 0x1p-24 * I + (bf16 ? fabs(want) * 0x1p-8 : 0.0);
            if (!(fabs((double)got - want) <= most))
                fail_msg("y[%d][%d] = %.9g, want %.9g +- %.2g", n, o, (double)got, want, most);
        }
}

static void copies_follow_the_weights(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        layer l;
        open_layer(&l, d ? LS_BF16 : LS_F32);
        for (uint32_t step = 1; step < 4; step++) {
            ls_tape_pack_begin(l.tape);
            for (int i = 0; i < 3; i++) expect_current(&l);
            ls_tape_pack_end(l.tape);
            assert_int_equal(ls_tape_packed_bytes(l.tape), l.nbytes); /* once, not in every step */
            set_weight(&l, 100 * step);
            expect_current(&l); /* an evaluation */
            set_weight(&l, 100 * step + 1);
        }
        close_layer(&l);
    }
}

/* That copies are read at all: one that somebody spoilt shows. */
static void products_read_the_copy(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const int64_t dim[2] = { N, I };
        layer l;
        open_layer(&l, d ? LS_BF16 : LS_F32);
        ls_tape_pack_begin(l.tape);
        expect_current(&l);
        if (l.nbytes > 0) {
            memset(l.memory, 0, l.nbytes);
            ls_tape_reset(l.tape);
            ls_tensor *x = ls_tape_input(l.tape, ls_tape_dtype(l.tape), 2, dim, d ? (void *)l.half_x : l.x);
            const ls_tensor *y = ls_linear(l.tape, x, &l.w, NULL);
            const size_t nbytes = ls_tensor_nbytes(y);
            for (size_t i = 0; i < nbytes; i++) assert_int_equal(((const char *)y->data)[i] & 0x7f, 0);
        }
        close_layer(&l);
    }
}

/* --- training ---------------------------------------------------------------------------------------- */

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_trainer *t;
} fixture;

static void begin(fixture *f, const char *dtype, const char *pack, const char *recompute)
{
    const char *const set[] = {
        "model.name", "gpt2", "model.n_layer", "2", "model.n_head", "4", "model.d_model", "128", "model.seq_len", "32",
        "data.name", text, "data.path", tokens, "data.tokenizer", "char", "train.global_batch", "8",
        "train.micro_batch", "2", "optim.name", "adamw", "optim.lr", "1e-3", "train.dtype", dtype, "train.pack_weights",
        pack, "train.recompute", recompute,
    };
    *f = (fixture){ 0 };
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o), LS_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i += 2)
        if (ls_opts_set(f->o, set[i], set[i + 1], "flag") < 0) fail_msg("%s", ls_last_error());
    if (ls_train_config_resolve(f->o, &f->c) < 0 || ls_trainer_create(&f->c, &f->t) < 0) fail_msg("%s", ls_last_error());
}

static void end(fixture *f)
{
    ls_trainer_destroy(f->t);
    ls_opts_destroy(f->o);
}

static double train(fixture *f, int steps)
{
    ls_step_stats s = { 0 };
    for (int i = 0; i < steps; i++)
        if (ls_train_step(f->t, &s) < 0) fail_msg("%s", ls_last_error());
    return s.loss;
}

static void a_packed_run_is_the_plain_one_to_rounding(void **state)
{
    (void)state;
    static const struct { const char *dtype; double most; } row[] = {
        { "f32", 1e-5 },
        { "bf16", 4e-3 }, /* activations and gradients have 8 bits */
    };
    for (int d = 0; d < 2; d++) {
        fixture plain, packed, again, recomputed;
        char one[33], two[33];
        begin(&plain, row[d].dtype, "never", "none");
        begin(&packed, row[d].dtype, d ? "auto" : "always", "none");
        begin(&again, row[d].dtype, "always", "none");
        begin(&recomputed, row[d].dtype, "always", "full");
        assert_int_equal(plain.t->plan.packed, 0);
        for (int i = 0; i < 6; i++) {
            const double a = train(&plain, 1), b = train(&packed, 1), c = train(&again, 1), e = train(&recomputed, 1);
            if (!(fabs(a - b) <= row[d].most * a)) fail_msg("%s, step %d: %.9g and %.9g", row[d].dtype, i + 1, a, b);
            assert_true(b == c && b == e);
        }
        assert_int_equal(ls_tape_packed_bytes(packed.t->par.tape[0]), packed.t->plan.packed);
        assert_int_equal(ls_params_digest(&packed.t->par.model->params, one), LS_OK);
        assert_int_equal(ls_params_digest(&again.t->par.model->params, two), LS_OK);
        assert_string_equal(one, two);
        end(&recomputed);
        end(&again);
        end(&packed);
        end(&plain);
    }
}

/* An evaluation between steps is that of a trainer that never had other weights. */
static void evaluation_reads_the_weights_of_now(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        fixture packed, fresh;
        ls_eval a, b;
        begin(&packed, d ? "bf16" : "f32", "always", "none");
        begin(&fresh, d ? "bf16" : "f32", "never", "none");
        for (int i = 0; i < 2; i++) {
            (void)train(&packed, 2);
            ls_params *from = &packed.t->par.model->params, *to = &fresh.t->par.model->params;
            for (int k = 0; k < from->n; k++)
                memcpy(to->item[k].t.data, from->item[k].t.data, ls_tensor_nbytes(&from->item[k].t));
            ls_params_round(to);
            assert_int_equal(ls_train_evaluate(packed.t, &a), LS_OK);
            assert_int_equal(ls_train_evaluate(fresh.t, &b), LS_OK);
            assert_true(a.loss == b.loss);
        }
        end(&fresh);
        end(&packed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_follow_the_weights),
        cmocka_unit_test(products_read_the_copy),
        cmocka_unit_test(a_packed_run_is_the_plain_one_to_rounding),
        cmocka_unit_test(evaluation_reads_the_weights_of_now),
    };
    return cmocka_run_group_tests_name("packing", tests, make_text, remove_text);
}
