/* defer.c -- weight halves of backward that are put off.
 *
 * A weight half reads dy, what the op was applied to, and what the op saved. Of these dy goes when backward has passed
 * the op; the others stay in the tape's own memory, unless a block or a single result was made again for backward: then
 * they are copied, on top of what forward keeps, and once for all ops that read the same.
 *
 * What has to be copied follows from where a header lies, never from where its data do: a dry tape decides the same.
 */
#include <string.h>

#include "base/compiler.h"
#include "tensor/tape_impl.h"

#define LOOK_BACK 8 /* ops: those of one layer that read the same input are neighbours */

ls_status ls_tape_defer_weights(ls_tape *t, bool on)
{
    if (on && t->work == &t->own)
        return ls_fail(LS_INVALID, "tape: weight halves can be put off on tapes with shared scratch memory only: "
                       "create the tape by ls_tape_create_shared");
    t->defer = on;
    return LS_OK;
}

bool ls_tape_may_defer(const ls_tape *t) { return t->work != &t->own && !t->in_block; }

bool ls_tape_defers(const ls_tape *t, const struct ls_node *n)
{
    ls_tensor *const *in;
    const int count = ls_tape_inputs(n, &in);
    bool wanted = false;
    (void)t;
    for (int i = n->op->napplied; i < count; i++) {
        if (!ls_grad_wanted(in[i])) continue;
        if (in[i]->node || in[i]->grad_at_once) return false;
        wanted = true;
    }
    return wanted && n->op->backward_weight;
}

static ls_tensor *copy_of(ls_tape *t, const ls_tensor *x)
{
    ls_tensor *c = ls_tape_take_node(t, sizeof *c);
    void *data = c ? ls_op_alloc(t, ls_tensor_room(x)) : NULL;
    if (t->status < 0) return NULL;
    *c = *x;
    c->data = data;
    c->node = NULL;
    c->grad = NULL;
    if (!t->dry) memcpy(data, x->data, ls_tensor_nbytes(x));
    return c;
}

ls_tensor *ls_tape_kept(ls_tape *t, ls_tensor *x)
{
    const bool here = x && ls_room_holds(t->work, x); /* in a block that was run again */
    if (!x || !(here || (x->node && x->node->made_again))) return x;
    const ls_deferred *d = t->newest;
    for (int k = 0; d && k < LOOK_BACK; k++, d = d->before)
        for (int i = 0; i < d->ncopies; i++)
            if (d->from[i] == x && (!here || d->replays == t->replays)) return d->copy[i];
    ls_tensor *c = copy_of(t, x);
    ls_deferred *newest = t->newest;
    if (!c || newest->ncopies > LS_OP_MOST_INPUTS) return c;
    newest->from[newest->ncopies] = x;
    newest->copy[newest->ncopies++] = c;
    return c;
}

static ls_status keep(ls_tape *t, const struct ls_node *n)
{
    if (!t->deferred) {
        t->before_used = t->own.slab.used;
        t->before_dry = t->own.dry_used;
    }
    ls_deferred *d = ls_tape_take_node(t, sizeof *d);
    if (!d) return t->status;
    *d = (ls_deferred){ .node = *n, .out = *n->out, .before = t->newest, .replays = t->replays };
    if (t->newest) t->newest->next = d;
    else t->deferred = d;
    t->newest = d;

    const ls_tensor *dy = copy_of(t, n->out->grad);
    if (!dy) return t->status;
    d->dy = *dy;
    for (int i = 0; i < LS_OP_INPUTS && i < n->op->napplied; i++) d->node.in[i] = ls_tape_kept(t, n->in[i]);
    if (n->saved_bytes > 0 && ls_room_holds(t->work, n)) {
        void *saved = ls_op_alloc(t, n->saved_bytes);
        if (t->status >= 0 && !t->dry) memcpy(saved, n->saved, n->saved_bytes);
        d->node.saved = saved;
    }
    if (n->op->keep) {
        if (ls_room_holds(t->work, n->out)) {
            const ls_tensor *out = ls_tape_kept(t, n->out);
            if (out) d->out = *out;
        }
        LS_TRY(n->op->keep(t, &d->node));
    }
    d->out.grad = &d->dy;
    d->out.node = NULL;
    d->node.out = &d->out;
    t->after_used = t->own.slab.used;
    return t->status;
}

ls_status ls_tape_defer(ls_tape *t, const struct ls_node *n)
{
    t->room = &t->own;
    const ls_status st = keep(t, n);
    t->room = t->work;
    return st;
}
