/* blame.c -- what to say when ranks call different collectives, or one does not come. */
#include <stdio.h>
#include <string.h>

#include "group/impl.h"

static const ls_blackbox *box_of(const ls_group *g, int member)
{
    return &g->w->page->rank[g->world_rank[member]].box;
}

ls_status ls_blame_mismatch(ls_group *g, const ls_work *k, int peer)
{
    ls_world *w = g->w;
    ls_coll_desc theirs;
    char mine_text[160], their_text[160] = "something else", text[LS_ERROR_BYTES];
    ls_desc_text(&k->desc, box_of(g, g->rank), mine_text, sizeof mine_text);
    if (ls_page_find_coll(w->page, g->world_rank[peer], g->id, k->desc.seq, &theirs))
        ls_desc_text(&theirs, box_of(g, peer), their_text, sizeof their_text);
    snprintf(text, sizeof text,
             "rank %d called %s, but rank %d called %s: every rank of a group must call the same collectives in the "
             "same order",
             w->rank, mine_text, g->world_rank[peer], their_text);
    ls_page_abort(w->page, 1 + (uint32_t)w->rank, LS_COLL_MISMATCH, text);
    w->failed = true;
    return ls_fail(LS_COLL_MISMATCH, "%s", text);
}

/* What must agree; the label is for people. */
static bool same(const ls_coll_desc *a, const ls_coll_desc *b)
{
    return a->generation == b->generation && a->coll == b->coll && a->dtype == b->dtype && a->op == b->op &&
           a->count == b->count && a->root == b->root;
}

ls_status ls_blame_check(ls_group *g)
{
    uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);
    for (uint32_t i = head; i != tail; i++) {
        const ls_work *k = ls_queued(g, i);
        if (k->kind == LS_WORK_P2P) continue;
        for (int r = 0; r < g->size; r++) {
            ls_coll_desc d;
            if (r == g->rank || !ls_page_find_coll(g->w->page, g->world_rank[r], g->id, k->desc.seq, &d)) continue;
            if (!same(&k->desc, &d)) return ls_blame_mismatch(g, k, r);
        }
    }
    return LS_OK;
}

ls_status ls_blame_timeout(ls_group *g, const ls_work *k, uint64_t waited_ns)
{
    ls_world *w = g->w;
    const ls_env *env = ls_env_get();
    char what[160], where[256], text[LS_ERROR_BYTES];
    ls_desc_text(&k->desc, box_of(g, g->rank), what, sizeof what);

    /* the culprit: a member that has not entered it; else the one whose collectives moved least recently */
    int culprit = -1, absent = 0;
    uint64_t oldest = UINT64_MAX;
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank) continue;
        if (k->kind == LS_WORK_P2P) {
            if (r == k->a.peer) culprit = r;
            continue;
        }
        ls_coll_desc d;
        bool entered = ls_page_find_coll(w->page, g->world_rank[r], g->id, k->desc.seq, &d);
        uint64_t beat = atomic_load_explicit(&w->page->rank[g->world_rank[r]].beat_ns, memory_order_relaxed);
        if (!entered && absent++ == 0) culprit = r;
        if (absent == 0 && beat < oldest) {
            oldest = beat;
            culprit = r;
        }
    }
    if (culprit < 0) culprit = g->rank;
    int rank = g->world_rank[culprit], pid = atomic_load_explicit(&w->page->rank[rank].pid, memory_order_relaxed);
    char state = env->proc_state(pid);
    snprintf(text, sizeof text, "rank %d waited %.1f s in %s for rank %d (pid %d, state %c), which is %s", w->rank,
             (double)waited_ns * 1e-9, what, rank, pid, state ? state : '-',
             ls_page_where(w->page, rank, where, sizeof where));
    ls_page_blame(w->page, 1 + (uint32_t)w->rank, rank, LS_RANK_HUNG, text);
    w->failed = true;
    return ls_fail(LS_RANK_HUNG, "%s", text);
}
