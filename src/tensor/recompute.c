/* recompute.c -- blocks, and what of their activations stays until backward.
 *
 * With A the bytes that a block keeps for backward, x those of its input, and s those of the results
 * that are cheap to make again, L equal blocks hold at the end of forward
 *
 *   none        L A; memory of gathered inputs (tape.h: transient) is released after each block, in each of the three
 *   selective   L (A - s), and s once: where the next block finds room
 *   full        L x, and A once: while a block is played backwards
 *
 * In full, a node of the tape stands for the whole block. Forward runs it as always, notes which
 * leaves it reads, moves its result down to where it began and forgets the rest. Backward runs it
 * again and plays that. Everything is computed by the same calls from the same values, so gradients
 * are equal to the bit; a leaf's last contribution comes at the same place in the order.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/tape_impl.h"

static const char *const names[] = { "none", "selective", "full" };

ls_status ls_recompute_find(const char *name, ls_recompute *out)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (ls_recompute)i;
            return LS_OK;
        }
    return ls_fail(LS_BAD_CONFIG, "train.recompute: '%s'; expected none, selective or full", name);
}

const char *ls_recompute_name(ls_recompute how) { return names[how]; }

void ls_tape_logits_in_forward(ls_tape *t, bool on) { t->logits_in_forward = on; }

bool ls_tape_has_logits_in_forward(const ls_tape *t) { return t->logits_in_forward && !t->in_block; }

void ls_tape_set_recompute(ls_tape *t, ls_recompute how) { t->recompute = how; }

/* --- none and selective: some results ---------------------------------------------------- */

/* Whether n->out, or what it has its memory from, is of an op whose results do not stay. */
static bool is_transient(const struct ls_node *n)
{
    while (n && n->op->again && n->out_bytes == 0) n = n->in[0]->node;
    return n && n->op->again && n->op->transient;
}

static ls_tensor *forward_in_part(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *arg)
{
    const bool all = t->recompute == LS_RECOMPUTE_SELECTIVE;
    const struct ls_node *before = t->last;
    t->in_block = true;
    ls_tensor *y = fn(t, x, arg);
    t->in_block = false;
    const ls_tensor *result = y; /* and what it has its memory from */
    for (struct ls_node *n = y ? t->last : NULL; n && n != before; n = n->prev) {
        if (!n->op->again) continue;
        if (n->out == result) {
            if (n->out_bytes == 0) result = n->in[0];
        } else if (all || is_transient(n)) {
            ls_tape_give_back(t, n);
        }
    }
    return y;
}

/* --- full: one block -------------------------------------------------------------------- */

typedef struct block {
    ls_block_fn fn;
    const void *arg;
    ls_tensor **leaf; /* what its ops take from outside and want a gradient for, once for each time */
    int nleaves;
} block;

static int leaves_of(const struct ls_node *n, ls_tensor *const **leaf)
{
    const block *b = n->saved;
    *leaf = b->leaf;
    return b->nleaves;
}

static ls_status play_block(ls_tape *t, struct ls_node *n);

static const ls_tape_op block_op = { .name = "block", .napplied = 1, .play = play_block, .inputs = leaves_of };

static ls_status add_leaf(ls_tape *t, ls_tensor *x)
{
    if (t->nleaves == t->leaves_cap) {
        const int cap = t->leaves_cap ? 2 * t->leaves_cap : 64;
        ls_tensor **more = realloc(t->leaves, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of a block's leaves");
        t->leaves = more;
        t->leaves_cap = cap;
    }
    t->leaves[t->nleaves++] = x;
    return LS_OK;
}

/* Of the ops since `first` that lead to root. */
static ls_status find_leaves(ls_tape *t, struct ls_node *root, const ls_tensor *x, uint32_t first)
{
    t->nleaves = 0;
    ls_tape_count_uses(root, first);
    for (struct ls_node *n = root; n; n = n->prev) {
        ls_tensor *const *in;
        const int count = ls_tape_inputs(n, &in);
        for (int i = 0; n->live && i < count; i++) {
            if (!ls_grad_wanted(in[i]) || (in[i]->node && in[i]->node->index >= first)) continue;
            if (in[i]->node && in[i] != x)
                return ls_fail(LS_INVALID, "block: %s takes a result of %s from outside the block: only the block's input, "
                               "parameters and leaves without a gradient may be", n->op->name, in[i]->node->op->name);
            LS_TRY(add_leaf(t, in[i]));
        }
    }
    return LS_OK;
}

/* What a block makes in forward lies in `work` from here on, */
static ls_tape_mark begin_block(ls_tape *t)
{
    t->room = t->work;
    t->in_block = true;
    return ls_tape_mark_now(t);
}

/* and ends there; of y, which stays, there is a copy where it was made since the mark. */
static ls_tensor *end_block(ls_tape *t, ls_tensor *y, ls_tape_mark mark)
{
    const char *limit = t->room->base + (t->dry ? mark.dry_used : mark.used);
    const bool made_before = ls_room_holds(&t->own, y) && (t->work != &t->own || (const char *)y < limit);
    const ls_tensor was = *y;
    ls_tape_release(t, mark);
    t->room = &t->own;
    if (made_before) return y; /* an input of the block */
    ls_tensor *kept = ls_tape_take_node(t, sizeof *kept);
    void *data = kept ? ls_op_alloc(t, ls_tensor_room(&was)) : NULL;
    if (t->status < 0) return NULL;
    if (!t->dry) memmove(data, was.data, ls_tensor_nbytes(&was)); /* its old place lies above, or elsewhere */
    *kept = was;
    kept->data = data;
    kept->node = NULL;
    return kept;
}

static const void *copy_of(ls_tape *t, const void *p, size_t nbytes)
{
    void *to = nbytes ? ls_tape_take_node(t, nbytes) : NULL;
    if (to) memcpy(to, p, nbytes);
    return to;
}

static ls_tensor *record(ls_tape *t, ls_tensor *x, ls_tensor *y, block b, size_t nbytes, const struct ls_unit *unit)
{
    b.arg = copy_of(t, b.arg, nbytes);
    const void *leaf = copy_of(t, t->leaves, (size_t)t->nleaves * sizeof *t->leaves);
    memcpy(&b.leaf, &leaf, sizeof leaf);
    b.nleaves = t->nleaves;
    const void *saved = copy_of(t, &b, sizeof b);
    struct ls_node *n = ls_tape_take_node(t, sizeof *n);
    if (t->status < 0) return NULL;
    *n = (struct ls_node){
        .op = &block_op, .in = { x }, .saved = saved, .prev = t->last, .out = y, .index = t->nops++, .unit = unit,
    };
    y->node = n;
    t->last = n;
    return y;
}

static ls_tensor *forward_full(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *arg, size_t nbytes)
{
    const ls_tape_mark mark = begin_block(t);
    const uint32_t first = t->nops;
    struct ls_node *const before = t->last;
    t->last = NULL;
    ls_tensor *y = fn(t, x, arg);
    t->in_block = false;
    t->last = before;
    if (!y) return NULL;
    t->nleaves = 0;
    const struct ls_unit *unit = t->unit;
    if (y->node && y->node->index >= first) {
        const ls_status st = find_leaves(t, y->node, x, first);
        if (st < 0) return ls_op_fail(t, st);
        unit = y->node->unit; /* which may have begun in the block */
    }
    y = end_block(t, y, mark);
    return y && t->nleaves > 0 ? record(t, x, y, (block){ .fn = fn, .arg = arg }, nbytes, unit) : y;
}

static ls_status play_block(ls_tape *t, struct ls_node *n)
{
    const block *b = n->saved;
    const ls_tape_mark mark = ls_tape_mark_now(t);
    const uint32_t first = t->nops;
    struct ls_node *const before = t->last;
    const bool grad = t->grad;
    t->last = NULL;
    t->replays++;
    t->in_block = t->again = t->grad = true;
    t->unit = n->unit;
    ls_tensor *y = b->fn(t, n->in[0], b->arg);
    t->unit = NULL;
    t->in_block = t->again = false;
    t->grad = grad;
    t->last = before;
    if (!y) return ls_tape_status(t);
    if (!y->node || y->node->index < first || !ls_tensor_same_shape(y, n->out))
        return ls_fail(LS_INVALID, "block: recomputed, it is another one than in forward");

    ls_tensor *dy = n->out->grad; /* goes over to the block's result */
    n->out->grad = NULL;
    LS_TRY(ls_tape_play(t, y, dy, n->borrowed, first));
    return ls_tape_end_above(t, mark, n->in[0]);
}

/* --- both ------------------------------------------------------------------------------------ */

static ls_tensor *forward_only(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *arg)
{
    const ls_tape_mark mark = begin_block(t);
    ls_tensor *y = fn(t, x, arg);
    t->in_block = false;
    return y ? end_block(t, y, mark) : NULL;
}

ls_tensor *ls_block(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *arg, size_t nbytes)
{
    if (!ls_op_begin(t, block_op.name, x != NULL)) return NULL;
    if (t->in_block) return fn(t, x, arg);
    if (!t->grad) return forward_only(t, x, fn, arg);
    return t->recompute == LS_RECOMPUTE_FULL ? forward_full(t, x, fn, arg, nbytes) : forward_in_part(t, x, fn, arg);
}
