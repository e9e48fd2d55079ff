/* op_slice.c -- y = x[.., first : first + count, ..] of one dimension, copied.
 *
 * forward, backward   no flop; what x has outside the slice gets a gradient of 0
 */
#include "lockstep/op.h"
#include "tensor/runs.h"

typedef struct attributes {
    int dim;
    int64_t first, count;
} attributes;

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96];
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    if (a->dim < 0 || a->dim >= x->ndim)
        return ls_fail(LS_SHAPE, "slice: dimension %d of %s: expected 0 to %d", a->dim, ls_tensor_shape(x, xs, sizeof xs),
                       x->ndim - 1);
    if (a->first < 0 || a->count < 1 || a->first > x->dim[a->dim] - a->count)
        return ls_fail(LS_SHAPE, "slice: %lld from %lld on in dimension %d of %s: expected at least 1, and within it",
                       (long long)a->count, (long long)a->first, a->dim, ls_tensor_shape(x, xs, sizeof xs));
    LS_TRY(ls_op_inputs_alike(c, true));
    LS_TRY(ls_op_like(out, x));
    out->dim[a->dim] = a->count;
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    (void)c;
    return (ls_op_work){ 0 };
}

static ls_status forward(const ls_op_call *c)
{
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    int64_t outer, inner;
    split_at(x, a->dim, &outer, &inner);
    copy_runs(&(ls_runs){
        .dtype = x->dtype, .rows = outer, .count = a->count * inner, .to_row = a->count * inner,
        .from_row = x->dim[a->dim] * inner, .to = c->out->data,
        .from = ls_at_const(x->data, a->first * inner, x->dtype == LS_BF16),
    });
    return LS_OK;
}

static ls_status backward(const ls_op_call *c)
{
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    int64_t outer, inner;
    split_at(x, a->dim, &outer, &inner);
    if (!c->grad[0].add) memset(c->grad[0].data, 0, ls_tensor_nbytes(x));
    copy_runs(&(ls_runs){
        .dtype = x->dtype, .rows = outer, .count = a->count * inner, .to_row = x->dim[a->dim] * inner,
        .from_row = a->count * inner, .from = c->dy, .add = c->grad[0].add,
        .to = ls_at(c->grad[0].data, a->first * inner, x->dtype == LS_BF16),
    });
    return LS_OK;
}

static const ls_op slice = {
    .name = "slice", .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(attributes), .shapes = shapes,
    .work = work, .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_slice_of(ls_tape *t, ls_tensor *x, int dim, int64_t first, int64_t count)
{
    return ls_tape_apply(t, &slice, &x, 1, &(attributes){ dim, first, count });
}
