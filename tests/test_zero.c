/* ZeRO's stages beside DDP, which is their reference: the same values, from a shard of the state; then wrong uses.
 * Training in bf16 is in test_train_zero.sh. */
#include "harness_zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"

static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };

/* --- the same model -------------------------------------------------------------------------------- */

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
        cmocka_unit_test(starts_from_the_values_of_rank_0),
        cmocka_unit_test(has_the_values_of_ddp),
        cmocka_unit_test(gathers_as_many_buckets_as_there_are),
        cmocka_unit_test(gives_every_element_one_owner),
        cmocka_unit_test(state_is_of_own_elements_alone),
        cmocka_unit_test(moves_as_many_bytes_as_ddp),
        cmocka_unit_test(refuses_what_would_not_work),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
