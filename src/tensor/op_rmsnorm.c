/* op_rmsnorm.c -- y = x rstd w over the last dimension. Zhang and Sennrich 2019.
 *
 *   x, y  [.., C]   N rows in all
 *   w     [C]
 *   rstd  [N]       kept; 1 / sqrt(mean of x^2 + eps)
 *
 * With h = x rstd and g = dy w:
 *
 * forward           y  = h w                       4 flops and 8 bytes an element
 * backward, weight  dw = sum of rows of dy h       3 flops and 8 bytes
 * backward, input   dx = rstd (g - h mean (g h))   10 flops and 12 bytes
 *
 * Sums over a row are those of rows.h; sums of rows are in ascending order, in float.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/rows.h"
#include "tensor/tape.h"

#define FLOPS_FORWARD 4.0
#define FLOPS_WEIGHT 3.0
#define FLOPS_INPUT 10.0

/* Once more (`again`) the statistics are there. */
LS_KERNEL static void forward(float *restrict y, float *restrict rstd, const float *restrict x,
                              const float *restrict w, int64_t N, int64_t C, float eps, bool again)
{
    for (int64_t n = 0; n < N; n++, x += C, y += C) {
        if (!again) rstd[n] = (float)(1.0 / sqrt(ls_row_squares(x, 0.0f, C) / (double)C + (double)eps));
        const float r = rstd[n];
        for (int64_t c = 0; c < C; c++) y[c] = x[c] * r * w[c];
    }
}

LS_KERNEL static void add_weight(float *restrict dw, const float *restrict dy, const float *restrict x,
                                 const float *restrict rstd, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++, dy += C, x += C) {
        const float r = rstd[n];
        for (int64_t c = 0; c < C; c++) dw[c] += dy[c] * (x[c] * r);
    }
}

/* dx may be dy, when not adding. */
LS_KERNEL static void input(float *dx, const float *dy, const float *restrict x, const float *restrict w,
                            const float *restrict rstd, int64_t N, int64_t C, bool add)
{
    for (int64_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
        const float r = rstd[n];
        const float gh = (float)(ls_row_dot_normed(dy, w, x, 0.0f, r, C) / (double)C);
        if (add)
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) dx[c] += r * (dy[c] * w[c] - x[c] * r * gh);
        else
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) dx[c] = r * (dy[c] * w[c] - x[c] * r * gh);
    }
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0];
    ls_tensor *w = n->in[1];
    const int64_t C = w->dim[0], N = ls_tensor_count(x) / C;
    bool add;
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &add, &dw));
    if (!ls_tape_dry(t)) {
        if (!add) memset(dw, 0, (size_t)C * sizeof(float));
        add_weight(dw, n->out->grad->data, x->data, n->saved, N, C);
    }
    return ls_grad_end(t, w);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const int64_t C = n->in[1]->dim[0], N = ls_tensor_count(x) / C;
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) input(dx, n->out->grad->data, x->data, n->in[1]->data, n->saved, N, C, add);
    return ls_grad_end(t, x);
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0];
    const int64_t C = n->in[1]->dim[0], N = ls_tensor_count(x) / C;
    float *rstd; /* only read */
    (void)t;
    memcpy(&rstd, &n->saved, sizeof rstd);
    forward(n->out->data, rstd, x->data, n->in[1]->data, N, C, 0.0f, true);
    return LS_OK;
}

static const ls_op rmsnorm = {
    .name = "rmsnorm", .napplied = 1, .backward_weight = backward_weight, .backward_input = backward_input,
    .again = again,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, float eps)
{
    char xs[96], ws[96];
    if (x->ndim < 1 || w->ndim != 1 || w->dim[0] < 1 || x->dim[x->ndim - 1] != w->dim[0])
        return ls_fail(LS_SHAPE, "rmsnorm: input %s and weight %s: expected [.., C] and [C]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    if (!(eps > 0.0f)) return ls_fail(LS_INVALID, "rmsnorm: eps is %g, expected more than 0", (double)eps);
    LS_TRY(ls_op_check(t, "rmsnorm", "input", x));
    return ls_op_check(t, "rmsnorm", "weight", w);
}

ls_tensor *ls_rmsnorm(ls_tape *t, ls_tensor *x, ls_tensor *w, float eps)
{
    if (!ls_op_begin(t, rmsnorm.name, x && w)) return NULL;
    const ls_status st = check(t, x, w, eps);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t C = w->dim[0], N = ls_tensor_count(x) / C;
    const double count = (double)(N * C);
    ls_tensor *y = ls_op_output_again(t, LS_F32, x->ndim, x->dim);
    float *rstd = y ? ls_op_alloc(t, (size_t)N * sizeof *rstd) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) forward(y->data, rstd, x->data, w->data, N, C, eps, false);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &rmsnorm, .in = { x, w }, .saved = rstd, .label_a = (uint32_t)N, .label_b = (uint32_t)C,
        .flops = FLOPS_FORWARD * count, .flops_weight = FLOPS_WEIGHT * count, .flops_input = FLOPS_INPUT * count,
    });
}
