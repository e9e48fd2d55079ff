/* op_scale_rows.c -- y = x s, a factor for each row: x [.., C], s [.., 1] (moe.h).
 *
 * forward          y  = x s          1 flop per element
 * backward, input  dx = dy s         1
 *                  ds = sum of dy x  2
 */
#include "base/compiler.h"
#include "lockstep/moe.h"
#include "lockstep/op.h"
#include "tensor/element.h"

typedef struct rows {
    const void *x, *s, *dy;
    void *y, *dx, *ds;
    bool add_x, add_s;
    ls_dtype dtype;
    int64_t C;
} rows;

static LS_ALWAYS_INLINE void forward_loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    for (int64_t n = first; n < end; n++) {
        const float s = ls_get(r->s, n, bf16);
        LS_INDEPENDENT
        for (int64_t i = n * r->C; i < (n + 1) * r->C; i++) ls_put(r->y, i, ls_get(r->x, i, bf16) * s, bf16);
    }
}

LS_KERNEL static void forward_rows(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    LS_BY_DTYPE(r->dtype, forward_loop, r, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    for (int64_t n = first; n < end; n++) {
        const float s = ls_get(r->s, n, bf16);
        double sum = 0;
        for (int64_t i = n * r->C; i < (n + 1) * r->C; i++) {
            const float dy = ls_get(r->dy, i, bf16);
            sum += (double)(dy * ls_get(r->x, i, bf16));
            if (r->dx) ls_put(r->dx, i, dy * s + (r->add_x ? ls_get(r->dx, i, bf16) : 0.0f), bf16);
        }
        if (r->ds) ls_put(r->ds, n, (float)sum + (r->add_s ? ls_get(r->ds, n, bf16) : 0.0f), bf16);
    }
}

LS_KERNEL static void backward_rows(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    LS_BY_DTYPE(r->dtype, backward_loop, r, first, first + count);
}

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96], ss[96];
    const ls_tensor *x = c->in[0], *s = c->in[1];
    LS_TRY(ls_op_inputs_alike(c, true));
    bool fits = x->ndim == s->ndim && x->ndim > 0 && s->dim[s->ndim - 1] == 1;
    for (int d = 0; fits && d < x->ndim - 1; d++) fits = x->dim[d] == s->dim[d];
    if (!fits)
        return ls_fail(LS_SHAPE, "scale_rows: %s and factors %s: expected [.., C] and [.., 1]", ls_tensor_shape(x, xs, sizeof xs),
                       ls_tensor_shape(s, ss, sizeof ss));
    return ls_op_like(out, x);
}

static rows of(const ls_op_call *c)
{
    return (rows){ .x = c->in[0]->data, .s = c->in[1]->data, .dtype = c->out->dtype,
                   .C = c->in[0]->dim[c->in[0]->ndim - 1] };
}

static ls_status forward(const ls_op_call *c)
{
    rows r = of(c);
    r.y = c->out->data;
    ls_parallel_for(forward_rows, &r, ls_tensor_count(c->in[1]), 64, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status backward(const ls_op_call *c)
{
    rows r = of(c);
    r.dy = c->dy;
    r.dx = c->grad[0].data;
    r.ds = c->grad[1].data;
    r.add_x = c->grad[0].add;
    r.add_s = c->grad[1].add;
    ls_parallel_for(backward_rows, &r, ls_tensor_count(c->in[1]), 64, 3 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static const ls_op op = {
    .name = "scale_rows", .least = 2, .most = 2, .applied = 2, .shapes = shapes,
    .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_scale_rows(ls_tape *t, ls_tensor *x, ls_tensor *s) { return ls_tape_apply(t, &op, (ls_tensor *[]){ x, s }, 2, NULL); }
