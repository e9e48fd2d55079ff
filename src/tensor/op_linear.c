/* op_linear.c -- y = x w^T + b, a fully connected layer.
 *
 *   x   [..., I]    N rows in all
 *   w   [O, I]
 *   b   [O]         may be missing
 *   y   [..., O]
 *
 * forward           y  = x w^T + b       [N, I] [I, O]     2 N I O flops
 * backward, weight  db = sum of rows of dy
 *                   dw = dy^T x          [O, N] [N, I]     2 N I O
 * backward, input   dx = dy w            [N, O] [O, I]     2 N I O
 *
 * x is float, or bfloat16: then so are y, dy and dx, and w is read from its bfloat16 copy. b, db and dw are float.
 */
#include <string.h>

#include "base/compiler.h"
#include "tensor/column_sums.h"
#include "tensor/tape.h"

/* What the products read of w. */
static const void *values(const ls_tensor *w, ls_dtype dtype) { return dtype == LS_BF16 ? w->bf16 : w->data; }

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *x = n->in[0], *dy = n->out->grad;
    ls_tensor *w = n->in[1], *b = n->in[2];
    const int64_t O = w->dim[0], I = w->dim[1], N = ls_tensor_count(x) / I;
    bool add;
    void *out;

    if (ls_grad_wanted(b)) {
        LS_TRY(ls_grad_begin(t, b, &add, &out));
        if (!ls_tape_dry(t)) ls_column_sums(out, dy, O, add);
        LS_TRY(ls_grad_end(t, b));
    }
    if (ls_grad_wanted(w)) {
        LS_TRY(ls_grad_begin(t, w, &add, &out));
        const ls_gemm_call dw = {
            .m = O, .n = I, .k = N, .trans_a = true, .add = add, .in = x->dtype, .out = LS_F32,
            .a = dy->data, .b = x->data, .c = out,
        };
        if (!ls_tape_dry(t)) LS_TRY(ls_gemm_run(ls_tape_gemm(t), &dw));
        LS_TRY(ls_grad_end(t, w));
    }
    return LS_OK;
}

typedef ls_status (*take_rows)(void *to, ls_tape *t, ls_tensor *y, ls_range rows);

/* A product of which B is w, in n pieces of its rows, each of which goes to `take`. */
static ls_status in_pieces(ls_tape *t, const ls_gemm_call *whole, const ls_tensor *w, int n, take_rows take, void *to,
                           ls_tensor *y)
{
    const size_t elem = ls_dtype_size(whole->in);
    for (int i = 0; i < n; i++) {
        const ls_range rows = ls_shard_of((size_t)whole->m, i, n);
        ls_gemm_call c = *whole;
        c.m = (int64_t)rows.count;
        if (!ls_tape_dry(t)) {
            c.a = (const char *)whole->a + rows.first * (size_t)whole->k * elem;
            c.c = (char *)whole->c + rows.first * (size_t)whole->n * elem;
        }
        LS_TRY(ls_op_product(t, &c, w, 0));
        LS_TRY(take(to, t, y, rows));
    }
    return LS_OK;
}

/* Rows of x's gradient, to the op that made x. */
static ls_status hand_on(void *to, ls_tape *t, ls_tensor *x, ls_range rows)
{
    (void)to;
    return x->node->op->piece(t, x->node, rows);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const ls_tensor *w = n->in[1], *dy = n->out->grad;
    const int64_t O = w->dim[0], I = w->dim[1], N = ls_tensor_count(x) / I;
    bool add;
    void *out;

    LS_TRY(ls_grad_begin(t, x, &add, &out));
    const ls_gemm_call dx = {
        .m = N, .n = I, .k = O, .add = add, .in = x->dtype, .out = x->dtype,
        .a = dy->data, .b = values(w, x->dtype), .c = out,
    };
    const int pieces = ls_grad_pieces(x);
    LS_TRY(pieces > 1 ? in_pieces(t, &dx, w, pieces, hand_on, NULL, x) : ls_op_product(t, &dx, w, 0));
    return ls_grad_end(t, x);
}

static const ls_tape_op linear = {
    .name = "linear", .napplied = 1, .backward_weight = backward_weight, .backward_input = backward_input, .hands_on = true,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, const ls_tensor *b)
{
    char xs[96], ws[96], bs[96];
    if (x->ndim < 1 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return ls_fail(LS_SHAPE, "linear: input %s and weight %s: expected [..., I] and [O, I]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    if (b && (b->ndim != 1 || b->dim[0] != w->dim[0]))
        return ls_fail(LS_SHAPE, "linear: bias %s and weight %s: expected [O] and [O, I]",
                       ls_tensor_shape(b, bs, sizeof bs), ls_tensor_shape(w, ws, sizeof ws));
    if ((x->dtype != LS_F32 && x->dtype != LS_BF16) || w->dtype != LS_F32 || (b && b->dtype != LS_F32))
        return ls_fail(LS_UNSUPPORTED, "linear: input is %s, weight %s: expected float, or an input of bfloat16",
                       ls_dtype_name(x->dtype), ls_dtype_name(w->dtype));
    if (!ls_tape_dry(t) && x->dtype == LS_F32 && !w->data && w->bf16)
        return ls_fail(LS_UNSUPPORTED, "linear: the input is float, and weight %s is sharded and stands here in bfloat16 "
                       "alone: set `f32` of that parameter", ls_tensor_shape(w, ws, sizeof ws));
    if (!ls_tape_dry(t) && ((x->dtype == LS_F32 && !w->data) || (b && !b->data)))
        return ls_fail(LS_INVALID, "linear: a parameter has no memory yet; call ls_params_bind first");
    if (!ls_tape_dry(t) && x->dtype == LS_BF16 && !w->bf16)
        return ls_fail(LS_UNSUPPORTED, "linear: the input is bfloat16, and the weight has no copy in bfloat16");
    return LS_OK;
}

typedef ls_tensor *(*make_output)(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim);

static ls_status in_pieces_to(ls_tape *t, const ls_gemm_call *c, const ls_tensor *w, const ls_row_pieces *to,
                              ls_tensor *y)
{
    const ls_status made = in_pieces(t, c, w, to->n, to->piece, to->arg, y), ended = to->end(to->arg);
    return made < 0 ? made : ended;
}

/* `to`: NULL, or who takes the product in pieces. */
static ls_tensor *apply(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, make_output output,
                        const ls_row_pieces *to)
{
    if (!ls_op_begin(t, linear.name, x && w)) return NULL;
    const ls_status st = check(t, x, w, b);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t O = w->dim[0], I = w->dim[1], N = ls_tensor_count(x) / I;
    int64_t dim[LS_MAX_DIMS];
    memcpy(dim, x->dim, sizeof dim);
    dim[x->ndim - 1] = O;
    ls_tensor *y = output(t, x->dtype, x->ndim, dim);
    if (!y) return NULL;
    const ls_gemm_call c = {
        .m = N, .n = O, .k = I, .trans_b = true, .in = x->dtype, .out = x->dtype,
        .a = x->data, .b = values(w, x->dtype), .bias = b ? b->data : NULL, .c = y->data,
    };
    const ls_status ran = to ? in_pieces_to(t, &c, w, to, y) : ls_op_product(t, &c, w, 0);
    if (ran < 0) return ls_op_fail(t, ran);
    const double flops = 2.0 * (double)N * (double)I * (double)O;
    return ls_op_end(t, y, &(struct ls_node){
        .op = &linear, .in = { x, w, b }, .label_a = (uint32_t)I, .label_b = (uint32_t)O,
        .flops = flops, .flops_weight = flops, .flops_input = flops,
    });
}

ls_tensor *ls_linear(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b)
{
    return apply(t, x, w, b, ls_op_output, NULL);
}

ls_tensor *ls_linear_transient(ls_tape *t, ls_tensor *x, ls_tensor *w)
{
    return apply(t, x, w, NULL, ls_op_output_transient, NULL);
}

ls_tensor *ls_linear_in_pieces(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_row_pieces *to)
{
    return apply(t, x, w, NULL, ls_op_output, to);
}
