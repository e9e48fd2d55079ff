/* Ranks that have met and whose trainers cannot be made: each rank reports its own cause, and of ranks with the same
 * cause the first one alone. The test says which rank comes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "harness.h"
#include "train/trainer.h"

#define RANKS   3
#define WAIT_NS 20000000000u

typedef struct job {
    ls_train_config c[RANKS];
    ls_opts *o[RANKS];
    int first;           /* the rank that fails before the others begin */
    _Atomic bool failed; /* it has */
    _Atomic int met;     /* ranks whose world is made */
    ls_status status[RANKS];
    char text[RANKS][LS_ERROR_BYTES];
} job;

static ls_status create(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    ls_trainer *t;
    const uint64_t until = ls_env_real.mono_ns() + WAIT_NS;
    atomic_fetch_add(&j->met, 1);
    while (atomic_load(&j->met) < RANKS || (rank != j->first && !atomic_load(&j->failed))) {
        LS_EXPECT(ls_env_real.mono_ns() < until, "rank %d waited in vain for the %d ranks, rank %d first", rank, RANKS, j->first);
        ls_env_real.yield();
    }
    j->status[rank] = ls_trainer_create_in(&j->c[rank], w, NULL, &t);
    snprintf(j->text[rank], sizeof j->text[rank], "%s", ls_last_error());
    atomic_store(&j->failed, true); /* read by the others only while they wait for `first` */
    LS_EXPECT(j->status[rank] < 0 && !t, "rank %d: a trainer was made", rank);
    return j->status[rank];
}

/* Every rank traces from step `traced[rank]` on, of a run of 3 steps. */
static void run(job *j, int first, const char *const traced[RANKS])
{
    static const char *const flags[][2] = { { "data.name", "synthetic" },       { "model.dims", "8,4" },
                                            { "train.global_batch", "12" },     { "train.steps", "3" },
                                            { "train.eval_batches", "0" } };
    ls_source source = { 0 };
    ls_model_config mc;
    ls_memory_plan plan;
    memset(j, 0, sizeof *j);
    j->first = first;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &j->c[r], &j->o[r]), LS_OK);
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            assert_int_equal(ls_opts_set(j->o[r], flags[i][0], flags[i][1], "flag"), LS_OK);
        assert_int_equal(ls_opts_set(j->o[r], "trace.steps", traced[r], "flag"), LS_OK);
        if (ls_train_config_resolve(j->o[r], &j->c[r]) < 0) fail_msg("%s", ls_last_error());
    }
    assert_int_equal(ls_train_model(&j->c[0], &source, &mc), LS_OK);
    assert_int_equal(ls_memory_plan_make(&j->c[0], &mc, 0, RANKS, &plan), LS_OK);
    ls_source_free(&source);
    const ls_world_opts o = ls_train_world_opts(&j->c[0], &plan);
    assert_true(ls_world_threads(RANKS, &o, create, j) < 0);
    for (int r = 0; r < RANKS; r++) ls_opts_destroy(j->o[r]);
}

static void of_ranks_with_the_same_cause_the_first_one_reports_it(void **state)
{
    (void)state;
    static const char *const same[RANKS] = { "100", "100", "100" };
    for (int first = 0; first < RANKS; first++) {
        job j;
        char want[64];
        run(&j, first, same);
        snprintf(want, sizeof want, "rank %d: trace.steps begins at 100", first);
        for (int r = 0; r < RANKS; r++) {
            if (r == first) assert_int_equal(j.status[r], LS_BAD_CONFIG);
            else assert_int_equal(j.status[r], LS_ABORTED); /* prints nothing: the cause is another rank's */
            if (!strstr(j.text[r], r == first ? want + strlen("rank 0: ") : want)) fail_msg("rank %d: %s", r, j.text[r]);
        }
    }
}

static void ranks_with_other_causes_each_report_theirs(void **state)
{
    (void)state;
    static const char *const other[RANKS] = { "100", "101", "102" };
    job j;
    run(&j, 1, other);
    for (int r = 0; r < RANKS; r++) {
        char want[64];
        snprintf(want, sizeof want, "trace.steps begins at %s", other[r]);
        assert_int_equal(j.status[r], LS_BAD_CONFIG);
        assert_int_equal(strncmp(j.text[r], want, strlen(want)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_ranks_with_the_same_cause_the_first_one_reports_it),
        cmocka_unit_test(ranks_with_other_causes_each_report_theirs),
    };
    return cmocka_run_group_tests_name("trainer fails", tests, NULL, NULL);
}
