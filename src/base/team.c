/* team.c -- the threads of a rank.
 *
 * A loop begins when its owner has written `fn`, `arg` and `left` and then fills the ranges of the seats, which is
 * what members take pieces from, by compare-and-swap. Whoever takes a piece of a range therefore sees the fn and arg
 * that belong to it, also a member that comes a loop late; and the owner changes them only after every piece that was
 * taken is done.
 */
#include "base/team.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/context.h"
#include "base/log.h"
#include "base/wait.h"

#define MEMBER_NS   1000000u    /* a member waits for a loop so long awake: longer than most stretches between two of a step */
#define OWNER_NS    5000000u    /* and the owner for the pieces that others are in */
#define LOOK_TURNS  32          /* between two looks at the clock */
#define PAUSE_NS    5000u       /* between two offers of the core to other processes */
#define TAKEN_NS    1000000u    /* an offer that lasts longer was accepted by a process that computes; a longer gap, too */
#define SHY_NS      100000000u  /* for so long after that, members sleep soon; twice as long each time it happens again, */
#define SHY_MOST_NS 2000000000u
#define SHY_SPIN_NS 3000u

/* Pieces of one member that have not begun: the next one in the upper half, the end in the lower. */
typedef _Atomic uint64_t range;

typedef struct seat {
    _Alignas(64) range pieces;
    struct team *team;
    void *thread; /* NULL: the owner's */
    int index;
} seat;

typedef struct team {
    _Alignas(64) ls_team_fn fn; /* of the loop that is on */
    void *arg;
    _Alignas(64) _Atomic uint32_t loops; /* that have begun; members sleep on it */
    _Atomic uint32_t asleep;             /* members that do */
    _Atomic bool ending;
    _Alignas(64) _Atomic uint32_t left; /* pieces of the loop that are not done; the owner sleeps on it, */
    _Atomic uint32_t parked;            /* and says so */
    _Alignas(64) _Atomic uint64_t gap_ns; /* the last long gap */
    _Atomic uint64_t shy_until_ns, shy_ns; /* when shyness ends, and how long it was */
    bool passive, active; /* OMP_WAIT_POLICY */
    const ls_env *env;
    int rank, log_level;
    int pid; /* of the process that started it: a child that was forked has its memory, but not its threads */
    int size;
    seat seat[];
} team;

typedef struct own {
    team *team; /* owned */
    int size;   /* that the next loop takes; 0: not asked for yet */
    int index;  /* of this thread in the team that it is a member of */
    bool busy;  /* in a piece */
} own;
static LS_THREAD_LOCAL own mine;

/* --- waiting ---------------------------------------------------------------------------------- */

typedef struct spin {
    uint64_t most_ns; /* set by who waits; the rest is zero at first */
    uint64_t begin_ns, seen_ns, offer_ns;
    unsigned turns;
} spin;

/* Other processes want this core. Lost updates of two members at once do no harm. */
static void be_shy(team *t, uint64_t now)
{
    const uint64_t until = atomic_load_explicit(&t->shy_until_ns, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&t->shy_ns, memory_order_relaxed);
    ns = until == 0 || now > until + 2 * ns ? SHY_NS : 2 * ns < SHY_MOST_NS ? 2 * ns : SHY_MOST_NS;
    atomic_store_explicit(&t->shy_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&t->shy_until_ns, now + ns, memory_order_relaxed);
}

/* The thread did not run for a while, for another process or because the whole machine stood still: twice within
 * SHY_NS it is taken for the former. */
static void note_gap(team *t, uint64_t now)
{
    const uint64_t last = atomic_exchange_explicit(&t->gap_ns, now, memory_order_relaxed);
    if (last && now - last < SHY_NS) be_shy(t, now);
}

/* Whether to look again without sleeping. */
static bool spin_on(team *t, spin *s)
{
    ls_cpu_relax();
    if (++s->turns % LOOK_TURNS || t->active) return true;
    const uint64_t now = t->env->mono_ns();
    if (s->turns == LOOK_TURNS) {
        s->begin_ns = s->seen_ns = now;
        s->offer_ns = now + PAUSE_NS;
        if (now < atomic_load_explicit(&t->shy_until_ns, memory_order_relaxed) && s->most_ns > SHY_SPIN_NS)
            s->most_ns = SHY_SPIN_NS;
        return !t->passive;
    }
    if (now - s->seen_ns > TAKEN_NS) {
        note_gap(t, now);
        return false;
    }
    s->seen_ns = now;
    if (now >= s->offer_ns) {
        t->env->yield();
        s->seen_ns = t->env->mono_ns();
        s->offer_ns = s->seen_ns + PAUSE_NS;
        if (s->seen_ns - now > TAKEN_NS) {
            be_shy(t, s->seen_ns);
            return false;
        }
    }
    return now - s->begin_ns < s->most_ns;
}

/* Until another loop has begun than the `seen`th. */
static void await_loop(team *t, uint32_t seen)
{
    spin s = { .most_ns = MEMBER_NS };
    while (atomic_load_explicit(&t->loops, memory_order_acquire) == seen && spin_on(t, &s)) {}
    while (atomic_load_explicit(&t->loops, memory_order_acquire) == seen) {
        /* sequentially consistent, as what begins a loop: one of the two sees the other */
        atomic_fetch_add(&t->asleep, 1);
        t->env->wait((const uint32_t *)&t->loops, seen, NULL, 0, LS_NO_DEADLINE);
        atomic_fetch_sub(&t->asleep, 1);
    }
}

/* Until every piece is done: those that others have begun. */
static void await_pieces(team *t)
{
    uint32_t left;
    spin s = { .most_ns = OWNER_NS };
    while (atomic_load_explicit(&t->left, memory_order_acquire) > 0 && spin_on(t, &s)) {}
    while ((left = atomic_load_explicit(&t->left, memory_order_acquire)) > 0) {
        atomic_store(&t->parked, 1);
        if (atomic_load(&t->left) == left) t->env->wait((const uint32_t *)&t->left, left, NULL, 0, LS_NO_DEADLINE);
        atomic_store(&t->parked, 0);
    }
}

/* --- working ------------------------------------------------------------------------------------ */

static uint64_t pair(uint64_t next, uint64_t end) { return next << 32 | end; }

/* A piece of the range; -1: none is left. */
static int64_t take(range *r)
{
    const uint64_t one = (uint64_t)1 << 32;
    uint64_t v = atomic_load_explicit(r, memory_order_relaxed);
    while (v >> 32 < (v & UINT32_MAX))
        if (atomic_compare_exchange_weak_explicit(r, &v, v + one, memory_order_acquire, memory_order_relaxed))
            return (int64_t)(v >> 32);
    return -1;
}

/* All that is left of the loop: first this member's range, then those of the members that follow it. */
static void work(team *t, int index)
{
    uint32_t done = 0;
    mine.busy = true;
    for (int k = 0; k < t->size; k++) {
        range *r = &t->seat[(index + k) % t->size].pieces;
        for (int64_t i; (i = take(r)) >= 0; done++) t->fn(t->arg, i);
    }
    mine.busy = false;
    if (done == 0) return;
    /* release: what the pieces wrote; sequentially consistent with `parked` */
    if (atomic_fetch_sub(&t->left, done) == done && atomic_load(&t->parked)) t->env->wake((const uint32_t *)&t->left);
}

static void member(void *arg)
{
    const seat *me = arg;
    team *t = me->team;
    ls_context *c = ls_context_get();
    c->env = t->env;
    c->rank = t->rank;
    c->log_level = t->log_level;
    mine.size = 1;
    mine.index = me->index;
    for (uint32_t seen = 0; !atomic_load_explicit(&t->ending, memory_order_acquire);) {
        await_loop(t, seen);
        seen = atomic_load_explicit(&t->loops, memory_order_acquire);
        work(t, me->index);
    }
}

/* --- a team ------------------------------------------------------------------------------------- */

static bool policy_is(const ls_env *env, const char *lower, const char *upper)
{
    const char *told = env->getenv("OMP_WAIT_POLICY");
    return told && (strcmp(told, lower) == 0 || strcmp(told, upper) == 0);
}

static team *start(int size)
{
    const ls_context *c = ls_context_get();
    team *t = aligned_alloc(64, sizeof(team) + (size_t)size * sizeof(seat));
    if (!t) return NULL;
    memset(t, 0, sizeof(team) + (size_t)size * sizeof(seat));
    t->env = c->env;
    t->rank = c->rank;
    t->log_level = c->log_level;
    t->passive = policy_is(t->env, "passive", "PASSIVE") || t->env->spin_turns == 0; /* 0: a simulation */
    t->active = policy_is(t->env, "active", "ACTIVE");
    t->pid = c->env->pid();
    t->size = size;
    for (int i = 0; i < size; i++) {
        t->seat[i].team = t;
        t->seat[i].index = i;
    }
    t->env->at_thread_end(ls_team_end);
    for (int i = 1; i < size; i++) {
        const int err = t->env->thread_start(member, &t->seat[i], &t->seat[i].thread);
        if (err == 0) continue;
        /* The seats stay: their pieces are taken by those who are there. */
        ls_log(LS_LOG_WARN, "%d of %d threads could not be started: %s", size - i, size, strerror(-err));
        break;
    }
    return t;
}

void ls_team_end(void)
{
    team *t = mine.team;
    if (!t) return;
    mine.team = NULL;
    if (t->pid == t->env->pid()) {
        atomic_store(&t->ending, true);
        atomic_fetch_add(&t->loops, 1);
        t->env->wake((const uint32_t *)&t->loops);
        for (int i = 1; i < t->size; i++) t->env->thread_join(t->seat[i].thread);
    }
    free(t);
}

static int size_from_environment(void)
{
    const ls_env *env = ls_env_get();
    const char *told = env->getenv("OMP_NUM_THREADS"); /* a list has a number per level of nesting */
    const long n = told ? strtol(told, NULL, 10) : 0;
    const int size = n > 0 ? n > LS_TEAM_MOST ? LS_TEAM_MOST : (int)n : env->cpus();
    return size < 1 ? 1 : size > LS_TEAM_MOST ? LS_TEAM_MOST : size;
}

int ls_team_size(void)
{
    if (mine.busy) return 1;
    if (mine.size == 0) mine.size = size_from_environment();
    return mine.size;
}

bool ls_team_told(void) { return ls_env_get()->getenv("OMP_NUM_THREADS") != NULL; }

int ls_team_share(int cpus, int ranks)
{
    return ranks > 0 && cpus > ranks ? cpus / ranks : 1;
}

void ls_team_cores(int rank, int ranks, int cpus, int *first, int *count)
{
    const int each = cpus / ranks;
    *count = each >= 1 ? each : cpus > 0 && ranks % cpus == 0;
    *first = each >= 1 ? rank * each : *count ? rank % cpus : 0;
}

int ls_team_planned(int ranks)
{
    const int share = ls_team_share(ls_env_get()->cpus(), ranks), size = ls_team_size();
    return ls_team_told() || size < share ? size : share;
}

int ls_team_index(void) { return mine.index; }

int ls_team_resize(int n)
{
    const int before = ls_team_size();
    if (mine.busy) return before;
    if (mine.team && mine.team->pid != mine.team->env->pid()) ls_team_end();
    mine.size = n < 1 ? 1 : n > LS_TEAM_MOST ? LS_TEAM_MOST : n;
    return before;
}

void ls_team_run(ls_team_fn fn, void *arg, int64_t n)
{
    const int size = ls_team_size();
    if (size > 1 && n > 1 && (!mine.team || mine.team->size != size)) {
        ls_team_end();
        mine.team = start(size);
    }
    team *t = mine.team;
    if (size == 1 || n <= 1 || !t) {
        for (int64_t i = 0; i < n; i++) fn(arg, i);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->left, (uint32_t)n, memory_order_relaxed);
    for (int i = 0; i < size; i++) /* release: fn, arg and left */
        atomic_store_explicit(&t->seat[i].pieces, pair((uint64_t)(n * i / size), (uint64_t)(n * (i + 1) / size)),
                              memory_order_release);
    atomic_fetch_add(&t->loops, 1);
    if (atomic_load(&t->asleep) > 0) t->env->wake((const uint32_t *)&t->loops);
    work(t, 0);
    await_pieces(t);
}
