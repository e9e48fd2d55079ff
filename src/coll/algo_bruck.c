/* algo_bruck.c -- all_gather and all_to_all in ceil(log2 size) rounds, for any size.
 *
 * all_gather: before the round of distance d a rank has the d shares from its own
 * on; it passes them on to the rank d before it. all_to_all: what is i ranks away
 * from where it belongs travels by the powers of two in i: in the round of distance
 * d all blocks with that bit go d ranks on, in one message. Blocks pass through
 * other ranks, in each other's places, so all must have one length.
 *
 *   rounds        ceil(log2 size)
 *   bytes sent    all_gather: (size-1)/size of the vector, per rank, in twice as many
 *                 messages where the shares wrap around; all_to_all: up to
 *                 ceil(log2 size)/2 vectors, and copies to pack them
 *   good for      short shares and blocks, any size
 *   source        Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel
 *                 Distrib. Syst. 8 (1997)
 */
#include "coll/algos.h"

static int min(int a, int b) { return a < b ? a : b; }

/* Shares first .. first + n - 1 of a circle, as far as the end of the vector; the rest starts at 0. */
static ls_slice until_end(const ls_shape *s, int first, int n)
{
    return ls_shares(s, first % s->size, min(n, s->size - first % s->size));
}
static ls_slice rest(const ls_shape *s, int first, int n)
{
    int done = min(n, s->size - first % s->size);
    return ls_shares(s, 0, n - done);
}

static ls_status gather(ls_sched *o, const ls_shape *s)
{
    const int n = s->size, r = s->rank;
    for (int d = 1; d < n; d *= 2) {
        const int m = min(d, n - d), to = (r + n - d) % n, from = (r + d) % n;
        const ls_slice more_out = rest(s, r, m), more_in = rest(s, r + d, m);
        LS_TRY(ls_sched_send(o, 0, to, until_end(s, r, m)));
        LS_TRY(ls_sched_recv(o, 0, from, until_end(s, r + d, m)));
        if (more_out.n > 0) LS_TRY(ls_sched_send(o, 0, to, more_out));
        if (more_in.n > 0) LS_TRY(ls_sched_recv(o, 0, from, more_in));
    }
    return LS_OK;
}

static ls_slice of(ls_bufid buf, ls_slice a) { return (ls_slice){ buf, a.first, a.n }; }

/* Copies the blocks of TMP whose distance has bit d to the front of OUT, or back; returns in *packed how many. */
static ls_status pack(ls_sched *o, const ls_shape *s, int d, int at, bool back, int *packed)
{
    int m = 0;
    for (int i = d; i < s->size; i += 2 * d) {
        const int run = min(d, s->size - i);
        const ls_slice tmp = of(LS_BUF_TMP, ls_shares(s, i, run)), out = ls_shares(s, at + m, run);
        LS_TRY(back ? ls_sched_copy(o, 0, out, tmp) : ls_sched_copy(o, 0, tmp, out));
        m += run;
    }
    *packed = m;
    return LS_OK;
}

static ls_status exchange(ls_sched *o, const ls_shape *s)
{
    const int n = s->size, r = s->rank;
    o->nchunks[LS_BUF_IN] = o->nchunks[LS_BUF_TMP] = o->nchunks[LS_BUF_OUT];
    /* TMP[i]: for the rank i after this one, and in the end from the rank i before it */
    LS_TRY(ls_sched_copy(o, 0, of(LS_BUF_IN, ls_shares(s, r, n - r)), of(LS_BUF_TMP, ls_shares(s, 0, n - r))));
    if (r > 0) LS_TRY(ls_sched_copy(o, 0, of(LS_BUF_IN, ls_shares(s, 0, r)), of(LS_BUF_TMP, ls_shares(s, n - r, r))));
    for (int d = 1; d < n; d *= 2) {
        int m;
        LS_TRY(pack(o, s, d, 0, false, &m));
        LS_TRY(ls_sched_send(o, 0, (r + d) % n, ls_shares(s, 0, m)));
        LS_TRY(ls_sched_recv(o, 0, (r + n - d) % n, ls_shares(s, m, m)));
        LS_TRY(pack(o, s, d, m, true, &m));
    }
    for (int i = 0; i < n; i++)
        LS_TRY(ls_sched_copy(o, 0, of(LS_BUF_TMP, ls_shares(s, i, 1)), ls_shares(s, (r + n - i) % n, 1)));
    return LS_OK;
}

static bool fits(const ls_shape *s) { return s->coll != LS_ALL_TO_ALL || !s->uneven; }

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    return s->coll == LS_ALL_GATHER ? gather(o, s) : exchange(o, s);
}

const ls_algo ls_algo_bruck = {
    .name = "bruck",
    .colls = 1u << LS_ALL_GATHER | 1u << LS_ALL_TO_ALL,
    .source = "Bruck et al. 1997",
    .fits = fits,
    .emit = emit,
};
