/* Communication hooks: gradients that are rounded, or factorized, on their way. The references are computed here, from
 * gradients that no rank has reduced. */
#include "harness_replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll/reduce.h"
#include "lockstep/hook.h"

static const int64_t dims[] = { 40, 33, 24, 5 }; /* matrices of 33 x 40, 24 x 33, 5 x 24, and vectors */
static const ls_ddp_config plain = { 0 };
static const ls_ddp_config in_place = { .bucket_view = true };
static const ls_ddp_config small = { .first_bucket = 512, .bucket_cap = 2000 };
static const ls_ddp_config late = { .no_overlap = true };
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
static const ls_world_opts wires = { .transport = "tcp", .algo = "ring" };

static ls_replica_config config_of(const ls_ddp_config *ddp)
{
    return (ls_replica_config){ .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .rows = ROWS };
}

static size_t count_of(const ls_replica *r) { return (size_t)ls_params_count(&r->model->params); }

/* A backward of batch `batch`, with other rows on every rank. */
static ls_status pass(ls_world *w, ls_replica *r, uint64_t batch, bool sync)
{
    return ls_replica_pass(r, batch, ls_world_rank(w) * ROWS, ROWS, sync, 1.0f, NULL);
}

static ls_status reduced(ls_world *w, ls_replica *r, uint64_t batch, float **out)
{
    ls_params_zero_grad(&r->model->params);
    LS_TRY(pass(w, r, batch, true));
    *out = ls_replica_grads(r);
    LS_EXPECT(*out, "memory");
    return LS_OK;
}

/* The gradients of all ranks before a reduction: [size][n]. */
static ls_status of_all_ranks(ls_world *w, ls_replica *r, uint64_t batch, float **out)
{
    const size_t n = count_of(r), size = (size_t)ls_world_size(w);
    float *all = *out = malloc(size * n * sizeof *all);
    ls_params_zero_grad(&r->model->params);
    LS_TRY(pass(w, r, batch, false));
    float *mine = ls_replica_grads(r);
    LS_EXPECT(all && mine, "memory");
    memcpy(all + (size_t)ls_world_rank(w) * n, mine, n * sizeof *mine);
    free(mine);
    return ls_all_gather(ls_world_group(w), NULL, all, size * n, LS_F32);
}

static ls_status hooked(ls_world *w, const ls_ddp_config *ddp, const char *name, const ls_powersgd_config *c,
                        ls_replica *out)
{
    const ls_replica_config rc = config_of(ddp);
    ls_comm_hook *h;
    LS_TRY(ls_replica_create(w, &rc, out));
    LS_TRY(ls_hook_named(name, c, &h));
    return ls_ddp_set_hook(out->ddp, h);
}

/* --- allreduce ------------------------------------------------------------------------------------------ */

typedef struct how {
    const ls_ddp_config *ddp;
    const char *hook;
} how;

/* It divides as bucket_view does, so that is its reference, to the bit. */
static ls_status divides(ls_world *w, void *arg)
{
    const ls_replica_config rc = config_of(&in_place);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(hooked(w, arg, "allreduce", NULL, &b));
    for (uint64_t s = 0; s < 3; s++) {
        float *want, *got;
        LS_TRY(reduced(w, &a, s, &want));
        LS_TRY(reduced(w, &b, s, &got));
        const bool same = memcmp(want, got, count_of(&a) * sizeof *want) == 0;
        free(want);
        free(got);
        LS_EXPECT(same, "backward %d: other averages", (int)s);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void allreduce_is_what_ddp_does(void **state)
{
    (void)state;
    static const ls_ddp_config *const ddp[] = { &plain, &small, &late };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(ddp); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, divides, (void *)(uintptr_t)ddp[i]));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &threaded, divides, (void *)(uintptr_t)&small));
}

/* --- 16 bits -------------------------------------------------------------------------------------------- */

static float rounded(float x, ls_dtype dtype)
{
    float back;
    uint16_t half;
    ls_convert(&half, dtype, &x, LS_F32, 1); /* its rounding is tested in test_reduce.c */
    ls_convert(&back, LS_F32, &half, dtype, 1);
    return back;
}

/* Rounded by each rank, averaged in float in the order of ranks, rounded again. */
static ls_status rounds(ls_world *w, void *arg)
{
    const how *h = arg;
    const ls_dtype dtype = strcmp(h->hook, "f16") == 0 ? LS_F16 : LS_BF16;
    const int size = ls_world_size(w);
    const ls_replica_config rc = config_of(&plain);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(hooked(w, h->ddp, h->hook, NULL, &b));
    for (uint64_t s = 0; s < 3; s++) {
        float *all, *got;
        const size_t n = count_of(&a);
        LS_TRY(of_all_ranks(w, &a, s, &all));
        LS_TRY(reduced(w, &b, s, &got));
        for (size_t i = 0; i < n; i++) {
            float sum = 0.0f;
            for (int r = 0; r < size; r++) sum += rounded(all[(size_t)r * n + i], dtype) * (float)(1.0 / size);
            const float want = rounded(sum, dtype);
            LS_EXPECT(!(got[i] < want) && !(got[i] > want), "backward %d, element %zu: %a, expected %a", (int)s, i,
                      (double)got[i], (double)want);
        }
        free(all);
        free(got);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void sixteen_bits_are_rounded_once_per_rank_and_once_more(void **state)
{
    (void)state;
    static const how row[] = { { &plain, "f16" }, { &small, "f16" }, { &plain, "bf16" }, { &small, "bf16" }, { &late, "bf16" } };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, rounds, (void *)(uintptr_t)&row[i]));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &threaded, rounds, (void *)(uintptr_t)&row[1]));
}

/* Bytes that a backward moves, once the buckets stay as they are. */
static ls_status bytes_of(ls_world *w, ls_replica *r, uint64_t *out)
{
    ls_comm_stats before, now;
    float *got;
    for (uint64_t s = 0; s < 2; s++) {
        LS_TRY(reduced(w, r, s, &got));
        free(got);
    }
    ls_comm_stats_read(w, &before);
    LS_TRY(reduced(w, r, 2, &got));
    free(got);
    ls_comm_stats_read(w, &now);
    ls_comm_stats_since(&before, &now);
    *out = now.of[LS_ALL_REDUCE].bytes; /* ranks share vectors by whole cache lines: their sum is what halves */
    return ls_all_reduce(ls_world_group(w), NULL, out, 1, LS_I64, LS_SUM);
}

static ls_status halves(ls_world *w, void *arg)
{
    const how *h = arg;
    const ls_replica_config rc = config_of(h->ddp);
    ls_replica a, b;
    uint64_t full, half;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(hooked(w, h->ddp, h->hook, NULL, &b));
    LS_TRY(bytes_of(w, &a, &full));
    LS_TRY(bytes_of(w, &b, &half));
    LS_EXPECT(full > 0 && full == 2 * half, "%llu bytes, with the hook %llu", (unsigned long long)full, (unsigned long long)half);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void sixteen_bits_are_half_of_the_traffic(void **state)
{
    (void)state;
    static const how row[] = { { &plain, "f16" }, { &small, "f16" }, { &plain, "bf16" }, { &small, "bf16" } };
    for (size_t i = 0; i < COUNT(row); i++) {
        expect(ls_test_ranks(LS_TEST_PROCESSES, 2, NULL, halves, (void *)(uintptr_t)&row[i]));
        expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &wires, halves, (void *)(uintptr_t)&row[i]));
    }
}

/* --- PowerSGD ------------------------------------------------------------------------------------------- */

enum { START = 3 };

/* Mean over ranks of all[size][n]. */
static void mean_of(const float *all, int size, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int r = 0; r < size; r++) out[i] += (double)all[(size_t)r * n + i] / size;
    }
}

static double norm_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Whether rows of an [n, m] matrix are multiples of one row, to rounding. */
static bool has_rank_one(const float *M, size_t n, size_t m)
{
    size_t top = 0;
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t j = 0; j < m; j++) sum += (double)M[i * m + j] * (double)M[i * m + j];
        if (sum > most) most = sum, top = i;
    }
    for (size_t i = 0; i < n; i++) {
        double along = 0, left = 0;
        for (size_t j = 0; j < m; j++) along += (double)M[i * m + j] * (double)M[top * m + j] / most;
        for (size_t j = 0; j < m; j++) left += pow((double)M[i * m + j] - along * (double)M[top * m + j], 2.0);
        if (sqrt(left) > 1e-5 * sqrt(most)) return false;
    }
    return true;
}

/* The first backwards are reduced in full; then a matrix has the rank of its factors, and what is not a matrix, or too
 * small, is still the average. */
static ls_status has_low_rank(ls_world *w, void *arg)
{
    const ls_powersgd_config c = { .start = START };
    const ls_replica_config rc = config_of(&plain);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(hooked(w, arg, "powersgd", &c, &b));
    const size_t n = count_of(&a);
    double *mean = malloc(n * sizeof *mean);
    LS_EXPECT(mean, "memory");
    for (uint64_t s = 0; s < START + 2; s++) {
        float *all, *got;
        size_t at = 0;
        LS_TRY(of_all_ranks(w, &a, s, &all));
        LS_TRY(reduced(w, &b, s, &got));
        mean_of(all, ls_world_size(w), n, mean);
        for (int i = 0; i < b.model->params.n; i++) {
            const ls_tensor *t = &b.model->params.item[i].t;
            const size_t each = (size_t)ls_tensor_count(t);
            double far = 0, long_ = norm_of(mean + at, each);
            for (size_t k = 0; k < each; k++) far = fmax(far, fabs((double)got[at + k] - mean[at + k]));
            const bool factors = s >= START && t->ndim == 2 && 2 * (t->dim[0] + t->dim[1]) < t->dim[0] * t->dim[1];
            if (!factors) LS_EXPECT(far < 1e-6 * (1 + long_), "backward %d, parameter %d: %g from the average", (int)s, i, far);
            else LS_EXPECT(far > 1e-4 * long_ && has_rank_one(got + at, (size_t)t->dim[0], (size_t)t->dim[1]),
                           "backward %d, parameter %d: it did not travel as two factors", (int)s, i);
            at += each;
        }
        LS_TRY(ls_expect_equal(w, &got[n / 2], 64 < n * 2 ? 64 : n * 2, "averages"));
        free(all);
        free(got);
    }
    free(mean);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void matrices_travel_as_two_factors(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, has_low_rank, (void *)(uintptr_t)&plain));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, has_low_rank, (void *)(uintptr_t)&small));
    }
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &threaded, has_low_rank, (void *)(uintptr_t)&small));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, has_low_rank, (void *)(uintptr_t)&small));
}

/* The same gradient in T backwards. With feedback the sum of what arrives differs from T averages by the newest error
 * alone, so the mean comes closer to the average as 1 / T; without it what is lost is lost. */
static ls_status far_from_average(ls_world *w, const ls_powersgd_config *c, int backwards, double *out)
{
    const ls_replica_config rc = config_of(&plain);
    ls_replica a, b;
    float *all, *got;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(hooked(w, &small, "powersgd", c, &b));
    const size_t n = count_of(&a);
    double *mean = malloc(n * sizeof *mean), *sum = calloc(n, sizeof *sum);
    LS_EXPECT(mean && sum, "memory");
    LS_TRY(of_all_ranks(w, &a, 7, &all));
    mean_of(all, ls_world_size(w), n, mean);
    const double whole = norm_of(mean, n);
    for (int s = 0; s < backwards; s++) {
        LS_TRY(reduced(w, &b, 7, &got));
        for (size_t i = 0; i < n && s >= c->start; i++) sum[i] += (double)got[i];
        free(got);
    }
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] / (double)(backwards - c->start) - mean[i];
    *out = norm_of(sum, n) / whole;
    free(all);
    free(mean);
    free(sum);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static ls_status feeds_back(ls_world *w, void *arg)
{
    (void)arg;
    ls_powersgd_config c = { .start = 2 };
    double few, many, none, cold, two;
    LS_TRY(far_from_average(w, &c, 2 + 10, &few));
    LS_TRY(far_from_average(w, &c, 2 + 80, &many));
    LS_EXPECT(few < 1.0 && many < few / 2, "%g of the average is lost after 10 backwards, %g after 80", few, many);
    c.no_feedback = true;
    LS_TRY(far_from_average(w, &c, 2 + 80, &none));
    LS_EXPECT(none > 4 * many, "%g is lost with feedback, %g without", many, none);
    c.no_warm_start = true;
    LS_TRY(far_from_average(w, &c, 2 + 1, &cold));
    LS_EXPECT(cold > none, "%g is lost from random factors, %g from warm ones", cold, none);
    const ls_powersgd_config more = { .start = 2, .rank = 4, .no_feedback = true };
    LS_TRY(far_from_average(w, &more, 2 + 80, &two));
    LS_EXPECT(two < none, "%g is lost with rank 4, %g with rank 1", two, none);
    return LS_OK;
}

static void feedback_brings_back_what_factors_lose(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, feeds_back, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, feeds_back, NULL));
}

/* Which bucket a matrix is in changes neither its factors nor their sums: each of more buckets than travel at once has
 * its own. Vectors, and matrices that factors would not make smaller, are averages in any case. */
static ls_status equals_one_bucket(ls_world *w, void *arg)
{
    int64_t deep[41];
    const int64_t width = *(const int64_t *)arg;
    const ls_ddp_config one_each = { .first_bucket = 1, .bucket_cap = 1 };
    const ls_powersgd_config c = { .start = 2, .rank = 2 };
    ls_replica a, b;
    ls_comm_hook *h;
    for (size_t i = 0; i < COUNT(deep); i++) deep[i] = width;
    ls_replica_config together = { .dims = deep, .ndims = COUNT(deep), .seed = 4, .ddp = &plain, .rows = ROWS };
    ls_replica_config apart = together;
    apart.ddp = &one_each;
    LS_TRY(ls_replica_create(w, &together, &a));
    LS_TRY(ls_replica_create(w, &apart, &b));
    if (width > 2) { /* no factors: the reference is DDP without a hook */
        LS_TRY(ls_hook_named("powersgd", &c, &h));
        LS_TRY(ls_ddp_set_hook(a.ddp, h));
    }
    LS_TRY(ls_hook_named("powersgd", &c, &h));
    LS_TRY(ls_ddp_set_hook(b.ddp, h));
    for (uint64_t s = 0; s < 6; s++) {
        float *want, *got;
        double far = 0, most = 0;
        LS_TRY(reduced(w, &a, s, &want));
        LS_TRY(reduced(w, &b, s, &got));
        for (size_t i = 0; i < count_of(&a); i++) {
            far = fmax(far, fabs((double)want[i] - (double)got[i]));
            most = fmax(most, fabs((double)want[i]));
        }
        free(want);
        free(got);
        LS_EXPECT(most > 0, "backward %d: gradients are zero", (int)s);
        LS_EXPECT(s < 2 || ls_ddp_buckets(b.ddp) == 80, "%d buckets", ls_ddp_buckets(b.ddp));
        /* without factors: of the largest, the roundings of two ways to take an average */
        LS_EXPECT(far <= (width > 2 ? 0.0 : 1e-6 * most), "backward %d: averages differ by %g", (int)s, far);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void every_bucket_has_its_own_factors(void **state)
{
    (void)state;
    for (int64_t width = 2; width <= 12; width += 10)
        for (int size = 1; size <= 4; size++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, equals_one_bucket, &width));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &threaded, equals_one_bucket, &(int64_t){ 12 }));
}

/* A gradient of zeros has factors of zeros, from which no later one would recover. */
static ls_status comes_back(ls_world *w, void *arg)
{
    const ls_powersgd_config c = { .start = 2, .no_feedback = true };
    ls_replica r;
    float *got;
    double sum = 0;
    (void)arg;
    LS_TRY(hooked(w, &plain, "powersgd", &c, &r));
    for (int s = 0; s < 6; s++) {
        ls_params_zero_grad(&r.model->params);
        LS_TRY(ls_replica_pass(&r, 1, ls_world_rank(w) * ROWS, ROWS, true, s == 3 ? 0.0f : 1.0f, NULL));
    }
    got = ls_replica_grads(&r);
    for (int i = 0; i < 33 * 40; i++) sum += fabs((double)got[i]);
    free(got);
    LS_EXPECT(isfinite(sum) && sum > 0, "the gradient of the first matrix stays %g", sum);
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_gradient_of_zeros_is_no_end(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, comes_back, NULL);
    expect(r);
}

/* --- a program's own ------------------------------------------------------------------------------------- */

typedef struct counting {
    ls_comm_hook hook;
    int started, finished, last;
    size_t too_many; /* elements that `finish` says it returns */
    float *twice;    /* what it returns */
    bool *gone;
} counting;

static ls_status count_start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    counting *c = (counting *)(void *)h;
    LS_EXPECT(b->index == c->started++, "bucket %d comes out of order", b->index);
    c->last += b->is_last;
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = b->data, .count = b->count, .dtype = LS_F32, .op = LS_AVG };
    return ls_coll_start(g, &a, work);
}

static ls_status count_finish(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count)
{
    counting *c = (counting *)(void *)h;
    (void)g;
    LS_EXPECT(b->index == c->finished++, "bucket %d ends out of order", b->index);
    for (size_t i = 0; i < b->count; i++) c->twice[i] = 2.0f * b->data[i];
    *out = c->twice;
    *count += c->too_many;
    return LS_OK;
}

static void count_destroy(ls_comm_hook *h)
{
    counting *c = (counting *)(void *)h;
    *c->gone = true;
    free(c->twice);
    free(c);
}

static counting *count_create(bool *gone)
{
    counting *c = calloc(1, sizeof *c);
    *c = (counting){ .hook = { .name = "counting", .start = count_start, .finish = count_finish, .destroy = count_destroy },
                     .twice = malloc(1 << 20), .gone = gone };
    *gone = false;
    return c;
}

static ls_status is_called(ls_world *w, void *arg)
{
    const ls_replica_config rc = config_of(&small);
    bool gone;
    counting *c = count_create(&gone);
    ls_replica a, b;
    float *one, *two;
    (void)arg;
    LS_TRY(ls_replica_create(w, &rc, &a));
    LS_TRY(ls_replica_create(w, &rc, &b));
    LS_TRY(ls_ddp_set_hook(b.ddp, &c->hook));
    for (uint64_t s = 0; s < 3; s++) {
        c->started = c->finished = c->last = 0;
        LS_TRY(reduced(w, &a, s, &one));
        LS_TRY(reduced(w, &b, s, &two));
        for (size_t i = 0; i < count_of(&a); i++) LS_EXPECT(fabsf(two[i] - 2.0f * one[i]) < 1e-30f, "element %zu", i);
        LS_EXPECT(c->started == ls_ddp_buckets(b.ddp) && c->finished == c->started && c->last == 1, "%d of %d buckets, %d last",
                  c->started, ls_ddp_buckets(b.ddp), c->last);
        free(one);
        free(two);
    }
    float *const values = ls_replica_values(&b);
    for (int k = 0; k < 2; k++) { /* five too many, and one too few */
        c->too_many = k ? (size_t)-1 : 5;
        c->started = c->finished = 0;
        const ls_status st = reduced(w, &b, 0, &two);
        LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "communication hook counting returned "), "%s", ls_last_error());
        LS_EXPECT(strstr(ls_last_error(), "elements for bucket 0 on rank "), "%s", ls_last_error());
        ls_ddp_destroy(b.ddp); /* the next one begins anew; the values stay */
        b.ddp = NULL;
        float *const now = ls_replica_values(&b);
        const bool lost = memcmp(values, now, count_of(&b) * sizeof *now) != 0;
        free(now);
        LS_EXPECT(gone && !lost, "after a wrong size: %s", lost ? "other values" : "the hook stays");
        if (k) break;
        c = count_create(&gone);
        LS_TRY(ls_ddp_create(ls_world_group(w), &b.model->params, &small, &b.ddp));
        LS_TRY(ls_ddp_set_hook(b.ddp, &c->hook));
    }
    free(values);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    LS_EXPECT(gone, "it is not destroyed");
    return LS_OK;
}

static void a_program_brings_its_own(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, is_called, NULL));
}

/* --- mistakes --------------------------------------------------------------------------------------------- */

static ls_status refuses(ls_world *w, void *arg)
{
    const ls_ddp_config sharded = { .zero_stage = 1 };
    bool gone;
    ls_replica r;
    float *got;
    (void)arg;
    counting *c = count_create(&gone);
    const ls_replica_config of_shards = config_of(&sharded), of_ddp = config_of(&plain);
    LS_TRY(ls_replica_create(w, &of_shards, &r));
    LS_EXPECT(ls_ddp_set_hook(r.ddp, &c->hook) == LS_UNSUPPORTED && strstr(ls_last_error(), "hook counting with zero_stage 1"),
              "%s", ls_last_error());
    ls_replica_destroy(&r);
    LS_TRY(ls_replica_create(w, &of_ddp, &r));
    LS_TRY(reduced(w, &r, 0, &got));
    free(got);
    LS_EXPECT(ls_ddp_set_hook(r.ddp, &c->hook) == LS_INVALID && strstr(ls_last_error(), "before the first ls_ddp_begin_forward"),
              "%s", ls_last_error());
    ls_replica_destroy(&r);
    LS_TRY(hooked(w, &plain, "bf16", NULL, &r));
    LS_EXPECT(ls_ddp_set_hook(r.ddp, &c->hook) == LS_INVALID && strstr(ls_last_error(), "there is one already, bf16"), "%s",
              ls_last_error());
    ls_replica_destroy(&r);
    LS_EXPECT(!gone, "it is destroyed, though nobody took it");
    count_destroy(&c->hook);
    return LS_OK;
}

static void mistakes_are_named(void **state)
{
    (void)state;
    ls_comm_hook *h;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, refuses, NULL));
    assert_int_equal(ls_hook_named("f8", NULL, &h), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "expected allreduce, f16, bf16 or powersgd"));
    assert_int_equal(ls_hook_compress(LS_F64, &h), LS_UNSUPPORTED);
    assert_null(h);
    assert_int_equal(ls_hook_powersgd(&(ls_powersgd_config){ .rank = -1 }, &h), LS_BAD_CONFIG);
    assert_int_equal(ls_hook_powersgd(&(ls_powersgd_config){ .start = 1 }, &h), LS_BAD_CONFIG);
    assert_null(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduce_is_what_ddp_does),
        cmocka_unit_test(sixteen_bits_are_rounded_once_per_rank_and_once_more),
        cmocka_unit_test(sixteen_bits_are_half_of_the_traffic),
        cmocka_unit_test(matrices_travel_as_two_factors),
        cmocka_unit_test(feedback_brings_back_what_factors_lose),
        cmocka_unit_test(every_bucket_has_its_own_factors),
        cmocka_unit_test(a_gradient_of_zeros_is_no_end),
        cmocka_unit_test(a_program_brings_its_own),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
