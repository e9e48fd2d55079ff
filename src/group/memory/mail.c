/* mail.c -- short collectives from or to a root, in memory that every rank has mapped.
 *
 *   broadcast, scatter   the root writes, the others read
 *   gather, reduce       the others write, the root reads
 *
 * Who writes does not wait for who reads: it goes on, up to LS_MAIL_LINES collectives ahead. Each rank has a
 * ring of lines and a ring of bytes, written by it alone. Up to 40 bytes travel in the line itself.
 *
 *   writer m:  line m % LS_MAIL_LINES is free once every member is through with m - LS_MAIL_LINES
 *   reader m:  waits until the line says m
 *
 * How far a rank is stands in its area, and is written there now and then only: a writer looks at it when its ring
 * seems full, and each look takes the line away from the rank that writes it. What a writer can know without a look is
 * the end of the last collective in which everyone waited for everyone.
 *
 * A reduction sums in ascending rank order, as everything in mapped memory does.
 */
#include "group/memory/mail.h"

#include "coll/reduce.h"
#include "group/memory/memory.h"
#include "group/mismatch.h"

#define TELL_EVERY 4u /* collectives; a writer may find its ring that much shorter */
#define ALIGN 64u

/* --- how far everybody is ------------------------------------------------------------- */

static void look(ls_group *g, uint32_t rooted)
{
    uint32_t least = rooted - 1;
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank) continue;
        /* acquire: pairs with tell(); what that rank read before is read */
        uint32_t through = atomic_load_explicit(&g->member[r].area->through, memory_order_acquire);
        if ((int32_t)(through - least) < 0) least = through;
    }
    if ((int32_t)(least - g->mail.seen) > 0) g->mail.seen = least;
}

void ls_mail_tell(ls_group *g, uint32_t rooted)
{
    if (g->mail.told == rooted) return;

    g->mail.told = rooted;
    /* release: our reads of the lines up to it are over */
    atomic_store_explicit(&g->member[g->rank].area->through, rooted, memory_order_release);
    ls_wake_members(g);
}

void ls_mail_through(ls_group *g, uint32_t rooted)
{
    if (rooted - g->mail.told >= TELL_EVERY) ls_mail_tell(g, rooted);
}

/* --- writing --------------------------------------------------------------------------- */

/* Frees the bytes of what every member is through with. */
static void reclaim(ls_group *g)
{
    ls_mail *x = &g->mail;
    while (x->freed != x->sent && (int32_t)(x->seen - g->mark[x->freed % LS_MAIL_LINES].rooted) >= 0)
        x->tail = g->mark[x->freed++ % LS_MAIL_LINES].end;
}

/* Room for n bytes in one piece, from `head` on; false while there is none. */
static bool room(ls_group *g, uint32_t rooted, uint32_t n)
{
    ls_mail *x = &g->mail;
    uint32_t at = x->head % LS_MAIL_BYTES, skip = at + n > LS_MAIL_BYTES ? LS_MAIL_BYTES - at : 0;
    if (x->sent - x->freed == LS_MAIL_LINES || x->head + skip + n - x->tail > LS_MAIL_BYTES) {
        reclaim(g);
        if (x->head + skip + n - x->tail > LS_MAIL_BYTES) {
            look(g, rooted);
            reclaim(g);
        }
        if (x->head + skip + n - x->tail > LS_MAIL_BYTES) return false;
    }
    x->head += skip;
    return true;
}

bool ls_mail_post(ls_group *g, uint32_t rooted, uint32_t sig, const char *bytes, size_t nbytes, uint64_t offset)
{
    ls_mail *x = &g->mail;
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->mail[rooted % LS_MAIL_LINES];
    if (LS_UNLIKELY(rooted - x->seen > LS_MAIL_LINES)) {
        look(g, rooted);
        if (rooted - x->seen > LS_MAIL_LINES) return false;
    }
    if (nbytes > LS_LINE_PAYLOAD) {
        uint32_t n = ((uint32_t)nbytes + ALIGN - 1) / ALIGN * ALIGN;
        if (LS_UNLIKELY(!room(g, rooted, n))) return false;
        offset = x->head % LS_MAIL_BYTES;
        char *to = mine->mail_bytes + offset;
        if ((double)nbytes >= g->e->tuning.cost.in_memory.mail_string) ls_copy_string(to, bytes, nbytes);
        else memcpy(to, bytes, nbytes);
        x->head += n;
        g->mark[x->sent % LS_MAIL_LINES].rooted = rooted;
        g->mark[x->sent++ % LS_MAIL_LINES].end = x->head;
    } else if (nbytes > 0) {
        memcpy(line->bytes, bytes, nbytes);
    }
    line->offset = offset;
    line->sig = sig;
    line->stage = atomic_load_explicit(&g->stage_bytes, memory_order_acquire);
    atomic_store_explicit(&line->seq, rooted, memory_order_release); /* line and bytes are visible before it */
    ls_wake_members(g);
    return true;
}

static bool can(const ls_work *k) { return ls_most_from_one(k) <= LS_MAIL_MOST; }

/* Wherever it can. */
static bool fits(const ls_work *k, const ls_algo *asked)
{
    (void)asked;
    return can(k);
}

/* The part of the vector that this rank gives. */
static const char *given(const ls_work *k, size_t *nbytes)
{
    if (k->a.coll == LS_GATHER) *nbytes = ls_work_share(k, k->g->rank).count * ls_dtype_size(k->a.dtype);
    else *nbytes = k->nbytes;
    return ls_offered(k);
}

static bool writes(const ls_work *k)
{
    bool root = k->g->rank == k->a.root;
    return k->a.coll == LS_BROADCAST || k->a.coll == LS_SCATTER ? root : !root;
}

static bool publish(ls_work *k)
{
    if (!writes(k)) return true;
    size_t nbytes;
    const char *bytes = given(k, &nbytes);
    return ls_mail_post(k->g, k->rooted, k->sig, bytes, nbytes, 0);
}

/* --- reading --------------------------------------------------------------------------- */

ls_status ls_mail_from(ls_work *k, int r, const ls_line **out)
{
    ls_group *g = k->g;
    const ls_line *line = &g->member[r].area->mail[k->rooted % LS_MAIL_LINES];
    /* acquire: pairs with ls_mail_post. Any other number is older: it cannot be written over before we are through */
    for (int turn = 0; atomic_load_explicit(&line->seq, memory_order_acquire) != k->rooted; turn++) {
        if (turn >= g->patience) {
            ls_mail_tell(g, k->rooted - 1); /* we may wait for who waits for us */
            return LS_AGAIN;
        }
        ls_cpu_relax();
    }
    if (LS_UNLIKELY(line->sig != k->sig)) return ls_mismatch(g, k, r);
    *out = line;
    return LS_OK;
}

const char *ls_mail_bytes(const ls_group *g, int r, const ls_line *line, size_t nbytes)
{
    if (nbytes <= LS_LINE_PAYLOAD) return line->bytes;
    uint64_t at = line->offset; /* copied once, then checked */
    return at <= LS_MAIL_BYTES - nbytes ? g->member[r].area->mail_bytes + at : NULL;
}

static LS_COLD ls_status outside(const ls_group *g, int r)
{
    return ls_fail(LS_PROTOCOL, "rank %d offers bytes outside its mailbox", g->world_rank[r]);
}

static ls_status from_root(ls_work *k)
{
    ls_group *g = k->g;
    const ls_line *line;
    size_t elem = ls_dtype_size(k->a.dtype);
    bool whole = k->a.coll == LS_BROADCAST;
    ls_range s = whole ? (ls_range){ 0, k->a.count } : ls_work_share(k, g->rank);
    if (g->rank == k->a.root) { /* all that is left is our own part */
        if (k->a.in && k->a.out && s.count > 0)
            memcpy(k->a.out, (const char *)k->a.in + s.first * elem, s.count * elem);
        return LS_OK;
    }
    ls_status st = ls_mail_from(k, k->a.root, &line);
    if (st != LS_OK) return st;
    const char *from = ls_mail_bytes(g, k->a.root, line, k->nbytes);
    if (!from) return outside(g, k->a.root);
    if (s.count > 0) memcpy(k->a.out, from + s.first * elem, s.count * elem);
    ls_count_moved(k, s.count * elem);
    return LS_OK;
}

static ls_status gathered(ls_work *k)
{
    ls_group *g = k->g;
    size_t elem = ls_dtype_size(k->a.dtype);
    for (; k->peer < g->size; k->peer++) {
        const ls_line *line;
        ls_range s = ls_work_share(k, k->peer);
        size_t n = s.count * elem;
        const char *from = k->a.in;
        if (k->peer != g->rank) {
            ls_status st = ls_mail_from(k, k->peer, &line);
            if (st != LS_OK) return st;
            if (!(from = ls_mail_bytes(g, k->peer, line, n))) return outside(g, k->peer);
            ls_count_moved(k, n);
        }
        if (from && n > 0) memcpy((char *)k->a.out + s.first * elem, from, n);
    }
    return LS_OK;
}

static ls_status reduced(ls_work *k)
{
    ls_group *g = k->g;
    const void *src[LS_HOST_MOST_RANKS];
    const ls_line *line;
    void *out = k->a.out;
    for (; k->peer < g->size; k->peer++) {
        if (k->peer == g->rank) continue;
        ls_status st = ls_mail_from(k, k->peer, &line);
        if (st != LS_OK) return st;
    }
    for (int r = 0; r < g->size; r++) {
        line = &g->member[r].area->mail[k->rooted % LS_MAIL_LINES];
        src[r] = r == g->rank ? ls_offered(k) : ls_mail_bytes(g, r, line, k->nbytes);
        if (!src[r] && k->nbytes > 0) return outside(g, r);
    }
    ls_reduce_n(&out, 1, src, g->size, k->a.count, k->a.dtype, k->a.op, ls_scale_of(k));
    ls_count_moved(k, (size_t)(g->size - 1) * k->nbytes);
    return LS_OK;
}

static ls_status turn(ls_work *k)
{
    ls_status st = LS_OK;
    if (k->a.coll == LS_BROADCAST || k->a.coll == LS_SCATTER) st = from_root(k);
    else if (k->g->rank == k->a.root) st = k->a.coll == LS_GATHER ? gathered(k) : reduced(k);
    if (st == LS_OK) ls_mail_through(k->g, k->rooted);
    return st;
}

/* (How far it is a rank says now and then only: no flag of its own.) */
static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    const ls_group *g = k->g;
    const size_t own = ls_work_share(k, g->rank).count * ls_dtype_size(k->a.dtype);
    const bool root = g->rank == k->a.root;
    *out = (ls_traffic){ .flags = writes(k), .rounds = 1 };
    if (writes(k)) out->copied = k->a.coll == LS_GATHER ? own : k->nbytes;
    switch (k->a.coll) {
    case LS_BROADCAST: out->read = root ? 0 : k->nbytes; break;
    case LS_SCATTER: out->read = root ? 0 : own; break;
    case LS_GATHER: out->read = root ? k->nbytes - own : 0; break;
    default: out->read = out->added = root ? ((size_t)g->size - 1) * k->nbytes : 0; break;
    }
    return ls_counted(out);
}

const ls_form ls_form_mail = {
    .name = "mail",
    .about = "in memory: the root's mailboxes (short enough for them)",
    .colls = 1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_GATHER | 1u << LS_SCATTER,
    .can = can,
    .fits = fits,
    .rooted = true,
    .publish = publish,
    .turn = turn,
    .traffic = traffic,
};
