/* step_price.h -- how long a collective takes on a cluster: every message of the runtime's schedules, while every
 * group of the mesh calls it at the same time.
 *
 * All groups that call it at the same time are simulated together, each on the devices of its ranks, with messages that
 * wait for links in turn and hold them for their latency, too (Hockney's model). Of the algorithms that the runtime
 * has for it, the one that takes least is chosen.
 */
#ifndef LS_PLAN_STEP_PRICE_H
#define LS_PLAN_STEP_PRICE_H
#include "lockstep/mesh.h"
#include "lockstep/sched.h"
#include "lockstep/topo.h"
#include "plan/step_traffic.h"

/* The groups of a mesh whose members differ along some axes. */
typedef struct ls_mesh_groups {
    int size[LS_AXES], order[LS_AXES], ranks;
    ls_step_span span;
} ls_mesh_groups;

/* Members of each. */
int ls_mesh_groups_members(const ls_mesh_groups *g);
/* Whether a rank is in one (not a middle stage where `ends`); its first member, and the place of the rank in it. */
bool ls_mesh_groups_of(const ls_mesh_groups *g, int rank, int *first, int *place);
/* The member at a place of the group that `rank` is in. */
int ls_mesh_groups_at(const ls_mesh_groups *g, int rank, int place);

typedef struct ls_step_price {
    double seconds;
    const char *algo;  /* static */
    uint64_t messages; /* of all groups */
    int level;         /* the highest that members of a group meet at (ls_topo_meet) */
} ls_step_price;

/* Rank r is on device r. only: an algorithm; NULL: any. LS_UNSUPPORTED: no algorithm sends messages for it. */
ls_status ls_step_price_of(const ls_topo *t, const ls_mesh_groups *g, ls_coll coll, double bytes, const ls_algo *only,
                           ls_step_price *out);

#endif
