/* partial.c -- partial sums of gradients, which wait for their neighbours. */
#include "parallel/partial.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/share.h"

#define LEVELS 31
#define BLOCK  ((int64_t)4 << 10) /* elements that a thread adds at a time */

struct ls_partial {
    int nlevels;            /* with memory here: all, or all but level 0 */
    float *level[LEVELS];   /* borrowed from the world's arena; of sums of rows level[0] is NULL */
    size_t *at;             /* owned: [nparams] where a parameter's sums begin in a level, elements */
    int round, next;        /* number of this backward and of the next one in their steps */
    int most;               /* backwards of a step */
    size_t nbytes;          /* of all levels */
    bool last;
};

/* --- memory ------------------------------------------------------------------------------------------------------- */

static size_t count_of(const ls_ddp *d, const ls_param *p)
{
    return d->every_backward ? p->own.count : (size_t)ls_tensor_count(&p->t);
}

static size_t padded(size_t count)
{
    return (count * sizeof(float) + LS_BUCKET_ALIGN - 1) / LS_BUCKET_ALIGN * LS_BUCKET_ALIGN;
}

static ls_status alloc_level(const ls_ddp *d, size_t nbytes, float **out)
{
    void *p;
    ls_world *w = ls_group_world(d->g);
    const ls_status st = ls_alloc(w, nbytes, LS_MEM_GRAD, &p);
    if (st < 0)
        return ls_while(st, "allocating partial sums of gradients (ls_ddp_config.tree) of %d backwards: %s is the largest parameter",
                        d->c.micro_batches, ls_params_largest(d->ps)->name);
    *out = p;
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *q = &d->ps->item[i];
        if (count_of(d, q) > 0)
            LS_TRY(ls_assign(w, *out + d->partial->at[i], count_of(d, q) * sizeof(float), q->unit));
    }
    return LS_OK;
}

ls_status ls_partial_create(ls_ddp *d)
{
    size_t nbytes = 0;
    if (!d->c.tree) return LS_OK;
    if (d->unused)
        return ls_fail(LS_UNSUPPORTED, "%s with ls_ddp_config.tree: the sums need every parameter in every backward",
                       d->c.find_unused ? "find_unused" : "static_graph");
    struct ls_partial *x = d->partial = calloc(1, sizeof *x);
    if (x) x->at = calloc((size_t)d->ps->n, sizeof *x->at);
    if (!x || !x->at) return ls_fail(LS_NO_MEMORY, "partial sums of %d parameters", d->ps->n);
    for (int i = 0; i < d->ps->n; i++) {
        x->at[i] = nbytes / sizeof(float);
        nbytes += padded(count_of(d, &d->ps->item[i]));
    }
    x->most = d->c.micro_batches > 0 ? d->c.micro_batches : 1;
    while (x->nlevels < LEVELS - 1 && (x->most - 1) >> x->nlevels) x->nlevels++;
    for (int b = d->every_backward; b < x->nlevels && nbytes > 0; b++, x->nbytes += nbytes)
        LS_TRY(alloc_level(d, nbytes, &x->level[b]));
    return LS_OK;
}

size_t ls_ddp_partial_sums(const ls_ddp *d) { return d->partial ? d->partial->nbytes : 0; }

void ls_partial_destroy(struct ls_partial *x)
{
    if (x) free(x->at);
    free(x);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* to = from + the sums that wait, the fewest first. `to` may be `from` or one of them. */
typedef struct sum {
    float *to;
    const float *from, *wait[LEVELS];
    int nwait;
    int64_t count;
} sum;

LS_KERNEL static void add_one(float *to, const float *a, const float *x, size_t n)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) to[i] = a[i] + x[i];
}

LS_KERNEL static void add_two(float *to, const float *b, const float *a, const float *x, size_t n)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) to[i] = b[i] + (a[i] + x[i]);
}

static void add_blocks(const void *call, int64_t first, int64_t count)
{
    const sum *s = call;
    const int64_t at = first * BLOCK, left = s->count - at;
    for (int64_t done = 0, all = left < count * BLOCK ? left : count * BLOCK; done < all; done += BLOCK) {
        const size_t n = (size_t)(all - done < BLOCK ? all - done : BLOCK), k = (size_t)(at + done);
        const float *x = s->from + k;
        int i = 0;
        if (s->nwait == 0 && s->to != s->from) memcpy(s->to + k, x, n * sizeof *x);
        for (; i + 2 <= s->nwait; i += 2, x = s->to + k) add_two(s->to + k, s->wait[i + 1] + k, s->wait[i] + k, x, n);
        if (i < s->nwait) add_one(s->to + k, s->wait[i] + k, x, n);
    }
}

/* Where sums of parameter i wait. */
static float *waits(const ls_ddp *d, int i, int b)
{
    const struct ls_partial *x = d->partial;
    return d->every_backward && b == 0 ? d->ps->item[i].dmaster : x->level[b] + x->at[i];
}

/* `from` is parameter i's gradient of this backward, and `result` where the step's sum is to be. */
static void carry(ls_ddp *d, int i, const float *from, float *result)
{
    const struct ls_partial *x = d->partial;
    const unsigned round = (unsigned)x->round;
    sum s = { .from = from, .count = (int64_t)count_of(d, &d->ps->item[i]) };
    int b = 0;
    for (; b < x->nlevels && (x->last ? round >> b : round >> b & 1u); b++)
        if (round >> b & 1u) s.wait[s.nwait++] = waits(d, i, b);
    s.to = x->last ? result : waits(d, i, b);
    if (!d->dry) ls_parallel_for(add_blocks, &s, (s.count + BLOCK - 1) / BLOCK, 1, s.count * (int64_t)sizeof *from);
}

/* --- a backward --------------------------------------------------------------------------------------------------- */

bool ls_partial_begins(const ls_ddp *d)
{
    const struct ls_partial *x = d->partial;
    return x->round % 2 == 0 && (!x->last || x->round == 0);
}

/* Own gradients that begin a pair are written where they wait. */
static bool written_in_place(const ls_ddp *d)
{
    return !d->every_backward && !d->partial->last && ls_partial_begins(d);
}

ls_status ls_partial_begin(ls_ddp *d, bool last)
{
    struct ls_partial *x = d->partial;
    x->round = x->next;
    x->last = last;
    x->next = last ? 0 : x->round + 1;
    if (x->round >= x->most || (!last && x->next >= x->most))
        return ls_fail(LS_INVALID, "a step with more backwards than the %d of ls_ddp_config.micro_batches: with "
                       "ls_ddp_config.tree their number is given beforehand", x->most);
    return LS_OK;
}

void ls_partial_place(ls_ddp *d)
{
    for (int k = 0; !d->every_backward && k < d->nbuckets; k++) ls_bucket_point(d, &d->b[k]);
    for (int i = 0; written_in_place(d) && i < d->ps->n; i++) d->ps->item[i].grad.data = waits(d, i, 0);
}

void ls_partial_grad_ready(ls_ddp *d, int i)
{
    ls_param *p = &d->ps->item[i];
    if (d->every_backward || d->state == LS_DP_IDLE) return;
    if (!written_in_place(d)) carry(d, i, p->grad.data, p->grad.data);
    if (!d->partial->last) p->t.grad_ready = false; /* the next backward writes, it does not add */
}

void ls_partial_rows(ls_ddp *d, int i, const float *rows) { carry(d, i, rows, d->ps->item[i].dmaster); }
