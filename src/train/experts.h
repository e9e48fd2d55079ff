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
    double busy, mean; /* ns of the step before in which the busiest rank waited for no other, and the mean rank, */
    int rank;          /* and which rank that is; mean 0: it is not known, or there is one rank */
} ls_experts_load;
/* busy_ns [ranks]: of the step before. False: the model has no experts, or has routed nothing. */
bool ls_experts_load_of(const ls_model *m, const double *busy_ns, int ranks, ls_experts_load *out);
/* Two lines for the log: the load as a sentence, and the tokens and drops of each expert of the layer with the largest
 * load; of more than LS_EXPERTS_SHOWN experts, of the most chosen ones. */
#define LS_EXPERTS_SHOWN 16
void ls_experts_words(const ls_model *m, const ls_experts_load *l, ls_text *out);
/* ", \"moe/chosen\": [[..], ..], \"moe/dropped\": [[..], ..], \"moe/busy_ms\": [..]": per layer and expert, and per rank. */
void ls_experts_json(const ls_model *m, const double *busy_ns, int ranks, ls_text *out);

#endif
