/* calibrate.h -- measuring the cost model's numbers on this machine. */
#ifndef LS_GROUP_CALIBRATE_H
#define LS_GROUP_CALIBRATE_H
#include "coll/cost.h"
#include "lockstep/world.h"

#define LS_CALIBRATE_SIZES 8
#define LS_SWITCH_SIZES 6
#define LS_SWITCH_ARENA_BYTES ((size_t)48 << 20)

typedef struct ls_calibration {
    ls_cost cost;              /* what was measured; the rest as it was before */
    bool measured[LS_LEVELS];
    size_t ranks;              /* crowded ones, for poke */
    size_t nbytes[LS_CALIBRATE_SIZES];
    double ns[LS_LEVELS][LS_CALIBRATE_SIZES]; /* of a message of so many bytes, both ways at once */
    double residual[LS_LEVELS];               /* the worst of them against alpha + beta x bytes, relative */
    int nswitch[LS_SWITCH_POINTS];            /* sizes measured for a switch point: 0 where it was not, */
    size_t switch_bytes[LS_SWITCH_POINTS][LS_SWITCH_SIZES];
    double switch_ns[LS_SWITCH_POINTS][LS_SWITCH_SIZES][2]; /* and the time of the first and of the second way */
} ls_calibration;

/* Memory, its switch points, loopback, adding and crowding, among threads of this process; some seconds. out->cost
 * holds what to keep of the rest. Of repeated measurements the least counts: others' work only adds to it. */
ls_status ls_calibrate_host(ls_calibration *out);
/* The wire between rank 0 and the first rank on another host; every rank calls it. Nothing on one host. */
ls_status ls_calibrate_network(ls_world *w, ls_calibration *out);

/* switch_points.c: of two ranks with a core each; every one of them calls it, and rank 0 gets the result. */
struct ls_group;
ls_status ls_calibrate_switch_points(struct ls_group *g, ls_calibration *out);
/* Switch point i by the times of both ways at n sizes: where the product of the times of what runs is least. */
double ls_switch_conclude(int i, const size_t *nbytes, double (*ns)[2], int n);

#endif
