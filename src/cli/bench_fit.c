/* bench_fit.c -- lockstep bench --fit: alpha and beta of T = rounds alpha + bytes beta, from measured rows.
 *
 * Rounds and bytes are those of the algorithm's formula (a ring all_reduce: 2 (n-1) and 2 (n-1)/n S), so alpha is the
 * latency of one message and beta the time of one byte on the busiest rank. Sizes go over many powers of two, so the
 * squares of relative errors are what is made least: every row weighs alike. The model knows no caches and no
 * protocols; the residuals show where it does not hold. Hockney, Parallel Computing 20 (1994).
 */
#include <math.h>

#include "cli/bench.h"

bool ls_bench_fit(const ls_bench_point *p, int n, ls_bench_line *out)
{
    double rr = 0, rb = 0, bb = 0, r1 = 0, b1 = 0; /* normal equations, rows divided by their time */
    *out = (ls_bench_line){ 0 };
    for (int i = 0; i < n; i++) {
        if (p[i].us <= 0) return false;
        double r = p[i].rounds / p[i].us, b = p[i].bytes / p[i].us;
        rr += r * r, rb += r * b, bb += b * b, r1 += r, b1 += b;
    }
    double det = rr * bb - rb * rb;
    if (n < 2 || !(det > 1e-9 * rr * bb)) return false; /* rows that are all alike fit any number of lines */
    double alpha = (r1 * bb - b1 * rb) / det, beta = (b1 * rr - r1 * rb) / det;
    if (alpha < 0) alpha = 0, beta = b1 / bb; /* neither takes time back */
    else if (beta < 0) alpha = r1 / rr, beta = 0;
    out->alpha_us = alpha;
    out->beta_us = beta;
    for (int i = 0; i < n; i++) {
        double off = ls_bench_line_us(out, &p[i]) / p[i].us - 1;
        out->rms += off * off / n;
        out->worst = fabs(off) > fabs(out->worst) ? off : out->worst;
    }
    out->rms = sqrt(out->rms);
    return true;
}

double ls_bench_line_us(const ls_bench_line *l, const ls_bench_point *p)
{
    return p->rounds * l->alpha_us + p->bytes * l->beta_us;
}

bool ls_bench_line_latency(const ls_bench_line *l, const ls_bench_point *p)
{
    return p->rounds * l->alpha_us > p->bytes * l->beta_us;
}
