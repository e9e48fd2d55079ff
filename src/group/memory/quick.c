/* quick.c -- a short blocking sum, or a barrier, whose members all come at once; a short broadcast whose root does.
 *
 * The same oneshot as in oneshot.c, and the same mail as in mail.c, byte for byte: whether a rank gets here or
 * there is its own matter. But it is what latency is measured with, and filling a work costs as much as the
 * memory needs to carry a line from one core to another. So here everything stays in registers; who is not at
 * once followed by its peers becomes a work after all.
 */
#include "group/memory/quick.h"

#include "coll/reduce.h"
#include "group/form.h"
#include "group/memory/mail.h"
#include "group/memory/oneshot.h"
#include "group/sign.h"

#define LOOKS 2048 /* at what is not there yet, before it becomes a work */

/* A few floats: the same sums in the same order as ls_reduce_n, without its calls. */
static LS_ALWAYS_INLINE void add_few(float *out, const void *const *src, int nsrc, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++) {
        float sum = ((const float *)src[0])[i] * scale;
        for (int r = 1; r < nsrc; r++) sum += ((const float *)src[r])[i] * scale;
        out[i] = sum;
    }
}

/* The members' vectors of at most a line. */
static LS_ALWAYS_INLINE void add_lines(ls_group *g, const ls_coll_args *a, uint32_t half, size_t nbytes)
{
    const void *src[LS_HOST_MOST_RANKS];
    void *out = a->out;
    const double scale = a->op == LS_AVG ? 1.0 / g->size : 1.0;
    for (int r = 0; r < g->size; r++) src[r] = g->member[r].area->line[half].bytes;
    if (a->dtype == LS_F32 && (a->op == LS_SUM || a->op == LS_AVG))
        add_few(out, src, g->size, a->count, (float)scale);
    else
        ls_reduce_n(&out, 1, src, g->size, a->count, a->dtype, a->op, scale);
    ls_count_bytes(g, a->coll, (size_t)(g->size - 1) * nbytes);
}

/* Waits for word to read `want`. */
static LS_ALWAYS_INLINE bool comes(const _Atomic uint32_t *word, uint32_t want, int *looks)
{
    /* acquire: pairs with whoever writes it last of a line. It cannot be later: who is further waits for us */
    while (LS_UNLIKELY(atomic_load_explicit(word, memory_order_acquire) != want)) {
        if (LS_UNLIKELY(++*looks > LOOKS)) return false;
        ls_cpu_relax();
    }
    return true;
}

/* The sum of vectors in packets; false when one does not come, or is of something else. */
static LS_ALWAYS_INLINE bool add_packets(ls_group *g, const ls_coll_args *a, size_t nbytes, uint32_t sig, uint32_t mseq)
{
    _Alignas(64) char scratch[LS_SHORT_READ_BYTES];
    char *to = scratch;
    const void *src[LS_HOST_MOST_RANKS];
    void *out = a->out;
    int looks = 0;
    for (int r = 0; r < g->size; r++) {
        src[r] = r == g->rank ? (a->in ? a->in : a->out) : to;
        if (r == g->rank) continue;
        const ls_packet *p = g->member[r].area->packet[mseq & 1];
        for (size_t at = 0; at < nbytes; at += LS_PACKET_BYTES, p++) {
            if (LS_UNLIKELY(!comes(&p->seq, mseq, &looks) || p->sig != sig)) return false;
            ls_packet_read(p, to + at, nbytes - at);
        }
        to += nbytes;
    }
    ls_reduce_n(&out, 1, src, g->size, a->count, a->dtype, a->op, a->op == LS_AVG ? 1.0 / g->size : 1.0);
    ls_count_bytes(g, a->coll, (size_t)(g->size - 1) * nbytes);
    return true;
}

/* Waits for all members' lines; false when one does not come, or is of something else. */
static LS_ALWAYS_INLINE bool all_here(const ls_group *g, uint32_t sig, uint32_t mseq)
{
    int looks = 0;
    for (int r = 0; r < g->size; r++) {
        const ls_line *line = &g->member[r].area->line[mseq & 1];
        if (LS_UNLIKELY(!comes(&line->seq, mseq, &looks) || line->sig != sig)) return false;
    }
    return true;
}

static LS_COLD ls_status aborted(ls_group *g, ls_status st)
{
    memcpy(g->error, ls_last_error(), sizeof g->error);
    return ls_group_fail(g, st);
}

static LS_ALWAYS_INLINE ls_status over(ls_group *g, const ls_form *form)
{
    g->ran = form;
    ls_status st = ls_unless_aborted(g->w);
    return LS_LIKELY(st == LS_OK) ? LS_OK : aborted(g, st);
}

/* Its parts, not its address, so that they need not be in memory. */
static LS_COLD ls_status late(ls_group *g, ls_coll coll, const void *in, void *out, size_t count, ls_dtype dtype,
                              ls_redop op, uint32_t sig)
{
    ls_coll_args a = { .coll = coll, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
    return ls_coll_late(g, &a, sig, &ls_form_oneshot, true);
}

static LS_ALWAYS_INLINE ls_status quick(ls_group *g, const ls_coll_args *a, size_t nbytes)
{
    const char *bytes = a->in ? a->in : a->out;
    const ls_coll_words d = ls_coll_describe(g, g->seq++, a, a->count);
    const uint32_t sig = ls_coll_sign(g, &d, 0), mseq = ++g->mseq, half = mseq & 1;
    const bool packets = nbytes > LS_LINE_PAYLOAD;
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->line[half];
    if (packets) ls_packets_write(mine->packet[half], bytes, nbytes, sig, mseq);
    else if (nbytes > 0) memcpy(line->bytes, bytes, nbytes);
    line->sig = sig;
    atomic_store_explicit(&line->seq, mseq, memory_order_release); /* line and packets are visible before it */
    ls_wake_members(g);
    ls_coll_entered(g, &d);

    if (LS_UNLIKELY(packets ? !add_packets(g, a, nbytes, sig, mseq) : !all_here(g, sig, mseq)))
        return late(g, a->coll, a->in, a->out, a->count, a->dtype, a->op, sig); /* as a work it says why, too */
    if (!packets && nbytes > 0) add_lines(g, a, half, nbytes);
    if ((int32_t)(g->rooted - g->mail.seen) > 0) g->mail.seen = g->rooted; /* whoever is here is through with those */
    return over(g, &ls_form_oneshot);
}

ls_status ls_quick_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op)
{
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
    return quick(g, &a, count * ls_dtype_size(dtype));
}

ls_status ls_quick_barrier(ls_group *g)
{
    ls_coll_args a = { .coll = LS_BARRIER, .dtype = LS_U8 };
    return quick(g, &a, 0);
}

/* --- broadcast ------------------------------------------------------------------------------ */

/* Looks at a line that is not there, before a leaf says how far it is: the root may wait for just that. */
#define LOOKS_UNTOLD 32
/* Of the next vector: as many lines as a core waits for at a time. While fewer are copied its line is not here yet. */
#define FETCH_BYTES 1024

static LS_COLD ls_status late_mail(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root, uint32_t sig,
                                   bool shown)
{
    ls_coll_args a = { .coll = LS_BROADCAST, .out = buf, .count = count, .dtype = dtype, .root = root };
    return ls_coll_late(g, &a, sig, &ls_form_mail, shown);
}

/* A leaf's part; false when the root's line does not come, or is of something else. Where the line was there already,
 * the root is ahead: the next line is fetched while this one is read, and then the bytes that it tells of. */
static LS_ALWAYS_INLINE bool from_root(ls_group *g, void *buf, size_t nbytes, int root, uint32_t rooted, uint32_t sig)
{
    const ls_area *area = g->member[root].area;
    const ls_line *line = &area->mail[rooted % LS_MAIL_LINES], *next = &area->mail[(rooted + 1) % LS_MAIL_LINES];
    int looks = 0;
    if (LS_UNLIKELY(atomic_load_explicit(&line->seq, memory_order_acquire) != rooted)) {
        for (int i = 0; i < LOOKS_UNTOLD && atomic_load_explicit(&line->seq, memory_order_acquire) != rooted; i++)
            ls_cpu_relax();
        if (atomic_load_explicit(&line->seq, memory_order_acquire) != rooted) ls_mail_tell(g, rooted - 1);
        if (!comes(&line->seq, rooted, &looks)) return false;
        next = NULL;
    } else {
        __builtin_prefetch(next);
    }
    const char *from = LS_LIKELY(line->sig == sig) ? ls_mail_bytes(g, root, line, nbytes) : NULL;
    if (LS_UNLIKELY(!from)) return false;
    memcpy(buf, from, nbytes);
    if (nbytes >= FETCH_BYTES && next && atomic_load_explicit(&next->seq, memory_order_acquire) == rooted + 1 &&
        (from = ls_mail_bytes(g, root, next, nbytes)))
        for (size_t at = 0; at < FETCH_BYTES; at += 64) __builtin_prefetch(from + at);
    return true;
}

ls_status ls_quick_broadcast(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root)
{
    const size_t nbytes = count * ls_dtype_size(dtype);
    const uint32_t rooted = ++g->rooted;
    const bool writes = g->rank == root;
    ls_coll_args a = { .coll = LS_BROADCAST, .out = buf, .count = count, .dtype = dtype, .root = root };
    const ls_coll_words d = ls_coll_describe(g, g->seq++, &a, count);
    const uint32_t sig = ls_coll_sign(g, &d, 0);
    const bool posted = writes && ls_mail_post(g, rooted, sig, buf, nbytes, 0);
    ls_coll_entered(g, &d);
    if (LS_UNLIKELY(writes && !posted)) return late_mail(g, buf, count, dtype, root, sig, false);
    if (!writes) {
        if (LS_UNLIKELY(!from_root(g, buf, nbytes, root, rooted, sig)))
            return late_mail(g, buf, count, dtype, root, sig, true);
        ls_count_bytes(g, LS_BROADCAST, nbytes);
    }
    ls_mail_through(g, rooted);
    return over(g, &ls_form_mail);
}
