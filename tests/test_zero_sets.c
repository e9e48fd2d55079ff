/* Several sets of shards (HSDP) beside DDP, which is their reference: the same values, sums that travel between the
 * sets once; then groups that are no sets. */
#include "harness_zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows of a shard of its set; of the ranks that hold it, the first counts it in the norm. */
static ls_status owns_rows_of_its_set(const ls_replica *r, const ls_ddp_config *c)
{
    for (int i = 0; i < r->model->params.n; i++) {
        const ls_param *p = &r->model->params.item[i];
        const size_t row = p->t.ndim == 1 ? 1 : (size_t)p->t.dim[1];
        const ls_range mine = ls_shard_of((size_t)p->t.dim[0], ls_group_rank(c->shards), ls_group_size(c->shards));
        LS_EXPECT(p->own.first == mine.first * row && p->own.count == mine.count * row, "%s: other rows", p->name);
        LS_EXPECT(p->keeps.count == (ls_group_rank(c->copies) == 0 ? p->own.count : 0), "%s: counted", p->name);
    }
    return LS_OK;
}

static ls_status sets_equal_ddp(ls_world *w, void *arg)
{
    const hybrid *h = arg;
    ls_ddp_config plain = { .first_bucket = h->ddp->first_bucket, .bucket_cap = h->ddp->bucket_cap,
                            .bucket_view = h->ddp->bucket_view }, sharded;
    LS_TRY(split(w, h, &sharded));
    const ls_replica_config whole = config_of(&plain, "adamw"), sets = config_of(&sharded, "adamw");
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &whole, &a));
    LS_TRY(ls_replica_create(w, &sets, &b));
    LS_TRY(owns_rows_of_its_set(&b, &sharded));
    const size_t n = (size_t)ls_params_count(&a.model->params);
    for (uint64_t s = 0; s < STEPS; s++) {
        double na, nb;
        LS_TRY(step(w, &a, s, h->parts, &na));
        LS_TRY(step(w, &b, s, h->parts, &nb));
        LS_EXPECT(fabs(na - nb) <= (h->exact ? 1e-12 : 1e-5) * na, "step %d: norm %.17g, of sets %.17g", (int)s, na, nb);
        float *va = ls_replica_values(&a), *vb = NULL;
        LS_TRY(ls_replica_whole(&b, &vb));
        double most = 0;
        for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)va[i] - (double)vb[i]));
        const bool same = memcmp(va, vb, n * sizeof *va) == 0;
        LS_TRY(ls_all_reduce(ls_world_group(w), NULL, vb, 1, LS_F32, LS_MAX)); /* all ranks ask for the same values */
        free(va);
        free(vb);
        LS_EXPECT(h->exact ? same : most < 1e-4, "step %d: values differ from DDP's by %g", (int)s, most);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    destroy_sets(&sharded);
    return LS_OK;
}

static void sets_of_shards_have_the_values_of_ddp(void **state)
{
    (void)state;
    static const ls_ddp_config viewed = { .zero_stage = 2, .bucket_view = true, .bucket_cap = 700 };
    static const ls_ddp_config *const row[] = { &many_buckets, &own_sums, &own_sums_late, &last_sums, &gathered,
                                                &gathered_once, &one_each, &viewed };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int size = 4; size <= 6; size += 2)
            for (int sets = 2; sets <= size; sets++) {
                if (size % sets != 0) continue;
                hybrid h = { row[i], sets, row[i]->reduce_last ? 4 : 1, true };
                expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, sets_equal_ddp, &h));
                h.exact = false; /* over wires the sums of a set come first */
                h.parts = 2;
                if (size == 4 || sets == 2) expect(ls_test_ranks(LS_TEST_PROCESSES, size, &wires, sets_equal_ddp, &h));
            }
    for (int sets = 2; sets <= 4; sets += 2) {
        hybrid shared = { &one_copy, sets, 1, true };
        expect(ls_test_ranks(LS_TEST_THREADS, 4, NULL, sets_equal_ddp, &shared));
        expect(ls_test_ranks(LS_TEST_PROCESSES, 4, NULL, sets_equal_ddp, &shared));
    }
}

/* Over wires: what a rank sends per step in its set, and to the ranks that hold the same shard. */
static ls_status sends_sums_of_shards(ls_world *w, void *arg)
{
    const hybrid *h = arg;
    ls_ddp_config c;
    ls_replica r;
    ls_comm_stats before, after;
    double norm;
    LS_TRY(split(w, h, &c));
    const ls_replica_config rc = config_of(&c, "sgd");
    LS_TRY(ls_replica_create(w, &rc, &r));
    size_t own = 0;
    for (int i = 0; i < r.model->params.n; i++) own += r.model->params.item[i].own.count * sizeof(float);
    ls_group_stats_read(c.copies, &before);
    LS_TRY(step(w, &r, 0, h->parts, &norm)); /* several micro-batches: the sets meet in the last one alone */
    ls_group_stats_read(c.copies, &after);
    const uint64_t sent = after.of[LS_ALL_REDUCE].bytes - before.of[LS_ALL_REDUCE].bytes;
    LS_EXPECT(sent == own, "%llu bytes to the other set, expected %zu: 2 (2 - 1) / 2 of the shard",
              (unsigned long long)sent, own);
    ls_replica_destroy(&r);
    destroy_sets(&c);
    return LS_OK;
}

static void sets_exchange_sums_of_their_shards(void **state)
{
    (void)state;
    hybrid row[] = { { &own_sums, 2, 2, false }, { &many_buckets, 2, 2, false }, { &gathered, 2, 4, false } };
    for (size_t i = 0; i < COUNT(row); i++)
        expect(ls_test_ranks(LS_TEST_PROCESSES, 4, &wires, sends_sums_of_shards, &row[i]));
}

/* Sums of all sets cannot take in those of one: a second reduced backward without a step is refused, and after a zero
 * everything is as before. */
static ls_status adds_to_no_final_sum(ls_world *w, void *arg)
{
    const hybrid *h = arg;
    ls_ddp_config c;
    ls_replica r;
    LS_TRY(split(w, h, &c));
    const ls_replica_config rc = config_of(&c, "sgd");
    LS_TRY(ls_replica_create(w, &rc, &r));
    LS_TRY(ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL));
    LS_TRY(ls_ddp_after_step(r.ddp));
    const ls_status st = ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "nothing can be added to it"), "%s", ls_last_error());
    ls_params_zero_grad(&r.model->params);
    LS_TRY(ls_replica_pass(&r, 0, 0, ROWS / 2, false, 1, NULL)); /* of several micro-batches the last one is final */
    LS_TRY(ls_replica_pass(&r, 0, 0, ROWS / 2, true, 1, NULL));
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_ddp_after_step(r.ddp));
    LS_TRY(ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL));
    ls_replica_destroy(&r);
    destroy_sets(&c);
    return LS_OK;
}

static void sums_of_all_sets_are_final(void **state)
{
    (void)state;
    hybrid row[] = { { &own_sums, 2, 2, false }, { &many_buckets, 2, 2, false }, { &gathered, 4, 2, false } };
    for (size_t i = 0; i < COUNT(row); i++)
        expect(ls_test_ranks(LS_TEST_PROCESSES, 4, &wires, adds_to_no_final_sum, &row[i]));
}

/* An operation of the program fails in the middle of a backward, on every rank alike. Two ranks are slow, so that sums
 * of their buckets are on the way to the other set, and those of the others are not. */
typedef struct failing {
    ls_world *w;
    int seen, n;
} failing;

static ls_status fails_at_the_last(void *arg, ls_tensor *t)
{
    failing *f = arg;
    (void)t;
    f->seen++;
    if (ls_world_rank(f->w) < 2) usleep(10000);
    return f->seen == f->n ? ls_fail(LS_INVALID, "an operation of the program fails") : LS_OK;
}

static ls_status ends_alike(ls_world *w, void *arg)
{
    const hybrid *h = arg;
    ls_ddp_config c;
    ls_replica r;
    LS_TRY(split(w, h, &c));
    const ls_replica_config rc = config_of(&c, "sgd");
    LS_TRY(ls_replica_create(w, &rc, &r));
    failing f = { w, 0, r.model->params.n };
    const ls_tape_events events = { .grad_ready = fails_at_the_last };
    LS_TRY(ls_tape_listen(r.tape, &events, &f));
    const ls_status st = ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL);
    LS_EXPECT(st == LS_INVALID, "the backward passed");
    ls_tape_unlisten(r.tape, &f);
    ls_replica_destroy(&r);
    LS_TRY(ls_barrier(ls_world_group(w))); /* the world is as it was */
    destroy_sets(&c);
    return LS_OK;
}

static void a_failed_backward_leaves_sets_alike(void **state)
{
    (void)state;
    hybrid row[] = { { &own_sums, 2, 1, false }, { &many_buckets, 2, 1, false } };
    for (size_t i = 0; i < COUNT(row); i++) expect(ls_test_ranks(LS_TEST_PROCESSES, 4, &wires, ends_alike, &row[i]));
}

/* The same partition given twice. */
static ls_status refuses_no_grid(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w), *half, *other;
    ls_replica r;
    LS_TRY(ls_group_split_named(g, ls_world_rank(w) / 2, "half", &half));
    LS_TRY(ls_group_split_named(g, ls_world_rank(w) / 2 + 2, "other", &other));
    const ls_ddp_config twice = { .zero_stage = 2, .shards = half, .copies = other };
    const ls_replica_config c = config_of(&twice, "sgd");
    const ls_status st = ls_replica_create(w, &c, &r);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "ranks 0 and 2 have the same place in shards and in copies"), "%s",
              ls_last_error());
    ls_group_destroy(other);
    ls_group_destroy(half);
    return LS_OK;
}

static ls_status refuses_sets(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w), *half;
    ls_replica r;
    LS_TRY(ls_group_split_named(g, ls_world_rank(w) / 2, "half", &half));
    const struct { ls_ddp_config c; const char *want; } row[] = {
        { { .shards = half, .copies = half }, "hybrid sharding with strategy ddp, which does not shard" },
        { { .zero_stage = 2, .shards = half }, "hybrid sharding needs two groups, ls_ddp_config.shards and copies: copies is NULL" },
        { { .zero_stage = 2, .copies = half }, "hybrid sharding needs two groups, ls_ddp_config.shards and copies: shards is NULL" },
        { { .zero_stage = 1, .shards = g, .copies = half }, "are 8 ranks: expected 4, the size of the group" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_replica_config c = config_of(&row[i].c, "sgd");
        const ls_status st = ls_replica_create(w, &c, &r);
        LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), row[i].want), "row %zu: %s", i, ls_last_error());
    }
    ls_group_destroy(half);
    return LS_OK;
}

static void refuses_groups_that_are_no_sets(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 4, NULL, refuses_sets, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 4, NULL, refuses_no_grid, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_shards_have_the_values_of_ddp),
        cmocka_unit_test(sets_exchange_sums_of_their_shards),
        cmocka_unit_test(sums_of_all_sets_are_final),
        cmocka_unit_test(a_failed_backward_leaves_sets_alike),
        cmocka_unit_test(refuses_groups_that_are_no_sets),
    };
    return cmocka_run_group_tests_name("zero_sets", tests, NULL, NULL);
}
