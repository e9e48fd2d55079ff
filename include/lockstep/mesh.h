/* mesh.h -- who a rank is when a world is divided along several axes.
 *
 * The ranks of a world form a grid, the slowest axis first: pipeline stages (pp), data parallel replicas (dp), experts
 * (ep), parts of a sequence (cp), shards of a matrix (tp), which talk most and so are neighbours. Rank r has the
 * coordinates c with r = (((c.pp dp + c.dp) ep + c.ep) cp + c.cp) tp + c.tp, as in Megatron-LM and torch's
 * init_device_mesh. Where an order is given its first axis is the slowest in place of pp, and so on.
 */
#ifndef LS_MESH_H
#define LS_MESH_H
#include <stdbool.h>
#include "lockstep/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_axis { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP, LS_AXES } ls_axis;
/* "pp", "dp", "ep", "cp", "tp". */
const char *ls_axis_name(ls_axis axis);

/* The axes of a grid, the slowest first. NULL, or all zeros: pp, dp, ep, cp, tp. */
typedef const int *ls_mesh_order;
/* "tp-dp": pp, ep, cp, tp, dp into order; axes that are left out come first, in the usual order. *named: how many are
 * not left out. LS_BAD_CONFIG: a word is no axis, or is there twice. */
ls_status ls_mesh_order_read(const char *text, int order[LS_AXES], int *named);

#define LS_MESH_GROUPS (LS_AXES + 4) /* that a mesh has, at most */

/* All groups are borrowed from the mesh. An axis group has the ranks that agree in all other coordinates, in world
 * order. Groups with the same ranks are the same object; a group with all ranks is the world's. */
typedef struct ls_mesh {
    ls_world *w; /* borrowed */
    int size[LS_AXES], order[LS_AXES], coord[LS_AXES];
    ls_group *axis[LS_AXES];   /* ranks along one axis; this rank alone where its size is 1 */
    ls_group *batch;           /* ranks with different samples: dp x ep */
    ls_group *replicas;        /* over which gradients of dense parameters are summed: dp x ep x cp */
    ls_group *expert_replicas; /* and those of an expert: dp x cp */
    ls_group *embedding;       /* first and last stage, which share a tied embedding; else NULL */
    bool speaks;               /* prints and saves files: rank 0 of the world */
    bool has_loss;             /* last stage, tp coordinate 0: knows the loss of its samples */
    ls_group *owned[LS_MESH_GROUPS];
    int nowned;
} ls_mesh;

/* Whether `size` (each at least 1) is a grid of world_size ranks. LS_BAD_CONFIG names the product and, of what would
 * fit, the nearest sizes. */
ls_status ls_mesh_check(const int size[LS_AXES], int world_size);
/* The i-th axis of an order. */
ls_axis ls_mesh_axis(ls_mesh_order order, int i);
/* How many ranks apart neighbours along each axis are. */
void ls_mesh_strides(const int size[LS_AXES], ls_mesh_order order, int stride[LS_AXES]);
/* The coordinates of a rank of the grid. */
void ls_mesh_coord(const int size[LS_AXES], ls_mesh_order order, int rank, int coord[LS_AXES]);
/* Axes as a set: a bit each. */
#define LS_ALONG(axis) (1u << (axis))
/* The place of `rank` among the `count` ranks that differ from it along these axes alone: its rank in their group, and
 * that group's size, for callers who need them before there are groups. */
void ls_mesh_place(const int size[LS_AXES], ls_mesh_order order, int rank, unsigned along, int *place, int *count);
/* The one of them at a place. */
int ls_mesh_at(const int size[LS_AXES], ls_mesh_order order, int rank, unsigned along, int place);
/* Every rank calls it. `out` is overwritten; after a failure it has nothing to be destroyed. */
ls_status ls_mesh_create(ls_world *w, const int size[LS_AXES], ls_mesh_order order, ls_mesh *out);
/* Every rank calls it, before ls_world_leave. A mesh of zeros is fine. */
void ls_mesh_destroy(ls_mesh *m);

#ifdef __cplusplus
}
#endif
#endif
