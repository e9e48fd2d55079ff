/* coll_forms.c -- collectives in closed form: alpha seconds per message, beta bytes per second (Thakur et al. 2005,
 * Sanders et al. 2009). */
#include <math.h>

#include "lockstep/plan.h"

/* k rounds of latency and S bytes over a pipeline of C chunks: (k + C - 1) (alpha + S / (C beta)), with the best C. */
static double pipelined(double k, double S, double alpha, double beta)
{
    double C = alpha > 0 ? floor(sqrt(S * (k - 1) / (alpha * beta))) : S;
    if (!(C >= 1)) C = 1;
    const double t = (k + C - 1) * (alpha + S / (C * beta)), more = (k + C) * (alpha + S / ((C + 1) * beta));
    return t < more ? t : more;
}

double ls_coll_seconds(ls_coll_form f, ls_coll what, int64_t n, double S, double alpha, double beta)
{
    const double N = (double)n, bits = log2(N), half = (N - 1) * (alpha + S / (N * beta));
    const bool halves = what == LS_REDUCE_SCATTER || what == LS_ALL_GATHER, all = what == LS_ALL_REDUCE;
    const bool rooted = what == LS_BROADCAST || what == LS_REDUCE;
    if (n <= 1) return 0;
    switch (f) {
    case LS_COLL_RING:
        if (halves) return half;
        if (all) return 2 * half;
        break;
    case LS_COLL_HALVING:
        if (halves) return bits * alpha + (N - 1) / N * S / beta;
        if (all) return 2 * bits * alpha + 2 * (N - 1) / N * S / beta;
        break;
    case LS_COLL_DOUBLING:
        if (all) return bits * (alpha + S / beta);
        break;
    case LS_COLL_BRUCK:
        if (what == LS_ALL_GATHER) return ceil(bits) * alpha + (N - 1) / N * S / beta;
        if (what == LS_ALL_TO_ALL) return ceil(bits) * (alpha + S / (2 * beta));
        break;
    case LS_COLL_TREE:
        if (all) return pipelined(2 * bits, S, alpha, beta);
        break;
    case LS_COLL_SWITCH:
        if (all) return alpha + S / beta;
        break;
    case LS_COLL_PAIRWISE:
        if (what == LS_ALL_TO_ALL) return half;
        break;
    case LS_COLL_CHAIN:
        if (rooted) return pipelined(N - 1, S, alpha, beta);
        break;
    }
    return NAN;
}

double ls_coll_two_level_seconds(int64_t g, int64_t k, double S, double beta1, double beta2)
{
    const double G = (double)g, K = (double)k;
    return 2 * (G - 1) / G * S / beta1 + 2 * (K - 1) / K * (S / G) / beta2;
}

double ls_coll_bus_factor(ls_coll what, int64_t n)
{
    const double part = n > 0 ? (double)(n - 1) / (double)n : 0;
    if (what == LS_ALL_REDUCE) return 2 * part;
    return what == LS_BROADCAST || what == LS_REDUCE ? 1 : part;
}

/* A node without any of a token's experts has none of K draws from E - E / N others. */
double ls_expected_nodes(int64_t N, int64_t E, int64_t K)
{
    double none = 1;
    const double others = (double)E - (double)E / (double)N;
    for (int64_t i = 0; i < K; i++) none *= fmax(0, (others - (double)i) / (double)(E - i));
    return (double)N * (1 - none);
}
