/* op_layernorm.c -- y = (x - mean) rstd w + b over the last dimension. Ba, Kiros and Hinton 2016.
 *
 *   x, y        [.., C]   N rows in all
 *   w, b        [C]
 *   mean, rstd  [N]       kept; rstd = 1 / sqrt(mean of (x - mean)^2 + eps)
 *
 * With h = (x - mean) rstd and g = dy w:
 *
 * forward           y  = h w + b                            8 flops and 8 bytes an element
 * backward, weight  db = sum of rows of dy                  5 flops and 8 bytes
 *                   dw = sum of rows of dy h
 * backward, input   dx = rstd (g - mean g - h mean (g h))   14 flops and 12 bytes
 *
 * Sums over a row are those of rows.h; sums of rows are in ascending order, in float.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/rows.h"
#include "tensor/tape.h"

#define FLOPS_FORWARD 8.0
#define FLOPS_WEIGHT 5.0
#define FLOPS_INPUT 14.0

/* Once more (`again`) the statistics are there. */
LS_KERNEL static void forward(float *restrict y, float *restrict mean, float *restrict rstd, const float *restrict x,
                              const float *restrict w, const float *restrict b, int64_t N, int64_t C, float eps,
                              bool again)
{
    for (int64_t n = 0; n < N; n++, x += C, y += C) {
        if (!again) {
            mean[n] = (float)(ls_row_sum(x, C) / (double)C);
            rstd[n] = (float)(1.0 / sqrt(ls_row_squares(x, mean[n], C) / (double)C + (double)eps));
        }
        const float m = mean[n], r = rstd[n];
        for (int64_t c = 0; c < C; c++) y[c] = (x[c] - m) * r * w[c] + b[c];
    }
}

/* Either of dw and db may be NULL. */
LS_KERNEL static void add_weight(float *restrict dw, float *restrict db, const float *restrict dy,
                                 const float *restrict x, const float *restrict mean, const float *restrict rstd,
                                 int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++, dy += C, x += C) {
        const float m = mean[n], r = rstd[n];
        if (dw && db)
            for (int64_t c = 0; c < C; c++) {
                db[c] += dy[c];
                dw[c] += dy[c] * ((x[c] - m) * r);
            }
        else if (db)
            for (int64_t c = 0; c < C; c++) db[c] += dy[c];
        else
            for (int64_t c = 0; c < C; c++) dw[c] += dy[c] * ((x[c] - m) * r);
    }
}

/* dx may be dy, when not adding. */
LS_KERNEL static void input(float *dx, const float *dy, const float *restrict x, const float *restrict w,
                            const float *restrict mean, const float *restrict rstd, int64_t N, int64_t C, bool add)
{
    for (int64_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
        const float m = mean[n], r = rstd[n];
        const float g = (float)(ls_row_dot(dy, w, C) / (double)C);
        const float gh = (float)(ls_row_dot_normed(dy, w, x, m, r, C) / (double)C);
        if (add)
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) dx[c] += r * (dy[c] * w[c] - g - (x[c] - m) * r * gh);
        else
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) dx[c] = r * (dy[c] * w[c] - g - (x[c] - m) * r * gh);
    }
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0];
    const float *mean = n->saved;
    const int64_t C = n->in[1]->dim[0], N = ls_tensor_count(x) / C;
    void *sum[2] = { NULL, NULL }; /* dw, db */
    for (int i = 0; i < 2; i++) {
        bool add;
        if (!ls_grad_wanted(n->in[1 + i])) continue;
        LS_TRY(ls_grad_begin(t, n->in[1 + i], &add, &sum[i]));
        if (!add && !ls_tape_dry(t)) memset(sum[i], 0, (size_t)C * sizeof(float));
    }
    if (!ls_tape_dry(t)) add_weight(sum[0], sum[1], n->out->grad->data, x->data, mean, mean + N, N, C);
    if (ls_grad_wanted(n->in[2])) LS_TRY(ls_grad_end(t, n->in[2]));
    return ls_grad_wanted(n->in[1]) ? ls_grad_end(t, n->in[1]) : LS_OK;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const float *mean = n->saved;
    const int64_t C = n->in[1]->dim[0], N = ls_tensor_count(x) / C;
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) input(dx, n->out->grad->data, x->data, n->in[1]->data, mean, mean + N, N, C, add);
    return ls_grad_end(t, x);
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0];
    const int64_t C = n->in[1]->dim[0], N = ls_tensor_count(x) / C;
    float *mean; /* only read */
    (void)t;
    memcpy(&mean, &n->saved, sizeof mean);
    forward(n->out->data, mean, mean + N, x->data, n->in[1]->data, n->in[2]->data, N, C, 0.0f, true);
    return LS_OK;
}

static const ls_op layernorm = {
    .name = "layernorm", .napplied = 1, .backward_weight = backward_weight, .backward_input = backward_input,
    .again = again,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, const ls_tensor *b, float eps)
{
    char xs[96], ws[96], bs[96];
    if (x->ndim < 1 || w->ndim != 1 || b->ndim != 1 || w->dim[0] < 1 || x->dim[x->ndim - 1] != w->dim[0] ||
        b->dim[0] != w->dim[0])
        return ls_fail(LS_SHAPE, "layernorm: input %s, weight %s and bias %s: expected [.., C], [C] and [C]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws),
                       ls_tensor_shape(b, bs, sizeof bs));
    if (!(eps > 0.0f)) return ls_fail(LS_INVALID, "layernorm: eps is %g, expected more than 0", (double)eps);
    LS_TRY(ls_op_check(t, "layernorm", "input", x));
    LS_TRY(ls_op_check(t, "layernorm", "weight", w));
    return ls_op_check(t, "layernorm", "bias", b);
}

ls_tensor *ls_layernorm(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, float eps)
{
    if (!ls_op_begin(t, layernorm.name, x && w && b)) return NULL;
    const ls_status st = check(t, x, w, b, eps);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t C = w->dim[0], N = ls_tensor_count(x) / C;
    const double count = (double)(N * C);
    ls_tensor *y = ls_op_output_again(t, LS_F32, x->ndim, x->dim);
    float *mean = y ? ls_op_alloc(t, 2 * (size_t)N * sizeof *mean) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) forward(y->data, mean, mean + N, x->data, w->data, b->data, N, C, eps, false);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &layernorm, .in = { x, w, b }, .saved = mean, .label_a = (uint32_t)N, .label_b = (uint32_t)C,
        .flops = FLOPS_FORWARD * count, .flops_weight = FLOPS_WEIGHT * count, .flops_input = FLOPS_INPUT * count,
    });
}
