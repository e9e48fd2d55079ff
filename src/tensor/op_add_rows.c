/* op_add_rows.c -- y = x + w[0 .. T) for every sequence: learned positions.
 *
 *   x, y  [.., T, C]   B sequences in all
 *   w     [P, C]       T <= P
 *
 * forward           y  = x + w[0 .. T)           1 flop and 8 bytes an element
 * backward, weight  dw[0 .. T) = sum of dy       1 flop and 4 bytes; over sequences, ascending
 *                   dw[T .. P) = 0
 * backward, input   dx = dy                      no flop, and mostly no byte (ls_grad_pass)
 */
#include <string.h>

#include "base/compiler.h"
#include "tensor/tape.h"

LS_KERNEL static void forward(float *restrict y, const float *restrict x, const float *restrict w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] + w[i];
}

/* Elements of one sequence, and their number. */
static int64_t sequence(const ls_tensor *x, int64_t *B)
{
    const int64_t T = x->dim[x->ndim - 2], C = x->dim[x->ndim - 1];
    *B = 1;
    for (int i = 0; i < x->ndim - 2; i++) *B *= x->dim[i];
    return T * C;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *w = n->in[1];
    int64_t B;
    const int64_t TC = sequence(n->in[0], &B);
    bool add;
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &add, &dw));
    if (!ls_tape_dry(t)) {
        const float *dy = n->out->grad->data;
        if (!add) memset(dw, 0, ls_tensor_nbytes(w));
        for (int64_t b = 0; b < B; b++) ls_grad_add(LS_F32, dw, dy + b * TC, TC);
    }
    return ls_grad_end(t, w);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n) { return ls_grad_pass(t, n, n->in[0]); }

static const ls_op add_rows = {
    .name = "add_rows", .napplied = 1, .backward_weight = backward_weight, .backward_input = backward_input,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w)
{
    char xs[96], ws[96];
    if (x->ndim < 2 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return ls_fail(LS_SHAPE, "add_rows: input %s and rows %s: expected [.., T, C] and [P, C]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    if (x->dim[x->ndim - 2] > w->dim[0])
        return ls_fail(LS_SHAPE, "add_rows: T = %lld of input %s is more than P = %lld of rows %s",
                       (long long)x->dim[x->ndim - 2], ls_tensor_shape(x, xs, sizeof xs), (long long)w->dim[0],
                       ls_tensor_shape(w, ws, sizeof ws));
    LS_TRY(ls_op_check(t, "add_rows", "input", x));
    return ls_op_check(t, "add_rows", "rows", w);
}

ls_tensor *ls_add_rows(ls_tape *t, ls_tensor *x, ls_tensor *w)
{
    if (!ls_op_begin(t, add_rows.name, x && w)) return NULL;
    const ls_status st = check(t, x, w);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, LS_F32, x->ndim, x->dim);
    if (!y) return NULL;
    int64_t B;
    const int64_t TC = sequence(x, &B);
    if (!ls_tape_dry(t)) {
        float *to = y->data;
        const float *from = x->data;
        for (int64_t b = 0; b < B; b++) forward(to + b * TC, from + b * TC, w->data, TC);
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &add_rows, .in = { x, w }, .flops = (double)(B * TC), .flops_weight = (double)(B * TC),
        .label_a = (uint32_t)x->dim[x->ndim - 2], .label_b = (uint32_t)w->dim[1],
    });
}
