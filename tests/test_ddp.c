/* DDP: bucket plans and replicas as PyTorch has them, then gradients and their norm.
 * What happens when during backward is test_ddp_overlap.c; wrong use is test_ddp_misuse.c. */
#include "harness_replica.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t small[] = { 20, 16, 12, 5 };
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
#define SMALL .dims = small, .ndims = COUNT(small)

/* --- bucket plans ---------------------------------------------------------------------------------- */

static ls_status has_buckets(const ls_ddp *d, const char *plan)
{
    char got[256];
    int n = 0;
    for (int k = 0; k < ls_ddp_buckets(d); k++) {
        ls_ddp_bucket_info b = ls_ddp_bucket(d, k);
        n += snprintf(got + n, sizeof got - (size_t)n, "%s", k ? "| " : "");
        for (int i = 0; i < b.nparams; i++) n += snprintf(got + n, sizeof got - (size_t)n, "%d ", b.param[i]);
        n += snprintf(got + n, sizeof got - (size_t)n, "(%zu) ", b.nbytes);
    }
    LS_EXPECT(strcmp(got, plan) == 0, "buckets '%s', expected '%s'", got, plan);
    return LS_OK;
}

/* PyTorch 1.13 with bucket_cap_mb=1: Linear(512,512), ReLU, Linear(512,1024), ReLU, Linear(1024,10). */
static ls_status follows_the_plan(ls_world *w, void *arg)
{
    (void)arg;
    static const int64_t dims[] = { 512, 512, 1024, 10 };
    const ls_ddp_config dc = { .bucket_cap = 1 << 20 };
    ls_replica r;
    ls_status st = ls_replica_create(w, &(ls_replica_config){ .dims = dims, .ndims = 4, .ddp = &dc, .rows = 2 }, &r);
    if (st == LS_OK) st = has_buckets(r.ddp, "0 1 2 3 4 5 (3192872) ");
    for (int step = 0; st == LS_OK && step < 3; step++) {
        LS_EXPECT(ls_ddp_rebuilt(r.ddp) == (step > 1), "step %d: rebuilt is %d", step, ls_ddp_rebuilt(r.ddp));
        st = ls_replica_pass(&r, 0, 2 * ls_world_rank(w), 2, true, 1, NULL);
        if (st == LS_OK && step > 0) st = has_buckets(r.ddp, "5 4 3 2 (2142248) | 1 0 (1050624) ");
        ls_params_zero_grad(&r.model->params);
    }
    ls_replica_destroy(&r);
    return st;
}

static void starts_with_one_bucket_and_rebuilds_in_arrival_order(void **state)
{
    (void)state;
    const ls_world_opts o = { .arena_bytes = 8 << 20 };
    expect(ls_test_ranks(LS_TEST_THREADS, 1, &o, follows_the_plan, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 2, &o, follows_the_plan, NULL));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &o, follows_the_plan, NULL));
}

typedef struct tensors {
    int n;
    int64_t count[9]; /* elements of each tensor */
    const char *plan;
} tensors;

/* With find_unused buckets are those of registration order from the beginning, the last one first. */
static ls_status has_default_sizes(ls_world *w, void *arg)
{
    const tensors *x = arg;
    const ls_ddp_config dc = { .find_unused = true };
    ls_params ps = { 0 };
    ls_arena *arena;
    ls_ddp *d;
    LS_TRY(ls_arena_create((size_t)33 << 20, false, NULL, &arena));
    for (int i = 0; i < x->n; i++) LS_TRY(ls_params_add(&ps, (char[]){ 'w', (char)('0' + i), 0 }, 1, &x->count[i]));
    LS_TRY(ls_params_bind(&ps, arena, NULL));
    LS_TRY(ls_ddp_create(ls_world_group(w), &ps, &dc, &d));
    const ls_status st = has_buckets(d, x->plan);
    ls_ddp_destroy(d);
    ls_params_free(&ps);
    ls_arena_destroy(arena);
    return st;
}

/* PyTorch's assignment of eight tensors of 4 MiB and one of 40 bytes, without sizes given; and both sides of 1 MiB. */
static void first_bucket_is_1_MiB_and_others_25(void **state)
{
    (void)state;
    enum { M = 1 << 20, K = 1 << 18 }; /* floats of 4 MiB and of 1 MiB */
    static const tensors row[] = { { 9, { M, M, M, M, M, M, M, M, 10 }, "8 (40) | 1 2 3 4 5 6 7 (29360128) | 0 (4194304) " },
                                 { 2, { K, 10 }, "1 (40) | 0 (1048576) " },
                                 { 2, { K - 1, 10 }, "0 1 (1048612) " } };
    const ls_world_opts o = { .arena_bytes = 64 << 20 };
    for (size_t i = 0; i < COUNT(row); i++)
        expect(ls_test_ranks(LS_TEST_THREADS, 1, &o, has_default_sizes, (void *)(uintptr_t)&row[i]));
}

/* More buckets than collectives that a group can have in flight. */
static ls_status uses_many_buckets(ls_world *w, void *arg)
{
    (void)arg;
    int64_t dims[61];
    for (size_t i = 0; i < COUNT(dims); i++) dims[i] = 3;
    const ls_ddp_config dc = { .bucket_cap = 1, .first_bucket = 1 };
    ls_replica r;
    const ls_replica_config c = { .dims = dims, .ndims = COUNT(dims), .ddp = &dc, .rows = 2 };
    ls_status st = ls_replica_create(w, &c, &r);
    for (int step = 0; st == LS_OK && step < 3; step++) {
        ls_params_zero_grad(&r.model->params);
        st = ls_replica_pass(&r, 0, 2 * ls_world_rank(w), 2, true, 1, NULL);
    }
    if (st == LS_OK && ls_ddp_buckets(r.ddp) != 120) st = ls_fail(LS_INTERNAL, "%d buckets", ls_ddp_buckets(r.ddp));
    ls_replica_destroy(&r);
    return st;
}

static void has_as_many_buckets_as_it_likes(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, uses_many_buckets, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, &threaded, uses_many_buckets, NULL));
}

/* Two square layers that odd ranks use the other way round: a's gradient is their first, b's that of the others. */
static ls_status arrives_otherwise(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 4 };
    const int64_t wdim[2] = { N, N }, xdim[2] = { 1, N }, ydim[1] = { 1 };
    const ls_ddp_config dc = { .first_bucket = 1, .bucket_cap = 1 };
    const int first = ls_world_rank(w) % 2;
    float x[N] = { 1, 2, 3, 4 };
    int64_t y[1] = { 2 };
    ls_params ps = { 0 };
    ls_arena *arena;
    ls_ddp *ddp;
    ls_tape *t;
    LS_TRY(ls_arena_create(65536, false, NULL, &arena));
    LS_TRY(ls_params_add(&ps, "a", 2, wdim));
    LS_TRY(ls_params_add(&ps, "b", 2, wdim));
    LS_TRY(ls_params_bind(&ps, arena, NULL));
    for (int i = 0; i < 2; i++) ls_philox_uniform(1, (uint64_t)i, 0, N * N, -1, 1, ps.item[i].t.data);
    LS_TRY(ls_tape_create(65536, NULL, NULL, &t));
    LS_TRY(ls_ddp_create(ls_world_group(w), &ps, &dc, &ddp));
    ls_status st = LS_OK;
    for (int step = 0; st == LS_OK && step < 2; step++) {
        ls_tape_reset(t);
        ls_params_zero_grad(&ps);
        if ((st = ls_ddp_begin_forward(ddp, t, true)) < 0) break;
        ls_tensor *h = ls_linear(t, ls_tape_input(t, LS_F32, 2, xdim, x), &ps.item[first].t, NULL);
        ls_tensor *out = ls_linear(t, h, &ps.item[!first].t, NULL);
        st = ls_backward(t, ls_softmax_cross_entropy(t, out, ls_tape_input(t, LS_I64, 1, ydim, y), NULL, NULL));
    }
    if (st == LS_OK) st = has_buckets(ddp, "1 (64) | 0 (64) "); /* rank 0's order */
    for (int i = 0; st == LS_OK && i < 2; i++) st = ls_expect_equal(w, ps.item[i].grad.data, 4 * N, "gradients");
    ls_ddp_destroy(ddp);
    ls_tape_destroy(t);
    ls_params_free(&ps);
    ls_arena_destroy(arena);
    return st;
}

static void rebuilds_in_the_order_of_rank_0(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, arrives_otherwise, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, arrives_otherwise, NULL));
}

/* --- replicas ------------------------------------------------------------------------------------------ */

#define STEPS 100

static ls_status keeps_replicas_equal(ls_world *w, void *arg)
{
    (void)arg;
    int rank = ls_world_rank(w), size = ls_world_size(w);
    float *before = NULL, *after = NULL, *first = NULL;
    ls_replica r, other;
    /* Different values everywhere: DDP's constructor hands out those of rank 0. */
    ls_replica_config c = { SMALL, .seed = (uint64_t)rank + 1, .optim = "adam", .rows = 8 }, plain = c;
    plain.plain = true;
    plain.seed = 1;
    ls_status st = ls_replica_create(w, &c, &r);
    if (st == LS_OK) st = ls_replica_create(w, &plain, &other);
    if (st == LS_OK) before = ls_replica_values(&other);
    if (st == LS_OK) first = ls_replica_values(&r);
    size_t n = st == LS_OK ? ls_params_nbytes(&r.model->params) : 0;
    if (st == LS_OK && memcmp(before, first, n) != 0)
        st = ls_fail(LS_INTERNAL, "rank %d does not start with the values of rank 0", rank);

    for (uint64_t step = 0; st == LS_OK && step < STEPS; step++) {
        char digest[33];
        ls_params_zero_grad(&r.model->params);
        st = ls_replica_pass(&r, step, rank * 8, 8, true, 1, NULL);
        if (st == LS_OK) st = ls_optim_step(r.optim);
        if (st == LS_OK) st = ls_params_digest(&r.model->params, digest);
        if (st == LS_OK) st = ls_expect_equal(w, digest, 32, "parameters");
        if (st < 0) ls_while(st, "comparing %d ranks after step %d", size, (int)step);
    }
    if (st == LS_OK) after = ls_replica_values(&r);
    if (st == LS_OK && memcmp(before, after, n) == 0) st = ls_fail(LS_INTERNAL, "nothing was trained");
    free(before);
    free(after);
    free(first);
    ls_replica_destroy(&r);
    ls_replica_destroy(&other);
    return st;
}

static void keeps_replicas_bitwise_equal_for_100_steps(void **state)
{
    (void)state;
    static const int sizes[] = { 2, 3, 4, 8 };
    for (size_t i = 0; i < COUNT(sizes); i++)
        expect(ls_test_ranks(LS_TEST_THREADS, sizes[i], NULL, keeps_replicas_equal, NULL));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, NULL, keeps_replicas_equal, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, &threaded, keeps_replicas_equal, NULL));
}

static ls_status trains_with_sgd(ls_world *w, void *arg)
{
    double *final = arg;
    int rank = ls_world_rank(w), size = ls_world_size(w);
    int64_t rows = 32 / size;
    ls_replica r;
    ls_status st = ls_replica_create(w, &(ls_replica_config){ SMALL, .seed = 5, .optim = "sgd", .lr = 0.5, .rows = rows }, &r);
    double all[LS_TEST_RANKS] = { 0 };
    for (uint64_t step = 0; st == LS_OK && step < STEPS; step++) {
        all[rank] = 0;
        ls_params_zero_grad(&r.model->params);
        st = ls_replica_pass(&r, step % 4, rank * rows, rows, true, 1, &all[rank]);
        if (st == LS_OK) st = ls_optim_step(r.optim);
    }
    if (st == LS_OK) st = ls_all_gather(ls_world_group(w), NULL, all, (size_t)size, LS_F64);
    double sum = 0;
    for (int i = 0; i < size; i++) sum += all[i];
    if (rank == 0) *final = sum / 32;
    ls_replica_destroy(&r);
    return st;
}

static void trains_alike_on_one_two_and_four_ranks(void **state)
{
    (void)state;
    double one, two, four;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, trains_with_sgd, &one));
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, trains_with_sgd, &two));
    expect(ls_test_ranks(LS_TEST_THREADS, 4, NULL, trains_with_sgd, &four));
    assert_true(one > 0.0 && one < 1.2); /* labels are noise, so it began above log 5 = 1.6 */
    assert_true(fabs(two - one) <= 1e-5 * one); /* the promise of the issue: sums of floats in other orders */
    assert_true(fabs(four - one) <= 1e-5 * one);
}

/* --- gradients ------------------------------------------------------------------------------------------- */


/* The mean over ranks as the averaging is specified, from the gradients that a plain model has for every
 * rank's rows: bit for bit, because a sum over ranks goes up with the rank. */
static ls_status mean_of_ranks(ls_world *w, uint64_t batch, bool divide, float **out)
{
    ls_replica r;
    ls_status st = ls_replica_create(w, &(ls_replica_config){ SMALL, .seed = 9, .plain = true, .rows = ROWS }, &r);
    int size = ls_world_size(w);
    size_t n = st == LS_OK ? (size_t)ls_params_count(&r.model->params) : 0;
    *out = calloc(n, sizeof **out);
    for (int rank = 0; st == LS_OK && rank < size; rank++) {
        ls_params_zero_grad(&r.model->params);
        st = ls_replica_pass(&r, batch, rank * ROWS, ROWS, true, 1, NULL);
        float *g = ls_replica_grads(&r), scale = 1.0f / (float)size;
        for (size_t i = 0; i < n; i++) (*out)[i] += divide ? g[i] / (float)size : g[i] * scale;
        free(g);
    }
    ls_replica_destroy(&r);
    return st;
}

typedef struct averages {
    bool bucket_view;
    size_t n;
    float *grad; /* rank 0's; the test frees it */
} averages;

static ls_status averages_gradients(ls_world *w, void *arg)
{
    averages *x = arg;
    int rank = ls_world_rank(w);
    const ls_ddp_config dc = { .bucket_view = x->bucket_view, .first_bucket = 512, .bucket_cap = 600 };
    float *want = NULL, *got = NULL;
    ls_replica r;
    ls_status st = ls_replica_create(w, &(ls_replica_config){ SMALL, .seed = 9, .ddp = &dc, .rows = ROWS }, &r);
    size_t n = st == LS_OK ? (size_t)ls_params_count(&r.model->params) : 0;
    for (uint64_t step = 0; st == LS_OK && step < 3; step++) { /* one bucket, then the rebuilt ones */
        ls_params_zero_grad(&r.model->params);
        st = ls_replica_pass(&r, step, rank * ROWS, ROWS, true, 1, NULL);
        if (st == LS_OK) st = mean_of_ranks(w, step, x->bucket_view, &want);
        got = ls_replica_grads(&r);
        for (size_t i = 0; st == LS_OK && i < n; i++)
            if (memcmp(&got[i], &want[i], sizeof *got) != 0)
                st = ls_fail(LS_INTERNAL, "gradient %zu in step %d is %a, the mean is %a", i, (int)step, (double)got[i], (double)want[i]);
        free(want);
        if (step < 2 || rank != 0) free(got);
    }
    if (rank == 0) {
        x->n = n;
        x->grad = got;
    }
    ls_replica_destroy(&r);
    return st;
}

static void gives_every_rank_the_mean_of_all_gradients(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++) {
        averages scaled = { 0 }, divided = { .bucket_view = true };
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, averages_gradients, &scaled));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, averages_gradients, &divided));
        /* x / W and x * (1 / W) are the same for powers of two, and are not for others: so it is in PyTorch */
        bool same = memcmp(scaled.grad, divided.grad, scaled.n * sizeof *scaled.grad) == 0;
        assert_int_equal(same, size != 3 && size != 5 && size != 6);
        free(scaled.grad);
        free(divided.grad);
    }
}

/* Largest distance of two gradients, relative to the largest element. */
static double distance(const float *a, const float *b, size_t n)
{
    double most = 0, far = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i]));
        far = fmax(far, fabs((double)a[i] - (double)b[i]));
    }
    return far / most;
}

/* R31: the mean of the ranks' mean losses is that of all rows together where ranks have equally many. Where not,
 * each rank weighs its own mean by its part of all rows (lockstep train does): then it is, too. */
typedef struct rows_of_ranks {
    int64_t rows[3]; /* of each rank */
    bool even;
} rows_of_ranks;

static ls_status against_the_combined_batch(ls_world *w, void *arg)
{
    const rows_of_ranks *p = arg;
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    const int64_t mine = p->rows[rank];
    int64_t first = 0, all = 0;
    for (int r = 0; r < size; r++) {
        if (r < rank) first += p->rows[r];
        all += p->rows[r];
    }
    ls_replica ddp, alone;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .seed = 4, .rows = all }, &ddp));
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .seed = 4, .rows = all, .plain = true }, &alone));
    const size_t n = (size_t)ls_params_count(&ddp.model->params);
    LS_TRY(ls_replica_pass(&alone, 0, 0, all, true, 1, NULL));
    float *one = ls_replica_grads(&alone), *mean, *counted;
    LS_TRY(ls_replica_pass(&ddp, 0, first, mine, true, 1, NULL));
    mean = ls_replica_grads(&ddp);
    ls_params_zero_grad(&ddp.model->params);
    LS_TRY(ls_replica_pass(&ddp, 0, first, mine, true, (float)(mine * size) / (float)all, NULL));
    counted = ls_replica_grads(&ddp);
    const double of_means = distance(one, mean, n), by_count = distance(one, counted, n);
    free(one);
    free(mean);
    free(counted);
    ls_replica_destroy(&ddp);
    ls_replica_destroy(&alone);
    LS_EXPECT(by_count <= 1e-5, "weighted by rows the gradient differs from that of all rows by %g", by_count);
    LS_EXPECT(!p->even || of_means <= 1e-5, "of equal parts the gradient differs from that of all rows by %g", of_means);
    LS_EXPECT(p->even || of_means > 1e-2, "of unequal parts it differs by %g only", of_means);
    return LS_OK;
}

static void R31_the_mean_gradient_is_that_of_the_combined_batch_if_counted(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, against_the_combined_batch, &(rows_of_ranks){ { 8, 8 }, true }));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, against_the_combined_batch, &(rows_of_ranks){ { 8, 8, 8 }, true }));
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, against_the_combined_batch, &(rows_of_ranks){ { 13, 3 }, false }));
    rows_of_ranks uneven = { { 1, 5, 18 }, false };
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, against_the_combined_batch, &uneven));
}

#define MICRO 4 /* micro-batches */

static ls_status accumulates(ls_world *w, void *arg)
{
    (void)arg;
    int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_replica whole, parts, alone;
    ls_replica_config c = { SMALL, .seed = 3, .rows = MICRO * ROWS }, plain = c;
    plain.plain = true;
    plain.rows = MICRO * ROWS * size;
    ls_status st = ls_replica_create(w, &c, &whole);
    if (st == LS_OK) st = ls_replica_create(w, &c, &parts);
    if (st == LS_OK) st = ls_replica_create(w, &plain, &alone);
    ls_comm_stats s0, s1, s2;
    LS_TRY(st);
    for (uint64_t step = 0; st == LS_OK && step < 3; step++) {
        int64_t first = rank * MICRO * ROWS;
        ls_params_zero_grad(&whole.model->params);
        ls_params_zero_grad(&parts.model->params);
        ls_params_zero_grad(&alone.model->params);
        st = ls_replica_pass(&alone, step, 0, plain.rows, true, 1, NULL);
        ls_comm_stats_read(w, &s0);
        if (st == LS_OK) st = ls_replica_pass(&whole, step, first, MICRO * ROWS, true, 1, NULL);
        ls_comm_stats_read(w, &s1);
        for (int m = 0; st == LS_OK && m < MICRO; m++) {
            ls_comm_stats_read(w, &s2);
            bool rebuilds = step == 1; /* its broadcast is no reduction */
            if (!rebuilds) LS_EXPECT(s2.ops == s1.ops, "a collective in an unsynchronised backward");
            st = ls_replica_pass(&parts, step, first + m * ROWS, ROWS, m + 1 == MICRO, 1.0f / MICRO, NULL);
        }
        ls_comm_stats_read(w, &s2);
        LS_EXPECT(s2.ops - s1.ops == s1.ops - s0.ops, "%d collectives for %d micro-batches, expected %d",
                  (int)(s2.ops - s1.ops), MICRO, (int)(s1.ops - s0.ops));
        LS_EXPECT(s2.bytes - s1.bytes == s1.bytes - s0.bytes, "%d bytes instead of %d", (int)(s2.bytes - s1.bytes),
                  (int)(s1.bytes - s0.bytes));
        float *a = ls_replica_grads(&whole), *b = ls_replica_grads(&parts), *one = ls_replica_grads(&alone);
        size_t n = (size_t)ls_params_count(&whole.model->params);
        double far = distance(a, b, n), from_one = distance(one, a, n);
        free(a);
        free(b);
        free(one);
        /* sums of at most 128 products of floats of like size, split differently: some roundings of 2^-24 */
        LS_EXPECT(far <= 1e-6, "%d micro-batches differ from one batch by %g", MICRO, far);
        LS_EXPECT(from_one <= 1e-6, "%d ranks differ from one rank by %g", size, from_one);
    }
    ls_replica_destroy(&whole);
    ls_replica_destroy(&parts);
    ls_replica_destroy(&alone);
    return st;
}

static void reduces_once_for_all_micro_batches(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, accumulates, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, accumulates, NULL));
}

static ls_status rebuilds_while_accumulating(ls_world *w, void *arg)
{
    (void)arg;
    const ls_ddp_config dc = { .first_bucket = 64, .bucket_cap = 600 };
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .ddp = &dc, .rows = ROWS }, &r));
    ls_status st = ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    float *before = ls_replica_grads(&r);
    void *place = r.model->params.item[0].grad.data;
    if (st == LS_OK) st = ls_ddp_begin_forward(r.ddp, r.tape, false);
    float *after = ls_replica_grads(&r);
    LS_EXPECT(ls_ddp_rebuilt(r.ddp) && ls_ddp_buckets(r.ddp) > 2, "%d buckets", ls_ddp_buckets(r.ddp));
    LS_EXPECT(r.model->params.item[0].grad.data != place, "the gradient did not move, so this test shows nothing");
    LS_EXPECT(memcmp(before, after, (size_t)ls_params_count(&r.model->params) * sizeof *before) == 0,
              "a gradient was lost when buckets were rebuilt");
    free(before);
    free(after);
    ls_replica_destroy(&r);
    return st;
}

static void keeps_gradients_when_it_rebuilds_while_they_accumulate(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, rebuilds_while_accumulating, NULL));
}

static ls_status steps_alone(ls_world *w, void *arg)
{
    (void)arg;
    ls_comm_stats s0, s1;
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .optim = "adam", .rows = ROWS }, &r));
    for (uint64_t step = 0; step < 3; step++) {
        LS_TRY(ls_replica_pass(&r, step, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL));
        ls_comm_stats_read(w, &s0);
        LS_TRY(ls_optim_step(r.optim));
        ls_comm_stats_read(w, &s1);
        LS_EXPECT(s0.ops == s1.ops && s0.bytes == s1.bytes, "the optimizer step moved bytes");
        ls_params_zero_grad(&r.model->params);
    }
    LS_EXPECT(s1.bytes > 0, "nothing moved at all");
    ls_replica_destroy(&r);
    return LS_OK;
}

static void moves_no_byte_in_the_optimizer_step(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, steps_alone, NULL));
}

/* --- the gradients' norm, each rank a part ------------------------------------------------------------- */

typedef struct norm_case {
    const int64_t *dims;
    int ndims;
} norm_case;

/* Both ways must blame the parameter that is not finite. */
static ls_status blames(ls_group *g, const ls_params *ps, int i, float bad)
{
    const ls_param *alone, *shared;
    double norm;
    float *last = (float *)ps->item[i].grad.data + ls_tensor_count(&ps->item[i].t) - 1;
    const float was = *last;
    *last = bad;
    const ls_status one = ls_grad_norm(ps, &norm, &alone), all = ls_grad_norm_shared(g, ps, &norm, &shared);
    *last = was;
    LS_EXPECT(one == LS_NAN && all == LS_NAN && alone == &ps->item[i] && shared == alone, "parameter %d is not blamed", i);
    return LS_OK;
}

/* What is shared out must be what a single rank finds alone, to the bit. */
static ls_status finds_the_same_norm(ls_world *w, void *arg)
{
    const norm_case *c = arg;
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ .dims = c->dims, .ndims = c->ndims, .rows = 2 }, &r));
    const ls_params *ps = &r.model->params;
    const ls_param *culprit = NULL;
    double alone = 0, shared = 0;
    ls_status st = ls_replica_pass(&r, 0, 2 * ls_world_rank(w), 2, true, 1, NULL);
    if (st == LS_OK) st = ls_grad_norm(ps, &alone, NULL);
    if (st == LS_OK) st = ls_grad_norm_shared(ls_world_group(w), ps, &shared, &culprit);
    if (st == LS_OK && (!(alone > 0) || memcmp(&alone, &shared, sizeof alone) != 0 || culprit))
        st = ls_fail(LS_INTERNAL, "norm %a of all ranks, %a of one", shared, alone);
    for (int i = 0; st == LS_OK && i < ps->n; i += 1 + ps->n / 5)
        st = blames(ls_world_group(w), ps, i, i % 2 ? NAN : -INFINITY);
    ls_replica_destroy(&r);
    return st;
}

static void adds_up_the_norm_in_parts(void **state)
{
    (void)state;
    static const int64_t wide[] = { 512, 512, 1024, 10 }; /* the second matrix has two thirds of all */
    int64_t deep[71];                                     /* 140 parameters: more than travel at once */
    for (size_t i = 0; i < COUNT(deep); i++) deep[i] = 64;
    norm_case cases[] = { { wide, COUNT(wide) }, { deep, COUNT(deep) }, { small, COUNT(small) } };
    const ls_world_opts o = { .arena_bytes = 8 << 20 };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int size = 1; size <= 5; size++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, &o, finds_the_same_norm, &cases[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_one_bucket_and_rebuilds_in_arrival_order),
        cmocka_unit_test(first_bucket_is_1_MiB_and_others_25),
        cmocka_unit_test(has_as_many_buckets_as_it_likes),
        cmocka_unit_test(rebuilds_in_the_order_of_rank_0),
        cmocka_unit_test(keeps_replicas_bitwise_equal_for_100_steps),
        cmocka_unit_test(trains_alike_on_one_two_and_four_ranks),
        cmocka_unit_test(gives_every_rank_the_mean_of_all_gradients),
        cmocka_unit_test(R31_the_mean_gradient_is_that_of_the_combined_batch_if_counted),
        cmocka_unit_test(reduces_once_for_all_micro_batches),
        cmocka_unit_test(keeps_gradients_when_it_rebuilds_while_they_accumulate),
        cmocka_unit_test(moves_no_byte_in_the_optimizer_step),
        cmocka_unit_test(adds_up_the_norm_in_parts),
    };
    return cmocka_run_group_tests_name("ddp", tests, NULL, NULL);
}
