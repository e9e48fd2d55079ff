/* oneshot.c -- short vectors, of which every rank writes its own and reads all.
 *
 * Everyone writes its vector into its own slot and a number into its own line; whoever sees all numbers reads all
 * slots. One flag wait. Up to LS_LINE_PAYLOAD bytes travel in the flag's cache line, and longer vectors to sum in
 * packets, each with a number of its own.
 *
 * Sums go up with the rank, so that choosing among the forms by size never changes a bit. The schedule `oneshot` is the
 * proved text; a test demands equal bits.
 */
#include "group/memory/oneshot.h"

#include "coll/reduce.h"
#include "group/memory/memory.h"

/* In memory, above it copying into slots costs more than a second flag wait, where that means that all ranks of a core
 * take their turns. (Where each has a core, lockstep calibrate says when; of whole sums ls_sum_is_short.) */
#define CROWDED_SUM_BYTES ((size_t)512) /* for each rank: a wait costs as many turns */
#define CROWDED_SHARE_BYTES ((size_t)8 << 10) /* of a sum of which a rank makes its share only */

/* What a rank shows fits its slot, and is as long as all others know. */
static bool can(const ls_work *k)
{
    if (k->recv_counts || k->span) return false;
    return k->nbytes <= LS_ONESHOT_BYTES || ls_most_from_one(k) <= LS_ONESHOT_BYTES;
}

/* Whole vectors through the slots: always for barriers and forced oneshot, else below a size. */
static bool fits(const ls_work *k, const ls_algo *f)
{
    bool crowded = k->g->crowded;
    if (k->a.coll == LS_BARRIER) return true;
    size_t nbytes = crowded && !f ? ls_most_from_one(k) : k->nbytes;
    if (nbytes > LS_ONESHOT_BYTES || k->recv_counts || k->span) return false; /* counts may differ from rank to rank */
    if (f) return strcmp(f->name, "oneshot") == 0;
    if (k->a.coll == LS_ALL_REDUCE)
        return crowded ? nbytes <= CROWDED_SUM_BYTES * (size_t)k->g->size : ls_sum_is_short(k->g, nbytes);
    const ls_switch_points *s = &k->g->e->tuning.cost.in_memory;
    if (k->a.coll == LS_REDUCE_SCATTER)
        return crowded ? nbytes <= CROWDED_SHARE_BYTES : (double)nbytes <= s->sum_in_place;
    return crowded || (double)nbytes <= s->copy_in_place;
}

/* What this rank shows its peers in a oneshot, and how much of it. */
static const char *contribution(const ls_work *k, size_t *nbytes)
{
    *nbytes = k->nbytes;
    switch (k->a.coll) {
    case LS_ALL_GATHER: {
        ls_range s = ls_work_share(k, k->g->rank);
        size_t elem = ls_dtype_size(k->a.dtype);
        *nbytes = s.count * elem;
        return k->a.in ? k->a.in : k->a.out ? (const char *)k->a.out + s.first * elem : NULL;
    }
    case LS_BARRIER: *nbytes = 0; return NULL;
    default: return ls_offered(k);
    }
}

/* In a sum by shares no other rank reads our own share. */
static void put_slot(const ls_work *k, char *slot, const char *bytes, size_t nbytes)
{
    size_t first = nbytes, end = nbytes;
    if (k->a.coll == LS_REDUCE_SCATTER) {
        first = k->share.first * ls_dtype_size(k->a.dtype);
        end = first + k->share.count * ls_dtype_size(k->a.dtype);
    }
    memcpy(slot, bytes, first);
    memcpy(slot + end, bytes + end, nbytes - end);
}

/* Nothing that can wait stands before the store to seq: peers are waiting for it. */
static bool publish(ls_work *k)
{
    ls_group *g = k->g;
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->line[k->mseq & 1];
    size_t nbytes;
    const char *bytes = contribution(k, &nbytes);
    k->share = ls_work_share(k, g->rank);
    if (ls_in_packets(g, k->a.coll, nbytes))
        ls_packets_write(mine->packet[k->mseq & 1], bytes, nbytes, k->sig, k->mseq);
    else if (nbytes > LS_LINE_PAYLOAD) put_slot(k, mine->slot[k->mseq & 1], bytes, nbytes);
    else if (nbytes > 0) memcpy(line->bytes, bytes, nbytes);
    ls_line_show(k, line);
    return true;
}

/* Where member r's contribution of nbytes lies. */
static const char *shown(const ls_work *k, int r, size_t nbytes)
{
    const ls_area *area = k->g->member[r].area;
    return nbytes > LS_LINE_PAYLOAD ? area->slot[k->mseq & 1] : area->line[k->mseq & 1].bytes;
}

/* The sum of vectors in packets. */
static void sum_packets(ls_work *k)
{
    ls_group *g = k->g;
    _Alignas(64) char scratch[LS_SHORT_READ_BYTES];
    char *to = scratch;
    const void *src[LS_HOST_MOST_RANKS];
    void *out = k->a.out;
    for (int r = 0; r < g->size; r++) {
        src[r] = r == g->rank ? ls_offered(k) : to;
        if (r == g->rank) continue;
        const ls_packet *p = g->member[r].area->packet[k->mseq & 1];
        for (size_t at = 0; at < k->nbytes; at += LS_PACKET_BYTES) ls_packet_read(p++, to + at, k->nbytes - at);
        to += k->nbytes;
    }
    ls_reduce_n(&out, 1, src, g->size, k->a.count, k->a.dtype, k->a.op, ls_scale_of(k));
    ls_count_moved(k, (size_t)(g->size - 1) * k->nbytes);
}

static void result(ls_work *k)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), nbytes = k->nbytes;
    char *out = k->a.out;
    const void *src[LS_HOST_MOST_RANKS];
    if (ls_in_packets(g, k->a.coll, nbytes)) {
        sum_packets(k);
        return;
    }
    switch (k->a.coll) {
    case LS_ALL_REDUCE:
    case LS_REDUCE_SCATTER: {
        ls_range s = k->a.coll == LS_ALL_REDUCE ? (ls_range){ 0, k->a.count } : k->share;
        void *dst = k->a.coll == LS_ALL_REDUCE || k->a.in ? out : out + s.first * elem;
        for (int r = 0; r < g->size; r++)
            src[r] = (r == g->rank ? ls_offered(k) : shown(k, r, nbytes)) + s.first * elem;
        ls_reduce_n(&dst, 1, src, g->size, s.count, k->a.dtype, k->a.op, ls_scale_of(k));
        ls_count_moved(k, (size_t)(g->size - 1) * s.count * elem);
        break;
    }
    case LS_ALL_GATHER:
        for (int r = 0; r < g->size; r++) {
            ls_range s = ls_work_share(k, r);
            if (s.count > 0) memcpy(out + s.first * elem, shown(k, r, s.count * elem), s.count * elem);
            if (r != g->rank) ls_count_moved(k, s.count * elem);
        }
        break;
    case LS_ALL_TO_ALL: {
        size_t block = nbytes / (size_t)g->size;
        for (int r = 0; r < g->size && block > 0; r++)
            memcpy(out + (size_t)r * block, shown(k, r, nbytes) + (size_t)g->rank * block, block);
        ls_count_moved(k, nbytes - block);
        break;
    }
    default: break; /* a barrier has no result */
    }
}

static ls_status turn(ls_work *k)
{
    ls_status st = ls_all_here(k);
    if (st != LS_OK) return st;
    result(k);
    return LS_OK;
}

static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    const ls_group *g = k->g;
    const size_t elem = ls_dtype_size(k->a.dtype), others = (size_t)g->size - 1;
    const size_t own = k->a.coll == LS_BARRIER ? 0 : ls_work_share(k, g->rank).count * elem;
    *out = (ls_traffic){ .flags = 1, .rounds = 1, .copied = k->a.coll == LS_ALL_GATHER ? own : k->nbytes };
    switch (k->a.coll) {
    case LS_ALL_REDUCE: out->read = out->added = others * k->nbytes; break;
    case LS_REDUCE_SCATTER:
        out->read = out->added = others * own;
        if (k->nbytes > LS_LINE_PAYLOAD) out->copied -= own;
        break;
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: out->read = ls_parts_of_others(k) * elem; break;
    default: break;
    }
    if (ls_in_packets(g, k->a.coll, k->nbytes)) out->flags += (k->nbytes + LS_PACKET_BYTES - 1) / LS_PACKET_BYTES;
    return ls_counted(out);
}

const ls_form ls_form_oneshot = {
    .name = "oneshot",
    .about = "in memory: every rank writes into its slot and reads all slots (short enough for them)",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER | 1u << LS_ALL_TO_ALL |
             1u << LS_BARRIER,
    .can = can,
    .fits = fits,
    .publish = publish,
    .turn = turn,
    .traffic = traffic,
};
