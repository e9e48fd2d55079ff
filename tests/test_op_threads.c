/* No op's result depends on the number of threads: in float and in bf16, forward, backward, writing a gradient or
 * adding to it, 1, 2, 3 and 5 threads give the same bits. The tensors are large enough for threads to pay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "lockstep/rng.h"
#include "lockstep/tensor.h"
#include "tensor/threads.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { B = 6, T = 100, H = 5, D = 60, C = H * D, N = B * T, V = 1000 };
enum { X, Z, TABLE, GAIN, BIAS, LEAVES };

/* x and z are activations [B, T, C], or [B, T, H, D]; the table [V, C], gain and bias [C] parameters. */
static struct {
    ls_tensor leaf[LEAVES], grad[LEAVES], ids;
    int64_t id[N];
    void *dy;
} m;

static int64_t count_of(int k) { return k <= Z ? (int64_t)N * C : k == TABLE ? (int64_t)V * C : C; }

static void make(ls_dtype dtype, int ndim)
{
    for (int k = 0; k <= LEAVES; k++) { /* the last one is dy */
        const int64_t n = k == LEAVES ? (int64_t)N * C : count_of(k);
        const ls_dtype own = k <= Z || k == LEAVES ? dtype : LS_F32;
        float *to = malloc((size_t)n * sizeof *to);
        uint16_t *narrow = malloc((size_t)n * sizeof *narrow);
        assert_true(to && narrow);
        ls_philox_uniform(7, (uint64_t)k, 0, (size_t)n, -2.0f, 2.0f, to);
        for (int64_t i = 0; i < n; i++) narrow[i] = ls_f32_to_bf16(to[i]);
        if (k == LEAVES) {
            m.dy = own == LS_BF16 ? (void *)narrow : to;
            free(own == LS_BF16 ? (void *)to : narrow);
            continue;
        }
        ls_tensor *x = &m.leaf[k];
        *x = (ls_tensor){ .dtype = own, .ndim = 2, .dim = { V, C } };
        if (k <= Z && ndim == 3) *x = (ls_tensor){ .dtype = own, .ndim = 3, .dim = { B, T, C } };
        if (k <= Z && ndim == 4) *x = (ls_tensor){ .dtype = own, .ndim = 4, .dim = { B, T, H, D } };
        if (k >= GAIN) *x = (ls_tensor){ .dtype = own, .ndim = 1, .dim = { C } };
        m.grad[k] = *x;
        x->data = own == LS_BF16 ? (void *)narrow : to;
        if (k == TABLE) x->bf16 = narrow;
        else free(own == LS_BF16 ? (void *)to : narrow);
        m.grad[k].data = malloc(ls_tensor_nbytes(x));
        assert_non_null(m.grad[k].data);
        x->grad = &m.grad[k];
    }
    m.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { B, T }, .data = m.id };
    for (int64_t i = 0; i < N; i++) m.id[i] = i * i * 7 % V;
}

static void drop(void)
{
    for (int k = 0; k < LEAVES; k++) {
        const void *copy = m.leaf[k].bf16;
        free(m.leaf[k].data);
        free(m.grad[k].data);
        if (copy) {
            void *mine;
            memcpy(&mine, &copy, sizeof mine);
            free(mine);
        }
    }
    free(m.dy);
}

static ls_tensor *add(ls_tape *t) { return ls_add(t, &m.leaf[X], &m.leaf[Z]); }
static ls_tensor *add_rows(ls_tape *t) { return ls_add_rows(t, &m.leaf[X], &m.leaf[TABLE]); }
static ls_tensor *embedding(ls_tape *t) { return ls_embedding(t, &m.ids, &m.leaf[TABLE]); }
static ls_tensor *relu(ls_tape *t) { return ls_relu(t, &m.leaf[X]); }
static ls_tensor *gelu(ls_tape *t) { return ls_gelu(t, &m.leaf[X]); }
static ls_tensor *silu(ls_tape *t) { return ls_silu(t, &m.leaf[X]); }
static ls_tensor *swiglu(ls_tape *t) { return ls_swiglu(t, &m.leaf[X], &m.leaf[Z]); }
static ls_tensor *dropout(ls_tape *t) { return ls_dropout(t, &m.leaf[X], 0.3f, 1, 2, 3); }
static ls_tensor *rope(ls_tape *t) { return ls_rope(t, &m.leaf[X], 1e4, 5); }
static ls_tensor *rmsnorm(ls_tape *t) { return ls_rmsnorm(t, &m.leaf[X], &m.leaf[GAIN], 1e-5f); }
static ls_tensor *reshape(ls_tape *t) { return ls_reshape(t, &m.leaf[X], 2, (int64_t[]){ N, C }); }
static ls_tensor *layernorm(ls_tape *t)
{
    return ls_layernorm(t, &m.leaf[X], &m.leaf[GAIN], &m.leaf[BIAS], 1e-5f);
}

static const struct {
    const char *name;
    ls_tensor *(*op)(ls_tape *t);
    int ndim;
} row[] = {
    { "add", add, 3 },           { "add_rows", add_rows, 3 }, { "embedding", embedding, 3 }, { "relu", relu, 3 },
    { "gelu", gelu, 3 },         { "silu", silu, 3 },         { "swiglu", swiglu, 3 },       { "dropout", dropout, 3 },
    { "layernorm", layernorm, 3 }, { "rmsnorm", rmsnorm, 3 }, { "rope", rope, 4 },           { "reshape", reshape, 3 },
};

/* y and all gradients, after a backward that writes and after one that adds. */
static void keep(ls_tape *t, size_t k, char *out, size_t room)
{
    char *at = out;
    for (int i = 0; i < LEAVES; i++) {
        m.leaf[i].grad_ready = false;
        memset(m.grad[i].data, 0, ls_tensor_nbytes(&m.grad[i])); /* of what the op does not have */
    }
    for (int pass = 0; pass < 2; pass++) {
        ls_tape_reset(t);
        ls_tensor *y = row[k].op(t);
        if (!y) fail_msg("%s: %s", row[k].name, ls_last_error());
        memcpy(at, y->data, ls_tensor_nbytes(y));
        at += ls_tensor_nbytes(y);
        assert_int_equal(ls_backward_from(t, y, m.dy), LS_OK);
        for (int i = 0; i < LEAVES; i++) {
            memcpy(at, m.grad[i].data, ls_tensor_nbytes(&m.grad[i]));
            at += ls_tensor_nbytes(&m.grad[i]);
        }
    }
    assert_true((size_t)(at - out) <= room);
}

static void ops_give_the_same_bits_with_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = { 2, 3, 5 };
    const size_t room = 2 * sizeof(float) * ((size_t)3 * N * C + (size_t)V * C + 2 * C);
    char *one = malloc(room), *more = malloc(room);
    const int before = ls_team_size();
    ls_tape *t;
    assert_true(one && more);
    assert_int_equal(ls_tape_create((size_t)16 << 20, NULL, NULL, &t), LS_OK);
    for (int narrow = 0; narrow < 2; narrow++)
        for (size_t k = 0; k < COUNT(row); k++) {
            const ls_dtype dtype = narrow ? LS_BF16 : LS_F32;
            make(dtype, row[k].ndim);
            assert_true(ls_threads_pay((int64_t)ls_tensor_nbytes(&m.leaf[X])));
            assert_int_equal(ls_tape_set_dtype(t, dtype), LS_OK);
            memset(one, 0, room);
            ls_team_resize(1);
            keep(t, k, one, room);
            for (size_t n = 0; n < COUNT(threads); n++) {
                memset(more, 0, room);
                ls_team_resize(threads[n]);
                keep(t, k, more, room);
                if (memcmp(one, more, room) != 0)
                    fail_msg("%s in %s: %d threads give other bits", row[k].name, ls_dtype_name(dtype), threads[n]);
            }
            drop();
        }
    ls_team_resize(before);
    ls_tape_destroy(t);
    free(one);
    free(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_give_the_same_bits_with_any_number_of_threads),
    };
    return cmocka_run_group_tests_name("op_threads", tests, NULL, NULL);
}
