/* op_sum.c -- sums and means, over one dimension or over all.
 *
 *   x  [outer, R, inner]    y  [outer, inner]     y = factor times the sum over R; factor 1, or 1 / R
 *
 * forward          y            1 flop per element of x
 * backward, input  dx = factor dy
 *
 * All terms of an element are added in double in ascending order, by one thread. Over everything, where there is one
 * element only, in blocks that follow from the shape (threads.h), and those in ascending order.
 */
#include <string.h>

#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/share.h"
#include "tensor/threads.h"

typedef struct attributes {
    int dim; /* LS_ALL_DIMS */
    bool mean;
} attributes;

typedef struct sums {
    int64_t outer, R, inner, blocks;
    double factor;
    const float *x, *dy;
    float *y, *dx;
    double *part; /* of each block, over everything */
    bool add;
} sums;

static sums describe(const ls_op_call *c)
{
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    sums s = { .outer = 1, .R = 1, .inner = 1 };
    for (int i = 0; i < x->ndim; i++)
        *(a->dim == LS_ALL_DIMS || i == a->dim ? &s.R : i < a->dim ? &s.outer : &s.inner) *= x->dim[i];
    s.blocks = ls_sum_blocks(s.R, (int64_t)sizeof(float));
    s.factor = a->mean ? 1.0 / (double)s.R : 1.0;
    s.x = x->data;
    s.y = c->out ? c->out->data : NULL;
    s.dy = c->dy;
    s.dx = c->grad[0].data;
    s.part = c->scratch;
    s.add = c->grad[0].add;
    return s;
}

/* Elements of y. */
LS_KERNEL static void elements(const void *call, int64_t first, int64_t count)
{
    const sums *s = call;
    for (int64_t i = first; i < first + count; i++) {
        const float *x = s->x + i / s->inner * s->R * s->inner + i % s->inner;
        double sum = 0.0;
        for (int64_t r = 0; r < s->R; r++) sum += (double)x[r * s->inner];
        s->y[i] = (float)(s->factor * sum);
    }
}

static void blocks(const void *call, int64_t first, int64_t count)
{
    const sums *s = call;
    for (int64_t b = first; b < first + count; b++) {
        const int64_t end = ls_part_begin(s->R, s->blocks, b + 1);
        double sum = 0.0;
        for (int64_t i = ls_part_begin(s->R, s->blocks, b); i < end; i++) sum += (double)s->x[i];
        s->part[b] = sum;
    }
}

static ls_status forward(const ls_op_call *c)
{
    sums s = describe(c);
    const int64_t n = s.outer * s.inner, bytes = (int64_t)ls_tensor_nbytes(c->in[0]);
    if (n > 1) {
        ls_parallel_for(elements, &s, n, LS_SHARE_COLUMNS, bytes);
        return LS_OK;
    }
    ls_parallel_for(blocks, &s, s.blocks, 1, bytes);
    double sum = 0.0;
    for (int64_t b = 0; b < s.blocks; b++) sum += s.part[b];
    s.y[0] = (float)(s.factor * sum);
    return LS_OK;
}

/* Elements of x. */
LS_KERNEL static void spread(const void *call, int64_t first, int64_t count)
{
    const sums *s = call;
    const float factor = (float)s->factor;
    for (int64_t i = first; i < first + count; i++) {
        const float d = factor * s->dy[i / (s->R * s->inner) * s->inner + i % s->inner];
        s->dx[i] = s->add ? s->dx[i] + d : d;
    }
}

static ls_status backward(const ls_op_call *c)
{
    const sums s = describe(c);
    ls_parallel_for(spread, &s, s.outer * s.R * s.inner, LS_SHARE_LINE, 2 * (int64_t)ls_tensor_nbytes(c->in[0]));
    return LS_OK;
}

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96];
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    if (a->dim != LS_ALL_DIMS && (a->dim < 0 || a->dim >= x->ndim))
        return ls_fail(LS_SHAPE, "%s: dimension %d of %s: expected 0 to %d, or LS_ALL_DIMS", c->op->name, a->dim,
                       ls_tensor_shape(x, xs, sizeof xs), x->ndim - 1);
    LS_TRY(ls_op_inputs_alike(c, false));
    out->dtype = x->dtype;
    for (int i = 0; a->dim != LS_ALL_DIMS && i < x->ndim; i++)
        if (i != a->dim) out->dim[out->ndim++] = x->dim[i];
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->in[0]);
    return (ls_op_work){ .forward = n, .backward_input = n };
}

static size_t scratch_bytes(const ls_op_call *c, bool backwards)
{
    return backwards || ls_tensor_count(c->out) > 1 ? 0 : (size_t)describe(c).blocks * sizeof(double);
}

#define OP(name_)                                                                                                  \
    { .name = name_, .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(attributes), .shapes = shapes, \
      .work = work, .scratch_bytes = scratch_bytes, .cpu = { .forward = forward, .backward_input = backward } }

static const ls_op sum_op = OP("sum"), mean_op = OP("mean");

ls_tensor *ls_sum(ls_tape *t, ls_tensor *x, int dim)
{
    return ls_tape_apply(t, &sum_op, &x, 1, &(attributes){ .dim = dim });
}

ls_tensor *ls_mean(ls_tape *t, ls_tensor *x, int dim)
{
    return ls_tape_apply(t, &mean_op, &x, 1, &(attributes){ .dim = dim, .mean = true });
}
