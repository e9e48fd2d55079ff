/* team: every piece runs once, whoever is late; no loop waits for a member that has nothing; each has its own index. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/team.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 3000

static ls_env env;
static ls_context context = { .env = &env, .rank = -1, .log_level = -1 }, *was;

static int enter(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    unsetenv("OMP_WAIT_POLICY");
    env = ls_env_real;
    was = ls_context_swap(&context);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    ls_team_end();
    ls_team_resize(ls_env_real.cpus());
    ls_context_swap(was);
    return 0;
}

typedef struct pieces {
    _Atomic int ran[MOST];
    _Atomic int inside[LS_TEAM_MOST]; /* pieces that a member is in at this moment */
    _Atomic int wrong;
    int plain[MOST]; /* written without synchronisation: visible to the caller afterwards */
    int size;
    int64_t n;
} pieces;

static void run_piece(void *arg, int64_t i)
{
    pieces *p = arg;
    const int me = ls_team_index();
    const bool shared = p->size > 1 && p->n > 1;
    if (me < 0 || me >= p->size || atomic_fetch_add(&p->inside[me], 1) != 0) p->wrong++;
    if (shared && ls_team_size() != 1) p->wrong++;
    p->ran[i]++;
    p->plain[i] = (int)i + 1;
    atomic_fetch_sub(&p->inside[me], 1);
}

static void assert_once(pieces *p, int64_t n)
{
    assert_int_equal(p->wrong, 0);
    for (int64_t i = 0; i < MOST; i++)
        if (p->ran[i] != (i < n) || p->plain[i] != (i < n ? (int)i + 1 : 0))
            fail_msg("%d threads, %d pieces: piece %d ran %d times", p->size, (int)n, (int)i, p->ran[i]);
}

static void every_piece_runs_once(void **state)
{
    (void)state;
    static const int64_t numbers[] = { 0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 100, 1023, MOST };
    static const int sizes[] = { 1, 2, 3, 5, 8, 4, 1, 2 };
    pieces *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (size_t s = 0; s < COUNT(sizes); s++) {
        ls_team_resize(sizes[s]);
        assert_int_equal(ls_team_size(), sizes[s]);
        for (size_t k = 0; k < COUNT(numbers); k++) {
            memset(p, 0, sizeof *p);
            p->size = sizes[s];
            p->n = numbers[k];
            ls_team_run(run_piece, p, numbers[k]);
            assert_once(p, numbers[k]);
        }
    }
    assert_int_equal(ls_team_index(), 0);
    free(p);
}

/* Loop after loop, of other functions, numbers and memory: a member that comes late finds the next one. */
static void other_piece(void *arg, int64_t i) { atomic_fetch_add(&((_Atomic int64_t *)arg)[1], i); }
static void one_piece(void *arg, int64_t i) { atomic_fetch_add(&((_Atomic int64_t *)arg)[0], i + 1); }

static void many_loops_one_after_another(void **state)
{
    (void)state;
    for (int size = 2; size < 5; size++) {
        ls_team_resize(size);
        for (int64_t loop = 0; loop < 20000; loop++) {
            const int64_t n = loop % 7;
            _Atomic int64_t sum[2] = { 0, 0 };
            ls_team_run(loop % 2 ? other_piece : one_piece, sum, n);
            assert_int_equal(sum[loop % 2], loop % 2 ? n * (n - 1) / 2 : n * (n + 1) / 2);
            assert_int_equal(sum[1 - loop % 2], 0);
        }
    }
}

/* Within a piece a loop is the member's own. */
static void inner_piece(void *arg, int64_t i)
{
    (void)i;
    const pthread_t self = pthread_self();
    if (!pthread_equal(self, *(const pthread_t *)arg)) abort();
}

static void outer_piece(void *arg, int64_t i)
{
    _Atomic int *inner = arg;
    pthread_t self = pthread_self();
    if (ls_team_size() != 1 || ls_team_resize(7) != 1 || ls_team_size() != 1) abort();
    ls_team_run(inner_piece, &self, 10);
    inner[i]++;
}

static void a_loop_in_a_piece_is_not_shared(void **state)
{
    (void)state;
    _Atomic int ran[64] = { 0 };
    ls_team_resize(4);
    ls_team_run(outer_piece, ran, 64);
    for (int i = 0; i < 64; i++) assert_int_equal(ran[i], 1);
    assert_int_equal(ls_team_size(), 4);
}

/* A member that never gets a core: its range is done by others. */
static _Atomic bool held;
static void (*held_fn)(void *);
static void hold_back(void *arg)
{
    while (atomic_load(&held)) ls_env_real.yield();
    held_fn(arg);
}

static int start_held(void (*fn)(void *), void *arg, void **handle)
{
    held_fn = fn;
    return ls_env_real.thread_start(hold_back, arg, handle);
}

static void a_late_member_delays_no_loop(void **state)
{
    (void)state;
    pieces *p = calloc(1, sizeof *p);
    assert_non_null(p);
    env.thread_start = start_held;
    held = true;
    ls_team_resize(3);
    for (int loop = 0; loop < 100; loop++) { /* ends at all, although two members are missing */
        memset(p, 0, sizeof *p);
        p->size = 3;
        ls_team_run(run_piece, p, 50);
        assert_once(p, 50);
    }
    held = false; /* they come a hundred loops late */
    for (int loop = 0; loop < 1000; loop++) {
        memset(p, 0, sizeof *p);
        p->size = 3;
        ls_team_run(run_piece, p, 50);
        assert_once(p, 50);
    }
    free(p);
}

/* Two members work at the same time: each waits in its piece for the other one. */
static void meet(void *arg, int64_t i)
{
    (void)i;
    _Atomic int *here = arg;
    atomic_fetch_add(here, 1);
    const uint64_t end = ls_env_real.mono_ns() + 20000000000u;
    while (atomic_load(here) < 3 && ls_env_real.mono_ns() < end) ls_env_real.yield();
}

static void pieces_run_at_the_same_time(void **state)
{
    (void)state;
    static const char *const policies[] = { "passive", "active", NULL };
    for (size_t k = 0; k < COUNT(policies); k++) {
        if (policies[k]) setenv("OMP_WAIT_POLICY", policies[k], 1);
        else unsetenv("OMP_WAIT_POLICY");
        ls_team_end();
        ls_team_resize(3);
        for (int loop = 0; loop < 3; loop++) {
            _Atomic int here = 0;
            usleep(1000); /* asleep, or nearly */
            ls_team_run(meet, &here, 3);
            assert_int_equal(here, 3);
        }
    }
}

/* Where no thread can be started the loop is the caller's alone. */
static int no_thread(void (*fn)(void *), void *arg, void **handle)
{
    (void)fn;
    (void)arg;
    *handle = NULL;
    return -11;
}

static void without_threads_the_caller_does_it(void **state)
{
    (void)state;
    pieces *p = calloc(1, sizeof *p);
    assert_non_null(p);
    env.thread_start = no_thread;
    ls_team_resize(4);
    p->size = 4;
    ls_team_run(run_piece, p, 100);
    assert_once(p, 100);
    free(p);
}

static int waits;
static void count_wait(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    if (ls_team_index() > 0) __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED); /* of members */
    ls_env_real.wait(word, value, fds, nfds, deadline_ns);
}

static int waits_now(void) { return __atomic_load_n(&waits, __ATOMIC_RELAXED); }

/* An idle team sleeps, and does not wake up by itself. */
static void an_idle_team_sleeps(void **state)
{
    (void)state;
    _Atomic int64_t sum[2] = { 0, 0 };
    env.wait = count_wait;
    waits = 0;
    ls_team_resize(3);
    ls_team_run(one_piece, sum, 3);
    const uint64_t end = ls_env_real.mono_ns() + 20000000000u;
    bool asleep = false; /* a member that runs late may still be on its way to bed: it gets there */
    while (!asleep && ls_env_real.mono_ns() < end) {
        const int before = waits_now();
        usleep(50000);
        asleep = before >= 2 && waits_now() == before;
    }
    assert_true(asleep);
    ls_team_run(one_piece, sum, 3); /* and wakes up */
    assert_int_equal(sum[0], 12);
}

/* A clock that the test moves: 1 us per look of the member, and so much more during an offer of its core. For the
 * owner it stands still. */
static _Atomic uint64_t now_ns, offers, offer_lasts;
static _Atomic uint64_t gap_at; /* 1.5 ms pass at once when the clock gets there; 0: no more */
static uint64_t moved_clock(void)
{
    uint64_t at = atomic_load(&gap_at);
    if (ls_team_index() == 0) return atomic_load(&now_ns);
    if (at && atomic_load(&now_ns) >= at && atomic_compare_exchange_strong(&gap_at, &at, 0))
        atomic_fetch_add(&now_ns, 1500000);
    return atomic_fetch_add(&now_ns, 1000) + 1000;
}
static void offer(void)
{
    ls_env_real.yield();
    if (ls_team_index() == 0) return;
    atomic_fetch_add(&offers, 1);
    atomic_fetch_add(&now_ns, atomic_load(&offer_lasts));
}

/* Offers of the member until it sleeps after one loop more. */
static uint64_t offers_until_asleep(void)
{
    _Atomic int64_t sum[2] = { 0, 0 };
    const uint64_t end = ls_env_real.mono_ns() + 20000000000u;
    const int before = waits_now();
    atomic_store(&offers, 0);
    ls_team_run(one_piece, sum, 2);
    while (waits_now() == before && ls_env_real.mono_ns() < end) usleep(100);
    assert_true(waits_now() > before);
    assert_int_equal(sum[0], 3);
    return atomic_load(&offers);
}

static void a_wanted_core_is_given_up(void **state)
{
    (void)state;
    env.wait = count_wait;
    env.mono_ns = moved_clock;
    env.yield = offer;
    waits = 0;
    now_ns = 1000000000u;
    offer_lasts = 1000;
    ls_team_resize(2);
    (void)offers_until_asleep(); /* starts it */
    const uint64_t unwanted = offers_until_asleep(); /* 1 ms, an offer every 5 us and some */
    assert_in_range(unwanted, 100, 200);
    offer_lasts = 3000000; /* a slice of another process */
    assert_int_equal(offers_until_asleep(), 1); /* accepted: asleep at once */
    for (int i = 0; i < 5; i++) assert_int_equal(offers_until_asleep(), 0); /* and from now on without an offer */
    atomic_fetch_add(&now_ns, 100000000); /* 100 ms later it tries again, */
    assert_int_equal(offers_until_asleep(), 1);
    atomic_fetch_add(&now_ns, 100000000); /* and is shy for twice as long */
    assert_int_equal(offers_until_asleep(), 0);
    atomic_fetch_add(&now_ns, 100000000);
    offer_lasts = 1000;
    assert_in_range(offers_until_asleep(), 100, 200); /* nobody wants it any more */
    /* One gap between two looks may be a machine that stood still; two are another process. */
    for (int gap = 0; gap < 2; gap++) {
        assert_in_range(offers_until_asleep(), 100, 200);
        atomic_store(&gap_at, atomic_load(&now_ns) + 100000);
        assert_true(offers_until_asleep() < 100);
    }
    assert_int_equal(offers_until_asleep(), 0);
}

static void *size_of_new_thread(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)ls_team_size();
}

static void sizes_come_from_the_environment(void **state)
{
    (void)state;
    static const struct {
        const char *told;
        int want; /* 0: the usable cores */
    } row[] = { { "3", 3 }, { "4,2", 4 }, { "0", 0 }, { "-2", 0 }, { "x", 0 }, { "100000", LS_TEAM_MOST }, { "", 0 }, { NULL, 0 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        if (row[i].told) setenv("OMP_NUM_THREADS", row[i].told, 1);
        else unsetenv("OMP_NUM_THREADS");
        pid_t child = fork(); /* a size is asked for once in a thread's life */
        if (child == 0) {
            pthread_t t;
            void *got;
            if (pthread_create(&t, NULL, size_of_new_thread, NULL) != 0 || pthread_join(t, &got) != 0) _exit(99);
            const int want = row[i].want ? row[i].want : ls_env_real.cpus();
            _exit((intptr_t)got == want ? 0 : 1);
        }
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        if (code != 0) fail_msg("OMP_NUM_THREADS=%s", row[i].told ? row[i].told : "(unset)");
    }
    assert_int_equal((ls_team_resize(0), ls_team_size()), 1);
    assert_int_equal((ls_team_resize(LS_TEAM_MOST + 1), ls_team_size()), LS_TEAM_MOST);
}

/* A thread that was joined may be counted for a moment longer. */
static int threads_of_process(void)
{
    char line[256];
    int n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) (void)sscanf(line, "Threads: %d", &n);
    fclose(f);
    return n;
}

static void *use_a_team(void *arg)
{
    _Atomic int64_t sum[2] = { 0, 0 };
    ls_team_resize(4);
    ls_team_run(one_piece, sum, 4);
    *(int64_t *)arg = sum[0];
    return NULL;
}

/* A thread's team ends with it: the number of threads of the process comes back. */
static void a_team_ends_with_its_thread(void **state)
{
    (void)state;
    const int before = threads_of_process();
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        int64_t sum;
        assert_int_equal(pthread_create(&t, NULL, use_a_team, &sum), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
        assert_int_equal(sum, 10);
    }
    const uint64_t end = ls_env_real.mono_ns() + 5000000000u;
    while (threads_of_process() != before && ls_env_real.mono_ns() < end) usleep(1000);
    assert_int_equal(threads_of_process(), before);
}

/* A forked child has none of the threads, and loses no piece. */
static void a_forked_child_works(void **state)
{
    (void)state;
    _Atomic int64_t sum[2] = { 0, 0 };
    ls_team_resize(3);
    ls_team_run(one_piece, sum, 3);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        for (int i = 0; i < 10; i++) ls_team_run(one_piece, sum, 3);
#ifndef __SANITIZE_THREAD__ /* it knows no threads that such a child starts */
        ls_team_resize(4);
#endif
        ls_team_run(one_piece, sum, 4);
        ls_team_end();
        _exit(sum[0] == 6 * 11 + 10 ? 0 : 1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    ls_team_run(one_piece, sum, 3);
    assert_int_equal(sum[0], 12);
}

static int cpus_here = 1;
static int few_cpus(void) { return cpus_here; }

static void ranks_share_the_cores_equally(void **state)
{
    (void)state;
    static const struct { int cpus, ranks, want; } row[] = {
        { 8, 2, 4 }, { 8, 3, 2 }, { 8, 8, 1 }, { 8, 9, 1 }, { 1, 1, 1 }, { 8, 1, 8 }, { 8, 0, 1 }, { 0, 2, 1 },
    };
    env.cpus = few_cpus;
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(ls_team_share(row[i].cpus, row[i].ranks), row[i].want);
        cpus_here = row[i].cpus;
        ls_team_resize(LS_TEAM_MOST); /* of a team that is no smaller than the share, a plan takes the share */
        assert_int_equal(ls_team_planned(row[i].ranks), row[i].want);
    }
}

static void ranks_have_cores_of_their_own_or_share_them_in_turn(void **state)
{
    (void)state;
    static const struct { int rank, ranks, cpus, first, count; } row[] = {
        { 0, 2, 8, 0, 4 }, { 1, 2, 8, 4, 4 }, { 2, 3, 8, 4, 2 }, { 7, 8, 8, 7, 1 }, { 0, 1, 8, 0, 8 },
        { 0, 4, 2, 0, 1 }, { 1, 4, 2, 1, 1 }, { 2, 4, 2, 0, 1 }, { 3, 4, 2, 1, 1 }, { 5, 6, 3, 2, 1 },
        { 1, 2, 1, 0, 1 }, { 1, 3, 2, 0, 0 }, { 8, 9, 8, 0, 0 }, { 1, 2, 0, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        int first = -1, count = -1;
        ls_team_cores(row[i].rank, row[i].ranks, row[i].cpus, &first, &count);
        if (first != row[i].first || count != row[i].count) fail_msg("row %zu: %d from %d", i, count, first);
    }
}

static void a_plan_has_no_more_threads_than_the_team(void **state)
{
    (void)state;
    env.cpus = few_cpus;
    cpus_here = 8;
    ls_team_resize(3);
    assert_int_equal(ls_team_planned(2), 3);
    assert_int_equal(ls_team_planned(4), 2);
}

static void what_is_told_counts_for_every_number_of_ranks(void **state)
{
    (void)state;
    env.cpus = few_cpus;
    cpus_here = 8;
    assert_false(ls_team_told());
    setenv("OMP_NUM_THREADS", "5", 1);
    ls_team_resize(5);
    assert_true(ls_team_told());
    assert_int_equal(ls_team_planned(1), 5);
    assert_int_equal(ls_team_planned(8), 5); /* even if they are oversubscribed: the user said so */
    assert_int_equal(ls_team_share(8, 8), 1);
    unsetenv("OMP_NUM_THREADS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_piece_runs_once, enter, leave),
        cmocka_unit_test_setup_teardown(many_loops_one_after_another, enter, leave),
        cmocka_unit_test_setup_teardown(a_loop_in_a_piece_is_not_shared, enter, leave),
        cmocka_unit_test_setup_teardown(a_late_member_delays_no_loop, enter, leave),
        cmocka_unit_test_setup_teardown(pieces_run_at_the_same_time, enter, leave),
        cmocka_unit_test_setup_teardown(without_threads_the_caller_does_it, enter, leave),
        cmocka_unit_test_setup_teardown(an_idle_team_sleeps, enter, leave),
        cmocka_unit_test_setup_teardown(a_wanted_core_is_given_up, enter, leave),
        cmocka_unit_test_setup_teardown(sizes_come_from_the_environment, enter, leave),
        cmocka_unit_test_setup_teardown(ranks_share_the_cores_equally, enter, leave),
        cmocka_unit_test_setup_teardown(ranks_have_cores_of_their_own_or_share_them_in_turn, enter, leave),
        cmocka_unit_test_setup_teardown(a_plan_has_no_more_threads_than_the_team, enter, leave),
        cmocka_unit_test_setup_teardown(what_is_told_counts_for_every_number_of_ranks, enter, leave),
        cmocka_unit_test_setup_teardown(a_team_ends_with_its_thread, enter, leave),
        cmocka_unit_test_setup_teardown(a_forked_child_works, enter, leave),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
