/* op_last_logits.c -- the logits after the last token of each sequence: what generation samples from.
 *
 *   x   [B, T, C] or [T, C] (B = 1)
 *   w   [V, C]
 *   y   [B, V] = x[:, T - 1, :] w^T      2 B C V flops; for B = 1 it takes as long as reading w
 *
 * Where x is bfloat16, w is read from its bfloat16 copy; y is float.
 * No gradient goes through it.
 */
#include <string.h>

#include "tensor/tape.h"

static const ls_tape_op last_logits = { .name = "last_logits" };

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w)
{
    char xs[96], ws[96];
    if (x->ndim < 2 || x->ndim > 3 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return ls_fail(LS_SHAPE, "last_logits: input %s and weight %s: expected [B, T, C] and [V, C]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    if ((x->dtype != LS_F32 && x->dtype != LS_BF16) || w->dtype != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "last_logits: input is %s, weight %s: expected float, or an input of bfloat16",
                       ls_dtype_name(x->dtype), ls_dtype_name(w->dtype));
    if (!ls_tape_dry(t) && x->dtype == LS_BF16 && !w->bf16)
        return ls_fail(LS_UNSUPPORTED, "last_logits: the input is bfloat16, and the weight has no copy in bfloat16");
    if (ls_tape_grad(t) && (ls_grad_wanted(x) || ls_grad_wanted(w)))
        return ls_fail(LS_UNSUPPORTED, "last_logits: no gradient goes through it; call ls_tape_set_grad(tape, false)");
    return LS_OK;
}

ls_tensor *ls_last_logits(ls_tape *t, ls_tensor *x, ls_tensor *w)
{
    if (!ls_op_begin(t, last_logits.name, x && w)) return NULL;
    ls_status st = check(t, x, w);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t V = w->dim[0], C = w->dim[1], T = x->dim[x->ndim - 2], B = x->ndim == 3 ? x->dim[0] : 1;
    ls_tensor *y = ls_op_output(t, LS_F32, 2, (const int64_t[]){ B, V });
    if (!y) return NULL;
    const size_t mark = ls_op_mark(t);
    const size_t row = (size_t)C * ls_dtype_size(x->dtype);
    char *last = ls_op_alloc(t, (size_t)B * row);
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        const char *from = x->data;
        for (int64_t b = 0; b < B; b++) memcpy(last + (size_t)b * row, from + (size_t)(b * T + T - 1) * row, row);
        st = ls_gemm_run(ls_tape_gemm(t), &(ls_gemm_call){
            .m = B, .n = V, .k = C, .trans_b = true, .in = x->dtype, .out = LS_F32,
            .a = last, .b = x->dtype == LS_BF16 ? w->bf16 : w->data, .c = y->data,
        });
        if (st < 0) return ls_op_fail(t, st);
    }
    ls_op_release(t, mark);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &last_logits, .in = { x, w }, .label_a = (uint32_t)C, .label_b = (uint32_t)V,
        .flops = 2.0 * (double)B * (double)C * (double)V,
    });
}
