/* calibrate.h -- measuring the cost model's numbers on this machine. */
#ifndef LS_GROUP_CALIBRATE_H
#define LS_GROUP_CALIBRATE_H
#include "coll/cost.h"
#include "lockstep/world.h"

#define LS_CALIBRATE_SIZES 8

typedef struct ls_calibration {
    ls_cost cost;              /* what was measured; the rest as it was before */
    bool measured[LS_LEVELS];
    size_t ranks;              /* crowded ones, for poke */
    size_t nbytes[LS_CALIBRATE_SIZES];
    double ns[LS_LEVELS][LS_CALIBRATE_SIZES]; /* of a message of so many bytes, both ways at once */
    double residual[LS_LEVELS];               /* the worst of them against alpha + beta x bytes, relative */
} ls_calibration;

/* Memory, loopback, adding and crowding, among threads of this process; a second or two. out->cost holds what
 * to keep of the rest. Of repeated measurements the least counts: others' work only adds to it. */
ls_status ls_calibrate_host(ls_calibration *out);
/* The wire between rank 0 and the first rank on another host; every rank calls it. Nothing on one host. */
ls_status ls_calibrate_network(ls_world *w, ls_calibration *out);

#endif
