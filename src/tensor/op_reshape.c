/* op_reshape.c -- the same values under another shape: y[..] = x[..], with as many elements.
 *
 * Nothing is computed or copied: y has x's memory, and x gets the memory of dy.
 */
#include "tensor/tape.h"

static ls_status backward_input(ls_tape *t, struct ls_node *n) { return ls_grad_pass(t, n, n->in[0]); }

static ls_status again(ls_tape *t, struct ls_node *n) /* x may lie elsewhere now */
{
    (void)t;
    n->out->data = n->in[0]->data;
    return LS_OK;
}

static double bytes(const struct ls_node *n, const ls_tensor *out, ls_tape_phase phase)
{
    (void)n;
    (void)out;
    (void)phase;
    return 0.0;
}

static const ls_tape_op reshape = {
    .name = "reshape", .napplied = 1, .backward_input = backward_input, .again = again, .bytes = bytes,
};

ls_tensor *ls_reshape(ls_tape *t, ls_tensor *x, int ndim, const int64_t *dim)
{
    if (!ls_op_begin(t, reshape.name, x != NULL)) return NULL;
    ls_tensor *y = ls_tape_input(t, x->dtype, ndim, dim, x->data);
    if (!y) return NULL;
    char xs[96], ys[96];
    if (ls_tensor_count(x) != ls_tensor_count(y))
        return ls_op_fail(t, ls_fail(LS_SHAPE, "reshape: %s to %s: expected as many elements",
                                     ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(y, ys, sizeof ys)));
    return ls_op_end(t, y, &(struct ls_node){ .op = &reshape, .in = { x } });
}
