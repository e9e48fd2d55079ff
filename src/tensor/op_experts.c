/* op_experts.c -- each row times the matrix of its expert (moe.h).
 *
 *   x  [R, I]    rows, in pieces that belong to one expert each
 *   w  the experts' matrices, one below another: [here O, I], or with `transposed` [here I, O]; w_e is one of them
 *   y  [R, O]
 *
 * forward           y_e  = x_e w_e^T      or x_e w_e       2 R I O flops, whatever the number of experts
 * backward, weight  dw_e = dy_e^T x_e     or x_e^T dy_e    2 R I O; 0 for an expert without rows
 * backward, input   dx_e = dy_e w_e       or dy_e w_e^T    2 R I O
 *
 * Types as in op_linear.c. Pieces have other lengths in every step. Where the library prepares a kernel for each length
 * that it sees, a piece is computed in runs whose lengths have few significant bits: so few lengths occur.
 */
#include <string.h>

#include "base/compiler.h"
#include "lockstep/moe.h"
#include "tensor/share.h"
#include "tensor/tape.h"

/* ls_node.saved: all that backward needs of the routing, which is gone when a weight half is put off. */
typedef struct shape {
    bool transposed;
    int64_t I, O;
    int64_t here, rows; /* experts, and rows of all pieces */
    int npieces;
    ls_moe_piece piece[];
} shape;

static const void *matrix(const ls_tensor *w, ls_dtype dtype, int64_t at)
{
    return dtype == LS_BF16 ? (const void *)((const uint16_t *)w->bf16 + at)
                            : (const void *)((const float *)w->data + at);
}

static void *row_of(const ls_tensor *x, int64_t row)
{
    return (char *)x->data + (size_t)(row * x->dim[1]) * ls_dtype_size(x->dtype);
}

/* The product of rows of one expert; `out` is a gradient. */
typedef ls_gemm_call (*product)(const shape *s, const ls_moe_piece *p, const ls_tensor *x, const ls_tensor *w,
                                const ls_tensor *y, void *out, bool add);

static ls_gemm_call forward(const shape *s, const ls_moe_piece *p, const ls_tensor *x, const ls_tensor *w,
                            const ls_tensor *y, void *out, bool add)
{
    (void)out, (void)add;
    return (ls_gemm_call){ .m = p->count,
                           .n = s->O,
                           .k = s->I,
                           .trans_b = !s->transposed,
                           .in = x->dtype,
                           .out = x->dtype,
                           .a = row_of(x, p->first),
                           .b = matrix(w, x->dtype, p->expert * s->I * s->O),
                           .c = row_of(y, p->first) };
}

static ls_gemm_call to_input(const shape *s, const ls_moe_piece *p, const ls_tensor *x, const ls_tensor *w,
                             const ls_tensor *dy, void *out, bool add)
{
    return (ls_gemm_call){ .m = p->count,
                           .n = s->I,
                           .k = s->O,
                           .trans_b = s->transposed,
                           .add = add,
                           .in = x->dtype,
                           .out = x->dtype,
                           .a = row_of(dy, p->first),
                           .b = matrix(w, x->dtype, p->expert * s->I * s->O),
                           .c = (char *)out + (size_t)(p->first * s->I) * ls_dtype_size(x->dtype) };
}

static ls_gemm_call to_weight(const shape *s, const ls_moe_piece *p, const ls_tensor *x, const ls_tensor *w,
                              const ls_tensor *dy, void *out, bool add)
{
    (void)w;
    const void *rows = row_of(x, p->first), *slopes = row_of(dy, p->first);
    return (ls_gemm_call){ .m = s->transposed ? s->I : s->O,
                           .n = s->transposed ? s->O : s->I,
                           .k = p->count,
                           .trans_a = true,
                           .add = add,
                           .in = x->dtype,
                           .out = LS_F32,
                           .a = s->transposed ? rows : slopes,
                           .b = s->transposed ? slopes : rows,
                           .c = (float *)out + p->expert * s->I * s->O };
}

#define FEW_BITS 4 /* of a length: 8 lengths up to twice as many rows; a piece is some three runs */

static int64_t with_few_bits(int64_t n)
{
    int64_t unit = 1;
    while (n / unit >= (int64_t)1 << FEW_BITS) unit *= 2;
    return n / unit * unit;
}

/* The next rows of a piece, *at of which are done; false: none are left. `whole`: all of them. */
static bool next_run(const ls_moe_piece *p, bool whole, int64_t *at, ls_moe_piece *run)
{
    const int64_t left = p->count - *at;
    if (left <= 0) return false;
    *run = (ls_moe_piece){ p->expert, p->first + *at, whole ? left : with_few_bits(left) };
    *at += run->count;
    return true;
}

/* All rows of a piece. `sum`: they are terms of one matrix, so all but the first run are added to it. */
static ls_status multiply(ls_tape *t, product f, const shape *s, const ls_moe_piece *p, const ls_tensor *x,
                          const ls_tensor *w, const ls_tensor *y, void *out, bool add, bool sum)
{
    const ls_gemm_call all = f(s, p, x, w, y, out, add);
    const bool whole = !ls_gemm_prepares(&all);
    ls_moe_piece run;
    for (int64_t at = 0; next_run(p, whole, &at, &run); add |= sum) {
        const ls_gemm_call call = f(s, &run, x, w, y, out, add);
        LS_TRY(ls_op_product(t, &call, NULL, 0));
    }
    return LS_OK;
}

static ls_status each(ls_tape *t, product f, const shape *s, const ls_tensor *x, const ls_tensor *w, const ls_tensor *y,
                      void *out, bool add)
{
    for (int i = 0; i < s->npieces; i++)
        LS_TRY(multiply(t, f, s, &s->piece[i], x, w, y, out, add, false));
    return LS_OK;
}

/* --- the tape's part ------------------------------------------------------------------------ */

static ls_status weights(ls_tape *t, const shape *s, const ls_tensor *x, const ls_tensor *w, const ls_tensor *dy,
                         float *dw, bool add)
{
    for (int64_t e = 0; e < s->here; e++) {
        bool had = add;
        for (int i = 0; i < s->npieces; i++) {
            if (s->piece[i].expert != e || s->piece[i].count == 0) continue;
            LS_TRY(multiply(t, to_weight, s, &s->piece[i], x, w, dy, dw, had, true));
            had = true;
        }
        if (!had) ls_clear(dw + e * s->I * s->O, s->I * s->O);
    }
    return LS_OK;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *w = n->in[1];
    bool add;
    void *out;
    LS_TRY(ls_grad_begin(t, w, &add, &out));
    if (!ls_tape_dry(t)) LS_TRY(weights(t, n->saved, n->in[0], w, n->out->grad, out, add));
    return ls_grad_end(t, w);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    const shape *s = n->saved;
    ls_tensor *x = n->in[0];
    bool add;
    void *out;
    LS_TRY(ls_grad_begin(t, x, &add, &out));
    if (!ls_tape_dry(t)) {
        if (s->rows == 0 && !add) memset(out, 0, ls_tensor_nbytes(x)); /* the row that stands for none */
        LS_TRY(each(t, to_input, s, x, n->in[1], n->out->grad, out, add));
    }
    return ls_grad_end(t, x);
}

static const ls_tape_op experts = {
    .name = "experts",
    .napplied = 1,
    .backward_weight = backward_weight,
    .backward_input = backward_input,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, const ls_routing *r, bool transposed)
{
    char xs[96], ws[96];
    const int64_t rows = w->dim[0];
    if (x->ndim != 2 || w->ndim != 2 || rows % r->here != 0 || x->dim[1] != (transposed ? rows / r->here : w->dim[1]))
        return ls_fail(LS_SHAPE, "experts: rows %s and matrices %s of %lld experts: expected [R, I] and [%lld %s]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws), (long long)r->here,
                       (long long)r->here, transposed ? "I, O" : "O, I");
    LS_TRY(ls_op_check_activation(t, "experts", "rows", x));
    if (ls_tape_dry(t)) return LS_OK;
    if (x->dtype == LS_F32) return ls_op_check(t, "experts", "matrices", w);
    return w->bf16
               ? LS_OK
               : ls_fail(LS_UNSUPPORTED, "experts: the rows are bfloat16, and the matrices have no copy in bfloat16");
}

ls_tensor *ls_experts(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_routing *r, bool transposed)
{
    if (!ls_op_begin(t, experts.name, x && w && r)) return NULL;
    ls_status st = check(t, x, w, r, transposed);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t R = x->dim[0], I = x->dim[1], O = transposed ? w->dim[1] : w->dim[0] / r->here;
    ls_tensor *y = ls_op_output(t, x->dtype, 2, (int64_t[]){ R, O });
    const size_t pieces = (size_t)r->npieces * sizeof *r->piece;
    shape *s = y ? ls_tape_take_node(t, sizeof *s + pieces) : NULL;
    if (!s) return NULL;
    *s = (shape){ transposed, I, O, r->here, r->rows, r->npieces };
    memcpy(s->piece, r->piece, pieces);
    if (!ls_tape_dry(t)) {
        if (r->rows == 0) memset(y->data, 0, ls_tensor_nbytes(y));
        st = each(t, forward, s, x, w, y, NULL, false);
        if (st < 0) return ls_op_fail(t, st);
    }
    const double flops = 2.0 * (double)R * (double)I * (double)O;
    return ls_op_end(t, y,
                     &(struct ls_node){
                         .op = &experts,
                         .in = { x, w },
                         .saved = s,
                         .saved_bytes = (uint32_t)(sizeof *s + pieces),
                         .label_a = (uint32_t)I,
                         .label_b = (uint32_t)O,
                         .flops = flops,
                         .flops_weight = flops,
                         .flops_input = flops,
                     });
}
