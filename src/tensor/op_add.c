/* op_add.c -- y = a + b, equal shapes: a residual connection.
 *
 * forward          y  = a + b    1 flop and 3 loads or stores an element
 * backward, input  da = dy       no flop, and no byte while a and b can both hold the
 *                  db = dy       memory of dy (ls_grad_pass); 3 loads or stores where one adds
 *
 * What a gets besides (the branch of a residual adds to the trunk) comes after the
 * branch has read its dy, so in a transformer nothing is ever copied.
 */
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

typedef struct sum {
    ls_dtype dtype;
    void *y;
    const void *a, *b;
} sum;

static LS_ALWAYS_INLINE void loop(const sum *s, int64_t first, int64_t end, bool bf16)
{
    void *const y = s->y;
    const void *const a = s->a, *const b = s->b;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) ls_put(y, i, ls_get(a, i, bf16) + ls_get(b, i, bf16), bf16);
}

LS_KERNEL static void forward(const void *call, int64_t first, int64_t count)
{
    const sum *s = call;
    LS_BY_DTYPE(s->dtype, loop, s, first, first + count);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    for (int i = 0; i < 2; i++)
        if (ls_grad_wanted(n->in[i])) LS_TRY(ls_grad_pass(t, n, n->in[i]));
    return LS_OK;
}

static double bytes(const struct ls_node *n, const ls_tensor *out, ls_tape_phase phase)
{
    (void)n;
    return phase == LS_PHASE_BACKWARD_INPUT ? 0.0 : 3.0 * (double)ls_tensor_nbytes(out);
}

static const ls_tape_op add = { .name = "add", .napplied = 2, .backward_input = backward_input, .bytes = bytes };

static ls_status check(const ls_tape *t, const ls_tensor *a, const ls_tensor *b)
{
    char as[96], bs[96];
    if (!ls_tensor_same_shape(a, b))
        return ls_fail(LS_SHAPE, "add: %s and %s: expected equal shapes", ls_tensor_shape(a, as, sizeof as),
                       ls_tensor_shape(b, bs, sizeof bs));
    LS_TRY(ls_op_check_activation(t, "add", "first input", a));
    LS_TRY(ls_op_check_activation(t, "add", "second input", b));
    return ls_op_check_alike("add", a, b);
}

ls_tensor *ls_add(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    if (!ls_op_begin(t, add.name, a && b)) return NULL;
    const ls_status st = check(t, a, b);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, a->dtype, a->ndim, a->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(a);
    if (!ls_tape_dry(t))
        ls_parallel_for(forward, &(sum){ a->dtype, y->data, a->data, b->data }, n, LS_SHARE_LINE,
                 3 * (int64_t)ls_tensor_nbytes(a));
    return ls_op_end(t, y, &(struct ls_node){ .op = &add, .in = { a, b }, .flops = (double)n, .label_a = (uint32_t)n });
}
