/* mismatch.c -- what to say when ranks call different collectives. */
#include "group/mismatch.h"

#include <stdio.h>
#include <string.h>

#include "group/waits.h"

#define DESCRIBED_NS 100000000u
#define HEARSAY_NS 500000000u /* the same for a member on another host: descriptions come some ten times a second */

static const ls_rank_slot *slot_in(const ls_group *g, int member) { return &g->w->page->rank[g->world_rank[member]]; }

ls_status ls_mismatch_message(ls_group *g, const ls_coll_desc *mine, const ls_coll_desc *theirs)
{
    ls_world *w = g->w;
    char what[160], sent[160], text[LS_ERROR_BYTES];
    ls_desc_text(mine, slot_in(g, g->rank), what, sizeof what);
    ls_desc_text(theirs, &w->page->rank[mine->root], sent, sizeof sent);
    snprintf(text, sizeof text,
             "rank %d called %s, but rank %d called %s: sends and receives of a pair must match in order, count and "
             "dtype",
             w->rank, what, (int)mine->root, sent);
    if (!ls_page_abort(w->page, 1 + (uint32_t)w->rank, LS_COLL_MISMATCH, text)) return ls_world_aborted(w);
    return ls_fail(LS_COLL_MISMATCH, "%s", text);
}

/* Tells the whole job: `mine` is what we called, `theirs` what rank `peer` of the world did instead. Who is not the
 * first to tell hands on what the first has said. */
static ls_status mismatch(ls_group *g, const ls_coll_desc *mine, int peer, const char *theirs)
{
    ls_world *w = g->w;
    char what[160], text[LS_ERROR_BYTES];
    ls_desc_text(mine, slot_in(g, g->rank), what, sizeof what);
    snprintf(text, sizeof text,
             "rank %d called %s, but rank %d %s: every rank of a group must call the same collectives in the "
             "same order",
             w->rank, what, peer, theirs);
    if (!ls_page_abort(w->page, 1 + (uint32_t)w->rank, LS_COLL_MISMATCH, text)) return ls_world_aborted(w);
    return ls_fail(LS_COLL_MISMATCH, "%s", text);
}

static ls_status mismatch_with(ls_group *g, const ls_coll_desc *mine, int peer, const ls_coll_desc *d)
{
    char what[160], text[200];
    ls_desc_text(d, &g->w->page->rank[peer], what, sizeof what);
    snprintf(text, sizeof text, "called %s", what);
    return mismatch(g, mine, peer, text);
}

/* What must agree; the label is for people. */
static bool same(const ls_coll_desc *a, const ls_coll_desc *b)
{
    return a->generation == b->generation && a->coll == b->coll && a->dtype == b->dtype && a->op == b->op &&
           a->count == b->count && a->root == b->root;
}

/* The first collective up to k that this rank and rank `peer` of the world describe differently. It may be an
 * earlier one: a root is through with a broadcast before anybody has looked at it. */
static bool first_difference(const ls_group *g, const ls_work *k, int peer, ls_coll_desc *mine, ls_coll_desc *theirs)
{
    const ls_world_page *page = g->w->page;
    ls_coll_desc at = k->desc;
    for (uint32_t back = LS_PAGE_HISTORY; back-- > 0;) {
        at.seq = k->desc.seq - back;
        if (ls_page_find_coll(page, peer, &at, theirs) && ls_page_find_coll(page, g->w->rank, &at, mine) &&
            !same(mine, theirs))
            return true;
    }
    return false;
}

/* Both call it the same, but the member's message is not of it. */
static ls_status not_its_message(ls_group *g, const ls_work *k, int peer)
{
    char what[160];
    if (k->counts) return mismatch(g, &k->desc, peer, "called it with other counts per rank");
    ls_desc_text(&k->desc, slot_in(g, g->rank), what, sizeof what);
    return ls_fail(LS_PROTOCOL,
                   "rank %d: a message of rank %d to %s is not of it, though both called the same: one was lost or "
                   "repeated on the way",
                   g->w->rank, peer, what);
}

ls_status ls_mismatch(ls_group *g, const ls_work *k, int member)
{
    const ls_env *env = ls_env_get();
    int peer = g->world_rank[member];
    ls_coll_desc mine, theirs;
    /* a member whose bytes are here may be some instructions, or a time slice, before its description */
    uint64_t patience = ls_world_is_local(g->w, peer) ? DESCRIBED_NS : HEARSAY_NS;
    for (uint64_t end = env->mono_ns() + patience;;) {
        if (first_difference(g, k, peer, &mine, &theirs)) return mismatch_with(g, &mine, peer, &theirs);
        if (ls_page_find_coll(g->w->page, peer, &k->desc, &theirs)) return not_its_message(g, k, peer);
        if (env->mono_ns() >= end) return mismatch(g, &k->desc, peer, "called something else");
        env->yield();
    }
}

ls_status ls_mismatch_block(const ls_work *k, int member, size_t sends, size_t expects)
{
    ls_group *g = k->g;
    char text[160];
    snprintf(text, sizeof text, "sends it %zu elements in all_to_all #%u, where %zu are expected", sends, k->desc.seq,
             expects);
    return mismatch(g, &k->desc, g->world_rank[member], text);
}

ls_status ls_mismatch_compare(ls_group *g, const ls_work *k)
{
    ls_coll_desc d;
    for (int r = 0; r < g->size; r++)
        if (r != g->rank && ls_page_find_coll(g->w->page, g->world_rank[r], &k->desc, &d) && !same(&k->desc, &d))
            return ls_mismatch(g, k, r);
    return LS_OK;
}

/* A member that has not entered k and never will: it waits for a collective of another group that needs us, who wait
 * here; or it is gone. What was true once stays true: such a member cannot go on without us. */
static ls_status check_absent(ls_group *g, const ls_work *k, int rank)
{
    const ls_world_page *page = g->w->page;
    const ls_rank_slot *slot = &page->rank[rank];
    if (!ls_world_is_local(g->w, rank)) return LS_OK; /* of those we hear not all that they entered */
    /* acquire, and before the question whether it has entered k: pairs with the waiting rank, which had said by
     * then what it entered */
    uint64_t waits_for = atomic_load_explicit(&slot->waits_for, memory_order_acquire);
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (ls_page_entered(page, rank, &k->desc)) return LS_OK;
    if (state == LS_RANK_DONE) return mismatch(g, &k->desc, rank, "has left the world");
    ls_coll_desc where, d;
    const ls_group *other = ls_group_waited(g->e, rank, waits_for, &where);
    if (!other || other == g || (int32_t)(other->seq - where.seq) > 0) return LS_OK; /* we have entered it */
    return ls_page_find_coll(page, rank, &where, &d) ? mismatch_with(g, &k->desc, rank, &d) : LS_OK;
}

ls_status ls_mismatch_check(ls_group *g)
{
    uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);
    for (uint32_t i = head; i != tail; i++) {
        const ls_work *k = ls_queued(g, i);
        for (int r = 0; r < g->size; r++) {
            ls_coll_desc d;
            if (r == g->rank) continue;
            if (ls_page_find_coll(g->w->page, g->world_rank[r], &k->desc, &d)) {
                if (!same(&k->desc, &d)) return ls_mismatch(g, k, r);
            } else if (i == head) {
                LS_TRY(check_absent(g, k, g->world_rank[r]));
            }
        }
    }
    return ls_world_check_server(g->w);
}
