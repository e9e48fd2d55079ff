/* Ranks that a process starts as copies of itself, what they say to it, and the CPUs that they get. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "group/local_ranks.h"
#include "lockstep/group.h"
#include "plan/wait_cost.h"

enum { RANKS = 4 };

typedef struct said {
    int pid[RANKS];
    float sum[RANKS], sent[RANKS];
} said;

static int own = 1; /* of each process */

static ls_status says(ls_world *w, void *arg)
{
    said *to = arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w);
    void *p;
    LS_TRY(ls_alloc(w, 1 << 20, LS_MEM_COMM, &p));
    float *x = p;
    for (int i = 0; i < 1000; i++) x[i] = (float)(rank + 1);
    LS_TRY(ls_all_reduce(g, NULL, x, 1000, LS_F32, LS_SUM));
    const int next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
    const ls_p2p op[] = { { .send = x + 1, .count = 1, .dtype = LS_F32, .peer = next },
                          { .recv = &to->sent[rank], .count = 1, .dtype = LS_F32, .peer = last } };
    x[1] = (float)(10 * rank);
    LS_TRY(ls_p2p_batch(g, op, 2));
    to->sum[rank] = x[999];
    to->pid[rank] = (int)getpid();
    own += rank + 1;
    return own == rank + 2 ? LS_OK : ls_fail(LS_INTERNAL, "another rank wrote to this one's memory");
}

static void ranks_are_processes_that_talk(void **state)
{
    (void)state;
    void *p;
    const ls_world_opts o = { .arena_bytes = 4 << 20 };
    assert_int_equal(ls_local_alloc(sizeof(said), sizeof(said), &p), LS_OK);
    said *s = p;
    assert_true(s->sum[0] == 0);
    assert_int_equal(ls_local_run(RANKS, &o, says, s, false), LS_OK);
    assert_int_equal(own, 1);
    for (int r = 0; r < RANKS; r++) {
        assert_true(s->sum[r] == 10);
        assert_true(s->sent[r] == (float)(10 * ((r + RANKS - 1) % RANKS)));
        assert_true(s->pid[r] != (int)getpid());
        for (int q = 0; q < r; q++) assert_true(s->pid[q] != s->pid[r]);
    }
    ls_local_free(p, sizeof(said));
    ls_local_free(NULL, 1);
}

static ls_status one_fails(ls_world *w, void *arg)
{
    (void)arg;
    return ls_world_rank(w) == 2 ? ls_fail(LS_UNSUPPORTED, "no such thing") : ls_barrier(ls_world_group(w));
}

static ls_status one_is_killed(ls_world *w, void *arg)
{
    (void)arg;
    if (ls_world_rank(w) == 1) (void)kill(getpid(), SIGKILL);
    return ls_barrier(ls_world_group(w));
}

static ls_status one_ends_well(ls_world *w, void *arg)
{
    (void)arg;
    if (ls_world_rank(w) == 0) _exit(0);
    return ls_barrier(ls_world_group(w));
}

static ls_status one_exits(ls_world *w, void *arg)
{
    (void)arg;
    if (ls_world_rank(w) == 3) _exit(7);
    return ls_barrier(ls_world_group(w));
}

/* The others wait for it as long as a timeout allows. */
static ls_status one_stops(ls_world *w, void *arg)
{
    (void)arg;
    if (ls_world_rank(w) == 0) (void)kill(getpid(), SIGSTOP);
    return ls_barrier(ls_world_group(w));
}

static ls_status one_wants_more(ls_world *w, void *arg)
{
    (void)arg;
    void *p;
    return ls_alloc(w, 8 << 20, LS_MEM_COMM, &p);
}

static void a_failure_is_told(void **state)
{
    (void)state;
    const struct { ls_rank_fn fn; ls_status status; const char *says; } row[] = {
        { one_fails, LS_UNSUPPORTED, "rank 2: no such thing" },
        { one_is_killed, LS_RANK_DIED, "the process of rank 1 ended by signal 9" },
        { one_exits, LS_RANK_DIED, "the process of rank 3 ended by exit status 7" },
        { one_ends_well, LS_RANK_DIED, "the process of rank 0 ended by exit status 0" },
        { one_stops, LS_RANK_HUNG, "" },
        { one_wants_more, LS_NO_MEMORY, "" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ls_world_opts o = { .arena_bytes = 1 << 20, .coll_timeout_ns = 1000000000u };
        const uint64_t from = ls_env_get()->mono_ns();
        const ls_status st = ls_local_run(RANKS, &o, row[i].fn, NULL, false);
        if (st != row[i].status || !strstr(ls_last_error(), row[i].says))
            fail_msg("row %zu: %s: %s", i, ls_status_word(st), ls_last_error());
        assert_true(ls_env_get()->mono_ns() - from < 20000000000u);
    }
    assert_int_equal(ls_local_run(0, NULL, one_fails, NULL, false), LS_INVALID);
    assert_int_equal(ls_local_run(2, &(ls_world_opts){ .bind = true }, one_fails, NULL, false), LS_INVALID);
}

/* Ended processes that the kernel reaps at once, since nobody wants to hear of them, have not failed. */
static void ended_ranks_may_be_reaped_unseen(void **state)
{
    (void)state;
    void *p;
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    assert_int_equal(ls_local_alloc(sizeof(said), sizeof(said), &p), LS_OK);
    const ls_world_opts o = { .arena_bytes = 4 << 20 };
    if (ls_local_run(RANKS, &o, says, p, false) < 0) fail_msg("%s", ls_last_error());
    ls_local_free(p, sizeof(said));
    (void)signal(SIGCHLD, before);
}

static int refuse(void (*fn)(void *), void *arg)
{
    (void)fn;
    (void)arg;
    return -EAGAIN;
}

static void processes_may_be_refused(void **state)
{
    (void)state;
    ls_env env = *ls_env_get();
    env.fork = refuse;
    const ls_context before = *ls_context_get();
    ls_context_get()->env = &env;
    assert_int_equal(ls_local_run(RANKS, NULL, one_fails, NULL, false), LS_SYSTEM);
    assert_non_null(strstr(ls_last_error(), "process for rank 0 of 4 could not be started: "));
    const ls_wait_ranks r = { .ranks = 2, .cores = 1 };
    assert_int_equal(ls_wait_cost_measure(&r, &(ls_wait_cost){ 0 }), LS_SYSTEM);
    *ls_context_get() = before;
}

static ls_status sums(ls_world *w, void *arg)
{
    (void)arg;
    int32_t one = 1;
    LS_TRY(ls_all_reduce(ls_world_group(w), &one, &one, 1, LS_I32, LS_SUM));
    return one == 64 ? LS_OK : ls_fail(LS_INTERNAL, "%d", one);
}

/* As many mirrors as there are, in arenas that do not grow. */
static void default_arenas_hold_a_group_of_64(void **state)
{
    (void)state;
    if (ls_local_run(64, &(ls_world_opts){ 0 }, sums, NULL, false) < 0) fail_msg("%s", ls_last_error());
}

/* --- CPUs --------------------------------------------------------------------------------------------------------- */

static uint64_t bound;

static int cpus_bound(uint64_t *mask, int n)
{
    memset(mask, 0, (size_t)n * sizeof *mask);
    mask[0] = bound;
    return __builtin_popcountll(bound);
}

static int keep(const uint64_t *mask, int n)
{
    for (int i = 1; i < n; i++) assert_true(mask[i] == 0);
    bound = mask[0];
    return 0;
}

/* As a launcher binds them, to some of CPUs 1, 3, 5 and 7; a process on CPU 5 alone has those that follow, too. */
static void ranks_are_placed_as_a_launcher_does(void **state)
{
    (void)state;
    ls_env env = *ls_env_get();
    env.cpu_mask = cpus_bound;
    env.bind_cpus = keep;
    const ls_context before = *ls_context_get();
    ls_context_get()->env = &env;
    enum { ALL = 0xaa, ONE = 0x20 };
    const struct { uint64_t had; int rank, ranks; double cores; uint64_t want; bool is; } row[] = {
        { ALL, 0, 8, 4, 0x02, true },   { ALL, 1, 8, 4, 0x08, true },  { ALL, 7, 8, 4, 0x80, true }, /* in turn */
        { ALL, 0, 2, 4, 0x0a, true },   { ALL, 1, 2, 4, 0xa0, true },  { ALL, 3, 4, 4, 0x80, true }, /* their own */
        { ALL, 0, 6, 4, ALL, false },   { ALL, 0, 6, 1.5, ALL, false }, { ALL, 0, 8, .5, ALL, false },
        { ALL, 0, 8, 2, ALL, false },   { ALL, 0, 2, 2, 0x02, true }, /* two CPUs' time on any of four */
        { ONE, 0, 4, 2, 0x20, true },   { ONE, 1, 4, 2, 0x40, true },  { ONE, 3, 4, 2, 0x40, true },
        { ONE, 1, 2, 2, 0x40, true },   { ONE, 1, 2, 4, 0x180, true }, { ONE, 1, 3, 2, 0x60, false },
        { ALL, 0, 1, 4, ALL, true },    { ONE, 0, 1, 4, ONE, true },   { ONE, 0, 6, 1.5, ONE, false },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        bound = row[i].had;
        if (ls_local_is_bound(row[i].ranks, row[i].cores) != row[i].is) fail_msg("row %zu: bound", i);
        ls_local_place(row[i].rank, row[i].ranks, row[i].cores);
        if (bound != row[i].want) fail_msg("row %zu: %llx", i, (unsigned long long)bound);
    }
    assert_int_equal(ls_local_core(5, 8, 4), 1);
    assert_int_equal(ls_local_core(1, 2, 4), 2);
    *ls_context_get() = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_processes_that_talk),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(ended_ranks_may_be_reaped_unseen),
        cmocka_unit_test(processes_may_be_refused),
        cmocka_unit_test(default_arenas_hold_a_group_of_64),
        cmocka_unit_test(ranks_are_placed_as_a_launcher_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
