/* sim.c -- the times of one run. */
#include "coll/sim.h"

#include <math.h>
#include <stdlib.h>

#include "coll/layout.h"

#define NOT_YET (-1.0)

typedef struct lane_state {
    uint32_t pc, released; /* as in exec.c: sends before `released` have been read, the last at read_ns */
    double t, read_ns;     /* free for its next step; */
} lane_state;

typedef struct send_state {
    double ready, read; /* when the peer may use it, when it has; NOT_YET */
    double offered, nbytes;
    int next;           /* the next send between the same ranks and lanes; -1 */
    int behind;         /* on a wire: the next to leave this rank; -1 */
    int rank, peer, lane;
} send_state;

/* The least of n times, and of equal ones the first: a tree whose leaf i is time i, and whose inner nodes name the less
 * of their two. */
typedef struct least {
    int leaves;   /* a power of two */
    int *winner;  /* [2 leaves]; root at 1 */
    double *time; /* [leaves]; INFINITY: none */
} least;

/* Messages that wait to leave a rank. */
typedef struct leaving {
    int first, last; /* sends; -1: none */
} leaving;

typedef struct sim {
    const ls_machine *m;
    const ls_sched *const *s;
    int size, nlanes, nhosts;
    ls_layout layout;
    lane_state *lane;        /* [size][nlanes] */
    send_state *send;        /* all steps of all lanes; only those of sends are used */
    size_t *first;           /* [size][nlanes]: where a lane's steps start in `send` */
    int *head;               /* [from][to][lane]: the oldest send that is not received yet; -1 */
    leaving *leaving;        /* [size] */
    least steps, departures; /* when lanes take their next step; when ranks' messages leave, at the earliest */
    double *busy;            /* [size]: a rank's core is free from then on */
    double *out, *in;        /* [size + nhosts]: the ways out of and into ranks, then hosts */
    double *core;            /* cores of crowded hosts */
    int *core_first, *crowd; /* [nhosts]: where a host's cores start; how many; 0: not crowded */
} sim;

static const ls_shape *shape(const sim *x) { return &x->s[0]->shape; }
static int host_of(const sim *x, int rank) { return shape(x)->node ? shape(x)->node[rank] : 0; }
static lane_state *lane_of(const sim *x, int rank, int l) { return &x->lane[rank * x->nlanes + l]; }
static send_state *send_of(const sim *x, int rank, int l, uint32_t i)
{
    return &x->send[x->first[rank * x->nlanes + l] + i];
}
static int *head_of(const sim *x, int from, int to, int l) { return &x->head[(from * x->size + to) * x->nlanes + l]; }
static double bytes(const sim *x, ls_slice a) { return (double)ls_layout_count(&x->layout, a); }
static double later(double a, double b) { return a > b ? a : b; }

static ls_level level(const sim *x, int a, int b)
{
    if (host_of(x, a) != host_of(x, b)) return LS_LEVEL_NETWORK;
    return x->m->memory ? LS_LEVEL_MEMORY : LS_LEVEL_LOOPBACK;
}

/* --- what is next ---------------------------------------------------------------------------- */

static void least_free(least *w)
{
    free(w->winner);
    free(w->time);
}

static bool least_create(int n, least *out)
{
    out->leaves = 1;
    while (out->leaves < n) out->leaves *= 2;
    const size_t k = (size_t)out->leaves;
    out->winner = malloc(2 * k * sizeof *out->winner);
    out->time = malloc(k * sizeof *out->time);
    if (!out->winner || !out->time) return false;
    for (size_t i = 0; i < k; i++) out->time[i] = (double)INFINITY;
    for (size_t i = 2 * k; i-- > 1;) out->winner[i] = i >= k ? (int)(i - k) : out->winner[2 * i];
    return true;
}

static void least_set(least *w, int i, double time)
{
    if (w->time[i] == time) return;
    w->time[i] = time;
    for (int k = (w->leaves + i) / 2; k > 0; k /= 2) {
        const int a = w->winner[2 * k], b = w->winner[2 * k + 1];
        w->winner[k] = w->time[b] < w->time[a] ? b : a;
    }
}

/* --- hardware ------------------------------------------------------------------------------- */

/* The first core of a crowded host that is free; others have no end of them. Returns when work may begin. */
static double take_core(sim *x, int host, double from, double ns)
{
    if (x->crowd[host] == 0 || ns <= 0.0) return from;
    double *best = &x->core[x->core_first[host]];
    for (int i = 1; i < x->crowd[host]; i++)
        if (x->core[x->core_first[host] + i] < *best) best = &x->core[x->core_first[host] + i];
    from = later(from, *best);
    *best = from + ns;
    return from;
}

/* Work of a rank for ns; returns when it is done. */
static double work(sim *x, int rank, double from, double ns)
{
    if (ns <= 0.0) return from;
    from = take_core(x, host_of(x, rank), later(from, x->busy[rank]), ns);
    return x->busy[rank] = from + ns;
}

/* The ways that a message takes. */
static double *way_out(const sim *x, const send_state *a, ls_level l)
{
    return &x->out[l == LS_LEVEL_NETWORK ? x->size + host_of(x, a->rank) : a->rank];
}
static double *way_in(const sim *x, const send_state *a, ls_level l)
{
    return &x->in[l == LS_LEVEL_NETWORK ? x->size + host_of(x, a->peer) : a->peer];
}

/* When the first message that waits in a rank can leave; INFINITY: none waits. */
static double departure(const sim *x, int rank)
{
    int i = x->leaving[rank].first;
    if (i < 0) return (double)INFINITY;
    const send_state *a = &x->send[i];
    ls_level l = level(x, rank, a->peer);
    return later(a->offered, later(*way_out(x, a, l), *way_in(x, a, l)));
}

/* --- steps ------------------------------------------------------------------------------------- */

/* When all sends before step `end` have been read; INFINITY: not known yet. */
static double released(sim *x, int rank, int l, uint32_t end)
{
    lane_state *ls = lane_of(x, rank, l);
    for (; ls->released < end; ls->released++) {
        const send_state *a = send_of(x, rank, l, ls->released);
        if (x->s[rank]->lane[l].step[ls->released].kind != LS_STEP_SEND) continue;
        if (a->read < 0.0) return (double)INFINITY;
        ls->read_ns = later(ls->read_ns, a->read);
    }
    return ls->read_ns;
}

static double arrival(const sim *x, int from, int to, int l)
{
    int i = *head_of(x, from, to, l);
    return i < 0 || x->send[i].ready < 0.0 ? (double)INFINITY : x->send[i].ready;
}

/* Sets when a lane can take its next step, as far as that is known. */
static void look(sim *x, int rank, int l)
{
    lane_state *ls = lane_of(x, rank, l);
    const int i = rank * x->nlanes + l;
    if (ls->pc >= x->s[rank]->lane[l].n) {
        least_set(&x->steps, i, (double)INFINITY);
        return;
    }
    const ls_step *a = &x->s[rank]->lane[l].step[ls->pc];
    double start = ls->t;
    if (a->after_send >= 0) start = later(start, released(x, rank, l, (uint32_t)a->after_send + 1));
    if (a->kind == LS_STEP_RECV || a->kind == LS_STEP_RECV_REDUCE) start = later(start, arrival(x, a->peer, rank, l));
    for (int q = 0; a->kind == LS_STEP_SUM && q < x->size && isfinite(start); q++)
        if (q != rank) start = later(start, arrival(x, q, rank, l));
    least_set(&x->steps, i, start);
}

/* In memory it is there; a wire takes it when it is free. */
static void offer(sim *x, int rank, int l, const ls_step *a, double start)
{
    lane_state *ls = lane_of(x, rank, l);
    send_state *m = send_of(x, rank, l, ls->pc);
    const ls_link_cost *memory = &x->m->cost->link[LS_LEVEL_MEMORY];
    if (level(x, rank, a->peer) == LS_LEVEL_MEMORY) {
        ls->t = work(x, rank, start, memory->gap_ns);
        m->ready = ls->t - memory->gap_ns + memory->alpha_ns;
        return;
    }
    int i = (int)(m - x->send);
    leaving *q = &x->leaving[rank];
    m->offered = start;
    m->nbytes = bytes(x, a->src);
    m->behind = -1;
    if (q->first < 0) q->first = i;
    else x->send[q->last].behind = i;
    q->last = i;
    least_set(&x->departures, rank, departure(x, rank));
}

static void depart(sim *x, int rank)
{
    leaving *q = &x->leaving[rank];
    send_state *a = &x->send[q->first];
    ls_level l = level(x, rank, a->peer);
    const ls_link_cost *c = &x->m->cost->link[l];
    double start = departure(x, rank), ns = c->gap_ns + a->nbytes * c->beta_ns;
    if (l == LS_LEVEL_LOOPBACK) start = take_core(x, host_of(x, rank), start, ns);
    *way_out(x, a, l) = *way_in(x, a, l) = a->read = start + ns;
    a->ready = start + c->alpha_ns + a->nbytes * c->beta_ns;
    q->first = a->behind;
    least_set(&x->departures, rank, departure(x, rank));
    look(x, rank, a->lane);
    look(x, a->peer, a->lane);
}

/* The peer's message has been used. */
static void take(sim *x, int from, int to, int l, double when)
{
    int *head = head_of(x, from, to, l);
    send_state *m = &x->send[*head];
    if (m->read < 0.0) m->read = when;
    *head = m->next;
}

static void step(sim *x, int rank, int l)
{
    lane_state *ls = lane_of(x, rank, l);
    const ls_cost *c = x->m->cost;
    const ls_step *a = &x->s[rank]->lane[l].step[ls->pc];
    double start = x->steps.time[rank * x->nlanes + l], n = bytes(x, a->dst), copy = c->link[LS_LEVEL_MEMORY].beta_ns;
    bool waits = a->kind == LS_STEP_RECV || a->kind == LS_STEP_RECV_REDUCE || a->kind == LS_STEP_SUM;
    if (waits && start > ls->t && x->crowd[host_of(x, rank)]) start += c->poke_ns;
    ls->t = start;
    switch (a->kind) {
    case LS_STEP_SEND: offer(x, rank, l, a, start); break;
    case LS_STEP_RECV:
        ls->t = work(x, rank, start, level(x, rank, a->peer) == LS_LEVEL_MEMORY ? n * copy : 0.0);
        take(x, a->peer, rank, l, ls->t);
        break;
    case LS_STEP_RECV_REDUCE:
        ls->t = work(x, rank, start, n * c->gamma_ns);
        take(x, a->peer, rank, l, ls->t);
        break;
    case LS_STEP_SUM:
        ls->t = work(x, rank, start, n * c->gamma_ns * (x->size + 1) / 3.0);
        for (int q = 0; q < x->size; q++)
            if (q != rank) take(x, q, rank, l, ls->t);
        break;
    case LS_STEP_COPY: ls->t = work(x, rank, start, n * copy); break;
    case LS_STEP_REDUCE: ls->t = work(x, rank, start, n * c->gamma_ns); break;
    case LS_STEP_FOLD: /* between two flags; n reads and n writes */
        ls->t = work(x, rank, start + c->link[LS_LEVEL_MEMORY].alpha_ns, n * c->gamma_ns * (2 * x->size) / 3.0);
        ls->t += c->link[LS_LEVEL_MEMORY].alpha_ns;
        break;
    }
    ls->pc++;
    look(x, rank, l);
    if (a->kind == LS_STEP_SUM) {
        for (int q = 0; q < x->size; q++) look(x, q, l);
    } else if (a->peer >= 0) {
        look(x, a->peer, l);
    }
}

static ls_status run(sim *x, double *ns)
{
    for (int i = 0; i < x->size * x->nlanes; i++) look(x, i / x->nlanes, i % x->nlanes);
    for (;;) {
        /* In the order of time, so that who is ready first gets the hardware. Ways are only ever taken for longer, so a
         * departure that was looked at earlier is late at most. */
        const int first = x->steps.winner[1], rank = x->departures.winner[1];
        const double starts = x->steps.time[first], leaves = x->departures.time[rank];
        if (!isfinite(starts) && !isfinite(leaves)) break;
        if (starts <= leaves) step(x, first / x->nlanes, first % x->nlanes);
        else if (departure(x, rank) > leaves) least_set(&x->departures, rank, departure(x, rank));
        else depart(x, rank);
    }
    *ns = 0.0;
    for (int i = 0; i < x->size * x->nlanes; i++) {
        int rank = i / x->nlanes, l = i % x->nlanes;
        if (x->lane[i].pc < x->s[rank]->lane[l].n)
            return ls_fail(LS_INTERNAL, "timing %s: rank %d, lane %d, waits at step %u for ever",
                           ls_coll_name(shape(x)->coll), rank, l, x->lane[i].pc);
        *ns = later(*ns, later(x->lane[i].t, released(x, rank, l, x->lane[i].pc)));
    }
    return LS_OK;
}

/* --- before and after ----------------------------------------------------------------------------- */

/* Chains the sends of each queue, last to first. */
static void chain_sends(sim *x)
{
    for (int i = 0; i < x->size * x->size * x->nlanes; i++) x->head[i] = -1;
    for (int r = 0; r < x->size; r++) x->leaving[r].first = -1;
    for (int rank = 0; rank < x->size; rank++)
        for (int l = 0; l < x->nlanes; l++)
            for (uint32_t i = x->s[rank]->lane[l].n; i-- > 0;) {
                const ls_step *a = &x->s[rank]->lane[l].step[i];
                send_state *m = send_of(x, rank, l, i);
                *m = (send_state){ NOT_YET, NOT_YET, .rank = rank, .peer = a->peer, .lane = l };
                if (a->kind != LS_STEP_SEND) continue;
                int *head = head_of(x, rank, a->peer, l);
                m->next = *head;
                *head = (int)(m - x->send);
            }
}

static void free_all(sim *x)
{
    ls_layout_free(&x->layout);
    free(x->lane);
    free(x->send);
    free(x->first);
    free(x->head);
    free(x->leaving);
    free(x->busy);
    free(x->out);
    free(x->in);
    free(x->core);
    free(x->core_first);
    free(x->crowd);
    least_free(&x->steps);
    least_free(&x->departures);
}

static ls_status allocate(sim *x)
{
    size_t n = (size_t)x->size, lanes = n * (size_t)x->nlanes, steps = 0, cores = 0, hosts = (size_t)x->nhosts;
    x->first = calloc(lanes, sizeof *x->first);
    x->core_first = calloc(hosts, sizeof *x->core_first);
    x->crowd = calloc(hosts, sizeof *x->crowd);
    if (!x->first || !x->core_first || !x->crowd) return ls_fail(LS_NO_MEMORY, "timing %zu lanes", lanes);
    for (size_t i = 0; i < lanes; i++) {
        x->first[i] = steps;
        steps += x->s[i / (size_t)x->nlanes]->lane[i % (size_t)x->nlanes].n;
    }
    for (int r = 0; r < x->size; r++) x->crowd[host_of(x, r)]++;
    for (int h = 0; h < x->nhosts; h++) {
        int have = x->m->cores ? x->m->cores[h] : x->crowd[h];
        x->crowd[h] = have < 1 ? 1 : have < x->crowd[h] ? have : 0;
        x->core_first[h] = (int)cores;
        cores += (size_t)x->crowd[h];
    }
    x->lane = calloc(lanes, sizeof *x->lane);
    x->send = calloc(steps + 1, sizeof *x->send);
    x->head = calloc(n * lanes, sizeof *x->head);
    x->leaving = calloc(n, sizeof *x->leaving);
    x->busy = calloc(n, sizeof *x->busy);
    x->out = calloc(n + hosts, sizeof *x->out);
    x->in = calloc(n + hosts, sizeof *x->in);
    x->core = calloc(cores + 1, sizeof *x->core);
    if (!x->lane || !x->send || !x->head || !x->leaving || !x->busy || !x->out || !x->in || !x->core ||
        !least_create((int)lanes, &x->steps) || !least_create(x->size, &x->departures))
        return ls_fail(LS_NO_MEMORY, "timing %zu steps", steps);
    return LS_OK;
}

ls_status ls_sched_time(const ls_machine *m, const ls_sched *const *per_rank, int size, size_t nbytes, double *ns)
{
    sim x = { .m = m, .s = per_rank, .size = size, .nlanes = per_rank[0]->shape.nlanes, .nhosts = 1 };
    for (int r = 0; r < size; r++)
        if (host_of(&x, r) >= x.nhosts) x.nhosts = host_of(&x, r) + 1;
    LS_TRY(ls_layout_create(per_rank[0], &x.layout));
    ls_layout_set(&x.layout, nbytes);
    ls_status st = allocate(&x);
    if (st == LS_OK) {
        chain_sends(&x);
        st = run(&x, ns);
    }
    free_all(&x);
    return st;
}
