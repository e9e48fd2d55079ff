/* algo_double_tree.c -- two binary trees, each rank inside one and a leaf of the other.
 *
 * In one binary tree half of the ranks are leaves, which only receive. A second
 * tree over the same ranks, turned so that those leaves are its inner ranks,
 * carries the other half of the vector, so that no rank sends or receives more than
 * one vector on the way up, or down. Ranks are numbered from the root, which stands above both
 * trees; the others are in order of the tree, left child, parent, right child:
 *
 *       first tree (7 ranks and the root)        second: shifted by one, or
 *             0 -- 4                             (an even number) mirrored
 *               /     \
 *              2       6
 *             / \     / \
 *            1   3   5   7
 *
 * An all_reduce runs up both trees to rank 0 and down again. Segments follow one
 * another; the way down of a segment is put behind the ways up of those that
 * start until it is due at the leaves, so that both directions are busy.
 *
 *   rounds        about log2 size + segments (broadcast, reduce), twice the
 *                 logarithm (all_reduce)
 *   bytes sent    one vector at most, per rank (all_reduce: two)
 *   order         own, then left child's sum, then right child's
 *   good for      long vectors over many ranks: a chain's bytes in a tree's time
 *   source        Sanders, Speck and Traeff, Parallel Computing 35 (2009)
 */
#include "coll/algos.h"

typedef struct place {
    int parent, child[2]; /* ranks, -1: none */
} place;

/* The place of node v of 0 .. m, 0 above the others, in the first tree; as nodes.
 * Odd nodes are leaves: the lowest set bit is the height. */
static place first_tree(int v, int m)
{
    place p = { -1, { -1, -1 } };
    int low = v & -v;
    if (v == 0) {
        for (low = 1; low * 2 <= m; low *= 2) {}
        p.child[0] = m > 0 ? low : -1;
        return p;
    }
    p.parent = (v ^ low) | low << 1;
    if (p.parent > m) p.parent = v ^ low;
    if (low > 1) p.child[0] = v - low / 2;
    for (low /= 2; low > 0 && v + low > m; low /= 2) {}
    if (low > 0) p.child[1] = v + low;
    return p;
}

/* Which node of the first tree v is in the second, and back. */
static int turned(int v, int m) { return v <= 0 ? v : m % 2 ? v % m + 1 : m + 1 - v; }
static int turned_back(int v, int m) { return v <= 0 ? v : m % 2 ? (v + m - 2) % m + 1 : m + 1 - v; }

static place place_of(const ls_shape *s, int root, bool second)
{
    int m = s->size - 1, v = (s->rank + s->size - root) % s->size;
    place p = first_tree(second ? turned(v, m) : v, m);
    int *const node[3] = { &p.parent, &p.child[0], &p.child[1] };
    for (int i = 0; i < 3; i++) {
        if (second) *node[i] = turned_back(*node[i], m);
        if (*node[i] >= 0) *node[i] = (*node[i] + root) % s->size;
    }
    return p;
}

static ls_status up(ls_sched *o, const place *p, ls_slice a, int lane)
{
    for (int i = 0; i < 2; i++)
        if (p->child[i] >= 0) LS_TRY(ls_sched_recv_reduce(o, lane, p->child[i], a));
    return p->parent >= 0 ? ls_sched_send(o, lane, p->parent, a) : LS_OK;
}

static ls_status down(ls_sched *o, const place *p, ls_slice a, int lane)
{
    if (p->parent >= 0) LS_TRY(ls_sched_recv(o, lane, p->parent, a));
    for (int i = 0; i < 2; i++)
        if (p->child[i] >= 0) LS_TRY(ls_sched_send(o, lane, p->child[i], a));
    return LS_OK;
}

/* Segments 2k and 2k+1 of the two trees; of an all_reduce the halves of run k. */
static ls_slice piece(const ls_shape *s, int k, int tree)
{
    if (s->coll != LS_ALL_REDUCE) return (ls_slice){ LS_BUF_OUT, (uint32_t)(2 * k + tree), 2 * k + tree < s->segments };
    ls_slice run = ls_run_of(s, LS_BUF_OUT, k);
    uint32_t half = run.n / 2;
    return tree ? (ls_slice){ LS_BUF_OUT, run.first + half, run.n - half } : (ls_slice){ LS_BUF_OUT, run.first, half };
}

static int depth_of(int size)
{
    int depth = 1;
    while (1 << depth < size) depth++;
    return depth;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    bool both = s->coll == LS_ALL_REDUCE;
    int pairs = both ? s->segments : (s->segments + 1) / 2, root = both ? 0 : s->root;
    int late = both ? (2 * depth_of(s->size) + s->nlanes - 1) / s->nlanes * s->nlanes : 0;
    const place p[2] = { place_of(s, root, false), place_of(s, root, true) };
    o->nchunks[LS_BUF_OUT] = (uint32_t)(both ? s->size * s->segments : s->segments);
    for (int k = 0; s->size > 1 && k < pairs + late; k++)
        for (int way = 0; way < 2; way++)
            for (int tree = 0; tree < 2; tree++) {
                int i = way == 0 ? k : k - late, lane = i % s->nlanes;
                ls_slice a = i >= 0 && i < pairs ? piece(s, i, tree) : (ls_slice){ LS_BUF_OUT, 0, 0 };
                if (a.n == 0) continue;
                if (way == 0 && s->coll != LS_BROADCAST) LS_TRY(up(o, &p[tree], a, lane));
                if (way == 1 && s->coll != LS_REDUCE) LS_TRY(down(o, &p[tree], a, lane));
            }
    return LS_OK;
}

const ls_algo ls_algo_double_tree = {
    .name = "double_tree",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .source = "Sanders, Speck and Traeff 2009",
    .pipelined = true,
    .emit = emit,
};
