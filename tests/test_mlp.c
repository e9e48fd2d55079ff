/* The MLP against PyTorch, and the memory it says it needs. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "golden/mlp.h"
#include "lockstep/model.h"

/* --- counting allocations: the C library's are called through these ---------------------- */

#if defined(__GLIBC__) && !defined(LS_SANITIZED)
static _Atomic int64_t allocations;
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t a, size_t n);
void *malloc(size_t n) { allocations++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { allocations++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { allocations++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { allocations++; return __libc_memalign(a, n); }
void *memalign(size_t a, size_t n) { allocations++; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { allocations++; return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM; }
#define COUNTED 1
#else
static int64_t allocations;
#define COUNTED 0
#endif

/* A model with all its memory. */
typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    ls_tape *t;
} fixture;

static fixture build(const ls_model_config *c, int64_t batch, bool with_grads)
{
    fixture f = { 0 };
    assert_int_equal(ls_model_create(c, &f.m), LS_OK);
    const size_t room = ls_params_nbytes(&f.m->params) + 64u * (size_t)f.m->params.n;
    assert_int_equal(ls_arena_create(room, false, NULL, &f.values), LS_OK);
    assert_int_equal(ls_arena_create(room, false, NULL, &f.grads), LS_OK);
    assert_int_equal(ls_params_bind(&f.m->params, f.values, with_grads ? f.grads : NULL), LS_OK);
    assert_int_equal(ls_model_init(f.m, c), LS_OK);
    assert_int_equal(ls_tape_create(ls_model_tape_bytes(f.m, batch), NULL, NULL, &f.t), LS_OK);
    return f;
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

static double norm(const ls_tensor *t)
{
    double sum = 0.0;
    for (int64_t i = 0; i < ls_tensor_count(t); i++)
        sum += (double)((float *)t->data)[i] * (double)((float *)t->data)[i];
    return sqrt(sum);
}

static void assert_close(double got, double want, double relative, const char *what, int i)
{
    if (!(fabs(got - want) <= relative * fabs(want))) fail_msg("%s %d: %.9g, want %.9g", what, i, got, want);
}

static const int64_t exercise[] = { 64, 128, 10 };

/* Sums of at most 128 products in another order than PyTorch's differ by about sqrt(128) * 2^-24 =
 * 7e-7 relative; ten steps at lr 0.1 do not amplify that. 1e-5 is the promise. */
static void ten_sgd_steps_equal_pytorch(void **state)
{
    (void)state;
    const ls_model_config config = { .name = "mlp", .dims = exercise, .ndims = 3, .init = LS_INIT_TORCH, .seed = 1234 };
    fixture f = build(&config, 32, true);
    ls_params *ps = &f.m->params;
    assert_int_equal(ps->n, 4);
    for (int i = 0; i < 4; i++) { /* initial values: to the bit */
        const float *v = ps->item[i].t.data;
        assert_true((double)v[0] == golden_first[i]);
        assert_true((double)v[ls_tensor_count(&ps->item[i].t) - 1] == golden_last[i]);
    }

    static float x[1000 * 64];
    static int64_t y[1000];
    ls_mt19937 rng;
    ls_mt19937_seed(&rng, 0);
    ls_mt19937_normal(&rng, 64000, x);
    assert_int_equal(ls_mt19937_randint(&rng, 0, 10, 1000, y), LS_OK);
    const double seen[] = { (double)x[0], (double)x[1], (double)x[31 * 64 + 63], (double)x[999 * 64 + 63] };
    for (int i = 0; i < 4; i++)
        assert_close(seen[i], golden_x[i], 1e-6, "x", i); /* float log and cos differ in the last bits */
    for (int i = 0; i < 10; i++) assert_int_equal(y[i], golden_y[i]);

    for (int step = 0; step < 10; step++) {
        ls_tape_reset(f.t);
        ls_params_zero_grad(ps);
        ls_tensor *in = ls_tape_input(f.t, LS_F32, 2, (int64_t[]){ 32, 64 }, x + step * 32 * 64);
        ls_tensor *labels = ls_tape_input(f.t, LS_I64, 1, (int64_t[]){ 32 }, y + step * 32);
        ls_tensor *loss = ls_softmax_cross_entropy(f.t, ls_model_forward(f.m, f.t, in), labels, NULL, NULL);
        assert_int_equal(ls_backward(f.t, loss), LS_OK);
        assert_close((double)*(float *)loss->data, golden_loss[step], 1e-5, "loss of step", step);
        for (int i = 0; i < 4; i++) {
            if (step == 0) assert_close(norm(&ps->item[i].grad), golden_norm[i], 1e-5, "norm of gradient", i);
            float *v = ps->item[i].t.data;
            const float *g = ps->item[i].grad.data;
            for (int64_t k = 0; k < ls_tensor_count(&ps->item[i].t); k++) v[k] -= 0.1f * g[k];
        }
    }
    drop(&f);
}

static void names_follow_nn_sequential(void **state)
{
    (void)state;
    static const char *const want[] = { "0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias" };
    const ls_model_config config = { .name = "mlp", .dims = (int64_t[]){ 784, 256, 128, 10 }, .ndims = 4 };
    ls_model *m;
    assert_int_equal(ls_model_create(&config, &m), LS_OK);
    assert_int_equal(m->params.n, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(m->params.item[i].name, want[i]);
    assert_int_equal(ls_params_count(&m->params), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
    ls_model_destroy(m);
}

static void tape_bytes_is_exactly_what_a_step_takes(void **state)
{
    (void)state;
    static const struct { int64_t dims[5]; int ndims; int64_t batch; const char *activation; } row[] = {
        { { 64, 128, 10 }, 3, 32, "relu" }, { { 7, 3 }, 2, 1, "relu" }, { { 5, 33, 17, 9, 4 }, 5, 13, "gelu" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ls_model_config config = {
            .name = "mlp", .dims = row[i].dims, .ndims = row[i].ndims, .activation = row[i].activation
        };
        fixture f = build(&config, row[i].batch, true);
        const int64_t in = row[i].dims[0];
        float *x = calloc((size_t)(row[i].batch * in), sizeof *x);
        int64_t *y = calloc((size_t)row[i].batch, sizeof *y);
        assert_true(x && y);
        for (int step = 0; step < 3; step++) {
            ls_tape_reset(f.t);
            ls_tensor *logits =
                ls_model_forward(f.m, f.t, ls_tape_input(f.t, LS_F32, 2, (int64_t[]){ row[i].batch, in }, x));
            ls_tensor *labels = ls_tape_input(f.t, LS_I64, 1, &row[i].batch, y);
            assert_int_equal(ls_backward(f.t, ls_softmax_cross_entropy(f.t, logits, labels, NULL, NULL)), LS_OK);
        }
        assert_int_equal(ls_tape_peak(f.t), ls_model_tape_bytes(f.m, row[i].batch));
        free(y);
        free(x);
        drop(&f);
    }
}

static void a_step_allocates_nothing_after_the_first(void **state)
{
    (void)state;
    if (!COUNTED) skip();
    static const struct { int64_t dims[3], batch; } row[] = {
        { { 64, 128, 10 }, 32 }, { { 300, 200, 10 }, 100 }, /* the second goes to the library */
    };
    for (size_t i = 0; i < 2; i++) {
        const ls_model_config config = { .name = "mlp", .dims = row[i].dims, .ndims = 3 };
        fixture f = build(&config, row[i].batch, true);
        float *x = calloc((size_t)(row[i].batch * row[i].dims[0]), sizeof *x);
        int64_t *y = calloc((size_t)row[i].batch, sizeof *y);
        int64_t before = 0;
        assert_true(x && y);
        for (int step = 0; step < 5; step++) {
            if (step == 1) before = allocations;
            ls_tape_reset(f.t);
            ls_params_zero_grad(&f.m->params);
            ls_tensor *in = ls_tape_input(f.t, LS_F32, 2, (int64_t[]){ row[i].batch, row[i].dims[0] }, x);
            ls_tensor *labels = ls_tape_input(f.t, LS_I64, 1, &row[i].batch, y);
            const ls_status st =
                ls_backward(f.t, ls_softmax_cross_entropy(f.t, ls_model_forward(f.m, f.t, in), labels, NULL, NULL));
            if (st != LS_OK) fail_msg("%s", ls_last_error());
        }
        assert_true(before > 0); /* they are counted */
        assert_int_equal(allocations - before, 0);
        free(y);
        free(x);
        drop(&f);
    }
}

static void evaluation_needs_no_gradients(void **state)
{
    (void)state;
    const ls_model_config config = { .name = "mlp", .dims = exercise, .ndims = 3, .init = LS_INIT_PHILOX, .seed = 3 };
    fixture f = build(&config, 2, false);
    float x[2 * 64] = { 1.0f };
    ls_tensor *logits = ls_model_forward(f.m, f.t, ls_tape_input(f.t, LS_F32, 2, (int64_t[]){ 2, 64 }, x));
    assert_int_equal(ls_tape_status(f.t), LS_OK);
    assert_int_equal(logits->dim[1], 10);
    assert_null(logits->node);
    drop(&f);
}

static void the_configs_mistake_is_named(void **state)
{
    (void)state;
    const struct { ls_model_config c; const char *says; } row[] = {
        { { .name = "gtp", .dims = exercise, .ndims = 3 }, "no model 'gtp'" },
        { { .name = NULL, .dims = exercise, .ndims = 3 }, "no model ''" },
        { { .name = "mlp", .dims = exercise, .ndims = 1 }, "at least 2" },
        { { .name = "mlp", .dims = (int64_t[]){ 4, 0, 3 }, .ndims = 3 }, "size 1 is 0" },
        { { .name = "mlp", .dims = exercise, .ndims = 3, .activation = "tanh" }, "'tanh'; expected relu or gelu" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_model *m = (ls_model *)(uintptr_t)1;
        assert_int_equal(ls_model_create(&row[i].c, &m), LS_BAD_CONFIG);
        assert_null(m);
        assert_non_null(strstr(ls_last_error(), row[i].says));
    }
    ls_model_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_sgd_steps_equal_pytorch),
        cmocka_unit_test(names_follow_nn_sequential),
        cmocka_unit_test(tape_bytes_is_exactly_what_a_step_takes),
        cmocka_unit_test(a_step_allocates_nothing_after_the_first),
        cmocka_unit_test(evaluation_needs_no_gradients),
        cmocka_unit_test(the_configs_mistake_is_named),
    };
    return cmocka_run_group_tests_name("mlp", tests, NULL, NULL);
}
