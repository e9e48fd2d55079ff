/* Sums: residual connections, and gradients that several tensors hold because of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_op.h"

/* --- add ---------------------------------------------------------------------------- */

static void add_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.w.d[i];
}

static void twice_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = 2.0 * p.x.d[i];
}

static ls_tensor *add(ls_tape *t, ls_tensor *x) { return ls_add(t, x, &p.w.t); }
static ls_tensor *add_to_itself(ls_tape *t, ls_tensor *x) { return ls_add(t, x, x); }

static void add_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    const part both[PARTS] = { { &p.x, 0.0, "da", ACTIVATION }, { &p.w, 0.0, "db", ACTIVATION } }, one[PARTS] = { { &p.x, 0.0, "da", ACTIVATION } };
    for (size_t k = 0; k < COUNT(flat_row); k++) {
        const int64_t n = flat_row[k];
        fill(&p.x, 2.0f, 1, n, 0, 0);
        fill(&p.w, 2.0f, 1, n, 0, 0);
        roll(n, add_formula);
        assert_op(add, 2.0 * ULP, both);
        assert_same_in_place(add, both);
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, twice_formula);
        assert_op(add_to_itself, 0.0, one);
        assert_same_in_place(add_to_itself, one);
    }
}

static void sums_name_what_is_wrong(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 3, 2, 5, 7), *w = fill(&p.w, 1.0f, 3, 2, 5, 6);
    assert_refused(t, ls_add(t, x, w), LS_SHAPE, "add: [2, 5, 7] and [2, 5, 6]: expected equal shapes");
    assert_refused(t, ls_swiglu(t, x, w), LS_SHAPE, "swiglu: gate [2, 5, 7] and up [2, 5, 6]: expected equal shapes");
    w = fill(&p.w, 1.0f, 2, 4, 7, 0);
    assert_refused(t, ls_add(t, x, w), LS_SHAPE, "add: [2, 5, 7] and [4, 7]");
    assert_refused(t, ls_add_rows(t, x, w), LS_SHAPE,
                   "add_rows: T = 5 of input [2, 5, 7] is more than P = 4 of rows [4, 7]");
    w->dim[1] = 6;
    assert_refused(t, ls_add_rows(t, x, w), LS_SHAPE, "[2, 5, 7] and rows [4, 6]: expected [.., T, C] and [P, C]");
    w = fill(&p.w, 1.0f, 3, 2, 5, 7);
    w->dtype = LS_F64;
    assert_refused(t, ls_add(t, x, w), LS_UNSUPPORTED, "add: second input is double; expected float or bfloat16");
    assert_refused(t, ls_swiglu(t, x, w), LS_UNSUPPORTED, "swiglu: up is double");
    w->dtype = LS_BF16;
    assert_refused(t, ls_add(t, x, w), LS_UNSUPPORTED, "add: inputs are float and bfloat16, expected the same");
    assert_refused(t, ls_swiglu(t, w, x), LS_UNSUPPORTED, "swiglu: inputs are bfloat16 and float, expected the same");
    w->dtype = LS_F64;
    assert_refused(t, ls_silu(t, w), LS_UNSUPPORTED, "silu: input is double");
    assert_refused(t, ls_dropout(t, w, 0.5f, 1, 1, 0), LS_UNSUPPORTED, "dropout: input is double");
    assert_refused(t, ls_add(t, x, NULL), LS_INVALID, "an input is NULL");
    ls_tape_destroy(t);
}

/* --- gradients that several tensors hold -------------------------------------------------------------- */

/* a + b whose backward copies, always. */
static ls_status copy_backward(ls_tape *t, struct ls_node *n)
{
    for (int i = 0; i < 2; i++) {
        bool more;
        void *out;
        if (!ls_grad_wanted(n->in[i])) continue;
        LS_TRY(ls_grad_begin(t, n->in[i], &more, &out));
        float *d = out;
        const float *dy = n->out->grad->data;
        for (int64_t k = 0; k < ls_tensor_count(n->in[i]); k++) d[k] = more ? d[k] + dy[k] : dy[k];
        LS_TRY(ls_grad_end(t, n->in[i]));
    }
    return LS_OK;
}

static const ls_tape_op copying = { .name = "copying", .napplied = 2, .backward_input = copy_backward };

static ls_tensor *add_copying(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    if (!ls_op_begin(t, "copying", a && b)) return NULL;
    ls_tensor *y = ls_op_output(t, LS_F32, a->ndim, a->dim);
    if (!y) return NULL;
    for (int64_t i = 0; i < ls_tensor_count(a); i++)
        ((float *)y->data)[i] = ((float *)a->data)[i] + ((float *)b->data)[i];
    return ls_op_end(t, y, &(struct ls_node){ .op = &copying, .in = { a, b } });
}

/* A random graph of 12 ops: of sums, elementwise ops that work in place, and one that does not. */
static ls_tensor *random_graph(ls_tape *t, uint32_t seed, ls_tensor *(*sum)(ls_tape *, ls_tensor *, ls_tensor *))
{
    ls_tensor *made[14] = { &p.x.t, &p.w.t };
    bool used[14] = { false };
    dice = seed;
    for (int i = 2; i < 14; i++) {
        int pick[3];
        for (int k = 0; k < 3; k++) {
            dice = dice * 1664525u + 1013904223u;
            pick[k] = (int)((dice >> 16) % (uint32_t)i);
        }
        if (pick[2] % 2 && i > 6) pick[0] = i - 1; /* deep ones too */
        ls_tensor *a = made[pick[0]], *b = made[pick[1]];
        const int kind = (int)(dice >> 24) % 6;
        if (kind < 3) made[i] = sum(t, a, b);
        else if (kind == 3) made[i] = ls_silu(t, a);
        else if (kind == 4) made[i] = ls_dropout(t, a, 0.25f, seed, (uint64_t)i, 0);
        else made[i] = ls_swiglu(t, a, b);
        used[pick[0]] = true;
        used[pick[1]] = used[pick[1]] || kind < 3 || kind == 5;
    }
    ls_tensor *y = made[13];
    for (int i = 0; i < 13; i++)
        if (!used[i]) y = sum(t, made[i], y);
    return y;
}

static void a_gradient_that_is_held_twice_gives_the_bits_of_copies(void **state)
{
    (void)state;
    static float want[2][40];
    enum { N = 40 };
    ls_tape *t = tape();
    for (uint32_t seed = 0; seed < 2000; seed++) {
        dice = seed;
        leaf *l[2] = { &p.x, &p.w };
        for (int i = 0; i < 2; i++) fill(l[i], 1.0f, 1, N, 0, 0);
        for (int i = 0; i < N; i++) p.r[i] = fraction(1.0f);
        ls_tape_reset(t);
        assert_int_equal(ls_backward_from(t, random_graph(t, seed, add_copying), p.r), LS_OK);
        for (int i = 0; i < 2; i++) memcpy(want[i], l[i]->slope, sizeof want[i]);
        for (int i = 0; i < 2; i++) clear(l[i]);
        ls_tape_reset(t);
        ls_tensor *y = random_graph(t, seed, ls_add);
        const int passes = 1 + (int)(seed % 2); /* backward leaves nothing behind: it may be played again */
        for (int k = 0; k < passes; k++) {
            for (int i = 0; i < 2; i++) clear(l[i]);
            assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
            for (int i = 0; i < 2; i++)
                if (memcmp(want[i], l[i]->slope, sizeof want[i]) != 0) fail_msg("graph %u, leaf %d", seed, i);
        }
    }
    ls_tape_destroy(t);
}

/* a = silu(x), s = a + silu(linear(a)), y = silu(s): what backward takes of the slab is the header of
 * dy, ds, and the gradient of linear's output; da is ds, and linear adds to it. */
static void a_residual_takes_no_memory_and_no_copy(void **state)
{
    (void)state;
    const int64_t n = 16;
    ls_tensor *x = fill(&p.x, 1.0f, 2, 9, n, 0), *w = fill(&p.w, 1.0f, 2, n, n, 0);
    ls_tape *t = tape();
    ls_tensor *a = ls_silu(t, x), *branch = ls_silu(t, ls_linear(t, a, w, NULL)), *y = ls_silu(t, ls_add(t, a, branch));
    assert_non_null(y);
    const size_t forward = ls_tape_peak(t), header = (sizeof *y + 63) / 64 * 64, data = ls_tensor_nbytes(y);
    assert_int_equal(data % 64, 0);
    for (int i = 0; i < 9 * 16; i++) p.r[i] = 1.0f;
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - forward, header + 2 * (header + data));
    ls_tape_destroy(t);

    /* Here c adds to a while b still needs the gradient: a gets a copy, and then b's is its own again
     * and turned in place. */
    t = tape();
    ls_tensor *b = ls_silu(t, ls_silu(t, w));
    a = ls_silu(t, w);
    ls_tensor *c = ls_silu(t, a), *s = ls_add(t, a, b);
    y = ls_silu(t, ls_add(t, s, c));
    assert_non_null(y);
    const size_t before = ls_tape_peak(t), bytes = ls_tensor_nbytes(y);
    clear(&p.w);
    for (int i = 0; i < 16 * 16; i++) p.r[i] = 1.0f;
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - before, header + 2 * (header + bytes));
    ls_tape_destroy(t);

    t = tape(); /* the same, c before the sum: nothing to copy, but c cannot turn what others hold */
    b = ls_silu(t, ls_silu(t, w));
    a = ls_silu(t, w);
    s = ls_add(t, a, b);
    c = ls_silu(t, a);
    y = ls_silu(t, ls_add(t, s, c));
    clear(&p.w);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - before, header + 2 * (header + bytes));
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_equals_its_formula_and_its_slopes),
        cmocka_unit_test(sums_name_what_is_wrong),
        cmocka_unit_test(a_gradient_that_is_held_twice_gives_the_bits_of_copies),
        cmocka_unit_test(a_residual_takes_no_memory_and_no_copy),
    };
    return cmocka_run_group_tests_name("op_add", tests, NULL, NULL);
}
