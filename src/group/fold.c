/* fold.c -- long vectors, worked on where they lie: registered memory, which every rank has mapped.
 *
 *   all_reduce       rank r sums share r straight from all vectors and stores the sum where each wants it
 *   reduce_scatter   likewise, into its own result
 *   reduce           likewise, into the root's
 *   all_gather       everyone reads everyone's share; past the caches everyone writes its own into every result
 *   all_to_all       everyone reads its block of everyone's vector
 *   broadcast, scatter   everyone reads the root's vector (and of a broadcast the root writes a part); a broadcast past
 *                    the caches: rank r reads share r and writes it into every result
 *   gather           everyone writes its share into the root's vector
 *
 * In the first five everyone says in its line where its vector is, and waits at the end until no member needs
 * anybody's memory any more. In the others only the root says so (mail.c has its line), and only the root waits.
 *
 * The schedules `fold`, `pairwise` and `linear` are the proved text.
 */
#include <string.h>

#include "base/copy.h"
#include "coll/reduce.h"
#include "group/mapped.h"
#include "net/attach.h"

#define APART_BYTES ((size_t)256 << 10) /* private all_reduces of so many: see keeps_share */
#define UNIT_BYTES 64 /* shares of a sum end at cache lines */

/* Whether all ranks touch so much together that stores go past the caches. (A machine's own word for its last-level
 * cache is of no use: a guest is told of all there are, and cores share one with seven others. An all_reduce reads
 * most of what it writes; it gains nothing.) */
static bool past_cache(const ls_work *k)
{
    size_t n = (size_t)k->g->size, vectors = 2; /* of nbytes */
    if (k->a.coll == LS_ALL_TO_ALL) vectors = 2 * n;
    if (k->a.coll == LS_ALL_GATHER || k->a.coll == LS_BROADCAST) vectors = n;
    if (k->a.coll == LS_REDUCE_SCATTER) vectors = n + 1;
    return (double)k->nbytes * (double)vectors >= k->g->e->terms.cost.in_memory.past_cache;
}

static void copy(const ls_work *k, char *to, const char *from, size_t nbytes)
{
    if (nbytes == 0 || to == from) return;
    if (k->past_cache) ls_copy_past_cache(to, from, nbytes);
    else memcpy(to, from, nbytes);
}

/* Only we know the cut: whole cache lines. */
ls_range ls_sum_share(const ls_work *k, int r)
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

/* --- everyone with everyone -------------------------------------------------------------- */

/* A share that everybody reads comes from memory as often; its owner reads it once for all. */
static bool may_spread(const ls_work *k) { return k->a.coll == LS_ALL_GATHER && k->past_cache; }

/* What member r offers, in bytes. */
static size_t offered_bytes(const ls_work *k, int r)
{
    return k->a.coll == LS_ALL_GATHER ? ls_work_share(k, r).count * ls_dtype_size(k->a.dtype) : k->nbytes;
}

/* Memory that the peers have mapped, for a copy of our private vector; NULL where pieces are better. Lines and
 * slots alternate alike. */
static char *room_for_copy(const ls_work *k, size_t nbytes)
{
    const ls_member *me = &k->g->member[k->g->rank];
    ls_area *area = me->area;
    size_t half = k->mseq & 1;
    if (k->a.coll != LS_ALL_REDUCE && k->a.coll != LS_REDUCE_SCATTER && k->a.coll != LS_ALL_GATHER) return NULL;
    if (nbytes <= LS_ONESHOT_BYTES) return area->slot[half];
    if (nbytes > LS_WHOLE_BYTES || area->whole_offset == 0) return NULL;
    return me->base + area->whole_offset + half * LS_WHOLE_BYTES;
}

/* Our own share nobody else reads: it need not go through the slot, where that is worth two copies instead of one. */
static bool keeps_share(const ls_work *k)
{
    return k->staged && k->a.coll == LS_ALL_REDUCE && k->nbytes >= APART_BYTES;
}

static void copy_whole(const ls_work *k, char *to, const char *from, size_t nbytes)
{
    size_t elem = ls_dtype_size(k->a.dtype), first = k->share.first * elem, end = first + k->share.count * elem;
    if (!keeps_share(k)) {
        memcpy(to, from, nbytes);
        return;
    }
    memcpy(to, from, first);
    memcpy(to + end, from + end, nbytes - end);
}

/* Says in the line where peers find the vector and where the sum belongs: where they lie, or where a copy
 * stands in the slot, or nowhere. */
void ls_fold_place(ls_work *k, ls_line *line)
{
    k->past_cache = past_cache(k);
    const ls_group *g = k->g;
    const ls_member *me = &g->member[g->rank];
    size_t nbytes = offered_bytes(k, g->rank), elem = ls_dtype_size(k->a.dtype);
    bool has_sum = k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && g->rank == k->a.root);
    k->share =
        k->a.coll == LS_ALL_REDUCE || k->a.coll == LS_REDUCE ? ls_sum_share(k, g->rank) : ls_work_share(k, g->rank);
    const char *bytes = ls_offered(k);
    if (k->a.coll == LS_ALL_GATHER && !k->a.in && bytes) bytes += k->share.first * elem;
    uint64_t from = ls_offset_of(me, bytes, nbytes), to = from;
    if (has_sum && bytes != k->a.out && from != LS_NOT_REGISTERED) to = ls_offset_of(me, k->a.out, nbytes);
    bool is_private = from == LS_NOT_REGISTERED || to == LS_NOT_REGISTERED;
    line->at = ls_attached_address(k, bytes);
    k->staged = is_private && !ls_attached_long(k, k->nbytes) ? room_for_copy(k, nbytes) : NULL;
    if (k->staged) {
        copy_whole(k, k->staged, bytes, nbytes);
        if (LS_UNLIKELY(!g->hinted && nbytes > LS_ONESHOT_BYTES)) ls_hint_private(k);
        from = to = (uint64_t)(k->staged - me->base);
    }
    if (k->a.coll == LS_ALL_TO_ALL) {
        /* in place goes through a copy, and so does what is soon copied where a wait more is worse: staged.c has fewer
         */
        if (k->nbytes > 0 && (!k->a.in || (g->crowded && k->nbytes <= LS_STAGE_SLOTS * LS_STAGE_BYTES)))
            from = to = LS_NOT_REGISTERED;
        uint64_t *block = me->area->block[k->mseq & 1];
        for (int r = 0; r < g->size; r++) {
            ls_range s = ls_work_share(k, r);
            block[r] = s.first;
            block[r + 1] = s.first + s.count;
        }
    }
    line->offset = to == LS_NOT_REGISTERED ? to : from;
    line->to = may_spread(k) ? ls_offset_of(me, k->a.out, k->nbytes) : to;
}

typedef struct vectors {
    char *from[LS_MAX_RANKS]; /* the members' vectors; attached: their addresses there */
    char *to[LS_MAX_RANKS];   /* and where their sums belong, or what they gather */
    bool spread;              /* that is registered: everyone writes into all */
} vectors;

bool ls_block_of(const ls_work *k, int r, int q, ls_range *out)
{
    const uint64_t *block = k->g->member[r].area->block[k->mseq & 1];
    uint64_t first = block[q], end = block[q + 1]; /* copied once, then checked */
    *out = (ls_range){ first, end - first };
    return first <= end && end <= SIZE_MAX / 16;
}

/* Where everything is, checked; false when somebody's is not registered. */
static bool find(const ls_work *k, vectors *v)
{
    const ls_group *g = k->g;
    bool all = true, gathers = may_spread(k);
    size_t elem = ls_dtype_size(k->a.dtype);
    v->spread = gathers;
    if (k->kind == LS_WORK_ATTACHED) {
        v->spread = false;
        ls_attached_find(k, v->from);
        return true;
    }
    for (int r = 0; r < g->size; r++) {
        const ls_member *m = &g->member[r];
        const ls_line *line = &m->area->line[k->mseq & 1];
        uint64_t offset = line->offset, to = line->to; /* copied once, then checked */
        size_t n = offered_bytes(k, r);
        ls_range s;
        if (k->a.coll == LS_ALL_TO_ALL) n = ls_block_of(k, r, g->rank, &s) ? (s.first + s.count) * elem : SIZE_MAX;
        v->from[r] = ls_at_member(m, offset, n);
        bool sums = k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && r == k->a.root);
        v->to[r] = sums ? ls_at_member(m, to, n) : gathers ? ls_at_member(m, to, k->nbytes) : v->from[r];
        all &= v->from[r] && (v->to[r] || gathers);
        v->spread &= v->to[r] != NULL;
    }
    return all || v->spread;
}

static size_t sum_block(ls_work *k, const vectors *v, size_t n)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), at = k->share.first + k->pos;
    const void *src[LS_MAX_RANKS];
    void *dst[LS_MAX_RANKS];
    char *out = k->a.out;
    int ndst = 1;
    for (int r = 0; r < g->size; r++) src[r] = v->from[r] + at * elem;
    switch (k->a.coll) {
    case LS_ALL_REDUCE:
        ndst = g->size;
        for (int r = 0; r < ndst; r++) dst[r] = v->to[r] + at * elem;
        if (keeps_share(k)) {
            src[g->rank] = ls_offered(k) + at * elem;
            dst[g->rank] = out + at * elem;
        }
        break;
    case LS_REDUCE: dst[0] = v->to[k->a.root] + at * elem; break;
    default: dst[0] = k->a.in ? out + k->pos * elem : out + at * elem; break; /* reduce_scatter */
    }
    if (k->a.coll == LS_REDUCE_SCATTER && k->a.in && k->past_cache)
        ls_reduce_n_past_cache(dst[0], src, g->size, n, k->a.dtype, k->a.op, ls_scale_of(k));
    else if (n > 0) ls_reduce_n(dst, ndst, src, g->size, n, k->a.dtype, k->a.op, ls_scale_of(k));
    int foreign = k->a.coll == LS_ALL_REDUCE ? ndst - 1 : k->a.coll == LS_REDUCE && g->rank != k->a.root;
    ls_count_bytes(g, (size_t)(g->size - 1 + foreign) * n * elem);
    return n;
}

/* Member r's part for us, and where it goes. */
static ls_status part_from(const ls_work *k, const vectors *v, int r, const char **from, char **to, size_t *nbytes)
{
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range s = ls_work_share(k, r);
    *from = v->from[r];
    if (k->a.coll == LS_ALL_TO_ALL) {
        ls_range theirs;
        if (!ls_block_of(k, r, k->g->rank, &theirs))
            return ls_fail(LS_PROTOCOL, "rank %d describes no block", k->g->world_rank[r]);
        if (k->recv_counts) {
            s = (ls_range){ 0, k->recv_counts[r] };
            for (int q = 0; q < r; q++) s.first += k->recv_counts[q];
        }
        if (theirs.count != s.count) return ls_blame_block(k, r, theirs.count, s.count);
        *from += theirs.first * elem;
    }
    *to = (char *)k->a.out + s.first * elem;
    *nbytes = s.count * elem;
    return LS_OK;
}

/* Everyone begins with its right neighbour, so that not all read one rank at once. */
static ls_status copy_block(ls_work *k, const vectors *v, bool *finished)
{
    ls_group *g = k->g;
    const char *from = NULL;
    char *to = NULL;
    size_t nbytes = 0;
    int r = (g->rank + 1 + k->peer) % g->size;
    LS_TRY(part_from(k, v, r, &from, &to, &nbytes));
    size_t n = nbytes - k->pos < LS_TURN_BYTES ? nbytes - k->pos : LS_TURN_BYTES;
    if (k->kind == LS_WORK_ATTACHED && r != g->rank && n > 0)
        LS_TRY(ls_attach_read(g->w, g->world_rank[r], (uint64_t)(uintptr_t)from + k->pos, to + k->pos, n));
    else copy(k, to + k->pos, from + k->pos, n);
    if (r != g->rank) ls_count_bytes(g, n);
    k->pos += n;
    if (k->pos == nbytes) {
        k->pos = 0;
        k->peer++;
    }
    *finished = k->peer == g->size;
    return LS_OK;
}

/* Of our share, into everybody's result. */
static void spread_block(ls_work *k, const vectors *v, bool *finished)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), first = k->share.first * elem, nbytes = k->share.count * elem;
    size_t block = LS_TURN_BYTES / (size_t)g->size / UNIT_BYTES * UNIT_BYTES;
    size_t n = nbytes - k->pos < block ? nbytes - k->pos : block;
    const char *from = k->a.in ? k->a.in : (const char *)k->a.out + first;
    void *to[LS_MAX_RANKS];
    int nto = 0;
    for (int d = 1; d <= g->size; d++) {
        int r = (g->rank + d) % g->size;
        if (r != g->rank || k->a.in) to[nto++] = v->to[r] + first + k->pos;
    }
    ls_spread_past_cache(to, nto, from + k->pos, n);
    k->pos += n;
    *finished = k->pos == nbytes;
    if (*finished) ls_count_bytes(g, k->nbytes - nbytes); /* that came: each byte counts once, whoever moved it */
}

/* One block of this rank's work. */
static ls_status one_block(ls_work *k, const vectors *v, bool *finished)
{
    if (v->spread) {
        spread_block(k, v, finished);
        return LS_OK;
    }
    if (k->a.coll == LS_ALL_GATHER || k->a.coll == LS_ALL_TO_ALL) return copy_block(k, v, finished);
    size_t block = LS_TURN_BYTES / ls_dtype_size(k->a.dtype), left = k->share.count - k->pos;
    k->pos += sum_block(k, v, left < block ? left : block);
    *finished = k->pos == k->share.count;
    return LS_OK;
}

ls_status ls_fold_turn(ls_work *k)
{
    ls_group *g = k->g;
    vectors v;
    ls_status st;
    if (k->phase == 1) {
        if ((st = ls_all_here(k)) != LS_OK) return st;
        if (!find(k, &v)) { /* everybody sees the same lines and decides alike */
            if (!ls_attached_all(k)) return ls_staged_start(k);
            k->kind = LS_WORK_ATTACHED;
            (void)find(k, &v);
        }
        k->peer = 0;
        k->phase = 2;
    } else if (k->phase == 2 && !find(k, &v)) {
        return ls_fail(LS_PROTOCOL, "a rank moved its vector while a collective used it");
    }
    if (k->phase == 2) {
        /* what is needed right after the block is fetched before it: the block sweeps the first-level cache */
        _Atomic uint32_t *done = &g->member[g->rank].area->line[k->mseq & 1].done;
        uint32_t mseq = k->mseq;
        bool finished;
        LS_TRY(one_block(k, &v, &finished));
        if (!finished) return LS_AGAIN;
        atomic_store_explicit(done, mseq,
                              memory_order_release); /* our reads and writes of the peers' vectors are over */
        k->peer = 0;
        k->phase = 3;
        st = ls_all_through(k);
        ls_wake_members(g); /* after a look: who sleeps can wait that long */
        if (st != LS_OK) return st;
    } else if ((st = ls_all_through(k)) != LS_OK) {
        return st;
    }
    if (k->staged && k->a.coll == LS_ALL_REDUCE) copy_whole(k, k->a.out, k->staged, k->nbytes);
    return LS_OK;
}

/* --- from and to a root -------------------------------------------------------------------- */

/* The part of the whole vector that is rank r's. */
static ls_range part_of(const ls_work *k, int r)
{
    return k->a.coll == LS_BROADCAST ? (ls_range){ 0, k->a.count } : ls_work_share(k, r);
}

/* In a broadcast among ranks with a core each the root does not only wait: it writes the last 1/n of everyone's
 * result, which says where that is in a line of its own. */
static bool root_helps(const ls_work *k) { return k->a.coll == LS_BROADCAST && !k->g->crowded && !k->past_cache; }

/* Past the caches every reader would have the vector from memory once more: each rank reads a share, for all. */
static bool all_help(const ls_work *k) { return k->a.coll == LS_BROADCAST && k->past_cache; }

/* Bytes of its part that a leaf leaves to the root. */
static size_t helped_bytes(const ls_work *k)
{
    return root_helps(k) ? k->nbytes / (size_t)k->g->size / UNIT_BYTES * UNIT_BYTES : 0;
}

bool ls_rooted_publish(ls_work *k)
{
    const ls_group *g = k->g;
    k->past_cache = past_cache(k);
    if (g->rank != k->a.root && !root_helps(k) && !all_help(k)) return true;
    const void *vector = g->rank != k->a.root || k->a.coll == LS_GATHER ? k->a.out : ls_offered(k);
    return ls_mail_post(k->g, k->rooted, k->sig, NULL, 0, ls_offset_of(&g->member[g->rank], vector, k->nbytes));
}

/* Member r's vector, or NULL when it is not registered. */
static ls_status vector_of(ls_work *k, int r, char **out)
{
    const ls_line *line;
    ls_status st = ls_mail_from(k, r, &line);
    if (st != LS_OK) return st;
    *out = ls_at_member(&k->g->member[r], line->offset, k->nbytes);
    return LS_OK;
}

/* Says that rank r has written what it had to, into everybody's result. */
static _Atomic uint32_t *helped(const ls_work *k, int r)
{
    return &k->g->member[r].area->mail[k->rooted % LS_MAIL_LINES].done;
}

/* LS_OK once every leaf has its last part from us. */
static ls_status help(ls_work *k, const char *vector)
{
    const ls_group *g = k->g;
    size_t nbytes = helped_bytes(k);
    for (; k->peer < g->size; k->peer++) {
        char *out;
        if (k->peer == g->rank) continue;
        ls_status st = vector_of(k, k->peer, &out);
        if (st != LS_OK) return st;
        if (!out) continue; /* it copies all by itself */
        size_t n = nbytes - k->pos < LS_TURN_BYTES ? nbytes - k->pos : LS_TURN_BYTES, at = k->nbytes - nbytes + k->pos;
        copy(k, out + at, vector + at, n);
        ls_count_bytes(k->g, n);
        if ((k->pos += n) < nbytes) return LS_AGAIN;
        k->pos = 0;
    }
    atomic_store_explicit(helped(k, g->rank), k->rooted, memory_order_release); /* what we wrote is visible */
    ls_wake_members(k->g);
    return LS_OK;
}

/* LS_OK once our share is in everybody's result, and this rank's own is complete. */
static ls_status help_all(ls_work *k, const char *vector)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range s = ls_sum_share(k, g->rank);
    /* our result is private: we copy all of it */
    bool alone = ls_offset_of(&g->member[g->rank], k->a.out, k->nbytes) == LS_NOT_REGISTERED;
    if (k->phase == 1) {
        void *to[LS_MAX_RANKS];
        int nto = 0;
        for (int d = 0; d < g->size; d++) {
            int r = (g->rank + d) % g->size;
            char *out;
            if (r == k->a.root) continue;
            ls_status st = vector_of(k, r, &out);
            if (st != LS_OK) return st;
            if (out) to[nto++] = out + s.first * elem + k->pos; /* else it copies all by itself */
        }
        size_t left = s.count * elem - k->pos, block = LS_TURN_BYTES / (size_t)g->size / UNIT_BYTES * UNIT_BYTES;
        size_t n = left < block ? left : block;
        ls_spread_past_cache(to, nto, vector + s.first * elem + k->pos, n);
        k->pos += n;
        if (n < left) return LS_AGAIN;
        atomic_store_explicit(helped(k, g->rank), k->rooted, memory_order_release); /* what we wrote is visible */
        ls_wake_members(g);
        k->pos = 0;
        k->peer = 0;
        k->phase = g->rank == k->a.root || !alone ? 3 : 2;
    }
    if (g->rank == k->a.root) return LS_OK;
    if (k->phase == 2) {
        size_t left = k->nbytes - k->pos, n = left < LS_TURN_BYTES ? left : LS_TURN_BYTES;
        copy(k, (char *)k->a.out + k->pos, vector + k->pos, n);
        k->pos += n;
        if (n < left) return LS_AGAIN;
        k->phase = 3;
    }
    for (; !alone && k->peer < g->size; k->peer++)
        if (!ls_reads(g, helped(k, k->peer), k->rooted)) return LS_AGAIN;
    ls_count_bytes(g, k->nbytes); /* that came: each byte counts once, whoever moved it */
    return LS_OK;
}

/* LS_OK once the root has its own part where it belongs, and every member is through. */
static ls_status root_turn(ls_work *k, char *vector)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    if (k->phase == 1 && (root_helps(k) || all_help(k))) {
        ls_status st = root_helps(k) ? help(k, vector) : help_all(k, vector);
        if (st != LS_OK) return st;
        k->peer = 0;
    }
    if (k->phase == 1 || k->phase == 3) {
        ls_range s = part_of(k, g->rank);
        bool gather = k->a.coll == LS_GATHER;
        if (k->a.in && k->a.out && s.count > 0)
            memcpy(gather ? vector + s.first * elem : k->a.out, gather ? k->a.in : vector + s.first * elem,
                   s.count * elem);
        k->phase = 2;
    }
    for (; k->peer < g->size; k->peer++)
        if (k->peer != g->rank && !ls_reached(g, &g->member[k->peer].area->through, k->rooted)) return LS_AGAIN;
    if ((int32_t)(k->rooted - g->mail.seen) > 0) g->mail.seen = k->rooted - 1; /* all but us */
    return LS_OK;
}

static ls_status leaf_turn(ls_work *k, char *vector)
{
    if (all_help(k)) return help_all(k, vector);
    ls_range s = part_of(k, k->g->rank);
    size_t elem = ls_dtype_size(k->a.dtype), nbytes = s.count * elem, left = helped_bytes(k);
    if (left > 0 && ls_offset_of(&k->g->member[k->g->rank], k->a.out, k->nbytes) == LS_NOT_REGISTERED) left = 0;
    if (k->phase == 1) {
        size_t n = nbytes - left - k->pos < LS_TURN_BYTES ? nbytes - left - k->pos : LS_TURN_BYTES;
        char *far = vector + s.first * elem + k->pos;
        if (k->a.coll == LS_GATHER) ls_copy_past_cache(far, ls_offered(k) + k->pos, n);
        else copy(k, (char *)k->a.out + k->pos, far, n);
        ls_count_bytes(k->g, n);
        k->pos += n;
        if (k->pos < nbytes - left) return LS_AGAIN;
        k->phase = 2;
    }
    return left == 0 || ls_reads(k->g, helped(k, k->a.root), k->rooted) ? LS_OK : LS_AGAIN;
}

ls_status ls_rooted_turn(ls_work *k)
{
    char *vector;
    ls_status st = vector_of(k, k->a.root, &vector);
    if (st != LS_OK) return st;
    if (!vector) { /* everybody sees the root's line */
        if (k->pos > 0) return ls_fail(LS_PROTOCOL, "a rank moved its vector while a collective used it");
        ls_mail_through(k->g, k->rooted);
        return ls_staged_start(k);
    }
    st = k->g->rank == k->a.root ? root_turn(k, vector) : leaf_turn(k, vector);
    if (st == LS_OK) ls_mail_tell(k->g, k->rooted);
    return st;
}
