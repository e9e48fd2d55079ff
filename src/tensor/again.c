/* again.c -- single results that are dropped after forward and made again when backward needs them (recompute.c). */
#include "base/compiler.h"
#include "tensor/tape_impl.h"

void ls_tape_give_back(ls_tape *t, struct ls_node *n)
{
    ls_slab_give(&t->room->slab, n->out_at, n->out_bytes);
    n->out->data = NULL;
    n->given_back = true;
    n->made_again = false;
}

void ls_tape_drop(ls_tape *t, ls_tensor *x)
{
    if (ls_tape_leaves_holes(t) && x->node) ls_tape_give_back(t, x->node);
}

static ls_status make_again(ls_tape *t, struct ls_node *n)
{
    LS_TRY(ls_tape_make_inputs(t, n));
    n->out_at = ls_slab_take(&t->room->slab, n->out_bytes);
    if (n->out_at == LS_SLAB_FULL)
        return ls_fail(LS_NO_MEMORY, "tape: %zu bytes to make %s again do not fit: %zu of its %zu bytes are in use",
                       n->out_bytes, n->op->name, t->room->slab.used, t->room->slab.size);
    n->given_back = false;
    n->made_again = true;
    const uint32_t index = t->nops++;
    t->flops_again += n->flops;
    if (LS_UNLIKELY(t->tracer != NULL)) t->op_t0_ns = ls_tracer_now(t->tracer);
    if (!t->dry && n->out_bytes > 0) n->out->data = t->room->base + n->out_at;
    LS_TRY(n->op->again(t, n));
    if (LS_UNLIKELY(t->watched)) ls_tape_tell_op(t, n, n->out, index, LS_PHASE_AGAIN);
    return LS_OK;
}

ls_status ls_tape_make_inputs(ls_tape *t, struct ls_node *n)
{
    ls_tensor *const *in;
    const int count = ls_tape_inputs(n, &in);
    for (int i = 0; i < count; i++)
        if (in[i] && in[i]->node && in[i]->node->given_back && in[i]->node->op->again)
            LS_TRY(make_again(t, in[i]->node));
    return LS_OK;
}
