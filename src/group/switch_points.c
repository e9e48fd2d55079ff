/* switch_points.c -- from which size on mapped memory's second way to do a thing is the faster one (coll/cost.h),
 * found by doing it both ways, turn by turn, between two ranks with a core each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "group/calibrate.h"
#include "group/engine.h"

#define PASSES 4
#define POINT_NS 6000000u /* spent on one way at one size in a pass, */
#define BATCHES 100       /* in at most so many batches: short, so that some find both ranks running */
#define LEAST_BATCHES 3
#define WORTH 0.97        /* of the first way's time: what is as fast does not count */

/* What is measured for a switch point. Sizes are of what the point is about. */
static const struct {
    ls_coll coll;
    bool private_memory;
    size_t divisor; /* the vector is so much shorter */
    int n;
    size_t nbytes[LS_SWITCH_SIZES];
} question[LS_SWITCH_POINTS] = {
    { LS_REDUCE_SCATTER, false, 1, 6, { 512, 1024, 2048, 4096, 8192, 16384 } },
    { LS_ALL_GATHER, false, 1, 6, { 512, 1024, 2048, 4096, 8192, 16384 } },
    { LS_ALL_TO_ALL, false, 4, 4, { 8 << 20, 16 << 20, 32 << 20, 64 << 20 } }, /* two ranks touch two vectors each */
    { LS_BROADCAST, false, 1, 5, { 512, 1024, 2048, 4096, 8192 } },
    { LS_BROADCAST, true, 1, 4, { 12 << 10, 16 << 10, 64 << 10, 256 << 10 } },
    { LS_SENDRECV, true, 1, 3, { 256 << 10, 512 << 10, 1 << 20 } }, /* both ways at once */
};
#define MOST_BYTES ((size_t)16 << 20) /* of a vector above */
_Static_assert(2 * MOST_BYTES < LS_SWITCH_ARENA_BYTES, "two vectors fit");

static ls_status operation(ls_group *g, ls_coll coll, char *in, char *out, size_t nbytes)
{
    const size_t count = nbytes / sizeof(float);
    switch (coll) {
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(g, in, out, count, LS_F32, LS_SUM);
    case LS_ALL_GATHER: return ls_all_gather(g, in, out, count, LS_F32);
    case LS_ALL_TO_ALL: return ls_all_to_all(g, in, out, count, LS_F32);
    case LS_SENDRECV: {
        const int peer = 1 - ls_group_rank(g);
        const ls_p2p op[] = { { .send = in, .count = count, .dtype = LS_F32, .peer = peer },
                              { .recv = out, .count = count, .dtype = LS_F32, .peer = peer } };
        return ls_p2p_batch(g, op, 2);
    }
    default: return ls_broadcast(g, out, count, LS_F32, 1); /* to rank 0, whose time counts */
    }
}

/* Lowers *ns to the least mean of many batches, on this rank. Rank 0 says before each how many operations it has; 0:
 * the end. Vectors are rewritten before and results read after each, which does not count (as in lockstep bench
 * --touch). */
static ls_status least(ls_group *g, ls_coll coll, char *in, char *out, size_t nbytes, double *ns)
{
    const ls_env *env = ls_env_get();
    const uint64_t end = env->mono_ns() + POINT_NS;
    const int32_t each = nbytes <= 16384 ? 100 : nbytes <= 262144 ? 8 : 1;
    for (int batch = 0;; batch++) {
        int32_t ops = batch < BATCHES && (batch < LEAST_BATCHES || env->mono_ns() < end) ? each : 0;
        LS_TRY(ls_broadcast(g, &ops, 1, LS_I32, 0));
        if (ops == 0) return LS_OK;
        uint64_t spent = 0;
        for (int i = 0; i < ops; i++) {
            memset(coll == LS_BROADCAST ? out : in, 0x3f, nbytes); /* floats of 0.75 */
            const uint64_t t0 = env->mono_ns();
            LS_TRY(operation(g, coll, in, out, nbytes));
            spent += env->mono_ns() - t0;
            for (size_t at = 0; at < nbytes; at += 64) (void)*(volatile const char *)(out + at);
        }
        double mean = (double)spent / ops;
        if (mean < *ns && batch > 0) *ns = mean;
    }
}

double ls_switch_conclude(int i, const size_t *nbytes, double (*ns)[2], int n)
{
    const bool above = i < 2; /* in place: the point is the last size at which the first way is the faster one */
    int from = n;
    double gained = 0.0, most = 0.0;
    for (int k = n - 1; k >= 0; k--) {
        gained += log(ns[k][0] / ns[k][1]);
        if (gained > most + log(1.0 / WORTH)) most = gained, from = k;
    }
    if (from == n) return LS_COST_NEVER;
    if (above) return from == 0 ? 0.0 : (double)nbytes[from - 1];
    return (double)nbytes[from]; /* of shorter ones nothing is known */
}

ls_status ls_calibrate_switch_points(ls_group *g, ls_calibration *out)
{
    ls_switch_points *s = &g->e->tuning.cost.in_memory;
    void *shared;
    if (g->crowded || !g->mapped) return LS_OK; /* they are not asked there */
    g->forced = NULL;
    g->asks = false;
    memset(g->asked, 0, sizeof g->asked);
    LS_TRY(ls_alloc(ls_group_world(g), 2 * MOST_BYTES, LS_MEM_COMM, &shared));
    char *own = calloc(1, 2 * MOST_BYTES);
    if (!own) return ls_fail(LS_NO_MEMORY, "%zu bytes to calibrate with", 2 * MOST_BYTES);
    memset(shared, 0, 2 * MOST_BYTES);
    ls_status st = LS_OK;
    for (int i = 0; i < LS_SWITCH_POINTS && st == LS_OK; i++) {
        char *in = question[i].private_memory ? own : shared;
        const int n = question[i].n;
        if (question[i].coll == LS_SENDRECV && !g->attached) continue; /* it cannot be done here, and is not asked */
        double ns[LS_SWITCH_SIZES][2], point;
        for (int k = 0; k < n; k++) ns[k][0] = ns[k][1] = (double)INFINITY;
        for (int turn = 0; turn < 2 * PASSES * n && st == LS_OK; turn++) {
            const int k = turn / 2 % n, way = turn % 2;
            *ls_switch_point(s, i) = way == 0 ? LS_COST_NEVER : 0.0;
            const size_t nbytes = question[i].nbytes[k] / question[i].divisor;
            st = least(g, question[i].coll, in, in + MOST_BYTES, nbytes, &ns[k][way]);
        }
        point = ls_switch_conclude(i, question[i].nbytes, ns, n);
        if (st == LS_OK) st = ls_broadcast(g, &point, 1, LS_F64, 0);
        *ls_switch_point(s, i) = point;
        if (ls_group_rank(g) != 0) continue;
        out->nswitch[i] = n;
        memcpy(out->switch_bytes[i], question[i].nbytes, sizeof out->switch_bytes[i]);
        memcpy(out->switch_ns[i], ns, sizeof ns);
    }
    free(own);
    if (st == LS_OK && ls_group_rank(g) == 0) out->cost.in_memory = *s;
    return st;
}
