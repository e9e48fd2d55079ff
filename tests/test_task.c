/* Long work of one rank outside collectives, such as a save: the other ranks wait for it beyond comm.timeout, and for
 * no other rank. A rank that takes too long, is stopped or dies is named together with its work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <signal.h>

#include "base/context.h"
#include "base/env.h"
#include "harness_clock.h"
#include "group/hang.h"
#include "meet/task.h"
#include "net/world.h"

#define MS 1000000ull
#define TIMEOUT_NS (400 * MS) /* comm.timeout */
#define FILE_NAME "/somewhere/step-00000010"

static const ls_env *const env = &ls_env_real;

/* By the clock of the ranks. */
static void nap(uint64_t ns)
{
    const ls_env *its = ls_env_get();
    for (const uint64_t end = its->mono_ns() + ns; its->mono_ns() < end;) its->wait(NULL, 0, NULL, 0, end);
}

/* Stays away until somebody has given the job up. */
static ls_status until_aborted(ls_world *w)
{
    for (const uint64_t end = env->mono_ns() + 20000 * MS; env->mono_ns() < end; nap(5 * MS))
        if (atomic_load(&w->page->abort_by)) return ls_world_aborted(w);
    return ls_fail(LS_INTERNAL, "nobody gave the job up");
}

static void begin(ls_world *w, uint64_t limit_ns)
{
    ls_task_begin(&w->page->rank[ls_world_rank(w)].task, LS_TASK_SAVING, limit_ns, FILE_NAME);
}

static void end(ls_world *w) { ls_task_end(&w->page->rank[ls_world_rank(w)].task); }

/* --- as long as it may ---------------------------------------------------------------------------------- */

static ls_status waits_for_a_save(ls_world *w, void *arg)
{
    (void)arg;
    if (ls_world_rank(w) == 0) {
        begin(w, 60000 * MS);
        nap(2 * TIMEOUT_NS);
        end(w);
        nap(TIMEOUT_NS / 4); /* comm.timeout begins when the work ends */
    }
    LS_TRY(ls_barrier(ls_world_group(w)));
    if (ls_world_rank(w) == 2) { /* another rank, and a wait that is long over when the others look */
        begin(w, 60000 * MS);
        nap(2 * TIMEOUT_NS);
        end(w);
    }
    float x = 1;
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &x, 1, LS_F32, LS_SUM));
    LS_EXPECT(x == 3, "the sum is %g", (double)x);
    return LS_OK;
}

/* Rank 2 waits for rank 1's message, which comes when rank 0's has. */
static ls_status waits_through_a_message(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w);
    int32_t x = 5;
    if (rank == 0) {
        begin(w, 60000 * MS);
        nap(2 * TIMEOUT_NS);
        end(w);
        return ls_send(g, &x, 1, LS_I32, 1);
    }
    if (rank == 1) {
        LS_TRY(ls_recv(g, &x, 1, LS_I32, 0));
        return ls_send(g, &x, 1, LS_I32, 2);
    }
    return ls_recv(g, &x, 1, LS_I32, 1);
}

static void others_wait_as_long_as_the_work_may_take(void **state)
{
    (void)state;
    static const struct { ls_rank_fn fn; const char *transport; ls_test_mode mode; } row[] = {
        { waits_for_a_save, "shm", LS_TEST_PROCESSES },
        { waits_for_a_save, "tcp", LS_TEST_THREADS },
        { waits_through_a_message, "shm", LS_TEST_THREADS },
        { waits_through_a_message, "tcp", LS_TEST_PROCESSES },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_world_opts o = { .transport = row[i].transport, .coll_timeout_ns = TIMEOUT_NS,
                            .progress = i % 2 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
        ls_rank_report r = ls_test_ranks_in_step(row[i].mode, 3, &o, row[i].fn, NULL);
        if (r.failed) fail_msg("row %zu: %s", i, r.text);
    }
}

/* When long work is over, whoever waits has the whole of comm.timeout from then on, and not longer. */
static ls_status counts_from_the_end_of_the_work(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    LS_TRY(ls_barrier(g));
    if (ls_world_rank(w) == 0) {
        const uint64_t now = env->mono_ns(), timeout_ns = w->opts.coll_timeout_ns;
        ls_task_slot *slot = &w->page->rank[1].task;
        LS_EXPECT(ls_hang_excused(g) == 0, "excused before there was any work");
        ls_task_write(slot, &(ls_task){ .since_ns = now });
        LS_EXPECT(ls_hang_excused(g) == now + timeout_ns, "not excused from the end of the work on");
        ls_task_write(slot, &(ls_task){ .since_ns = now - 2 * timeout_ns });
        LS_EXPECT(ls_hang_excused(g) == 0, "excused by work that ended long ago");
    }
    return ls_barrier(g);
}

/* Rank 1's work ends, or its next work begins, while rank 0, who waits for it, looks: at each reading of the clock. */
static ls_task_slot *changing;
static bool begins;
static int looks_left;
#define OVER 77 /* a rank's step when it is through */

static uint64_t changes_meanwhile(void)
{
    if (changing && looks_left-- == 0) {
        ls_task_slot *slot = changing;
        changing = NULL;
        if (begins) ls_task_begin(slot, LS_TASK_SAVING, 60000 * MS, FILE_NAME);
        else ls_task_end(slot);
    }
    return env->mono_ns();
}

/* Either kind of change, at every look at the clock. */
static ls_status excused_whenever_it_changes(const ls_group *g, ls_task_slot *slot)
{
    ls_env hooked = *env;
    hooked.mono_ns = changes_meanwhile;
    int looks = 0;
    for (changing = slot; !changing || looks == 0; looks++) {
        ls_task_begin(slot, LS_TASK_WRITING, 60000 * MS, FILE_NAME);
        if (begins) ls_task_end(slot);
        changing = slot;
        looks_left = looks;
        ls_context_get()->env = &hooked;
        const uint64_t excused = ls_hang_excused(g);
        ls_context_get()->env = env;
        LS_EXPECT(excused > 0, "not excused by work that %s at look %d", begins ? "began" : "ended", looks);
    }
    LS_EXPECT(looks >= 3, "it looked at the clock %d times", looks - 1);
    return LS_OK;
}

static ls_status counts_work_that_changes_meanwhile(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    LS_TRY(ls_barrier(g));
    if (ls_world_rank(w) == 0) {
        while (atomic_load(&w->page->rank[1].step) != OVER && !atomic_load(&w->page->abort_by)) nap(MS);
        ls_task_slot *slot = &w->page->rank[1].task;
        const uint32_t far = 1000; /* a collective that rank 1 has not come to */
        atomic_store(&w->page->rank[0].waits_for, ls_page_waits_for(g->id, far));
        for (int i = 0; i < 2; i++) {
            begins = i == 1;
            LS_TRY(excused_whenever_it_changes(g, slot));
        }
        atomic_store(&w->page->rank[0].waits_for, 0);
        ls_task_end(slot);
        ls_world_at(w, OVER, 0);
    } else { /* in no collective any more, until that is over */
        ls_world_at(w, OVER, 0);
        while (atomic_load(&w->page->rank[0].step) != OVER && !atomic_load(&w->page->abort_by)) nap(MS);
    }
    return ls_barrier(g);
}

static void others_have_their_whole_time_after_the_work(void **state)
{
    (void)state;
    static const ls_rank_fn row[] = { counts_from_the_end_of_the_work, counts_work_that_changes_meanwhile };
    for (int i = 0; i < 2; i++) {
        ls_world_opts o = { .transport = "shm", .coll_timeout_ns = 300000 * MS };
        ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 2, &o, row[i], NULL);
        if (r.failed) fail_msg("%s", r.text);
    }
}

/* Rank 1 comes while rank 0, whose time is over, asks whether a debugger holds it. */
static _Atomic int called;

static bool comes_meanwhile(int pid)
{
    atomic_store(&called, 1);
    while (atomic_load(&called) != 2) nap(MS); /* until rank 1 is in the barrier, or about to be */
    nap(20 * MS);
    return env->traced(pid);
}

static ls_status comes_in_the_last_moment(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    ls_env hooked = *env;
    hooked.traced = comes_meanwhile;
    LS_TRY(ls_barrier(g));
    if (ls_world_rank(w) == 0) {
        ls_context_get()->env = &hooked;
        const ls_status st = ls_barrier(g);
        ls_context_get()->env = env;
        return st;
    }
    while (!atomic_load(&called) && !atomic_load(&w->page->abort_by)) nap(MS);
    atomic_store(&called, 2);
    return ls_barrier(g);
}

static void a_rank_that_comes_in_the_last_moment_is_not_late(void **state)
{
    (void)state;
    const ls_world_opts o = { .transport = "shm", .coll_timeout_ns = 2000 * MS };
    atomic_store(&called, 0);
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, comes_in_the_last_moment, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* --- but no longer, and for nobody else -------------------------------------------------------------------- */

typedef struct trouble {
    int saver, hung; /* ranks; -1: none is */
    uint64_t limit_ns;
    int signal;      /* that the saver sends itself */
} trouble;

static ls_status troubled(ls_world *w, void *arg)
{
    const trouble *t = arg;
    const int rank = ls_world_rank(w), *saver = (const int *)&w->page->rank[t->saver].pid;
    LS_TRY(ls_barrier(ls_world_group(w))); /* all are here */
    if (rank == t->saver) {
        begin(w, t->limit_ns);
        ls_coll_desc d; /* the others wait in the second barrier */
        for (int r = 0; t->signal == SIGKILL && r < ls_world_size(w); r++)
            while (r != rank && (!ls_page_last_coll(w->page, r, &d) || d.seq < 1)) nap(MS);
        if (t->signal) env->kill(env->pid(), t->signal);
    }
    if (rank == t->saver || rank == t->hung) return until_aborted(w);
    while (t->signal == SIGSTOP && env->proc_state(*saver) != 'T') nap(MS);
    const ls_status st = ls_barrier(ls_world_group(w));
    char said[LS_ERROR_BYTES];
    strcpy(said, ls_last_error());
    if (t->signal == SIGSTOP) env->kill(*saver, SIGCONT);
    if (t->signal == SIGKILL && strstr(said, "rank 2 (pid ") && strstr(said, " ended unexpectedly") &&
        strstr(said, "saving " FILE_NAME))
        return LS_OK; /* as it should, and the one that is killed says nothing */
    return st == LS_OK ? ls_fail(LS_INTERNAL, "the barrier ended") : ls_fail(st, "%s", said);
}

static void names_who_is_late_and_why(void **state)
{
    (void)state;
    static const struct {
        trouble t;
        uint64_t timeout_ns, most_ns;
        const char *says[5];
    } row[] = {
        { { 0, -1, 1500 * MS, 0 }, TIMEOUT_NS, 0,
          { " for rank 0 (pid ", "saving " FILE_NAME " for ", "; checkpoint.timeout allows 1.5 s" } },
        { { 0, 1, 60000 * MS, 0 }, TIMEOUT_NS, 15000 * MS, { " for rank 1 (pid ", "computing after barrier #0" } },
        { { 1, 0, 60000 * MS, 0 }, TIMEOUT_NS, 15000 * MS, { " for rank 0 (pid ", "computing after barrier #0" } },
        { { 0, -1, 60000 * MS, SIGSTOP }, TIMEOUT_NS, 15000 * MS,
          { " for rank 0 (pid ", "state T", "saving " FILE_NAME } },
        { { 2, -1, 60000 * MS, SIGKILL }, 20000 * MS, 10000 * MS,
          { "rank 2: killed by signal 9" } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int wire = 0; wire < 2; wire++) {
            trouble t = row[i].t;
            ls_world_opts o = { .transport = wire ? "tcp" : "shm", .coll_timeout_ns = row[i].timeout_ns };
            const uint64_t t0 = env->mono_ns();
            ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 3, &o, troubled, &t);
            const uint64_t took = env->mono_ns() - t0;
            if (r.failed != (t.signal == SIGKILL ? 1 : 3)) fail_msg("row %zu, wire %d: %d failed: %s", i, wire, r.failed, r.text);
            for (int k = 0; k < 5 && row[i].says[k]; k++)
                if (!strstr(r.text, row[i].says[k]))
                    fail_msg("row %zu, wire %d: '%s' is not in: %s", i, wire, row[i].says[k], r.text);
            if (row[i].most_ns && took > row[i].most_ns) fail_msg("row %zu: it took %.1f s", i, (double)took * 1e-9);
        }
}

/* --- the words --------------------------------------------------------------------------------------------- */

static void says_what_for_how_long_and_what_is_allowed(void **state)
{
    (void)state;
    static ls_task_slot slot;
    ls_task t;
    char text[600], path[600];
    assert_false(ls_task_read(&slot, &t));
    assert_int_equal(t.since_ns, 0);
    ls_task_write(&slot, &(ls_task){ .kind = LS_TASK_SAVING, .since_ns = 1000 * MS, .limit_ns = 500 * MS, .file = "a/b" });
    assert_true(ls_task_read(&slot, &t));
    assert_int_equal(ls_task_left_ns(&t, 900 * MS), 500 * MS);
    assert_int_equal(ls_task_left_ns(&t, 1300 * MS), 200 * MS);
    assert_int_equal(ls_task_left_ns(&t, 1500 * MS), 0);
    assert_string_equal(ls_task_text(&t, 1300 * MS, text, sizeof text), "saving a/b for 0.3 s");
    assert_string_equal(ls_task_text(&t, 1500 * MS, text, sizeof text),
                        "saving a/b for 0.5 s; checkpoint.timeout allows 0.5 s");
    ls_task_end(&slot);
    assert_false(ls_task_read(&slot, &t));
    assert_int_not_equal(t.since_ns, 0); /* since when it has done nothing */

    memset(path, 'p', sizeof path - 1); /* cut, not beyond its place */
    path[sizeof path - 1] = 0;
    ls_task_begin(&slot, LS_TASK_READING, 1, path);
    assert_true(ls_task_read(&slot, &t));
    assert_int_equal(strlen(t.file), LS_TASK_FILE_BYTES - 1);

    ls_task_write(&slot, &(ls_task){ .kind = LS_TASK_KINDS, .since_ns = 7 }); /* of a broken peer */
    assert_false(ls_task_read(&slot, &t));
    atomic_fetch_add(&slot.version, 1); /* its rank ended while it wrote */
    assert_false(ls_task_read(&slot, &t));
    assert_int_equal(t.since_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_for_how_long_and_what_is_allowed),
        cmocka_unit_test(others_wait_as_long_as_the_work_may_take),
        cmocka_unit_test(others_have_their_whole_time_after_the_work),
        cmocka_unit_test(a_rank_that_comes_in_the_last_moment_is_not_late),
        cmocka_unit_test(names_who_is_late_and_why),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
