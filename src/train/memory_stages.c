/* memory_stages.c -- the fastest cut of whole layers into pipeline stages whose ranks all fit memory.limit. */
#include "train/memory_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/memory.h"
#include "train/parallelize.h"

#define MIB 1048576.0

/* A rank's need follows from the units of its own stages alone, so each such set is planned once. */
typedef struct known {
    int rank;     /* of the pipeline */
    int *bounds;  /* owned: [2 x chunks] */
    size_t bytes;
} known;

typedef struct fitting {
    const ls_train_config *c;
    const ls_model_config *mc;
    ls_train_config tried; /* with a cut */
    ls_pipe_config pipe;
    int size, ranks, stages, apart; /* ranks of one stage and the next are `apart` */
    bool ends;                      /* the model has an embedding and a head */
    int *number;                    /* owned: [chunks], stages of a rank */
    known *plan;                    /* owned: [n] */
    int n, cap;
} fitting;

/* Layers of each stage, as pipeline.split has them. */
static void split_of(const fitting *f, const int *first, ls_train_config *c)
{
    const int last = f->stages - 1;
    c->pipeline.split.n = f->stages;
    for (int s = 0; s < f->stages; s++)
        c->pipeline.split.v[s] = (double)(first[s + 1] - first[s] - (f->ends && s == 0) - (f->ends && s == last));
}

static known *find(const fitting *f, int rank, const int *bounds, int chunks)
{
    for (int i = 0; i < f->n; i++)
        if (f->plan[i].rank == rank && memcmp(f->plan[i].bounds, bounds, 2 * (size_t)chunks * sizeof *bounds) == 0)
            return &f->plan[i];
    return NULL;
}

/* Takes bounds. */
static ls_status add(fitting *f, int rank, int *bounds, size_t bytes)
{
    if (f->n == f->cap) {
        const int cap = f->cap ? 2 * f->cap : 64;
        known *more = realloc(f->plan, (size_t)cap * sizeof *more);
        if (!more) {
            free(bounds);
            return ls_fail(LS_NO_MEMORY, "a list of %d plans", cap);
        }
        f->plan = more;
        f->cap = cap;
    }
    f->plan[f->n++] = (known){ rank, bounds, bytes };
    return LS_OK;
}

static ls_status need_of_rank(fitting *f, const int *first, int rank, size_t *bytes)
{
    const int chunks = f->stages / f->ranks;
    int *bounds = malloc(2 * (size_t)chunks * sizeof *bounds);
    ls_memory_plan p;
    if (!bounds) return ls_fail(LS_NO_MEMORY, "%d stages", chunks);
    ls_pipe_stages_of(&f->pipe, f->ranks, rank, f->number);
    for (int i = 0; i < chunks; i++) {
        bounds[2 * i] = first[f->number[i]];
        bounds[2 * i + 1] = first[f->number[i] + 1];
    }
    const known *k = find(f, rank, bounds, chunks);
    if (k) {
        *bytes = k->bytes;
        free(bounds);
        return LS_OK;
    }
    if (f->n == LS_MEMORY_STAGES_PLANS) { /* of further cuts it is not known whether they fit: they are not taken */
        *bytes = SIZE_MAX;
        free(bounds);
        return LS_OK;
    }
    split_of(f, first, &f->tried);
    const ls_status st = ls_memory_plan_make(&f->tried, f->mc, rank * f->apart, f->size, &p);
    *bytes = p.total;
    if (st == LS_OK) return add(f, rank, bounds, p.total);
    free(bounds);
    return st;
}

static ls_status need(void *arg, const int *first, size_t *bytes)
{
    fitting *f = arg;
    *bytes = 0;
    for (int r = 0; r < f->ranks; r++) {
        size_t mine;
        LS_TRY(need_of_rank(f, first, r, &mine));
        if (mine > *bytes) *bytes = mine;
    }
    return LS_OK;
}

/* The place of rank 0, as a dry world has it. */
static ls_status place_of(const fitting *f, ls_place *out, bool *lm)
{
    const ls_world_opts o = ls_train_dry_opts(f->c);
    ls_train_dry d;
    const ls_status st = ls_train_dry_open(f->c, f->mc, 0, f->size, NULL, &o, &d);
    if (st == LS_OK) *out = d.par.model->place, *lm = d.par.model->cls->lm;
    ls_train_dry_close(&d);
    return st;
}

static void text_of(const ls_train_config *c, char *out, size_t n)
{
    size_t at = 0;
    for (int s = 0; s < c->pipeline.split.n && at < n; s++)
        at += (size_t)snprintf(out + at, n - at, "%s%g", s ? "," : "", c->pipeline.split.v[s]);
}

static ls_status search(fitting *f, const ls_plan *p, size_t limit, size_t before, int *first, ls_memory_stages *out)
{
    const ls_pipe_memory memory = { .limit = limit, .need = need, .arg = f };
    ls_place place;
    size_t now;
    char layers[160];
    LS_TRY(place_of(f, &place, &f->ends));
    if (f->ends && f->stages > f->mc->lm.n_layer + 2) return LS_OK; /* some have half a layer: nothing to choose */
    LS_TRY(ls_plan_cut_layers(p, f->mc, &place, &memory, first));
    LS_TRY(need(f, first, &now));
    if (now > limit) return LS_OK;
    split_of(f, first, &out->c);
    text_of(&out->c, layers, sizeof layers);
    snprintf(out->said, sizeof out->said, "pipeline: %s layers per stage, the fastest cut of whole layers that fits memory.limit: a rank needs up to "
             "%.1f MiB, and with the shortest step %.1f MiB; %.1f MiB per rank are allowed", layers, (double)now / MIB,
             (double)before / MIB, (double)limit / MIB);
    return LS_OK;
}

ls_status ls_memory_stages_fit(const ls_train_config *c, const ls_model_config *mc, int size, ls_memory_stages *out)
{
    ls_plan p;
    ls_memory_plan most;
    int rank, apart[LS_AXES];
    out->c = *c;
    *out->said = '\0';
    out->planned = 0;
    if (!c->memory.limit || !c->memory.check || c->pipeline.split.n || c->parallel.pp < 2) return LS_OK;
    LS_TRY(ls_train_plan(c, size, &p));
    const int stages = ls_plan_stages(&p);
    const size_t limit = (size_t)(c->memory.limit / (uint64_t)size);
    if (size % (int)c->parallel.pp != 0 || stages > LS_OPT_MAX_INTS) return LS_OK;
    LS_TRY(ls_memory_plan_largest(c, mc, size, &rank, &most));
    if (most.total <= limit) return LS_OK;

    ls_mesh_strides(p.size, p.order, apart);
    fitting f = { .c = c, .mc = mc, .tried = *c, .pipe = ls_plan_pipe(&p), .size = size, .ranks = p.size[LS_AXIS_PP],
                  .stages = stages, .apart = apart[LS_AXIS_PP] };
    int *first = calloc((size_t)stages + 1, sizeof *first);
    f.number = calloc((size_t)stages, sizeof *f.number);
    const ls_status st = first && f.number ? search(&f, &p, limit, most.total, first, out)
                                           : ls_fail(LS_NO_MEMORY, "%d pipeline stages", stages);
    out->planned = f.n;
    for (int i = 0; i < f.n; i++) free(f.plan[i].bounds);
    free(f.plan);
    free(f.number);
    free(first);
    return st < 0 ? ls_while(st, "cutting the model into stages that fit memory.limit") : LS_OK;
}
