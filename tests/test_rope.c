/* Rotary positions against their formula, and their gradients against its slopes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_attention.h"

/* y[i] of one head at a position, by the formula. */
static double rope_of(const double *x, int64_t D, int64_t i, double theta, int64_t position)
{
    const double a = pow(theta, -2.0 * (double)(i % (D / 2)) / (double)D) * (double)position;
    return i < D / 2 ? x[i] * cos(a) - x[i + D / 2] * sin(a) : x[i] * cos(a) + x[i - D / 2] * sin(a);
}

/* Two products of at most 1, rounded, with a sine and a cosine rounded to float: 6 u. The rotation is linear, so a
 * difference of any width is its slope. */
static void rope_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, H, D, first; double theta; } row[] = {
        { 1, 1, 1, 2, 0, 1e4 },   { 2, 5, 3, 8, 0, 1e4 },      { 1, 130, 1, 6, 7, 1e4 },  { 1, 70, 2, 64, 100000, 5e5 },
        { 1, 3, 1, 160, 5, 1e4 }, { 1, 66, 1, 80, 2047, 1e4 }, { 2, 3, 2, 128, 131071, 5e5 },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        const int64_t H = row[k].H, D = row[k].D;
        problem p = make(row[k].B, row[k].T, row[k].T, H, H, D, true);
        as_tensors(&p);
        ls_tape_reset(t);
        ls_tensor *y = ls_rope(t, &p.t[Q], row[k].theta, row[k].first);
        assert_non_null(y);
        for (int pass = 1; pass <= 2; pass++) { /* the second adds */
            assert_int_equal(ls_backward_from(t, y, p.x[R]), LS_OK);
            for (int64_t j = 0; j < p.n[Q]; j++) {
                const int64_t i = j % D, low = i % (D / 2), head = j - i, at = row[k].first + j / (H * D) % row[k].T;
                const double want = rope_of(p.d[Q] + head, D, i, row[k].theta, at);
                assert_near((double)((float *)y->data)[j], want, 6.0 * U, &p, "y", j);
                double slope = 0.0;
                for (int64_t o = low; o < D; o += D / 2) {
                    const double was = p.d[Q][j];
                    p.d[Q][j] = was + 0.5;
                    const double up = rope_of(p.d[Q] + head, D, o, row[k].theta, at);
                    p.d[Q][j] = was - 0.5;
                    slope += p.d[R][head + o] * (up - rope_of(p.d[Q] + head, D, o, row[k].theta, at));
                    p.d[Q][j] = was;
                }
                assert_near((double)p.grad[Q][j], pass * slope, pass * 6.0 * U + 1e-12, &p, "dx", j);
            }
        }
        drop(&p);
    }
    ls_tape_destroy(t);
}

/* In the slab the gradient is turned where it lies. */
static void rope_of_rope_turns_twice(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 9, 9, 2, 2, 12, true);
    as_tensors(&p);
    ls_tensor *y = ls_rope(t, ls_rope(t, ls_rope(t, &p.t[Q], 100.0, 4), 100.0, 4), 100.0, 4);
    assert_int_equal(ls_backward_from(t, y, p.x[R]), LS_OK);
    for (int64_t j = 0; j < p.n[Q]; j++) {
        const int64_t i = j % 12, at = 3 * (4 + j / 24);
        assert_near((double)((float *)y->data)[j], rope_of(p.d[Q] + j - i, 12, i, 100.0, at), 18.0 * U, &p, "y", j);
        assert_near((double)p.grad[Q][j], rope_of(p.d[R] + j - i, 12, i, 100.0, -at), 18.0 * U, &p, "dx", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

/* A token's rotation is the same bits, whichever chunk of the sequence it comes in, where chunks begin at multiples
 * of 64; else it may differ by a rounding. */
static void rope_goes_on_from_any_position(void **state)
{
    (void)state;
    enum { T = 200, D = 32 };
    problem p = make(1, T, T, 1, 1, D, true);
    float *whole = room(sizeof(float) * T * D), *part = room(sizeof(float) * T * D);
    ls_rope_turn(&(ls_rope_call){ .B = 1, .T = T, .H = 1, .D = D, .theta = 1e4, .x = p.x[Q], .y = whole });
    for (int64_t t = 0; t < T; t++)
        ls_rope_turn(&(ls_rope_call){ .B = 1, .T = 1, .H = 1, .D = D, .theta = 1e4, .first_position = t,
                                      .x = p.x[Q] + t * D, .y = part + t * D });
    for (int64_t j = 0; j < T * D; j++) assert_near((double)part[j], (double)whole[j], 2.0 * U, &p, "y", j);
    for (int64_t t = 0; t < T; t += 64) assert_memory_equal(part + t * D, whole + t * D, D * sizeof(float));
    ls_rope_turn(&(ls_rope_call){ .B = 1, .T = T - 128, .H = 1, .D = D, .theta = 1e4, .first_position = 128,
                                  .x = p.x[Q] + 128 * D, .y = part + 128 * D });
    assert_memory_equal(part + 128 * D, whole + 128 * D, (T - 128) * D * sizeof(float));
    free(part);
    free(whole);
    drop(&p);
}

static void rope_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct { int ndim; int64_t D; double theta; int64_t first; ls_status st; const char *says; } row[] = {
        { 4, 7, 1e4, 0, LS_SHAPE, "rope: input [1, 2, 3, 7]: expected [B, T, H, D] with an even D" },
        { 3, 8, 1e4, 0, LS_SHAPE, "rope: input [1, 2, 3]" },
        { 4, 8, 0.0, 0, LS_INVALID, "theta 0, first position 0" },
        { 4, 8, 1e4, -1, LS_INVALID, "first position -1" },
        { 4, 8, NAN, 0, LS_INVALID, "theta nan" },
    };
    ls_tape *t = tape(1 << 16);
    float data[64] = { 0 };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        ls_tensor x = { .dtype = LS_F32, .ndim = row[k].ndim, .dim = { 1, 2, 3, row[k].D }, .data = data };
        ls_tape_reset(t);
        assert_null(ls_rope(t, &x, row[k].theta, row[k].first));
        assert_int_equal(ls_tape_status(t), row[k].st);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[k].says);
    }
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_equals_its_formula_and_its_slopes),
        cmocka_unit_test(rope_of_rope_turns_twice),
        cmocka_unit_test(rope_goes_on_from_any_position),
        cmocka_unit_test(rope_names_what_is_wrong),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
