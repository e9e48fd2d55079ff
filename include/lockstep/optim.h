/* optim.h -- optimizers: one fused pass over each parameter.
 *
 * The formulas are PyTorch's, in float, element by element, so that replicas
 * with equal gradients stay bitwise equal.
 */
#ifndef LS_OPTIM_H
#define LS_OPTIM_H
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_optim ls_optim;

typedef struct ls_optim_config {
    const char *name;    /* "sgd", "adam", "adamw" */
    double lr;
    double momentum;     /* sgd; dampening 0 */
    double beta1, beta2; /* adam, adamw */
    double eps;
    double weight_decay; /* sgd, adam: added to the gradient; adamw: decoupled */
} ls_optim_config;

/* PyTorch's defaults for a name (adam: 1e-3, 0.9, 0.999, 1e-8, 0; adamw: decay
 * 0.01; sgd: lr 1e-3, momentum 0). LS_BAD_CONFIG for an unknown name. */
ls_status ls_optim_defaults(const char *name, ls_optim_config *out);

/* State (kind optim) comes from `arena`. params is borrowed.
 * LS_BAD_CONFIG: lr < 0, a beta outside [0, 1), eps < 0, momentum < 0. */
ls_status ls_optim_create(const ls_optim_config *c, ls_params *params, ls_arena *arena, ls_optim **out);
void ls_optim_destroy(ls_optim *o);
/* Bytes of state that ls_optim_create will take. */
size_t ls_optim_state_bytes(const ls_optim_config *c, const ls_params *params);
/* One update with every parameter whose gradient is ready. */
ls_status ls_optim_step(ls_optim *o);
void ls_optim_set_lr(ls_optim *o, double lr);
int64_t ls_optim_steps(const ls_optim *o); /* updates done */

#ifdef __cplusplus
}
#endif
#endif
