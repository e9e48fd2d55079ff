/* des.c -- the event engine: runs the programs of all processes. */
#include <math.h>
#include <stdlib.h>

#include "sim/des_impl.h"

#define AHEAD 8 /* processes whose next operations are fetched early: they lie far apart */

static uint64_t key_of(uint32_t from, uint32_t via) { return ((uint64_t)from << 12 | via) + 1; }

static LS_COLD void stop(sim *x, ls_status st)
{
    if (x->st == LS_OK) x->st = st;
}

static LS_COLD void refuse(sim *x, uint32_t p, const char *what, uint32_t value, uint32_t most)
{
    stop(x, ls_fail(LS_INVALID, "process %u, operation %u: %s %u: expected less than %u", p, index_of(x, p), what,
                    value, most));
}

/* --- costs -------------------------------------------------------------------------------------------- */

/* The finalizer of splitmix64 (Steele, Lea and Flood 2014), twice. */
static double drawn(const ls_des_model *m, uint64_t stream, uint64_t at)
{
    uint64_t z = m->seed + 0x9e3779b97f4a7c15u * (stream + 1);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z = (z ^ z >> 31) + 0x9e3779b97f4a7c15u * (at + 1);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return 1.0 + m->jitter * ((double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1.0);
}

static LS_ALWAYS_INLINE double factor_of(const sim *x, uint32_t p)
{
    return LS_UNLIKELY(x->m->jitter > 0) ? drawn(x->m, p, index_of(x, p)) : 1.0;
}

static LS_ALWAYS_INLINE double work_of(sim *x, uint32_t p, ls_des_op a)
{
    const ls_des_model *m = x->m;
    if (LS_UNLIKELY(a.cost >= m->ncosts)) {
        refuse(x, p, "cost", a.cost, m->ncosts);
        return 0;
    }
    double s = m->cost[a.cost];
    if (LS_UNLIKELY(m->pace != NULL)) s *= m->pace[p];
    return s * factor_of(x, p);
}

/* When a process goes on that waits for something from `from` until `ready`: then, or wake_s later if it sleeps. */
static LS_COLD double woken(const sim *x, uint32_t p, double from, double ready)
{
    const ls_des_model *m = x->m;
    const bool sleeps = m->cores > 0 ? ls_des_cores_sleeps(&x->cores, p, from, ready) : ready >= from + m->idle_s;
    return sleeps ? ready + m->wake_s[p] : ready;
}

static LS_COLD void tell(const sim *x, uint32_t p, double from, double ready, double until)
{
    const ls_des_span span = { .process = p, .at = index_of(x, p), .from_s = from, .ready_s = ready, .until_s = until };
    x->m->told(x->m->arg, x->p[p].op, &span);
}

/* --- messages ------------------------------------------------------------------------------------------- */

static LS_COLD void keep(sim *x, process *q, uint64_t key, double arrives)
{
    uint32_t i = x->spare;
    if (i != LS_DES_NONE) x->spare = x->early[i].next;
    else {
        if (x->nearly == x->cap) {
            const uint32_t cap = x->cap ? 2 * x->cap : 1024;
            message *more = realloc(x->early, cap * sizeof *more);
            if (!more) {
                stop(x, ls_fail(LS_NO_MEMORY, "%u messages that came early", cap));
                return;
            }
            x->early = more;
            x->cap = cap;
        }
        i = x->nearly++;
    }
    x->early[i] = (message){ key, arrives, i };
    if (q->later != LS_DES_NONE) {
        x->early[i].next = x->early[q->later].next;
        x->early[q->later].next = i;
    }
    q->later = i;
}

/* Whether a process polls while it waits for the message that it receives next. */
static LS_ALWAYS_INLINE bool polls(const sim *x, const process *q)
{
    return LS_UNLIKELY(x->m->poll > 0) && q->op->via >= x->m->poll_via;
}

/* Sent at `sent`, which is now, in its turn. */
static LS_ALWAYS_INLINE void deliver(sim *x, uint32_t to, uint64_t key, double sent, double arrives, bool in_turn)
{
    process *q = &x->p[to];
    if (q->waits == key) {
        q->waits = GOT;
        if (arrives < q->t) arrives = q->t;
        if (LS_UNLIKELY(x->m->wake_s != NULL)) arrives = woken(x, to, q->t, arrives);
        if (polls(x, q)) ls_des_cores_polls(&x->cores, sent, to, false);
        if (x->m->told) tell(x, to, q->t, arrives, arrives);
        q->t = arrives;
        resume(x, to, in_turn);
    } else if (q->key == 0) {
        q->key = key;
        q->arrives = arrives;
    } else {
        keep(x, q, key, arrives);
    }
}

/* Takes out the message after `before`. */
static message take_after(sim *x, process *q, uint32_t before)
{
    const uint32_t i = x->early[before].next;
    const message had = x->early[i];
    x->early[before].next = had.next;
    if (q->later == i) q->later = before == i ? LS_DES_NONE : before;
    x->early[i].next = x->spare;
    x->spare = i;
    return had;
}

/* Among those that came after the oldest. */
static bool take_later(sim *x, process *q, uint64_t key, double *arrives)
{
    uint32_t before = q->later;
    if (before == LS_DES_NONE) return false;
    do {
        if (x->early[x->early[before].next].key == key) {
            *arrives = take_after(x, q, before).arrives;
            return true;
        }
        before = x->early[before].next;
    } while (before != q->later);
    return false;
}

/* The oldest message of the key; false: it has not come. */
static LS_ALWAYS_INLINE bool take(sim *x, process *q, uint64_t key, double *arrives)
{
    if (q->key != key) return take_later(x, q, key, arrives);
    *arrives = q->arrives;
    q->key = 0;
    if (LS_UNLIKELY(q->later != LS_DES_NONE)) {
        const message next = take_after(x, q, q->later);
        q->key = next.key;
        q->arrives = next.arrives;
    }
    return true;
}

static uint32_t place_of(const sim *x, uint32_t p) { return x->m->place ? x->m->place[p] : p; }

static void offer(sim *x, uint32_t p, uint32_t to, ls_des_op a, bool in_turn)
{
    const ls_des_model *m = x->m;
    process *q = &x->p[p];
    const double factor = factor_of(x, p), bytes = m->cost[a.cost];
    const uint32_t from = place_of(x, p), at = place_of(x, to);
    const uint64_t key = key_of(p, a.via);
    double arrives = q->t;
    if (from != at && m->net.sharing == LS_DES_FAIR) {
        const int meet = ls_des_links_meet(&x->links, from, at);
        const ls_des_flow f = { .latency = x->links.latency_s[meet] * factor, .key = key, .from = from, .to = at,
                                .receiver = to };
        const ls_status st = ls_des_fair_begin(&x->links, &f, q->t, bytes * factor);
        if (st < 0) stop(x, st);
        return;
    }
    if (from != at)
        arrives = in_turn ? ls_des_links_send(&x->links, from, at, q->t, bytes, factor)
                          : ls_des_links_free_send(&x->links, from, at, q->t, bytes, factor, &q->port);
    if (isfinite(arrives)) deliver(x, to, key, q->t, arrives, in_turn);
}

static LS_ALWAYS_INLINE void send(sim *x, uint32_t p, ls_des_op a, bool in_turn)
{
    const ls_des_model *m = x->m;
    const uint32_t to = ls_des_peer(m, p, a);
    process *q = &x->p[p];
    if (LS_UNLIKELY(to >= m->n || a.cost >= m->ncosts)) {
        refuse(x, p, to >= m->n ? "process" : "cost", to >= m->n ? to : a.cost, to >= m->n ? m->n : m->ncosts);
        return;
    }
    if (LS_UNLIKELY(m->told != NULL)) tell(x, p, q->t, q->t, q->t);
    x->messages++;
    if (LS_UNLIKELY(!x->flat)) {
        offer(x, p, to, a, in_turn);
        return;
    }
    const double factor = factor_of(x, p), takes = m->cost[a.cost] * x->pace;
    double start = q->t > q->port ? q->t : q->port;
    if (in_turn && x->p[to].in > start) start = x->p[to].in;
    q->port = start + (takes + x->gap) * factor;
    if (in_turn) x->p[to].in = q->port;
    deliver(x, to, key_of(p, a.via), q->t, start + (takes + x->latency) * factor, in_turn);
}

/* --- meetings ----------------------------------------------------------------------------------------- */

/* All are there at `ready`: a member is busy for s seconds from then on, or from when it wakes. */
static LS_ALWAYS_INLINE void go_on(sim *x, uint32_t p, double ready, double s)
{
    process *q = &x->p[p];
    if (LS_UNLIKELY(x->m->wake_s != NULL)) ready = woken(x, p, q->t, ready);
    if (LS_UNLIKELY(x->m->told != NULL)) tell(x, p, q->t, ready, ready + s);
    q->t = ready + s;
}

/* True: all are there, and go on; this process, too. */
static bool meet(sim *x, uint32_t p, ls_des_op a, bool in_turn)
{
    const ls_des_model *m = x->m;
    if (a.who >= m->axes) {
        refuse(x, p, "axis", a.who, m->axes);
        return false;
    }
    const uint32_t g = m->group[(size_t)a.who * m->n + p];
    if (g >= m->ngroups || a.cost >= m->ncosts) {
        refuse(x, p, "group", g, m->ngroups);
        return false;
    }
    meeting *here = &x->group[g];
    process *q = &x->p[p];
    if (q->t > here->latest) here->latest = q->t;
    if (--here->left > 0) {
        q->next = here->first;
        here->first = p;
        return false;
    }
    double s = m->cost[a.cost];
    if (LS_UNLIKELY(m->jitter > 0)) s *= drawn(m, 1ull << 40 | g, here->held);
    const double ready = here->latest;
    go_on(x, p, ready, s);
    for (uint32_t i = here->first; i != LS_DES_NONE; i = x->p[i].next) {
        go_on(x, i, ready, s);
        x->p[i].op += 1 << m->log2_stride;
        resume(x, i, in_turn);
    }
    *here = (meeting){ .left = m->members[g], .first = LS_DES_NONE, .held = here->held + 1 };
    return true;
}

/* --- running --------------------------------------------------------------------------------------------- */

/* Until the process waits, ends, or has to send, to share cores or to poll in its turn; `sends`: this is its turn. */
static LS_ALWAYS_INLINE void run(sim *x, uint32_t p, bool sends, bool in_turn)
{
    const ls_des_model *m = x->m;
    const size_t stride = (size_t)1 << m->log2_stride;
    process *q = &x->p[p];
    for (;;) {
        const ls_des_op a = *q->op;
        const double from = q->t;
        switch (a.kind) {
        case LS_DES_WORK:
            if (in_turn && LS_UNLIKELY(m->cores > 0) && a.via != LS_DES_ASLEEP) {
                if (sends) ls_des_cores_begin(&x->cores, q->t, p, work_of(x, p, a));
                else ls_des_queue_push(&x->queue, q->t, p);
                return;
            }
            q->t += work_of(x, p, a);
            if (LS_UNLIKELY(m->told != NULL)) tell(x, p, from, from, q->t);
            break;
        case LS_DES_SEND:
            if (in_turn && !sends) {
                ls_des_queue_push(&x->queue, q->t, p);
                return;
            }
            send(x, p, a, in_turn);
            sends = false;
            break;
        case LS_DES_RECV: {
            double arrives = q->t;
            if (q->waits == GOT) q->waits = 0;
            else {
                const uint64_t key = key_of(ls_des_peer(m, p, a), a.via);
                if (!take(x, q, key, &arrives)) {
                    if (in_turn && !sends && polls(x, q)) {
                        ls_des_queue_push(&x->queue, q->t, p);
                        return;
                    }
                    q->waits = key;
                    if (polls(x, q)) ls_des_cores_polls(&x->cores, q->t, p, true);
                    return;
                }
                if (arrives < from) arrives = from;
                if (LS_UNLIKELY(m->wake_s != NULL)) arrives = woken(x, p, from, arrives);
                if (LS_UNLIKELY(m->told != NULL)) tell(x, p, from, arrives, arrives);
                q->t = arrives;
            }
            q->t += work_of(x, p, a);
            sends = false;
            break;
        }
        case LS_DES_MEET:
            if (!meet(x, p, a, in_turn)) return;
            break;
        case LS_DES_END: return;
        default: refuse(x, p, "kind of operation", a.kind, LS_DES_MEET + 1); return;
        }
        q->op += stride;
    }
}

/* Processes often go on in their order: what comes after p, and whom it sends to. */
static LS_ALWAYS_INLINE void fetch(const sim *x, uint32_t p)
{
    const uint32_t n = x->m->n;
    if (p + 2 * AHEAD >= n) return;
    __builtin_prefetch(x->p[p + 2 * AHEAD].op);
    const uint32_t to = ls_des_peer(x->m, p + AHEAD, *x->p[p + AHEAD].op);
    if (to < n) __builtin_prefetch(&x->p[to]);
}

/* No order matters: sweeps over the processes, in the order in which they lie in memory. */
static void run_free(sim *x)
{
    const uint32_t words = x->m->n / 64 + 1;
    while (x->nready > 0 && x->st == LS_OK)
        for (uint32_t w = 0; w < words; w++)
            while (x->ready[w]) {
                const uint32_t p = w * 64 + (uint32_t)__builtin_ctzll(x->ready[w]);
                x->ready[w] &= x->ready[w] - 1;
                x->nready--;
                fetch(x, p);
                run(x, p, false, false);
            }
}

static void run_stack(sim *x)
{
    while (x->nready > 0) run(x, x->stack[--x->nready], false, true);
}

static void run_in_turn(sim *x)
{
    ls_des_event e;
    run_stack(x);
    while (x->st == LS_OK && ls_des_queue_pop(&x->queue, &e)) {
        fetch(x, e.p);
        run(x, e.p, true, true);
        run_stack(x);
    }
}

/* Processes run between the ends of what takes its time beside them: flows on shared links, or work on shared cores. */
static inline __attribute__((always_inline)) void run_beside(sim *x, double (*next)(sim *), void (*end)(sim *))
{
    ls_des_event e = { 0 };
    run_stack(x);
    bool any = ls_des_queue_pop(&x->queue, &e);
    while (x->st == LS_OK) {
        const double ends = next(x);
        if (!any && !isfinite(ends)) break;
        if (!any || ends <= e.t) {
            end(x);
        } else {
            run(x, e.p, true, true);
            any = false;
        }
        run_stack(x);
        /* What was resumed may come before the one that is held. */
        if (any) ls_des_queue_push(&x->queue, e.t, e.p);
        any = ls_des_queue_pop(&x->queue, &e);
    }
}

static double next_flow(sim *x) { return ls_des_fair_next(&x->links); }
static double next_work(sim *x) { return ls_des_cores_next(&x->cores); }

static void end_flow(sim *x)
{
    const ls_des_flow f = ls_des_fair_end(&x->links);
    deliver(x, f.receiver, f.key, f.ends, f.ends + f.latency, true);
}

/* The work that ends first on shared cores. */
static void end_work(sim *x)
{
    double t;
    const uint32_t p = ls_des_cores_end(&x->cores, &t);
    process *q = &x->p[p];
    if (LS_UNLIKELY(x->m->told != NULL)) tell(x, p, q->t, q->t, t);
    q->t = t;
    q->op += (size_t)1 << x->m->log2_stride;
    resume(x, p, true);
}

void ls_des_go(sim *x)
{
    if (x->m->cores > 0) run_beside(x, next_work, end_work);
    else if (x->m->net.sharing == LS_DES_FREE) run_free(x);
    else if (x->m->net.sharing == LS_DES_FIFO) run_in_turn(x);
    else run_beside(x, next_flow, end_flow);
}
