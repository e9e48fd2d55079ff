/* algo_hierarchical.c -- two levels: inside each host, then between hosts.
 *
 * What crosses between hosts crosses once. In an all_reduce every rank first sums
 * a part of the vector inside its host, the parts go round a ring of hosts, each
 * among the ranks that have it, and come back inside:
 *
 *       reduce_scatter inside | all_reduce across, part by part | all_gather inside
 *
 * Each of the vector's chunks has one owner per host, so hosts of unequal size and
 * ranks in any order are served alike. A reduce_scatter takes a share's sum inside
 * every host to its owner there, and those sums to the share's rank from host to
 * host; an all_gather is the same backwards. Broadcast and reduce are a binomial
 * tree over hosts and one inside each. On one host the middle part is empty.
 *
 * For H hosts of L ranks each:
 *
 *   rounds        all_reduce: 2 (L-1) inside, 2 (H-1) across; reduce_scatter,
 *                 all_gather: half of that; else ceil(log2 H) + ceil(log2 L)
 *   bytes sent    all_reduce: 2 (L-1)/L of the vector inside, 2 (H-1)/(H L)
 *                 across, per rank
 *   order         inside a host own first, then the ranks before it; across, hosts
 *                 after the one where the chunk ends first, that one last (in a
 *                 reduce_scatter and a reduce it is the first)
 *   good for      several hosts: wires carry the least that is possible, whatever
 *                 the order of ranks
 *   source        hierarchical collectives: Karonis et al. (MPICH-G2), IPDPS 2000;
 *                 NCCL's and Horovod's two-level all_reduce
 */
#include "base/limits.h"
#include "coll/algos.h"

/* Who is where. rank[first[j] + i] is the i-th rank of host j. */
typedef struct hosts {
    int n, me, place; /* hosts; this rank's host and its number there */
    int first[LS_SCHED_MAX_RANKS + 1], rank[LS_SCHED_MAX_RANKS];
} hosts;

static int node_of(const ls_shape *s, int rank) { return s->node ? s->node[rank] : 0; }

static ls_status hosts_of(const ls_shape *s, hosts *h)
{
    h->n = 0;
    if (s->size > LS_SCHED_MAX_RANKS) return ls_fail(LS_INVALID, "%d ranks: at most %d", s->size, LS_SCHED_MAX_RANKS);
    for (int r = 0; r < s->size; r++) {
        int node = node_of(s, r);
        if (node < 0 || node > h->n)
            return ls_fail(LS_INVALID, "rank %d is on node %d, expected 0 to %d: nodes are numbered by first appearance", r,
                           node, h->n);
        if (node == h->n) h->n++;
    }
    for (int j = 0, at = 0; j < h->n; j++) {
        h->first[j] = at;
        for (int r = 0; r < s->size; r++)
            if (node_of(s, r) == j) h->rank[at++] = r;
        h->first[j + 1] = at;
    }
    h->me = node_of(s, s->rank);
    for (h->place = 0; h->rank[h->first[h->me] + h->place] != s->rank; h->place++) {}
    return LS_OK;
}

static int wrap(int i, int n) { return (i % n + n) % n; }
static int local_size(const hosts *h, int node) { return h->first[node + 1] - h->first[node]; }
static int member(const hosts *h, int node, int place) { return h->rank[h->first[node] + place]; }

/* --- all_reduce -------------------------------------------------------------------------- */

/* Of a run of `size` chunks the i-th of n local ranks owns a part; whom chunk c belongs to on a host. */
static ls_slice part(const ls_shape *s, int run, int i, int n)
{
    int a = (i * s->size + n - 1) / n, b = ((i + 1) * s->size + n - 1) / n;
    return (ls_slice){ LS_BUF_OUT, (uint32_t)(run * s->size + a), (uint32_t)(b - a) };
}

static int owner(const ls_shape *s, const hosts *h, int node, int c)
{
    return member(h, node, c * local_size(h, node) / s->size);
}

static ls_status reduce_inside(ls_sched *o, const ls_shape *s, const hosts *h, int run, int lane)
{
    int n = local_size(h, h->me);
    for (int k = 1; k < n; k++) {
        int to = (h->place + k) % n;
        LS_TRY(ls_sched_send(o, lane, member(h, h->me, to), part(s, run, to, n)));
    }
    for (int k = 1; k < n; k++)
        LS_TRY(ls_sched_recv_reduce(o, lane, member(h, h->me, wrap(h->place - k, n)), part(s, run, h->place, n)));
    return LS_OK;
}

static ls_status gather_inside(ls_sched *o, const ls_shape *s, const hosts *h, int run, int lane)
{
    int n = local_size(h, h->me);
    for (int k = 1; k < n; k++)
        LS_TRY(ls_sched_send(o, lane, member(h, h->me, (h->place + k) % n), part(s, run, h->place, n)));
    for (int k = 1; k < n; k++) {
        int from = wrap(h->place - k, n);
        LS_TRY(ls_sched_recv(o, lane, member(h, h->me, from), part(s, run, from, n)));
    }
    return LS_OK;
}

/* One round of the ring of hosts: of every H chunks in a row this host passes on the one of number `out`
 * and takes the one before it. One message per host and row, so none can be stuck behind another. */
static ls_status ring_round(ls_sched *o, const ls_shape *s, const hosts *h, int out, bool reduce, int run, int lane)
{
    int next = (h->me + 1) % h->n, before = wrap(h->me - 1, h->n);
    for (int row = 0; row < s->size; row += h->n) {
        int c = row + wrap(out, h->n), d = row + wrap(out - 1, h->n);
        ls_slice mine = { LS_BUF_OUT, (uint32_t)(run * s->size + c), 1 };
        ls_slice theirs = { LS_BUF_OUT, (uint32_t)(run * s->size + d), 1 };
        if (c < s->size && owner(s, h, h->me, c) == s->rank)
            LS_TRY(ls_sched_send(o, lane, owner(s, h, next, c), mine));
        if (d >= s->size || owner(s, h, h->me, d) != s->rank) continue;
        if (reduce) LS_TRY(ls_sched_recv_reduce(o, lane, owner(s, h, before, d), theirs));
        else LS_TRY(ls_sched_recv(o, lane, owner(s, h, before, d), theirs));
    }
    return LS_OK;
}

static ls_status all_reduce(ls_sched *o, const ls_shape *s, const hosts *h, int run, int lane)
{
    LS_TRY(reduce_inside(o, s, h, run, lane));
    for (int k = 1; k < h->n; k++) LS_TRY(ring_round(o, s, h, h->me - k, true, run, lane));
    for (int k = 0; k < h->n - 1; k++) LS_TRY(ring_round(o, s, h, h->me - k, false, run, lane));
    return gather_inside(o, s, h, run, lane);
}

/* --- all_gather and reduce_scatter ---------------------------------------------------------- */

/* Who has rank r's share on a host: r itself at home, elsewhere the one with its number. */
static int keeper(const ls_shape *s, const hosts *h, int node, int r)
{
    int home = node_of(s, r), place = 0;
    if (home == node) return r;
    while (member(h, home, place) != r) place++;
    return member(h, node, place % local_size(h, node));
}

/* The t-th share that `who` keeps on its host; -1: it keeps fewer. */
static int kept(const ls_shape *s, const hosts *h, int who, int t)
{
    for (int r = 0; r < s->size; r++)
        if (keeper(s, h, node_of(s, who), r) == who && t-- == 0) return r;
    return -1;
}

/* Shares of ranks that are `away` hosts further back go one host on (all_gather), or those that are as far
 * ahead come one host nearer (reduce_scatter); the q-th ranks of all hosts after one another. */
static ls_status across(ls_sched *o, const ls_shape *s, const hosts *h, int away, int seg, int lane)
{
    bool gather = s->coll == LS_ALL_GATHER;
    int next = (h->me + 1) % h->n, before = wrap(h->me - 1, h->n);
    int from = gather ? before : next, to = gather ? next : before;
    int out = wrap(gather ? h->me - away + 1 : h->me - away, h->n);
    int in = wrap(gather ? h->me - away : next - away, h->n);
    for (int q = 0; q < s->size; q++) {
        int mine = q < local_size(h, out) ? member(h, out, q) : -1;
        int theirs = q < local_size(h, in) ? member(h, in, q) : -1;
        if (mine >= 0 && keeper(s, h, h->me, mine) == s->rank)
            LS_TRY(ls_sched_send(o, lane, keeper(s, h, to, mine), ls_share(s, mine, seg)));
        if (theirs < 0 || keeper(s, h, h->me, theirs) != s->rank) continue;
        int peer = keeper(s, h, from, theirs);
        if (gather) LS_TRY(ls_sched_recv(o, lane, peer, ls_share(s, theirs, seg)));
        else LS_TRY(ls_sched_recv_reduce(o, lane, peer, ls_share(s, theirs, seg)));
    }
    return LS_OK;
}

/* Every share between its keeper and the other ranks of this host: the first of each keeper, then the second ... */
static ls_status inside(ls_sched *o, const ls_shape *s, const hosts *h, int seg, int lane)
{
    bool gather = s->coll == LS_ALL_GATHER;
    int n = local_size(h, h->me);
    for (int t = 0, left = 1; left; t++) {
        int mine = kept(s, h, s->rank, t);
        left = mine >= 0;
        for (int k = 1; k < n; k++) {
            int peer = member(h, h->me, (h->place + k) % n), theirs = kept(s, h, peer, t), r = gather ? mine : theirs;
            left = left || theirs >= 0;
            if (r >= 0) LS_TRY(ls_sched_send(o, lane, peer, ls_share(s, r, seg)));
        }
        for (int k = 1; k < n; k++) {
            int peer = member(h, h->me, wrap(h->place - k, n)), r = gather ? kept(s, h, peer, t) : mine;
            if (r < 0) continue;
            if (gather) LS_TRY(ls_sched_recv(o, lane, peer, ls_share(s, r, seg)));
            else LS_TRY(ls_sched_recv_reduce(o, lane, peer, ls_share(s, r, seg)));
        }
    }
    return LS_OK;
}

static ls_status shares(ls_sched *o, const ls_shape *s, const hosts *h, int seg, int lane)
{
    if (s->coll == LS_REDUCE_SCATTER) {
        LS_TRY(inside(o, s, h, seg, lane));
        for (int away = h->n - 1; away >= 1; away--) LS_TRY(across(o, s, h, away, seg, lane));
        return LS_OK;
    }
    for (int away = 1; away < h->n; away++) LS_TRY(across(o, s, h, away, seg, lane));
    return inside(o, s, h, seg, lane);
}

/* --- broadcast and reduce ---------------------------------------------------------------------- */

static ls_status rooted(ls_sched *o, const ls_shape *s, const hosts *h, int seg, int lane)
{
    int leader[LS_SCHED_MAX_RANKS], home = node_of(s, s->root), head = 0, n = local_size(h, h->me);
    ls_slice a = { LS_BUF_OUT, (uint32_t)seg, 1 };
    for (int j = 0; j < h->n; j++) leader[j] = j == home ? s->root : member(h, j, 0);
    while (member(h, h->me, head) != leader[h->me]) head++;
    ls_line_up hosts_line = { leader, h->n, home, h->me };
    ls_line_up local_line = { h->rank + h->first[h->me], n, head, h->place };
    bool leads = s->rank == leader[h->me];
    if (s->coll == LS_REDUCE) {
        LS_TRY(ls_binomial_reduce(o, lane, &local_line, a));
        return leads ? ls_binomial_reduce(o, lane, &hosts_line, a) : LS_OK;
    }
    if (leads) LS_TRY(ls_binomial_broadcast(o, lane, &hosts_line, a));
    return ls_binomial_broadcast(o, lane, &local_line, a);
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    hosts h;
    LS_TRY(hosts_of(s, &h));
    bool whole = s->coll == LS_BROADCAST || s->coll == LS_REDUCE;
    o->nchunks[LS_BUF_OUT] = (uint32_t)(whole ? s->segments : s->size * s->segments);
    for (int seg = 0; s->size > 1 && seg < s->segments; seg++) {
        int lane = seg % s->nlanes;
        if (whole) LS_TRY(rooted(o, s, &h, seg, lane));
        else if (s->coll == LS_ALL_REDUCE) LS_TRY(all_reduce(o, s, &h, seg, lane));
        else LS_TRY(shares(o, s, &h, seg, lane));
    }
    return LS_OK;
}

const ls_algo ls_algo_hierarchical = {
    .name = "hierarchical",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER | 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .source = "Karonis et al. 2000",
    .levels = true,
    .one_owner = true,
    .emit = emit,
};
