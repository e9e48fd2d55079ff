/* quick.c -- a short blocking sum, or a barrier, whose members all come at once.
 *
 * The same oneshot as in mapped.c, byte for byte: whether a rank gets here or there is its own matter. But it is what
 * latency is measured with, and filling a work costs as much as the memory needs to carry a line from one core to
 * another. So here everything stays in registers; who is not at once followed by its peers becomes a work after all.
 */
#include <string.h>

#include "coll/reduce.h"
#include "group/mapped.h"

#define LOOKS 2048 /* at the members' lines together, before it becomes a work */

/* A few floats: the same sums in the same order as ls_reduce_n, without its calls. */
static LS_ALWAYS_INLINE void add_few(float *out, const void *const *src, int nsrc, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++) {
        float sum = ((const float *)src[0])[i] * scale;
        for (int r = 1; r < nsrc; r++) sum += ((const float *)src[r])[i] * scale;
        out[i] = sum;
    }
}

static LS_ALWAYS_INLINE void add(ls_group *g, const ls_coll_args *a, uint32_t half, size_t nbytes)
{
    const void *src[LS_MAX_RANKS];
    void *out = a->out;
    const double scale = a->op == LS_AVG ? 1.0 / g->size : 1.0;
    for (int r = 0; r < g->size; r++) {
        const ls_area *area = g->member[r].area;
        src[r] = nbytes > LS_LINE_BYTES ? area->slot[half] : area->line[half].bytes;
    }
    if (a->dtype == LS_F32 && nbytes <= LS_LINE_BYTES && (a->op == LS_SUM || a->op == LS_AVG))
        add_few(out, src, g->size, a->count, (float)scale);
    else
        ls_reduce_n(&out, 1, src, g->size, a->count, a->dtype, a->op, scale);
    ls_count_bytes(g, (size_t)(g->size - 1) * nbytes);
}

static LS_COLD ls_status aborted(ls_group *g, ls_status st)
{
    memcpy(g->error, ls_last_error(), sizeof g->error);
    return ls_group_fail(g, st);
}

/* Its parts, not its address, so that they need not be in memory. */
static LS_COLD ls_status late(ls_group *g, ls_coll coll, const void *in, void *out, size_t count, ls_dtype dtype,
                              ls_redop op, uint32_t sig)
{
    ls_coll_args a = { .coll = coll, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
    return ls_coll_late(g, &a, sig);
}

static LS_ALWAYS_INLINE ls_status quick(ls_group *g, const ls_coll_args *a, size_t nbytes)
{
    const char *bytes = a->in ? a->in : a->out;
    ls_coll_desc d;
    ls_coll_describe(g, g->seq++, a, a->count, &d);
    const uint32_t sig = ls_coll_sign(g, &d, 0), mseq = ++g->mseq, half = mseq & 1;
    ls_area *mine = g->member[g->rank].area;
    ls_line *line = &mine->line[half];
    if (nbytes > LS_LINE_BYTES) memcpy(mine->slot[half], bytes, nbytes);
    else if (nbytes > 0) memcpy(line->bytes, bytes, nbytes);
    line->sig = sig;
    atomic_store_explicit(&line->seq, mseq, memory_order_release); /* line and slot are visible before it */
    ls_wake_members(g);
    ls_coll_entered(g, &d);

    for (int r = 0, looks = 0; r < g->size; r++) {
        const ls_line *theirs = &g->member[r].area->line[half];
        /* acquire: pairs with the store above */
        for (; (int32_t)(atomic_load_explicit(&theirs->seq, memory_order_acquire) - mseq) < 0; looks++) {
            if (LS_UNLIKELY(looks >= LOOKS)) return late(g, a->coll, a->in, a->out, a->count, a->dtype, a->op, sig);
            ls_cpu_relax();
        }
        if (LS_UNLIKELY(theirs->sig != sig)) /* as a work it says so */
            return late(g, a->coll, a->in, a->out, a->count, a->dtype, a->op, sig);
    }
    if ((int32_t)(g->rooted - g->mail.seen) > 0) g->mail.seen = g->rooted; /* whoever is here is through with those */
    if (nbytes > 0) add(g, a, half, nbytes);
    g->ran = LS_WORK_ONESHOT;
    ls_status st = ls_unless_aborted(g->w);
    return LS_LIKELY(st == LS_OK) ? LS_OK : aborted(g, st);
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
