/* work.c -- starting a collective, asking for it, waiting for it. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "group/args.h"
#include "group/form.h"
#include "group/hang.h"
#include "group/message.h"
#include "group/mismatch.h"
#include "group/record.h"
#include "group/select.h"
#include "group/sign.h"
#include "group/spans.h"

#define QUICK_TURNS 64         /* turns of a wait before the clock is read at all, */
#define PATIENCE 32            /* and looks at a flag in each of them */
#define CLOCK_TURNS 16         /* turns of a slow wait between two looks at the clock: a turn may be a nap of 1 ms */
#define BETTER_CAUSE_NS 100000000u
#define ASK_NS 200000000u      /* how long a backend is asked for an answer at every turn */
#define CHECK_NS 5000000u      /* how often a stalled wait compares descriptions */
#define LAST_LOOK_NS 10000000u /* for ranks that came while this one searched for whom it waits */

/* Numbers a work in memory. */
static inline void number(ls_work *k)
{
    ls_group *g = k->g;
    if (k->form->rooted) g->rooted++;
    else g->mseq++;
    k->mseq = g->mseq;
    k->rooted = g->rooted;
}

/* Fills a work, in the order that matters for speed: what peers wait for first, what is for people
 * after it. */
static ls_status begin(ls_group *g, const ls_coll_args *a, size_t timed_bytes, ls_work **out)
{
    *out = NULL;
    if (!g) return ls_no_group();
    if (LS_UNLIKELY(!ls_args_plain(g, a))) LS_TRY(ls_args_check(g, a));
    if (LS_UNLIKELY(g->nspare == 0))
        return ls_fail(LS_INVALID, "%d collectives were started on group %s and none of them waited for", LS_WORKS,
                       g->text);

    ls_engine *e = g->e;
    ls_work *k = ls_args_take(g, a);
    ls_status st = LS_OK;
    if (LS_UNLIKELY(a->counts || a->span)) st = ls_args_keep_counts(k, a);
    k->nbytes = k->a.count * ls_dtype_size(a->dtype);
    k->form = ls_select(k);
    if (LS_UNLIKELY(k->span != NULL) && st == LS_OK) st = ls_spans_begin(k);
    if (k->form->prepare && LS_LIKELY(st == LS_OK)) k->form->prepare(k);
    if (LS_UNLIKELY(e->record != NULL) && st == LS_OK) st = ls_record_add(e->record, k);
    if (LS_UNLIKELY(st < 0)) {
        g->nspare++;
        return st;
    }
    k->t0_ns = k->nbytes >= timed_bytes ? ls_env_get()->mono_ns() : 0;
    /* ranks of an all_to_all need not send alike */
    ls_coll_words d = ls_coll_describe(g, g->seq++, a, k->recv_counts ? 0 : k->a.count);
    uint32_t counts = LS_UNLIKELY(k->counts != NULL) && a->coll != LS_ALL_TO_ALL ? ls_args_sign_counts(k) : 0;
    k->sig = ls_coll_sign(g, &d, counts);
    ls_desc_unpack(d.word, &k->desc);
    if (ls_in_memory(k->form)) {
        number(k);
        /* nothing is ahead of it: its turn is now */
        uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);
        if (!ls_engine_threaded(e) && atomic_load_explicit(&g->head, memory_order_relaxed) == tail)
            ls_form_publish(k);
    }
    if (a->label) {
        k->desc.label = ls_tracer_label(g->w->tracer, a->label);
        d.word[3] |= (uint64_t)k->desc.label << 32;
    }
    ls_coll_entered(g, &d);
    *out = k;
    return LS_OK;
}

/* Hands a work to whoever moves it. */
static void enqueue(ls_work *k)
{
    ls_group *g = k->g;
    uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);
    g->queue[tail % LS_WORKS] = (uint8_t)(k - g->work);
    atomic_store_explicit(&g->tail, tail + 1, memory_order_release); /* the work and its place are complete */
    if (LS_UNLIKELY(ls_engine_threaded(g->e))) ls_world_wake(g->w, g->w->rank);
}

static ls_status start(ls_group *g, const ls_coll_args *a, ls_work **out)
{
    if (LS_UNLIKELY(g && g->w->lint) && a->coll == LS_ALL_REDUCE && a->bucket == 0) ls_args_note(a);
    const ls_status st = begin(g, a, LS_TIMED_BYTES, out);
    if (LS_UNLIKELY(st < 0)) return st;
    enqueue(*out);
    if (!ls_engine_threaded(g->e)) (void)ls_engine_turn_group(g); /* a failure stays in the work */
    return LS_OK;
}

/* Of the longer one of the call's vectors, before its arguments are checked. */
static uint64_t bytes_of(const ls_group *g, const ls_coll_args *a)
{
    size_t sent = a->counts ? 0 : a->count, came = 0;
    for (int r = 0; a->counts && r < g->size; r++) sent += a->counts[r];
    for (int r = 0; a->recv_counts && r < g->size; r++) came += a->recv_counts[r];
    return (sent > came ? sent : came) * ls_dtype_size(a->dtype);
}

static inline ls_record *record_of(const ls_group *g) { return LS_LIKELY(g != NULL) ? g->e->record : NULL; }

ls_status ls_coll_start(ls_group *g, const ls_coll_args *a, ls_work **out)
{
    ls_record *r = record_of(g);
    if (LS_LIKELY(!r)) return start(g, a, out);
    const uint64_t nbytes = bytes_of(g, a);
    ls_record_enter(r, nbytes);
    const ls_status st = start(g, a, out);
    ls_record_leave(r, nbytes);
    return st;
}

/* --- waiting -------------------------------------------------------------------- */

typedef struct waiting {
    ls_work *k;
    uint64_t turns, check_ns;
    uint64_t moved; /* turns in which something moved */
    uint64_t ask_ns; /* until then another library is asked without naps between */
    int late;                    /* whom we waited for most of the time; -1: nobody has looked yet */
    uint64_t held_ns, looked_ns; /* by how much that is more than the others together; the last look */
} waiting;

static inline bool is_done(const ls_work *k) { return atomic_load_explicit(&k->done, memory_order_acquire) != 0; }

/* A majority vote (Boyer and Moore 1991) in which a look counts as long as it is since the last one: who only came
 * after the one that all waited for is not the one. */
static void vote(waiting *x, int rank, uint64_t now)
{
    const uint64_t span = now - x->looked_ns;
    x->looked_ns = now;
    if (rank == x->late) {
        x->held_ns += span;
    } else if (span > x->held_ns) {
        x->late = rank;
        x->held_ns = span - x->held_ns;
    } else {
        x->held_ns -= span;
    }
}

static ls_status ready(void *arg)
{
    waiting *x = arg;
    ls_work *k = x->k;
    if (is_done(k)) return LS_OK;
    ls_status dead = (ls_status)atomic_load_explicit(&k->g->frozen, memory_order_acquire);
    if (LS_UNLIKELY(dead < 0)) return is_done(k) ? LS_OK : ls_fail(dead, "%s", k->g->error);
    if (!ls_engine_threaded(k->g->w->engine)) {
        ls_status st = ls_engine_turn(k->g->w->engine);
        if (is_done(k)) return LS_OK;
        if (st == LS_OK) { /* something moved: no need to look closer */
            x->moved++;
            return LS_AGAIN;
        }
    }
    if (++x->turns % CLOCK_TURNS != 0) return LS_AGAIN;
    uint64_t now = ls_env_get()->mono_ns();
    if (k->g->backend && now < x->ask_ns) x->moved++; /* nobody would wake us: ask on, no nap yet */
    if (now < x->check_ns) return LS_AGAIN;
    x->check_ns = now + CHECK_NS;
    vote(x, ls_hang_whom(k->g, k), now);
    ls_status st = ls_mismatch_check(k->g);
    return st < 0 ? st : LS_AGAIN;
}

static ls_status never(void *arg)
{
    (void)arg;
    return LS_AGAIN;
}

/* A connection that breaks is mostly the first sign of a death. Who watches the processes says a moment later
 * which, and that is the better cause. */
static LS_COLD ls_status better_cause(ls_world *w)
{
    char text[LS_ERROR_BYTES];
    memcpy(text, ls_last_error(), sizeof text);
    if (ls_world_check_server(w) < 0) return LS_ABORTED;
    ls_waiter waiter = { .abort_word = &w->page->abort_by };
    if (ls_wait(&waiter, never, NULL, ls_env_get()->mono_ns() + BETTER_CAUSE_NS) == LS_ABORTED)
        return ls_world_aborted(w);
    return ls_fail(LS_PEER_RESET, "%s", text);
}

/* Our cause becomes everybody's unless there is one. */
LS_COLD ls_status ls_group_fail(ls_group *g, ls_status st)
{
    atomic_store_explicit(&g->frozen, 1, memory_order_relaxed);
    ls_engine_settle(g->e);
    if (st == LS_PEER_RESET) st = better_cause(g->w);
    uint32_t us = 1 + (uint32_t)g->w->rank;
    if (st != LS_ABORTED && !ls_page_abort(g->w->page, us, st, ls_last_error()) &&
        atomic_load_explicit(&g->w->page->abort_by, memory_order_acquire) != us)
        st = ls_world_aborted(g->w); /* somebody was first: all say the same */
    if (g->failed >= 0) {
        g->failed = st;
        memcpy(g->error, ls_last_error(), sizeof g->error);
    }
    g->w->failed = true;
    return st;
}

/* *began: when. */
static LS_COLD ls_status wait_slowly(ls_work *k, uint64_t *began)
{
    ls_group *g = k->g;
    ls_world *w = g->w;
    const ls_env *env = ls_env_get();
    const uint64_t now = *began = env->mono_ns();
    waiting x = { .k = k, .check_ns = now + CHECK_NS, .ask_ns = now + ASK_NS, .late = -1, .looked_ns = now };
    ls_waiter waiter = w->waiter;
    waiter.moved = &x.moved;
    if (ls_engine_threaded(w->engine)) { /* the thread sleeps on the slot's word, we on our own */
        waiter.parked = &w->engine->main_parked;
        waiter.fds = NULL;
    }
    ls_rank_slot *slot = g->slot;
    bool message = k->desc.coll == LS_SENDRECV; /* (its form may be changing under a progress thread) */
    uint64_t what = message ? 0 : ls_page_waits_for(g->id, k->desc.seq);
    if (message) ls_page_enter_message(slot, &k->desc);
    atomic_store_explicit(&slot->in_coll, message ? LS_IN_MESSAGE : LS_IN_COLL, memory_order_release); /* described */
    atomic_store_explicit(&slot->waits_for, what, memory_order_release); /* what we entered before is described */
    uint64_t until = now + w->opts.coll_timeout_ns;
    ls_status st = ls_wait(&waiter, ready, &x, until);
    while (st == LS_RANK_HUNG && (until = ls_hang_excused(g)) != 0) st = ls_wait(&waiter, ready, &x, until);
    if (st == LS_RANK_HUNG) st = ls_wait(&waiter, ready, &x, env->mono_ns() + LAST_LOOK_NS);
    if (is_done(k)) st = LS_OK; /* in the very last moment */
    if (st == LS_RANK_HUNG) st = ls_hang_timeout(g, k, env->mono_ns() - now);
    else if (st == LS_ABORTED) st = ls_world_aborted(w);
    const uint64_t waited = env->mono_ns() - now;
    atomic_fetch_add_explicit(&g->counts_so_far.waited_ns, waited, memory_order_relaxed);
    if (x.late >= 0 && waited >= LS_SLOW_NS) {
        atomic_fetch_add_explicit(&g->counts_so_far.slow_waits, 1, memory_order_relaxed);
        atomic_store_explicit(&g->counts_so_far.slow_rank, x.late, memory_order_relaxed);
        atomic_store_explicit(&g->e->past.slow_rank, x.late, memory_order_relaxed);
    }
    atomic_store_explicit(&slot->waits_for, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->in_coll, LS_IN_NOTHING, memory_order_relaxed);
    return st;
}

/* Adds the time of a work that no earlier one has covered, up to *until. */
static void add_busy(const ls_work *k, _Atomic uint64_t *busy_ns, uint64_t *until)
{
    const uint64_t from = k->t0_ns > *until ? k->t0_ns : *until;
    if (k->t1_ns <= from) return;
    atomic_fetch_add_explicit(busy_ns, k->t1_ns - from, memory_order_relaxed);
    *until = k->t1_ns;
}

/* The algorithm of a schedule, another library, or the form that carried it out. */
static const char *ran_by(const ls_work *k)
{
    if (k->form == &ls_form_backend) return k->g->w->opts.backend;
    return k->algo ? k->algo : k->form->name;
}

/* Events are written by the calling thread only, whoever moved the work: a ring has one writer. */
static void record(const ls_work *k, uint64_t wait_t0, bool only_wait)
{
    ls_group *g = k->g;
    uint64_t end = is_done(k) ? k->t1_ns : ls_env_get()->mono_ns();
    uint64_t exposed = end > wait_t0 ? end - wait_t0 : 0; /* complete before anybody waited: all of it was hidden */
    atomic_fetch_add_explicit(&g->counts_so_far.exposed_ns, exposed, memory_order_relaxed);
    if (!is_done(k)) return;
    add_busy(k, &g->counts_so_far.busy_ns, &g->busy_until_ns);
    add_busy(k, &g->e->busy_ns, &g->e->busy_until_ns);
    uint8_t kind = LS_EV_COLL;
    const bool message = k->desc.coll == LS_SENDRECV;
    if (message) kind = k->a.in ? LS_EV_SEND : LS_EV_RECV;
    int16_t peer = (int16_t)(message ? k->desc.root : -1);
    ls_event ev = { .t0_ns = k->t0_ns, .t1_ns = k->t1_ns, .kind = kind, .seq = k->desc.seq, .peer = peer,
                    .bytes = k->a.count * ls_dtype_size(k->a.dtype), .dtype = k->desc.dtype, .group = (uint16_t)g->id,
                    .label = (uint16_t)k->desc.label, .group_name = g->trace_name, .moved = k->moved };
    if (!message) {
        ev.coll = (uint8_t)ls_tracer_label(g->w->tracer, ls_coll_name((ls_coll)k->desc.coll));
        ev.algo = (uint8_t)ls_tracer_label(g->w->tracer, ran_by(k));
        ev.peers = (uint8_t)g->trace_peers;
        ev.bucket = (uint16_t)k->a.bucket;
    }
    if (!only_wait) ls_tracer_add(g->w->tracer, &ev);
    if (exposed < 1000) return;
    ev.kind = LS_EV_WAIT;
    ev.t0_ns = wait_t0;
    ev.t1_ns = end;
    ls_tracer_add(g->w->tracer, &ev);
}

ls_status ls_work_test(ls_work *k)
{
    if (!k) return LS_OK;
    if (LS_UNLIKELY(!k->live)) return ls_fail(LS_INVALID, "this work has been waited for: its handle is over");
    if (!is_done(k) && !ls_engine_threaded(k->g->w->engine)) (void)ls_engine_turn(k->g->w->engine);
    /* acquire, and before the last look at k: what stopped the group is described, and k may have been done before */
    const ls_status dead = (ls_status)atomic_load_explicit(&k->g->frozen, memory_order_acquire);
    if (is_done(k)) {
        if (k->status < 0) return ls_fail(k->status, "%s", k->g->error);
        return LS_OK;
    }
    if (LS_UNLIKELY(dead < 0 || k->g->failed < 0)) return ls_fail(dead < 0 ? dead : k->g->failed, "%s", k->g->error);
    if (!atomic_load_explicit(&k->g->w->page->abort_by, memory_order_acquire)) return LS_AGAIN;
    k->g->w->failed = true;
    return ls_world_aborted(k->g->w);
}

/* A work too small to be timed whose caller has waited long: its time begins with the wait. */
static uint64_t timed_late(ls_work *k, uint64_t began)
{
    const uint64_t now = ls_env_get()->mono_ns();
    if (!is_done(k) || now - began < LS_LONG_WAIT_NS) return 0;
    k->t0_ns = began;
    k->t1_ns = now;
    return began;
}

/* wait_t0: when the caller began to wait; 0: not timed, or, of a work that others ran beside, only if it waits long. */
static ls_status finish(ls_work *k, uint64_t wait_t0, bool beside)
{
    ls_group *g = k->g;
    ls_status st = LS_OK;
    uint64_t began = 0;
    bool threaded = ls_engine_threaded(g->e);
    if (g->spins) {
        if (!threaded) g->patience = PATIENCE;
        for (int turn = 0; turn < QUICK_TURNS && !is_done(k); turn++)
            if (threaded || ls_engine_turn_group(g) == LS_AGAIN) ls_cpu_relax();
        if (!threaded) g->patience = 0;
    }
    if (LS_UNLIKELY(g->failed < 0) && !is_done(k)) st = ls_fail(g->failed, "%s", g->error);
    else if (!is_done(k)) st = wait_slowly(k, &began);
    if (st == LS_OK && k->status < 0) st = ls_fail(k->status, "%s", g->error);
    if (LS_UNLIKELY(st < 0)) st = ls_group_fail(g, st);
    const bool late = !wait_t0 && began && beside;
    if (late) wait_t0 = timed_late(k, began);
    if (wait_t0) record(k, wait_t0, late);
    k->live = false;
    if (k->desc.coll == LS_SENDRECV) ls_message_recycle(k);
    else g->spare[g->nspare++] = (uint8_t)(k - g->work);
    return st;
}

ls_status ls_work_wait(ls_work *k)
{
    if (!k) return LS_OK;
    if (LS_UNLIKELY(!k->live)) return ls_fail(LS_INVALID, "this work has been waited for: its handle is over");
    ls_record *r = k->g->e->record;
    if (LS_LIKELY(!r)) return finish(k, k->t0_ns ? ls_env_get()->mono_ns() : 0, true);
    ls_record_wait(r);
    ls_record_enter(r, 0); /* it was answered when it began */
    const ls_status st = finish(k, k->t0_ns ? ls_env_get()->mono_ns() : 0, true);
    ls_record_leave(r, 0);
    return st;
}

/* --- start and wait in one: what the calls of calls.c are made of -------------------------- */

/* A blocking collective in peers' memory that nothing is ahead of, and whose peers come at once, never
 * enters the queue. */
static bool at_once(ls_work *k, ls_status *st)
{
    ls_group *g = k->g;
    if (k->phase == 0) return false; /* not published: something is ahead */
    int turns = g->spins ? QUICK_TURNS : 1;
    if (g->spins) g->patience = PATIENCE;
    *st = LS_AGAIN;
    for (int turn = 0; turn < turns && *st == LS_AGAIN; turn++) *st = ls_form_turn(k);
    g->patience = 0;
    if (LS_LIKELY(*st == LS_OK)) *st = ls_unless_aborted(g->w);
    return *st != LS_AGAIN;
}

ls_status ls_coll_late(ls_group *g, const ls_coll_args *a, uint32_t sig, const ls_form *form, bool shown)
{
    ls_work *k = ls_args_take(g, a);
    k->nbytes = k->a.count * ls_dtype_size(k->a.dtype);
    k->form = form;
    k->t0_ns = 0;
    const ls_coll_words d = ls_coll_describe(g, g->seq - 1, a, a->count);
    ls_desc_unpack(d.word, &k->desc);
    k->sig = sig;
    k->mseq = g->mseq;
    k->rooted = g->rooted;
    k->share = ls_work_share(k, g->rank);
    k->peer = 0;
    k->phase = shown;
    enqueue(k);
    return finish(k, 0, false);
}

static ls_status run(ls_group *g, const ls_coll_args *a)
{
    ls_work *k;
    ls_status st;
    LS_TRY(begin(g, a, LS_TIMED_BLOCKING_BYTES, &k));
    if (!at_once(k, &st)) {
        enqueue(k);
        return finish(k, k->t0_ns, false);
    }
    if (LS_UNLIKELY(st < 0)) {
        memcpy(g->error, ls_last_error(), sizeof g->error);
        st = ls_group_fail(g, st);
    }
    if (k->t0_ns) {
        k->t1_ns = ls_env_get()->mono_ns();
        atomic_store_explicit(&k->done, 1, memory_order_relaxed);
        record(k, k->t0_ns, false);
    }
    g->ran = k->form;
    k->live = false;
    g->spare[g->nspare++] = (uint8_t)(k - g->work);
    return st;
}

ls_status ls_coll_run(ls_group *g, const ls_coll_args *a)
{
    ls_record *r = record_of(g);
    if (LS_LIKELY(!r)) return run(g, a);
    const uint64_t nbytes = bytes_of(g, a);
    ls_record_enter(r, nbytes);
    const ls_status st = run(g, a);
    ls_record_leave(r, nbytes);
    ls_record_wait(r);
    return st;
}
