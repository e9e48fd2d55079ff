/* op_gate_rows.c -- y = x sigmoid(g), a factor for each row: x [.., C], g [.., 1] (moe.h).
 *
 * forward          y  = x s, s = sigmoid(g)             1 flop per element
 * backward, input  dx = dy s                            1
 *                  dg = s (1 - s) sum of dy x           2
 */
#include "base/compiler.h"
#include "lockstep/moe.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

typedef struct rows {
    const void *x, *g, *dy;
    void *y, *dx, *dg;
    bool add_x, add_g;
    ls_dtype dtype;
    int64_t C;
} rows;

static LS_ALWAYS_INLINE void forward_loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    for (int64_t n = first; n < end; n++) {
        const float s = ls_sigmoidf(ls_get(r->g, n, bf16));
        LS_INDEPENDENT
        for (int64_t i = n * r->C; i < (n + 1) * r->C; i++) ls_put(r->y, i, ls_get(r->x, i, bf16) * s, bf16);
    }
}

LS_KERNEL_CHOOSING static void forward_rows(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    LS_BY_DTYPE(r->dtype, forward_loop, r, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    for (int64_t n = first; n < end; n++) {
        const float s = ls_sigmoidf(ls_get(r->g, n, bf16));
        double sum = 0;
        for (int64_t i = n * r->C; i < (n + 1) * r->C; i++) {
            const float dy = ls_get(r->dy, i, bf16);
            sum += (double)(dy * ls_get(r->x, i, bf16));
            if (r->dx) ls_put(r->dx, i, dy * s + (r->add_x ? ls_get(r->dx, i, bf16) : 0.0f), bf16);
        }
        if (r->dg) ls_put(r->dg, n, (float)sum * s * (1.0f - s) + (r->add_g ? ls_get(r->dg, n, bf16) : 0.0f), bf16);
    }
}

LS_KERNEL_CHOOSING static void backward_rows(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    LS_BY_DTYPE(r->dtype, backward_loop, r, first, first + count);
}

static rows of(const ls_tensor *x, const ls_tensor *g)
{
    return (rows){ .x = x->data, .g = g->data, .dtype = x->dtype, .C = x->dim[x->ndim - 1] };
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0], *g = n->in[1];
    rows r = of(x, g);
    if (ls_grad_wanted(x)) LS_TRY(ls_grad_begin(t, x, &r.add_x, &r.dx));
    if (ls_grad_wanted(g)) LS_TRY(ls_grad_begin(t, g, &r.add_g, &r.dg));
    r.dy = n->out->grad->data;
    if (!ls_tape_dry(t)) ls_parallel_for(backward_rows, &r, ls_tensor_count(g), 64, 3 * (int64_t)ls_tensor_nbytes(x));
    if (ls_grad_wanted(g)) LS_TRY(ls_grad_end(t, g));
    return ls_grad_wanted(x) ? ls_grad_end(t, x) : LS_OK;
}

static const ls_tape_op gate_rows = { .name = "gate_rows", .napplied = 2, .backward_input = backward_input };

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *g)
{
    char xs[96], gs[96];
    bool fits = x->ndim == g->ndim && x->ndim > 0 && g->dim[g->ndim - 1] == 1;
    for (int d = 0; fits && d < x->ndim - 1; d++) fits = x->dim[d] == g->dim[d];
    if (!fits)
        return ls_fail(LS_SHAPE, "gate_rows: %s and gates %s: expected [.., C] and [.., 1]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(g, gs, sizeof gs));
    LS_TRY(ls_op_check_activation(t, "gate_rows", "input", x));
    return ls_op_check_alike("gate_rows", x, g);
}

ls_tensor *ls_gate_rows(ls_tape *t, ls_tensor *x, ls_tensor *g)
{
    if (!ls_op_begin(t, gate_rows.name, x && g)) return NULL;
    const ls_status st = check(t, x, g);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, x->dtype, x->ndim, x->dim);
    if (!y) return NULL;
    rows r = of(x, g);
    r.y = y->data;
    if (!ls_tape_dry(t)) ls_parallel_for(forward_rows, &r, ls_tensor_count(g), 64, 2 * (int64_t)ls_tensor_nbytes(x));
    const double n = (double)ls_tensor_count(x);
    return ls_op_end(t, y,
                     &(struct ls_node){ .op = &gate_rows,
                                        .in = { x, g },
                                        .flops = n,
                                        .flops_input = 3 * n,
                                        .label_a = (uint32_t)ls_tensor_count(x) });
}
