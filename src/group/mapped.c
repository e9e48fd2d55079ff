/* mapped.c -- collectives carried out in memory that every rank has mapped.
 *
 * Two forms, both summing in ascending rank order, so that choosing between
 * them by size never changes a bit:
 *
 *   oneshot   everyone writes its vector into its own slot and a number into
 *             its own line; whoever sees all numbers reads all slots. One flag
 *             wait. Up to 40 bytes travel in the flag's cache line.
 *   mapped    everyone publishes where its vector is; rank r sums share r
 *             straight from all vectors and stores the sum where each wants it.
 *             Two flag waits, no copy. Needs registered memory everywhere; a
 *             rank without says so in its line and all fall back to a schedule.
 *
 * The schedules `oneshot` and `fold` are the proved text of both; a test
 * demands equal bits.
 */
#include <string.h>

#include "coll/reduce.h"
#include "group/impl.h"

#define TURN_BYTES ((size_t)256 << 10) /* of one turn: a poke must not take long */
#define UNIT_BYTES 64                  /* fold's shares end at cache lines */

/* Of an all_reduce, where only we know the cut: whole cache lines. */
static ls_range fold_share(const ls_work *k, int r)
{
    unsigned shift = 0; /* of elements that share a line: a power of two */
    while (UNIT_BYTES / ls_dtype_size(k->a.dtype) >> shift > 1) shift++;
    ls_range s;
    (void)ls_shard_range((k->a.count + ((size_t)1 << shift) - 1) >> shift, r, k->g->size, &s);
    s.first <<= shift;
    s.count <<= shift;
    if (s.first > k->a.count) s.first = k->a.count;
    if (s.first + s.count > k->a.count) s.count = k->a.count - s.first;
    return s;
}

/* What this rank shows its peers, and how much of it. */
static const char *contribution(const ls_work *k, size_t *nbytes)
{
    const char *out = k->a.out;
    *nbytes = k->nbytes;
    switch (k->a.coll) {
    case LS_ALL_GATHER: {
        ls_range s = ls_work_share(k, k->g->rank);
        size_t elem = ls_dtype_size(k->a.dtype);
        *nbytes = s.count * elem;
        return k->a.in ? k->a.in : out ? out + s.first * elem : NULL;
    }
    case LS_BROADCAST: *nbytes = k->g->rank == k->a.root ? *nbytes : 0; return k->a.in ? k->a.in : out;
    case LS_BARRIER: *nbytes = 0; return NULL;
    default: return k->a.in ? k->a.in : out;
    }
}

/* Offset of memory in this rank's arena, or LS_NOT_REGISTERED. */
static inline uint64_t offset_of(const ls_member *me, const char *p, size_t nbytes)
{
    uintptr_t offset = (uintptr_t)p - (uintptr_t)me->base;
    return LS_LIKELY(nbytes <= me->bytes && offset <= me->bytes - nbytes) ? offset : LS_NOT_REGISTERED;
}

/* Says in the line where peers find the vector and where the sum belongs: where they lie, or where a copy
 * stands in the slot, or nowhere. */
static void place(ls_work *k, ls_line *line, const char *bytes, size_t nbytes)
{
    const ls_member *me = &k->g->member[k->g->rank];
    char *slot = me->area->slot[k->mseq & 1];
    uint64_t from = offset_of(me, bytes, nbytes), to = from;
    if (k->a.coll == LS_ALL_REDUCE && bytes != k->a.out && from != LS_NOT_REGISTERED)
        to = offset_of(me, k->a.out, nbytes);
    k->staged = (from == LS_NOT_REGISTERED || to == LS_NOT_REGISTERED) && nbytes <= LS_ONESHOT_BYTES;
    if (k->staged) {
        memcpy(slot, bytes, nbytes);
        from = to = (uint64_t)(slot - me->base);
    }
    line->offset = to == LS_NOT_REGISTERED ? to : from;
    line->to = to;
}

/* Nothing that can wait stands before the store to seq: peers are waiting for it. */
void ls_mapped_publish(ls_work *k)
{
    ls_group *g = k->g;
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->line[k->mseq & 1];
    size_t nbytes;
    const char *bytes = contribution(k, &nbytes);
    if (k->kind == LS_WORK_MAPPED) place(k, line, bytes, nbytes);
    else if (nbytes > LS_LINE_BYTES) memcpy(mine->slot[k->mseq & 1], bytes, nbytes);
    else if (nbytes > 0) memcpy(line->bytes, bytes, nbytes);
    line->sig = k->sig;
    atomic_store_explicit(&line->seq, k->mseq, memory_order_release); /* line, slot and vector are visible before it */
    ls_wake_members(g);
    k->peer = 0;
    k->pos = 0;
    k->phase = 1;
    k->share = k->a.coll == LS_ALL_REDUCE && k->kind == LS_WORK_MAPPED ? fold_share(k, g->rank) : ls_work_share(k, g->rank);
}

/* Looks at a word until it is `want` or later; a few turns when the caller waits for nothing else. */
static inline bool reached(const ls_group *g, const _Atomic uint32_t *word, uint32_t want)
{
    /* acquire: pairs with the release store of whoever counts the word up */
    for (int turn = 0; (int32_t)(atomic_load_explicit(word, memory_order_acquire) - want) < 0; turn++) {
        if (turn >= g->patience) return false;
        ls_cpu_relax();
    }
    return true;
}

/* LS_OK once every member's line shows this collective. */
static ls_status all_here(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++) {
        const ls_line *line = &g->member[k->peer].area->line[k->mseq & 1];
        if (!reached(g, &line->seq, k->mseq)) return LS_AGAIN;
        if (LS_UNLIKELY(line->sig != k->sig)) return ls_blame_mismatch(g, k, k->peer);
    }
    return LS_OK;
}

/* LS_OK once no member reads or writes anybody's vector any more. */
static ls_status all_through(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++)
        if (!reached(g, &g->member[k->peer].area->line[k->mseq & 1].done, k->mseq)) return LS_AGAIN;
    return LS_OK;
}

static double scale_of(const ls_work *k) { return k->a.op == LS_AVG ? 1.0 / k->g->size : 1.0; }

/* --- oneshot ---------------------------------------------------------------------- */

/* Where member r's contribution of nbytes lies. */
static const char *shown(const ls_work *k, int r, size_t nbytes)
{
    const ls_area *area = k->g->member[r].area;
    return nbytes > LS_LINE_BYTES ? area->slot[k->mseq & 1] : area->line[k->mseq & 1].bytes;
}

static void oneshot_result(ls_work *k)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), nbytes = k->nbytes;
    char *out = k->a.out;
    const void *src[LS_MAX_RANKS];
    switch (k->a.coll) {
    case LS_ALL_REDUCE:
    case LS_REDUCE_SCATTER: {
        ls_range s = k->a.coll == LS_ALL_REDUCE ? (ls_range){ 0, k->a.count } : k->share;
        void *dst = k->a.coll == LS_ALL_REDUCE || k->a.in ? out : out + s.first * elem;
        for (int r = 0; r < g->size; r++) src[r] = shown(k, r, nbytes) + s.first * elem;
        ls_reduce_n(&dst, 1, src, g->size, s.count, k->a.dtype, k->a.op, scale_of(k));
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
    case LS_BROADCAST:
        if (nbytes > 0 && (g->rank != k->a.root || k->a.in)) memcpy(out, shown(k, k->a.root, nbytes), nbytes);
        if (g->rank != k->a.root) ls_count_bytes(g, nbytes);
        break;
    default: break; /* a barrier has no result */
    }
}

static ls_status oneshot_turn(ls_work *k)
{
    ls_status st = all_here(k);
    if (st != LS_OK) return st;
    oneshot_result(k);
    return LS_OK;
}

/* --- in place ------------------------------------------------------------------------ */

/* An offset that a member shows us as an address; NULL unless n bytes lie there. */
static inline char *at_member(const ls_member *m, uint64_t offset, size_t n)
{
    return n <= m->bytes && offset <= m->bytes - n ? m->base + offset : NULL;
}

/* Addresses of all members' vectors, and of where their sums belong; false when somebody's is not registered. */
static bool vectors(const ls_work *k, char *vec[LS_MAX_RANKS], char *sum[LS_MAX_RANKS])
{
    const ls_group *g = k->g;
    bool all = true, reduce = k->a.coll == LS_ALL_REDUCE;
    for (int r = 0; r < g->size; r++) {
        const ls_member *m = &g->member[r];
        const ls_line *line = &m->area->line[k->mseq & 1];
        size_t n = k->a.coll == LS_ALL_GATHER ? ls_work_share(k, r).count * ls_dtype_size(k->a.dtype) : k->nbytes;
        uint64_t offset = line->offset, to = line->to; /* copied once, then checked */
        vec[r] = at_member(m, offset, n);
        sum[r] = reduce ? at_member(m, to, n) : vec[r];
        all &= vec[r] && sum[r];
    }
    return all;
}

/* One block of this rank's share; true when the share is finished. */
static bool mapped_block(ls_work *k, char *const *vec, char *const *sum)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), block = TURN_BYTES / elem;
    const void *src[LS_MAX_RANKS];
    void *dst[LS_MAX_RANKS];
    char *out = k->a.out;

    if (k->a.coll == LS_ALL_GATHER) { /* a turn copies one member's share */
        int r = (g->rank + 1 + (int)k->pos) % g->size;
        ls_range s = ls_work_share(k, r);
        if (out + s.first * elem != vec[r]) memcpy(out + s.first * elem, vec[r], s.count * elem);
        if (r != g->rank) ls_count_bytes(g, s.count * elem);
        return ++k->pos == (size_t)g->size;
    }
    ls_range s = k->share;
    size_t n = s.count - k->pos < block ? s.count - k->pos : block, at = s.first + k->pos;
    for (int r = 0; r < g->size; r++) {
        src[r] = vec[r] + at * elem;
        dst[r] = sum[r] + at * elem;
    }
    int ndst = g->size;
    if (k->a.coll == LS_REDUCE_SCATTER) {
        ndst = 1;
        dst[0] = k->a.in ? out + k->pos * elem : out + at * elem;
    }
    if (n > 0) ls_reduce_n(dst, ndst, src, g->size, n, k->a.dtype, k->a.op, scale_of(k));
    ls_count_bytes(g, (size_t)(g->size - 1 + ndst - 1) * n * elem);
    k->pos += n;
    return k->pos == s.count;
}

static ls_status mapped_turn(ls_work *k)
{
    ls_group *g = k->g;
    char *vec[LS_MAX_RANKS], *sum[LS_MAX_RANKS];
    ls_status st;
    if (k->phase == 1) {
        if ((st = all_here(k)) != LS_OK) return st;
        if (!vectors(k, vec, sum)) { /* everybody sees the same lines and decides alike */
            k->kind = LS_WORK_EXEC;
            k->phase = 0;
            return LS_AGAIN;
        }
        k->phase = 2;
    } else if (k->phase == 2 && !vectors(k, vec, sum)) {
        return ls_fail(LS_PROTOCOL, "a rank moved its vector while a collective used it");
    }
    if (k->phase == 2) {
        /* what is needed right after the block is fetched before it: the block sweeps the first-level cache */
        _Atomic uint32_t *done = &g->member[g->rank].area->line[k->mseq & 1].done;
        uint32_t mseq = k->mseq;
        if (!mapped_block(k, vec, sum)) return LS_AGAIN;
        atomic_store_explicit(done, mseq,
                              memory_order_release); /* our reads and writes of the peers' vectors are over */
        k->peer = 0;
        k->phase = 3;
        st = all_through(k);
        ls_wake_members(g); /* after a look: who sleeps can wait that long */
        if (st != LS_OK) return st;
    } else if ((st = all_through(k)) != LS_OK) {
        return st;
    }
    if (k->staged && k->a.coll == LS_ALL_REDUCE)
        memcpy(k->a.out, g->member[g->rank].area->slot[k->mseq & 1], k->nbytes);
    return LS_OK;
}

ls_status ls_mapped_turn(ls_work *k)
{
    if (k->phase == 0) ls_mapped_publish(k);
    return k->kind == LS_WORK_ONESHOT ? oneshot_turn(k) : mapped_turn(k);
}
