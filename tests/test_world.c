/* Worlds of ranks started by hand: who does not come, comes twice or does not fit; who is killed or stopped in the
 * middle of a collective; strangers at the door; and nothing left behind. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "harness.h"
#include "meet/page.h"
#include "net/world.h"

#define MS 1000000ull
#define S (1000 * MS)
#define MOST 8

/* --- ranks as processes, each with its own idea of the world ---------------------------------------------- */

typedef struct member {
    int rank, size; /* what its environment says */
    ls_status status;
    uint64_t began_ns, ended_ns;
    _Atomic int stage;
    int pid;
    char text[512];
} member;

typedef struct job {
    member *member; /* in memory that all processes see */
    int n, port;
    ls_world_opts opts;
    ls_rank_fn fn;
    pid_t pid[MOST];
} job;

static void prepare(job *j, int n, const ls_world_opts *opts, ls_rank_fn fn)
{
    *j = (job){ .n = n, .port = ls_env_get()->free_port(), .opts = *opts, .fn = fn };
    j->member = mmap(NULL, MOST * sizeof *j->member, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(j->member != MAP_FAILED);
    for (int i = 0; i < n; i++) j->member[i] = (member){ .rank = i, .size = n };
    if (!j->opts.arena_bytes) j->opts.arena_bytes = 2u << 20;
    if (!j->opts.join_timeout_ns) j->opts.join_timeout_ns = 20 * S;
}

static void set_number(const char *name, int v)
{
    char text[16];
    snprintf(text, sizeof text, "%d", v);
    setenv(name, text, 1);
}

static ls_status live(job *j, member *m)
{
    ls_world *w;
    ls_status st = ls_world_join(&j->opts, &w);
    if (st == LS_OK && j->fn) st = j->fn(w, m);
    m->ended_ns = ls_env_get()->mono_ns();
    m->status = st;
    snprintf(m->text, sizeof m->text, "%s", st < 0 ? ls_last_error() : "");
    ls_world_leave(w);
    return st;
}

static void start(job *j, int i)
{
    member *m = &j->member[i];
    fflush(NULL);
    m->status = LS_RANK_DIED;
    j->pid[i] = fork();
    assert_true(j->pid[i] >= 0);
    if (j->pid[i] > 0) return;
    set_number("RANK", m->rank);
    set_number("WORLD_SIZE", m->size);
    set_number("MASTER_PORT", j->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    m->pid = getpid();
    m->began_ns = ls_env_get()->mono_ns();
    live(j, m);
    _exit(0);
}

static void end(job *j, int i)
{
    int status;
    if (!j->pid[i]) return;
    assert_int_equal(waitpid(j->pid[i], &status, 0), j->pid[i]);
    j->pid[i] = 0;
}

static void end_all(job *j)
{
    for (int i = 0; i < j->n; i++) end(j, i);
}

static void let_go(job *j) { munmap(j->member, MOST * sizeof *j->member); }

static void run_all(job *j)
{
    for (int i = 0; i < j->n; i++) start(j, i);
    end_all(j);
}

static void until(const job *j, int i, int stage)
{
    for (uint64_t give_up = ls_env_get()->mono_ns() + 20 * S; j->member[i].stage < stage; usleep(200))
        if (ls_env_get()->mono_ns() > give_up) fail_msg("rank %d does not get to stage %d: %s", i, stage, j->member[i].text);
}

static void assert_found(const job *j, int i, ls_status status, const char *says)
{
    const member *m = &j->member[i];
    if (m->status != status || !strstr(m->text, says))
        fail_msg("rank %d: status %d (%s), expected %d and '%s'", i, (int)m->status, m->text, (int)status, says);
}

/* --- who does not come, comes twice, does not fit ------------------------------------------------------------- */

static void all_are_told_who_is_missing(void **state)
{
    (void)state;
    for (int missing = 1; missing < 4; missing++) {
        char says[64];
        ls_world_opts o = { .join_timeout_ns = 300 * MS };
        job j;
        prepare(&j, 4, &o, NULL);
        for (int i = 0; i < 4; i++)
            if (i != missing) start(&j, i);
        end_all(&j);
        snprintf(says, sizeof says, "3 of 4 ranks joined within 0.3 s, missing rank %d:", missing);
        for (int i = 0; i < 4; i++) {
            if (i == missing) continue;
            assert_found(&j, i, LS_JOIN_TIMEOUT, says);
            uint64_t took = j.member[i].ended_ns - j.member[i].began_ns;
            if (took > 1300 * MS) fail_msg("rank %d waited %.3f s", i, 1e-9 * (double)took);
        }
        let_go(&j);
    }
}

static void without_rank_0_there_is_nobody_to_meet(void **state)
{
    (void)state;
    ls_world_opts o = { .join_timeout_ns = 200 * MS };
    job j;
    prepare(&j, 3, &o, NULL);
    start(&j, 1);
    start(&j, 2);
    end_all(&j);
    for (int i = 1; i < 3; i++) assert_found(&j, i, LS_JOIN_TIMEOUT, "is rank 0 running?");
    let_go(&j);
}

static void a_rank_that_comes_twice_is_refused(void **state)
{
    (void)state;
    char says[96];
    job j;
    prepare(&j, 4, &(ls_world_opts){ 0 }, NULL);
    for (int i = 0; i < 4; i++) j.member[i].size = 3;
    j.member[3].rank = 1;
    start(&j, 0);
    start(&j, 1);
    start(&j, 3);
    const uint64_t give_up = ls_env_get()->mono_ns() + 20 * S;
    while (!j.member[1].ended_ns && !j.member[3].ended_ns && ls_env_get()->mono_ns() < give_up) usleep(200);
    start(&j, 2); /* the others go on without it */
    end_all(&j);
    int late = j.member[1].status == LS_CONFIG_MISMATCH ? 1 : 3, first = 4 - late;
    snprintf(says, sizeof says, "rank 1 joined twice: pid %d and pid %d", j.member[first].pid, j.member[late].pid);
    assert_found(&j, late, LS_CONFIG_MISMATCH, says);
    assert_found(&j, 0, LS_OK, "");
    assert_found(&j, first, LS_OK, "");
    assert_found(&j, 2, LS_OK, "");
    let_go(&j);
}

static void ranks_must_agree_on_the_size(void **state)
{
    (void)state;
    ls_world_opts o = { .join_timeout_ns = 400 * MS };
    job j;
    prepare(&j, 2, &o, NULL);
    j.member[1].size = 3;
    run_all(&j);
    assert_found(&j, 1, LS_CONFIG_MISMATCH, "rank 1 of a world of 3 came to a job of 2");
    assert_found(&j, 0, LS_JOIN_TIMEOUT, "1 of 2 ranks joined within 0.4 s, missing rank 1");
    let_go(&j);
}

static void names_the_holder_of_the_port(void **state)
{
    (void)state;
    char says[96];
    int port, fd = ls_env_get()->listen_tcp("127.0.0.1", 0, &port);
    assert_true(fd >= 0);
    ls_world_opts o = { .join_timeout_ns = 400 * MS };
    job j;
    prepare(&j, 2, &o, NULL);
    j.port = port;
    start(&j, 0);
    end(&j, 0);
    snprintf(says, sizeof says, "port %d on 127.0.0.1 is held by pid %d (", port, getpid());
    assert_found(&j, 0, LS_PORT_BUSY, says);
    assert_true(j.member[0].ended_ns - j.member[0].began_ns < 200 * MS + S);
    ls_env_get()->close_fd(fd);
    let_go(&j);
}

/* --- joining more than once --------------------------------------------------------------------------------------- */

static ls_status join_again_inside(ls_world *w, void *arg)
{
    (void)arg;
    float x[3] = { 1.0f, 2.0f, 3.0f };
    ls_world_opts o = { .join_timeout_ns = 300 * MS, .arena_bytes = 1u << 20 };
    ls_world *second;
    LS_TRY(ls_barrier(ls_world_group(w)));
    ls_status st = ls_world_join(&o, &second);
    bool first = ls_world_rank(w) == 0;
    LS_EXPECT(st == (first ? LS_PORT_BUSY : LS_CONFIG_MISMATCH) && !second, "a second world: %d (%s)", (int)st, ls_last_error());
    LS_EXPECT(strstr(ls_last_error(), first ? "another job already meets at" : "joined twice"), "%s", ls_last_error());
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 3, LS_F32, LS_SUM));
    LS_EXPECT(x[2] == 6.0f, "the first world does not work any more: %g", (double)x[2]);
    return LS_OK;
}

static void a_second_join_errs_and_leaves_the_first_alone(void **state)
{
    (void)state;
    job j;
    prepare(&j, 2, &(ls_world_opts){ 0 }, join_again_inside);
    run_all(&j);
    for (int i = 0; i < 2; i++) assert_found(&j, i, LS_OK, "");
    let_go(&j);
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void two_worlds_of_one_live_side_by_side(void **state)
{
    (void)state;
    ls_world_opts o = { .arena_bytes = 1u << 20 };
    ls_world *a, *b;
    int before = entries("/proc/self/fd");
    float x = 2.0f;
    assert_int_equal(ls_world_join(&o, &a), LS_OK);
    assert_int_equal(ls_world_join(&o, &b), LS_OK);
    assert_int_equal(ls_all_reduce(ls_world_group(a), NULL, &x, 1, LS_F32, LS_SUM), LS_OK);
    ls_world_leave(a);
    assert_int_equal(ls_all_reduce(ls_world_group(b), NULL, &x, 1, LS_F32, LS_AVG), LS_OK);
    ls_world_leave(b);
    ls_world_leave(NULL);
    assert_true(x == 2.0f);
    assert_int_equal(entries("/proc/self/fd"), before);
}

/* The next world meets at the same port, at once. */
static ls_status fifty_worlds(ls_world *first, void *arg)
{
    member *m = arg;
    (void)first;
    int fds = 0, worlds = getenv("LOCKSTEP_TEST_LONG") ? 500 : 50;
    for (int i = 0; i < worlds; i++) {
        ls_world_opts o = { .arena_bytes = 1u << 20, .join_timeout_ns = 20 * S, .transport = i % 2 ? "tcp" : "shm",
                            .progress = i % 3 ? LS_PROGRESS_INLINE : LS_PROGRESS_THREAD };
        set_number("MASTER_PORT", m->pid);
        ls_world *w;
        float x[200] = { 1.0f };
        LS_TRY(ls_world_join(&o, &w));
        LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 200, LS_F32, LS_SUM));
        ls_world_leave(w);
        LS_EXPECT(x[0] == (float)m->size, "a wrong sum in world %d", i);
        if (i == 5) fds = entries("/proc/self/fd");
        LS_EXPECT(i < 5 || entries("/proc/self/fd") == fds, "world %d leaves %d descriptors behind", i, entries("/proc/self/fd") - fds);
    }
    return LS_OK;
}

static void fifty_worlds_leave_nothing_behind(void **state)
{
    (void)state;
    int before = entries("/dev/shm");
    job j;
    prepare(&j, 3, &(ls_world_opts){ 0 }, fifty_worlds);
    int port = ls_env_get()->free_port();
    for (int i = 0; i < j.n; i++) {
        member *m = &j.member[i];
        fflush(NULL);
        j.pid[i] = fork();
        if (j.pid[i]) continue;
        set_number("RANK", i);
        set_number("WORLD_SIZE", j.n);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        m->pid = port;
        m->status = fifty_worlds(NULL, m);
        snprintf(m->text, sizeof m->text, "%s", m->status < 0 ? ls_last_error() : "");
        _exit(0);
    }
    end_all(&j);
    for (int i = 0; i < j.n; i++) assert_found(&j, i, LS_OK, "");
    assert_int_equal(entries("/dev/shm"), before);
    let_go(&j);
}

/* Rank 1 is gone before rank 0 leaves: what rank 0 has to say is still its own. */
static ls_status leave_alone(ls_world *w, void *arg)
{
    member *m = arg;
    const uint64_t end = ls_env_get()->mono_ns() + 20 * S;
    if (m->rank == 1) {
        while (m[-1].stage < 1 && ls_env_get()->mono_ns() < end) usleep(200); /* it has joined, too */
        _exit(0);
    }
    m->stage = 1;
    ls_fail(LS_INTERRUPTED, "stopped after step 7");
    ls_world_leave(w);
    snprintf(m->text, sizeof m->text, "%s", ls_last_error());
    m->status = LS_OK;
    _exit(0);
}

static void leaving_keeps_the_sentence_of_who_leaves(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        job j;
        prepare(&j, 2, &(ls_world_opts){ .transport = i ? "tcp" : "shm" }, leave_alone);
        run_all(&j);
        assert_found(&j, 0, LS_OK, "stopped after step 7");
        let_go(&j);
    }
}

/* --- too little memory ----------------------------------------------------------------------------------------------
 */

static void an_arena_that_does_not_fit_reserves_nothing(void **state)
{
    (void)state;
    int fds = entries("/proc/self/fd");
    uint64_t before = ls_env_get()->mem_available();
    ls_world_opts o = { .arena_bytes = (size_t)1 << 46 };
    ls_world *w = (ls_world *)&o;
    assert_int_equal(ls_world_join(&o, &w), LS_NO_MEMORY);
    assert_null(w);
    assert_non_null(strstr(ls_last_error(), "67108864.0 MiB"));
    assert_int_equal(entries("/proc/self/fd"), fds);
    assert_true(ls_env_get()->mem_available() + (512u << 20) > before); /* others live on this machine, too */
    o.arena_bytes = 1u << 20;
    assert_int_equal(ls_world_join(&o, &w), LS_OK);
    ls_world_leave(w);
}

/* One rank asks for too much: the others need not wait for the join deadline. */
static void what_fails_on_one_rank_is_told_to_all(void **state)
{
    (void)state;
    job j;
    prepare(&j, 3, &(ls_world_opts){ 0 }, NULL);
    for (int i = 0; i < 3; i++) {
        j.opts.arena_bytes = i == 1 ? (size_t)1 << 46 : 2u << 20;
        start(&j, i);
    }
    end_all(&j);
    assert_found(&j, 1, LS_NO_MEMORY, "MiB");
    for (int i = 0; i < 3; i += 2) {
        assert_found(&j, i, LS_ABORTED, "rank 1: ");
        assert_true(j.member[i].ended_ns - j.member[i].began_ns < 5 * S);
    }
    let_go(&j);
}

/* --- killed, stopped ------------------------------------------------------------------------------------------------
 */

/* Collectives without end. */
static ls_status sums_for_ever(ls_world *w, void *arg)
{
    member *m = arg;
    float x[1000] = { 0 };
    for (;;) {
        LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 1000, LS_F32, LS_SUM));
        m->stage++;
    }
}

/* The others wait for rank 3. */
static ls_status waits_for_rank_3(ls_world *w, void *arg)
{
    member *m = arg;
    float x[1000] = { 0 };
    LS_TRY(ls_barrier(ls_world_group(w)));
    m->stage = 1;
    const uint64_t end = ls_env_get()->mono_ns() + 20 * S;
    while (ls_world_rank(w) == 3 && !atomic_load(&w->page->abort_by) && ls_env_get()->mono_ns() < end) usleep(1000);
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 1000, LS_F32, LS_SUM));
    return ls_barrier(ls_world_group(w)); /* what the dead rank had sent before may have been enough for that */
}

/* By what the survivors say: a rank that only did not come would be found hung at the deadline. */
static void a_kill_is_named(const char *transport, ls_rank_fn fn, int victim, ls_progress_mode progress)
{
    char says[32];
    job j;
    ls_world_opts o = { .transport = transport, .coll_timeout_ns = 20 * S, .progress = progress };
    prepare(&j, 4, &o, fn);
    for (int i = 0; i < 4; i++) start(&j, i);
    for (int i = 0; i < 4; i++) until(&j, i, 1);
    assert_int_equal(kill(j.pid[victim], SIGKILL), 0);
    end_all(&j);
    snprintf(says, sizeof says, "rank %d", victim);
    for (int i = 0; i < 4; i++) {
        if (i == victim) continue;
        const member *m = &j.member[i];
        if (m->status != LS_ABORTED && m->status != LS_PEER_RESET) fail_msg("over %s: rank %d gets %d (%s)", transport, i, m->status, m->text);
        assert_found(&j, i, m->status, says);
        if (!strstr(m->text, "ended unexpectedly") && !strstr(m->text, "has ended or was killed")) fail_msg("%s", m->text);
    }
    let_go(&j);
}

static void a_killed_rank_is_named_as_killed(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++) {
        for (int victim = 0; victim < 4; victim++) a_kill_is_named(wire ? "tcp" : "shm", sums_for_ever, victim, LS_PROGRESS_INLINE);
        a_kill_is_named(wire ? "tcp" : "shm", waits_for_rank_3, 3, LS_PROGRESS_INLINE);
        a_kill_is_named(wire ? "tcp" : "shm", waits_for_rank_3, 1, LS_PROGRESS_INLINE); /* dies while it waits */
        a_kill_is_named(wire ? "tcp" : "shm", sums_for_ever, 0, LS_PROGRESS_THREAD);
        a_kill_is_named(wire ? "tcp" : "shm", sums_for_ever, 2, LS_PROGRESS_THREAD);
    }
}

static void a_stopped_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++)
        for (int victim = 0; victim < 2; victim++) {
            char says[64];
            job j;
            ls_world_opts o = { .transport = wire ? "tcp" : "shm", .coll_timeout_ns = 300 * MS };
            prepare(&j, 2, &o, sums_for_ever);
            for (int i = 0; i < 2; i++) start(&j, i);
            for (int i = 0; i < 2; i++) until(&j, i, 1);
            uint64_t t0 = ls_env_get()->mono_ns();
            assert_int_equal(kill(j.pid[victim], SIGSTOP), 0);
            end(&j, 1 - victim);
            snprintf(says, sizeof says, "for rank %d (pid %d, state T), which is in step 0, ", victim, (int)j.pid[victim]);
            assert_found(&j, 1 - victim, LS_RANK_HUNG, says);
            assert_found(&j, 1 - victim, LS_RANK_HUNG, " s in all_reduce #");
            uint64_t took = j.member[1 - victim].ended_ns - t0;
            if (took < 250 * MS || took > 300 * MS + S) fail_msg("noticed after %.3f s", 1e-9 * (double)took);
            assert_int_equal(kill(j.pid[victim], SIGCONT), 0); /* and it learns that the job is over */
            end(&j, victim);
            assert_found(&j, victim, LS_RANK_HUNG, says); /* it is the cause */
            let_go(&j);
        }
}

/* --- strangers
 * --------------------------------------------------------------------------------------------------------- */

#define STRANGERS 200

static void strangers_do_not_matter(void **state)
{
    (void)state;
    static const char *const openings[] = { "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: something that goes on and on and on\r\n\r\n",
                                            "\x16\x03\x01\x02", "", "l", "ls-store" };
    int fd[STRANGERS];
    job j;
    prepare(&j, 2, &(ls_world_opts){ 0 }, sums_for_ever);
    start(&j, 0);
    for (int i = 0; i < STRANGERS; i++) {
        if (i == STRANGERS / 2) start(&j, 1); /* comes when the door is crowded */
        const char *says = openings[i % 5];
        for (uint64_t give_up = ls_env_get()->mono_ns() + 10 * S; ls_env_get()->mono_ns() < give_up; usleep(1000)) {
            fd[i] = ls_env_get()->connect_tcp("127.0.0.1", j.port);
            int r = -EINPROGRESS;
            while (fd[i] >= 0 && (r = ls_env_get()->connect_done(fd[i])) == -EINPROGRESS) usleep(100);
            if (r == 0) break;
            if (fd[i] >= 0) ls_env_get()->close_fd(fd[i]); /* rank 0 is not there yet */
        }
        ls_env_get()->send(fd[i], says, strlen(says));
    }
    until(&j, 0, 100);
    until(&j, 1, 100);
    assert_int_equal(kill(j.pid[1], SIGKILL), 0);
    end_all(&j);
    assert_found(&j, 0, LS_ABORTED, "rank 1");
    for (int i = 0; i < STRANGERS; i++) { /* closed, and not a byte was said */
        char byte;
        ssize_t k = ls_env_get()->recv(fd[i], &byte, 1);
        assert_true(k <= 0 && k != -EAGAIN);
        ls_env_get()->close_fd(fd[i]);
    }
    let_go(&j);
}

int main(void)
{
    static const char *const names[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_told_who_is_missing),
        cmocka_unit_test(without_rank_0_there_is_nobody_to_meet),
        cmocka_unit_test(a_rank_that_comes_twice_is_refused),
        cmocka_unit_test(ranks_must_agree_on_the_size),
        cmocka_unit_test(names_the_holder_of_the_port),
        cmocka_unit_test(a_second_join_errs_and_leaves_the_first_alone),
        cmocka_unit_test(two_worlds_of_one_live_side_by_side),
        cmocka_unit_test(fifty_worlds_leave_nothing_behind),
        cmocka_unit_test(leaving_keeps_the_sentence_of_who_leaves),
        cmocka_unit_test(an_arena_that_does_not_fit_reserves_nothing),
        cmocka_unit_test(what_fails_on_one_rank_is_told_to_all),
        cmocka_unit_test(a_killed_rank_is_named_as_killed),
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(strangers_do_not_matter),
    };
    return cmocka_run_group_tests_name("world", tests, NULL, NULL);
}
