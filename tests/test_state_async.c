/* ls_state_save_begin: what a thread of each rank writes while the program goes on is, to the bit, what ls_state_save
 * writes at the same step; the program knows how far it is; a failure and a crash leave the older checkpoint. */
#include "harness_checkpoint.h"
#include "harness_files.h"
#include "harness_zero.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/commit.h"
#include "base/context.h"
#include "base/team.h"
#include "ckpt/state.h"

static const ls_ddp_config plain_ddp = { 0 };
static const ls_ddp_config *const stage[] = { &plain_ddp, &many_buckets, &own_sums, &one_copy, &gathered };

/* Copies of several MiB, by several threads. */
static const ls_ddp_config large = { .zero_stage = 2 };
static const int64_t large_dims[] = { 20, 701, 499, 3 };

/* --- a program with a model, and state of its own ------------------------------------------------- */

typedef struct program {
    ls_world *w;
    ls_replica r;
    ls_state *state;
    int64_t step;
    double norm;
    char note[11]; /* no multiple of 8 */
    double rate;
} program;

static ls_status begin(program *p, ls_world *w, const ls_ddp_config *ddp)
{
    *p = (program){ .w = w, .note = "begun", .rate = 0.5 };
    ls_replica_config c = config_of(ddp, "adamw");
    if (ddp == &large) c.dims = large_dims;
    LS_TRY(ls_replica_create(w, &c, &p->r));
    LS_TRY(ls_state_create(ls_world_group(w), &p->state));
    LS_TRY(ls_state_add_model(p->state, &p->r.model->params, p->r.optim));
    LS_TRY(ls_state_add(p->state, "note", p->note, sizeof p->note));
    LS_TRY(ls_state_add_i64(p->state, "step", &p->step));
    return ls_state_add_f64(p->state, "rate", &p->rate);
}

static void end(program *p)
{
    ls_state_destroy(p->state);
    ls_replica_destroy(&p->r);
}

static ls_status go_on(program *p)
{
    LS_TRY(step(p->w, &p->r, (uint64_t)p->step++, 2, &p->norm));
    p->rate = p->norm;
    snprintf(p->note, sizeof p->note, "step %d", (int)p->step);
    return LS_OK;
}

/* --- disks -------------------------------------------------------------------------------------------- */

/* Counts the calls of a process that change files, and is slow, full or the last of the process at one of them. */
static struct {
    _Atomic int calls;
    int fail_at, error;
    bool dies;
    _Atomic bool held; /* fsync waits as long as it is set */
} disk;

static bool fails(void)
{
    if (atomic_fetch_add(&disk.calls, 1) != disk.fail_at) return false;
    if (disk.dies) _exit(0); /* as a kill does: nothing is cleaned up */
    return true;
}
static int bad_create(const char *path) { return fails() ? -disk.error : ls_env_real.create(path); }
static int bad_mkdir(const char *path) { return fails() ? -disk.error : ls_env_real.mkdir(path); }
static int bad_fsync_dir(const char *path) { return fails() ? -disk.error : ls_env_real.fsync_dir(path); }
static int bad_rename(const char *a, const char *b) { return fails() ? -disk.error : ls_env_real.rename(a, b); }
static ssize_t bad_write(int fd, const void *p, size_t n)
{
    return fails() ? -disk.error : ls_env_real.write(fd, p, n);
}
static int bad_fsync(int fd)
{
    while (atomic_load(&disk.held)) ls_env_real.yield();
    return fails() ? -disk.error : ls_env_real.fsync(fd);
}

static void insert_disk(ls_env *env, ls_context *context)
{
    *env = ls_env_real;
    env->create = bad_create;
    env->mkdir = bad_mkdir;
    env->write = bad_write;
    env->fsync = bad_fsync;
    env->fsync_dir = bad_fsync_dir;
    env->rename = bad_rename;
    *context = *ls_context_get(); /* the rank's, with another env */
    context->env = env;
    memset(&disk, 0, sizeof disk);
    disk.fail_at = -1;
    disk.error = ENOSPC;
}

/* --- claims -------------------------------------------------------------------------------------------- */

typedef struct job {
    const ls_ddp_config *ddp;
    const char *dir;
} job;

static ls_status folder_of(const job *j, const char *name, char path[256])
{
    LS_EXPECT(snprintf(path, 256, "%s/%s", j->dir, name) < 256, "a long name");
    return LS_OK;
}

/* Both kinds of saves of step 3, and steps before the thread has written: it is held. */
static ls_status save_twice(ls_world *w, void *arg)
{
    const job *j = arg;
    char a[256], b[256];
    program p;
    LS_TRY(folder_of(j, "waited", a));
    LS_TRY(folder_of(j, "async", b));
    LS_TRY(begin(&p, w, j->ddp));
    if (j->ddp == &large) ls_team_resize(3);
    for (int i = 0; i < 3; i++) LS_TRY(go_on(&p));
    LS_TRY(ls_state_save(p.state, a, 3));
    LS_TRY(ls_state_save_begin(p.state, b, 3));
    LS_EXPECT(ls_state_saving(p.state), "nothing is in flight");
    for (int i = 0; i < 3; i++) LS_TRY(go_on(&p));
    LS_TRY(ls_state_save_wait(p.state));
    LS_EXPECT(!ls_state_saving(p.state) && ls_state_save_poll(p.state) == LS_OK, "the save is not over");
    end(&p);
    return LS_OK;
}

static void writes_what_the_save_that_is_waited_for_writes(void **state)
{
    static const int size[] = { 1, 2, 4 };
    char dir[256], a[280], b[280];
    for (size_t n = 0; n < COUNT(size); n++)
        for (size_t s = 0; s < COUNT(stage); s++) {
            snprintf(a, sizeof a, "ranks-%d-%zu", size[n], s);
            job j = { .ddp = stage[s], .dir = inside(state, a, dir) };
            expect(ls_test_ranks(n == 1 ? LS_TEST_PROCESSES : LS_TEST_THREADS, size[n], NULL, save_twice, &j));
            snprintf(a, sizeof a, "%s/waited", dir);
            snprintf(b, sizeof b, "%s/async", dir);
            expect_same_checkpoint(a, b);
        }
}

static void copies_with_all_threads(void **state)
{
    char dir[256], a[280], b[280];
    job j = { .ddp = &large, .dir = inside(state, "large", dir) };
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &(ls_world_opts){ .arena_bytes = 32u << 20 }, save_twice, &j));
    snprintf(a, sizeof a, "%s/waited", dir);
    snprintf(b, sizeof b, "%s/async", dir);
    expect_same_checkpoint(a, b);
}

static void goes_over_wires(void **state)
{
    char dir[256], a[280], b[280];
    job j = { .ddp = &gathered, .dir = inside(state, "wires", dir) };
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &wires, save_twice, &j));
    snprintf(a, sizeof a, "%s/waited", dir);
    snprintf(b, sizeof b, "%s/async", dir);
    expect_same_checkpoint(a, b);
}

/* While rank 0's disk is held: polls and steps come back, other saves are refused. */
static ls_status poll_and_go_on(ls_world *w, void *arg)
{
    const job *j = arg;
    const bool slow = ls_world_rank(w) == 0;
    char a[256], b[256];
    program p;
    ls_env env;
    ls_context context, *was;
    LS_TRY(folder_of(j, "first", a));
    LS_TRY(folder_of(j, "second", b));
    LS_TRY(begin(&p, w, j->ddp));
    insert_disk(&env, &context);
    was = ls_context_swap(&context);
    atomic_store(&disk.held, slow);
    LS_TRY(ls_state_save_begin(p.state, a, 0));
    for (int i = 0; i < 4; i++) {
        LS_TRY(go_on(&p));
        LS_EXPECT(ls_state_save_poll(p.state) == LS_AGAIN, "poll %d does not say that the save goes on", i);
        LS_EXPECT(ls_state_save(p.state, b, p.step) == LS_INVALID, "a save while one is in flight");
        LS_EXPECT(ls_state_save_begin(p.state, b, p.step) == LS_INVALID && strstr(ls_last_error(), "first"),
                  "a save while one is in flight: %s", ls_last_error());
        LS_EXPECT(entries(j->dir) == 1, "the checkpoint has its name already");
    }
    atomic_store(&disk.held, false);
    ls_status st;
    while ((st = ls_state_save_poll(p.state)) == LS_AGAIN) LS_TRY(go_on(&p));
    LS_TRY(st);
    LS_TRY(ls_state_save_begin(p.state, b, p.step)); /* the next one may begin */
    LS_TRY(ls_state_save_wait(p.state));
    end(&p);
    ls_context_swap(was);
    return LS_OK;
}

static void the_program_goes_on_meanwhile(void **state)
{
    job j = { .ddp = &own_sums, .dir = *state };
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, NULL, poll_and_go_on, &j));
    ls_checkpoint *c;
    char path[256];
    assert_int_equal(ls_checkpoint_open(inside(state, "first", path), &c), LS_OK);
    assert_int_equal(ls_checkpoint_step(c), 0);
    ls_checkpoint_close(c);
}

/* Rank 1's disk is full, or broken, at one call after another: all ranks hear of it, and the older one stays. */
static ls_status fail_at_each_call(ls_world *w, void *arg)
{
    const job *j = arg;
    const int rank = ls_world_rank(w), culprit = 1;
    char a[256], b[256], c[256];
    program p;
    ls_env env;
    ls_context context, *was;
    LS_TRY(folder_of(j, "older", a));
    LS_TRY(folder_of(j, "newer", b));
    LS_TRY(folder_of(j, "last", c));
    LS_TRY(begin(&p, w, j->ddp));
    LS_TRY(go_on(&p));
    LS_TRY(ls_state_save(p.state, a, 1));
    insert_disk(&env, &context);
    was = ls_context_swap(&context);
    int failures = 0;
    for (int at = 0;; at++) {
        LS_TRY(ls_barrier(ls_world_group(w)));
        disk.calls = 0;
        disk.error = at % 2 ? EIO : ENOSPC;
        if (rank == culprit) disk.fail_at = at;
        LS_TRY(ls_state_save_begin(p.state, b, 2));
        const ls_status st = ls_state_save_wait(p.state);
        if (st == LS_OK) break; /* no call was left to fail */
        LS_EXPECT(st == LS_CKPT_FAILED && ls_state_culprit(p.state) == culprit, "call %d: %s, of rank %d", at,
                  ls_status_text(st), ls_state_culprit(p.state));
        LS_EXPECT(strstr(ls_last_error(), "rank 1") && strstr(ls_last_error(), strerror(at % 2 ? EIO : ENOSPC)) &&
                  strstr(ls_last_error(), "saving step 2 as"), "call %d: %s", at, ls_last_error());
        LS_TRY(ls_barrier(ls_world_group(w)));
        LS_EXPECT(entries(j->dir) == 1, "call %d left something beside the older checkpoint", at);
        failures++;
        LS_TRY(ls_barrier(ls_world_group(w)));
    }
    LS_EXPECT(failures > 3, "%d failures", failures);
    disk.fail_at = -1;
    LS_TRY(ls_state_save(p.state, c, 1));
    end(&p);
    ls_context_swap(was);
    return LS_OK;
}

static void a_disk_that_fails_leaves_the_older(void **state)
{
    char a[256], b[256];
    job j = { .ddp = &own_sums, .dir = *state };
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, NULL, fail_at_each_call, &j));
    expect_same_checkpoint(inside(state, "older", a), inside(state, "last", b));
}

/* One rank; *arg gets the number of calls of a save that succeeds. */
static ls_status crash_at(ls_world *w, void *arg)
{
    const job *j = arg;
    char b[256];
    program p;
    ls_env env;
    ls_context context, *was;
    const int at = disk.fail_at;
    LS_TRY(folder_of(j, "newer", b));
    LS_TRY(begin(&p, w, j->ddp));
    insert_disk(&env, &context);
    disk.fail_at = at;
    disk.dies = true;
    was = ls_context_swap(&context);
    LS_TRY(go_on(&p));
    LS_TRY(go_on(&p));
    LS_TRY(ls_state_save_begin(p.state, b, 2));
    LS_TRY(go_on(&p));
    LS_TRY(ls_state_save_wait(p.state));
    ls_context_swap(was);
    end(&p);
    return LS_OK;
}

static ls_status save_older(ls_world *w, void *arg)
{
    char a[256];
    program p;
    LS_TRY(folder_of(arg, "older", a));
    LS_TRY(begin(&p, w, ((job *)arg)->ddp));
    LS_TRY(go_on(&p));
    LS_TRY(ls_state_save(p.state, a, 1));
    end(&p);
    return LS_OK;
}

static void a_crash_at_any_call_leaves_the_older(void **state)
{
    char a[256], b[256];
    job j = { .ddp = &plain_ddp, .dir = *state };
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, save_older, &j));
    int crashes = 0;
    for (bool finished = false; !finished; crashes += !finished) {
        ls_checkpoint *c;
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            disk.fail_at = crashes;
            _exit(ls_test_ranks(LS_TEST_THREADS, 1, NULL, crash_at, &j).failed ? 18 : 17);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 17));
        finished = WEXITSTATUS(status) == 17;
        assert_int_equal(ls_checkpoint_open(inside(state, "older", a), &c), LS_OK);
        assert_int_equal(ls_checkpoint_verify(c, 0, 1), LS_OK);
        ls_checkpoint_close(c);
        const ls_status newer = ls_checkpoint_open(inside(state, "newer", b), &c); /* whole, or not there */
        assert_int_equal(newer == LS_OK || entries(*state) == 1 + ls_commit_sweep(*state, pid), 1);
        if (newer == LS_OK) assert_int_equal(ls_checkpoint_verify(c, 0, 1), LS_OK);
        ls_checkpoint_close(c);
        ls_commit_sweep(*state, pid);
        if (newer == LS_OK && !finished) ls_commit_folder_remove(b);
    }
    assert_true(crashes > 10);
}

/* The rank's program ends while its save is in flight. */
static ls_status leave_early(ls_world *w, void *arg)
{
    const job *j = arg;
    char a[256];
    program p;
    LS_TRY(folder_of(j, "left", a));
    LS_TRY(begin(&p, w, j->ddp));
    LS_TRY(ls_state_save_begin(p.state, a, 0));
    end(&p);
    return ls_barrier(ls_world_group(w));
}

static void a_program_that_ends_leaves_nothing(void **state)
{
    job j = { .ddp = &own_sums, .dir = *state };
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, leave_early, &j));
    assert_int_equal(entries(*state), 0);
}

/* What is reserved is what each rank saves: together, values and two states of all elements, and the program's own. */
static ls_status count_copy(ls_world *w, void *arg)
{
    const job *j = arg;
    program p;
    LS_TRY(begin(&p, w, j->ddp));
    int64_t bytes = (int64_t)ls_state_copy_bytes(p.state);
    LS_TRY(ls_state_reserve(p.state));
    const size_t counted = ls_world_ledger(w)->now[LS_MEM_CKPT];
    LS_EXPECT(counted == ((size_t)bytes + 63) / 64 * 64, "the ledger has %zu bytes of %lld", counted, (long long)bytes);
    LS_EXPECT(ls_state_reserve(p.state) == LS_INVALID, "reserved twice");
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &bytes, 1, LS_I64, LS_SUM));
    const int64_t want = 12 * ls_params_count(&p.r.model->params), own = 16 + 8 + 8;
    LS_EXPECT(bytes >= want + own && bytes <= want + own + 8 * (1 + ls_world_size(w)), "%lld bytes together, for %lld",
              (long long)bytes, (long long)(want + own));
    end(&p);
    return LS_OK;
}

static void the_copy_is_what_a_rank_saves(void **state)
{
    for (int n = 1; n <= 4; n++)
        for (size_t s = 0; s < COUNT(stage); s++) {
            job j = { .ddp = stage[s], .dir = *state };
            expect(ls_test_ranks(LS_TEST_THREADS, n, NULL, count_copy, &j));
        }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(writes_what_the_save_that_is_waited_for_writes),
        TEST(copies_with_all_threads),
        TEST(goes_over_wires),
        TEST(the_program_goes_on_meanwhile),
        TEST(a_disk_that_fails_leaves_the_older),
        TEST(a_crash_at_any_call_leaves_the_older),
        TEST(a_program_that_ends_leaves_nothing),
        TEST(the_copy_is_what_a_rank_saves),
    };
    return cmocka_run_group_tests_name("state, asynchronously", tests, NULL, NULL);
}
