/* backward.c -- plays a tape backwards: gradients of activations, and whose turn it is. */
#include <limits.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/tape_impl.h"

/* --- gradients ------------------------------------------------------------------------ */

static LS_ALWAYS_INLINE void add_values(void *restrict to, const void *restrict from, int64_t n, bool bf16)
{
    for (int64_t i = 0; i < n; i++) ls_put(to, i, ls_get(to, i, bf16) + ls_get(from, i, bf16), bf16);
}

LS_KERNEL void ls_grad_add(ls_dtype dtype, void *restrict to, const void *restrict from, int64_t n)
{
    LS_BY_DTYPE(dtype, add_values, to, from, n);
}

static ls_status unlike(const ls_tensor *x)
{
    return ls_fail(LS_INVALID, "backward: the gradient of a tensor of %s is %s, expected the same",
                   ls_dtype_name(x->dtype), ls_dtype_name(x->grad->dtype));
}

static ls_status has_no_memory(void)
{
    return ls_fail(LS_INVALID, "backward: the gradient of a parameter has no memory now: a wrapper lends it for backwards that "
                               "it knows of; call ls_ddp_begin_forward before the forward");
}

/* The gradient of something that the tape made: header and values in one piece of the slab. */
typedef struct gradient {
    ls_tensor t;
    size_t at, nbytes; /* the piece */
} gradient;

#define GRADIENT_BYTES ((sizeof(gradient) + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN)

static ls_tensor *new_gradient(ls_tape *t, const ls_tensor *x, size_t value_bytes)
{
    const size_t nbytes = GRADIENT_BYTES + value_bytes, at = ls_slab_take(&t->room->slab, nbytes);
    if (LS_UNLIKELY(at == LS_SLAB_FULL)) {
        ls_tape_no_room(t, nbytes);
        return NULL;
    }
    gradient *g = ls_tape_node_memory(t, at, sizeof *g);
    if (!g) return NULL;
    *g = (gradient){ .t = { .dtype = x->dtype, .ndim = x->ndim }, .at = at, .nbytes = nbytes };
    memcpy(g->t.dim, x->dim, sizeof g->t.dim);
    g->t.data = t->dry ? NULL : (char *)g + GRADIENT_BYTES;
    return &g->t;
}

/* One that holds it does not need it any more. */
static void let_go(ls_tape *t, ls_tensor *grad)
{
    const gradient *g = (const gradient *)grad;
    if (grad->uses > 0) grad->uses--;
    else ls_slab_give(&t->room->slab, g->at, g->nbytes);
}

ls_status ls_tape_end_above(ls_tape *t, ls_tape_mark mark, ls_tensor *x)
{
    gradient *g = x->node ? (gradient *)x->grad : NULL;
    if (!g || g->at < mark.used) {
        ls_tape_release(t, mark);
        return LS_OK;
    }
    gradient copy = *g;
    ls_tape_release(t, mark);
    copy.at = ls_slab_take(&t->room->slab, copy.nbytes); /* fits: there is more room than before */
    if (!t->dry) memmove(t->room->base + copy.at, g, copy.nbytes);
    if (!(g = ls_tape_node_memory(t, copy.at, sizeof *g))) return t->status;
    copy.t.data = t->dry ? NULL : (char *)g + GRADIENT_BYTES;
    *g = copy;
    x->grad = &g->t;
    return LS_OK;
}

ls_status ls_grad_begin(ls_tape *t, ls_tensor *x, bool *add, void **out)
{
    ls_tensor *const held = x->grad;
    if (x->node && (!held || held->uses > 0)) {
        x->grad = new_gradient(t, x, ls_tensor_room(x));
        if (!x->grad) return t->status;
        if (held) { /* others hold it too, and it must not change for them */
            held->uses--;
            if (!t->dry) memcpy(x->grad->data, held->data, ls_tensor_nbytes(held));
        }
    }
    if (LS_UNLIKELY(x->grad->dtype != x->dtype)) return unlike(x);
    if (LS_UNLIKELY(!x->grad->data && !x->node && !t->dry)) return has_no_memory();
    *add = x->grad_ready;
    *out = x->grad->data;
    return LS_OK;
}

/* Lets x, which has no gradient yet, hold that of n->out, unless more than `others` do. */
static bool hold(const struct ls_node *n, ls_tensor *x, int others)
{
    if (!x->node || x->grad || n->borrowed || n->out->grad->uses > others) return false;
    x->grad = n->out->grad;
    x->grad->uses++;
    return true;
}

ls_status ls_grad_begin_in_place(ls_tape *t, struct ls_node *n, ls_tensor *x, bool *add, void **out)
{
    if (!hold(n, x, 0)) return ls_grad_begin(t, x, add, out);
    *add = false;
    *out = x->grad->data;
    return LS_OK;
}

ls_status ls_grad_pass(ls_tape *t, struct ls_node *n, ls_tensor *x)
{
    if (!hold(n, x, INT_MAX)) {
        const ls_tensor *from = n->out->grad;
        bool add;
        void *out;
        LS_TRY(ls_grad_begin(t, x, &add, &out));
        if (!t->dry && add) ls_grad_add(x->dtype, out, from->data, ls_tensor_count(from));
        if (!t->dry && !add) memcpy(out, from->data, ls_tensor_nbytes(from));
    }
    return ls_grad_end(t, x);
}

ls_status ls_grad_end(ls_tape *t, ls_tensor *x)
{
    x->grad_ready = true;
    x->grad_reduced = false;
    x->uses--;
    if (x->uses == 0 && !x->node && ls_tape_heard(t, LS_HEARS_GRAD_READY)) return ls_tape_tell_grad_ready(t, x);
    return LS_OK;
}

/* --- ops, last to first --------------------------------------------------------------- */

void ls_tape_count_uses(struct ls_node *root, uint32_t first)
{
    ls_tensor *const *in;
    for (struct ls_node *n = root; n; n = n->prev)
        for (int i = ls_tape_inputs(n, &in) - 1; i >= 0; i--)
            if (ls_tape_made_since(in[i], first)) in[i]->uses = 0;
    for (struct ls_node *n = root; n; n = n->prev) { /* every user of n->out comes later on the tape: seen before */
        n->live = n == root || n->out->uses > 0;
        for (int i = ls_tape_inputs(n, &in) - 1; n->live && i >= 0; i--)
            if (ls_grad_wanted(in[i]) && ls_tape_made_since(in[i], first)) in[i]->uses++;
    }
}

ls_status ls_tape_play_half(ls_tape *t, struct ls_node *n, bool weight)
{
    ls_status (*const half)(ls_tape *, struct ls_node *) = weight ? n->op->backward_weight : n->op->backward_input;
    const double flops = weight ? n->flops_weight : n->flops_input;
    ls_tensor *const *in;
    const int count = ls_tape_inputs(n, &in), applied = count < n->op->napplied ? count : n->op->napplied;
    bool wanted = false;
    for (int i = weight ? applied : 0; i < (weight ? count : applied); i++) wanted |= ls_grad_wanted(in[i]);
    if (!half || !wanted) return LS_OK;

    if (LS_UNLIKELY(t->tracer != NULL)) t->op_t0_ns = ls_tracer_now(t->tracer);
    LS_TRY(half(t, n));
    t->flops += flops;
    if (LS_UNLIKELY(t->watched))
        ls_tape_tell_op(t, n, n->out, n->index, weight ? LS_PHASE_BACKWARD_WEIGHT : LS_PHASE_BACKWARD_INPUT);
    return ls_tape_heard(t, LS_HEARS_PROGRESS) ? ls_tape_tell_progress(t) : LS_OK;
}

/* Parameters first: their collective can start while the rest is computed. But what ranks inside a layer exchange in
 * pieces is waited for sooner: it travels during the weight half. */
static ls_status play_halves(ls_tape *t, struct ls_node *n, bool later)
{
    const bool input_first = n->op->hands_on && ls_grad_pieces(n->in[0]) > 1;
    if (input_first) LS_TRY(ls_tape_play_half(t, n, false));
    LS_TRY(later ? ls_tape_defer(t, n) : ls_tape_play_half(t, n, true));
    return input_first ? LS_OK : ls_tape_play_half(t, n, false);
}

static ls_status play_whole(ls_tape *t, const struct ls_node *n)
{
    struct ls_node whole = *n;
    whole.op = n->op->whole;
    whole.flops_input += n->flops_weight;
    return ls_tape_play_half(t, &whole, false);
}

static ls_status play_node(ls_tape *t, struct ls_node *n)
{
    if (n->op->play) return n->op->play(t, n);
    LS_TRY(ls_tape_make_inputs(t, n));
    const bool later = LS_UNLIKELY(t->defer) && ls_tape_defers(t, n);
    LS_TRY(n->op->whole && !later ? play_whole(t, n) : play_halves(t, n, later));
    if (n->made_again) ls_tape_give_back(t, n);
    return LS_OK;
}

/* Marks the leaves of which some contribution is not put off. An op that has one of them among its parameters does its
 * whole weight half at once, so it may take others with it. */
static void mark_at_once(const ls_tape *t, struct ls_node *root, uint32_t first)
{
    ls_tensor *const *in;
    for (struct ls_node *n = root; n && first == 0; n = n->prev)
        for (int i = ls_tape_inputs(n, &in) - 1; i >= 0; i--)
            if (in[i]) in[i]->grad_at_once = false;
    for (bool more = true; more;) {
        more = false;
        for (struct ls_node *n = root; n; n = n->prev) {
            if (!n->live || n->op->play) continue;
            const bool all = !ls_tape_defers(t, n);
            for (int i = ls_tape_inputs(n, &in) - 1; i >= 0; i--) {
                if (!in[i] || in[i]->node || !in[i]->grad || in[i]->grad_at_once) continue;
                if (all || i < n->op->napplied) more = in[i]->grad_at_once = true;
            }
        }
    }
}

ls_status ls_tape_play(ls_tape *t, ls_tensor *root, ls_tensor *grad, bool borrowed, uint32_t first)
{
    ls_status st = LS_OK;
    root->grad = grad;
    root->grad_ready = true;
    root->node->borrowed = borrowed;
    ls_tape_count_uses(root->node, first);
    if (LS_UNLIKELY(t->defer)) mark_at_once(t, root->node, first);
    for (struct ls_node *n = root->node; n; n = n->prev) {
        if (!n->live) continue;
        if (st >= 0 && LS_UNLIKELY(n->unit != t->played_unit)) st = ls_tape_play_unit(t, n->unit);
        if (st >= 0) st = play_node(t, n);
        if (LS_UNLIKELY(st < 0) && n->op->settle) n->op->settle(n);
        if (n->out->grad) let_go(t, n->out->grad);
        n->out->grad = NULL; /* this op reads it no more */
        n->out->grad_ready = false;
    }
    return st;
}

/* What backward makes lies in `work` from here on. */
static ls_tape_mark begin_work(ls_tape *t)
{
    t->room = t->work;
    t->room->slab.floor = t->room->slab.used;
    return ls_tape_mark_now(t);
}

/* Every gradient is there, or this is a failure. */
static ls_status end_work(ls_tape *t, ls_tape_mark mark, ls_status st)
{
    if (st >= 0 && t->played_unit) st = ls_tape_play_unit(t, NULL);
    if (st >= 0 && !t->deferred && ls_tape_heard(t, LS_HEARS_DONE)) st = ls_tape_tell_done(t);
    t->room->slab.floor = 0;
    ls_tape_release(t, mark); /* gradients of activations end here */
    t->room = &t->own;
    t->pending = t->deferred != NULL;
    return st < 0 ? ls_tape_keep_failure(t, st) : LS_OK;
}

static ls_status backward(ls_tape *t, ls_tensor *out, const void *given)
{
    LS_TRY(ls_tape_status(t));
    if (!out || !out->node)
        return ls_tape_keep_failure(t, ls_fail(LS_INVALID, "backward: the tensor %s",
                                       out ? "depends on nothing that wants a gradient "
                                             "(recorded with grad off, or no parameter has one)"
                                           : "is NULL"));
    const ls_tape_mark mark = begin_work(t);
    /* Of a loss the same memory in both cases: a dry run gives none. */
    ls_tensor *grad = new_gradient(t, out, ls_tensor_count(out) == 1 ? ls_tensor_nbytes(out) : 0);
    if (!grad) return t->status;
    if (given) memcpy(&grad->data, &given, sizeof given); /* read only: `borrowed` */
    else if (!t->dry) ls_put(grad->data, 0, 1.0f, out->dtype == LS_BF16);
    if (!t->dry && ls_tensor_count(out) == 1) t->loss_grad = ls_get(grad->data, 0, out->dtype == LS_BF16);
    return end_work(t, mark, ls_tape_play(t, out, grad, given != NULL, 0));
}

static void count_deferred(const ls_tape *t, bool zero)
{
    ls_tensor *const *in;
    for (const ls_deferred *d = t->deferred; d; d = d->next)
        for (int i = ls_tape_inputs(&d->node, &in) - 1; i >= d->node.op->napplied; i--)
            if (ls_grad_wanted(in[i])) in[i]->uses = zero ? 0 : in[i]->uses + 1;
}

ls_status ls_backward_weights(ls_tape *t)
{
    LS_TRY(ls_tape_status(t));
    if (!t->deferred) return LS_OK;
    ls_status st = LS_OK;
    const ls_tape_mark mark = begin_work(t);
    count_deferred(t, true);
    count_deferred(t, false);
    for (ls_deferred *d = t->deferred; d && st >= 0; d = d->next) {
        if (LS_UNLIKELY(d->node.unit != t->played_unit)) st = ls_tape_play_unit(t, d->node.unit);
        if (st >= 0) st = ls_tape_play_half(t, &d->node, true);
    }
    t->deferred = t->newest = NULL;
    st = end_work(t, mark, st);
    if (t->own.slab.used == t->after_used) ls_tape_release(t, (ls_tape_mark){ t->before_used, t->before_dry });
    return st;
}

ls_status ls_backward(ls_tape *t, ls_tensor *loss)
{
    LS_TRY(ls_tape_status(t));
    if (loss && ls_tensor_count(loss) != 1) {
        char shape[96];
        return ls_tape_keep_failure(t, ls_fail(LS_SHAPE, "backward: the loss has shape %s, expected one element (or use "
                                       "ls_backward_from)", ls_tensor_shape(loss, shape, sizeof shape)));
    }
    return backward(t, loss, NULL);
}

void ls_tape_scale_losses(ls_tape *t, float scale) { t->loss_grad = scale; }

ls_status ls_backward_from(ls_tape *t, ls_tensor *out, const void *grad)
{
    if (!grad && t->status == LS_OK) return ls_tape_keep_failure(t, ls_fail(LS_INVALID, "backward: no gradient given"));
    return backward(t, out, grad);
}
