/* ZeRO's stages, several sets of shards and copies on several nodes beside DDP, which is their reference: the same
 * values, from a shard of the state; then wrong uses of each. Training in bf16 is in test_train_zero.sh. */
#include "harness_replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group/debug.h"
#include "parallel/strategy.h"

#define STEPS    12

static const int64_t dims[] = { 20, 17, 12, 3 }; /* matrices end within cache lines; some ranks have none of 3 rows */
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
static const ls_world_opts wires = { .transport = "tcp" };
static const ls_ddp_config one_bucket = { .zero_stage = 1 };
static const ls_ddp_config one_each = { .first_bucket = 1, .bucket_cap = 1, .zero_stage = 1 }; /* empty shards */
static const ls_ddp_config many_buckets = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 1 };
static const ls_ddp_config own_sums = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 2 };
static const ls_ddp_config own_sums_late = { .zero_stage = 2, .no_overlap = true };
static const ls_ddp_config one_copy = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3 };
static const ls_ddp_config last_of_one = { .zero_stage = 3, .reduce_last = true };
static const ls_ddp_config gathered = { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .prefetch = 1 };
static const ls_ddp_config gathered_late = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3,
                                             .copy = LS_ZERO_COPY_RANK, .reshard = LS_RESHARD_ALWAYS };
static const ls_ddp_config gathered_once = { .zero_stage = 3, .reduce_last = true, .copy = LS_ZERO_COPY_RANK,
                                             .prefetch = 2, .reshard = LS_RESHARD_NEVER };
static const ls_ddp_config last_sums = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 2, .reduce_last = true };

static ls_replica_config config_of(const ls_ddp_config *ddp, const char *optim)
{
    return (ls_replica_config){
        .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .optim = optim, .lr = 0.02, .rows = ROWS
    };
}

/* --- the same model -------------------------------------------------------------------------------- */

/* A step of `parts` micro-batches, clipped: its norm. */
static ls_status step(ls_world *w, ls_replica *r, uint64_t n, int parts, double *norm)
{
    ls_params *ps = &r->model->params;
    const int64_t each = ROWS / parts;
    ls_params_zero_grad(ps);
    for (int m = 0; m < parts; m++)
        LS_TRY(ls_replica_pass(r, n, (ls_world_rank(w) * parts + m) * each, each, m + 1 == parts, 1.0f / (float)parts,
                               NULL));
    LS_TRY(ls_grad_norm_shared(ls_world_group(w), ps, norm, NULL));
    LS_TRY(ls_optim_step_scaled(r->optim, ls_clip_scale(*norm, 0.3)));
    return ls_ddp_after_step(r->ddp);
}

typedef struct how {
    const ls_ddp_config *ddp;
    const char *optim;
    int parts;
} how;

static ls_status equals_ddp(ls_world *w, void *arg)
{
    const how *h = arg;
    ls_ddp_config plain = *h->ddp;
    plain.zero_stage = 0;
    const ls_replica_config whole = config_of(&plain, h->optim), shared = config_of(h->ddp, h->optim);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &whole, &a));
    LS_TRY(ls_replica_create(w, &shared, &b));
    const size_t n = ls_params_nbytes(&a.model->params);
    bool clipped = false;
    for (uint64_t s = 0; s < STEPS; s++) {
        double na, nb;
        LS_TRY(step(w, &a, s, h->parts, &na));
        LS_TRY(step(w, &b, s, h->parts, &nb));
        clipped |= na > 0.3;
        LS_EXPECT(fabs(na - nb) <= 1e-12 * na, "step %d: norm %.17g, of shares %.17g", (int)s, na, nb);
        float *va = ls_replica_values(&a), *vb = NULL;
        LS_TRY(ls_replica_whole(&b, &vb));
        const bool same = memcmp(va, vb, n) == 0;
        free(va);
        free(vb);
        LS_EXPECT(same, "step %d: other values than DDP's", (int)s);
    }
    LS_EXPECT(clipped, "no step was clipped");
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void has_the_values_of_ddp(void **state)
{
    (void)state;
    static const how row[] = { { &one_bucket, "adamw", 1 },
                               { &many_buckets, "adamw", 2 },
                               { &many_buckets, "sgd", 1 },
                               { &one_each, "adamw", 2 },
                               { &many_buckets, "adam", 4 },
                               { &own_sums, "adamw", 1 }, /* of several micro-batches sums round otherwise:
                                                             test_slots.c */
                               { &own_sums_late, "sgd", 1 },
                               { &one_copy, "adamw", 1 },
                               { &last_of_one, "adam", 2 },
                               { &gathered, "adamw", 1 },
                               { &gathered_late, "sgd", 1 },
                               { &gathered_once, "adam", 2 },
                               { &last_sums, "adamw", 4 } };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, equals_ddp, (void *)(uintptr_t)&row[i]));
    for (size_t i = 0; i < COUNT(row); i++) {
        const bool mapped = row[i].ddp->zero_stage == 3 && row[i].ddp->copy == LS_ZERO_COPY_HOST; /* one copy */
        if (i > 1 && row[i].ddp->zero_stage < 2) continue;
        expect(ls_test_ranks(LS_TEST_PROCESSES, 3, NULL, equals_ddp, (void *)(uintptr_t)&row[i]));
        expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &threaded, equals_ddp, (void *)(uintptr_t)&row[i]));
        if (mapped) continue;
        /* of two ranks: sums of three have another order where no memory is mapped */
        expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, equals_ddp, (void *)(uintptr_t)&row[i]));
    }
}

/* Values that all ranks share are written by one: here every rank has another seed, and rank 0 is first. */
static ls_status takes_the_first_ranks_values(ls_world *w, void *arg)
{
    const ls_ddp_config *ddp = arg;
    ls_replica_config c = config_of(ddp, "sgd"), plain = c;
    ls_replica r, first;
    ls_group *g = ls_world_group(w);
    plain.plain = true;
    LS_TRY(ls_replica_create(w, &plain, &first));
    ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = COUNT(dims), .init = LS_INIT_PHILOX,
                           .seed = c.seed + (uint64_t)ls_world_rank(w) };
    r = (ls_replica){ .features = dims[0] };
    LS_TRY(ls_model_create(&mc, &r.model));
    ls_params *ps = &r.model->params;
    LS_TRY(ls_arena_create(2 * ls_params_nbytes(ps), false, NULL, &r.arena));
    ls_arena_may_grow(r.arena, NULL, NULL);
    LS_TRY(ls_ddp_bind(g, ps, ddp, LS_F32, r.arena));
    if (ls_world_rank(w) == 0 || ddp->copy == LS_ZERO_COPY_RANK) LS_TRY(ls_model_init(r.model, &mc));
    LS_TRY(ls_barrier(g));
    if (ls_world_rank(w) != 0 && ddp->copy == LS_ZERO_COPY_HOST) LS_TRY(ls_model_init(r.model, &mc));
    LS_TRY(ls_ddp_create(g, ps, ddp, &r.ddp));
    float *want = ls_replica_values(&first), *got = NULL;
    LS_TRY(ls_replica_whole(&r, &got));
    const bool same = memcmp(want, got, ls_params_nbytes(ps)) == 0;
    free(want);
    free(got);
    LS_EXPECT(same, "the values are not those of rank 0's seed");
    ls_replica_destroy(&first);
    ls_replica_destroy(&r);
    return LS_OK;
}

static void starts_from_the_values_of_rank_0(void **state)
{
    (void)state;
    const ls_ddp_config *row[] = { &one_bucket, &own_sums, &one_copy, &gathered };
    for (size_t i = 0; i < COUNT(row); i++)
        expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, takes_the_first_ranks_values, (void *)(uintptr_t)row[i]));
}

/* More buckets than travel at once. */
static ls_status gathers_many_buckets(ls_world *w, void *arg)
{
    (void)arg;
    int64_t thin[81]; /* a group carries 64 works */
    for (size_t i = 0; i < COUNT(thin); i++) thin[i] = 3;
    const ls_ddp_config ddp = { .bucket_cap = 1, .first_bucket = 1, .zero_stage = 1 };
    ls_replica r;
    ls_replica_config c = { .dims = thin, .ndims = COUNT(thin), .ddp = &ddp, .optim = "sgd", .rows = ROWS };
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_EXPECT(ls_ddp_buckets(r.ddp) == 160 && ls_ddp_rebuilt(r.ddp), "%d buckets", ls_ddp_buckets(r.ddp));
    for (uint64_t s = 0; s < 3; s++) {
        double norm;
        char digest[33];
        LS_TRY(step(w, &r, s, 1, &norm));
        LS_TRY(ls_params_digest(&r.model->params, digest));
        LS_TRY(ls_expect_equal(w, digest, 32, "parameters"));
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static void gathers_as_many_buckets_as_there_are(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, gathers_many_buckets, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 5, NULL, gathers_many_buckets, NULL)); /* of three rows two ranks have none */
    expect(ls_test_ranks(LS_TEST_THREADS, 3, &threaded, gathers_many_buckets, NULL));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &wires, gathers_many_buckets, NULL));
}

/* --- several sets of shards (HSDP) --------------------------------------------------------------- */

typedef struct hybrid {
    const ls_ddp_config *ddp;
    int sets, parts;
    bool exact; /* sums add in rank order: the values are DDP's to the bit */
} hybrid;

/* The groups of this rank: consecutive ranks hold one set. */
static ls_status split(ls_world *w, const hybrid *h, ls_ddp_config *c)
{
    const int shards = ls_world_size(w) / h->sets, rank = ls_world_rank(w);
    *c = *h->ddp;
    LS_TRY(ls_group_split_named(ls_world_group(w), rank / shards, "shards", &c->shards));
    return ls_group_split_named(ls_world_group(w), rank % shards, "copies", &c->copies);
}

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
    ls_group_destroy(sharded.copies);
    ls_group_destroy(sharded.shards);
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
    ls_group_destroy(c.copies);
    ls_group_destroy(c.shards);
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
    ls_group_destroy(c.copies);
    ls_group_destroy(c.shards);
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
    ls_group_destroy(c.copies);
    ls_group_destroy(c.shards);
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

/* --- one copy of the values per node ------------------------------------------------------------------- */

static const int two_nodes[] = { 0, 0, 1, 1 }, four_nodes[] = { 0, 0, 1, 1, 2, 2, 3, 3 };

typedef struct on_nodes {
    const ls_ddp_config *ddp;
    int ranks;
    const int *node; /* as many ranks on each */
    int sets;        /* hybrid sharding: each of several nodes; 1: none */
} on_nodes;

static int node_of(const void *g, int rank) { return ls_group_node(g, rank); }

static int place_of(const void *g, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++) place += ls_group_node(g, r) == ls_group_node(g, rank);
    return place;
}

static ls_status split_nodes(ls_world *w, const on_nodes *o, ls_ddp_config *c)
{
    const hybrid sets = { o->ddp, o->sets, 1, false };
    *c = *o->ddp;
    if (o->sets > 1) LS_TRY(split(w, &sets, c));
    ls_group *g = c->shards ? c->shards : ls_world_group(w);
    LS_TRY(ls_group_split_by(g, node_of, g, "node-ranks", &c->node));
    return ls_group_split_by(g, place_of, g, "column", &c->column);
}

static void destroy_nodes(ls_ddp_config *c)
{
    ls_group_destroy(c->column);
    ls_group_destroy(c->node);
    ls_group_destroy(c->copies);
    ls_group_destroy(c->shards);
}

/* Where each rank gathers, the sums are the same: so are the values. Every rank has all of them in its node's copy. */
static ls_status nodes_equal_ranks(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_ddp_config shared, each;
    LS_TRY(split_nodes(w, o, &shared));
    each = shared;
    each.node = each.column = NULL;
    each.copy = LS_ZERO_COPY_RANK;
    const ls_replica_config ca = config_of(&each, "adamw"), cb = config_of(&shared, "adamw");
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &ca, &a));
    LS_TRY(ls_replica_create(w, &cb, &b));
    LS_EXPECT(!ls_ddp_forwards_meet(b.ddp), "forwards have collectives");
    for (uint64_t s = 0; s < STEPS; s++) {
        double na, nb;
        LS_TRY(step(w, &a, s, 2, &na));
        LS_TRY(step(w, &b, s, 2, &nb));
        LS_EXPECT(fabs(na - nb) <= 1e-12 * na, "step %d: norm %.17g, of nodes %.17g", (int)s, na, nb);
        float *va = NULL, *vb = ls_replica_values(&b);
        LS_TRY(ls_replica_whole(&a, &va));
        const bool same = memcmp(va, vb, ls_params_nbytes(&a.model->params)) == 0;
        free(va);
        free(vb);
        LS_EXPECT(same, "step %d: other values than where each rank gathers", (int)s);
        LS_TRY(ls_barrier(ls_world_group(w))); /* the next step changes the copy */
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    destroy_nodes(&shared);
    return LS_OK;
}

static ls_world_opts opts_of(const on_nodes *o) { return (ls_world_opts){ .transport = "mixed", .node = o->node }; }

static void nodes_have_the_values_of_gathering_ranks(void **state)
{
    (void)state;
    static const ls_ddp_config late = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3, .no_overlap = true };
    on_nodes row[] = { { &one_copy, 4, two_nodes, 1 }, { &late, 4, two_nodes, 1 }, { &one_copy, 8, four_nodes, 1 },
                       { &one_copy, 8, four_nodes, 2 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_world_opts o = opts_of(&row[i]);
        expect(ls_test_ranks(LS_TEST_THREADS, row[i].ranks, &o, nodes_equal_ranks, &row[i]));
        o.progress = LS_PROGRESS_THREAD;
        if (i == 0) expect(ls_test_ranks(LS_TEST_PROCESSES, row[i].ranks, &o, nodes_equal_ranks, &row[i]));
    }
}

/* A step sends the rank's rows to each other node, once, and nothing else of the values; each copy is counted once by
 * the ranks of its node together. */
static ls_status sends_its_rows_once(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_ddp_config c;
    ls_replica r;
    ls_comm_stats before, after;
    double norm;
    LS_TRY(split_nodes(w, o, &c));
    const size_t had = ls_world_ledger(w)->now[LS_MEM_PARAM];
    const ls_replica_config rc = config_of(&c, "sgd");
    LS_TRY(ls_replica_create(w, &rc, &r));
    int64_t counted = (int64_t)(ls_world_ledger(w)->now[LS_MEM_PARAM] - had), lines = 0;
    size_t own = 0;
    for (int i = 0; i < r.model->params.n; i++) {
        own += r.model->params.item[i].own.count * sizeof(float);
        lines += (int64_t)((ls_tensor_nbytes(&r.model->params.item[i].t) + 63) / 64 * 64);
    }
    LS_TRY(ls_all_reduce(c.node, NULL, &counted, 1, LS_I64, LS_SUM));
    LS_EXPECT(counted == lines, "the ranks of a node count %lld bytes of values, expected %lld", (long long)counted,
              (long long)lines);
    ls_group_stats_read(c.column, &before);
    LS_TRY(step(w, &r, 0, 2, &norm));
    ls_group_stats_read(c.column, &after);
    int64_t column = (int64_t)own;
    LS_TRY(ls_all_reduce(c.column, NULL, &column, 1, LS_I64, LS_SUM));
    const size_t packed = ls_debug_look(c.column).packed;
    LS_EXPECT(ls_ddp_buckets(r.ddp) == 1 ? packed == (size_t)column : packed < (size_t)column,
              "%zu bytes to pack the column's rows in, which are %lld", packed, (long long)column);
    const uint64_t sent = after.bytes - before.bytes, want = own * (uint64_t)(ls_group_size(c.column) - 1);
    LS_EXPECT(sent == want, "%llu bytes to the other nodes, expected %llu", (unsigned long long)sent,
              (unsigned long long)want);
    ls_replica_destroy(&r);
    destroy_nodes(&c);
    return LS_OK;
}

static void nodes_exchange_new_values_once(void **state)
{
    (void)state;
    on_nodes row[] = { { &one_copy, 4, two_nodes, 1 }, { &last_of_one, 4, two_nodes, 1 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_world_opts o = opts_of(&row[i]);
        expect(ls_test_ranks(LS_TEST_THREADS, row[i].ranks, &o, sends_its_rows_once, &row[i]));
    }
}

static ls_status refuses_nodes(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_group *g = ls_world_group(w), *again;
    ls_ddp_config c;
    ls_replica r;
    LS_TRY(split_nodes(w, o, &c));
    LS_TRY(ls_group_split_by(g, node_of, g, "again", &again));
    const struct { ls_ddp_config c; const char *want; } row[] = {
        { { .zero_stage = 2, .node = c.node, .column = c.column }, "belong to zero_stage 3 with LS_ZERO_COPY_HOST" },
        { { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .node = c.node, .column = c.column }, "belong to zero_stage 3 with" },
        { { .zero_stage = 3, .node = c.node }, "ls_ddp_config.node and column: column is NULL" },
        { { .zero_stage = 3, .column = c.column }, "ls_ddp_config.node and column: node is NULL" },
        { { .zero_stage = 3, .node = g, .column = c.column }, "are 8 ranks: expected 4, the number of shards" },
        { { .zero_stage = 3, .node = c.node, .column = again }, "is in this rank's node and in its column" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_replica_config rc = config_of(&row[i].c, "sgd");
        const ls_status st = ls_replica_create(w, &rc, &r);
        LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), row[i].want), "row %zu: %s", i, ls_last_error());
    }
    const ls_replica_config alone = config_of(o->ddp, "sgd"); /* no groups: these ranks cannot share one copy */
    const ls_status st = ls_replica_create(w, &alone, &r);
    LS_EXPECT(st == LS_UNSUPPORTED && strstr(ls_last_error(), "do not map each other's memory"), "%s", ls_last_error());
    ls_group_destroy(again);
    destroy_nodes(&c);
    return LS_OK;
}

static void refuses_groups_that_are_no_nodes(void **state)
{
    (void)state;
    on_nodes row = { &one_copy, 4, two_nodes, 1 };
    const ls_world_opts o = opts_of(&row);
    expect(ls_test_ranks(LS_TEST_THREADS, row.ranks, &o, refuses_nodes, &row));
}

/* --- shares ---------------------------------------------------------------------------------------- */

/* Every rank's ranges of a parameter, one after another: all elements, each once. */
static ls_status partition(ls_world *w, const char *what, const ls_param *p, ls_range mine)
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    int64_t part[LS_TEST_RANKS * 2], next = 0;
    part[2 * rank] = (int64_t)mine.first;
    part[2 * rank + 1] = (int64_t)mine.count;
    LS_TRY(ls_all_gather(ls_world_group(w), NULL, part, (size_t)size * 2, LS_I64));
    for (int q = 0; q < size; q++) {
        if (part[2 * q + 1] == 0) continue;
        LS_EXPECT(part[2 * q] == next, "%s: rank %d %s from %lld on, expected %lld", p->name, q, what,
                  (long long)part[2 * q], (long long)next);
        next += part[2 * q + 1];
    }
    LS_EXPECT(next == ls_tensor_count(&p->t), "%s: ranks %s %lld elements together", p->name, what, (long long)next);
    return LS_OK;
}

/* Bytes that an optimizer with two states takes of `ps` on this rank. */
static ls_status state_of(ls_params *ps, size_t *out)
{
    ls_optim_config oc;
    ls_ledger ledger = { 0 };
    ls_arena *a;
    ls_optim *o;
    LS_TRY(ls_optim_defaults("adamw", &oc));
    LS_TRY(ls_arena_create_dry(&ledger, &a));
    LS_TRY(ls_optim_create(&oc, ps, a, &o));
    *out = ledger.now[LS_MEM_OPTIM];
    ls_optim_destroy(o);
    ls_arena_destroy(a);
    return LS_OK;
}

/* Every element has one owner; state is kept for own elements alone, and nobody else's are touched. */
static ls_status divides_parameters(ls_world *w, void *arg)
{
    const how *h = arg;
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    const ls_replica_config c = config_of(h->ddp, "adamw");
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_params *ps = &r.model->params;
    size_t state = 0, got;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        const size_t row = p->t.ndim == 1 ? 1 : (size_t)p->t.dim[1];
        state += (p->own.count * sizeof(float) + 63) / 64 * 64;
        const ls_range mine = ls_shard_of((size_t)p->t.dim[0], rank, size);
        LS_EXPECT(p->own.first == mine.first * row && p->own.count == mine.count * row, "%s: not cut at rows", p->name);
        ls_box box;
        LS_EXPECT(ls_part_boxes(&p->part, &p->t, mine, &box) == (mine.count > 0), "%s: a shard is one box", p->name);
        LS_TRY(partition(w, "own", p, p->own));
        LS_TRY(partition(w, "keep", p, p->keeps));
    }
    LS_TRY(state_of(ps, &got));
    LS_EXPECT(got == 2 * state, "state of %zu bytes, expected %zu", got, 2 * state);

    float *before = ls_replica_values(&r), *at = before;
    LS_TRY(ls_replica_pass(&r, 0, rank * ROWS, ROWS, true, 1, NULL));
    LS_TRY(ls_optim_step(r.optim));
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        const float *now = p->t.data;
        const size_t n = (size_t)ls_tensor_count(&p->t), end = p->own.first + p->own.count;
        for (size_t k = 0; k < n; k++)
            LS_EXPECT((now[k] == at[k]) == (k < p->own.first || k >= end), "%s[%zu] is%s changed; own: %zu to %zu",
                      p->name, k, now[k] == at[k] ? " not" : "", p->own.first, end);
        at += n;
    }
    free(before);
    ls_replica_destroy(&r);
    return LS_OK;
}

static void gives_every_element_one_owner(void **state)
{
    (void)state;
    static const how row[] = { { .ddp = &one_bucket }, { .ddp = &many_buckets }, { .ddp = &one_each } };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, divides_parameters, (void *)(uintptr_t)&row[i]));
}

/* Where shards end at cache lines nothing is padding: 8 bytes per own element, per element of the model together. */
static ls_status takes_eight_bytes(ls_world *w, void *arg)
{
    (void)arg;
    static const int64_t even[] = { 24, 64, 128, 64 };
    const ls_replica_config c = { .dims = even, .ndims = COUNT(even), .ddp = &one_bucket, .optim = "adamw", .rows = ROWS };
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_params *ps = &r.model->params;
    size_t own = 0, got;
    for (int i = 0; i < ps->n; i++) own += ps->item[i].own.count;
    LS_TRY(state_of(ps, &got));
    int64_t all = (int64_t)got;
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &all, 1, LS_I64, LS_SUM));
    const int64_t elements = ls_params_count(ps);
    ls_replica_destroy(&r);
    LS_EXPECT(got == 8 * own, "%zu bytes of state for %zu own elements", got, own);
    LS_EXPECT(own == (size_t)elements / (size_t)ls_world_size(w), "%zu own elements of %lld", own, (long long)elements);
    LS_EXPECT(all == 8 * elements, "%lld bytes of state for %lld elements", (long long)all, (long long)elements);
    return LS_OK;
}

static void state_is_of_own_elements_alone(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2)
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, takes_eight_bytes, NULL));
}

/* reduce_scatter and all_gather move what all_reduce moves, but for padding. */
static ls_status moves_as_much(ls_world *w, void *arg)
{
    uint64_t *bytes = arg;
    static const int64_t wide[] = { 256, 256, 256 };
    ls_ddp_config ddp = { .zero_stage = 0 };
    for (int stage = 0; stage < 2; stage++) {
        ls_replica r;
        ls_comm_stats before, after;
        double norm;
        ddp.zero_stage = stage;
        const ls_replica_config c = { .dims = wide, .ndims = COUNT(wide), .ddp = &ddp, .optim = "sgd", .rows = ROWS };
        LS_TRY(ls_replica_create(w, &c, &r));
        for (uint64_t s = 0; s < 2; s++) LS_TRY(step(w, &r, s, 1, &norm));
        ls_comm_stats_read(w, &before);
        LS_TRY(step(w, &r, 2, 1, &norm));
        ls_comm_stats_read(w, &after);
        if (ls_world_rank(w) == 0) bytes[stage] = after.bytes - before.bytes;
        ls_replica_destroy(&r);
    }
    return LS_OK;
}

static void moves_as_many_bytes_as_ddp(void **state)
{
    (void)state;
    uint64_t bytes[2];
    const double matrices = 2 * 256 * 256 * 4;
    expect(ls_test_ranks(LS_TEST_THREADS, 4, NULL, moves_as_much, bytes));
    /* ring and direct alike: 2 (W - 1) / W of the vector; some more for biases, the norm and padding */
    for (int stage = 0; stage < 2; stage++)
        if ((double)bytes[stage] < 1.5 * matrices || (double)bytes[stage] > 1.53 * matrices)
            fail_msg("stage %d: %llu bytes for %g of matrices", stage, (unsigned long long)bytes[stage], matrices);
}

/* --- mistakes ---------------------------------------------------------------------------------------- */

static void refuses(ls_status (*body)(ls_world *, void *), const void *arg, ls_status status, const char *says)
{
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, body, (void *)(uintptr_t)arg);
    assert_int_equal(r.status, status);
    if (!strstr(r.text, says)) fail_msg("'%s' does not say '%s'", r.text, says);
}

static ls_status forgets_to_gather(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&one_bucket, "sgd");
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_status st = ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    if (st == LS_OK) st = ls_optim_step(r.optim);
    if (st == LS_OK) st = ls_replica_pass(&r, 1, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    ls_replica_destroy(&r);
    return st;
}

/* What is not this rank's share of a reduced gradient is no sum: to add to it would give other ranks wrong ones. */
static ls_status adds_to_reduced_gradients(ls_world *w, void *arg)
{
    const bool *uses_them_up = arg;
    const ls_replica_config c = config_of(&one_bucket, "sgd");
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_status st = ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    if (st == LS_OK) st = ls_ddp_after_step(r.ddp);
    if (*uses_them_up) ls_params_zero_grad(&r.model->params);
    if (st == LS_OK) st = ls_replica_pass(&r, 1, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    ls_replica_destroy(&r);
    return st;
}

static ls_status asks_for_a_norm_alone(ls_world *w, void *arg)
{
    (void)arg;
    double norm;
    const ls_replica_config c = config_of(&one_bucket, "sgd");
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_status st = ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    if (st == LS_OK) st = ls_grad_norm(&r.model->params, &norm, NULL);
    ls_replica_destroy(&r);
    return st;
}

/* A share of a gradient that nobody has summed. */
static ls_status steps_without_sync(ls_world *w, void *arg)
{
    const bool *on_top = arg;
    const ls_replica_config c = config_of(&many_buckets, "adamw");
    ls_replica r;
    double norm;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_status st = step(w, &r, 0, 1, &norm);
    if (st == LS_OK) st = ls_replica_pass(&r, 1, ls_world_rank(w) * ROWS, ROWS, false, 1, NULL);
    if (st == LS_OK && *on_top) st = ls_replica_pass(&r, 2, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    if (st == LS_OK) st = ls_optim_step(r.optim);
    if (st == LS_OK) st = ls_ddp_after_step(r.ddp);
    ls_replica_destroy(&r);
    return st;
}

/* In bf16 values come together in the memory of gradients. (An mlp is fed floats, and cannot be run in bf16: gradients
 * are written by hand. test_train_zero.sh trains in bf16.) */
typedef enum when { BEFORE_THE_STEP, OF_NO_SYNC, AFTER_THE_STEP, USED_UP } when;

static void write_gradients(ls_params *ps, float at, bool reduced)
{
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        for (int64_t k = 0; k < ls_tensor_count(&p->t); k++) ((float *)p->grad.data)[k] = at + (float)k * 0.125f;
        p->t.grad_ready = true;
        p->t.grad_reduced = reduced;
    }
}

static ls_status gathers_values(ls_world *w, void *arg)
{
    const when *at = arg;
    ls_replica_config c = config_of(&many_buckets, "adamw");
    ls_replica r;
    char digest[2][33] = { "", "" };
    LS_TRY(ls_replica_create(w, &c, &r)); /* the same in float, by every rank for all */
    ls_params *ps = &r.model->params;
    for (int i = 0; i < ps->n; i++) ps->item[i].own = (ls_range){ 0, (size_t)ls_tensor_count(&ps->item[i].t) };
    ls_optim_destroy(r.optim);
    ls_optim_config oc;
    LS_TRY(ls_optim_defaults("adamw", &oc));
    oc.lr = c.lr;
    LS_TRY(ls_optim_create(&oc, ps, r.arena, &r.optim));
    write_gradients(ps, 1, true);
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_params_digest(ps, digest[0]));
    ls_replica_destroy(&r);

    c.bf16 = true;
    LS_TRY(ls_replica_create(w, &c, &r));
    ps = &r.model->params;
    write_gradients(ps, 1, true);
    ls_status st = ls_optim_step(r.optim); /* only owners have new values from here on */
    if (st == LS_OK) st = ls_buckets_gather(r.ddp); /* no backward has run, after which ls_ddp_after_step would */
    if (*at != AFTER_THE_STEP) write_gradients(ps, 2, *at != OF_NO_SYNC);
    if (*at == USED_UP) ls_params_zero_grad(ps);
    float *before = ls_replica_grads(&r);
    const ls_values values = ls_ddp_values(r.ddp);
    if (st == LS_OK) st = ls_params_digest_of(ps, &values, digest[1]);
    float *after = ls_replica_grads(&r);
    const bool same = before && after && memcmp(before, after, (size_t)ls_params_count(ps) * sizeof *before) == 0;
    free(before);
    free(after);
    for (int i = 0; i < ps->n; i++)
        LS_EXPECT((ps->item[i].t.data == NULL) == (ps->item[i].t.ndim > 1), "%s: t.data", ps->item[i].name);
    ls_replica_destroy(&r);
    LS_EXPECT(st == LS_OK || same, "gradients were overwritten");
    LS_EXPECT(st < 0 || strcmp(digest[0], digest[1]) == 0, "shards are %s together, all by one rank %s", digest[1], digest[0]);
    return st;
}

typedef struct bound {
    const ls_ddp_config *bind, *create; /* bind NULL: by ls_params_bind */
    bool again;                         /* it was bound for bf16 before */
} bound;

static ls_status binds_otherwise(ls_world *w, void *arg)
{
    const bound *b = arg;
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = COUNT(dims), .init = LS_INIT_PHILOX };
    ls_model *m;
    ls_arena *arena;
    ls_ddp *d = NULL;
    LS_TRY(ls_model_create(&mc, &m));
    LS_TRY(ls_arena_create(1 << 20, false, NULL, &arena));
    if (b->again) LS_TRY(ls_ddp_bind(ls_world_group(w), &m->params, b->bind, LS_BF16, arena));
    ls_status st = b->bind ? ls_ddp_bind(ls_world_group(w), &m->params, b->bind, LS_F32, arena)
                           : ls_params_bind(&m->params, arena, NULL);
    if (st == LS_OK) st = ls_model_init(m, &mc);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(w), &m->params, b->create, &d);
    ls_ddp_destroy(d);
    ls_model_destroy(m);
    ls_arena_destroy(arena);
    return st;
}

static void refuses_what_would_not_work(void **state)
{
    (void)state;
    static const ls_ddp_config none = { 0 };
    const ls_ddp_config next = { .zero_stage = ls_ddp_most_stage() + 1 };
    static const ls_ddp_config second = { .zero_stage = 2 }, once = { .zero_stage = 3, .reduce_last = true };
    static const bound row[] = {
        { &one_bucket, &second, false }, /* the same rows, at the same places */
        { &second, &one_bucket, false },
        { &one_bucket, &once, false },
        { NULL, &one_bucket, false },
        { &none, &one_bucket, false },
        { &one_bucket, &one_each, false },
        { &one_each, &one_bucket, false },
    };
    refuses(forgets_to_gather, NULL, LS_INVALID, "ls_ddp_after_step was not called");
    refuses(adds_to_reduced_gradients, &(bool){ false }, LS_INVALID, "nothing can be added to it");
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, adds_to_reduced_gradients, &(bool){ true }));
    refuses(steps_without_sync, &(bool){ false }, LS_INVALID, "the gradient of 0.weight is this rank's own");
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, steps_without_sync, &(bool){ true }));
    refuses(asks_for_a_norm_alone, NULL, LS_INVALID, "call ls_grad_norm_shared");
    refuses(gathers_values, &(when){ BEFORE_THE_STEP }, LS_INVALID, "the values of 0.weight on rank");
    refuses(gathers_values, &(when){ OF_NO_SYNC }, LS_INVALID, "call ls_optim_step or ls_params_zero_grad first");
    for (int size = 2; size <= 5; size++) { /* of a vector of 3 elements some ranks own nothing */
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, gathers_values, &(when){ AFTER_THE_STEP }));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, gathers_values, &(when){ USED_UP }));
    }
    for (size_t i = 0; i < COUNT(row); i++) refuses(binds_otherwise, &row[i], LS_INVALID, "ls_ddp_bind");
    refuses(binds_otherwise, &(bound){ &one_bucket, &none, false }, LS_INVALID, "ls_ddp_bind");
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, binds_otherwise, &(bound){ &one_bucket, &one_bucket, true }));
    refuses(binds_otherwise, &(bound){ &next, &next, false }, LS_UNSUPPORTED, "is not implemented, only 0");
    refuses(binds_otherwise, &(bound){ &one_bucket, &next, false }, LS_UNSUPPORTED, "is not implemented, only 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_from_the_values_of_rank_0), cmocka_unit_test(sets_of_shards_have_the_values_of_ddp),
        cmocka_unit_test(sets_exchange_sums_of_their_shards), cmocka_unit_test(refuses_groups_that_are_no_sets),
        cmocka_unit_test(sums_of_all_sets_are_final), cmocka_unit_test(a_failed_backward_leaves_sets_alike),
        cmocka_unit_test(nodes_have_the_values_of_gathering_ranks), cmocka_unit_test(nodes_exchange_new_values_once),
        cmocka_unit_test(refuses_groups_that_are_no_nodes),
        cmocka_unit_test(has_the_values_of_ddp),         cmocka_unit_test(gathers_as_many_buckets_as_there_are),
        cmocka_unit_test(gives_every_element_one_owner), cmocka_unit_test(state_is_of_own_elements_alone),
        cmocka_unit_test(moves_as_many_bytes_as_ddp),    cmocka_unit_test(refuses_what_would_not_work),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
