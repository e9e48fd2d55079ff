/* optim.h -- optimizers, one fused pass over each parameter; clipping, learning
 * rates, loss scaling.
 *
 * The formulas are PyTorch's, in float, element by element, so that replicas
 * with equal gradients stay bitwise equal. A step of training:
 *
 *     LS_TRY(ls_grad_norm(params, &norm, NULL));
 *     ls_optim_set_lr(optim, ls_lr_at(&lr, ls_optim_steps(optim)));
 *     LS_TRY(ls_optim_step_scaled(optim, ls_clip_scale(norm, 1.0)));
 */
#ifndef LS_OPTIM_H
#define LS_OPTIM_H
#include "lockstep/group.h"
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
/* One update with every parameter whose gradient is ready; it is not ready any more
 * then: the next backward writes it. Decay is not for parameters with no_decay. A copy
 * in bf16 (ls_params_bind_bf16) gets the new values in the same pass. Of a sharded parameter only this rank's part is
 * updated, and only that has state. LS_INVALID, and no weight is touched, when a parameter that DDP wraps on more than
 * one rank has a gradient that was not averaged over the ranks since it was last written (ls_ddp_create says when): the
 * message names the parameter, the rank and the step. Who averages gradients without DDP sets t.grad_reduced. */
ls_status ls_optim_step(ls_optim *o);
/* The same with every gradient times grad_scale, inside the pass: ls_clip_scale, 1 / a loss
 * scale, or their product. LS_INVALID, and no weight is touched, unless it is finite and >= 0. */
ls_status ls_optim_step_scaled(ls_optim *o, double grad_scale);
void ls_optim_set_lr(ls_optim *o, double lr);
int64_t ls_optim_steps(const ls_optim *o); /* updates done */

/* --- clipping --------------------------------------------------------------- */

/* Euclidean norm of all gradients that are ready, in double, parameter by parameter in
 * their order. LS_NAN when it is not finite: *norm is what was found, *culprit (may be NULL)
 * the first parameter whose gradient is not finite. */
ls_status ls_grad_norm(const ls_params *ps, double *norm, const ls_param **culprit);
/* The same where all ranks of `g` call it after DDP's backward: each adds up its part of the gradients. To the bit
 * where all have the same; of sharded ones (zero_stage 1), which ls_grad_norm refuses, the sums are cut elsewhere, so
 * to rounding in double. */
ls_status ls_grad_norm_shared(ls_group *g, const ls_params *ps, double *norm, const ls_param **culprit);
/* What gradients are multiplied by so that their norm is at most max_norm: as torch's
 * clip_grad_norm_, min(1, max_norm / (norm + 1e-6)). max_norm 0: 1, no clipping. */
double ls_clip_scale(double norm, double max_norm);

/* --- learning rates ---------------------------------------------------------- */

typedef enum ls_lr_kind { LS_LR_CONSTANT, LS_LR_LINEAR, LS_LR_COSINE, LS_LR_WSD } ls_lr_kind;

/* A schedule: the rate as a function of the step s alone.
 *
 *   s < warmup   peak (s + 1) / warmup                          linear warm-up: never 0
 *   then, with   x = (s - warmup) / (steps - warmup) in [0, 1], low = min_ratio peak
 *   constant     peak
 *   linear       peak + x (low - peak)
 *   cosine       low + (1 + cos(pi x)) / 2 (peak - low)         Loshchilov and Hutter 2017
 *   wsd          peak, and in the last `decay` steps linearly   Hu et al. 2024, MiniCPM
 *                  to low, as linear does over the whole
 *
 * s counts the updates done before, as torch's LambdaLR does: 0 in the first step. At s = steps and beyond it
 * is low. */
typedef struct ls_lr {
    ls_lr_kind kind;
    double peak;      /* the largest rate */
    double min_ratio; /* the rate at the end, as a fraction of peak; not for constant */
    int64_t warmup;   /* steps of linear warm-up */
    int64_t steps;    /* of the whole run, warm-up included */
    int64_t decay;    /* wsd: steps of the decay at the end */
} ls_lr;

/* "constant", "linear", "cosine", "wsd"; LS_BAD_CONFIG otherwise. */
ls_status ls_lr_find(const char *name, ls_lr_kind *out);
/* The rate of the update that has `step` updates before it: 0 is the first. Depends on nothing else. */
double ls_lr_at(const ls_lr *c, int64_t step);

/* --- loss scaling for f16 ------------------------------------------------------ */

/* torch.cuda.amp.GradScaler's state: plain data, to be saved as it is. The loss is multiplied by
 * `scale` before backward, gradients by 1 / scale in ls_optim_step_scaled. */
typedef struct ls_grad_scaler {
    float scale;
    double growth, backoff;
    int64_t interval; /* clean steps until the scale grows */
    int64_t clean;    /* of them done */
} ls_grad_scaler;

/* 65536, growth 2, backoff 0.5, interval 2000: torch's defaults. */
void ls_grad_scaler_init(ls_grad_scaler *s);
/* LS_BAD_FILE for what is out of range; *s stays as it is. */
ls_status ls_grad_scaler_restore(ls_grad_scaler *s, const ls_grad_scaler *saved);
/* After a backward whose gradients have this norm (ls_grad_norm; the same on every rank): adapts the
 * scale. False: it is not finite, this step must not be taken. */
bool ls_grad_scaler_update(ls_grad_scaler *s, double grad_norm);

#ifdef __cplusplus
}
#endif
#endif
