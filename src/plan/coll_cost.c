/* coll_cost.c -- NCCL's collectives: three protocols, and which of them NCCL takes.
 *
 * NCCL does not take the fastest protocol but the one that its own model (ncclTopoTuneModel in src/graph/tuning.cc)
 * expects to be the fastest. On rings of NVLink that model overestimates LL128, and so messages between 1 and 16 MB
 * keep a protocol longer than the fastest one would be. The model's constants decide here, too; the fitted constants
 * only say how long the chosen protocol takes. */
#include <math.h>

#include "plan/coll_cost.h"

const char *const ls_coll_classes[LS_COLL_CLASSES] = { "v100", "a100", "h100", "h100-ring", "b200", "b200-net" };

/* Rings of NVLink 2 over the first n devices of a DGX-1, whose links are a cube's and no switch's; 8 devices have 6.
 * Of 5 devices none is a ring, and messages pass the processors. */
static double cube_rings(int64_t n)
{
    static const double rings[] = { 1, 2, 4, 1.64, 2, 4, 6 };
    return n >= 2 && n <= 8 ? rings[n - 2] / 6 : 1;
}

bool ls_coll_in_node(const char *gpu, int64_t devices, ls_coll coll, int64_t n, bool nvls, ls_coll_run *o)
{
    const double ranks = (double)n;
    const bool cube = devices == 8 || devices == 0; /* a DGX-1, which is the usual node; a DGX-2 has a switch */
    *o = (ls_coll_run){ .n = ranks, .factor = ls_coll_bus_factor(coll, n), .rings = 1 };
    /* NVLink's switch reduces in flight (NVLS): NCCL takes it for all_reduce where many ranks share it. */
    nvls = nvls && coll == LS_ALL_REDUCE;
    switch (*gpu) {
    case 'V': o->class = LS_COLL_V100, o->rings = cube ? cube_rings(n) : 1, o->no_ll128 = cube && n == 5; return true;
    case 'A': o->class = LS_COLL_A100; return true;
    case 'H':
        o->class = nvls ? LS_COLL_H100 : LS_COLL_H100_RING;
        if (nvls) o->rings = fmin(1, fmax(.75, .86 + .14 * (ranks - 5) / 2)); /* at the least what rings reach */
        return true;
    case 'G':
    case 'B':
        o->class = LS_COLL_B200;
        o->rings = !nvls || n < 6 ? .81 : .93 + .07 * fmin(1, (ranks - 6) / 2);
        return true;
    default: return false;
    }
}

/* What NCCL's model believes of rings of NVLink (2.9 to 2.17): microseconds per call and per step, GB/s of all rings,
 * and the most that LL reaches. Classes that are not listed reduce in switches or cross a network. */
static const double call_us[3] = { 3.6, 10, 8.4 }, step_us[3] = { .47, 1.9, 3.4 };
static const struct { double line, ll_most; } believed[LS_COLL_CLASSES] = {
    [LS_COLL_V100] = { 120, 39 }, [LS_COLL_A100] = { 240, 87.7 },
};

/* The model's versions differ in digits: within a percent of a tie either protocol is likely. */
#define TIE 200

void ls_coll_choice(const ls_coll_run *r, double part[3])
{
    const double line = 1e3 * believed[r->class].line * r->rings, most = 1e3 * believed[r->class].ll_most;
    const double bytes = r->bytes * r->factor, steps = (r->factor >= 1 ? 2 : 1) * (r->n - 1);
    const double per_us[3] = { fmin(line / 4, most), .92 * line, line };
    double us[3], least = INFINITY, sum = 0;
    for (int i = 0; i < 3; i++) us[i] = call_us[i] + step_us[i] * steps + bytes / per_us[i];
    if (r->no_ll128) us[1] = INFINITY;
    for (int i = 0; i < 3; i++) least = fmin(least, us[i]);
    for (int i = 0; i < 3; i++) sum += part[i] = pow(least / us[i], TIE);
    for (int i = 0; i < 3; i++) part[i] /= sum;
}

double ls_coll_cost(const ls_coll_run *r, const double *k)
{
    const double bus = 1e3 * k[LS_C_BUS] * r->rings; /* bytes per microsecond */
    const double x = r->bytes * r->factor / bus + (r->factor >= 1 ? r->bytes / r->n / (1e3 * k[LS_C_LOCAL]) : 0);
    const double ll = k[LS_C_LL] + k[LS_C_LL_RANK] * r->n + r->bytes * r->factor / (bus * k[LS_C_LL_PART]);
    const double ll128 = k[LS_C_LL128] + k[LS_C_LL128_RANK] * r->n + r->bytes * r->factor / (bus * k[LS_C_LL128_PART]);
    const double simple = k[LS_C_SIMPLE] + k[LS_C_SIMPLE_RANK] * r->n + x + k[LS_C_RAMP] * sqrt(x);
    if (believed[r->class].line > 0) {
        double part[3];
        ls_coll_choice(r, part);
        return 1e-6 * exp(part[0] * log(ll) + part[1] * log(ll128) + part[2] * log(simple));
    }
    /* Elsewhere the least; near a tie NCCL does not always pick it. */
    return 1e-6 * pow(pow(ll, -12) + pow(ll128, -12) + pow(simple, -12), -1.0 / 12);
}
