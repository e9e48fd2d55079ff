/* op_matmul.c -- y = a b, products of matrices that are both activations.
 *
 *   a  [.., M, K]    b  [.., K, N]    y  [.., M, N]     equal dimensions in front; P products in all
 *
 * forward          y  = a b               2 P M N K flops
 * backward, input  da = dy b^T, db = a^T dy    2 P M N K each
 */
#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/element.h"

typedef struct sizes {
    int64_t products, m, n, k;
} sizes;

static sizes sizes_of(const ls_op_call *c)
{
    const ls_tensor *a = c->in[0], *b = c->in[1];
    sizes s = { 1, a->dim[a->ndim - 2], b->dim[b->ndim - 1], a->dim[a->ndim - 1] };
    for (int i = 0; i < a->ndim - 2; i++) s.products *= a->dim[i];
    return s;
}

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char as[96], bs[96];
    const ls_tensor *a = c->in[0], *b = c->in[1];
    bool fit = a->ndim >= 2 && a->ndim == b->ndim && a->dim[a->ndim - 1] == b->dim[b->ndim - 2];
    for (int i = 0; fit && i < a->ndim - 2; i++) fit = a->dim[i] == b->dim[i];
    if (!fit)
        return ls_fail(LS_SHAPE, "matmul: %s and %s: expected [.., M, K] and [.., K, N], with equal dimensions in front",
                       ls_tensor_shape(a, as, sizeof as), ls_tensor_shape(b, bs, sizeof bs));
    LS_TRY(ls_op_inputs_alike(c, true));
    LS_TRY(ls_op_like(out, a));
    out->dim[a->ndim - 1] = b->dim[b->ndim - 1];
    return LS_OK;
}

static ls_op_work work(const ls_op_call *c)
{
    const sizes s = sizes_of(c);
    const double flops = 2.0 * (double)s.products * (double)s.m * (double)s.n * (double)s.k;
    return (ls_op_work){ .forward = flops, .backward_input = 2.0 * flops };
}

static ls_status forward(const ls_op_call *c)
{
    const sizes s = sizes_of(c);
    const ls_dtype d = c->out->dtype;
    const bool bf16 = d == LS_BF16;
    for (int64_t i = 0; i < s.products; i++)
        LS_TRY(ls_product_run(c, &(ls_product){
            .m = s.m, .n = s.n, .k = s.k, .in = d, .out = d, .a = ls_at_const(c->in[0]->data, i * s.m * s.k, bf16),
            .b = ls_at_const(c->in[1]->data, i * s.k * s.n, bf16), .c = ls_at(c->out->data, i * s.m * s.n, bf16),
        }));
    return LS_OK;
}

static ls_status backward(const ls_op_call *c)
{
    const sizes s = sizes_of(c);
    const ls_dtype d = c->out->dtype;
    const bool bf16 = d == LS_BF16;
    for (int64_t i = 0; i < s.products; i++) {
        const void *dy = ls_at_const(c->dy, i * s.m * s.n, bf16);
        if (c->grad[0].data)
            LS_TRY(ls_product_run(c, &(ls_product){
                .m = s.m, .n = s.k, .k = s.n, .trans_b = true, .add = c->grad[0].add, .in = d, .out = d, .a = dy,
                .b = ls_at_const(c->in[1]->data, i * s.k * s.n, bf16), .c = ls_at(c->grad[0].data, i * s.m * s.k, bf16),
            }));
        if (c->grad[1].data)
            LS_TRY(ls_product_run(c, &(ls_product){
                .m = s.k, .n = s.n, .k = s.m, .trans_a = true, .add = c->grad[1].add, .in = d, .out = d,
                .a = ls_at_const(c->in[0]->data, i * s.m * s.k, bf16), .b = dy,
                .c = ls_at(c->grad[1].data, i * s.k * s.n, bf16),
            }));
    }
    return LS_OK;
}

static const ls_op matmul = {
    .name = "matmul", .least = 2, .most = 2, .applied = 2, .shapes = shapes, .work = work,
    .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_matmul(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    return ls_tape_apply(t, &matmul, (ls_tensor *[]){ a, b }, 2, NULL);
}
