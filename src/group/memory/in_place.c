/* in_place.c -- long vectors, worked on where they lie: registered memory, which every rank has mapped. No copy, two
 * flag waits.
 *
 *   all_reduce       rank r sums share r straight from all vectors and stores the sum where each wants it
 *   reduce_scatter   likewise, into its own result
 *   reduce           likewise, into the root's
 *   all_gather       everyone reads everyone's share; past the caches everyone writes its own into every result
 *   all_to_all       everyone reads its block of everyone's vector
 *
 * Everyone says in its line where its vector is, and waits at the end until no member needs anybody's memory any more.
 * Where the memory of one is private all see it in its line: the work becomes attached or staged.
 *
 * The schedules `fold` and `pairwise` are the proved text.
 */
#include "coll/reduce.h"
#include "group/memory/attached.h"
#include "group/memory/memory.h"
#include "group/memory/staged.h"
#include "group/spans.h"

#define APART_BYTES ((size_t)256 << 10) /* private all_reduces of so many: see keeps_share */

/* The rest of what all ranks do with one another. */
static bool fits(const ls_work *k, const ls_algo *asked)
{
    return k->a.coll == LS_REDUCE || !asked || strcmp(asked->name, "fold") == 0;
}

/* A share that everybody reads comes from memory as often; its owner reads it once for all. */
static bool may_spread(const ls_work *k) { return k->a.coll == LS_ALL_GATHER && k->past_cache; }

/* From a vector's begin to its end, bytes. */
static size_t vector_bytes(const ls_work *k)
{
    return k->span ? ls_spans_extent(k) * ls_dtype_size(k->a.dtype) : k->nbytes;
}

/* What member r offers, in bytes. */
static size_t offered_bytes(const ls_work *k, int r)
{
    if (k->span) return vector_bytes(k);
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
    return ls_at_member(k->g, k->g->rank, area->whole_offset, 2 * LS_WHOLE_BYTES) + half * LS_WHOLE_BYTES;
}

/* No other rank reads our own share. From APART_BYTES on, two copies around it cost less than one copy of all. */
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
static void place(ls_work *k, ls_line *line)
{
    k->past_cache = ls_past_cache(k);
    const ls_group *g = k->g;
    const ls_member *me = &g->member[g->rank];
    size_t nbytes = offered_bytes(k, g->rank), elem = ls_dtype_size(k->a.dtype);
    bool has_sum = k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && g->rank == k->a.root);
    k->share =
        k->a.coll == LS_ALL_REDUCE || k->a.coll == LS_REDUCE ? ls_sum_share(k, g->rank) : ls_work_share(k, g->rank);
    const char *bytes = ls_offered(k);
    if (k->a.coll == LS_ALL_GATHER && !k->a.in && bytes && !k->span) bytes += k->share.first * elem;
    uint64_t from = ls_offset_of(g, bytes, nbytes), to = from;
    if (has_sum && bytes != k->a.out && from != LS_NOT_REGISTERED) to = ls_offset_of(g, k->a.out, nbytes);
    bool is_private = from == LS_NOT_REGISTERED || to == LS_NOT_REGISTERED;
    line->at = ls_attached_address(k, bytes);
    k->staged = is_private && !ls_attached_long(k, k->nbytes) ? room_for_copy(k, nbytes) : NULL;
    if (k->staged) {
        copy_whole(k, k->staged, bytes, nbytes);
        if (LS_UNLIKELY(!g->hinted && nbytes > LS_ONESHOT_BYTES)) ls_hint_private(k);
        from = to = ls_offset_of(g, k->staged, nbytes);
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
    line->to = may_spread(k) ? ls_offset_of(g, k->a.out, vector_bytes(k)) : to;
}

static bool publish(ls_work *k)
{
    ls_group *g = k->g;
    ls_line *line = &g->member[g->rank].area->line[k->mseq & 1];
    place(k, line);
    line->stage = atomic_load_explicit(&g->stage_bytes, memory_order_acquire);
    ls_line_show(k, line);
    return true;
}

typedef struct vectors {
    char *from[LS_HOST_MOST_RANKS]; /* the members' vectors */
    char *to[LS_HOST_MOST_RANKS];   /* and where their sums belong, or what they gather */
    bool spread;              /* that is registered: everyone writes into all */
} vectors;

/* Finds and checks the vectors of all ranks; false when one of them is not registered. */
static bool find(const ls_work *k, vectors *v)
{
    const ls_group *g = k->g;
    bool all = true, gathers = may_spread(k);
    size_t elem = ls_dtype_size(k->a.dtype);
    v->spread = gathers;
    for (int r = 0; r < g->size; r++) {
        const ls_member *m = &g->member[r];
        const ls_line *line = &m->area->line[k->mseq & 1];
        uint64_t offset = line->offset, to = line->to; /* copied once, then checked */
        size_t n = offered_bytes(k, r);
        ls_range s;
        if (k->a.coll == LS_ALL_TO_ALL) n = ls_block_of(k, r, g->rank, &s) ? (s.first + s.count) * elem : SIZE_MAX;
        v->from[r] = ls_at_member(g, r, offset, n);
        bool sums = k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && r == k->a.root);
        v->to[r] = sums ? ls_at_member(g, r, to, n) : gathers ? ls_at_member(g, r, to, vector_bytes(k)) : v->from[r];
        all &= v->from[r] && (v->to[r] || gathers);
        v->spread &= v->to[r] != NULL;
    }
    return all || v->spread;
}

static size_t sum_block(ls_work *k, const vectors *v, size_t n)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), left = n;
    const size_t at = k->span ? ls_spans_at(k, g->rank, k->pos, &left) : k->share.first + k->pos;
    if (left < n) n = left;
    const void *src[LS_HOST_MOST_RANKS];
    void *dst[LS_HOST_MOST_RANKS];
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
    ls_count_moved(k, (size_t)(g->size - 1 + foreign) * n * elem);
    return n;
}

/* `nbytes` of rank r's part, from byte k->pos of it on, which stand in the vector `from` as they do in ours. */
static void copy_spans(const ls_work *k, const char *from, int r, size_t nbytes)
{
    const size_t elem = ls_dtype_size(k->a.dtype);
    for (size_t done = 0, n; done < nbytes; done += n) {
        size_t left;
        const size_t at = ls_spans_at(k, r, (k->pos + done) / elem, &left) * elem;
        n = left * elem < nbytes - done ? left * elem : nbytes - done;
        ls_copy_part(k, (char *)k->a.out + at, from + at, n);
    }
}

/* At most *left bytes of one rank's part. Everyone begins with its right neighbour, so that not all read one rank at
 * once. */
static ls_status copy_block(ls_work *k, const vectors *v, size_t *left, bool *finished)
{
    ls_group *g = k->g;
    const char *from = NULL;
    char *to = NULL;
    size_t nbytes = 0;
    int r = (g->rank + 1 + k->peer) % g->size;
    LS_TRY(ls_part_from(k, v->from[r], r, &from, &to, &nbytes));
    size_t n = nbytes - k->pos < *left ? nbytes - k->pos : *left;
    if (!k->span) ls_copy_part(k, to + k->pos, from + k->pos, n);
    else if (r != g->rank) copy_spans(k, v->from[r], r, n);
    if (r != g->rank) ls_count_moved(k, n);
    k->pos += n;
    *left -= n;
    if (k->pos == nbytes) {
        k->pos = 0;
        k->peer++;
    }
    *finished = k->peer == g->size;
    return LS_OK;
}

/* Short parts of all ranks are one turn: after each, ranks that share cores would wait until all others had theirs. */
static ls_status copy_blocks(ls_work *k, const vectors *v, bool *finished)
{
    size_t left = LS_TURN_BYTES;
    do LS_TRY(copy_block(k, v, &left, finished));
    while (!*finished && left > 0);
    return LS_OK;
}

/* Of our share, into everybody's result. */
static void spread_block(ls_work *k, const vectors *v, bool *finished)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), first = k->share.first * elem + k->pos, nbytes = k->share.count * elem;
    size_t block = LS_TURN_BYTES / (size_t)g->size / LS_SHARE_UNIT * LS_SHARE_UNIT;
    size_t n = nbytes - k->pos < block ? nbytes - k->pos : block, left = n;
    if (k->span) first = ls_spans_at(k, g->rank, k->pos / elem, &left) * elem;
    if (k->span && left * elem < n) n = left * elem;
    const char *from = k->a.in ? (const char *)k->a.in + k->pos : (const char *)k->a.out + first;
    void *to[LS_HOST_MOST_RANKS];
    int nto = 0;
    for (int d = 1; d <= g->size; d++) {
        int r = (g->rank + d) % g->size;
        if (r != g->rank || k->a.in) to[nto++] = v->to[r] + first;
    }
    ls_spread_past_cache(to, nto, from, n);
    k->pos += n;
    *finished = k->pos == nbytes;
    if (*finished) ls_count_moved(k, k->nbytes - nbytes); /* that came: each counts once, whoever moved it */
}

/* One block of this rank's work. */
static ls_status one_block(ls_work *k, const vectors *v, bool *finished)
{
    if (v->spread) {
        spread_block(k, v, finished);
        return LS_OK;
    }
    if (k->a.coll == LS_ALL_GATHER || k->a.coll == LS_ALL_TO_ALL) return copy_blocks(k, v, finished);
    size_t block = LS_TURN_BYTES / ls_dtype_size(k->a.dtype), left = k->share.count - k->pos;
    const size_t until = k->pos + (left < block ? left : block);
    do k->pos += sum_block(k, v, until - k->pos);
    while (k->pos < until); /* span by span */
    *finished = k->pos == k->share.count;
    return LS_OK;
}

static ls_status turn(ls_work *k)
{
    ls_group *g = k->g;
    vectors v;
    ls_status st;
    if (k->phase == 1) {
        if ((st = ls_all_here(k)) != LS_OK) return st;
        if (!find(k, &v)) /* everybody sees the same lines and decides alike */
            return ls_attached_all(k) ? ls_attached_start(k) : ls_staged_start(k);
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

static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    const ls_group *g = k->g;
    const size_t elem = ls_dtype_size(k->a.dtype), others = (size_t)g->size - 1;
    const size_t mine =
        (k->a.coll == LS_REDUCE_SCATTER ? ls_work_share(k, g->rank).count : ls_sum_share(k, g->rank).count) * elem;
    *out = (ls_traffic){ .flags = 2, .rounds = 2 };
    switch (k->a.coll) {
    case LS_ALL_REDUCE:
        out->read = out->added = others * mine;
        out->written = others * mine;
        break;
    case LS_REDUCE:
        out->read = out->added = others * mine;
        out->written = g->rank == k->a.root ? 0 : mine;
        break;
    case LS_REDUCE_SCATTER: out->read = out->added = others * mine; break;
    default: out->read = ls_parts_of_others(k) * elem; break;
    }
    return ls_counted(out);
}

const ls_form ls_form_in_place = {
    .name = "fold",
    .about = "in memory: each rank works on its part of all vectors in place",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_REDUCE | 1u << LS_ALL_GATHER |
             1u << LS_ALL_TO_ALL,
    .fits = fits,
    .spans = true,
    .prepare = ls_staged_prepare,
    .publish = publish,
    .turn = turn,
    .traffic = traffic,
};
