/* algo_tree.c -- binomial trees: broadcast, reduce, scatter, gather and barrier.
 *
 * Ranks are numbered from the root. In round k of a broadcast the first 2^k
 * of them pass the vector to the next 2^k. Reduce is the same tree upside
 * down: a rank adds its children's sums to its own vector, in OUT, and passes
 * the result to its parent, so that OUT holds partial sums elsewhere than on
 * the root. OUT has `segments` chunks; segments follow one another down the
 * tree like wagons. Scatter and gather pass on the shares of a whole subtree: what
 * is not a rank's own passes through its OUT. A barrier is an empty reduce and an
 * empty broadcast.
 *
 *   rounds        ceil(log2 size); barrier twice as many
 *   bytes sent    broadcast: up to ceil(log2 size) vectors by the root, none by a
 *                 leaf; reduce: one vector, none by the root; scatter and gather:
 *                 the subtree's shares but the own one; all of them up
 *   order         (reduce) own, then children by growing distance
 *   good for      short vectors; long ones with segments
 *   source        binomial trees: Johnsson and Ho, IEEE Trans. Comput. 38 (1989)
 */
#include "coll/algos.h"

/* The number of this rank counted from the head, and the rank with such a number. */
static int number(const ls_line_up *l) { return (l->me + l->n - l->head) % l->n; }
static int rank_of(const ls_line_up *l, int v)
{
    int i = (v + l->head) % l->n;
    return l->rank ? l->rank[i] : i;
}

/* The parent of v is v without its lowest set bit; its children add a lower one. */
ls_status ls_binomial_broadcast(ls_sched *o, int lane, const ls_line_up *l, ls_slice a)
{
    int v = number(l), low = v & -v, child = 1;
    if (v != 0) LS_TRY(ls_sched_recv(o, lane, rank_of(l, v - low), a));
    while (child < l->n && (v == 0 || child < low)) child *= 2;
    for (child /= 2; child > 0; child /= 2) /* the largest subtree first: it has the longest way */
        if (v + child < l->n) LS_TRY(ls_sched_send(o, lane, rank_of(l, v + child), a));
    return LS_OK;
}

ls_status ls_binomial_reduce(ls_sched *o, int lane, const ls_line_up *l, ls_slice a)
{
    int v = number(l), low = v & -v;
    for (int child = 1; v + child < l->n && (v == 0 || child < low); child *= 2)
        LS_TRY(ls_sched_recv_reduce(o, lane, rank_of(l, v + child), a));
    return v != 0 ? ls_sched_send(o, lane, rank_of(l, v - low), a) : LS_OK;
}

/* The shares of v's subtree (v and the n - 1 ranks after it) from or to a peer: two runs where they go past the
 * last rank. */
static ls_status pass(ls_sched *o, const ls_shape *s, int v, int n, int peer, bool send)
{
    int first = (v + s->root) % s->size, front = n < s->size - first ? n : s->size - first;
    const ls_slice run[2] = { ls_shares(s, first, front), ls_shares(s, 0, n - front) };
    for (int i = 0; i < (n > front ? 2 : 1); i++)
        LS_TRY(send ? ls_sched_send(o, 0, peer, run[i]) : ls_sched_recv(o, 0, peer, run[i]));
    return LS_OK;
}

static int at_most(int n, int left) { return n < left ? n : left; }

static ls_status shares(ls_sched *o, const ls_shape *s, const ls_line_up *l)
{
    const bool gather = s->coll == LS_GATHER;
    const int n = s->size, v = number(l), low = v & -v;
    int top = 1;
    while (top < n && (v == 0 || top < low)) top *= 2; /* children are v + 1, v + 2 ... below v + top */
    if (!gather && v != 0) LS_TRY(pass(o, s, v, at_most(low, n - v), rank_of(l, v - low), false));
    for (int k = gather ? 1 : top / 2; gather ? k < top : k > 0; k = gather ? 2 * k : k / 2)
        if (v + k < n) LS_TRY(pass(o, s, v + k, at_most(k, n - v - k), rank_of(l, v + k), !gather));
    return gather && v != 0 ? pass(o, s, v, at_most(low, n - v), rank_of(l, v - low), true) : LS_OK;
}

static ls_status barrier(ls_sched *o, const ls_line_up *l)
{
    static const ls_slice nothing = { LS_BUF_OUT, 0, 0 };
    LS_TRY(ls_binomial_reduce(o, 0, l, nothing));
    return ls_binomial_broadcast(o, 0, l, nothing);
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_line_up all = { NULL, s->size, s->root, s->rank };
    if (s->coll == LS_BARRIER) return barrier(o, &all);
    if (s->coll == LS_SCATTER || s->coll == LS_GATHER) {
        ls_use_shares(o, s);
        return shares(o, s, &all);
    }
    o->nchunks[LS_BUF_OUT] = (uint32_t)s->segments;
    for (int seg = 0; seg < s->segments; seg++) {
        ls_slice a = { LS_BUF_OUT, (uint32_t)seg, 1 };
        if (s->coll == LS_BROADCAST) LS_TRY(ls_binomial_broadcast(o, seg % s->nlanes, &all, a));
        else LS_TRY(ls_binomial_reduce(o, seg % s->nlanes, &all, a));
    }
    return LS_OK;
}

const ls_algo ls_algo_tree = {
    .name = "tree",
    .colls = 1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_SCATTER | 1u << LS_GATHER | 1u << LS_BARRIER,
    .source = "Johnsson and Ho 1989",
    .pipelined = true,
    .emit = emit,
};
