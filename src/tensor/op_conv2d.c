/* op_conv2d.c -- a convolution as deep learning has it: y[n, o, i, j] = b[o] + sum over c, h, w of
 *                w[o, c, h, w] x[n, c, i stride + h - padding, j stride + w - padding], x being 0 outside.
 *
 *   x  [N, C, H, W]    w  [O, C, k, k]    b  [O], may be missing    y  [N, O, Ho, Wo]
 *   Ho = (H + 2 padding - k) / stride + 1
 *
 * forward           y      2 N Ho Wo O C k^2 flops
 * backward, weight  db, dw     as many
 * backward, input   dx         as many
 */
#include "lockstep/op.h"
#include "tensor/conv.h"
#include "tensor/tape.h"

typedef struct attributes {
    int64_t stride, padding;
} attributes;

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96], ws[96], bs[96] = "none";
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0], *w = c->in[1], *b = c->n > 2 ? c->in[2] : NULL;
    if (x->ndim != 4 || w->ndim != 4 || w->dim[1] != x->dim[1] || w->dim[2] != w->dim[3] ||
        (b && (b->ndim != 1 || b->dim[0] != w->dim[0])))
        return ls_fail(LS_SHAPE, "conv2d: input %s, weight %s, bias %s: expected [N, C, H, W], [O, C, k, k] and [O]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws),
                       b ? ls_tensor_shape(b, bs, sizeof bs) : bs);
    if (a->stride < 1 || a->padding < 0 || a->padding >= w->dim[2])
        return ls_fail(LS_SHAPE, "conv2d: stride %lld and padding %lld with a kernel of %lld: expected a stride of 1 or more, "
                       "and a padding of 0 to less than the kernel", (long long)a->stride, (long long)a->padding,
                       (long long)w->dim[2]);
    LS_TRY(ls_op_inputs_alike(c, false));
    LS_TRY(ls_op_like(out, x));
    out->dim[1] = w->dim[0];
    for (int i = 2; i < 4; i++) {
        if (x->dim[i] + 2 * a->padding < w->dim[2])
            return ls_fail(LS_SHAPE, "conv2d: a kernel of %lld does not fit into input %s with padding %lld",
                           (long long)w->dim[2], ls_tensor_shape(x, xs, sizeof xs), (long long)a->padding);
        out->dim[i] = (x->dim[i] + 2 * a->padding - w->dim[2]) / a->stride + 1;
    }
    return LS_OK;
}

static ls_conv sizes_of(const ls_op_call *c)
{
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0], *y = c->out;
    return (ls_conv){
        .N = x->dim[0], .C = x->dim[1], .H = x->dim[2], .W = x->dim[3],
        .O = y->dim[1], .Ho = y->dim[2], .Wo = y->dim[3],
        .kernel = c->in[1]->dim[2], .stride = a->stride, .padding = a->padding,
    };
}

static ls_op_work work(const ls_op_call *c)
{
    const ls_conv v = sizes_of(c);
    const double flops = 2.0 * (double)ls_tensor_count(c->out) * (double)(v.C * v.kernel * v.kernel);
    return (ls_op_work){ flops, flops, flops };
}

static size_t columns_bytes(const ls_op_call *c, bool backward)
{
    const ls_conv v = sizes_of(c);
    (void)backward;
    return ls_conv_columns_bytes(&v);
}

static size_t scratch_bytes(const ls_op_call *c, bool backward)
{
    return ls_conv_library_has() ? 0 : columns_bytes(c, backward);
}

static ls_status columns(const ls_op_call *c, ls_conv_half half)
{
    const ls_conv v = sizes_of(c);
    return ls_conv_columns_run(half, &v, c);
}

static ls_status run(const ls_op_call *c, ls_conv_half half)
{
    const ls_conv v = sizes_of(c);
    return ls_conv_library_has() ? ls_conv_library_run(ls_tape_convolutions(c->tape), half, &v, c) : columns(c, half);
}

static ls_status forward(const ls_op_call *c) { return run(c, LS_CONV_FORWARD); }
static ls_status backward_weight(const ls_op_call *c) { return run(c, LS_CONV_WEIGHT); }
static ls_status backward_input(const ls_op_call *c) { return run(c, LS_CONV_INPUT); }
static ls_status columns_forward(const ls_op_call *c) { return columns(c, LS_CONV_FORWARD); }
static ls_status columns_weight(const ls_op_call *c) { return columns(c, LS_CONV_WEIGHT); }
static ls_status columns_input(const ls_op_call *c) { return columns(c, LS_CONV_INPUT); }

#define OP(name_, scratch_, forward_, weight_, input_)                                                               \
    { .name = name_, .least = 2, .most = 3, .applied = 1, .attribute_bytes = sizeof(attributes), .shapes = shapes,   \
      .work = work, .scratch_bytes = scratch_,                                                                       \
      .cpu = { .forward = forward_, .backward_weight = weight_, .backward_input = input_ } }

static const ls_op conv2d = OP("conv2d", scratch_bytes, forward, backward_weight, backward_input);
const ls_op ls_conv2d_by_columns = OP("conv2d", columns_bytes, columns_forward, columns_weight, columns_input);

ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, int64_t stride, int64_t padding)
{
    return ls_tape_apply(t, &conv2d, (ls_tensor *[]){ x, w, b }, b ? 3 : 2, &(attributes){ stride, padding });
}
