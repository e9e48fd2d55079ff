/* kept.c -- whole tensors of which each rank keeps a part: put together, one at a time, for who writes them. */
#include <stdlib.h>
#include <string.h>

#include "lockstep/ckpt.h"
#include "lockstep/group.h"

/* What a rank says of its part of a tensor. */
enum { DIM, RUNS, OF, FIRST, PART, FIRST_RUN, OF_RUNS, KEPT_FIRST, KEPT, WORDS };

struct ls_kept {
    ls_group *g;             /* borrowed */
    int64_t (*words)[WORDS]; /* owned, as all here: [size] */
    size_t *counts;          /* [size] elements that each rank keeps */
    float *packed, *whole;   /* [room] rank by rank; and where they belong */
    size_t room;
};

ls_status ls_kept_create(ls_group *g, ls_kept **out)
{
    const size_t size = (size_t)ls_group_size(g);
    ls_kept *k = *out = calloc(1, sizeof *k);
    if (k) k->words = calloc(size, sizeof *k->words);
    if (k) k->counts = calloc(size, sizeof *k->counts);
    if (k) k->g = g;
    if (k && k->words && k->counts) return LS_OK;
    ls_kept_destroy(k);
    *out = NULL;
    return ls_fail(LS_NO_MEMORY, "the parts that %zu ranks keep", size);
}

void ls_kept_destroy(ls_kept *k)
{
    if (!k) return;
    free(k->words);
    free(k->counts);
    free(k->packed);
    free(k->whole);
    free(k);
}

static ls_status make_room(ls_kept *k, const char *name, size_t count)
{
    if (count <= k->room) return LS_OK;
    free(k->packed);
    free(k->whole);
    k->packed = malloc(count * sizeof *k->packed);
    k->whole = malloc(count * sizeof *k->whole);
    k->room = k->packed && k->whole ? count : 0;
    return k->room ? LS_OK : ls_fail(LS_NO_MEMORY, "parameter '%s': %zu elements to put together", name, count);
}

/* What every rank keeps of p; *mine: where that of this rank begins in the packed elements. */
static ls_status tell(ls_kept *k, const ls_param *p, size_t global, size_t *mine)
{
    const int rank = ls_group_rank(k->g), size = ls_group_size(k->g);
    const ls_part part = p->part.runs > 0 ? p->part : ls_part_all(&p->t);
    const int64_t words[WORDS] = { part.dim,       part.runs,    part.of, part.first, part.count,
                                   part.first_run, part.of_runs, (int64_t)p->keeps.first, (int64_t)p->keeps.count };
    size_t all = 0;
    memcpy(k->words[rank], words, sizeof words);
    LS_TRY(ls_all_gather(k->g, NULL, k->words, (size_t)size * WORDS, LS_I64));
    for (int r = 0; r < size; r++) {
        if (r == rank) *mine = all;
        all += k->counts[r] = (size_t)k->words[r][KEPT];
    }
    if (all == global) return LS_OK;
    return ls_fail(LS_INVALID, "parameter '%s': ranks keep %zu elements together, the whole tensor has %zu: every element "
                   "is to be kept by one rank (ls_param.keeps)", p->name, all, global);
}

/* The elements of rank r, which follow each other at `from`, go where they belong. */
static void place(const ls_kept *k, const ls_tensor *global, int r, const float *from)
{
    const int64_t *w = k->words[r], end = w[KEPT_FIRST] + w[KEPT];
    const ls_part part = { .dim = (int)w[DIM], .runs = (int)w[RUNS], .of = w[OF], .first = w[FIRST], .count = w[PART],
                           .first_run = (int)w[FIRST_RUN], .of_runs = (int)w[OF_RUNS] };
    ls_tensor here = *global;
    here.dim[part.dim] = part.runs * part.count;
    for (int64_t i = w[KEPT_FIRST], next; i < end; i = next) {
        const int64_t at = ls_part_index(&part, &here, i, &next);
        if (next > end) next = end;
        memcpy(k->whole + at, from + (i - w[KEPT_FIRST]), (size_t)(next - i) * sizeof *from);
    }
}

static ls_status whole(void *arg, const ls_param *p, const float **out)
{
    ls_kept *k = arg;
    ls_tensor global = p->t;
    size_t mine = 0;
    ls_part_shape(&p->part, &p->t, global.dim);
    const size_t count = (size_t)ls_tensor_count(&global);
    LS_TRY(make_room(k, p->name, count));
    LS_TRY(tell(k, p, count, &mine));
    const float *own = ls_param_values(p);
    if (p->keeps.count > 0)
        memcpy(k->packed + mine, own + (p->keeps.first - p->own.first), p->keeps.count * sizeof *own);
    LS_TRY(ls_all_gather_v(k->g, NULL, k->packed, k->counts, LS_F32));
    const float *from = k->packed;
    for (int r = 0; r < ls_group_size(k->g); from += k->counts[r++]) place(k, &global, r, from);
    *out = k->whole;
    return LS_OK;
}

ls_values ls_kept_values(ls_kept *k) { return (ls_values){ whole, k }; }
