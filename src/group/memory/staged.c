/* staged.c -- long vectors in private memory, piece by piece through slots that every rank has mapped.
 * (Sums and all_gathers of up to LS_WHOLE_BYTES go whole: in_place.c copies them into a slot and works on that.)
 *
 * Each rank has LS_STAGE_SLOTS slots. Piece i of a collective goes through slot i % LS_STAGE_SLOTS in up to three
 * steps:
 *
 *   put      what others need of piece i, from the own vector into the own slot
 *   take     once everyone has put it: the own part, from the peers' slots; a sum goes into the own slot too
 *   finish   of all_reduce (and reduce, on the root), once everyone has taken: the peers' sums from their slots
 *
 * A rank does put(i), take(i - 1), finish(i - 2) in turn, so that its peers have had time for what it waits for. A slot
 * is put to again when everybody is finished with what was in it: with four slots, seldom a wait.
 *
 *   slot of rank r in a sum:   | for 0 | for 1 | ... | sum of share r | ... | for n-1 |
 *
 * Bytes copied per rank, n ranks, S bytes: all_reduce in 2 S (n-1)/n, out S/n; without a byte of registered memory. In
 * registered memory no byte is copied, which is why a group says once what its callers could do.
 */
#include "group/memory/staged.h"

#include <stdlib.h>

#include "base/log.h"
#include "coll/reduce.h"
#include "group/memory/memory.h"
#include "group/mismatch.h"

/* Of a slot outside the area. The longer a piece, the fewer waits; all slots of two ranks fit their second-level
 * caches. */
#define SLOT_BYTES ((uint32_t)256 << 10)

enum step { PUT, TAKE, FINISH, STEPS };

static bool sums(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE || c == LS_REDUCE_SCATTER; }

/* --- who does what ---------------------------------------------------------------------- */

static bool gives(const ls_work *k, int r)
{
    switch (k->a.coll) {
    case LS_BROADCAST:
    case LS_SCATTER: return r == k->a.root;
    case LS_GATHER: return r != k->a.root;
    default: return true;
    }
}

static bool takes(const ls_work *k, int r)
{
    switch (k->a.coll) {
    case LS_BROADCAST:
    case LS_SCATTER: return r != k->a.root;
    case LS_GATHER: return r == k->a.root;
    default: return true;
    }
}

static bool finishes(const ls_work *k, int r)
{
    return k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && r == k->a.root);
}

/* --- what is where ---------------------------------------------------------------------- */

/* Into so many parts a slot is cut: one for each rank, or one for all. */
static int parts_of_slot(const ls_work *k)
{
    return sums(k->a.coll) || k->a.coll == LS_ALL_TO_ALL || k->a.coll == LS_SCATTER ? k->g->size : 1;
}

/* Elements of the vector that are for rank r, or from it. */
static ls_range part(const ls_work *k, int r)
{
    switch (k->a.coll) {
    case LS_ALL_REDUCE:
    case LS_REDUCE: return ls_sum_share(k, r);
    case LS_BROADCAST: return (ls_range){ 0, k->a.count };
    default: return ls_work_share(k, r);
    }
}

/* The same of what an all_to_all receives. */
static ls_range received(const ls_work *k, int r)
{
    ls_range s = { 0, 0 };
    if (!k->recv_counts) return ls_work_share(k, r);
    for (int q = 0; q < r; q++) s.first += k->recv_counts[q];
    s.count = k->recv_counts[r];
    return s;
}

/* Piece i of a part. */
static ls_range piece(const ls_work *k, ls_range s, size_t i)
{
    size_t at = i * k->piece, n = at < s.count ? s.count - at : 0;
    return (ls_range){ s.first + at, n < k->piece ? n : k->piece };
}

/* Of rank r, piece i, the bytes for rank q. */
static char *slot(const ls_work *k, int r, size_t i, int q)
{
    size_t at = k->parts > 1 ? (size_t)q * k->piece * ls_dtype_size(k->a.dtype) : 0;
    const ls_member *m = &k->g->member[r];
    return m->stage + (k->stage + i) % LS_STAGE_SLOTS * m->stage_bytes + at;
}

/* --- steps ------------------------------------------------------------------------------------ */

static void copy(char *to, const char *from, ls_range s, size_t elem)
{
    if (s.count > 0) memcpy(to, from, s.count * elem);
}

/* Into lines that peers have read: where stores wait for each of them, those past the caches do not. */
static void show(const ls_group *g, char *to, const char *from, ls_range s, size_t elem)
{
    const size_t nbytes = s.count * elem;
    if ((double)nbytes >= g->e->tuning.cost.in_memory.stage_past_cache) ls_copy_past_cache(to, from, nbytes);
    else if (nbytes > 0) memcpy(to, from, nbytes);
}

static void put(const ls_work *k, size_t i)
{
    const ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    const char *in = k->copied ? k->copied : ls_offered(k);
    if (k->parts == 1) { /* everybody gets the same */
        ls_range s = piece(k, part(k, g->rank), i);
        bool share = k->a.in && k->a.coll != LS_BROADCAST; /* only that, not the whole vector */
        size_t first = share || (k->a.coll == LS_GATHER) ? s.first - part(k, g->rank).first : s.first;
        show(g, slot(k, g->rank, i, 0), in + first * elem, s, elem);
        return;
    }
    for (int q = 0; q < g->size; q++) {
        if (q == g->rank) continue;
        ls_range s = piece(k, part(k, q), i);
        show(g, slot(k, g->rank, i, q), in + s.first * elem, s, elem);
    }
}

static void take_sum(ls_work *k, size_t i)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range whole = part(k, g->rank), s = piece(k, whole, i);
    const void *src[LS_HOST_MOST_RANKS];
    void *dst[2];
    char *out = k->a.out;
    int ndst = 0;
    if (s.count == 0) return;
    for (int r = 0; r < g->size; r++)
        src[r] = r == g->rank ? ls_offered(k) + s.first * elem : slot(k, r, i, g->rank);
    if (k->a.coll == LS_REDUCE_SCATTER) dst[ndst++] = out + (k->a.in ? s.first - whole.first : s.first) * elem;
    else if (k->a.coll == LS_ALL_REDUCE || g->rank == k->a.root) dst[ndst++] = out + s.first * elem;
    if (k->a.coll == LS_ALL_REDUCE || ndst == 0) dst[ndst++] = slot(k, g->rank, i, g->rank);
    ls_reduce_n(dst, ndst, src, g->size, s.count, k->a.dtype, k->a.op, ls_scale_of(k));
    ls_count_moved(k, (size_t)(g->size - 1) * s.count * elem);
}

/* Our part of rank r's piece. */
static void take_from(ls_work *k, int r, size_t i)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range to, s;
    switch (k->a.coll) {
    case LS_ALL_TO_ALL: to = s = piece(k, received(k, r), i); break;
    case LS_SCATTER: /* the result is our share only */
        s = piece(k, part(k, g->rank), i);
        to = (ls_range){ s.first - part(k, g->rank).first, s.count };
        break;
    default: to = s = piece(k, part(k, r), i); break;
    }
    copy((char *)k->a.out + to.first * elem, slot(k, r, i, g->rank), s, elem);
    ls_count_moved(k, s.count * elem);
}

static void take(ls_work *k, size_t i)
{
    if (sums(k->a.coll)) {
        take_sum(k, i);
        return;
    }
    for (int d = 1; d < k->g->size; d++) {
        int r = (k->g->rank + d) % k->g->size;
        if (gives(k, r)) take_from(k, r, i);
    }
}

static void finish(ls_work *k, size_t i)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    for (int d = 1; d < g->size; d++) {
        int r = (g->rank + d) % g->size;
        ls_range s = piece(k, part(k, r), i);
        copy((char *)k->a.out + s.first * elem, slot(k, r, i, r), s, elem);
        ls_count_moved(k, s.count * elem);
    }
}

/* What needs nobody: our own part, from our input to our result. */
static void keep_own(const ls_work *k)
{
    const ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range own = part(k, g->rank);
    const char *in = k->a.in;
    char *out = k->a.out;
    switch (k->a.coll) {
    case LS_ALL_GATHER:
    case LS_GATHER:
        if (in && (k->a.coll == LS_ALL_GATHER || g->rank == k->a.root)) copy(out + own.first * elem, in, own, elem);
        break;
    case LS_ALL_TO_ALL: {
        const char *from = k->copied ? k->copied : in;
        if (from) copy(out + received(k, g->rank).first * elem, from + own.first * elem, own, elem);
        break;
    }
    case LS_BROADCAST:
    case LS_SCATTER:
        if (in && out && g->rank == k->a.root) copy(out, in + own.first * elem, own, elem);
        break;
    default: break;
    }
}

/* --- order ---------------------------------------------------------------------------------- */

static bool member_did(const ls_work *k, int r, enum step step, uint32_t pieces)
{
    return ls_reached(k->g, &k->g->member[r].area->staged[step], k->stage + pieces);
}

/* Whether everyone is as far as step wants for piece i. */
static bool may(ls_work *k, enum step step, uint32_t i)
{
    const ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++) {
        int r = k->peer;
        bool here = true;
        if (r == g->rank) continue;
        switch (step) {
        case PUT: /* nobody reads what the slot held: of this collective, or of the one before */
            here = member_did(k, r, FINISH, takes(k, r) && i >= LS_STAGE_SLOTS ? i - LS_STAGE_SLOTS + 1 : 0);
            break;
        case TAKE: here = !gives(k, r) || member_did(k, r, PUT, i + 1); break;
        default: here = member_did(k, r, TAKE, i + 1); break;
        }
        if (!here) return false;
    }
    k->peer = 0;
    return true;
}

static void did(const ls_work *k, enum step step, uint32_t pieces)
{
    /* release: what was put is visible, what was read is read */
    atomic_store_explicit(&k->g->member[k->g->rank].area->staged[step], k->stage + pieces, memory_order_release);
}

/* LS_OK once piece i has made this step. */
static ls_status make(ls_work *k, enum step step, uint32_t i)
{
    int me = k->g->rank;
    bool ours = step == PUT ? gives(k, me) : step == TAKE ? takes(k, me) : finishes(k, me);
    if (!ours) return LS_OK;
    if (!may(k, step, i)) return LS_AGAIN;
    if (step == PUT) put(k, i);
    else if (step == TAKE) take(k, i);
    else finish(k, i);
    did(k, step, i + 1);
    if (step == TAKE && !finishes(k, me)) did(k, FINISH, i + 1);
    ls_wake_members(k->g);
    return LS_OK;
}

/* --- start and end ------------------------------------------------------------------------------ */

/* The longest part of any rank; false when one is not as its receiver expects. */
static ls_status longest_part(const ls_work *k, size_t *out)
{
    const ls_group *g = k->g;
    *out = 0;
    for (int r = 0; r < g->size; r++) {
        size_t n = part(k, r).count;
        if (n > *out) *out = n;
        if (!k->recv_counts) continue;
        for (int q = 0; q < g->size; q++) { /* everybody's blocks, so that everybody finds the same */
            ls_range s;
            if (!ls_block_of(k, r, q, &s))
                return ls_fail(LS_PROTOCOL, "rank %d describes no block", g->world_rank[r]);
            if (s.count > *out) *out = s.count;
            if (q == g->rank && s.count != k->recv_counts[r])
                return ls_mismatch_block(k, r, s.count, k->recv_counts[r]);
        }
    }
    return LS_OK;
}

LS_COLD void ls_hint_private(const ls_work *k)
{
    ls_group *g = k->g;
    const void *p = ls_offered(k);
    if (!p || ls_offset_of(g, p, 1) != LS_NOT_REGISTERED) return;
    g->hinted = true;
    ls_log(LS_LOG_INFO,
           "group %s: %s of %zu bytes in private memory goes through a copy: memory from ls_alloc() is faster", g->text,
           ls_coll_name(k->a.coll), k->nbytes);
}

/* An all_to_all in place with counts of its own on each side overwrites what it has yet to send. */
static ls_status keep_copy(ls_work *k)
{
    ls_group *g = k->g;
    if (k->a.coll != LS_ALL_TO_ALL || k->a.in || !k->counts || k->nbytes == 0) return LS_OK;
    if (g->ncopy < k->nbytes) {
        free(g->copy);
        g->copy = malloc(k->nbytes);
        g->ncopy = g->copy ? k->nbytes : 0;
        if (!g->copy) return ls_fail(LS_NO_MEMORY, "%zu bytes for an all_to_all in place", k->nbytes);
    }
    memcpy(g->copy, k->a.out, k->nbytes);
    k->copied = g->copy;
    return LS_OK;
}

/* Memory of our arena by its offset there; 0 where there is none any more, which costs speed alone. */
static uint64_t slots(ls_world *w, size_t nbytes)
{
    void *p;
    return ls_arena_alloc(w->arena, nbytes, LS_MEM_COMM, &p) < 0 ? 0 : ls_world_offset(w, p, nbytes);
}

/* As long as the area lives. In a dry world there is no memory to write down where they are. */
static void take_slots(ls_group *g)
{
    ls_area *area = g->has.area;
    const uint64_t stage = slots(g->w, (size_t)LS_STAGE_SLOTS * SLOT_BYTES), whole = slots(g->w, 2 * LS_WHOLE_BYTES);
    g->has.slots = true;
    if (g->w->dry) return;
    area->stage_offset = stage;
    area->stage_bytes = stage ? SLOT_BYTES : 0;
    /* A progress thread reads these for private vectors alone, and none of this group's was given to it before this
     * one, the first: the queue's tail (release) comes behind. From the second on nothing is written here. */
    area->whole_offset = whole;
}

void ls_staged_prepare(ls_work *k)
{
    ls_group *g = k->g;
    if (k->span) return; /* spans are read where they lie, or packed */
    if (LS_LIKELY(k->nbytes <= LS_ONESHOT_BYTES || atomic_load_explicit(&g->stage_bytes, memory_order_relaxed) != 0))
        return;
    bool in = !k->a.in || ls_offset_of(g, k->a.in, 1) != LS_NOT_REGISTERED;
    bool out = !k->a.out || ls_offset_of(g, k->a.out, 1) != LS_NOT_REGISTERED;
    if (in && out) return;
    if (!g->has.slots) take_slots(g);
    uint32_t have = g->w->dry ? SLOT_BYTES : g->has.area->stage_bytes;
    if (have == 0) have = LS_STAGE_BYTES;
    atomic_store_explicit(&g->stage_bytes, have, memory_order_release); /* the offset is there */
}

/* Finds the slots of a member from its line. */
static ls_status find_stage(ls_group *g, int r, const ls_line *line)
{
    ls_member *m = &g->member[r];
    uint32_t n = line ? line->stage : LS_STAGE_BYTES; /* copied once, then checked */
    m->stage = m->area->stage[0];
    m->stage_bytes = LS_STAGE_BYTES;
    if (n <= LS_STAGE_BYTES) return LS_OK;
    m->stage = ls_at_member(g, r, m->area->stage_offset, (size_t)LS_STAGE_SLOTS * n);
    m->stage_bytes = n;
    return m->stage ? LS_OK : ls_fail(LS_PROTOCOL, "rank %d offers a stage outside its arena", g->world_rank[r]);
}

/* The slots of whoever gives, and the shortest of them; what is seen of it must be the same for everybody. */
static ls_status find_stages(const ls_work *k, size_t *shortest)
{
    ls_group *g = k->g;
    *shortest = SIZE_MAX;
    for (int r = 0; r < g->size; r++) {
        const ls_area *area = g->member[r].area;
        const ls_line *line = &area->line[k->mseq & 1];
        if (!gives(k, r)) continue;
        if (k->a.coll == LS_BROADCAST || k->a.coll == LS_SCATTER) line = &area->mail[k->rooted % LS_MAIL_LINES];
        if (k->a.coll == LS_GATHER) line = NULL; /* who gives has no line */
        LS_TRY(find_stage(g, r, line));
        if (g->member[r].stage_bytes < *shortest) *shortest = g->member[r].stage_bytes;
    }
    return LS_OK;
}

ls_status ls_staged_start(ls_work *k)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype), longest, most;
    LS_TRY(longest_part(k, &longest));
    LS_TRY(find_stages(k, &most));
    LS_TRY(keep_copy(k));
    k->parts = parts_of_slot(k);
    k->piece = most / (size_t)k->parts / 64 * 64 / elem;
    k->npieces = (uint32_t)((longest + k->piece - 1) / k->piece);
    k->stage = g->stage;
    g->stage += k->npieces;
    k->form = &ls_form_staged;
    k->phase = 1;
    k->peer = 0;
    k->pos = 0;
    keep_own(k);
    if (LS_UNLIKELY(!g->hinted)) ls_hint_private(k);
    return LS_AGAIN;
}

static ls_status turn(ls_work *k)
{
    size_t end = k->npieces > 0 ? ((size_t)k->npieces + STEPS - 1) * STEPS : 0;
    for (size_t moved = 0; k->pos < end; k->pos++) {
        enum step step = (enum step)(k->pos % STEPS);
        size_t i = k->pos / STEPS - (size_t)step; /* wraps before the first: then it is no piece */
        if (i >= k->npieces) continue;
        if (moved >= LS_TURN_BYTES) return LS_AGAIN;
        if (make(k, step, (uint32_t)i) != LS_OK) return LS_AGAIN;
        moved += k->piece * (size_t)k->parts * ls_dtype_size(k->a.dtype);
    }
    for (int step = PUT; step < STEPS; step++) did(k, (enum step)step, k->npieces); /* ours or not */
    ls_wake_members(k->g);
    return LS_OK;
}

/* Of what the shortest slots hold: so many pieces has the longest part. */
static uint64_t pieces(const ls_work *k)
{
    const ls_group *g = k->g;
    const uint32_t have = atomic_load_explicit(&g->stage_bytes, memory_order_relaxed);
    const size_t elem = ls_dtype_size(k->a.dtype), slot = have > LS_STAGE_BYTES ? have : LS_STAGE_BYTES;
    const size_t each = slot / (size_t)parts_of_slot(k) / 64 * 64 / elem;
    size_t longest = 0;
    for (int r = 0; r < g->size; r++)
        if (part(k, r).count > longest) longest = part(k, r).count;
    return (longest + each - 1) / each;
}

/* Into slots: what others need of our vector, and of a sum that others get ours. */
static size_t slot_bytes(const ls_work *k, size_t mine)
{
    const int me = k->g->rank;
    const size_t sum = k->a.coll == LS_ALL_REDUCE || (k->a.coll == LS_REDUCE && me != k->a.root) ? mine : 0;
    if (!gives(k, me)) return 0;
    return parts_of_slot(k) == 1 ? mine : k->nbytes - mine + sum;
}

static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    const ls_group *g = k->g;
    const size_t elem = ls_dtype_size(k->a.dtype), mine = part(k, g->rank).count * elem;
    const bool gets_sum = finishes(k, g->rank), root = g->rank == k->a.root;
    const uint64_t steps = (uint64_t)gives(k, g->rank) + takes(k, g->rank) + gets_sum;
    *out = (ls_traffic){ .flags = (gives(k, g->rank) || root ? 1u : 0u) + (uint64_t)STEPS + steps * pieces(k),
                         .rounds = 2 + finishes(k, k->a.root), .copied = slot_bytes(k, mine) };
    if (sums(k->a.coll)) {
        out->read = out->added = ((size_t)g->size - 1) * mine;
        if (gets_sum) out->read += k->nbytes - mine;
    } else if (k->a.coll == LS_BROADCAST) {
        out->read = root ? 0 : k->nbytes;
    } else if (k->a.coll == LS_SCATTER) {
        out->read = root ? 0 : mine;
    } else if (k->a.coll == LS_GATHER) {
        out->read = root ? k->nbytes - mine : 0;
    } else {
        out->read = ls_parts_of_others(k) * elem;
    }
    return ls_counted(out);
}

const ls_form ls_form_staged = {
    .name = "staged",
    .about = "in memory: in pieces, through slots",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_REDUCE | 1u << LS_ALL_GATHER |
             1u << LS_ALL_TO_ALL | 1u << LS_BROADCAST | 1u << LS_GATHER | 1u << LS_SCATTER,
    .turn = turn,
    .traffic = traffic,
};
