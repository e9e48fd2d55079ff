/* op_max_pool2d.c -- the largest value of each window.
 *
 *   x  [N, C, H, W]    y  [N, C, Ho, Wo]     windows of `kernel` x `kernel`, `stride` apart;
 *                                            Ho = (H - kernel) / stride + 1
 *
 * forward          y            kernel^2 comparisons per element of y; the place of the first of equal values is kept,
 *                               and a NaN is larger than any number (as in PyTorch)
 * backward, input  dx = dy at that place, 0 elsewhere; where windows overlap, their dy add up in the order of y
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/share.h"

typedef struct attributes {
    int64_t kernel, stride;
} attributes;

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96];
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    if (x->ndim != 4) return ls_fail(LS_SHAPE, "max_pool2d: %s: expected [N, C, H, W]", ls_tensor_shape(x, xs, sizeof xs));
    if (a->kernel < 1 || a->stride < 1 || a->kernel > x->dim[2] || a->kernel > x->dim[3])
        return ls_fail(LS_SHAPE, "max_pool2d: a window of %lld, %lld apart, in %s: expected at least 1, and a window within "
                       "the image", (long long)a->kernel, (long long)a->stride, ls_tensor_shape(x, xs, sizeof xs));
    LS_TRY(ls_op_inputs_alike(c, false));
    LS_TRY(ls_op_like(out, x));
    for (int i = 2; i < 4; i++) out->dim[i] = (x->dim[i] - a->kernel) / a->stride + 1;
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    const attributes *a = c->attributes;
    const double n = (double)ls_tensor_count(c->out);
    return (ls_op_work){ .forward = n * (double)(a->kernel * a->kernel), .backward_input = n };
}

static size_t saved_bytes(const ls_op_call *c) { return (size_t)ls_tensor_count(c->out) * sizeof(int32_t); }

/* Planes [H, W]. */
static void forward_planes(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const attributes *a = c->attributes;
    const int64_t H = c->in[0]->dim[2], W = c->in[0]->dim[3], Ho = c->out->dim[2], Wo = c->out->dim[3];
    for (int64_t p = first; p < first + count; p++) {
        const float *x = (const float *)c->in[0]->data + p * H * W;
        float *y = (float *)c->out->data + p * Ho * Wo;
        int32_t *place = (int32_t *)c->saved + p * Ho * Wo;
        for (int64_t i = 0; i < Ho * Wo; i++) {
            const int64_t corner = i / Wo * a->stride * W + i % Wo * a->stride;
            int64_t best = corner;
            for (int64_t h = 0; h < a->kernel; h++)
                for (int64_t w = 0; w < a->kernel; w++) {
                    const int64_t at = corner + h * W + w;
                    if (x[at] > x[best] || (isnan(x[at]) && !isnan(x[best]))) best = at;
                }
            y[i] = x[best];
            place[i] = (int32_t)best;
        }
    }
}

static void backward_planes(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const int64_t in = c->in[0]->dim[2] * c->in[0]->dim[3], out = c->out->dim[2] * c->out->dim[3];
    for (int64_t p = first; p < first + count; p++) {
        float *dx = (float *)c->grad[0].data + p * in;
        const float *dy = (const float *)c->dy + p * out;
        const int32_t *place = (const int32_t *)c->saved + p * out;
        if (!c->grad[0].add) memset(dx, 0, (size_t)in * sizeof *dx);
        for (int64_t i = 0; i < out; i++) dx[place[i]] += dy[i];
    }
}

static int64_t planes(const ls_op_call *c) { return c->in[0]->dim[0] * c->in[0]->dim[1]; }

static ls_status forward(const ls_op_call *c)
{
    ls_parallel_for(forward_planes, c, planes(c), 1, 2 * (int64_t)ls_tensor_nbytes(c->in[0]));
    return LS_OK;
}

static ls_status backward(const ls_op_call *c)
{
    ls_parallel_for(backward_planes, c, planes(c), 1, 2 * (int64_t)ls_tensor_nbytes(c->in[0]));
    return LS_OK;
}

static const ls_op max_pool2d = {
    .name = "max_pool2d", .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(attributes), .shapes = shapes,
    .work = work, .saved_bytes = saved_bytes, .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, int64_t kernel, int64_t stride)
{
    return ls_tape_apply(t, &max_pool2d, &x, 1, &(attributes){ kernel, stride });
}
