/* linear_cross_entropy: the memory that logits take, of which only a part is there at a time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_head.h"

/* Bytes that a head over N rows takes of the slab, on a dry tape: x is a leaf, so dx is not among them. */
static size_t peak(int64_t N, int64_t C, int64_t V, bool gradient)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    ls_tensor grad = { .dtype = LS_F32, .ndim = 2, .dim = { V, C } }, w = grad;
    w.grad = &grad;
    ls_tape_set_grad(t, gradient);
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (const int64_t[]){ N, C }, NULL);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &N, NULL);
    ls_tensor *loss = ls_linear_cross_entropy(t, x, &w, y, 1.0, NULL, NULL);
    if (!loss) fail_msg("%s", ls_last_error());
    if (gradient && ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
    const size_t n = ls_tape_peak(t);
    ls_tape_destroy(t);
    return n;
}

static void takes_memory_for_a_part_of_the_logits_only(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    /* GPT-2's vocabulary: 64 MiB and a little, where the logits of 64 Ki rows are 13 GB; 4 MiB without gradients */
    const size_t one = peak(1024, 768, 50257, true), many = peak(65536, 768, 50257, true);
    assert_true(one < 65 * MIB && many < 65 * MIB);
    assert_true(peak(1024, 768, 50257, false) < 5 * MIB && peak(65536, 768, 50257, false) < 5 * MIB);
    /* a larger vocabulary: fewer rows at a time, 16 at least */
    assert_true(peak(65536, 64, 1 << 20, true) < 65 * MIB);
    assert_true(peak(65536, 64, 1 << 21, true) < 129 * MIB);
    /* and no more than the logits where these are small */
    assert_true(peak(64, 384, 256, true) < 64 * 256 * 4 + 64 * 32 + 4096);
}

/* Rows in several parts: the budget is met with a vocabulary of 2^20 and 16 rows at a time. */
static void cuts_rows_when_the_vocabulary_is_large(void **state)
{
    (void)state;
    head h = make(40, 2, 1 << 20, 13);
    ls_tape *t = tape((size_t)80 << 20);
    double sum, got[2];
    h.label[20] = LS_IGNORE_INDEX;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
    assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
    double total[2] = { 0 }, want[2] = { 0 };
    for (int64_t v = 0; v < h.V; v++) /* rows of dl sum to nothing: so do the columns of dw */
        for (int64_t c = 0; c < h.C; c++) total[c] += (double)h.dw[v * h.C + c];
    for (int64_t c = 0; c < h.C; c++) assert_near(total[c], 0.0, 1e-3, "sum of dw", c);
    for (int k = 0; k < 2; k++) { /* the first and last label's rows of dw, by finite differences */
        const int64_t at = h.label[k ? 39 : 0] * h.C;
        const double step = 1e-4, w = h.wd[at];
        h.wd[at] = w + step;
        got[0] = formula(&h, 0, h.N);
        h.wd[at] = w - step;
        got[1] = formula(&h, 0, h.N);
        h.wd[at] = w;
        want[k] = (got[0] - got[1]) / (2.0 * step);
        assert_near((double)h.dw[at], want[k], 1e-5, "dw", at);
    }
    ls_tape_destroy(t);
    drop(&h);
}

static void says_when_the_slab_is_too_small(void **state)
{
    (void)state;
    head h = make(64, 3, 1000, 1);
    ls_tape *t = tape(64 << 10); /* the logits of 64 rows take 256 KiB */
    for (int gradient = 0; gradient < 2; gradient++) {
        ls_tensor x;
        leaf_w(&h);
        leaf_x(&h, 0, h.N, &x);
        ls_tape_reset(t);
        ls_tape_set_grad(t, gradient);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        ls_tensor *loss = ls_linear_cross_entropy(t, &x, &h.w, y, 1.0, NULL, NULL);
        if (gradient) assert_int_equal(ls_backward(t, loss), LS_NO_MEMORY);
        else assert_null(loss);
        assert_int_equal(ls_tape_status(t), LS_NO_MEMORY);
        assert_true(!x.grad_ready && !h.w.grad_ready);
    }
    ls_tape_destroy(t);
    drop(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_memory_for_a_part_of_the_logits_only),
        cmocka_unit_test(cuts_rows_when_the_vocabulary_is_large),
        cmocka_unit_test(says_when_the_slab_is_too_small),
    };
    return cmocka_run_group_tests_name("linear_cross_entropy_memory", tests, NULL, NULL);
}
