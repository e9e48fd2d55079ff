/* mapped.c -- collectives carried out in memory that every rank has mapped.
 *
 * Everyone meets everyone:
 *
 *   oneshot   everyone writes its vector into its own slot and a number into
 *             its own line; whoever sees all numbers reads all slots. One flag
 *             wait. Up to 40 bytes travel in the flag's cache line, and longer
 *             vectors to sum in packets, each with a number of its own.
 *   mapped    everyone publishes where its vector is, and works on it where it
 *             lies: fold.c. Two flag waits, no copy. Needs registered memory; a
 *             rank without says so in its line and all fall back to a schedule.
 *
 * There is a root, and who writes need not wait for who reads:
 *
 *   mail      short vectors through a ring of lines: mail.c
 *   rooted    long ones where they lie: fold.c
 *
 * All sum in ascending rank order, so that choosing among them by size never
 * changes a bit. The schedules `oneshot`, `fold` and `linear` are the proved
 * text; a test demands equal bits.
 */
#include <string.h>

#include "coll/reduce.h"
#include "group/mapped.h"

void ls_mapped_number(ls_work *k)
{
    ls_group *g = k->g;
    if (k->kind == LS_WORK_ONESHOT || k->kind == LS_WORK_MAPPED) g->mseq++;
    else g->rooted++;
    k->mseq = g->mseq;
    k->rooted = g->rooted;
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
    case LS_BROADCAST: *nbytes = k->g->rank == k->a.root ? *nbytes : 0; return ls_offered(k);
    case LS_BARRIER: *nbytes = 0; return NULL;
    default: return ls_offered(k);
    }
}

/* Of what is summed in shares nobody else reads our own. */
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
void ls_mapped_publish(ls_work *k)
{
    ls_group *g = k->g;
    k->peer = 0;
    k->pos = 0;
    if (k->kind == LS_WORK_MAIL || k->kind == LS_WORK_ROOTED) {
        if (k->kind == LS_WORK_MAIL ? ls_mail_publish(k) : ls_rooted_publish(k)) k->phase = 1;
        return;
    }
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->line[k->mseq & 1];
    if (k->kind == LS_WORK_MAPPED) {
        ls_fold_place(k, line);
        line->stage = atomic_load_explicit(&g->stage_bytes, memory_order_acquire);
    } else {
        size_t nbytes;
        const char *bytes = contribution(k, &nbytes);
        k->share = ls_work_share(k, g->rank);
        if (ls_in_packets(g, k->a.coll, nbytes))
            ls_packets_write(mine->packet[k->mseq & 1], bytes, nbytes, k->sig, k->mseq);
        else if (nbytes > LS_LINE_BYTES) put_slot(k, mine->slot[k->mseq & 1], bytes, nbytes);
        else if (nbytes > 0) memcpy(line->bytes, bytes, nbytes);
    }
    line->sig = k->sig;
    atomic_store_explicit(&line->seq, k->mseq, memory_order_release); /* line, slot and vector are visible before it */
    ls_wake_members(g);
    k->phase = 1;
}

ls_status ls_all_here(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++) {
        const ls_line *line = &g->member[k->peer].area->line[k->mseq & 1];
        if (!ls_reached(g, &line->seq, k->mseq)) return LS_AGAIN;
        if (LS_UNLIKELY(line->sig != k->sig)) return ls_blame_mismatch(g, k, k->peer);
    }
    /* whoever is here is through with what was before */
    if ((int32_t)(k->rooted - g->mail.seen) > 0) g->mail.seen = k->rooted;
    return LS_OK;
}

ls_status ls_all_through(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++)
        if (!ls_reads(g, &g->member[k->peer].area->line[k->mseq & 1].done, k->mseq)) return LS_AGAIN;
    return LS_OK;
}

/* --- oneshot ---------------------------------------------------------------------- */

/* Where member r's contribution of nbytes lies. */
static const char *shown(const ls_work *k, int r, size_t nbytes)
{
    const ls_area *area = k->g->member[r].area;
    return nbytes > LS_LINE_BYTES ? area->slot[k->mseq & 1] : area->line[k->mseq & 1].bytes;
}

/* The sum of vectors in packets. */
static void sum_packets(ls_work *k)
{
    ls_group *g = k->g;
    _Alignas(64) char scratch[LS_SHORT_READ_BYTES];
    char *to = scratch;
    const void *src[LS_MAX_RANKS];
    void *out = k->a.out;
    for (int r = 0; r < g->size; r++) {
        src[r] = r == g->rank ? ls_offered(k) : to;
        if (r == g->rank) continue;
        const ls_packet *p = g->member[r].area->packet[k->mseq & 1];
        for (size_t at = 0; at < k->nbytes; at += LS_PACKET_BYTES) ls_packet_read(p++, to + at, k->nbytes - at);
        to += k->nbytes;
    }
    ls_reduce_n(&out, 1, src, g->size, k->a.count, k->a.dtype, k->a.op, ls_scale_of(k));
    ls_count_bytes(g, (size_t)(g->size - 1) * k->nbytes);
}

static void oneshot_result(ls_work *k)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), nbytes = k->nbytes;
    char *out = k->a.out;
    const void *src[LS_MAX_RANKS];
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
        ls_count_bytes(g, (size_t)(g->size - 1) * s.count * elem);
        break;
    }
    case LS_ALL_GATHER:
        for (int r = 0; r < g->size; r++) {
            ls_range s = ls_work_share(k, r);
            if (s.count > 0) memcpy(out + s.first * elem, shown(k, r, s.count * elem), s.count * elem);
            if (r != g->rank) ls_count_bytes(g, s.count * elem);
        }
        break;
    case LS_ALL_TO_ALL: {
        size_t block = nbytes / (size_t)g->size;
        for (int r = 0; r < g->size && block > 0; r++)
            memcpy(out + (size_t)r * block, shown(k, r, nbytes) + (size_t)g->rank * block, block);
        ls_count_bytes(g, nbytes - block);
        break;
    }
    case LS_BROADCAST:
        if (nbytes > 0 && (g->rank != k->a.root || k->a.in)) memcpy(out, shown(k, k->a.root, nbytes), nbytes);
        if (g->rank != k->a.root) ls_count_bytes(g, nbytes);
        break;
    default: break; /* a barrier has no result */
    }
}

static ls_status oneshot_turn(ls_work *k)
{
    ls_status st = ls_all_here(k);
    if (st != LS_OK) return st;
    oneshot_result(k);
    return LS_OK;
}

ls_status ls_mapped_turn(ls_work *k)
{
    if (k->phase == 0) {
        ls_mapped_publish(k);
        if (k->phase == 0) return LS_AGAIN;
    }
    switch (k->kind) {
    case LS_WORK_ONESHOT: return oneshot_turn(k);
    case LS_WORK_MAPPED:
    case LS_WORK_ATTACHED: return ls_fold_turn(k);
    case LS_WORK_MAIL: return ls_mail_turn(k);
    case LS_WORK_STAGED: return ls_staged_turn(k);
    default: return ls_rooted_turn(k);
    }
}
