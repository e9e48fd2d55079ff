/* harness_op.h -- one op with all that may go wrong about it, in float and in bf16, for tests of ops.
 *
 * Forward against plain loops in double, backward against central differences (harness_slopes.h);
 * writing a gradient or adding to it; in place or not, with a gradient of its own or a shared one.
 */
#ifndef LS_TEST_HARNESS_OP_H
#define LS_TEST_HARNESS_OP_H
#include <string.h>

#include "harness_slopes.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ULP 0x1p-24 /* one rounding of a number of size 1 */

typedef ls_tensor *(*apply)(ls_tape *t, ls_tensor *x);

/* One op, applied to x with w and b. */
static struct {
    leaf x, w, b;
    ls_tensor ids;
    int64_t id[MOST];
    int64_t N, C, P;  /* rows; elements of a row; rows of w */
    double eps;
    float r[MOST];    /* gradient of y */
    uint16_t r16[MOST];
    double y[MOST];
    int64_t count;    /* of y */
    void (*formula)(void);
} p;

static inline double weighted_y(const void *unused)
{
    (void)unused;
    p.formula();
    double sum = 0.0;
    for (int64_t i = 0; i < p.count; i++) sum += (double)p.r[i] * p.y[i];
    return sum;
}

static inline void roll(int64_t count, void (*of_all)(void))
{
    p.count = count;
    p.formula = of_all;
    for (int64_t i = 0; i < count; i++) p.r[i] = fraction(1.0f);
}

/* A leaf of the op; its slopes may be off by `tolerance` in float (0: there is none). A parameter is float
 * whatever the activations are; a table of rows has a copy in bf16 then, and that is what is read. */
typedef struct part {
    leaf *l;
    double tolerance;
    const char *name;
    enum { ACTIVATION, PARAMETER, TABLE } kind;
} part;

#define PARTS 3

static inline void to_dtype(ls_dtype dtype, const part parts[PARTS])
{
    for (int i = 0; i < PARTS && parts[i].l; i++) {
        leaf *l = parts[i].l;
        clear(l);
        leaf_to(l, parts[i].kind == PARAMETER ? LS_F32 : dtype);
        if (parts[i].kind != TABLE) continue;
        l->t.dtype = l->grad.dtype = LS_F32;
        l->t.data = l->value;
        l->grad.data = l->slope;
        l->t.bf16 = dtype == LS_BF16 ? l->value16 : NULL;
    }
    for (int64_t i = 0; i < p.count && dtype == LS_BF16; i++) {
        p.r16[i] = ls_f32_to_bf16(p.r[i]);
        p.r[i] = ls_bf16_to_f32(p.r16[i]);
    }
}

static inline const void *gradient(ls_dtype dtype) { return dtype == LS_BF16 ? (const void *)p.r16 : p.r; }

static inline void run(ls_tape *t, apply op, double tolerance)
{
    ls_tape_reset(t);
    ls_tensor *y = op(t, &p.x.t);
    if (!y) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_tensor_count(y), p.count);
    assert_int_equal(y->dtype, ls_tape_dtype(t));
    p.formula();
    for (int64_t i = 0; i < p.count; i++)
        assert_near(element(y, i), p.y[i], allowed(y->dtype, p.y[i], tolerance), "y", i);
    assert_int_equal(ls_backward_from(t, y, gradient(y->dtype)), LS_OK);
}

/* Forward and backward, and both once more, which adds the same again. Of what is added in bf16 the first
 * was rounded, and the sum is: 1 + 2 half ulps of it. */
static inline void assert_op_in(ls_dtype dtype, apply op, double tolerance, const part parts[PARTS])
{
    static double once[PARTS][MOST];
    ls_tape *t = tape();
    assert_int_equal(ls_tape_set_dtype(t, dtype), LS_OK);
    to_dtype(dtype, parts);
    run(t, op, tolerance);
    for (int i = 0; i < PARTS && parts[i].l; i++) {
        const leaf *l = parts[i].l;
        assert_slopes(l, parts[i].l->d, weighted_y, NULL, parts[i].tolerance + 1e-8, parts[i].name);
        for (int64_t k = 0; k < ls_tensor_count(&l->t); k++) once[i][k] = element(&l->grad, k);
    }
    run(t, op, tolerance);
    for (int i = 0; i < PARTS && parts[i].l; i++) {
        const leaf *l = parts[i].l;
        for (int64_t k = 0; k < ls_tensor_count(&l->t); k++) { /* twice as many roundings, twice the size */
            const double narrow = l->grad.dtype == LS_BF16 ? 3.1 * HALF_ULP_BF16 * fabs(once[i][k]) : 0.0;
            assert_near(element(&l->grad, k), 2.0 * once[i][k], 4.0 * parts[i].tolerance + 1e-8 + narrow, "added", k);
        }
    }
    ls_tape_destroy(t);
}

static inline void assert_op(apply op, double tolerance, const part parts[PARTS])
{
    assert_op_in(LS_F32, op, tolerance, parts);
    assert_op_in(LS_BF16, op, tolerance, parts);
}

static inline ls_tensor *of(ls_tensor *t, ls_tensor *grad, const ls_tensor *like, void *data, void *slope)
{
    *grad = (ls_tensor){ .dtype = like->dtype, .ndim = like->ndim, .data = slope };
    memcpy(grad->dim, like->dim, sizeof grad->dim);
    *t = *grad;
    t->data = data;
    t->grad = grad;
    return t;
}

/* silu(op(silu(x))) in one go, where gradients are turned in place, and in three, where each
 * gradient has its own memory: the same bits. */
static inline void assert_same_in_place_in(ls_dtype dtype, apply op, const part parts[PARTS])
{
    static union { float f32[MOST]; uint16_t bf16[MOST]; } h_value, y_value, dh, dy, whole[PARTS];
    ls_tensor h, h_grad, y, y_grad;
    ls_tape *t = tape();
    to_dtype(dtype, parts);
    ls_tensor *made_h = ls_silu(t, &p.x.t), *made_y = op(t, made_h);
    assert_non_null(made_y);
    memcpy(&h_value, made_h->data, ls_tensor_nbytes(made_h));
    memcpy(&y_value, made_y->data, ls_tensor_nbytes(made_y));
    of(&h, &h_grad, made_h, &h_value, &dh);
    of(&y, &y_grad, made_y, &y_value, &dy);
    assert_int_equal(ls_backward_from(t, ls_silu(t, made_y), gradient(dtype)), LS_OK);
    for (int i = 0; i < PARTS && parts[i].l; i++)
        memcpy(&whole[i], parts[i].l->grad.data, ls_tensor_nbytes(&parts[i].l->grad));

    ls_tape_reset(t);
    for (int i = 0; i < PARTS && parts[i].l; i++) clear(parts[i].l);
    assert_int_equal(ls_backward_from(t, ls_silu(t, &y), gradient(dtype)), LS_OK);
    assert_int_equal(ls_backward_from(t, op(t, &h), &dy), LS_OK);
    assert_int_equal(ls_backward_from(t, ls_silu(t, &p.x.t), &dh), LS_OK);
    for (int i = 0; i < PARTS && parts[i].l; i++)
        assert_memory_equal(parts[i].l->grad.data, &whole[i], ls_tensor_nbytes(&parts[i].l->grad));
    ls_tape_destroy(t);
}

static inline void assert_same_in_place(apply op, const part parts[PARTS])
{
    assert_same_in_place_in(LS_F32, op, parts);
    assert_same_in_place_in(LS_BF16, op, parts);
}

static inline void assert_refused(ls_tape *t, const ls_tensor *got, ls_status st, const char *says)
{
    assert_null(got);
    assert_int_equal(ls_tape_status(t), st);
    if (!strstr(ls_last_error(), says)) fail_msg("'%s' does not say '%s'", ls_last_error(), says);
    ls_tape_reset(t);
}

/* Lengths around those of vectors and chunks. */
static const int64_t flat_row[] __attribute__((unused)) = { 1, 15, 16, 17, 100, 1023, 1025 };

#endif
