/* args.c -- what a collective is called with: whether it is possible, looked at before any byte moves, and the rare
 * parts of the work that is made of it.
 *
 * ls_args_check finds the sentence; most calls never get here (ls_args_plain).
 * Buffers may be the same or apart. "In place" has these spellings: `in` NULL
 * or equal to `out`, or the share standing where it belongs in the vector.
 */
#include "group/args.h"

#include <stdlib.h>
#include <string.h>

#include "base/lint.h"
#include "base/log.h"
#include "group/spans.h"

ls_status ls_no_group(void)
{
    return ls_fail(LS_INVALID, "no group: call ls_world_join first, then ls_world_group; a rank whose color was below 0 "
                               "at ls_group_split is in none");
}

static bool rooted(ls_coll c) { return c == LS_BROADCAST || c == LS_REDUCE || c == LS_GATHER || c == LS_SCATTER; }

static bool may_have_counts(ls_coll c)
{
    return c == LS_ALL_GATHER || c == LS_REDUCE_SCATTER || c == LS_GATHER || c == LS_SCATTER || c == LS_ALL_TO_ALL;
}

/* The sum of counts, or LS_INVALID. */
static ls_status total_of(const ls_group *g, const ls_coll_args *a, const size_t *counts, const char *which,
                          size_t *out)
{
    *out = 0;
    for (int r = 0; r < g->size; r++) {
        if (counts[r] > LS_MOST_ELEMENTS - *out)
            return ls_fail(LS_INVALID, "%s: %s[%d] = %zu: together more than memory can hold", ls_coll_name(a->coll),
                           which, r, counts[r]);
        *out += counts[r];
    }
    return LS_OK;
}

static ls_range share_of(const ls_group *g, const ls_coll_args *a, int r)
{
    ls_range s = { 0, 0 };
    if (!a->counts) return ls_shard_of(a->count, r, g->size);
    for (int q = 0; q < r; q++) s.first += a->counts[q];
    s.count = a->counts[r];
    return s;
}

/* What this rank brings and gets, in elements; `need`: there must be a buffer for it. */
typedef struct part {
    const char *p;
    size_t count, first; /* first: where it belongs in the other buffer, when that is the whole vector */
    bool need;
} part;

static void parts_of(const ls_group *g, const ls_coll_args *a, size_t sent, size_t received, part *in, part *out)
{
    const bool root = g->rank == a->root;
    const ls_range own = share_of(g, a, g->rank);
    *in = (part){ .p = a->in, .count = sent };
    *out = (part){ .p = a->out, .count = received, .need = true };
    switch (a->coll) {
    case LS_REDUCE_SCATTER:
        if (a->in && a->in != a->out) out->count = own.count, out->first = own.first;
        if (a->in && a->in != a->out && a->span) out->count = ls_spans_count(a->span, a->nspans, g->rank, g->size);
        break;
    case LS_ALL_GATHER: in->count = own.count, in->first = own.first; break;
    case LS_REDUCE:
        if (!root && a->in) *out = (part){ 0 };
        break;
    case LS_GATHER:
        in->count = own.count, in->first = own.first;
        if (!root && a->in) *out = (part){ 0 };
        else if (!root) out->count = own.count;
        break;
    case LS_SCATTER:
        if (root && a->in) out->count = own.count, out->first = own.first, out->need = false;
        else if (!root) *in = (part){ 0 }, out->count = own.count;
        break;
    case LS_BROADCAST:
        if (!root) *in = (part){ 0 };
        break;
    case LS_BARRIER: *in = *out = (part){ 0 }; break;
    default: break;
    }
}

static ls_status check_buffers(const ls_group *g, const ls_coll_args *a)
{
    const char *name = ls_coll_name(a->coll);
    const size_t elem = ls_dtype_size(a->dtype);
    size_t sent = a->count, received;
    part in, out;
    ls_status st = a->counts ? total_of(g, a, a->counts, "counts", &sent) : LS_OK;
    received = sent;
    if (st == LS_OK && a->counts && a->coll == LS_ALL_TO_ALL)
        st = total_of(g, a, a->recv_counts, "recv_counts", &received);
    if (st < 0) return st;
    parts_of(g, a, sent, received, &in, &out);
    if (out.need && !out.p && (out.count > 0 || (a->coll == LS_ALL_TO_ALL && sent > 0 && !in.p)))
        return ls_fail(LS_INVALID, "%s: no buffer for %zu elements of %s%s", name, out.count, ls_dtype_name(a->dtype),
                       rooted(a->coll) && g->rank == a->root ? " on the root" : "");
    if (!in.p || !out.p || in.count == 0 || out.count == 0 || in.p == out.p) return LS_OK;
    if (in.p + in.count * elem <= out.p || out.p + out.count * elem <= in.p) return LS_OK;
    if (a->span) {} /* what is packed stands nowhere in the vector */
    else if (a->coll == LS_REDUCE_SCATTER || a->coll == LS_SCATTER) {
        if (out.p == in.p + out.first * elem) return LS_OK;
    } else if (a->coll == LS_ALL_GATHER || a->coll == LS_GATHER) {
        if (in.p == out.p + in.first * elem) return LS_OK;
    }
    return ls_fail(LS_INVALID,
                   "%s: in (%zu bytes) and out (%zu bytes) overlap, out beginning %lld bytes after in: expected buffers "
                   "apart, or exactly in place",
                   name, in.count * elem, out.count * elem, (long long)((intptr_t)out.p - (intptr_t)in.p));
}

/* Whether the parts of a span are rows of it. (That no two ranks have the same row is not checked.) */
static ls_status check_parts(const ls_group *g, const ls_coll_args *a, int i)
{
    const ls_matrix_span *s = &a->span[i];
    for (int r = 0; s->part && r < g->size; r++)
        if (s->part[r].first > s->rows || s->part[r].count > s->rows - s->part[r].first)
            return ls_fail(LS_INVALID, "%s: span %d: rank %d's part is %zu rows from row %zu on: expected rows of %zu",
                           ls_coll_name(a->coll), i, r, s->part[r].count, s->part[r].first, s->rows);
    return LS_OK;
}

static ls_status check_spans(const ls_group *g, const ls_coll_args *a)
{
    const char *name = ls_coll_name(a->coll);
    size_t end = 0;
    if (a->coll != LS_REDUCE_SCATTER && a->coll != LS_ALL_GATHER)
        return ls_fail(LS_INVALID, "%s: spans are for reduce_scatter and all_gather", name);
    if (a->nspans < 0) return ls_fail(LS_INVALID, "%s: %d spans: expected 0 or more", name, a->nspans);
    if (a->counts) return ls_fail(LS_INVALID, "%s: a vector of spans has no counts", name);
    if (a->coll == LS_ALL_GATHER && a->in && a->in != a->out)
        return ls_fail(LS_INVALID, "%s: a vector of spans is gathered in place", name);
    for (int i = 0; i < a->nspans; i++) {
        const ls_matrix_span *s = &a->span[i];
        const size_t left = s->first <= a->count ? a->count - s->first : 0;
        if (s->first < end || s->row == 0 || s->first > a->count || s->rows > left / s->row)
            return ls_fail(LS_INVALID, "%s: span %d, %zu rows of %zu elements from element %zu on: expected it after element "
                           "%zu and in a vector of %zu", name, i, s->rows, s->row, s->first, end, a->count);
        LS_TRY(check_parts(g, a, i));
        end = s->first + s->rows * s->row;
    }
    return LS_OK;
}

static ls_status check_tree(const ls_group *g, const ls_coll_args *a)
{
    if (a->op != LS_SUM_TREE) return LS_OK;
    if (a->coll == LS_REDUCE)
        return ls_fail(LS_INVALID, "reduce with LS_SUM_TREE: that order of sums is for all_reduce and reduce_scatter");
    if (!g->backend) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "%s with LS_SUM_TREE: MPI adds in an order of its own: use comm.backend sched",
                   ls_coll_name(a->coll));
}

ls_status ls_args_check(const ls_group *g, const ls_coll_args *a)
{
    if (g->failed < 0) return ls_fail(LS_INVALID, "group %s cannot be used any more: %s", g->text, g->error);
    if (ls_elsewhere(g))
        return ls_fail(LS_INVALID, "group %s is rank %d's, and this is rank %d: each rank has handles of its own", g->text,
                       g->w->rank, ls_context_get()->rank);
    if ((unsigned)a->coll >= LS_COLLS) return ls_fail(LS_INVALID, "collective number %d does not exist", (int)a->coll);
    if (a->coll == LS_SENDRECV)
        return ls_fail(LS_INVALID, "sendrecv is no collective: start a message by ls_p2p_start");
    const char *name = ls_coll_name(a->coll);
    if ((unsigned)a->dtype >= LS_DTYPES)
        return ls_fail(LS_INVALID, "%s: dtype number %d does not exist", name, (int)a->dtype);
    if ((unsigned)a->op > LS_SUM_TREE)
        return ls_fail(LS_INVALID, "%s: reduction number %d does not exist", name, (int)a->op);
    LS_TRY(check_tree(g, a));
    if (a->op == LS_AVG && !ls_has_average(a->dtype))
        return ls_fail(LS_INVALID, "%s: the average of %s is not defined: use a sum", name, ls_dtype_name(a->dtype));
    if (a->root < 0 || a->root >= g->size)
        return ls_fail(LS_INVALID, "%s: root %d of a group of %d: expected 0 to %d", name, a->root, g->size,
                       g->size - 1);
    if (a->counts && !may_have_counts(a->coll)) return ls_fail(LS_INVALID, "%s has no counts per rank", name);
    if (a->counts && a->coll == LS_ALL_TO_ALL && !a->recv_counts)
        return ls_fail(LS_INVALID, "%s: counts of what is sent, but none of what is received", name);
    if (a->recv_counts && (!a->counts || a->coll != LS_ALL_TO_ALL))
        return ls_fail(LS_INVALID, "%s: counts of what is received, but %s", name,
                       a->coll == LS_ALL_TO_ALL ? "none of what is sent" : "only all_to_all has these");
    if (a->count > LS_MOST_ELEMENTS)
        return ls_fail(LS_INVALID, "%s: %zu elements of %s are more than memory can hold", name, a->count,
                       ls_dtype_name(a->dtype));
    if (a->coll == LS_ALL_TO_ALL && !a->counts && a->count % (size_t)g->size != 0)
        return ls_fail(LS_INVALID, "%s: %zu elements for %d ranks: expected a multiple of %d, or counts per rank", name,
                       a->count, g->size, g->size);
    const ls_status st = a->span ? check_spans(g, a) : LS_OK;
    return st < 0 ? st : check_buffers(g, a);
}

/* --- the work that is made of it --------------------------------------------------------------------------- */

void ls_args_in_place(const ls_group *g, ls_coll_args *a)
{
    if (!a->in || !a->out) return;
    const size_t elem = ls_dtype_size(a->dtype);
    const ls_range own = share_of(g, a, g->rank);
    const bool root = g->rank == a->root;
    char *out = a->out;
    const char *in = a->in;
    if (own.count == 0) return;
    if (a->coll == LS_REDUCE_SCATTER && out == in + own.first * elem) {
        a->out = (char *)(uintptr_t)in;
        a->in = NULL;
    } else if (a->coll == LS_ALL_GATHER || (a->coll == LS_GATHER && root)) {
        if (in == out + own.first * elem) a->in = NULL;
    } else if (a->coll == LS_SCATTER && root && out == in + own.first * elem) {
        a->out = NULL;
    }
}

/* Keeps the counts that came with the call, or that its spans make; the total becomes the work's count. */
LS_COLD ls_status ls_args_keep_counts(ls_work *k, const ls_coll_args *a)
{
    ls_group *g = k->g;
    size_t n = (size_t)g->size;
    if (!g->counts && !(g->counts = calloc(LS_WORKS * 2 * n, sizeof *g->counts)))
        return ls_fail(LS_NO_MEMORY, "counts per rank of group %s", g->text);
    size_t *kept = g->counts + (size_t)(k - g->work) * 2 * n;
    if (a->counts) memcpy(kept, a->counts, n * sizeof *kept);
    else
        for (size_t r = 0; r < n; r++) kept[r] = ls_spans_count(a->span, a->nspans, (int)r, g->size);
    k->span = a->counts ? NULL : a->span;
    k->nspans = a->nspans;
    k->a.count = 0;
    for (size_t r = 0; r < n; r++) k->a.count += kept[r];
    k->counts = kept;
    if (a->coll != LS_ALL_TO_ALL) return LS_OK;
    memcpy(kept + n, a->recv_counts, n * sizeof *kept);
    k->recv_counts = kept + n;
    return LS_OK;
}

LS_COLD uint32_t ls_args_sign_counts(const ls_work *k)
{
    uint64_t h = 0x9e3779b97f4a7c15ull;
    for (int r = 0; r < k->g->size; r++) h = (h ^ k->counts[r]) * 0xd6e8feb86659fd93ull, h ^= h >> 32;
    for (int i = 0; k->span && i < k->nspans; i++) {
        const size_t box[3] = { k->span[i].first, k->span[i].rows, k->span[i].row };
        for (int j = 0; j < 3; j++) h = (h ^ box[j]) * 0xd6e8feb86659fd93ull, h ^= h >> 32;
        for (int r = 0; k->span[i].part && r < k->g->size; r++) {
            h = (h ^ k->span[i].part[r].first) * 0xd6e8feb86659fd93ull, h ^= h >> 32;
            h = (h ^ k->span[i].part[r].count) * 0xd6e8feb86659fd93ull, h ^= h >> 32;
        }
    }
    return (uint32_t)h;
}

void ls_args_note(const ls_coll_args *a)
{
    ls_lint_notef("all_reduce", ", \"at\": %llu, \"bytes\": %zu", (unsigned long long)(uintptr_t)a->out,
                  a->count * ls_dtype_size(a->dtype));
}
