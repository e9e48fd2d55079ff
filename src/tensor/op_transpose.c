/* op_transpose.c -- y is x with two of its dimensions exchanged, copied.
 *
 *   x  [outer, A, middle, B, inner]    y  [outer, B, middle, A, inner]
 *
 * forward, backward   no flop
 */
#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/element.h"
#include "tensor/share.h"

typedef struct attributes {
    int dim0, dim1; /* ascending */
} attributes;

/* to[o, b, m, a, :] (+)= from[o, a, m, b, :] */
typedef struct exchange {
    ls_dtype dtype;
    int64_t A, middle, B, inner;
    bool add;
    void *to;
    const void *from;
} exchange;

static LS_ALWAYS_INLINE void loop(const exchange *e, int64_t first, int64_t end, bool bf16)
{
    for (int64_t r = first; r < end; r++) {
        const int64_t a = r % e->A, m = r / e->A % e->middle, b = r / e->A / e->middle % e->B;
        const int64_t o = r / e->A / e->middle / e->B;
        const int64_t to = r * e->inner, from = (((o * e->A + a) * e->middle + m) * e->B + b) * e->inner;
        if (e->add)
            for (int64_t i = 0; i < e->inner; i++)
                ls_put(e->to, to + i, ls_get(e->to, to + i, bf16) + ls_get(e->from, from + i, bf16), bf16);
        else
            for (int64_t i = 0; i < e->inner; i++) ls_put(e->to, to + i, ls_get(e->from, from + i, bf16), bf16);
    }
}

/* Rows of `inner` elements of the result. */
LS_KERNEL static void some_rows(const void *call, int64_t first, int64_t count)
{
    const exchange *e = call;
    LS_BY_DTYPE(e->dtype, loop, e, first, first + count);
}

static exchange describe(const ls_op_call *c, const ls_tensor *from)
{
    const attributes *a = c->attributes;
    exchange e = { .dtype = from->dtype, .A = from->dim[a->dim0], .B = from->dim[a->dim1], .middle = 1, .inner = 1 };
    for (int i = a->dim0 + 1; i < a->dim1; i++) e.middle *= from->dim[i];
    for (int i = a->dim1 + 1; i < from->ndim; i++) e.inner *= from->dim[i];
    return e;
}

static ls_status run(const exchange *e, const ls_tensor *from)
{
    ls_parallel_for(some_rows, e, ls_tensor_count(from) / e->inner, LS_SHARE_LINE, 2 * (int64_t)ls_tensor_nbytes(from));
    return LS_OK;
}

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96];
    const attributes *a = c->attributes;
    const ls_tensor *x = c->in[0];
    if (a->dim0 < 0 || a->dim0 == a->dim1 || a->dim1 >= x->ndim)
        return ls_fail(LS_SHAPE, "transpose: dimensions %d and %d of %s: expected two of 0 to %d", a->dim0, a->dim1,
                       ls_tensor_shape(x, xs, sizeof xs), x->ndim - 1);
    LS_TRY(ls_op_inputs_alike(c, true));
    LS_TRY(ls_op_like(out, x));
    out->dim[a->dim0] = x->dim[a->dim1];
    out->dim[a->dim1] = x->dim[a->dim0];
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    (void)c;
    return (ls_op_work){ 0 };
}

static ls_status forward(const ls_op_call *c)
{
    exchange e = describe(c, c->in[0]);
    e.to = c->out->data;
    e.from = c->in[0]->data;
    return run(&e, c->in[0]);
}

static ls_status backward(const ls_op_call *c)
{
    exchange e = describe(c, c->out);
    e.to = c->grad[0].data;
    e.from = c->dy;
    e.add = c->grad[0].add;
    return run(&e, c->out);
}

static const ls_op transpose = {
    .name = "transpose", .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(attributes), .shapes = shapes,
    .work = work, .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_transpose(ls_tape *t, ls_tensor *x, int dim0, int dim1)
{
    const attributes a = { dim0 < dim1 ? dim0 : dim1, dim0 < dim1 ? dim1 : dim0 };
    return ls_tape_apply(t, &transpose, &x, 1, &a);
}
