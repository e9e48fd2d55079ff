/* op_element_loss.c -- losses that compare each element with a target: mean squared error, binary cross entropy.
 *
 *   p, target  any equal shapes, n elements    loss  []
 *
 * mse  forward  mean of (p - target)^2                          backward  dp = 2 (p - target) dloss / n, dtarget = -dp
 * bce  forward  mean of -(target log p + (1 - target) log(1 - p)), logarithms at least -100 as in PyTorch
 *      backward dp = (p - target) / max(p (1 - p), 1e-12) dloss / n; target wants none
 *
 * The terms are added in double, in blocks that follow from n (threads.h), and those in ascending order.
 */
#include <math.h>

#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/share.h"
#include "tensor/threads.h"

static int64_t blocks_of(const ls_op_call *c)
{
    return ls_sum_blocks(ls_tensor_count(c->in[0]), 2 * (int64_t)sizeof(float));
}

static double log_of(float p)
{
    const double l = log((double)p);
    return l < -100.0 ? -100.0 : l;
}

static double square(float p, float t) { return ((double)p - (double)t) * ((double)p - (double)t); }

static double entropy(float p, float t)
{
    return -((double)t * log_of(p) + (1.0 - (double)t) * log_of(1.0f - p));
}

static ls_status forward(const ls_op_call *c, ls_loop blocks)
{
    const int64_t n = ls_tensor_count(c->in[0]), count = blocks_of(c);
    const double *part = c->scratch;
    ls_parallel_for(blocks, c, count, 1, 2 * n * (int64_t)sizeof(float));
    double sum = 0.0;
    for (int64_t b = 0; b < count; b++) sum += part[b];
    *(float *)c->out->data = (float)(sum / (double)n);
    return LS_OK;
}

static LS_ALWAYS_INLINE void sum_blocks(const ls_op_call *c, int64_t first, int64_t end, double (*term)(float, float))
{
    const int64_t n = ls_tensor_count(c->in[0]), count = blocks_of(c);
    const float *p = c->in[0]->data, *t = c->in[1]->data;
    for (int64_t b = first; b < end; b++) {
        double sum = 0.0;
        for (int64_t i = ls_part_begin(n, count, b); i < ls_part_begin(n, count, b + 1); i++) sum += term(p[i], t[i]);
        ((double *)c->scratch)[b] = sum;
    }
}

static void mse_blocks(const void *call, int64_t first, int64_t count)
{
    sum_blocks(call, first, first + count, square);
}

static void bce_blocks(const void *call, int64_t first, int64_t count)
{
    sum_blocks(call, first, first + count, entropy);
}

static ls_status mse_forward(const ls_op_call *c) { return forward(c, mse_blocks); }

static ls_status bce_forward(const ls_op_call *c)
{
    const float *p = c->in[0]->data;
    for (int64_t i = 0; i < ls_tensor_count(c->in[0]); i++)
        if (p[i] < 0.0f || p[i] > 1.0f)
            return ls_fail(LS_INVALID, "bce_loss: element %lld is %g; expected a probability, 0 to 1 (ls_sigmoid makes "
                           "them)", (long long)i, (double)p[i]);
    return forward(c, bce_blocks);
}

/* --- backward ---------------------------------------------------------------------------- */

LS_KERNEL static void mse_slopes(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const float *p = c->in[0]->data, *t = c->in[1]->data;
    const float scale = (float)(2.0 / (double)ls_tensor_count(c->in[0])) * *(const float *)c->dy;
    for (int k = 0; k < 2; k++) {
        float *d = c->grad[k].data;
        const float sign = k == 0 ? scale : -scale;
        for (int64_t i = first; d && i < first + count; i++) {
            const float more = sign * (p[i] - t[i]);
            d[i] = c->grad[k].add ? d[i] + more : more;
        }
    }
}

LS_KERNEL static void bce_slopes(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const float *p = c->in[0]->data, *t = c->in[1]->data;
    const float scale = (float)(1.0 / (double)ls_tensor_count(c->in[0])) * *(const float *)c->dy;
    float *d = c->grad[0].data;
    for (int64_t i = first; i < first + count; i++) {
        const float width = p[i] * (1.0f - p[i]), more = scale * ((p[i] - t[i]) / (width > 1e-12f ? width : 1e-12f));
        d[i] = c->grad[0].add ? d[i] + more : more;
    }
}

static ls_status mse_backward(const ls_op_call *c)
{
    const int64_t n = ls_tensor_count(c->in[0]);
    ls_parallel_for(mse_slopes, c, n, LS_SHARE_LINE, 4 * n * (int64_t)sizeof(float));
    return LS_OK;
}

static ls_status bce_backward(const ls_op_call *c)
{
    const int64_t n = ls_tensor_count(c->in[0]);
    ls_parallel_for(bce_slopes, c, n, LS_SHARE_LINE, 3 * n * (int64_t)sizeof(float));
    return LS_OK;
}

/* --- both ------------------------------------------------------------------------------------ */

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char ps[96], ts[96];
    if (!ls_tensor_same_shape(c->in[0], c->in[1]))
        return ls_fail(LS_SHAPE, "%s: %s and target %s: expected equal shapes", c->op->name,
                       ls_tensor_shape(c->in[0], ps, sizeof ps), ls_tensor_shape(c->in[1], ts, sizeof ts));
    LS_TRY(ls_op_inputs_alike(c, false));
    out->dtype = LS_F32;
    return LS_OK;
}

static size_t scratch_bytes(const ls_op_call *c, bool backwards)
{
    return backwards ? 0 : (size_t)blocks_of(c) * sizeof(double);
}

static ls_op_work mse_work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->in[0]);
    return (ls_op_work){ .forward = 3.0 * n, .backward_input = 2.0 * n };
}

static ls_op_work bce_work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->in[0]);
    return (ls_op_work){ .forward = 45.0 * n, .backward_input = 6.0 * n };
}

static const ls_op mse_loss = {
    .name = "mse_loss", .least = 2, .most = 2, .applied = 2, .shapes = shapes, .work = mse_work,
    .scratch_bytes = scratch_bytes, .cpu = { .forward = mse_forward, .backward_input = mse_backward },
};

static const ls_op bce_loss = { /* applied to p alone: a target that wants a gradient is refused */
    .name = "bce_loss", .least = 2, .most = 2, .applied = 1, .shapes = shapes, .work = bce_work,
    .scratch_bytes = scratch_bytes, .cpu = { .forward = bce_forward, .backward_input = bce_backward },
};

ls_tensor *ls_mse_loss(ls_tape *t, ls_tensor *p, ls_tensor *target)
{
    return ls_tape_apply(t, &mse_loss, (ls_tensor *[]){ p, target }, 2, NULL);
}

ls_tensor *ls_bce_loss(ls_tape *t, ls_tensor *p, ls_tensor *target)
{
    return ls_tape_apply(t, &bce_loss, (ls_tensor *[]){ p, target }, 2, NULL);
}
