/* gathered.c -- all_gathers parameter values unit by unit, and releases them after use. */
#include "parallel/gathered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/compiler.h"

/* The values of a unit, or of the root: one all_gather. */
typedef struct piece {
    int *param;           /* owned: [nparams] indices of parameters, in the order in which they lie */
    int nparams;
    ls_matrix_span *span; /* owned: [nparams] where each lies, in bytes */
    size_t nbytes;        /* of all, each in whole cache lines */
    char *data;           /* borrowed: a slot, or the root's memory; NULL: it has no memory now */
    bool whole;           /* all values were gathered */
    ls_work *work;        /* the all_gather in flight; NULL: none */
    char label[LS_UNIT_NAME], release[LS_UNIT_NAME]; /* for traces */
} piece;

struct ls_gathered {
    ls_ddp *d;       /* borrowed, as are the parameters */
    piece *piece;    /* owned, in the order of buckets: the last unit comes first, the root last */
    int npieces, nunits; /* all pieces; those of units */
    int *piece_of;   /* owned: [nbuckets] */
    char **slot;     /* owned: a stack of free slots, [nfree] of [nslots] */
    int nslots, nfree;
    char *root;      /* memory of the root; NULL: it has no parameters */
};

/* --- pieces ------------------------------------------------------------------------------------------- */

static bool in_bf16(const ls_gathered *v, const ls_param *p)
{
    return v->d->ps->bound == LS_BF16 && ls_param_bf16_nbytes(p) > 0;
}

static size_t elem_of(const ls_gathered *v, const ls_param *p)
{
    return in_bf16(v, p) ? sizeof(uint16_t) : sizeof(float);
}

static int unit_of(const ls_ddp *d, int k) { return d->ps->item[d->b[k].param[0]].unit; }

/* Adds the parameters of bucket k. */
static ls_status add_bucket(ls_gathered *v, piece *x, int k)
{
    const ls_bucket *b = &v->d->b[k];
    const size_t n = (size_t)(x->nparams + b->nparams);
    int *param = realloc(x->param, n * sizeof *param);
    if (param) x->param = param;
    ls_matrix_span *span = realloc(x->span, n * sizeof *span);
    if (span) x->span = span;
    if (!param || !span) return ls_fail(LS_NO_MEMORY, "gathering %zu parameters", n);
    for (int i = 0; i < b->nparams; i++) {
        const ls_param *p = &v->d->ps->item[b->param[i]];
        const size_t nbytes = (size_t)ls_tensor_count(&p->t) * elem_of(v, p), rows = (size_t)p->t.dim[0];
        x->param[x->nparams] = b->param[i];
        x->span[x->nparams++] = (ls_matrix_span){ .first = x->nbytes, .rows = rows, .row = nbytes / rows };
        x->nbytes += (nbytes + LS_BUCKET_ALIGN - 1) / LS_BUCKET_ALIGN * LS_BUCKET_ALIGN;
    }
    v->piece_of[k] = (int)(x - v->piece);
    return LS_OK;
}

static ls_status make_pieces(ls_gathered *v)
{
    const ls_ddp *d = v->d;
    v->piece = calloc((size_t)d->nbuckets, sizeof *v->piece);
    v->piece_of = calloc((size_t)d->nbuckets, sizeof *v->piece_of);
    if (!v->piece || !v->piece_of) return ls_fail(LS_NO_MEMORY, "gathering %d buckets", d->nbuckets);
    for (int k = 0; k < d->nbuckets; k++) {
        if (k == 0 || unit_of(d, k) != unit_of(d, k - 1)) {
            piece *x = &v->piece[v->npieces++];
            if (unit_of(d, k) >= 0) v->nunits = v->npieces;
            char whose[16] = "the root";
            if (unit_of(d, k) >= 0) snprintf(whose, sizeof whose, "unit %d", unit_of(d, k));
            snprintf(x->label, sizeof x->label, "values of %s", whose);
            snprintf(x->release, sizeof x->release, "release %s", whose);
        }
        LS_TRY(add_bucket(v, &v->piece[v->npieces - 1], k));
    }
    return LS_OK;
}

/* --- memory ------------------------------------------------------------------------------------------- */

static ls_status make_slots(ls_gathered *v)
{
    const int most = v->nunits, wanted = v->d->c.reshard == LS_RESHARD_NEVER ? most : v->d->c.prefetch + 1;
    ls_world *w = ls_group_world(v->d->g);
    size_t largest = 0;
    void *p;
    for (int i = 0; i < v->nunits; i++)
        if (v->piece[i].nbytes > largest) largest = v->piece[i].nbytes;
    v->nslots = v->nfree = wanted < most ? wanted : most;
    v->slot = calloc((size_t)v->nslots + 1, sizeof *v->slot);
    if (!v->slot) return ls_fail(LS_NO_MEMORY, "a list of %d slots", v->nslots);
    for (int s = 0; s < v->nslots; s++) {
        const ls_status st = ls_alloc(w, largest, LS_MEM_PARAM, &p);
        if (st < 0) return ls_while(st, "allocating the values of %d units; %s is the largest parameter", v->nslots,
                                    ls_params_largest(v->d->ps)->name);
        v->slot[s] = p;
        v->d->in_use.values += largest;
    }
    if (v->nunits == v->npieces) return LS_OK;
    const ls_status st = ls_alloc(w, v->piece[v->nunits].nbytes, LS_MEM_PARAM, &p);
    if (st < 0) return ls_while(st, "allocating the values of the root; %s is the largest parameter", ls_params_largest(v->d->ps)->name);
    v->root = p;
    v->d->in_use.values += v->piece[v->nunits].nbytes;
    return LS_OK;
}

/* Values and sums of gradients travel at the same time. */
static ls_group *group_of(const ls_gathered *v) { return v->d->second ? v->d->second : v->d->shards; }

/* Reserves the buffer in which the group packs a piece that travels over wires. */
static ls_status reserve(const ls_gathered *v)
{
    size_t most = 0;
    for (int i = 0; i < v->npieces; i++)
        if (v->piece[i].nbytes > most) most = v->piece[i].nbytes;
    return ls_group_reserve_spans(group_of(v), most);
}

ls_status ls_gathered_create(ls_ddp *d, ls_gathered **out)
{
    ls_gathered *v = *out = calloc(1, sizeof *v);
    if (!v) return ls_fail(LS_NO_MEMORY, "gathered values");
    v->d = d;
    LS_TRY(ls_group_second(d->shards, "values", &d->second));
    LS_TRY(make_pieces(v));
    LS_TRY(make_slots(v));
    return reserve(v);
}

void ls_gathered_destroy(ls_gathered *v)
{
    if (!v) return;
    for (int i = 0; i < v->npieces && v->piece; i++) {
        if (v->piece[i].work) (void)ls_work_wait(v->piece[i].work); /* peers may still be reading */
        free(v->piece[i].param);
        free(v->piece[i].span);
    }
    free(v->piece);
    free(v->piece_of);
    free(v->slot);
    free(v);
}

/* --- gathering ---------------------------------------------------------------------------------------- */

LS_KERNEL static void round_rows(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = ls_to_bf16(from[i]);
}

/* Writes this rank's rows to their place in the piece, in the dtype that operations read. */
static void write_own(const ls_gathered *v, const piece *x)
{
    for (int i = 0; i < x->nparams; i++) {
        const ls_param *p = &v->d->ps->item[x->param[i]];
        char *to = x->data + x->span[i].first + p->own.first * elem_of(v, p);
        if (in_bf16(v, p)) round_rows((uint16_t *)(void *)to, p->master, p->own.count);
        else memcpy(to, p->master, p->own.count * sizeof(float));
    }
}

/* Sets, or clears, the parameters' pointers to their values. */
static void show(const ls_gathered *v, const piece *x, bool there)
{
    for (int i = 0; i < x->nparams; i++) {
        ls_param *p = &v->d->ps->item[x->param[i]];
        void *at = there ? x->data + x->span[i].first : NULL;
        if (in_bf16(v, p)) p->t.bf16 = at;
        else p->t.data = at;
    }
}

static void release(ls_gathered *v, piece *x)
{
    if (!x->whole) return;
    ls_tracer_mark(ls_world_tracer(ls_group_world(v->d->g)), x->release, 0);
    show(v, x, false);
    x->whole = false;
    if (x != &v->piece[v->nunits]) v->slot[v->nfree++] = x->data;
    x->data = NULL;
}

/* Backward never came for a forward, or a forward has failed: its units still have slots. */
static LS_COLD ls_status free_slot(ls_gathered *v)
{
    for (int i = 0; i < v->nunits && v->nfree == 0; i++) {
        piece *x = &v->piece[i];
        ls_work *work = x->work;
        if (!x->whole && !work) continue;
        x->work = NULL;
        if (work) LS_TRY(ls_work_wait(work));
        x->whole = true;
        release(v, x);
    }
    return LS_OK;
}

static ls_status start(ls_gathered *v, piece *x)
{
    if (x->whole || x->work) return LS_OK;
    if (x != &v->piece[v->nunits] && v->nfree == 0) LS_TRY(free_slot(v));
    const ls_matrix_span *last = &x->span[x->nparams - 1];
    x->data = x == &v->piece[v->nunits] ? v->root : v->slot[--v->nfree];
    if (!v->d->dry) write_own(v, x);
    const ls_coll_args a = { .coll = LS_ALL_GATHER, .dtype = LS_U8, .out = x->data,
                             .count = last->first + last->rows * last->row, .span = x->span,
                             .nspans = x->nparams, .label = x->label };
    return ls_coll_start(group_of(v), &a, &x->work);
}

static ls_status ensure(ls_gathered *v, piece *x)
{
    LS_TRY(start(v, x));
    if (x->whole) return LS_OK;
    ls_work *work = x->work;
    x->work = NULL;
    LS_TRY(ls_work_wait(work));
    x->whole = true;
    show(v, x, true);
    return LS_OK;
}

/* NULL: the unit has no parameters of its own. */
static piece *piece_of(const ls_gathered *v, const ls_unit *u)
{
    const ls_range mine = ls_dp_unit(v->d, u);
    return mine.count ? &v->piece[v->piece_of[v->d->bucket_of[mine.first]]] : NULL;
}

/* A group carries 64 collectives at once, of which buckets may be LS_BUCKETS_IN_FLIGHT. */
static int ahead(const ls_gathered *v)
{
    const int most = 64 - LS_BUCKETS_IN_FLIGHT - 2;
    return v->d->c.prefetch < most ? v->d->c.prefetch : most;
}

ls_status ls_gathered_enter(ls_gathered *v, const ls_unit *u, bool backward)
{
    piece *x = piece_of(v, u);
    if (v->root) LS_TRY(ensure(v, &v->piece[v->nunits]));
    if (!x) return LS_OK;
    LS_TRY(ensure(v, x));
    const int at = (int)(x - v->piece), step = backward ? 1 : -1;
    for (int i = at + step, n = ahead(v); n > 0 && i >= 0 && i < v->nunits && v->nfree > 0; i += step, n--)
        LS_TRY(start(v, &v->piece[i]));
    return LS_OK;
}

void ls_gathered_leave(ls_gathered *v, const ls_unit *u, bool backward, bool returns)
{
    piece *x = piece_of(v, u);
    const ls_reshard how = v->d->c.reshard;
    const bool next = returns && !backward && x == v->piece; /* backward begins with the last unit */
    if (x && how != LS_RESHARD_NEVER && !(next && how == LS_RESHARD_DEFAULT)) release(v, x);
}

ls_status ls_gathered_expire(ls_gathered *v)
{
    for (int i = 0; i < v->npieces; i++) { /* nothing is in flight after a backward, which ends with the first unit */
        if (v->piece[i].work) LS_TRY(ensure(v, &v->piece[i]));
        release(v, &v->piece[i]);
    }
    return LS_OK;
}
