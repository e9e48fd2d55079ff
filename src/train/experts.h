/* experts.h -- what a step has routed to experts: over all ranks, for the log, the metrics and the balancing bias. */
#ifndef LS_TRAIN_EXPERTS_H
#define LS_TRAIN_EXPERTS_H
#include "base/text.h"
#include "lockstep/mesh.h"
#include "model/moe.h"

/* Before a step's first forward: its counts begin at zero. */
void ls_experts_begin(const ls_model *m);
/* After the optimizer has stepped: adds up the counts of the ranks with different samples, and moves the balancing
 * bias, which `balances` wants unless the step changed no weight. Every rank calls it, a dry one too; of a model
 * without experts nothing happens. */
ls_status ls_experts_end(const ls_mesh *mesh, ls_model *m, bool balances);

/* What a step's counts come to. */
typedef struct ls_experts_load {
    double most;       /* the largest load of an expert over the mean of its layer: 1 is balance, */
    int layer, expert; /* there */
    double dropped;    /* of all assignments, 0 to 1 */
    double aux, z;     /* both losses before their coefficients, means over layers */
} ls_experts_load;
/* False: the model has no experts, or has routed nothing. */
bool ls_experts_load_of(const ls_model *m, ls_experts_load *out);
/* ", \"moe/chosen\": [[..], ..], \"moe/dropped\": [[..], ..]": per layer and expert. */
void ls_experts_json(const ls_model *m, ls_text *out);

#endif
