/* slots.c -- memory for sharded gradients: two slots that units alternate between. */
#include "parallel/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "parallel/partial.h"

/* Where a bucket lies during backward, and which bucket must be reduced first. */
typedef struct turn {
    float *data;
    int before; /* last bucket of the unit that uses the slot before; -1: none */
} turn;

struct ls_slots {
    turn *turn;  /* owned: [nbuckets] */
    float *slot; /* the first one: large enough for the largest unit */
};

/* --- reduced gradients of own rows --------------------------------------------------------------- */

/* The rows of a bucket lie side by side, as reduce_scatter writes them. */
ls_status ls_slots_bind(ls_group *g, ls_params *ps, const ls_shard_plan *l, ls_dtype dtype, ls_arena *own)
{
    size_t count = 0;
    void *p;
    (void)g, (void)dtype;
    for (int i = 0; i < ps->n; i++) count += ps->item[i].own.count;
    const ls_status st = ls_arena_alloc(own, count * sizeof(float), LS_MEM_GRAD, &p);
    if (st < 0) return ls_while(st, "allocating reduced gradients of this rank's rows: %s is the largest parameter", ls_params_largest(ps)->name);
    float *at = p;
    for (int k = 0; k < l->nbuckets; k++)
        for (int i = 0; i < ps->n; i++) {
            ls_param *q = &ps->item[l->order[i]];
            if (l->number[i] != k) continue;
            q->grad.data = NULL;
            q->dmaster = at;
            LS_TRY(ls_arena_assign(own, at, q->own.count * sizeof(float), q->unit));
            at += q->own.count;
        }
    return LS_OK;
}

/* --- places ------------------------------------------------------------------------------------- */

static int unit_of(const ls_ddp *d, int k) { return d->ps->item[d->b[k].param[0]].unit; }

/* How many buckets, from `first` on, belong to one unit. */
static int run_of(const ls_ddp *d, int first)
{
    int n = 1;
    while (first + n < d->nbuckets && unit_of(d, first + n) == unit_of(d, first)) n++;
    return n;
}

/* Elements of buckets [first, first + n). */
static size_t room_of(const ls_ddp *d, int first, int n)
{
    size_t count = 0;
    for (int k = first; k < first + n; k++) count += d->b[k].count;
    return count;
}

/* Returns the elements of a slot: those of the largest unit. *nslots: how many are needed. *root: elements of the
 * root. */
static size_t measure(const ls_ddp *d, int *nslots, size_t *root)
{
    size_t most = 0;
    *nslots = 0;
    *root = 0;
    for (int k = 0, n; k < d->nbuckets; k += n) {
        n = run_of(d, k);
        const size_t room = room_of(d, k, n);
        if (unit_of(d, k) < 0) {
            *root += room;
            continue;
        }
        if (room > most) most = room;
        if (*nslots < LS_SLOTS) ++*nslots;
    }
    return most;
}

static void put_buckets(ls_slots *s, const ls_ddp *d, int first, int n, float *data, int before)
{
    for (int k = first; k < first + n; data += d->b[k++].count) s->turn[k] = (turn){ data, before };
}

/* Assigns slots in advance: backward visits units in the order of their buckets. */
static void place_all(ls_slots *s, const ls_ddp *d, size_t slot, int nslots)
{
    int last[LS_SLOTS] = { -1, -1 }, at = 0;
    float *root = s->slot + slot * (size_t)nslots;
    for (int k = 0, n; k < d->nbuckets; k += n) {
        n = run_of(d, k);
        if (unit_of(d, k) < 0) {
            put_buckets(s, d, k, n, root, -1);
            root += room_of(d, k, n);
            continue;
        }
        put_buckets(s, d, k, n, s->slot + slot * (size_t)at, last[at]);
        last[at] = k + n - 1;
        at = (at + 1) % LS_SLOTS;
    }
}

ls_status ls_slots_create(ls_ddp *d, ls_slots **out)
{
    int nslots;
    size_t root;
    const size_t slot = measure(d, &nslots, &root), nbytes = (slot * (size_t)nslots + root) * sizeof(float);
    void *p;
    ls_slots *s = *out = calloc(1, sizeof *s);
    if (s) s->turn = calloc((size_t)d->nbuckets, sizeof *s->turn);
    if (!s || !s->turn) return ls_fail(LS_NO_MEMORY, "the places of %d buckets", d->nbuckets);
    const ls_status st = ls_alloc(ls_group_world(d->g), nbytes, LS_MEM_GRAD, &p);
    if (st < 0)
        return ls_while(st, "allocating gradients of the root and of %d units at a time; %s is the largest parameter",
                        nslots, ls_params_largest(d->ps)->name);
    s->slot = p;
    d->in_use.gradients = nbytes;
    place_all(s, d, slot, nslots);
    for (int k = 0; k < d->nbuckets; k++) ls_buckets_put(d, k, NULL);
    return LS_OK;
}

void ls_slots_destroy(ls_slots *s)
{
    if (!s) return;
    free(s->turn);
    free(s);
}

/* --- a backward ----------------------------------------------------------------------------------- */

/* The first reduction since the last step writes to the reduced gradients; ls_slots_arrived adds later ones. With
 * partial sums each that begins a pair does. */
static void put_bucket(const ls_slots *s, ls_ddp *d, int k)
{
    const ls_param *first = &d->ps->item[d->b[k].param[0]];
    const bool adds = d->partial ? !ls_partial_begins(d) : first->dmaster_ready;
    d->b[k].sums = adds || !d->b[k].span ? NULL : first->dmaster; /* all_reduced: it stays in place */
    ls_buckets_put(d, k, s->turn[k].data);
}

void ls_slots_begin(ls_slots *s, ls_ddp *d)
{
    for (int k = 0; k < d->nbuckets; k++) {
        if (unit_of(d, k) < 0) put_bucket(s, d, k);
        else ls_buckets_put(d, k, NULL); /* a backward that has failed may have left it there */
    }
}

/* Bucket k must be reduced before unit u can start, but one of its parameters has no gradient. */
static LS_COLD ls_status incomplete(const ls_ddp *d, int k, const ls_unit *u)
{
    const ls_bucket *b = &d->b[k];
    int i = 0;
    while (i < b->nparams - 1 && d->ready[b->param[i]]) i++;
    return ls_fail(LS_INVALID,
                   "zero_stage %d: the gradients of unit %s need the memory of %s, which got none on rank %d: every "
                   "parameter must take part in the loss",
                   d->c.zero_stage, u->name, d->ps->item[b->param[i]].name, ls_group_rank(d->g));
}

ls_status ls_slots_enter(ls_slots *s, ls_ddp *d, const ls_unit *u)
{
    const ls_range mine = ls_dp_unit(d, u);
    for (size_t i = mine.first; i < mine.first + mine.count; i++) {
        const int k = d->bucket_of[i];
        if (d->b[k].data) continue;
        while (d->waited <= s->turn[k].before) {
            if (d->waited == d->next) return incomplete(d, d->next, u);
            LS_TRY(ls_buckets_wait_one(d));
        }
        put_bucket(s, d, k);
    }
    return LS_OK;
}

LS_KERNEL static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

ls_status ls_slots_arrived(ls_ddp *d, int k)
{
    for (int i = 0; i < d->b[k].nparams; i++) {
        ls_param *p = &d->ps->item[d->b[k].param[i]];
        const float *sum = (const float *)p->grad.data + p->own.first;
        if (!d->b[k].sums && d->partial) ls_partial_rows(d, (int)(p - d->ps->item), sum);
        else if (!d->b[k].sums && !d->dry && p->dmaster_ready) add(p->dmaster, sum, p->own.count);
        else if (!d->b[k].sums && !d->dry) memcpy(p->dmaster, sum, p->own.count * sizeof *sum); /* zeroed since */
        p->dmaster_ready = true;
        p->t.grad_ready = false; /* the next backward writes, it does not add */
    }
    ls_buckets_put(d, k, NULL);
    return LS_OK;
}

float *ls_slots_lend(const ls_slots *s, const ls_ddp *d, const ls_param *p)
{
    if (p->unit >= 0) return s->slot;
    const int i = (int)(p - d->ps->item), k = d->bucket_of[i];
    int at = 0;
    while (d->b[k].param[at] != i) at++;
    return s->turn[k].data + d->b[k].at[at];
}
