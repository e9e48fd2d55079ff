/* world.c -- the state of a world: room for all ranks, why the job ended, and what everybody asks of it. Transports and
 * groups call these; open.c makes a world.
 */
#include "net/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/shared.h"

/* --- room for all ranks ------------------------------------------------------- */

ls_status ls_world_make_room(ls_world *w)
{
    const size_t n = (size_t)w->size;
    w->node = calloc(n, sizeof *w->node);
    w->peer_base = calloc(n, sizeof *w->peer_base);
    w->peer_bytes = calloc(n, sizeof *w->peer_bytes);
    w->peer_more = calloc(n, sizeof *w->peer_more);
    if (w->node && w->peer_base && w->peer_bytes && w->peer_more) return LS_OK;
    ls_world_free_room(w);
    return ls_fail(LS_NO_MEMORY, "a world of %d ranks", w->size);
}

void ls_world_free_room(ls_world *w)
{
    for (int r = 0; w->reads && r < w->size; r++) ls_rank_set_free(&w->reads[r]);
    free(w->reads);
    free(w->node);
    free(w->peer_base);
    free(w->peer_bytes);
    for (int r = 0; w->peer_more && r < w->size; r++)
        free(atomic_load_explicit(&w->peer_more[r], memory_order_relaxed));
    free(w->peer_more);
    w->peer_more = NULL;
    w->reads = NULL;
    w->node = NULL;
    w->peer_base = NULL;
    w->peer_bytes = NULL;
}

/* --- the end of a job ----------------------------------------------------------- */

ls_status ls_world_abort(ls_world *w, ls_status s)
{
    char text[LS_ERROR_BYTES];
    snprintf(text, sizeof text, "rank %d: %s", w->rank, ls_last_error());
    if (s != LS_ABORTED) ls_page_abort(w->page, 1 + (uint32_t)w->rank, s, text);
    w->failed = true;
    return s;
}

ls_status ls_world_aborted(ls_world *w)
{
    char text[LS_ERROR_BYTES];
    ls_status s = LS_ABORTED;
    int rank = -1;
    bool known = ls_page_cause(w->page, &rank, &s, text, sizeof text);
    LS_FENCE_RELEASE(); /* our buffers are the caller's again: as in ls_page_blame */
    if (!known) return ls_fail(LS_ABORTED, "the job was aborted");
    /* these are everybody's: all sides report them as what they are */
    bool shared = s == LS_COLL_MISMATCH || s == LS_JOIN_TIMEOUT;
    return ls_fail(rank == w->rank || shared ? s : LS_ABORTED, "%s", text);
}

ls_status ls_world_verdict(ls_world *w, ls_status s)
{
    char text[LS_ERROR_BYTES];
    ls_status cause;
    int rank;
    if (s != LS_ABORTED || !w->by_hand || !ls_page_cause(w->page, &rank, &cause, text, sizeof text)) return s;
    return cause == LS_RANK_DIED && w->rank == (rank == 0 ? 1 : 0) ? ls_fail(cause, "%s", text) : s;
}

ls_status ls_world_check_server(ls_world *w)
{
    if (!w->host_store || w->server || w->threads) return LS_OK;
    if (atomic_exchange_explicit(&w->store_busy, 1, memory_order_acquire)) return LS_OK; /* who talks to it will see */
    const bool gone = ls_store_is_gone(w->host_store);
    atomic_store_explicit(&w->store_busy, 0, memory_order_release);
    if (!gone) return LS_OK;
    ls_rank_slot *first = &w->page->rank[w->host_first];
    if (!w->by_hand) {
        ls_page_abort(w->page, LS_ABORT_BY_LAUNCHER, LS_ABORTED, "the launcher has ended");
    } else {
        if (atomic_load_explicit(&first->state, memory_order_acquire) == LS_RANK_DONE) return LS_OK;
        ls_page_died(w->page, w->host_first, atomic_load_explicit(&first->pid, memory_order_relaxed));
    }
    return ls_world_aborted(w);
}

/* --- small things ---------------------------------------------------------------- */

int ls_world_rank(const ls_world *w) { return w->rank; }
int ls_world_size(const ls_world *w) { return w->size; }
int ls_world_local_rank(const ls_world *w) { return w->local_rank; }
int ls_world_local_size(const ls_world *w) { return w->local_size; }
uint32_t ls_world_generation(const ls_world *w) { return w->generation; }
const char *ls_world_source(const ls_world *w) { return w->source_text; }
ls_group *ls_world_group(ls_world *w) { return w ? w->group : NULL; }
ls_tracer *ls_world_tracer(ls_world *w) { return w->tracer; }
ls_ledger *ls_world_ledger(ls_world *w) { return &w->ledger; }
size_t ls_world_arena_used(const ls_world *w) { return ls_arena_mark(w->arena); }
const char *ls_world_transport(const ls_world *w) { return w->opts.transport; }

void ls_world_at(ls_world *w, uint32_t step, uint16_t micro_batch)
{
    ls_rank_slot *slot = &w->page->rank[w->rank];
    atomic_store_explicit(&slot->step, step, memory_order_relaxed);
    atomic_store_explicit(&slot->micro_batch, micro_batch, memory_order_relaxed);
    ls_tracer_at(w->tracer, step, micro_batch);
}

ls_status ls_world_exchange(ls_world *w, const char *key, const void *mine, size_t n, void *all)
{
    if (w->size == 1 || w->alone) {
        for (int r = 0; r < w->size; r++) memcpy((char *)all + (size_t)r * n, mine, n);
        return LS_OK;
    }
    return ls_store_exchange(w->store, key, mine, n, w->size, all, ls_env_get()->mono_ns() + w->opts.join_timeout_ns);
}

ls_status ls_world_trace_capacity(ls_world *w, uint64_t events)
{
    const uint32_t room = events > LS_BLACKBOX_MOST ? LS_BLACKBOX_MOST : (uint32_t)events;
    if (room <= LS_BLACKBOX_EVENTS) return LS_OK;
    LS_TRY(ls_page_reserve_events(w->page, w->rank, room));
    return ls_tracer_set_capacity(w->tracer, ls_page_events(w->page, w->rank), room);
}

static void warn_of_cuts(const ls_trace_box *box, int size, uint32_t first_step, uint32_t last_step)
{
    int cut = 0, first = -1;
    for (int r = size - 1; r >= 0; r--)
        if (ls_trace_is_cut(&box[r], first_step)) cut++, first = r;
    if (cut > 0)
        ls_log(LS_LOG_WARN, "the trace of steps %u to %u lacks its first events on %d of %d ranks, beginning with rank %d: a rank "
               "keeps its newest %u events; trace fewer steps, or steps of fewer micro-batches", first_step, last_step, cut,
               size, first, ls_shared_count32(&box[first].box->capacity));
}

ls_status ls_world_trace_export(ls_world *w, uint32_t first_step, uint32_t last_step, const char *path)
{
    ls_trace_box *box = calloc((size_t)w->size, sizeof *box);
    if (!box) return ls_fail(LS_NO_MEMORY, "a trace of %d ranks", w->size);
    for (int r = 0; r < w->size; r++)
        if (ls_world_is_local(w, r)) box[r] = (ls_trace_box){ &w->page->rank[r].box, ls_page_events(w->page, r) };
    ls_status st = ls_trace_export(box, w->size, first_step, last_step, path);
    if (st == LS_OK) warn_of_cuts(box, w->size, first_step, last_step);
    free(box);
    return st;
}
