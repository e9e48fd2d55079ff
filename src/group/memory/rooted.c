/* rooted.c -- long vectors from or to a root, where they lie: registered memory, which every rank has mapped.
 *
 *   broadcast, scatter   everyone reads the root's vector (and of a broadcast the root writes a part); a broadcast past
 *                        the caches: rank r reads share r and writes it into every result
 *   gather               everyone writes its share into the root's vector
 *
 * The root says where its vector is, in a line of its mailbox (mail.h), and only the root waits. Where its vector is
 * private, the work becomes staged. The schedule `linear` is the proved text.
 */
#include "group/memory/mail.h"
#include "group/memory/memory.h"
#include "group/memory/staged.h"

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
    return root_helps(k) ? k->nbytes / (size_t)k->g->size / LS_SHARE_UNIT * LS_SHARE_UNIT : 0;
}

static bool publish(ls_work *k)
{
    const ls_group *g = k->g;
    k->past_cache = ls_past_cache(k);
    if (g->rank != k->a.root && !root_helps(k) && !all_help(k)) return true;
    const void *vector = g->rank != k->a.root || k->a.coll == LS_GATHER ? k->a.out : ls_offered(k);
    return ls_mail_post(k->g, k->rooted, k->sig, NULL, 0, ls_offset_of(g, vector, k->nbytes));
}

/* Member r's vector, or NULL when it is not registered. */
static ls_status vector_of(ls_work *k, int r, char **out)
{
    const ls_line *line;
    ls_status st = ls_mail_from(k, r, &line);
    if (st != LS_OK) return st;
    *out = ls_at_member(k->g, r, line->offset, k->nbytes);
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
        ls_copy_part(k, out + at, vector + at, n);
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
    bool alone = ls_offset_of(g, k->a.out, k->nbytes) == LS_NOT_REGISTERED;
    if (k->phase == 1) {
        void *to[LS_HOST_MOST_RANKS];
        int nto = 0;
        for (int d = 0; d < g->size; d++) {
            int r = (g->rank + d) % g->size;
            char *out;
            if (r == k->a.root) continue;
            ls_status st = vector_of(k, r, &out);
            if (st != LS_OK) return st;
            if (out) to[nto++] = out + s.first * elem + k->pos; /* else it copies all by itself */
        }
        size_t left = s.count * elem - k->pos, block = LS_TURN_BYTES / (size_t)g->size / LS_SHARE_UNIT * LS_SHARE_UNIT;
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
        ls_copy_part(k, (char *)k->a.out + k->pos, vector + k->pos, n);
        k->pos += n;
        if (n < left) return LS_AGAIN;
        k->phase = 3;
    }
    for (; !alone && k->peer < g->size; k->peer++)
        if (!ls_reads(g, helped(k, k->peer), k->rooted)) return LS_AGAIN;
    ls_count_moved(k, k->nbytes); /* that came: each byte counts once, whoever moved it */
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
    if (left > 0 && ls_offset_of(k->g, k->a.out, k->nbytes) == LS_NOT_REGISTERED) left = 0;
    if (k->phase == 1) {
        size_t n = nbytes - left - k->pos < LS_TURN_BYTES ? nbytes - left - k->pos : LS_TURN_BYTES;
        char *far = vector + s.first * elem + k->pos;
        if (k->a.coll == LS_GATHER) ls_copy_past_cache(far, ls_offered(k) + k->pos, n);
        else ls_copy_part(k, (char *)k->a.out + k->pos, far, n);
        k->pos += n;
        if (k->pos < nbytes - left) return LS_AGAIN;
        ls_count_moved(k, nbytes); /* those that the root writes, too: once, where they arrive */
        k->phase = 2;
    }
    return left == 0 || ls_reads(k->g, helped(k, k->a.root), k->rooted) ? LS_OK : LS_AGAIN;
}

static ls_status turn(ls_work *k)
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

/* Of a broadcast each byte counts once, where it arrives, whoever moved it. */
static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    const ls_group *g = k->g;
    const size_t own = ls_work_share(k, g->rank).count * ls_dtype_size(k->a.dtype);
    const bool root = g->rank == k->a.root, past_cache = ls_past_cache(k);
    const bool helped = k->a.coll == LS_BROADCAST && (past_cache || !g->crowded);
    *out = (ls_traffic){ .flags = 1u + (helped && (past_cache || root)), .rounds = 1 + helped };
    if (root) return LS_OK;
    if (k->a.coll == LS_BROADCAST) out->read = k->nbytes;
    else if (k->a.coll == LS_SCATTER) out->read = own;
    else out->written = own;
    return ls_counted(out);
}

const ls_form ls_form_rooted = {
    .name = "rooted",
    .about = "in memory: straight between the root's vector and the others'",
    .colls = 1u << LS_BROADCAST | 1u << LS_GATHER | 1u << LS_SCATTER,
    .rooted = true,
    .prepare = ls_staged_prepare,
    .publish = publish,
    .turn = turn,
    .traffic = traffic,
};
