/* ls_state_*, ls_checkpoint_*: a state that W ranks have saved under one stage of ZeRO is the same, to the bit, on W'
 * ranks under another stage; training goes on with the same bits; another model's checkpoint is refused. */
#include "harness_checkpoint.h"
#include "harness_files.h"
#include "harness_zero.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ls_ddp_config plain_ddp = { 0 };
static const ls_ddp_config *const stage[] = { &plain_ddp, &many_buckets, &own_sums, &one_copy, &gathered };

/* One training run of some steps. */
typedef struct job {
    const ls_ddp_config *ddp;
    const char *optim;
    bool bf16;
    bool in_rows;           /* ranks own all, and each saves some rows */
    const int64_t *dims;    /* NULL: those of harness_zero.h */
    const char *from;       /* folder of checkpoints to go on from; NULL: begins */
    int until;              /* steps, those before `from` included */
    const char *to;         /* folder to save in at the end; NULL: nothing is saved */
    char digest[33];        /* of the parameters at the end */
    int64_t first;          /* the step that it began with */
} job;

/* What the loop of a program has. */
typedef struct loop {
    int64_t step;
    double norm;
    char note[8];
} loop;

static ls_status save(ls_state *state, const char *dir, int64_t at)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s/step-%08lld", dir, (long long)at);
    return ls_state_save(state, folder, at);
}

static void keep_some_rows(ls_world *w, ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const size_t rows = (size_t)p->t.dim[0], row = (size_t)ls_tensor_count(&p->t) / rows;
        const ls_range mine = ls_shard_of(rows, ls_world_rank(w), ls_world_size(w));
        p->keeps = (ls_range){ mine.first * row, mine.count * row };
    }
}

static ls_status run(ls_world *w, void *arg)
{
    job *j = arg;
    ls_checkpoint *saved = NULL;
    ls_state *state;
    ls_replica r;
    loop mine = { .note = "begun" };
    ls_replica_config c = config_of(j->ddp, j->optim);
    if (j->dims) c.dims = j->dims;
    c.bf16 = j->bf16;
    if (j->from) LS_TRY(ls_checkpoint_newest(ls_world_group(w), j->from, &saved));
    if (j->from) LS_EXPECT(saved, "%s has no checkpoint", j->from);
    c.saved = saved;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_state_create(ls_world_group(w), &state));
    LS_TRY(ls_state_add_model(state, &r.model->params, r.optim));
    LS_TRY(ls_state_add(state, "loop", &mine, sizeof mine));
    LS_TRY(ls_state_add_i64(state, "step", &mine.step));
    if (saved) {
        LS_TRY(ls_state_load(state, saved));
        LS_EXPECT(mine.step == ls_checkpoint_step(saved), "step %lld in the manifest, %lld in the state",
                  (long long)ls_checkpoint_step(saved), (long long)mine.step);
        LS_EXPECT(strcmp(mine.note, "saved") == 0, "the program's own bytes: '%s'", mine.note);
        LS_EXPECT(ls_optim_steps(r.optim) == mine.step, "%lld updates", (long long)ls_optim_steps(r.optim));
    }
    if (ls_world_rank(w) == 0) j->first = mine.step;
    while (mine.step < j->until) LS_TRY(step(w, &r, (uint64_t)mine.step++, 2, &mine.norm));
    strcpy(mine.note, "saved");
    if (j->in_rows) keep_some_rows(w, &r.model->params);
    if (j->to) LS_TRY(save(state, j->to, mine.step));
    const ls_values values = ls_ddp_values(r.ddp);
    char digest[33];
    LS_TRY(ls_params_digest_of(&r.model->params, &values, digest));
    if (ls_world_rank(w) == 0) memcpy(j->digest, digest, sizeof digest);
    ls_state_destroy(state);
    ls_checkpoint_close(saved);
    ls_replica_destroy(&r);
    return LS_OK;
}

/* --- the same state in every layout ------------------------------------------------------------------ */

static void every_layout_loads_what_every_layout_saves(void **state)
{
    static const int size[] = { 1, 2, 3, 4, 8 };
    char from[256], to[256], a[280], b[280];
    for (size_t i = 0; i < COUNT(size); i++)
        for (size_t s = 0; s < COUNT(stage); s++) {
            snprintf(a, sizeof a, "saved-%zu-%zu", i, s);
            job saver = { .ddp = stage[s], .optim = "adamw", .until = 3, .to = inside(state, a, from) };
            expect(ls_test_ranks(LS_TEST_THREADS, size[i], NULL, run, &saver));
            for (size_t k = 0; k < COUNT(size); k++) {
                const size_t l = (i + s + k) % COUNT(stage); /* each pair of stages, and each pair of sizes */
                snprintf(b, sizeof b, "loaded-%zu-%zu-%zu", i, s, k);
                job loader = { .ddp = stage[l], .optim = "adamw", .from = from, .until = 3, .to = inside(state, b, to) };
                expect(ls_test_ranks(LS_TEST_THREADS, size[k], NULL, run, &loader));
                assert_int_equal(loader.first, 3);
                assert_string_equal(loader.digest, saver.digest);
                snprintf(a, sizeof a, "%s/step-00000003", from);
                snprintf(b, sizeof b, "%s/step-00000003", to);
                expect_same_checkpoint(a, b);
            }
        }
}

/* Parameters of a matrix in bf16 are in float at their owners alone. (An mlp cannot be trained in bf16:
 * test_train_resume.sh trains.) */
static void bf16_loads_its_master_values(void **state)
{
    char from[256], to[256], a[280], b[280];
    for (size_t s = 0; s < COUNT(stage); s++) {
        snprintf(a, sizeof a, "saved-%zu", s);
        job saver = { .ddp = stage[s], .optim = "adamw", .bf16 = true, .to = inside(state, a, from) };
        expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &saver));
        for (size_t l = 0; l < COUNT(stage); l++) {
            snprintf(b, sizeof b, "loaded-%zu-%zu", s, l);
            job loader = { .ddp = stage[l], .optim = "adamw", .bf16 = true, .from = from, .to = inside(state, b, to) };
            expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, run, &loader));
            assert_string_equal(loader.digest, saver.digest);
            snprintf(a, sizeof a, "%s/step-00000000", from);
            snprintf(b, sizeof b, "%s/step-00000000", to);
            expect_same_checkpoint(a, b);
        }
    }
}

static void training_goes_on_with_the_same_bits(void **state)
{
    static const char *const optim[] = { "sgd", "adam", "adamw" };
    char dir[256], name[64];
    for (size_t s = 0; s < COUNT(stage); s++)
        for (size_t o = 0; o < COUNT(optim); o++)
            {
                snprintf(name, sizeof name, "run-%zu-%zu", s, o);
                job whole = { .ddp = stage[s], .optim = optim[o], .until = 7 };
                job half = { .ddp = stage[s], .optim = optim[o], .until = 4, .to = inside(state, name, dir) };
                job rest = { .ddp = stage[s], .optim = optim[o], .from = dir, .until = 7 };
                expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &whole));
                expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &half));
                expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &rest));
                assert_string_equal(whole.digest, rest.digest);
                assert_string_not_equal(half.digest, rest.digest);
            }
}

static void a_rank_may_save_some_of_what_it_owns(void **state)
{
    char from[256], a[280], b[280];
    job saver = { .ddp = &plain_ddp, .optim = "adamw", .until = 3, .to = inside(state, "rows", from), .in_rows = true };
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &saver));
    job loader = { .ddp = &plain_ddp, .optim = "adamw", .from = from, .until = 3, .to = *state };
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, run, &loader));
    assert_string_equal(loader.digest, saver.digest);
    snprintf(a, sizeof a, "%s/step-00000003", from);
    snprintf(b, sizeof b, "%s/step-00000003", (char *)*state);
    expect_same_checkpoint(a, b);
}

static void processes_over_wires_save_and_load(void **state)
{
    char dir[256];
    inside(state, "wires", dir);
    job half = { .ddp = &gathered, .optim = "adamw", .until = 3, .to = dir };
    job rest = { .ddp = &own_sums, .optim = "adamw", .from = dir, .until = 6, .to = dir };
    job last = { .ddp = &plain_ddp, .optim = "adamw", .from = dir, .until = 6, .to = dir };
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &wires, run, &half));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, run, &rest));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 4, NULL, run, &last));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_layout_loads_what_every_layout_saves, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(bf16_loads_its_master_values, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(training_goes_on_with_the_same_bits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_rank_may_save_some_of_what_it_owns, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(processes_over_wires_save_and_load, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
