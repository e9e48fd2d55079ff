/* nccl.c -- NCCL's choice of algorithm and protocol as the model that it is: latency plus bytes over bandwidth, with
 * the constants of NCCL 2.30's tuning. Its correction of the tree by message size, a table of 24 entries, is left
 * out. */
#include <math.h>

#include "lockstep/plan.h"

/* Microseconds, [algorithm][LL, LL128, Simple]. */
static const double base_us[LS_NCCL_ALGOS][LS_NCCL_PROTOS] = { { 6.8, 14, 8.4 }, { 6.6, 14, 8.4 }, { 0, 0, 0 } };
static const double nvlink_us[LS_NCCL_ALGOS][LS_NCCL_PROTOS] = { { .6, 1.25, 4 }, { .6, 1.9, 3.4 }, { 0, 0, 25 } };
static const double net_us[LS_NCCL_ALGOS][LS_NCCL_PROTOS] = { { 5, 8.5, 14 }, { 2.7, 4, 14 }, { 0, 0, 18 } };
/* GB per second, [architecture]. */
static const double ll_most[4][3] = { { 39, 39, 20.4 }, { 87.7, 22.5, 19 }, { 141, 45, 35 }, { 282, 90, 70 } };
static const double ll128_channel[4] = { 20, 20, 36.7, 40 };
static const double tree_channel[4][3] = { { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 38.7, 41.4, 36 }, { 70, 42.8,
    24 } };
static const double nvls_efficiency[4] = { 0, 0, .85, .74 };

static int nodes_index(int64_t nodes) { return nodes <= 1 ? 0 : nodes == 2 ? 1 : 2; }

static double latency_us(const ls_nccl *j, ls_nccl_algo a, ls_nccl_proto p)
{
    const double n = (double)j->ranks, N = (double)j->nodes, per_node = n / N;
    if (a == LS_NCCL_RING) {
        const double steps = 2 * (n - 1), inter = N > 1 ? 2 * (N - 1) : 0;
        /* A ring's message waits for the network's only once in flight: 1.4 times longer on a plateau. */
        const double plateau = p == LS_NCCL_SIMPLE && N > 1 ? (j->arch >= LS_NCCL_AMPERE ? 1.4 : 1.9) : 1;
        return base_us[a][p] + (steps - inter) * nvlink_us[a][p] + plateau * inter * net_us[a][p];
    }
    if (a == LS_NCCL_TREE)
        return base_us[a][p] + 2 * ((per_node - 1) * nvlink_us[a][p] + log2(N) * net_us[a][p]);
    return nvlink_us[a][p] + (N > 1 ? 2 * log2(N) * net_us[a][p] : 0);
}

/* Bus bandwidth in GB per second; 0: there is no such combination. */
static double bus_gb(const ls_nccl *j, ls_nccl_algo a, ls_nccl_proto p)
{
    const int i = nodes_index(j->nodes);
    const double inside = j->intra_gb_per_s, outside = j->nodes > 1 ? j->inter_gb_per_s : INFINITY;
    const double line = fmin(inside, outside), channels = j->channels;
    if (a == LS_NCCL_NVLS) {
        if (!j->nvls || p != LS_NCCL_SIMPLE || j->nodes > 1) return 0;
        return inside * nvls_efficiency[j->arch] * (double)j->ranks / (double)(j->ranks - 1);
    }
    if (a == LS_NCCL_RING) {
        if (p == LS_NCCL_LL) return fmin(.5 * line, ll_most[j->arch][i]);
        if (p == LS_NCCL_LL128) return fmin(.92 * line, ll128_channel[j->arch] * channels);
        return line;
    }
    if (p == LS_NCCL_LL) return fmin(.92 * line / 3.8, ll_most[j->arch][i]);
    const double tree = fmin(.92 * line, tree_channel[j->arch][i] * channels);
    if (p == LS_NCCL_LL128) return tree * (j->nodes > 1 ? 120.0 / 128 : 7.0 / 9);
    return tree;
}

double ls_nccl_seconds(const ls_nccl *j, ls_nccl_algo a, ls_nccl_proto p, double bytes)
{
    const double bus = bus_gb(j, a, p);
    if (j->ranks <= 1) return 0;
    if (!(bus > 0)) return INFINITY;
    return 1e-6 * latency_us(j, a, p) + bytes * ls_coll_bus_factor(LS_ALL_REDUCE, j->ranks) / (bus * 1e9);
}

double ls_nccl_pick(const ls_nccl *j, double bytes, ls_nccl_algo *a, ls_nccl_proto *p)
{
    double least = INFINITY;
    for (int i = 0; i < LS_NCCL_ALGOS; i++)
        for (int k = 0; k < LS_NCCL_PROTOS; k++) {
            const double t = ls_nccl_seconds(j, (ls_nccl_algo)i, (ls_nccl_proto)k, bytes);
            if (t >= least) continue;
            least = t;
            if (a) *a = (ls_nccl_algo)i;
            if (p) *p = (ls_nccl_proto)k;
        }
    return j->ranks <= 1 ? 0 : least;
}
