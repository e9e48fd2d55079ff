/* ZeRO's second stage: gradients that a rank keeps of its own rows alone, and memory for others that units use in turn.
 * Its values are DDP's (test_zero.c compares them, too); here are its sums, its memory, and what goes wrong. */
#include "harness_replica.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/slots.h"

static const int64_t dims[] = { 20, 17, 12, 3 };                        /* of 5 ranks some have none of 3 rows */
static const int64_t deep[] = { 32, 32, 32, 32, 32, 32, 32, 32, 4 };    /* the last unit is smaller */
static const ls_ddp_config large = { .zero_stage = 2 };
static const ls_ddp_config small = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 2 };
static const ls_ddp_config late = { .zero_stage = 2, .no_overlap = true };
static const ls_ddp_config last = { .zero_stage = 2, .reduce_last = true };
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
static const ls_world_opts wires = { .transport = "tcp" };

static ls_replica_config config_of(const ls_ddp_config *ddp)
{
    return (ls_replica_config){ .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .optim = "sgd", .lr = 0.02,
                                .rows = ROWS };
}

/* --- sums ---------------------------------------------------------------------------------------------- */

enum { PARTS = 4 };

static ls_status pass(ls_world *w, ls_replica *r, int part, bool sync)
{
    const int64_t each = ROWS / PARTS;
    return ls_replica_pass(r, 0, (ls_world_rank(w) * PARTS + part) * each, each, sync, 1.0f / PARTS, NULL);
}

/* The reference: DDP averages each micro-batch alone, and they are added up here. */
static ls_status sums_of_ddp(ls_world *w, float **out)
{
    const ls_ddp_config plain = { 0 };
    const ls_replica_config c = config_of(&plain);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    const size_t n = (size_t)ls_params_count(&r.model->params);
    float *sum = *out = malloc(n * sizeof *sum);
    LS_EXPECT(sum, "memory");
    for (int m = 0; m < PARTS; m++) {
        ls_params_zero_grad(&r.model->params);
        LS_TRY(pass(w, &r, m, true));
        float *one = ls_replica_grads(&r);
        for (size_t k = 0; k < n; k++) sum[k] = m ? sum[k] + one[k] : one[k]; /* 0 + -0 would be another zero */
        free(one);
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static ls_status sums_up(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(arg);
    ls_replica r;
    float *sum, *at;
    LS_TRY(sums_of_ddp(w, &sum));
    LS_TRY(ls_replica_create(w, &c, &r));
    for (int m = 0; m < PARTS; m++) LS_TRY(pass(w, &r, m, m + 1 == PARTS));
    at = sum;
    for (int i = 0; i < r.model->params.n; i++) {
        const ls_param *p = &r.model->params.item[i];
        const bool same = memcmp(ls_param_gradients(p), at + p->own.first, p->own.count * sizeof *at) == 0;
        LS_EXPECT(p->dmaster && ls_param_has_gradient(p) && p->t.grad_reduced, "%s: no sum", p->name);
        LS_EXPECT(same, "%s: another sum than that of the averages", p->name);
        LS_EXPECT(!p->grad.data, "%s: backward's memory is not free", p->name);
        at += ls_tensor_count(&p->t);
    }
    LS_EXPECT(ls_ddp_reductions(r.ddp, PARTS) == PARTS, "%d reductions", ls_ddp_reductions(r.ddp, PARTS));
    free(sum);
    ls_replica_destroy(&r);
    return LS_OK;
}

static void sums_of_own_rows_are_those_of_every_micro_batch(void **state)
{
    (void)state;
    static const ls_ddp_config *const how[] = { &large, &small, &late };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(how); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, sums_up, (void *)(uintptr_t)how[i]));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, NULL, sums_up, (void *)(uintptr_t)&small));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &threaded, sums_up, (void *)(uintptr_t)&small));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, sums_up, (void *)(uintptr_t)&small));
}

/* --- memory -------------------------------------------------------------------------------------------- */

static size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* A layer's bucket of deep[]: `out` rows. */
static size_t layer_bytes(size_t out, int size)
{
    return up(up(out * 32 * 4, LS_BUCKET_ALIGN) + up(out * 4, LS_BUCKET_ALIGN), (size_t)size * LS_BUCKET_ALIGN);
}

/* Own rows of all layers, in whole cache lines together. */
static size_t own_bytes(int rank, int size)
{
    size_t rows = 0;
    for (size_t l = 1; l < COUNT(deep); l++) rows += ls_shard_of((size_t)deep[l], rank, size).count;
    return up(rows * (32 + 1) * 4, 64);
}

typedef struct memory {
    const ls_ddp_config *ddp;
    int slots; /* of the largest layer; 0: all layers have memory */
} memory;

static ls_status takes_memory(ls_world *w, void *arg)
{
    const memory *m = arg;
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_replica r;
    ls_replica_config c = config_of(m->ddp);
    c.dims = deep;
    c.ndims = COUNT(deep);
    const ls_ledger *l = ls_world_ledger(w);
    LS_TRY(ls_replica_create(w, &c, &r)); /* its own arena has no ledger: */
    ls_ledger of_own = { 0 };
    ls_arena_charge(r.arena, &of_own);
    const size_t got = l->now[LS_MEM_GRAD] + of_own.now[LS_MEM_GRAD];
    const size_t want = own_bytes(rank, size) + (size_t)m->slots * layer_bytes(32, size);
    LS_EXPECT(got == want, "%zu bytes for gradients, expected %zu", got, want);
    ls_arena_charge(r.arena, NULL);
    for (int s = 0; s < 3; s++) {
        LS_TRY(pass(w, &r, 0, true));
        LS_TRY(ls_optim_step(r.optim));
        LS_TRY(ls_ddp_after_step(r.ddp));
    }
    LS_EXPECT(l->peak[LS_MEM_GRAD] == l->now[LS_MEM_GRAD], "a step takes more");
    ls_replica_destroy(&r);
    return LS_OK;
}

static void gradients_take_own_rows_and_two_units(void **state)
{
    (void)state;
    static const memory row[] = { { &large, LS_SLOTS }, { &late, LS_SLOTS } };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, takes_memory, (void *)(uintptr_t)&row[i]));
}

/* All gradients have memory for ever, as with stage 1: the last micro-batch's backward is reduced alone. */
static ls_status keeps_all(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&last);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_EXPECT(ls_ddp_reductions(r.ddp, PARTS) == 1, "%d reductions", ls_ddp_reductions(r.ddp, PARTS));
    for (int m = 0; m < PARTS; m++) LS_TRY(pass(w, &r, m, m + 1 == PARTS));
    for (int i = 0; i < r.model->params.n; i++) {
        const ls_param *p = &r.model->params.item[i];
        LS_EXPECT(p->grad.data && !p->dmaster && p->t.grad_reduced, "%s", p->name);
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static void the_last_backward_alone_needs_all_gradients(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, keeps_all, NULL));
}

/* --- values in bf16 --------------------------------------------------------------------------------------- */

/* One at a time, also while sums wait for a step, which stay as they are. (An mlp does not train in bf16.) */
static ls_status gives_values(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config in_f32 = config_of(&large);
    ls_replica_config in_bf16 = config_of(&large);
    ls_replica a, b;
    in_bf16.bf16 = true;
    LS_TRY(ls_replica_create(w, &in_f32, &a));
    LS_TRY(ls_replica_create(w, &in_bf16, &b));
    const ls_values of_a = ls_ddp_values(a.ddp), of_b = ls_ddp_values(b.ddp);
    for (int i = 0; i < b.model->params.n; i++) {
        ls_param *p = &b.model->params.item[i];
        for (size_t k = 0; k < p->own.count; k++) p->dmaster[k] = (float)(i + 1);
        p->dmaster_ready = true;
    }
    for (int i = 0; i < b.model->params.n; i++) {
        const ls_param *p = &b.model->params.item[i];
        const float *va, *vb;
        LS_TRY(of_a.whole(of_a.arg, &a.model->params.item[i], &va));
        LS_TRY(of_b.whole(of_b.arg, p, &vb));
        LS_EXPECT(memcmp(va, vb, ls_tensor_nbytes(&p->t)) == 0, "%s: other values", p->name);
        LS_EXPECT(p->t.ndim == 1 || (!p->t.data && p->bf16 && p->master), "%s: floats stay", p->name);
        for (size_t k = 0; k < p->own.count; k++)
            LS_EXPECT(!(p->dmaster[k] < (float)(i + 1)) && !(p->dmaster[k] > (float)(i + 1)), "%s: another sum", p->name);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void values_come_together_one_parameter_at_a_time(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, gives_values, NULL));
}

/* --- mistakes ----------------------------------------------------------------------------------------------- */

static ls_tensor *without_bias(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *p)
{
    return ls_linear(t, x, &ls_unit_param(u, p, 0)->t, NULL);
}

/* The last layer leaves its bias out: the layer whose gradients come into the same memory says so. */
static ls_status leaves_one_out(ls_world *w, void *arg)
{
    static const ls_unit_class plain = { .forward = without_bias, .nparams = 2 };
    const ls_replica_config c = config_of(arg);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    r.model->units.item[r.model->units.n - 1].cls = &plain;
    const ls_status st = pass(w, &r, 0, true);
    LS_EXPECT(st == LS_INVALID, "status %d", st);
    LS_EXPECT(strstr(ls_last_error(), "zero_stage 2: the gradients of unit layers.0 need the memory of 4.bias, which got "
                                      "none on rank"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_parameter_without_a_gradient_is_named(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, leaves_one_out, (void *)(uintptr_t)&large));
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, leaves_one_out, (void *)(uintptr_t)&small));
}

static ls_status forgets_to_gather(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&large);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    for (int m = 0; m < 3; m++) LS_TRY(pass(w, &r, m, m == 2)); /* several may follow one another */
    LS_TRY(ls_optim_step(r.optim));
    const ls_status st = pass(w, &r, 0, true);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "zero_stage 2: ls_ddp_after_step was not called"), "%s",
              ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_step_is_followed_by_a_gather(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, forgets_to_gather, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_own_rows_are_those_of_every_micro_batch),
        cmocka_unit_test(gradients_take_own_rows_and_two_units),
        cmocka_unit_test(the_last_backward_alone_needs_all_gradients),
        cmocka_unit_test(values_come_together_one_parameter_at_a_time),
        cmocka_unit_test(a_parameter_without_a_gradient_is_named),
        cmocka_unit_test(a_step_is_followed_by_a_gather),
    };
    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
