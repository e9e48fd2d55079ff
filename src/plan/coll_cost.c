/* coll_cost.c -- NCCL's collectives: three protocols, and which of them NCCL takes.
 *
 * NCCL does not take the fastest protocol but the one that its own model (ncclTopoTuneModel in src/graph/tuning.cc)
 * expects to be the fastest. On rings of NVLink that model overestimates LL128, and so messages between 1 and 16 MB
 * keep a protocol longer than the fastest one would be. The model's constants decide here, too; the fitted constants
 * only say how long the chosen protocol takes. */
#include <math.h>
#include <string.h>

#include "plan/coll_cost.h"

const char *const ls_coll_classes[LS_COLL_CLASSES] = { "v100", "a100", "h100", "h100-ring", "b200", "b200-net" };

/* Rings of NVLink 2 over the first n devices of a DGX-1, whose links are a cube's and no switch's; 8 devices have 6.
 * Of 5 devices none is a ring, and messages pass the processors. */
static double cube_rings(int64_t n)
{
    static const double rings[] = { 1, 2, 4, 1.64, 2, 4, 6 };
    return n >= 2 && n <= 8 ? rings[n - 2] / 6 : 1;
}

ls_status ls_row_coll(const ls_row *r, ls_coll_run *o)
{
    static const struct { const char *metric; ls_coll coll; } all[] = {
        { "allreduce_busbw", LS_ALL_REDUCE }, { "allreduce_time_us", LS_ALL_REDUCE },
        { "allgather_busbw", LS_ALL_GATHER }, { "reducescatter_busbw", LS_REDUCE_SCATTER },
    };
    const double bytes = ls_row_noted(r, "message ", 0);
    size_t i = 0;
    while (i < 4 && strcmp(r->metric, all[i].metric) != 0) i++;
    if (i == 4) return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
    if (bytes <= 0) return ls_fail(LS_UNSUPPORTED, "the note states no 'message N bytes'");
    if (r->n < 2) return ls_fail(LS_UNSUPPORTED, "n_gpus is %lld; expected 2 or more", (long long)r->n);
    const char first = r->gpu[0] == 'G' ? 'B' : r->gpu[0];
    const bool nvls = all[i].coll == LS_ALL_REDUCE && !ls_row_notes(r, "NVLS off");
    *o = (ls_coll_run){ .n = (double)r->n, .bytes = bytes, .factor = ls_coll_bus_factor(all[i].coll, r->n), .rings =
        1 };
    const bool across = r->per_node && r->n > r->per_node;
    switch (first) {
    case 'V': o->class = 0, o->rings = cube_rings(r->n), o->no_ll128 = r->n == 5; break;
    case 'A': o->class = 1; break;
    /* NVLink's switch reduces in flight (NVLS): NCCL takes it for all_reduce where many ranks share it. */
    case 'H': o->class = nvls ? 2 : 3, o->rings = nvls ? fmin(1, .86 + .14 * (double)(r->n - 5) / 2) : 1; break;
    case 'B': o->class = across ? 5 : 4, o->rings = across ? 1 : !nvls || r->n < 6 ? .81 : .93 +
        .07 * fmin(1, (double)(r->n - 6) / 2); break;
    default: return ls_fail(LS_UNSUPPORTED, "no collectives were measured on device '%s'", r->gpu);
    }
    return LS_OK;
}

/* What NCCL's model believes of rings of NVLink (2.9 to 2.17): microseconds per call and per step, GB/s of all rings,
 * and the most that LL reaches. Classes that are not listed reduce in switches or cross a network. */
static const double call_us[3] = { 3.6, 10, 8.4 }, step_us[3] = { .47, 1.9, 3.4 };
static const struct { double line, ll_most; } believed[LS_COLL_CLASSES] = {
    [0 /* V100 */] = { 120, 39 }, [1 /* A100 */] = { 240, 87.7 },
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

double ls_coll_value(const ls_row *r, const ls_coll_run *run, double seconds)
{
    return strcmp(r->metric, "allreduce_time_us") == 0 ? 1e6 * seconds : 1e-9 * run->bytes * run->factor / seconds;
}

double ls_coll_measured(const ls_row *r, const ls_coll_run *run)
{
    return strcmp(r->metric, "allreduce_time_us") == 0 ? 1e-6 * r->value : 1e-9 * run->bytes * run->factor / r->value;
}
