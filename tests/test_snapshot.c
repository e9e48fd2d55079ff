/* ls_snapshots_*: a snapshot is the checkpoint that a save writes; each file is on two nodes, so that any one may lose
 * its memory; damage is made good by another node or an older snapshot; and no failure takes the newest one away. */
#include "harness_checkpoint.h"
#include "harness_files.h"
#include "harness_zero.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/context.h"
#include "ckpt/snapshot.h"

static const ls_ddp_config plain_ddp = { 0 };
static const int two_nodes[] = { 0, 0, 1, 1 }, three_nodes[] = { 0, 0, 0, 1, 2, 2 };

typedef struct job {
    const char *dir;
    const ls_ddp_config *ddp;
    const int *node;   /* NULL: one */
    int64_t steps;     /* that are taken, a snapshot after each */
    int64_t want;      /* the step that is found, 0: none */
    int culprit, error; /* the rank whose disk fails */
} job;

/* --- a rank with a memory of its node --------------------------------------------------------------- */

static _Thread_local char memory[300];
static _Thread_local struct { int calls, fail_at, error; } disk; /* fail_at 0: none */
static bool fails(void) { return ++disk.calls == disk.fail_at; }
static const char *place(const char *name)
{
    return strcmp(name, "LOCKSTEP_SNAPSHOT_DIR") == 0 ? memory : ls_env_real.getenv(name);
}
static int bad_create(const char *path) { return fails() ? -disk.error : ls_env_real.create(path); }
static int bad_mkdir(const char *path) { return fails() ? -disk.error : ls_env_real.mkdir(path); }
static int bad_rename(const char *a, const char *b) { return fails() ? -disk.error : ls_env_real.rename(a, b); }
static int bad_fsync_dir(const char *path) { return fails() ? -disk.error : ls_env_real.fsync_dir(path); }
static ssize_t bad_write(int fd, const void *p, size_t n)
{
    return fails() ? -disk.error : ls_env_real.write(fd, p, n);
}

typedef struct program {
    ls_world *w;
    ls_replica r;
    ls_state *state;
    ls_snapshots *snapshots;
    ls_env env;
    ls_context context, *was;
    int64_t step;
    double norm;
} program;

static ls_status begin(program *p, ls_world *w, const job *j)
{
    const int rank = ls_world_rank(w);
    *p = (program){ .w = w, .env = ls_env_real };
    snprintf(memory, sizeof memory, "%s/memory%d", j->dir, j->node ? j->node[rank] : 0);
    mkdir(memory, 0700);
    p->env.getenv = place;
    p->env.create = bad_create;
    p->env.mkdir = bad_mkdir;
    p->env.rename = bad_rename;
    p->env.fsync_dir = bad_fsync_dir;
    p->env.write = bad_write;
    p->context = *ls_context_get(); /* the rank's, with another env */
    p->context.env = &p->env;
    p->context.log_level = -1;
    const ls_replica_config c = config_of(j->ddp, "adamw");
    LS_TRY(ls_replica_create(w, &c, &p->r));
    LS_TRY(ls_state_create(ls_world_group(w), &p->state));
    LS_TRY(ls_state_add_model(p->state, &p->r.model->params, p->r.optim));
    LS_TRY(ls_state_add_i64(p->state, "step", &p->step));
    p->was = ls_context_swap(&p->context);
    return LS_OK;
}

/* Hands the status on, with its message, to the context that the rank had. */
static ls_status end(program *p, ls_status st)
{
    char why[LS_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", ls_last_error());
    ls_snapshots_close(p->snapshots);
    ls_state_destroy(p->state);
    ls_replica_destroy(&p->r);
    ls_context_swap(p->was);
    return st < 0 ? ls_fail(st, "%s", why) : st;
}

static ls_status go_on(program *p)
{
    return step(p->w, &p->r, (uint64_t)p->step++, 2, &p->norm);
}

static ls_status open_run(program *p, const job *j, bool make)
{
    return ls_snapshots_open(ls_world_group(p->w), j->dir, make, &p->snapshots);
}

static ls_status snapshot(program *p) { return ls_snapshots_save(p->snapshots, p->state, "a: configuration\n", p->step, NULL); }

static ls_status take_steps(program *p, const job *j)
{
    char disk_[300];
    LS_TRY(open_run(p, j, true));
    for (int64_t i = 0; i < j->steps; i++) {
        LS_TRY(go_on(p));
        LS_TRY(snapshot(p));
    }
    LS_EXPECT(ls_snapshots_step(p->snapshots) == j->steps && ls_snapshots_size(p->snapshots) > 0, "not the newest");
    snprintf(disk_, sizeof disk_, "%s/on-disk", j->dir);
    return ls_state_save(p->state, disk_, p->step);
}

static ls_status save_some(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, take_steps(&p, arg));
}

static ls_status find(program *p, const job *j)
{
    ls_checkpoint *c = NULL;
    LS_TRY(open_run(p, j, false));
    LS_EXPECT(p->snapshots, "the run has no number");
    LS_TRY(ls_snapshots_newest(p->snapshots, 0, &c));
    const int64_t found = c ? ls_checkpoint_step(c) : 0;
    if (c && found == j->want && ls_world_rank(p->w) == ls_world_size(p->w) - 1) { /* by a rank of the last node */
        char folder[300], disk_[300];
        snprintf(folder, sizeof folder, "%s", ls_checkpoint_folder(c));
        snprintf(disk_, sizeof disk_, "%s/on-disk", j->dir);
        if (j->want == j->steps) expect_same_checkpoint(folder, disk_);
    }
    ls_status st = c ? ls_state_load(p->state, c) : LS_OK;
    ls_checkpoint_close(c);
    LS_EXPECT(found == j->want, "found step %d, expected %d: %s", (int)found, (int)j->want, ls_last_error());
    LS_EXPECT(st < 0 || !c || p->step == j->want, "loaded step %d", (int)p->step);
    return st;
}

static ls_status find_newest(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, find(&p, arg));
}

static void expect_ok(ls_rank_report r)
{
    if (r.failed) fail_msg("%d ranks: %s", r.failed, r.text);
}

static void run(int ranks, job *j, ls_rank_fn fn)
{
    const ls_world_opts o = { .transport = j->node ? "mixed" : NULL, .node = j->node };
    expect_ok(ls_test_ranks(LS_TEST_THREADS, ranks, &o, fn, j));
}

static void sh(const char *format, const char *dir)
{
    char command[600];
    snprintf(command, sizeof command, format, dir, dir, dir);
    if (system(command) != 0) fail_msg("%s", command);
}

/* --- claims --------------------------------------------------------------------------------------------- */

static void is_the_checkpoint_that_a_save_writes(void **state)
{
    static const int size[] = { 1, 2, 3 };
    static const ls_ddp_config *const stage[] = { &plain_ddp, &many_buckets, &own_sums, &one_copy, &gathered };
    char dir[256], name[32];
    for (size_t n = 0; n < COUNT(size); n++)
        for (size_t s = 0; s < COUNT(stage); s++) {
            snprintf(name, sizeof name, "run-%d-%zu", size[n], s);
            job j = { .dir = inside(state, name, dir), .ddp = stage[s], .steps = 3, .want = 3 };
            mkdir(dir, 0755);
            run(size[n], &j, save_some);
            run(size[n], &j, find_newest);
            run(4 - size[n], &j, find_newest); /* on another number of ranks */
        }
}

static void two_are_kept(void **state)
{
    job j = { .dir = *state, .ddp = &plain_ddp, .steps = 5, .want = 5 };
    run(2, &j, save_some);
    sh("test \"$(cd %s/memory0/lockstep-*-0 && echo *)\" = 'lock run step-00000004 step-00000005'", *state);
}

static void any_one_node_may_lose_its_memory(void **state)
{
    static const struct { const int *node; int ranks, nodes; } row[] = { { two_nodes, 4, 2 }, { three_nodes, 6, 3 } };
    char dir[256], name[32];
    for (size_t i = 0; i < COUNT(row); i++)
        for (int lost = 0; lost < row[i].nodes; lost++) {
            snprintf(name, sizeof name, "run-%zu-%d", i, lost);
            job j = { .dir = inside(state, name, dir), .ddp = &many_buckets, .steps = 2, .want = 2 };
            j.node = row[i].node;
            mkdir(dir, 0755);
            run(row[i].ranks, &j, save_some);
            snprintf(name, sizeof name, "rm -r %%s/memory%d", lost);
            sh(name, dir);
            run(row[i].ranks, &j, find_newest);
            run(row[i].ranks, &j, find_newest); /* each node has all of it now */
            j.node = NULL;
            if (lost > 0) run(1, &j, find_newest); /* node 0 alone */
        }
}

static void two_of_three_are_too_many(void **state)
{
    job j = { .dir = *state, .ddp = &many_buckets, .node = three_nodes, .steps = 2, .want = 0 };
    run(6, &j, save_some);
    sh("rm -r %s/memory0 %s/memory1", *state);
    run(6, &j, find_newest);
}

/* A kill may come when only some nodes have named the newest. */
static void one_that_some_nodes_have_not_finished(void **state)
{
    job j = { .dir = *state, .ddp = &many_buckets, .node = three_nodes, .steps = 3, .want = 3 };
    run(6, &j, save_some);
    sh("rm -r %s/memory1/lockstep-*-1/step-00000003", *state);
    run(6, &j, find_newest); /* node 0's files are there, node 1's are on node 2 */
    sh("rm -r %s/memory1/lockstep-*-1/step-00000003 %s/memory2/lockstep-*-2/step-00000003 && rm %s/memory0/lockstep-*-0/step-00000003/sharded/shard-00004*",
       *state);
    j.want = 2;
    run(6, &j, find_newest);
}

static void damage_is_made_good_by_another_node(void **state)
{
    job j = { .dir = *state, .ddp = &many_buckets, .node = two_nodes, .steps = 2, .want = 2 };
    run(4, &j, save_some);
    sh("printf X | dd of=$(echo %s/memory0/lockstep-*-0/step-00000002/sharded/shard-00001*) bs=1 seek=2000 conv=notrunc status=none", *state);
    sh("truncate -s -1 %s/memory1/lockstep-*-1/step-00000002/sharded/shard-00002*", *state);
    sh("printf X >>$(echo %s/memory1/lockstep-*-1/step-00000002/config.yaml)", *state);
    run(4, &j, find_newest);
}

static void damage_on_all_nodes_leaves_the_older_one(void **state)
{
    static const char *const damage[] = {
        "for f in %s/memory*/lockstep-*/step-00000002/sharded/shard-00001*; do printf X | dd of=$f bs=1 seek=2000 conv=notrunc status=none; done",
        "rm %s/memory*/lockstep-*/step-00000002/config.yaml",
        "for f in %s/memory*/lockstep-*/step-00000002/manifest.json; do printf X >>$f; done",
        "rm %s/memory*/lockstep-*/step-00000002/manifest.json",
        "for f in %s/memory*/lockstep-*/step-00000002/sharded; do rm -r $f && ln -s /tmp $f; done",
    };
    char dir[256], name[32];
    for (size_t i = 0; i < 2 * COUNT(damage); i++) {
        snprintf(name, sizeof name, "run-%zu", i);
        job j = { .dir = inside(state, name, dir), .ddp = &many_buckets, .steps = 2, .want = 1 };
        j.node = i % 2 ? two_nodes : NULL;
        mkdir(dir, 0755);
        run(4, &j, save_some);
        sh(damage[i / 2], dir);
        run(4, &j, find_newest);
    }
}

/* --- failures ------------------------------------------------------------------------------------------------ */

static ls_status fail_everywhere(program *p, const job *j)
{
    int failures = 0;
    LS_TRY(open_run(p, j, true));
    LS_TRY(go_on(p));
    LS_TRY(snapshot(p));
    LS_TRY(go_on(p));
    for (int at = 1;; at++) {
        LS_TRY(ls_barrier(ls_world_group(p->w)));
        disk.calls = 0;
        disk.error = j->error;
        disk.fail_at = ls_world_rank(p->w) == j->culprit ? at : 0;
        const ls_status st = snapshot(p);
        int64_t failed = disk.fail_at > 0 && disk.calls >= at;
        disk.fail_at = 0;
        LS_TRY(ls_all_reduce(ls_world_group(p->w), NULL, &failed, 1, LS_I64, LS_SUM));
        if (failed == 0) break; /* no call was left to fail */
        if (st == LS_OK) p->snapshots->newest = 1; /* making a folder that is there */
        if (st == LS_OK) continue;
        failures++;
        LS_EXPECT(st == LS_CKPT_FAILED && strstr(ls_last_error(), strerror(j->error)), "call %d: %s", at, ls_last_error());
        LS_EXPECT(ls_snapshots_step(p->snapshots) == 1, "call %d: the newest is gone", at);
        ls_checkpoint *c = NULL;
        LS_TRY(ls_snapshots_newest(p->snapshots, 0, &c));
        const int64_t found = c ? ls_checkpoint_step(c) : 0;
        ls_checkpoint_close(c);
        /* after the rename, what fails is the flush of the folder */
        LS_EXPECT(found == 1 || found == 2, "call %d: found step %d", at, (int)found);
        p->snapshots->newest = 1;
    }
    LS_EXPECT(failures > 4, "only %d calls matter", failures);
    return LS_OK;
}

static ls_status save_and_fail(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, fail_everywhere(&p, arg));
}

static void a_failure_anywhere_leaves_the_newest(void **state)
{
    char dir[256], name[32];
    for (int i = 0; i < 4; i++) { /* of one node a leader and another rank, and of two the second leader and another */
        snprintf(name, sizeof name, "r%d", i);
        job j = { .dir = inside(state, name, dir), .ddp = &many_buckets, .culprit = i };
        j.error = i % 2 ? ENOSPC : EROFS;
        j.node = i < 2 ? NULL : two_nodes;
        mkdir(dir, 0755);
        run(4, &j, save_and_fail);
        j.want = 2;
        run(4, &j, find_newest);
    }
}

static ls_status beside_a_save(program *p, const job *j)
{
    char a[300];
    snprintf(a, sizeof a, "%s/on-disk", j->dir);
    LS_TRY(open_run(p, j, true));
    LS_TRY(go_on(p));
    LS_TRY(ls_state_save_begin(p->state, a, 1));
    LS_TRY(go_on(p));
    LS_TRY(snapshot(p));
    LS_EXPECT(ls_state_saving(p->state), "the save is over");
    LS_TRY(ls_state_save_wait(p->state));
    ls_checkpoint *c;
    LS_TRY(ls_checkpoint_open_all(ls_world_group(p->w), a, &c));
    LS_EXPECT(ls_checkpoint_step(c) == 1, "saved step %d", (int)ls_checkpoint_step(c));
    ls_checkpoint_close(c);
    return LS_OK;
}

static ls_status save_both(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, beside_a_save(&p, arg));
}

static void leaves_a_save_in_flight_alone(void **state)
{
    job j = { .dir = *state, .ddp = &many_buckets, .want = 2 };
    run(2, &j, save_both);
    run(2, &j, find_newest);
}

static ls_status finish(program *p, const job *j)
{
    LS_TRY(take_steps(p, j));
    ls_snapshots_remove(p->snapshots);
    LS_TRY(ls_barrier(ls_world_group(p->w)));
    LS_EXPECT(entries(memory) == 0, "%d entries are left", entries(memory));
    return LS_OK;
}

static ls_status save_and_remove(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, finish(&p, arg));
}

static void nothing_is_left_of_a_run_that_is_over(void **state)
{
    job j = { .dir = *state, .ddp = &plain_ddp, .node = two_nodes, .steps = 2 };
    run(4, &j, save_and_remove);
}

static ls_status never_any(program *p, const job *j)
{
    LS_TRY(open_run(p, j, false));
    LS_EXPECT(!p->snapshots && entries(memory) == 0, "a run without snapshots has some");
    return LS_OK;
}

static ls_status find_none(ls_world *w, void *arg)
{
    program p;
    LS_TRY(begin(&p, w, arg));
    return end(&p, never_any(&p, arg));
}

static void a_run_that_had_none_has_none(void **state)
{
    job j = { .dir = *state, .ddp = &plain_ddp };
    run(2, &j, find_none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_the_checkpoint_that_a_save_writes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_are_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(any_one_node_may_lose_its_memory, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_of_three_are_too_many, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_that_some_nodes_have_not_finished, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damage_is_made_good_by_another_node, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damage_on_all_nodes_leaves_the_older_one, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_failure_anywhere_leaves_the_newest, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(leaves_a_save_in_flight_alone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(nothing_is_left_of_a_run_that_is_over, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_run_that_had_none_has_none, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
