/* comm_log.h -- what this rank's groups carry per step, group by group, and comm.json, which has it of every rank.
 */
#ifndef LS_TRAIN_COMM_LOG_H
#define LS_TRAIN_COMM_LOG_H
#include "lockstep/parallel.h"

#define LS_COMM_GROUPS (1 + LS_MESH_GROUPS + 11 + 2 * 8) /* that a rank has, at most: the world's, the mesh's, those of tp,
                                                          * cp and sharding, and the second ones of each chunk */
#define LS_COMM_STEADY 3 /* the first step whose collectives are those of all later ones: the second one begins with a
                          * broadcast of the order in which gradients arrived */

/* All groups of a rank, each once, the world's first: those of the mesh and those that shard over it. Returns how many
 * there are. */
int ls_comm_groups(const ls_parallel *p, ls_group *out[LS_COMM_GROUPS]);

typedef struct ls_comm_log {
    ls_group *group[LS_COMM_GROUPS]; /* borrowed */
    int n;
    ls_comm_stats before[LS_COMM_GROUPS], newest[LS_COMM_GROUPS]; /* newest: of step `step` alone */
    int64_t step;                    /* the newest one of a whole batch; 0: none so far */
    int64_t ended, summed;           /* steps of a whole batch so far, and those from LS_COMM_STEADY on, */
    uint64_t waited_ns[LS_COMM_GROUPS]; /* in which the rank waited for so long in the group, together */
} ls_comm_log;

void ls_comm_log_open(ls_comm_log *l, const ls_parallel *p);
/* Around each step. `whole`: it has as many samples as most steps. */
void ls_comm_log_begin(ls_comm_log *l);
void ls_comm_log_end(ls_comm_log *l, int64_t step, bool whole);

/* Every rank calls it, once the run is over: rank 0 writes FOLDER/comm.json. Nothing is written if no step was whole.
 */
struct ls_trainer;
ls_status ls_comm_log_write(struct ls_trainer *t);

#endif
