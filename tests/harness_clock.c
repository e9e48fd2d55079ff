/* harness_clock.c -- a clock that all ranks of a test move together. */
#include "harness_clock.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/context.h"
#include "base/env.h"

#define MOST_STEP_NS 10000000u
#define HANG_NS 60000000000u
#define NAP_NS 1000000u
#define RANKS 32

/* In memory that all processes of a test share. */
typedef struct shared_clock {
    _Atomic uint64_t now_ns, moved_ns;   /* what it shows; when it moved, by the real one */
    _Atomic uint64_t waits_for;          /* a bit for each thread that is to look: r, rank r; RANKS + r, its helper */
    _Atomic uint32_t turn;               /* how often it has moved */
    _Atomic uint32_t seen[2 * RANKS];    /* the turn in which a thread looked last, and one */
    _Atomic uint32_t owned[RANKS];       /* a thread of the rank has looked */
    ls_rank_fn fn;
    void *arg;
} shared_clock;

static shared_clock *shared; /* of the test that runs */
static const ls_env *beneath;
static _Thread_local struct { const shared_clock *of; uint64_t bit; int slot; } mine;

/* Moves the clock if everybody has looked in this turn. */
static void move(uint64_t real_ns)
{
    uint32_t turn = atomic_load(&shared->turn);
    const uint64_t waits_for = atomic_load(&shared->waits_for), was = atomic_load(&shared->moved_ns);
    if (real_ns <= was) return;
    for (int i = 0; i < 2 * RANKS && real_ns - was < HANG_NS; i++)
        if (waits_for >> i & 1 && atomic_load(&shared->seen[i]) != turn + 1) return;
    if (!atomic_compare_exchange_strong(&shared->turn, &turn, turn + 1)) return;
    const uint64_t before = atomic_exchange(&shared->moved_ns, real_ns);
    const uint64_t passed = real_ns > before ? real_ns - before : 0;
    atomic_fetch_add(&shared->now_ns, waits_for && passed > MOST_STEP_NS ? MOST_STEP_NS : passed);
}

/* The first thread of a rank that looks is its own, a later one its helper. */
static void take_slot(int rank)
{
    const bool helps = atomic_fetch_add(&shared->owned[rank], 1) > 0;
    mine.of = shared;
    mine.slot = helps ? RANKS + rank : rank;
    mine.bit = 1ull << mine.slot;
    if (helps && atomic_load(&shared->waits_for) >> rank & 1) atomic_fetch_or(&shared->waits_for, mine.bit);
}

static uint64_t look(void)
{
    const int rank = ls_context_get()->rank;
    if (rank >= 0 && rank < RANKS) {
        if (mine.of != shared) take_slot(rank);
        atomic_store(&shared->seen[mine.slot], atomic_load(&shared->turn) + 1);
    }
    move(beneath->mono_ns());
    return atomic_load(&shared->now_ns);
}

static void look_and_yield(void)
{
    (void)look();
    beneath->yield();
}

static void wait(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    const uint64_t now = look(), left = deadline_ns > now ? deadline_ns - now : 0;
    beneath->wait(word, value, fds, nfds, beneath->mono_ns() + (left < NAP_NS ? left : NAP_NS));
}

void ls_test_looks_no_more(void)
{
    const int rank = ls_context_get()->rank;
    atomic_fetch_and(&shared->waits_for, ~(1ull << rank | 1ull << (RANKS + rank)));
}

static ls_status one_rank(ls_world *w, void *arg)
{
    const shared_clock *c = arg;
    const ls_status st = c->fn(w, c->arg);
    ls_test_looks_no_more();
    return st;
}

ls_rank_report ls_test_ranks_in_step(ls_test_mode mode, int n, const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    assert_in_range(n, 1, RANKS);
    beneath = ls_env_get();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    shared->now_ns = shared->moved_ns = beneath->mono_ns();
    shared->waits_for = (1ull << n) - 1;
    shared->fn = fn;
    shared->arg = arg;
    ls_env env = *beneath;
    env.mono_ns = look;
    env.yield = look_and_yield;
    env.wait = wait;
    ls_context context = *ls_context_get(), *was = ls_context_swap(&context);
    context.env = &env;
    const ls_rank_report report = ls_test_ranks(mode, n, opts, one_rank, shared);
    ls_context_swap(was);
    munmap(shared, sizeof *shared);
    shared = NULL;
    return report;
}
