/* Ranks whose inputs end at different steps (ls_ddp_join_begin). The reference is one model, whose gradients are
 * those of the ranks that still have inputs, added up here. */
#include "harness_replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t dims[] = { 12, 10, 8, 3 };
static const ls_ddp_config small = { .first_bucket = 256, .bucket_cap = 500 };
static const ls_ddp_config unused = { .first_bucket = 256, .bucket_cap = 500, .find_unused = true };
static const ls_ddp_config late = { .no_overlap = true };
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
static const ls_world_opts wires = { .transport = "tcp" };

static ls_replica_config config_of(const ls_ddp_config *ddp)
{
    return (ls_replica_config){ .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .plain = !ddp, .rows = ROWS, .optim = "sgd",
                                .lr = 0.05 };
}

/* Steps that a rank has inputs for. The last one to end is not the largest rank, unless several end last. */
static int inputs_early(int rank, int size) { return rank == 0 ? 0 : rank == size - 1 ? 2 : 3 + rank % 2; }
static int inputs_late(int rank, int size) { return rank == 0 ? 5 : size - rank; }
static int inputs_even(int rank, int size)
{
    (void)rank, (void)size;
    return 3;
}

typedef struct how {
    const ls_ddp_config *ddp;
    int (*inputs)(int rank, int size);
    ls_join_config c;
    int parts; /* micro-batches of a step; the last one is reduced */
} how;

/* One step of the reference: the model of the ranks that have inputs for step s; false: none has. */
static ls_status reference_step(ls_replica *plain, const how *h, int size, int s, bool *any)
{
    ls_params *ps = &plain->model->params;
    const size_t n = (size_t)ls_params_count(ps);
    float *sum = calloc(n, sizeof *sum), *at = sum;
    int active = 0;
    LS_EXPECT(sum, "memory");
    for (int r = 0; r < size; r++) active += h->inputs(r, size) > s;
    const float by = (float)(1.0 / (h->c.divide_by_active && active ? active : size));
    for (int r = 0; r < size; r++) {
        if (h->inputs(r, size) <= s) continue;
        ls_params_zero_grad(ps);
        for (int m = 0; m < h->parts; m++)
            LS_TRY(ls_replica_pass(plain, (uint64_t)s, (r * h->parts + m) * 2, 2, true, 1.0f, NULL));
        float *one = ls_replica_grads(plain);
        for (size_t k = 0; k < n; k++) sum[k] += one[k] * by;
        free(one);
    }
    for (int i = 0; i < ps->n; at += ls_tensor_count(&ps->item[i++].t))
        memcpy(ps->item[i].grad.data, at, ls_tensor_nbytes(&ps->item[i].t));
    free(sum);
    *any = active > 0;
    return active ? ls_optim_step(plain->optim) : LS_OK;
}

static ls_status same(const ls_replica *a, const ls_replica *b, const how *h, int s)
{
    const size_t n = (size_t)ls_params_count(&a->model->params);
    float *x = ls_replica_values(a), *y = ls_replica_values(b);
    double far = 0;
    for (size_t k = 0; k < n; k++) far = fmax(far, fabs((double)x[k] - (double)y[k]));
    free(x);
    free(y);
    LS_EXPECT(far <= (h->c.divide_by_active ? 1e-6 : 0.0), "step %d: values differ by %g", s, far);
    return LS_OK;
}

/* Buffers in a forward are those of rank 0, or, once some inputs have ended, of the largest rank that has any. */
static ls_status of_active(const how *h, int size, int s, int64_t batches)
{
    int from = 0, active = 0;
    for (int r = 0; r < size; r++)
        if (h->inputs(r, size) > s) active++, from = r;
    const int64_t want = 100 + (active == size ? 0 : from);
    LS_EXPECT(batches == want, "step %d: %lld batches, expected %lld", s, (long long)batches, (long long)want);
    return LS_OK;
}

/* All but the first micro-batch of a step follow one that is not reduced: buffers stay as they are. */
static ls_status trains(ls_world *w, void *arg)
{
    const how *h = arg;
    const int rank = ls_world_rank(w), size = ls_world_size(w), mine = h->inputs(rank, size);
    const ls_replica_config of_plain = config_of(NULL), of_ddp = config_of(h->ddp);
    ls_replica a, b;
    bool any = true;
    int64_t batches = rank;
    LS_TRY(ls_replica_create(w, &of_plain, &a));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    LS_TRY(ls_ddp_set_buffers(b.ddp, &(ls_buffer){ "batches", &batches, 1, LS_I64 }, 1));
    LS_TRY(ls_ddp_join_begin(b.ddp, &h->c));
    for (int s = 0; s < mine; s++) {
        LS_TRY(reference_step(&a, h, size, s, &any));
        ls_params_zero_grad(&b.model->params);
        for (int m = 0; m < h->parts; m++)
            LS_TRY(ls_replica_pass(&b, (uint64_t)s, (rank * h->parts + m) * 2, 2, m == h->parts - 1, 1.0f, NULL));
        LS_TRY(ls_optim_step(b.optim));
        LS_TRY(ls_ddp_after_step(b.ddp));
        LS_TRY(same(&a, &b, h, s));
        if (s > 0) LS_TRY(of_active(h, size, s, batches));
        batches = 100 + rank;
    }
    LS_TRY(ls_ddp_join_end(b.ddp));
    for (int s = mine; any; s++) LS_TRY(reference_step(&a, h, size, s, &any));
    LS_TRY(same(&a, &b, h, -1));
    int last = 0;
    for (int r = 0; r < size; r++)
        if (h->inputs(r, size) >= h->inputs(last, size)) last = r;
    const int64_t want = h->inputs(last, size) ? 100 + last : 0;
    LS_EXPECT(batches == want, "%lld batches, expected %lld, those of rank %d", (long long)batches, (long long)want, last);
    for (int s = 0; s < 2; s++) { /* and then as without */
        ls_params_zero_grad(&b.model->params);
        LS_TRY(ls_replica_pass(&b, 50, rank * 2, 2, true, 1.0f, NULL));
        LS_TRY(ls_optim_step(b.optim));
        float *v = ls_replica_values(&b);
        const ls_status st = ls_expect_equal(w, v, 64, "values");
        free(v);
        LS_TRY(st);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void a_rank_without_inputs_counts_as_zero(void **state)
{
    (void)state;
    static const how row[] = { { &small, inputs_early, { 0 }, 1 },
                               { &small, inputs_late, { 0 }, 1 },
                               { &small, inputs_even, { 0 }, 2 },
                               { &late, inputs_late, { 0 }, 2 },
                               { &unused, inputs_early, { 0 }, 1 },
                               { &small, inputs_early, { .divide_by_active = true }, 1 },
                               { &late, inputs_late, { .divide_by_active = true }, 2 } };
    for (int size = 1; size <= 8; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, trains, (void *)(uintptr_t)&row[i]));
    for (size_t i = 0; i < 2; i++) {
        expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &threaded, trains, (void *)(uintptr_t)&row[i]));
        expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, trains, (void *)(uintptr_t)&row[i]));
    }
}

/* --- an optimizer with state ---------------------------------------------------------------------------------- */

/* The mean gradient of all ranks' batch 50, by DDP's rule. */
static ls_status step_of_all(ls_replica *plain, int size)
{
    ls_params *ps = &plain->model->params;
    const size_t n = (size_t)ls_params_count(ps);
    const float by = (float)(1.0 / size);
    float *sum = calloc(n, sizeof *sum), *at = sum;
    LS_EXPECT(sum, "memory");
    for (int r = 0; r < size; r++) {
        ls_params_zero_grad(ps);
        LS_TRY(ls_replica_pass(plain, 50, r * 2, 2, true, 1.0f, NULL));
        float *one = ls_replica_grads(plain);
        for (size_t k = 0; k < n; k++) sum[k] += one[k] * by;
        free(one);
    }
    for (int i = 0; i < ps->n; at += ls_tensor_count(&ps->item[i++].t))
        memcpy(ps->item[i].grad.data, at, ls_tensor_nbytes(&ps->item[i].t));
    free(sum);
    return ls_optim_step(plain->optim);
}

/* Ranks end with the parameters of the last one, and each with the state of its own steps. The references: `last` steps
 * as long as any rank, `own` as long as this one. */
static ls_status has_state(ls_world *w, void *arg)
{
    const how *h = arg;
    const int rank = ls_world_rank(w), size = ls_world_size(w), mine = h->inputs(rank, size);
    ls_replica_config of_plain = config_of(NULL), of_ddp = config_of(h->ddp);
    ls_replica last, own, b;
    bool any = true;
    of_plain.optim = of_ddp.optim = "adamw";
    LS_TRY(ls_replica_create(w, &of_plain, &last));
    LS_TRY(ls_replica_create(w, &of_plain, &own));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    LS_TRY(ls_ddp_join_begin(b.ddp, &h->c));
    for (int s = 0; s < mine; s++) {
        LS_TRY(reference_step(&last, h, size, s, &any));
        LS_TRY(reference_step(&own, h, size, s, &any));
        ls_params_zero_grad(&b.model->params);
        LS_TRY(ls_replica_pass(&b, (uint64_t)s, rank * 2, 2, true, 1.0f, NULL));
        LS_TRY(ls_optim_step(b.optim));
        LS_TRY(same(&last, &b, h, s));
    }
    LS_TRY(ls_ddp_join_end(b.ddp));
    for (int s = mine; any; s++) LS_TRY(reference_step(&last, h, size, s, &any));
    LS_TRY(same(&last, &b, h, 100));
    for (int i = 0; i < own.model->params.n; i++) {
        const ls_tensor *t = &last.model->params.item[i].t;
        memcpy(own.model->params.item[i].t.data, t->data, ls_tensor_nbytes(t));
    }
    LS_TRY(step_of_all(&own, size)); /* by the state of its own steps; ranks that joined at other steps now differ */
    ls_params_zero_grad(&b.model->params);
    LS_TRY(ls_replica_pass(&b, 50, rank * 2, 2, true, 1.0f, NULL));
    LS_TRY(ls_optim_step(b.optim));
    LS_TRY(same(&own, &b, h, 101));
    ls_replica_destroy(&last);
    ls_replica_destroy(&own);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void state_is_that_of_a_ranks_own_steps(void **state)
{
    (void)state;
    static const how row[] = { { &small, inputs_early, { 0 }, 1 },
                               { &small, inputs_late, { 0 }, 1 },
                               { &late, inputs_even, { 0 }, 1 } };
    for (int size = 1; size <= 8; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, has_state, (void *)(uintptr_t)&row[i]));
}

/* What dp.h advises for training on: with a new optimizer on every rank, replicas stay equal. */
static ls_status trains_on(ls_world *w, void *arg)
{
    const how *h = arg;
    const int rank = ls_world_rank(w), mine = h->inputs(rank, ls_world_size(w));
    ls_replica_config of_ddp = config_of(h->ddp);
    ls_optim_config fresh;
    ls_replica b;
    of_ddp.optim = "adamw";
    LS_TRY(ls_optim_defaults(of_ddp.optim, &fresh));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    LS_TRY(ls_ddp_join_begin(b.ddp, &h->c));
    for (int s = 0; s < mine; s++) {
        ls_params_zero_grad(&b.model->params);
        LS_TRY(ls_replica_pass(&b, (uint64_t)s, rank * 2, 2, true, 1.0f, NULL));
        LS_TRY(ls_optim_step(b.optim));
    }
    LS_TRY(ls_ddp_join_end(b.ddp));
    ls_optim_destroy(b.optim);
    b.optim = NULL;
    LS_TRY(ls_optim_create(&fresh, &b.model->params, b.arena, &b.optim));
    for (int s = 0; s < 3; s++) {
        ls_params_zero_grad(&b.model->params);
        LS_TRY(ls_replica_pass(&b, (uint64_t)(50 + s), rank * 2, 2, true, 1.0f, NULL));
        LS_TRY(ls_optim_step(b.optim));
        float *v = ls_replica_values(&b);
        const ls_status st = ls_expect_equal(w, v, (size_t)ls_params_count(&b.model->params), "values");
        free(v);
        LS_TRY(st);
    }
    ls_replica_destroy(&b);
    return LS_OK;
}

static void a_new_optimizer_keeps_replicas_equal(void **state)
{
    (void)state;
    static const how row[] = { { &small, inputs_early, { 0 }, 1 },
                               { &small, inputs_late, { .divide_by_active = true }, 1 } };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, trains_on, (void *)(uintptr_t)&row[i]));
}

/* --- mistakes ----------------------------------------------------------------------------------------------- */

static ls_status stops(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(&small);
    const ls_join_config join = { .stop_together = true };
    ls_replica r;
    (void)arg;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_ddp_join_begin(r.ddp, &join));
    ls_status st = ls_replica_pass(&r, 0, 0, 2, true, 1.0f, NULL);
    LS_EXPECT(st == LS_OK, "%s", ls_last_error());
    st = ls_world_rank(w) == 1 ? ls_ddp_join_end(r.ddp) : ls_replica_pass(&r, 0, 0, 2, true, 1.0f, NULL);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "and stop_together is set"), "status %d: %s", st, ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static ls_status calls_one_outside(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(&small);
    float x[3] = { 0 };
    ls_replica r;
    (void)arg;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_ddp_join_begin(r.ddp, NULL));
    const bool ends = ls_world_rank(w) == 1;
    const ls_status st = ends ? ls_ddp_join_end(r.ddp) : ls_all_reduce(ls_world_group(w), NULL, x, 3, LS_F32, LS_SUM);
    ls_replica_destroy(&r);
    return st;
}

static ls_status misuses(ls_world *w, void *arg)
{
    const ls_ddp_config sharded = { .zero_stage = 1 };
    const ls_replica_config of_shards = config_of(&sharded), of_ddp = config_of(&small);
    ls_comm_hook *h;
    ls_replica r;
    (void)arg;
    LS_TRY(ls_replica_create(w, &of_shards, &r));
    LS_EXPECT(ls_ddp_join_begin(r.ddp, NULL) == LS_UNSUPPORTED && strstr(ls_last_error(), "with zero_stage 1"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    LS_TRY(ls_replica_create(w, &of_ddp, &r));
    LS_EXPECT(ls_ddp_join_end(r.ddp) == LS_INVALID && strstr(ls_last_error(), "call ls_ddp_join_begin before"), "%s", ls_last_error());
    LS_TRY(ls_ddp_join_begin(r.ddp, NULL));
    LS_EXPECT(ls_ddp_join_begin(r.ddp, NULL) == LS_INVALID && strstr(ls_last_error(), "it was called before"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    const ls_ddp_config fixed = { .static_graph = true };
    const ls_replica_config of_fixed = config_of(&fixed);
    LS_TRY(ls_replica_create(w, &of_fixed, &r));
    LS_EXPECT(ls_ddp_join_begin(r.ddp, NULL) == LS_UNSUPPORTED && strstr(ls_last_error(), "with static_graph"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    LS_TRY(ls_replica_create(w, &of_ddp, &r));
    LS_TRY(ls_hook_named("bf16", NULL, &h));
    LS_TRY(ls_ddp_set_hook(r.ddp, h));
    LS_EXPECT(ls_ddp_join_begin(r.ddp, NULL) == LS_UNSUPPORTED && strstr(ls_last_error(), "communication hook"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void mistakes_are_named(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, stops, NULL));
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, calls_one_outside, NULL);
    assert_true(r.failed);
    assert_non_null(strstr(r.text, "(join) of world: 2 uint8"));
    assert_non_null(strstr(r.text, "all_reduce #"));
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, misuses, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_inputs_counts_as_zero),
        cmocka_unit_test(state_is_that_of_a_ranks_own_steps),
        cmocka_unit_test(a_new_optimizer_keeps_replicas_equal),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("uneven", tests, NULL, NULL);
}
