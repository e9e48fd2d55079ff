/* memory_stages: with memory.limit a run takes the fastest cut into pipeline stages that fits. The reference plans the
 * memory of every cut of small models by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_text.h"
#include "train/memory.h"
#include "train/memory_stages.h"
#include "train/parallelize.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { LAYERS = 6, CUTS = 64 };

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_source source;
    ls_model_config mc;
} fixture;

static void assert_done(ls_status st)
{
    if (st != LS_OK) fail_msg("%s", ls_last_error());
}

/* A head of so many columns that the shortest step has more layers in the first stage. */
static void begin(fixture *f, const char *const *keys, int size)
{
    const char *const all[] = { "model.name", "gpt2", "model.n_layer", "6", "model.n_head", "4", "model.d_model", "64",
                                       "model.seq_len", "64", "model.vocab_size", "2048", "model.tied", "false",
                                       "data.name", text, "data.path", tokens, "data.tokenizer", "char",
                                       "train.global_batch", "8", "train.micro_batch", "1", "parallel.pp", "2" };
    *f = (fixture){ 0 };
    assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o));
    for (size_t i = 0; i < COUNT(all); i += 2) assert_done(ls_opts_set(f->o, all[i], all[i + 1], "flag"));
    for (int i = 0; keys[i]; i += 2) assert_done(ls_opts_set(f->o, keys[i], keys[i + 1], "flag"));
    assert_done(ls_train_config_resolve(f->o, &f->c));
    assert_done(ls_train_config_check(&f->c, size));
    assert_done(ls_train_model(&f->c, &f->source, &f->mc));
}

static void end(fixture *f)
{
    ls_source_free(&f->source);
    ls_opts_destroy(f->o);
}

static size_t most_of(const fixture *f, int size, const ls_train_config *c)
{
    size_t most = 0;
    for (int r = 0; r < size; r++) {
        ls_memory_plan p;
        assert_done(ls_memory_plan_make(c, &f->mc, r, size, &p));
        if (p.total > most) most = p.total;
    }
    return most;
}

/* A cut of this many stages after `c`, of numbers that add up to LAYERS; false: that was the last one. */
static bool next_cut(ls_opt_doubles *s, int stages)
{
    for (int i = stages - 2; i >= 0; i--) {
        double before = 0;
        for (int k = 0; k <= i; k++) before += s->v[k];
        const double inner = stages - 2 - i; /* stages between this one and the last have at least one layer */
        if (before + 1 + inner > LAYERS) continue;
        s->v[i]++;
        double sum = before + 1;
        for (int k = i + 1; k < stages - 1; k++) s->v[k] = 1, sum++;
        s->v[stages - 1] = LAYERS - sum;
        return true;
    }
    return false;
}

static void first_cut(ls_opt_doubles *s, int stages)
{
    s->n = stages;
    s->v[0] = 0;
    for (int k = 1; k < stages - 1; k++) s->v[k] = 1;
    s->v[stages - 1] = LAYERS - (stages - 2);
}

static bool same(const ls_opt_doubles *a, const ls_opt_doubles *b)
{
    return a->n == b->n && memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0;
}

/* With every limit at which another cut begins to fit: one that fits is found exactly if there is one. */
static void finds_a_cut_that_fits_exactly_if_there_is_one(void **state)
{
    (void)state;
    static const struct { int size; const char *keys[13]; } row[] = {
        { 2, { NULL } },
        { 2, { "zero.stage", "0", "train.recompute", "full", NULL } },
        { 4, { "zero.stage", "1", NULL } },
        { 3, { "parallel.pp", "3", "train.micro_batch", "2", NULL } },
        { 2, { "pipeline.schedule", "interleaved", "pipeline.chunks", "2", NULL } },
    };
    int moved = 0;
    for (size_t i = 0; i < COUNT(row); i++) {
        const int size = row[i].size;
        fixture f;
        begin(&f, row[i].keys, size);
        ls_plan plan;
        assert_done(ls_train_plan(&f.c, size, &plan));
        const int stages = ls_plan_stages(&plan);
        size_t need[CUTS], least = SIZE_MAX;
        int n = 0;
        ls_train_config each = f.c;
        first_cut(&each.pipeline.split, stages);
        do {
            assert_true(n < CUTS);
            need[n] = most_of(&f, size, &each);
            least = need[n] < least ? need[n] : least;
            n++;
        } while (next_cut(&each.pipeline.split, stages));
        const size_t shortest = most_of(&f, size, &f.c);
        for (int k = 0; k < n; k++)
            for (int below = 0; below < 2; below++) {
                const size_t limit = need[k] - (size_t)below;
                ls_memory_stages got;
                f.c.memory.limit = limit * (size_t)size;
                assert_done(ls_memory_stages_fit(&f.c, &f.mc, size, &got));
                if (shortest <= limit || limit < least) { /* nothing has to change, or nothing helps */
                    assert_int_equal(got.c.pipeline.split.n, 0);
                    assert_string_equal(got.said, "");
                    continue;
                }
                moved++;
                assert_int_equal(got.c.pipeline.split.n, stages);
                if (most_of(&f, size, &got.c) > limit) fail_msg("row %zu: a cut that needs more than %zu bytes", i, limit);
                assert_non_null(strstr(got.said, "fits memory.limit"));
                ls_memory_stages again; /* and it stays */
                assert_done(ls_memory_stages_fit(&got.c, &f.mc, size, &again));
                assert_true(same(&again.c.pipeline.split, &got.c.pipeline.split));
            }
        end(&f);
    }
    assert_true(moved > 20);
}

/* Two stages: the shortest step has 4 layers in the first stage, equal stages have 3. By hand: with 3 the last rank has
 * the head and 3 layers to compute, with fewer it has more, so of the cuts that fit the one nearest to 4 is fastest. */
static void the_nearest_to_the_shortest_step_is_taken(void **state)
{
    (void)state;
    static const char *const none[] = { NULL };
    fixture f;
    begin(&f, none, 2);
    size_t need[LAYERS + 1];
    for (int k = 0; k <= LAYERS; k++) {
        ls_train_config c = f.c;
        c.pipeline.split = (ls_opt_doubles){ { k, LAYERS - k }, 2 };
        need[k] = most_of(&f, 2, &c);
    }
    assert_true(most_of(&f, 2, &f.c) == need[4] && need[3] < need[2] && need[2] < need[4]);
    ls_memory_stages got;
    f.c.memory.limit = 2 * need[2]; /* 2 and 3 layers fit, and 4 do not */
    assert_done(ls_memory_stages_fit(&f.c, &f.mc, 2, &got));
    assert_int_equal(got.c.pipeline.split.v[0], 3);
    assert_int_equal(got.c.pipeline.split.v[1], 3);
    assert_non_null(strstr(got.said, "3,3 layers per stage"));
    end(&f);
}

/* 12 layers in 4 stages of 2 ranks can be cut in 286 ways, each of which is other stages on both ranks: not all of them
 * may be planned, and those that are not do not count as ones that fit. */
static void so_many_dry_runs_and_no_more(void **state)
{
    (void)state;
    static const char *const keys[] = { "model.n_layer", "12", "model.n_head", "1", "model.d_model", "8",
                                        "model.seq_len", "8", "model.vocab_size", "64",
                                        "pipeline.schedule", "interleaved", "pipeline.chunks", "2", NULL };
    enum { RANKS = 2 };
    fixture f;
    begin(&f, keys, RANKS);
    ls_memory_stages got;
    f.c.memory.limit = RANKS; /* a byte each: no cut fits */
    assert_done(ls_memory_stages_fit(&f.c, &f.mc, RANKS, &got));
    assert_int_equal(got.planned, LS_MEMORY_STAGES_PLANS);
    assert_int_equal(got.c.pipeline.split.n, 0);
    assert_string_equal(got.said, "");

    f.c.memory.limit = RANKS * (uint64_t)most_of(&f, RANKS, &f.c); /* the first cut fits: there is no search */
    assert_done(ls_memory_stages_fit(&f.c, &f.mc, RANKS, &got));
    assert_int_equal(got.planned, 0);
    end(&f);
}

static void nothing_changes_where_nothing_is_checked(void **state)
{
    (void)state;
    static const char *const keys[][3] = { { "memory.check", "false", NULL }, { "pipeline.split", "4,2", NULL },
                                           { "parallel.pp", "1", NULL }, { "memory.limit", "0", NULL } };
    for (size_t i = 0; i < COUNT(keys); i++) {
        fixture f;
        ls_memory_stages got;
        begin(&f, keys[i], 2);
        if (i < 3) f.c.memory.limit = 19 << 20;
        assert_done(ls_memory_stages_fit(&f.c, &f.mc, 2, &got));
        assert_true(same(&got.c.pipeline.split, &f.c.pipeline.split));
        assert_string_equal(got.said, "");
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_a_cut_that_fits_exactly_if_there_is_one),
        cmocka_unit_test(the_nearest_to_the_shortest_step_is_taken),
        cmocka_unit_test(so_many_dry_runs_and_no_more),
        cmocka_unit_test(nothing_changes_where_nothing_is_checked),
    };
    return cmocka_run_group_tests_name("memory_stages", tests, make_text, remove_text);
}
