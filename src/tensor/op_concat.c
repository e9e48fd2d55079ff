/* op_concat.c -- tensors one after the other along one dimension, copied; all other dimensions are equal.
 *
 * forward, backward   no flop
 */
#include "lockstep/op.h"
#include "tensor/runs.h"

typedef struct attributes {
    int dim;
} attributes;

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96], ys[96];
    const int d = ((const attributes *)c->attributes)->dim;
    const ls_tensor *x = c->in[0];
    if (d < 0 || d >= x->ndim)
        return ls_fail(LS_SHAPE, "concat: dimension %d of %s: expected 0 to %d", d, ls_tensor_shape(x, xs, sizeof xs),
                       x->ndim - 1);
    LS_TRY(ls_op_inputs_alike(c, true));
    LS_TRY(ls_op_like(out, x));
    for (int k = 1; k < c->n; k++) {
        bool fit = c->in[k]->ndim == x->ndim;
        for (int i = 0; fit && i < x->ndim; i++) fit = i == d || c->in[k]->dim[i] == x->dim[i];
        if (!fit)
            return ls_fail(LS_SHAPE, "concat: %s and %s: expected equal dimensions except dimension %d",
                           ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(c->in[k], ys, sizeof ys), d);
        out->dim[d] += c->in[k]->dim[d];
    }
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    (void)c;
    return (ls_op_work){ 0 };
}

/* From the inputs to the result, or back. */
static ls_status copy(const ls_op_call *c, bool back)
{
    const int d = ((const attributes *)c->attributes)->dim;
    const bool bf16 = c->out->dtype == LS_BF16;
    int64_t outer, inner, at = 0;
    split_at(c->out, d, &outer, &inner);
    const int64_t row = c->out->dim[d] * inner;
    for (int k = 0; k < c->n; k++) {
        const int64_t count = c->in[k]->dim[d] * inner;
        ls_runs r = { .dtype = c->out->dtype, .rows = outer, .count = count };
        if (back) {
            r.to = c->grad[k].data, r.to_row = count, r.add = c->grad[k].add;
            r.from = ls_at_const(c->dy, at, bf16), r.from_row = row;
        } else {
            r.to = ls_at(c->out->data, at, bf16), r.to_row = row;
            r.from = c->in[k]->data, r.from_row = count;
        }
        if (r.to) copy_runs(&r);
        at += count;
    }
    return LS_OK;
}

static ls_status forward(const ls_op_call *c) { return copy(c, false); }
static ls_status backward(const ls_op_call *c) { return copy(c, true); }

static const ls_op concat = {
    .name = "concat", .least = 1, .most = LS_OP_MOST_INPUTS, .applied = LS_OP_MOST_INPUTS,
    .attribute_bytes = sizeof(attributes), .shapes = shapes, .work = work,
    .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_concat(ls_tape *t, ls_tensor *const *x, int n, int dim)
{
    return ls_tape_apply(t, &concat, x, n, &(attributes){ dim });
}
