/* hang.c -- what to say when a rank does not come, or a message is lost. */
#include "group/hang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/waits.h"

/* The first member but us that has not entered a collective, as a rank of the world; -1: all have. */
static int first_absent(const ls_group *g, const ls_coll_desc *d)
{
    for (int r = 0; r < g->size; r++)
        if (r != g->rank && !ls_page_entered(g->w->page, g->world_rank[r], d)) return g->world_rank[r];
    return -1;
}

/* Whom everybody waits for in the end: who has not come may itself be waiting for another. As far as we can see:
 * through the groups that we are in. */
static int root_of(const ls_group *g, int rank)
{
    for (int hop = 0; hop < g->w->size; hop++) {
        uint64_t waits_for = atomic_load_explicit(&g->w->page->rank[rank].waits_for, memory_order_acquire);
        int next = ls_page_message_peer(g->w->page, rank);
        ls_coll_desc d;
        const ls_group *its = next < 0 ? ls_group_waited(g->e, rank, waits_for, &d) : NULL;
        if (its) next = first_absent(its, &d);
        if (next < 0 || next == g->w->rank) break;
        rank = next;
    }
    return rank;
}

/* Of all members, the one whose collectives moved least recently. */
static int stillest(const ls_group *g)
{
    int rank = g->w->rank;
    uint64_t oldest = UINT64_MAX;
    for (int r = 0; r < g->size; r++) {
        uint64_t beat = atomic_load_explicit(&g->w->page->rank[g->world_rank[r]].beat_ns, memory_order_relaxed);
        if (r == g->rank || beat >= oldest) continue;
        oldest = beat;
        rank = g->world_rank[r];
    }
    return rank;
}

int ls_hang_whom(const ls_group *g, const ls_work *k)
{
    int rank = k->desc.coll == LS_SENDRECV ? g->world_rank[k->peer] : first_absent(g, &k->desc);
    return rank < 0 ? stillest(g) : root_of(g, rank);
}

/* --- a wait that has lasted too long ---------------------------------------------------------------------------- */

/* The search for who keeps everybody waiting, from the rank that gives up: along what each rank says that it waits for,
 * to a message that was sent and has not come, or to a rank that waits for nothing. */
typedef struct search {
    const ls_group *g;
    ls_rank_set seen;        /* owned: ranks that were looked at */
    int *stack;              /* owned: those still to look at; NULL: no memory, and nothing is found */
    int n;
    int direct;              /* the rank that we wait for ourselves; -1: none is known */
    int idle;                /* the first that waits for nothing or is stopped, best one without excuse; -1: none */
    int from, to;            /* a message on its way; -1: none was found */
    uint32_t number;
    bool part;               /* some of it is here */
    bool sure;               /* it has left its sender for good; else that may have begun it only */
} search;

static const ls_rank_slot *slot_of(const search *s, int rank) { return &s->g->w->page->rank[rank]; }

static uint32_t peek(const _Atomic uint32_t *word) { return atomic_load_explicit(word, memory_order_acquire); }

static bool is_waiting(const search *s, int rank) { return peek(&slot_of(s, rank)->in_coll) != LS_IN_NOTHING; }

/* Of a process of this host; 0: not known. */
static char state_of(const ls_world *w, int rank)
{
    int pid = atomic_load_explicit(&w->page->rank[rank].pid, memory_order_relaxed);
    return ls_world_is_local(w, rank) ? ls_env_get()->proc_state(pid) : 0;
}

static bool is_stopped(const search *s, int rank)
{
    char state = state_of(s->g->w, rank);
    return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

/* Until when a rank need not come: it does long work and has said so (task.h). 0: it has no excuse, as one whose
 * process is stopped or gone, or whose work takes longer than it may. */
static uint64_t excused_until(const ls_world *w, int rank, uint64_t now_ns)
{
    const ls_rank_slot *slot = &w->page->rank[rank];
    ls_task task;
    if (!ls_task_read(&slot->task, &task)) return 0;
    const uint32_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    if (state == LS_RANK_STOPPED || state == LS_RANK_DEAD) return 0; /* as its launcher says */
    const char is = state_of(w, rank);
    if (ls_world_is_local(w, rank) && (is == 0 || is == 'T' || is == 'Z' || is == 'X')) return 0;
    const uint64_t left_ns = ls_task_left_ns(&task, now_ns), timeout_ns = w->opts.coll_timeout_ns;
    return left_ns == 0 ? 0 : now_ns + (left_ns < timeout_ns ? left_ns : timeout_ns);
}

static void look_at(search *s, int rank)
{
    if (rank < 0 || rank >= s->g->w->size || ls_rank_set_has(&s->seen, rank)) return;
    if (s->direct < 0 && rank != s->g->w->rank) s->direct = rank;
    if (!s->stack) return;
    ls_rank_set_add(&s->seen, rank);
    s->stack[s->n++] = rank;
}

static void on_its_way(search *s, int from, int to, uint32_t number, bool part, bool sure)
{
    if (s->from >= 0 && (s->sure || !sure)) return;
    s->from = from;
    s->to = to;
    s->number = number;
    s->part = part;
    s->sure = sure;
}

/* Rank `to` waits for message `number` of `from`, of the collective `seq` of a group. */
static void follow_lane(search *s, const ls_flow *mine, int block, int lane, int to, uint64_t waits)
{
    const int from = (int)(waits >> 32 & 0xffffu);
    const uint32_t number = (uint32_t)waits, seq = peek(&mine->seq);
    if (from >= s->g->w->size) return;
    look_at(s, from);
    if (waits >> 62 & 1u) return; /* it waits for `from` to take a message */
    const ls_flow *f = &slot_of(s, from)->flow[block];
    if (peek(&f->group) != peek(&mine->group)) return;
    const int32_t ahead = (int32_t)(peek(&f->seq) - seq);
    const bool complete = ahead > 0 || (ahead == 0 && peek(&f->done));
    if (complete || (ahead == 0 && peek(&ls_page_sent(s->g->w->page, from, (uint32_t)block, lane)[to]) > number))
        on_its_way(s, from, to, number, waits >> 61 & 1u, complete || is_waiting(s, from));
}

/* What rank `rank` waits for in schedules; false: it is in none. */
static bool follow_schedules(search *s, int rank)
{
    bool any = false;
    for (int block = 0; block < LS_PAGE_GROUPS; block++) {
        const ls_flow *f = &slot_of(s, rank)->flow[block];
        if (peek(&f->done) || peek(&f->seq) == UINT32_MAX) continue;
        for (int lane = 0; lane < LS_PAGE_LANES; lane++) {
            uint64_t waits = atomic_load_explicit(&f->waits[lane], memory_order_acquire);
            if (!waits) continue;
            follow_lane(s, f, block, lane, rank, waits);
            any = true;
        }
    }
    return any;
}

static bool follow_message(search *s, int rank)
{
    ls_coll_desc d;
    if (!ls_page_awaited(s->g->w->page, rank, &d) || d.root < 0 || d.root >= s->g->w->size) return false;
    look_at(s, d.root);
    const ls_flow *f = &slot_of(s, d.root)->flow[d.block % LS_PAGE_GROUPS];
    const _Atomic uint32_t *sent = ls_page_sent(s->g->w->page, d.root, d.block % LS_PAGE_GROUPS, LS_PAGE_MESSAGES);
    if (d.op == 0 || peek(&f->group) != d.group || (int32_t)(peek(&sent[rank]) - d.seq) <= 0) return true;
    on_its_way(s, d.root, rank, d.seq, false, is_waiting(s, d.root)); /* a sender that waits moves all that it sends */
    return true;
}

/* A collective in mapped memory: whoever has not come. False: all have, or we are not in its group. */
static bool follow_absent(search *s, int rank)
{
    uint64_t waits_for = atomic_load_explicit(&slot_of(s, rank)->waits_for, memory_order_acquire);
    ls_coll_desc d;
    const ls_group *its = ls_group_waited(s->g->e, rank, waits_for, &d);
    bool any = false;
    for (int r = 0; its && r < its->size; r++) {
        if (its->world_rank[r] == rank || ls_page_entered(s->g->w->page, its->world_rank[r], &d)) continue;
        look_at(s, its->world_rank[r]);
        any = true;
    }
    return any;
}

static search search_of(const ls_group *g)
{
    search s = { .g = g, .direct = -1, .idle = -1, .from = -1, .to = -1 };
    if (ls_rank_set_create(g->w->size, &s.seen) == LS_OK) s.stack = calloc((size_t)g->w->size, sizeof *s.stack);
    return s;
}

static void search_end(search *s)
{
    ls_rank_set_free(&s->seen);
    free(s->stack);
}

static void search_from(search *s, int rank)
{
    const uint64_t now_ns = ls_env_get()->mono_ns();
    look_at(s, rank);
    while (s->n > 0 && !(s->from >= 0 && s->sure)) {
        const int r = s->stack[--s->n];
        if (r != s->g->w->rank && (!is_waiting(s, r) || is_stopped(s, r))) {
            const bool may_be = s->idle >= 0 && excused_until(s->g->w, s->idle, now_ns) > 0;
            if (s->idle < 0 || (may_be && excused_until(s->g->w, r, now_ns) == 0)) s->idle = r;
            continue;
        }
        bool message = follow_message(s, r), absent = follow_absent(s, r);
        if (!message && !absent) (void)follow_schedules(s, r);
    }
}

/* All members have come to a collective in mapped memory, where nothing says what each waits for: one that is stopped,
 * or that has left its wait. */
static int idle_member(const search *s)
{
    const ls_group *g = s->g;
    for (int r = 0; r < g->size; r++)
        if (r != g->rank && is_stopped(s, g->world_rank[r])) return g->world_rank[r];
    for (int r = 0; r < g->size; r++)
        if (r != g->rank && !is_waiting(s, g->world_rank[r])) return g->world_rank[r];
    return -1;
}

/* Whether what was looked at is all of this host: of others we hear late, and not all. */
static bool all_local(const search *s)
{
    for (int r = 0; r < s->g->w->size; r++)
        if (ls_rank_set_has(&s->seen, r) && !ls_world_is_local(s->g->w, r)) return false;
    return true;
}

/* "rank 2 (pid 77, state S)" into buf. */
static const char *who(const ls_world *w, int rank, char *buf, size_t n)
{
    char state = state_of(w, rank); /* a pid of another host means nothing here */
    snprintf(buf, n, "rank %d (pid %d, state %c)", rank,
             (int)atomic_load_explicit(&w->page->rank[rank].pid, memory_order_relaxed), state ? state : '-');
    return buf;
}

/* When the newest long work of the job that is over was. Whoever waited for it, at first or second hand, has the whole
 * of comm.timeout from then on. */
static uint64_t newest_end(const ls_world *w)
{
    uint64_t newest = 0;
    ls_task task;
    for (int r = 0; r < w->size; r++)
        if (!ls_task_read(&w->page->rank[r].task, &task) && task.since_ns > newest) newest = task.since_ns;
    return newest;
}

/* How often long work of any rank has begun or ended. */
static uint32_t task_changes(const ls_world *w)
{
    uint32_t n = 0;
    for (int r = 0; r < w->size; r++) n += peek(&w->page->rank[r].task.version);
    return n;
}

static uint64_t excused_at_one_look(const ls_group *g)
{
    const uint64_t now_ns = ls_env_get()->mono_ns();
    search s = search_of(g);
    search_from(&s, g->w->rank);
    const uint64_t until_ns = s.idle < 0 || (s.from >= 0 && s.sure) ? 0 : excused_until(g->w, s.idle, now_ns);
    search_end(&s);
    const uint64_t then_ns = ls_env_get()->mono_ns();
    const uint64_t end_ns = newest_end(g->w);
    if (until_ns == 0 && end_ns && then_ns < end_ns + g->w->opts.coll_timeout_ns)
        return end_ns + g->w->opts.coll_timeout_ns;
    return until_ns;
}

uint64_t ls_hang_excused(const ls_group *g)
{
    enum { LOOKS = 4 }; /* work that begins or ends between the two readings of a look shows in neither */
    uint64_t until_ns = 0;
    for (int look = 0; look < LOOKS && until_ns == 0; look++) {
        const uint32_t before = task_changes(g->w);
        until_ns = excused_at_one_look(g);
        if (task_changes(g->w) == before) break;
    }
    return until_ns;
}

ls_status ls_hang_timeout(ls_group *g, const ls_work *k, uint64_t waited_ns)
{
    ls_world *w = g->w;
    char what[160], where[256], there[256], one[48], other[48], text[2 * LS_ERROR_BYTES];
    search s = search_of(g);
    const double waited = (double)waited_ns * 1e-9;
    ls_desc_text(&k->desc, &w->page->rank[w->rank], what, sizeof what);
    search_from(&s, w->rank);
    const bool lost = s.from >= 0 && s.sure;
    if (!lost && s.idle < 0 && s.from < 0) s.idle = idle_member(&s);
    if (s.idle == s.from) s.idle = -1; /* it went on after it sent: neither of the two is known to be late */
    int about = -1;
    if (lost) {
        ls_page_where(w->page, s.to, there, sizeof there);
        snprintf(text, sizeof text,
                 "rank %d waited %.1f s in %s: the link from rank %d to rank %d is silent: %s has sent message %u, of "
                 "which %s, %.140s, has received %s; the fault is with one of them or between them",
                 w->rank, waited, what, s.from, s.to, who(w, s.from, one, sizeof one), s.number,
                 who(w, s.to, other, sizeof other), there, s.part ? "a part" : "nothing");
    } else if (s.idle >= 0) {
        about = s.idle;
        snprintf(text, sizeof text, "rank %d waited %.1f s in %s for %s, which is %s", w->rank, waited, what,
                 who(w, about, one, sizeof one), ls_page_where(w->page, about, where, sizeof where));
    } else if (s.from < 0 && s.direct >= 0 && all_local(&s)) { /* no message is missing: their calls do not fit */
        snprintf(text, sizeof text, "rank %d waited %.1f s in %s for %s, which is %s: they wait for one another",
                 w->rank, waited, what, who(w, s.direct, one, sizeof one),
                 ls_page_where(w->page, s.direct, where, sizeof where));
    } else {
        const int whom = s.direct >= 0 ? s.direct : ls_hang_whom(g, k);
        const int from = s.from >= 0 ? s.from : whom, to = s.from >= 0 ? s.to : w->rank;
        ls_page_where(w->page, from, where, sizeof where);
        ls_page_where(w->page, to, there, sizeof there);
        snprintf(text, sizeof text,
                 "rank %d waited %.1f s in %s: whether rank %d, rank %d or the link from one to the other is at fault "
                 "cannot be known: %s is %.100s, %s is %.100s",
                 w->rank, waited, what, from, to, who(w, from, one, sizeof one), where, who(w, to, other, sizeof other),
                 there);
    }
    search_end(&s);
    if (!ls_page_blame(w->page, 1 + (uint32_t)w->rank, about, LS_RANK_HUNG, text)) return ls_world_aborted(w);
    return ls_fail(LS_RANK_HUNG, "%s", text);
}
