/* op_add_bias.c -- y = x + b for every row, in x's memory: the bias of a layer whose ranks add up their products first.
 *
 *   x, y  [.., O]   N rows in all
 *   b     [O]       float, also where x is bf16
 *
 * forward           y  = x + b               1 flop, a load and a store an element
 * backward, weight  db = sum of rows of dy   1 flop and a load
 * backward, input   dx = dy                  no flop, and mostly no byte (ls_grad_pass)
 */
#include "base/compiler.h"
#include "tensor/column_sums.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

typedef struct sums {
    ls_dtype dtype;
    int64_t O;
    void *x;
    const float *b;
} sums;

static LS_ALWAYS_INLINE void loop(const sums *s, int64_t first, int64_t end, bool bf16)
{
    const float *restrict b = s->b;
    for (int64_t n = first; n < end; n++) {
        void *const x = s->x;
        const int64_t at = n * s->O;
        LS_INDEPENDENT
        for (int64_t o = 0; o < s->O; o++) ls_put(x, at + o, ls_get(x, at + o, bf16) + b[o], bf16);
    }
}

/* Rows. */
LS_KERNEL static void add(const void *call, int64_t first, int64_t count)
{
    const sums *s = call;
    LS_BY_DTYPE(s->dtype, loop, s, first, first + count);
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *b = n->in[1];
    const ls_tensor *dy = n->out->grad;
    bool adds;
    void *db;
    LS_TRY(ls_grad_begin(t, b, &adds, &db));
    if (!ls_tape_dry(t)) ls_column_sums(db, dy, b->dim[0], adds);
    return ls_grad_end(t, b);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n) { return ls_grad_pass(t, n, n->in[0]); }

static const ls_tape_op add_bias = {
    .name = "add_bias",
    .napplied = 1,
    .backward_weight = backward_weight,
    .backward_input = backward_input,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *b)
{
    char xs[96], bs[96];
    if (x->ndim < 1 || b->ndim != 1 || x->dim[x->ndim - 1] != b->dim[0])
        return ls_fail(LS_SHAPE, "add_bias: input %s and bias %s: expected [.., O] and [O]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(b, bs, sizeof bs));
    LS_TRY(ls_op_check_activation(t, "add_bias", "input", x));
    return ls_op_check(t, "add_bias", "bias", b);
}

ls_tensor *ls_add_bias(ls_tape *t, ls_tensor *x, ls_tensor *b)
{
    if (!ls_op_begin(t, add_bias.name, x && b)) return NULL;
    const ls_status st = check(t, x, b);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_tape_input(t, x->dtype, x->ndim, x->dim, x->data);
    if (!y) return NULL;
    const int64_t O = b->dim[0], N = ls_tensor_count(x) / O;
    if (!ls_tape_dry(t))
        ls_parallel_for(add, &(sums){ x->dtype, O, y->data, b->data }, N, 1, 2 * (int64_t)ls_tensor_nbytes(x));
    return ls_op_end(t, y,
                     &(struct ls_node){
                         .op = &add_bias,
                         .in = { x, b },
                         .flops = (double)(N * O),
                         .flops_weight = (double)(N * O),
                         .label_a = (uint32_t)O,
                     });
}
