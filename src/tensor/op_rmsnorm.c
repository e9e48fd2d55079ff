/* op_rmsnorm.c -- y = x rstd w over the last dimension. Zhang and Sennrich 2019.
 *
 *   x, y  [.., C]   N rows in all
 *   w     [C]      float, also where x is bf16
 *   rstd  [N]       kept; 1 / sqrt(mean of x^2 + eps)
 *
 * With h = x rstd and g = dy w:
 *
 * forward           y  = h w                       4 flops, a load and a store an element
 * backward, weight  dw = sum of rows of dy h       3 flops and 2 loads
 * backward, input   dx = rstd (g - h mean (g h))   10 flops, 2 loads and a store
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

#define FLOPS_FORWARD 4.0
#define FLOPS_WEIGHT 3.0
#define FLOPS_INPUT 10.0

typedef struct norm {
    ls_dtype dtype;
    bool add, again; /* once more: rstd is there */
    int64_t N, C;
    float eps;
    const void *x, *dy;
    void *out;      /* y or dx; dx may be dy, when not adding */
    const float *w;
    float *rstd, *dw;
} norm;

static LS_ALWAYS_INLINE void forward_loop(const norm *k, int64_t first, int64_t end, bool bf16)
{
    const float *const w = k->w;
    const void *const x = k->x;
    void *const y = k->out;
    const int64_t C = k->C;
    for (int64_t n = first, at = n * C; n < end; n++, at += C) {
        if (!k->again) {
            const double mean_square = ls_row_squares(x, at, 0.0f, C, bf16) / (double)C;
            k->rstd[n] = (float)(1.0 / sqrt(mean_square + (double)k->eps));
        }
        const float r = k->rstd[n];
        LS_INDEPENDENT
        for (int64_t c = 0; c < C; c++) ls_put(y, at + c, ls_get(x, at + c, bf16) * r * w[c], bf16);
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
    float *const dw = k->dw;
    const void *const x = k->x, *const dy = k->dy;
    for (int64_t n = 0, at = 0; n < k->N; n++, at += k->C) {
        const float r = k->rstd[n];
        LS_INDEPENDENT
        for (int64_t c = first; c < end; c++) dw[c] += ls_get(dy, at + c, bf16) * (ls_get(x, at + c, bf16) * r);
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
        const float r = k->rstd[n];
        const float gh = (float)(ls_row_dot_normed(dy, at, w, x, 0.0f, r, C, bf16) / (double)C);
        if (k->add)
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++) {
                const float d = r * (ls_get(dy, at + c, bf16) * w[c] - ls_get(x, at + c, bf16) * r * gh);
                ls_put(dx, at + c, ls_get(dx, at + c, bf16) + d, bf16);
            }
        else
            LS_INDEPENDENT
            for (int64_t c = 0; c < C; c++)
                ls_put(dx, at + c, r * (ls_get(dy, at + c, bf16) * w[c] - ls_get(x, at + c, bf16) * r * gh), bf16);
    }
}

/* Rows. */
LS_KERNEL static void input(const void *call, int64_t first, int64_t count)
{
    const norm *k = call;
    LS_BY_DTYPE(k->dtype, input_loop, k, first, first + count);
}

static norm describe(const ls_tensor *x, const ls_tensor *w, const void *rstd)
{
    norm k = { .dtype = x->dtype, .C = w->dim[0], .x = x->data, .w = w->data };
    k.N = ls_tensor_count(x) / k.C;
    memcpy(&k.rstd, &rstd, sizeof k.rstd); /* backward only reads it */
    return k;
}

static norm describe_backward(const struct ls_node *n)
{
    norm k = describe(n->in[0], n->in[1], n->saved);
    k.dy = n->out->grad->data;
    return k;
}

static void run_forward(norm *k, ls_tensor *y)
{
    k->out = y->data;
    ls_parallel_for(forward, k, k->N, 1, 2 * (int64_t)ls_tensor_nbytes(y));
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    norm k = describe(n->in[0], n->in[1], n->saved);
    k.again = true;
    if (!ls_tape_dry(t)) run_forward(&k, n->out);
    return LS_OK;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *w = n->in[1];
    norm k = describe_backward(n);
    bool add;
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &add, &dw));
    if (!ls_tape_dry(t)) {
        k.dw = dw;
        if (!add) memset(dw, 0, (size_t)k.C * sizeof *k.dw);
        ls_share_columns(weight, &k, k.C, 2 * (int64_t)ls_tensor_nbytes(n->in[0]));
    }
    return ls_grad_end(t, w);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    norm k = describe_backward(n);
    LS_TRY(ls_grad_begin_in_place(t, n, x, &k.add, &k.out));
    if (!ls_tape_dry(t)) ls_parallel_for(input, &k, k.N, 1, 3 * (int64_t)ls_tensor_nbytes(x));
    return ls_grad_end(t, x);
}

static const ls_tape_op rmsnorm = {
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
    LS_TRY(ls_op_check_activation(t, "rmsnorm", "input", x));
    return ls_op_check(t, "rmsnorm", "weight", w);
}

ls_tensor *ls_rmsnorm(ls_tape *t, ls_tensor *x, ls_tensor *w, float eps)
{
    if (!ls_op_begin(t, rmsnorm.name, x && w)) return NULL;
    const ls_status st = check(t, x, w, eps);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t C = w->dim[0], N = ls_tensor_count(x) / C;
    const double count = (double)(N * C);
    ls_tensor *y = ls_op_output_again(t, x->dtype, x->ndim, x->dim);
    float *rstd = y ? ls_op_alloc(t, (size_t)N * sizeof *rstd) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        norm k = describe(x, w, rstd);
        k.eps = eps;
        run_forward(&k, y);
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &rmsnorm, .in = { x, w }, .saved = rstd,
        .saved_bytes = (uint32_t)((size_t)N * sizeof *rstd), .label_a = (uint32_t)N, .label_b = (uint32_t)C,
        .flops = FLOPS_FORWARD * count, .flops_weight = FLOPS_WEIGHT * count, .flops_input = FLOPS_INPUT * count,
    });
}
