/* algo_tree.c -- binomial tree broadcast and reduce.
 *
 * Ranks are numbered from the root. In round k of a broadcast the first 2^k
 * of them pass the vector to the next 2^k. Reduce is the same tree upside
 * down: a rank adds its children's sums to its own vector, in OUT, and passes
 * the result to its parent, so that OUT holds partial sums elsewhere than on
 * the root. OUT has `segments` chunks; segments follow one another down the
 * tree like wagons.
 *
 *   rounds        ceil(log2 size)
 *   bytes sent    up to ceil(log2 size) vectors by the root, none by a leaf
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

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_line_up all = { NULL, s->size, s->root, s->rank };
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
    .colls = 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .source = "Johnsson and Ho 1989",
    .emit = emit,
};
