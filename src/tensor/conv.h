/* conv.h -- convolutions: the seam between the op and whatever computes them, as gemm.h is for products.
 *
 *   x  [N, C, H, W]    w  [O, C, kernel, kernel]    b  [O]    y  [N, O, Ho, Wo]
 *
 * conv_dnnl.c has oneDNN compute them. conv_columns.c, where there is none, makes products of matrices of them: every
 * pixel of y is a row of K = C kernel^2 values of x, its columns:
 *
 *   y^T = columns w^T  [pixels, K] [K, O],   dw = dy columns  [O, pixels] [pixels, K],   dcolumns = dy^T w
 *
 * Both take some images at a time, a number that follows from the shape. So no bit depends on the number of threads.
 */
#ifndef LS_TENSOR_CONV_H
#define LS_TENSOR_CONV_H
#include "lockstep/op.h"

typedef struct ls_conv {
    int64_t N, C, H, W, O, Ho, Wo, kernel, stride, padding;
} ls_conv;

/* y; the gradients of w and b that c->grad[1] and [2] want; that of x. */
typedef enum ls_conv_half { LS_CONV_FORWARD, LS_CONV_WEIGHT, LS_CONV_INPUT } ls_conv_half;

/* c->scratch of so many bytes, for any half. */
size_t ls_conv_columns_bytes(const ls_conv *v);
ls_status ls_conv_columns_run(ls_conv_half half, const ls_conv *v, const ls_op_call *c);
/* ls_conv2d by columns alone, for tests; its attributes: stride and padding. */
extern const ls_op ls_conv2d_by_columns;

/* Prepared convolutions of one thread. */
typedef struct ls_conv_library ls_conv_library;
bool ls_conv_library_has(void);
/* *l is made where it is NULL. It needs no scratch memory of the call. */
ls_status ls_conv_library_run(ls_conv_library **l, ls_conv_half half, const ls_conv *v, const ls_op_call *c);
void ls_conv_library_close(ls_conv_library *l); /* NULL is fine */

#endif
