/* hook_powersgd.c -- PowerSGD: gradient matrices that travel as two factors of low rank.
 *
 * A matrix M [n, m] is this rank's gradient, plus its error of the backward before. One step of subspace iteration
 * gives the factors of the average over W ranks:
 *
 *   P = M Q             [n, r]    summed over ranks, then its columns are made orthonormal
 *   Q = M^T P           [m, r]    summed over ranks, divided by W: Q of the next backward starts from it
 *   average ~ P Q^T     and the error is M - P Q^T
 *
 * One all_reduce has P of all matrices of a bucket, and what is not factorized; a second one has Q.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "lockstep/rng.h"
#include "parallel/hook.h"

#define START       1000
#define LEAST_START 2
#define SMALLER     2  /* factors are used where they have at most one element in so many of the matrix */
#define LINE        16 /* floats of a cache line: pieces begin at multiples */

/* A parameter's gradient. */
typedef struct factors {
    size_t n, m;  /* the matrix; a parameter that travels in full has n m elements, too */
    int r;        /* columns of P and Q; 0: it travels in full */
    float *error; /* [n, m] of this rank; NULL: no feedback */
} factors;

typedef struct powersgd {
    ls_comm_hook hook;
    ls_powersgd_config c;
    int64_t backwards; /* that have started */
    factors *f;        /* owned: [nparams] */
    float *p;          /* P as [r][n], or what travels in full, of one parameter after another, bucket by bucket */
    float *q;          /* Q as [r][m], in the same way; it stays until the next backward */
    size_t p_start, q_start;   /* where the bucket that starts next begins in p and q */
    size_t p_finish, q_finish; /* the same of the bucket that finishes next */
} powersgd;

static size_t up(size_t n) { return (n + LINE - 1) / LINE * LINE; }

/* --- memory ------------------------------------------------------------------------------------------- */

static void shape_of(const ls_param *p, int rank, factors *f)
{
    const size_t n = (size_t)p->t.dim[0], count = (size_t)ls_tensor_count(&p->t), m = count / n;
    size_t r = (size_t)rank < n ? (size_t)rank : n;
    if (m < r) r = m;
    *f = (factors){ .n = n, .m = m, .r = p->t.ndim > 1 && (n + m) * r * SMALLER < count ? (int)r : 0 };
}

static size_t room_p(const factors *f) { return up(f->r ? f->n * (size_t)f->r : f->n * f->m); }
static size_t room_q(const factors *f) { return up(f->m * (size_t)f->r); }

static ls_status take(ls_group *g, size_t count, float **out)
{
    void *p = NULL;
    if (count) LS_TRY(ls_alloc(ls_group_world(g), count * sizeof(float), LS_MEM_COMM, &p));
    if (count && !ls_hook_dry(g)) memset(p, 0, count * sizeof(float));
    *out = p;
    return LS_OK;
}

static ls_status attach(ls_comm_hook *h, ls_group *g, const ls_params *ps, size_t most)
{
    powersgd *s = (powersgd *)(void *)h;
    size_t p = 0, q = 0, error = 0;
    float *at;
    (void)most;
    s->f = calloc((size_t)ps->n, sizeof *s->f);
    if (!s->f) return ls_fail(LS_NO_MEMORY, "PowerSGD of %d parameters", ps->n);
    for (int i = 0; i < ps->n; i++) {
        factors *f = &s->f[i];
        shape_of(&ps->item[i], s->c.rank, f);
        p += room_p(f);
        q += room_q(f);
        if (f->r && !s->c.no_feedback) error += f->n * f->m;
    }
    LS_TRY(take(g, p, &s->p));
    LS_TRY(take(g, q, &s->q));
    LS_TRY(take(g, error, &at));
    for (int i = 0; i < ps->n && error; i++) {
        factors *f = &s->f[i];
        if (!f->r) continue;
        f->error = at;
        at += f->n * f->m;
    }
    return LS_OK;
}

static void destroy(ls_comm_hook *h)
{
    powersgd *s = (powersgd *)(void *)h;
    free(s->f);
    free(s);
}

/* --- products ------------------------------------------------------------------------------------------- */

LS_KERNEL static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

LS_KERNEL static float dot(const float *restrict a, const float *restrict b, size_t n)
{
    float part[LINE] = { 0 }, sum = 0.0f;
    const size_t whole = n / LINE * LINE;
    for (size_t i = 0; i < whole; i += LINE)
        for (size_t k = 0; k < LINE; k++) part[k] += a[i + k] * b[i + k];
    for (size_t i = whole; i < n; i++) sum += a[i] * b[i];
    for (size_t k = 0; k < LINE; k++) sum += part[k];
    return sum;
}

/* to += scale * from */
LS_KERNEL static void add_scaled(float *restrict to, const float *restrict from, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += scale * from[i];
}

LS_KERNEL static void times(float *x, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

/* P = M Q */
static void multiply(const factors *f, const float *M, const float *q, float *p)
{
    for (size_t i = 0; i < f->n; i++)
        for (int k = 0; k < f->r; k++) p[(size_t)k * f->n + i] = dot(M + i * f->m, q + (size_t)k * f->m, f->m);
}

/* Q = M^T P */
static void multiply_transposed(const factors *f, const float *M, const float *p, float *q)
{
    memset(q, 0, (size_t)f->r * f->m * sizeof *q);
    for (size_t i = 0; i < f->n; i++)
        for (int k = 0; k < f->r; k++) add_scaled(q + (size_t)k * f->m, M + i * f->m, p[(size_t)k * f->n + i], f->m);
}

/* Gram and Schmidt: makes r vectors of n elements orthonormal. A vector that depends on those before it becomes zero;
 * returns the first such vector, or r. */
static int orthonormalize(float *x, int r, size_t n)
{
    int dependent = r;
    for (int k = 0; k < r; k++) {
        float *v = x + (size_t)k * n;
        const float before = sqrtf(dot(v, v, n));
        for (int twice = 0; twice < 2; twice++) /* rounding leaves some of the others in it the first time */
            for (int j = 0; j < k; j++) add_scaled(v, x + (size_t)j * n, -dot(v, x + (size_t)j * n, n), n);
        const float norm = sqrtf(dot(v, v, n));
        const bool depends = !(norm > 1e-5f * before);
        if (depends && k < dependent) dependent = k;
        times(v, depends ? 0.0f : 1.0f / norm, n);
    }
    return dependent;
}

/* --- a backward ----------------------------------------------------------------------------------------- */

static bool factorizes(const powersgd *s) { return s->backwards > s->c.start; }

/* Q of parameter i to start from, the same on all ranks. Random vectors replace those that depend on others: of a
 * gradient that was zero, say. */
static void prepare_q(const powersgd *s, int i, float *q)
{
    const factors *f = &s->f[i];
    const uint64_t stream = ls_stream(LS_STREAM_FACTORS, (uint64_t)s->backwards << 24 | (uint64_t)i);
    const bool first = s->backwards == s->c.start + 1 || s->c.no_warm_start;
    int from = first ? 0 : orthonormalize(q, f->r, f->m);
    if (from == f->r) return;
    const size_t known = (size_t)from * f->m;
    ls_philox_normal(s->c.seed, stream, known, (size_t)f->r * f->m - known, 1.0f, q + known);
    (void)orthonormalize(q, f->r, f->m);
}

static ls_status start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    powersgd *s = (powersgd *)(void *)h;
    if (b->index == 0) {
        s->backwards++;
        s->p_start = s->q_start = 0;
    }
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = b->data, .count = b->count, .dtype = LS_F32, .op = LS_AVG,
                       .bucket = 1 + b->index, .label = "PowerSGD" };
    if (!factorizes(s)) return ls_coll_start(g, &a, work);
    float *p = s->p + s->p_start, *q = s->q + s->q_start;
    a.out = p;
    for (int k = 0; k < b->nparams; k++) {
        const factors *f = &s->f[b->param[k]];
        float *M = b->data + b->at[k];
        if (!ls_hook_dry(g) && f->r) {
            if (f->error) add(M, f->error, f->n * f->m);
            prepare_q(s, b->param[k], q);
            multiply(f, M, q, p);
        }
        if (!ls_hook_dry(g) && !f->r) memcpy(p, M, f->n * f->m * sizeof *p);
        p += room_p(f);
        q += room_q(f);
    }
    s->p_start = (size_t)(p - s->p);
    s->q_start = (size_t)(q - s->q);
    a.count = (size_t)(p - (float *)a.out);
    a.op = LS_SUM;
    return ls_coll_start(g, &a, work);
}

/* M becomes P Q^T; what it was before less that is the error. */
static void rebuild(const factors *f, const float *p, const float *q, float *M)
{
    const size_t count = f->n * f->m;
    if (f->error) memcpy(f->error, M, count * sizeof *M);
    memset(M, 0, count * sizeof *M);
    for (size_t i = 0; i < f->n; i++)
        for (int k = 0; k < f->r; k++) add_scaled(M + i * f->m, q + (size_t)k * f->m, p[(size_t)k * f->n + i], f->m);
    if (f->error) add_scaled(f->error, M, -1.0f, count);
}

static ls_status finish(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count)
{
    powersgd *s = (powersgd *)(void *)h;
    const float by = 1.0f / (float)ls_group_size(g);
    (void)out, (void)count;
    if (!factorizes(s)) return LS_OK;
    if (b->index == 0) s->p_finish = s->q_finish = 0;
    float *const p0 = s->p + s->p_finish, *const q0 = s->q + s->q_finish, *p = p0, *q = q0;
    for (int k = 0; k < b->nparams; k++) {
        const factors *f = &s->f[b->param[k]];
        float *M = b->data + b->at[k];
        if (!ls_hook_dry(g) && f->r) {
            (void)orthonormalize(p, f->r, f->n);
            multiply_transposed(f, M, p, q);
        }
        if (!ls_hook_dry(g) && !f->r) {
            memcpy(M, p, f->n * f->m * sizeof *M);
            times(M, by, f->n * f->m);
        }
        p += room_p(f);
        q += room_q(f);
    }
    s->p_finish = (size_t)(p - s->p);
    s->q_finish = (size_t)(q - s->q);
    if (q == q0) return LS_OK; /* everything has travelled in full */
    LS_TRY(ls_all_reduce(g, NULL, q0, (size_t)(q - q0), LS_F32, LS_AVG));
    p = p0, q = q0;
    for (int k = 0; k < b->nparams; k++) {
        const factors *f = &s->f[b->param[k]];
        if (!ls_hook_dry(g) && f->r) rebuild(f, p, q, b->data + b->at[k]);
        p += room_p(f);
        q += room_q(f);
    }
    return LS_OK;
}

ls_status ls_hook_powersgd(const ls_powersgd_config *c, ls_comm_hook **out)
{
    ls_powersgd_config d = c ? *c : (ls_powersgd_config){ 0 };
    *out = NULL;
    if (d.rank == 0) d.rank = 1;
    if (d.start == 0) d.start = START;
    if (d.rank < 1) return ls_fail(LS_BAD_CONFIG, "PowerSGD: rank is %d: expected 1 or more", d.rank);
    if (d.start < LEAST_START)
        return ls_fail(LS_BAD_CONFIG, "PowerSGD: start is %lld: expected at least %d, since DDP rebuilds its buckets after the first "
                       "backward", (long long)d.start, LEAST_START);
    powersgd *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "a communication hook");
    s->hook = (ls_comm_hook){ .name = "powersgd", .attach = attach, .start = start, .finish = finish, .destroy = destroy };
    s->c = d;
    *out = &s->hook;
    return LS_OK;
}
