/* op_layernorm.c -- y = (x - mean) rstd w + b over the last dimension. Ba, Kiros and Hinton 2016.
 *
 *   x, y        [.., C]   N rows in all
 *   w, b        [C]      float, also where x is bf16
 *   mean, rstd  [N]       kept; rstd = 1 / sqrt(mean of (x - mean)^2 + eps)
 *
 * With h = (x - mean) rstd and g = dy w:
 *
 * forward           y  = h w + b                            8 flops, a load and a store an element
 * backward, weight  db = sum of rows of dy                  5 flops and 2 loads
 *                   dw = sum of rows of dy h
 * backward, input   dx = rstd (g - mean g - h mean (g h))   14 flops, 2 loads and a store
 *
 * Sums over a row are those of rows.h; sums of rows are in ascending order, in float.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/rows.h"
#include "tensor/share.h"
#include "tensor/tape.h"

#define FLOPS_FORWARD 8.0
#define FLOPS_WEIGHT 5.0
#define FLOPS_INPUT 14.0

typedef struct norm {
    ls_dtype dtype;
    bool add, again;    /* once more: the statistics are there */
    int64_t N, C;
    float eps;
    const void *x, *dy;
    void *out;          /* y or dx; dx may be dy, when not adding */
    const float *w, *b;
    float *mean, *rstd;
    float *dw, *db;     /* either may be NULL */
} norm;

static LS_ALWAYS_INLINE void forward_loop(const norm *k, int64_t first, int64_t end, bool bf16)
{
    const float *const w = k->w, *const b = k->b;
    const void *const x = k->x;
    void *const y = k->out;
    const int64_t C = k->C;
    for (int64_t n = first, at = n * C; n < end; n++, at += C) {
        if (!k->again) {
            k->mean[n] = (float)(ls_row_sum(x, at, C, bf16) / (double)C);
            const double variance = ls_row_squares(x, at, k->mean[n], C, bf16) / (double)C;
            k->rstd[n] = (float)(1.0 / sqrt(variance + (double)k->eps));
        }
        const float m = k->mean[n], r = k->rstd[n];
        LS_INDEPENDENT
        for (int64_t c = 0; c < C; c++) ls_put(y, at + c, (ls_get(x, at + c, bf16) - m) * r * w[c] + b[c], bf16);
    }
}

/* Rows. */
LS_KERNEL static void forward(const void *call, int64_t first, int64_t count)
{
    const norm *k = call;
    LS_BY_DTYPE(k->dtype, forward_loop, k, first, first + count);
}

static LS_ALWAYS_INLINE void weight_loop(const norm *k, int64_t first, int64_t end, bool bf16)
{
    float *const dw = k->dw, *const db = k->db;
    const void *const x = k->x, *const dy = k->dy;
    for (int64_t n = 0, at = 0; n < k->N; n++, at += k->C) {
        const float m = k->mean[n], r = k->rstd[n];
        if (dw && db)
            LS_INDEPENDENT
            for (int64_t c = first; c < end; c++) {
                const float d = ls_get(dy, at + c, bf16);
                db[c] += d;
                dw[c] += d * ((ls_get(x, at + c, bf16) - m) * r);
            }
        else if (db)
            LS_INDEPENDENT
            for (int64_t c = first; c < end; c++) db[c] += ls_get(dy, at + c, bf16);
        else
            LS_INDEPENDENT
            for (int64_t c = first; c < end; c++)
                dw[c] += ls_get(dy, at + c, bf16) * ((ls_get(x, at + c, bf16) - m) * r);
    }
}

/* Columns. */
LS_KERNEL static void weight(const void *call, int64_t first, int64_t count)
{
    const norm *k = call;
    LS_BY_DTYPE(k->dtype, weight_loop, k, first, first + count);
}

static LS_ALWAYS_INLINE void input_loop(const norm *k, int64_t first, int64_t end, bool bf16)
{
    const float *const w = k->w;
    const void *const x = k->x, *const dy = k->dy;
    void *const dx = k->out;
    const int64_t C = k->C;
    for (int64_t n = first, at = n * C; n < end; n++, at += C) {
        const float m = k->mean[n], r = k->rstd[n];
        const float g = (float)(ls_row_dot(dy, at, w, C, bf16) / (double)C);
        const float gh = (float)(ls_row_dot_normed(dy, at, w, x, m, r, C, bf16) / (double)C);
        if (k->add)
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) {
                const float h = (ls_get(x, at + c, bf16) - m) * r;
                const float d = r * (ls_get(dy, at + c, bf16) * w[c] - g - h * gh);
                ls_put(dx, at + c, ls_get(dx, at + c, bf16) + d, bf16);
            }
        else
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) {
                const float h = (ls_get(x, at + c, bf16) - m) * r;
                ls_put(dx, at + c, r * (ls_get(dy, at + c, bf16) * w[c] - g - h * gh), bf16);
            }
    }
}

/* Rows. */
LS_KERNEL static void input(const void *call, int64_t first, int64_t count)
{
    const norm *k = call;
    LS_BY_DTYPE(k->dtype, input_loop, k, first, first + count);
}

static norm describe(const ls_tensor *x, const ls_tensor *w, const void *statistics)
{
    norm k = { .dtype = x->dtype, .C = w->dim[0], .x = x->data, .w = w->data };
    k.N = ls_tensor_count(x) / k.C;
    memcpy(&k.mean, &statistics, sizeof k.mean); /* backward only reads them */
    k.rstd = k.mean ? k.mean + k.N : NULL;
    return k;
}

static norm describe_backward(const struct ls_node *n)
{
    norm k = describe(n->in[0], n->in[1], n->saved);
    k.dy = n->out->grad->data;
    return k;
}

static void run_forward(norm *k, const ls_tensor *b, ls_tensor *y)
{
    k->b = b->data;
    k->out = y->data;
    ls_parallel_for(forward, k, k->N, 1, 2 * (int64_t)ls_tensor_nbytes(y));
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    norm k = describe(n->in[0], n->in[1], n->saved);
    k.again = true;
    if (!ls_tape_dry(t)) run_forward(&k, n->in[2], n->out);
    return LS_OK;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0];
    norm k = describe_backward(n);
    float **const out[2] = { &k.dw, &k.db };
    for (int i = 0; i < 2; i++) {
        bool add;
        void *to;
        if (!ls_grad_wanted(n->in[1 + i])) continue;
        LS_TRY(ls_grad_begin(t, n->in[1 + i], &add, &to));
        if (!add && !ls_tape_dry(t)) memset(to, 0, (size_t)k.C * sizeof(float));
        *out[i] = to;
    }
    if (!ls_tape_dry(t)) ls_share_columns(weight, &k, k.C, 2 * (int64_t)ls_tensor_nbytes(x));
    if (ls_grad_wanted(n->in[2])) LS_TRY(ls_grad_end(t, n->in[2]));
    return ls_grad_wanted(n->in[1]) ? ls_grad_end(t, n->in[1]) : LS_OK;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    norm k = describe_backward(n);
    LS_TRY(ls_grad_begin_in_place(t, n, x, &k.add, &k.out));
    if (!ls_tape_dry(t)) ls_parallel_for(input, &k, k.N, 1, 3 * (int64_t)ls_tensor_nbytes(x));
    return ls_grad_end(t, x);
}

static const ls_tape_op layernorm = {
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
    LS_TRY(ls_op_check_activation(t, "layernorm", "input", x));
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
    ls_tensor *y = ls_op_output_again(t, x->dtype, x->ndim, x->dim);
    float *mean = y ? ls_op_alloc(t, 2 * (size_t)N * sizeof *mean) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        norm k = describe(x, w, mean);
        k.eps = eps;
        run_forward(&k, b, y);
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &layernorm, .in = { x, w, b }, .saved = mean,
        .saved_bytes = (uint32_t)(2 * (size_t)N * sizeof *mean), .label_a = (uint32_t)N, .label_b = (uint32_t)C,
        .flops = FLOPS_FORWARD * count, .flops_weight = FLOPS_WEIGHT * count, .flops_input = FLOPS_INPUT * count,
    });
}
