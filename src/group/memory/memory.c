/* memory.c -- what the forms of a collective in mapped memory share: which part is whose. */
#include "group/memory/memory.h"

#include "group/mismatch.h"

size_t ls_most_from_one(const ls_work *k)
{
    size_t elem = ls_dtype_size(k->a.dtype), most = 0;
    if (k->a.coll != LS_GATHER && k->a.coll != LS_ALL_GATHER) return k->nbytes;
    if (!k->counts) return ls_work_share(k, 0).count * elem; /* no share is longer */
    for (int r = 0; r < k->g->size; r++)
        if (k->counts[r] > most) most = k->counts[r];
    return most * elem;
}

ls_range ls_sum_share(const ls_work *k, int r)
{
    const size_t unit = LS_SHARE_UNIT / ls_dtype_size(k->a.dtype); /* elements that share a line: a power of two */
    const int shift = __builtin_ctzll(unit);
    ls_range s = ls_shard_of((k->a.count + unit - 1) >> shift, r, k->g->size);
    s.first <<= shift;
    s.count <<= shift;
    if (s.first > k->a.count) s.first = k->a.count;
    if (s.first + s.count > k->a.count) s.count = k->a.count - s.first;
    return s;
}

bool ls_block_of(const ls_work *k, int r, int q, ls_range *out)
{
    const uint64_t *block = k->g->member[r].area->block[k->mseq & 1];
    uint64_t first = block[q], end = block[q + 1]; /* copied once, then checked */
    *out = (ls_range){ first, end - first };
    return first <= end && end <= SIZE_MAX / 16;
}

ls_status ls_part_from(const ls_work *k, const char *vector, int r, const char **from, char **to, size_t *nbytes)
{
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range s = ls_work_share(k, r);
    *from = vector;
    if (k->a.coll == LS_ALL_TO_ALL) {
        ls_range theirs;
        if (!ls_block_of(k, r, k->g->rank, &theirs))
            return ls_fail(LS_PROTOCOL, "rank %d describes no block", k->g->world_rank[r]);
        if (k->recv_counts) {
            s = (ls_range){ 0, k->recv_counts[r] };
            for (int q = 0; q < r; q++) s.first += k->recv_counts[q];
        }
        if (theirs.count != s.count) return ls_mismatch_block(k, r, theirs.count, s.count);
        *from += theirs.first * elem;
    }
    *to = (char *)k->a.out + s.first * elem;
    *nbytes = s.count * elem;
    return LS_OK;
}

size_t ls_parts_of_others(const ls_work *k)
{
    const ls_group *g = k->g;
    if (!k->recv_counts) return k->a.count - ls_work_share(k, g->rank).count;
    size_t count = 0;
    for (int r = 0; r < g->size; r++)
        if (r != g->rank) count += k->recv_counts[r];
    return count;
}

/* Whether all ranks touch so much together that stores go past the caches. (A machine's own word for its last-level
 * cache is of no use: a guest is told of all there are, and cores share one with seven others. An all_reduce reads
 * most of what it writes; it gains nothing.) */
bool ls_past_cache(const ls_work *k)
{
    size_t n = (size_t)k->g->size, vectors = 2; /* of nbytes */
    if (k->a.coll == LS_ALL_TO_ALL) vectors = 2 * n;
    if (k->a.coll == LS_ALL_GATHER || k->a.coll == LS_BROADCAST) vectors = n;
    if (k->a.coll == LS_REDUCE_SCATTER) vectors = n + 1;
    return (double)k->nbytes * (double)vectors >= k->g->e->tuning.cost.in_memory.past_cache;
}
