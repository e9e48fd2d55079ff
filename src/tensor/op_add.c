/* op_add.c -- y = a + b, equal shapes: a residual connection.
 *
 * forward          y  = a + b    1 flop and 12 bytes an element
 * backward, input  da = dy       no flop, and no byte while a and b can both hold the
 *                  db = dy       memory of dy (ls_grad_pass); 12 bytes where one adds
 *
 * What a gets besides (the branch of a residual adds to the trunk) comes after the
 * branch has read its dy, so in a transformer nothing is ever copied.
 */
#include "base/compiler.h"
#include "tensor/tape.h"

LS_KERNEL static void forward(float *restrict y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    for (int i = 0; i < 2; i++)
        if (ls_grad_wanted(n->in[i])) LS_TRY(ls_grad_pass(t, n, n->in[i]));
    return LS_OK;
}

static const ls_op add = { .name = "add", .napplied = 2, .backward_input = backward_input };

static ls_status check(const ls_tape *t, const ls_tensor *a, const ls_tensor *b)
{
    char as[96], bs[96];
    if (!ls_tensor_same_shape(a, b))
        return ls_fail(LS_SHAPE, "add: %s and %s: expected equal shapes", ls_tensor_shape(a, as, sizeof as),
                       ls_tensor_shape(b, bs, sizeof bs));
    LS_TRY(ls_op_check(t, "add", "first input", a));
    return ls_op_check(t, "add", "second input", b);
}

ls_tensor *ls_add(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    if (!ls_op_begin(t, add.name, a && b)) return NULL;
    const ls_status st = check(t, a, b);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, LS_F32, a->ndim, a->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(a);
    if (!ls_tape_dry(t)) forward(y->data, a->data, b->data, n);
    return ls_op_end(t, y, &(struct ls_node){ .op = &add, .in = { a, b }, .flops = (double)n, .label_a = (uint32_t)n });
}
