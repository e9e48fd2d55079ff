/* The short ops of a GPT or a Llama together: a block of all of them, on a real tape or a dry one, of no rows,
 * and against PyTorch's numbers. One by one: test_op_*.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "golden/ops.h"
#include "harness_op.h"
#include "lockstep/rng.h"

#define SEED 0x123456789abcull

static double silu_of(double x) { return x / (1.0 + exp(-x)); }

/* --- all of them ------------------------------------------------------------------------------------------- */

enum { B = 2, T = 3, C = 4, V = 5, P = 6, H = 7 };

static struct {
    leaf wte, wpe, w1, b1, proj, w2, gate, up, down;
    ls_tensor ids;
    int64_t id[B * T];
    float r[B * T * C];
} m;

static leaf *const block_leaf[] = {
    &m.wte, &m.wpe, &m.w1, &m.b1, &m.proj, &m.w2, &m.gate, &m.up, &m.down,
};

#define EPS 0.5f
#define DROP 0.25f

static void make_block(void)
{
    dice = 42;
    fill(&m.wte, 1.0f, 2, V, C, 0);
    fill(&m.wpe, 1.0f, 2, P, C, 0);
    fill(&m.w1, 1.0f, 1, C, 0, 0);
    fill(&m.b1, 1.0f, 1, C, 0, 0);
    fill(&m.proj, 1.0f, 2, C, C, 0);
    fill(&m.w2, 1.0f, 1, C, 0, 0);
    fill(&m.gate, 1.0f, 2, H, C, 0);
    fill(&m.up, 1.0f, 2, H, C, 0);
    fill(&m.down, 1.0f, 2, C, H, 0);
    m.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { B, T }, .data = m.id };
    for (int i = 0; i < B * T; i++) m.id[i] = i * 3 % V;
    for (int i = 0; i < B * T * C; i++) m.r[i] = fraction(1.0f);
}

/* Every op once, in the order of a transformer with a linear layer where attention would be. */
static ls_tensor *block(ls_tape *t)
{
    ls_tensor *h = ls_add_rows(t, ls_embedding(t, &m.ids, &m.wte.t), &m.wpe.t);
    h = ls_dropout(t, h, DROP, SEED, 1, 0);
    ls_tensor *branch = ls_linear(t, ls_layernorm(t, h, &m.w1.t, &m.b1.t, EPS), &m.proj.t, NULL);
    h = ls_add(t, h, ls_dropout(t, branch, DROP, SEED, 2, 0));
    branch = ls_rmsnorm(t, h, &m.w2.t, EPS);
    branch = ls_swiglu(t, ls_linear(t, branch, &m.gate.t, NULL), ls_linear(t, branch, &m.up.t, NULL));
    return ls_silu(t, ls_add(t, h, ls_linear(t, branch, &m.down.t, NULL)));
}

static double keep(uint64_t stream, int i)
{
    float u;
    ls_philox_uniform(SEED, stream, (uint64_t)i, 1, 0.0f, 1.0f, &u);
    return u < DROP ? 0.0 : 1.0 / (1.0 - (double)DROP);
}

static double block_loss(const void *unused)
{
    (void)unused;
    double loss = 0.0;
    for (int n = 0; n < B * T; n++) {
        double h[C], x[C], mid[H], mean = 0.0, squares = 0.0;
        for (int c = 0; c < C; c++) h[c] = keep(1, n * C + c) * (m.wte.d[m.id[n] * C + c] + m.wpe.d[n % T * C + c]);
        for (int c = 0; c < C; c++) mean += h[c] / C;
        for (int c = 0; c < C; c++) squares += (h[c] - mean) * (h[c] - mean) / C;
        for (int c = 0; c < C; c++) x[c] = (h[c] - mean) / sqrt(squares + (double)EPS) * m.w1.d[c] + m.b1.d[c];
        for (int c = 0; c < C; c++) {
            double y = 0.0;
            for (int i = 0; i < C; i++) y += x[i] * m.proj.d[c * C + i];
            h[c] += keep(2, n * C + c) * y;
        }
        squares = 0.0;
        for (int c = 0; c < C; c++) squares += h[c] * h[c] / C;
        for (int c = 0; c < C; c++) x[c] = h[c] / sqrt(squares + (double)EPS) * m.w2.d[c];
        for (int k = 0; k < H; k++) {
            double g = 0.0, u = 0.0;
            for (int c = 0; c < C; c++) {
                g += x[c] * m.gate.d[k * C + c];
                u += x[c] * m.up.d[k * C + c];
            }
            mid[k] = silu_of(g) * u;
        }
        for (int c = 0; c < C; c++) {
            for (int k = 0; k < H; k++) h[c] += mid[k] * m.down.d[c * H + k];
            loss += (double)m.r[n * C + c] * silu_of(h[c]);
        }
    }
    return loss;
}

/* Numbers stay below 16 and each has less than 100 roundings behind it. */
static void a_block_of_all_ops_has_the_slopes_of_its_formula(void **state)
{
    (void)state;
    make_block();
    ls_tape *t = tape();
    for (int pass = 0; pass < 2; pass++) { /* with the embedding's gradients there already, or not */
        ls_tape_reset(t);
        for (size_t i = 0; i < COUNT(block_leaf); i++) clear(block_leaf[i]);
        assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
        for (size_t i = 0; i < COUNT(block_leaf); i++)
            assert_slopes(block_leaf[i], block_leaf[i]->d, block_loss, NULL, 1600.0 * ULP, "leaf");
    }
    ls_tape_destroy(t);
}

static void a_dry_tape_counts_the_same_bytes_and_flops(void **state)
{
    (void)state;
    make_block();
    ls_tape *t = tape(), *dry;
    assert_int_equal(ls_tape_create_dry(&dry), LS_OK);
    for (size_t i = 0; i < COUNT(block_leaf); i++) assert_true(isnan(block_leaf[i]->slope[0]));
    assert_int_equal(ls_backward_from(dry, block(dry), m.r), LS_OK);
    for (size_t i = 0; i < COUNT(block_leaf); i++) {
        assert_true(isnan(block_leaf[i]->slope[0])); /* it touches nothing */
        clear(block_leaf[i]);
    }
    assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
    assert_true(ls_tape_peak(dry) == ls_tape_peak(t) && ls_tape_peak(t) > 0);
    assert_true(ls_tape_flops(dry) == ls_tape_flops(t));
    const double N = B * T, linear = 6.0 * N * (C * C + 3 * H * C);
    assert_true(ls_tape_flops(t) == linear + N * C * (1 + 2 + 27 + 17 + 36 + 2 * 2 + 2 * 1) + N * H * 40);
    ls_tape_destroy(dry);
    ls_tape_destroy(t);
}

static void two_runs_have_the_same_bits(void **state)
{
    (void)state;
    static float first[COUNT(block_leaf)][MOST];
    make_block();
    for (int run = 0; run < 2; run++) {
        ls_tape *t = tape();
        for (size_t i = 0; i < COUNT(block_leaf); i++) clear(block_leaf[i]);
        assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
        for (size_t i = 0; i < COUNT(block_leaf); i++) {
            const size_t n = ls_tensor_nbytes(&block_leaf[i]->t);
            if (run == 0) memcpy(first[i], block_leaf[i]->slope, n);
            else assert_memory_equal(first[i], block_leaf[i]->slope, n);
        }
        ls_tape_destroy(t);
    }
}

/* No rows: nothing to compute, and a parameter's gradient is 0, not garbage. */
static void an_empty_batch_gives_gradients_of_zero(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 3, 0, 3, 5), *w = fill(&p.w, 1.0f, 1, 5, 0, 0), *b = fill(&p.b, 1.0f, 1, 5, 0, 0);
    ls_tensor *y = ls_layernorm(t, ls_dropout(t, ls_silu(t, ls_add(t, x, x)), 0.5f, 1, 1, 0), w, b, 1e-5f);
    assert_non_null(y);
    assert_int_equal(ls_backward_from(t, ls_swiglu(t, y, y), p.r), LS_OK);
    for (int c = 0; c < 5; c++) assert_true(p.w.slope[c] == 0.0f && p.b.slope[c] == 0.0f);
    ls_tape_reset(t);
    clear(&p.w);
    assert_int_equal(ls_backward_from(t, ls_rmsnorm(t, x, w, 1e-5f), p.r), LS_OK);
    for (int c = 0; c < 5; c++) assert_true(p.w.slope[c] == 0.0f);
    w = fill(&p.w, 1.0f, 2, 4, 5, 0);
    ls_tape_reset(t);
    assert_int_equal(ls_backward_from(t, ls_add_rows(t, x, w), p.r), LS_OK);
    for (int c = 0; c < 20; c++) assert_true(p.w.slope[c] == 0.0f);
    ls_tape_reset(t);
    clear(&p.w);
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { 0, 3 }, .data = p.id };
    y = ls_embedding(t, &p.ids, w);
    assert_int_equal(y->dim[0], 0);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    for (int c = 0; c < 20; c++) assert_true(p.w.slope[c] == 0.0f);
    ls_tape_destroy(t);
}

/* --- against PyTorch ---------------------------------------------------------------------------------------- */

static ls_tensor *golden(leaf *l, int ndim, int64_t rows, int64_t cols, const float *value)
{
    ls_tensor *x = ndim == 1 ? fill(l, 1.0f, 1, cols, 0, 0) : fill(l, 1.0f, 2, rows, cols, 0);
    memcpy(l->value, value, (size_t)ls_tensor_count(x) * sizeof *value);
    return x;
}

/* Both round about 30 times on the way to numbers of that size. */
static void assert_golden(const float *got, const float *want, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        assert_near((double)got[i], (double)want[i], 60.0 * ULP * fmax(4.0, fabs((double)want[i])), what, i);
}

static void gradients_are_pytorch_s(void **state)
{
    (void)state;
    enum { N = GOLDEN_N, K = GOLDEN_C };
    ls_tape *t = tape();
    memcpy(p.r, golden_dy, sizeof golden_dy);
    ls_tensor *w = golden(&p.w, 1, 1, K, golden_w), *b = golden(&p.b, 1, 1, K, golden_b);
    ls_tensor *x = golden(&p.x, 2, N, K, golden_x), *y = ls_layernorm(t, x, w, b, 1e-5f);
    assert_golden(y->data, golden_layernorm_y, N * K, "layernorm y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_layernorm_dx, N * K, "layernorm dx");
    assert_golden(p.w.slope, golden_layernorm_dw, K, "layernorm dw");
    assert_golden(p.b.slope, golden_layernorm_db, K, "layernorm db");

    ls_tape_reset(t);
    clear(&p.x);
    clear(&p.w);
    y = ls_rmsnorm(t, x, w, 1e-5f);
    assert_golden(y->data, golden_rmsnorm_y, N * K, "rmsnorm y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_rmsnorm_dx, N * K, "rmsnorm dx");
    assert_golden(p.w.slope, golden_rmsnorm_dw, K, "rmsnorm dw");

    static const struct {
        ls_tensor *(*op)(ls_tape *, ls_tensor *);
        const float *y, *dx;
        const char *name;
    } row[] = {
        { ls_gelu, golden_gelu_y, golden_gelu_dx, "gelu" }, { ls_silu, golden_silu_y, golden_silu_dx, "silu" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_tape_reset(t);
        clear(&p.x);
        y = row[k].op(t, x);
        assert_golden(y->data, row[k].y, N * K, row[k].name);
        assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
        assert_golden(p.x.slope, row[k].dx, N * K, row[k].name);
    }

    ls_tape_reset(t);
    clear(&p.x);
    y = ls_swiglu(t, x, golden(&p.b, 2, N, K, golden_up));
    assert_golden(y->data, golden_swiglu_y, N * K, "swiglu y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_swiglu_dx, N * K, "swiglu dgate");
    assert_golden(p.b.slope, golden_swiglu_dup, N * K, "swiglu dup");

    ls_tape_reset(t);
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = p.id };
    memcpy(p.id, golden_ids, sizeof golden_ids);
    y = ls_embedding(t, &p.ids, golden(&p.w, 2, GOLDEN_V, K, golden_table));
    assert_memory_equal(y->data, golden_embedding_y, sizeof golden_embedding_y);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.w.slope, golden_embedding_dtable, GOLDEN_V * K, "embedding dw");
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_all_ops_has_the_slopes_of_its_formula),
        cmocka_unit_test(a_dry_tape_counts_the_same_bytes_and_flops),
        cmocka_unit_test(two_runs_have_the_same_bits),
        cmocka_unit_test(an_empty_batch_gives_gradients_of_zero),
        cmocka_unit_test(gradients_are_pytorch_s),
    };
    return cmocka_run_group_tests_name("ops_gpt", tests, NULL, NULL);
}
