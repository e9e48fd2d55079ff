/* spans.c -- a rank's rows of several matrices: where they are, and packed side by side. */
#include "group/spans.h"

#include <string.h>

#include "group/group.h"

ls_range ls_spans_rows(const ls_matrix_span *s, int r, int size)
{
    return s->part ? s->part[r] : ls_shard_of(s->rows, r, size);
}

size_t ls_spans_extent(const ls_work *k)
{
    if (k->nspans == 0) return 0;
    const ls_matrix_span *last = &k->span[k->nspans - 1];
    return last->first + last->rows * last->row;
}

size_t ls_spans_count(const ls_matrix_span *span, int nspans, int r, int size)
{
    size_t n = 0;
    for (int i = 0; i < nspans; i++) n += ls_spans_rows(&span[i], r, size).count * span[i].row;
    return n;
}

size_t ls_spans_at(const ls_work *k, int r, size_t pos, size_t *left)
{
    for (int i = 0; i < k->nspans; i++) {
        const ls_matrix_span *s = &k->span[i];
        const ls_range rows = ls_spans_rows(s, r, k->g->size);
        const size_t n = rows.count * s->row;
        if (pos < n) {
            *left = n - pos;
            return s->first + rows.first * s->row + pos;
        }
        pos -= n;
    }
    *left = 0;
    return 0;
}

/* Rank r's part of a vector, packed. */
static void pack(const ls_work *k, int r, const char *vector, char *packed)
{
    const size_t elem = ls_dtype_size(k->a.dtype), count = ls_work_share(k, r).count;
    for (size_t pos = 0, left; pos < count; pos += left) {
        const char *at = vector + ls_spans_at(k, r, pos, &left) * elem;
        memcpy(packed + pos * elem, at, left * elem);
    }
}

static void unpack(const ls_work *k, int r, const char *packed, char *vector)
{
    const size_t elem = ls_dtype_size(k->a.dtype), count = ls_work_share(k, r).count;
    for (size_t pos = 0, left; pos < count; pos += left) {
        char *at = vector + ls_spans_at(k, r, pos, &left) * elem;
        memcpy(at, packed + pos * elem, left * elem);
    }
}

/* Where rank r's part lies in k->packed. */
static char *packed_part(const ls_work *k, int r)
{
    return k->packed + ls_work_share(k, r).first * ls_dtype_size(k->a.dtype);
}

/* Ranks whose parts this rank brings. */
static bool brings(const ls_work *k, int r) { return k->a.coll == LS_REDUCE_SCATTER || r == k->g->rank; }

/* And gets. */
static bool gets(const ls_work *k, int r) { return (k->a.coll == LS_REDUCE_SCATTER) == (r == k->g->rank); }

ls_status ls_spans_reserve(ls_group *g, size_t nbytes)
{
    const ls_status st = ls_scratch_grow(g, &g->has.packed, nbytes);
    return st < 0 ? ls_while(st, "finding %zu bytes to pack spans in", nbytes) : LS_OK;
}

/* From now on the work is on the packed vector, in place. */
static void use_packed(ls_work *k)
{
    k->apart = k->a.in != NULL;
    k->unpacked = k->a.out;
    k->a.in = NULL;
    k->a.out = k->packed;
}

/* In a group of one, the rank's part is the whole vector: it is packed into `out`, or stays where it is. */
static ls_status begin_alone(ls_work *k)
{
    if (k->a.in && !k->g->w->dry) pack(k, 0, k->a.in, k->a.out);
    k->a.in = NULL;
    return LS_OK;
}

ls_status ls_spans_begin(ls_work *k)
{
    if (k->g->size == 1) return begin_alone(k);
    if (!k->form->spans) {
        LS_TRY(ls_spans_reserve(k->g, k->nbytes));
        k->packed = k->g->has.packed.p; /* which stays, when a later work finds it too small */
        if (k->g->w->dry) use_packed(k); /* nothing is packed there */
        return LS_OK;
    }
    const size_t nbytes = ls_spans_extent(k) * ls_dtype_size(k->a.dtype);
    if (k->g->w->alone) return LS_OK; /* nothing is read there */
    if (ls_world_offset(k->g->w, k->a.in ? k->a.in : k->a.out, nbytes) != LS_NOT_REGISTERED) return LS_OK;
    return ls_fail(LS_INVALID, "%s: ranks here map each other's memory, and a vector of spans has to lie in memory from "
                   "ls_alloc()", ls_coll_name(k->a.coll));
}

void ls_spans_pack(ls_work *k)
{
    const char *vector = k->a.in ? k->a.in : k->a.out;
    for (int r = 0; r < k->g->size; r++)
        if (brings(k, r)) pack(k, r, vector, packed_part(k, r));
    use_packed(k);
}

void ls_spans_unpack(ls_work *k)
{
    const ls_group *g = k->g;
    if (k->apart) {
        memcpy(k->unpacked, packed_part(k, g->rank), ls_work_share(k, g->rank).count * ls_dtype_size(k->a.dtype));
        return;
    }
    for (int r = 0; r < g->size; r++)
        if (gets(k, r)) unpack(k, r, packed_part(k, r), k->unpacked);
}
