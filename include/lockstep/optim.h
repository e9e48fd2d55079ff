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
typedef struct ls_optim_class ls_optim_class;

typedef struct ls_optim_config {
    const char *name;    /* of a class: "sgd", "adam" ... */
    double lr;
    double momentum;     /* sgd; dampening 0 */
    double beta1, beta2; /* adam, adamw */
    double eps;
    double weight_decay; /* sgd, adam: added to the gradient; adamw: decoupled */
    const ls_optim_class *cls; /* borrowed: an optimizer that a program brings; NULL: the library's of that name */
    const void *arg;     /* borrowed: settings of its own; NULL: none */
} ls_optim_config;

/* --- kinds of optimizers ---------------------------------------------------------- */

#define LS_OPTIM_STATES 4

/* An update of some elements of one parameter: those that a rank owns, or a piece of them. Threads update pieces at the
 * same time, so element i of every array is made from elements i alone. */
typedef struct ls_update {
    int64_t n;           /* elements. Creating an optimizer tries one of no parameter, to see which state it uses */
    float *p;            /* values, read and written */
    const float *g;      /* gradients, */
    float grad_scale;    /* to be multiplied by this first (ls_optim_step_scaled) */
    uint16_t *bf16;      /* gets p, rounded (ls_f32_to_bf16); NULL: there is no copy */
    double lr, weight_decay; /* of the parameter's group; decay 0 where it has none */
    int64_t step;        /* updates of this parameter, from 1 */
    int64_t first;       /* the place of element 0 among those that this rank owns of the parameter */
    uint32_t *hash;      /* for classes with `hashes`: gets what ls_update_hash says, added. NULL: not wanted */
    float *state[LS_OPTIM_STATES]; /* by ls_update_state */
    unsigned *asked;     /* the library's */
} ls_update;

/* State number i of the elements, 0 before the first update; NULL: the settings do without it (ls_optim_class.uses). */
static inline float *ls_update_state(const ls_update *u, int i)
{
    if (u->asked) *u->asked |= 1u << (i >= 0 && i < 31 ? i : 31);
    return i >= 0 && i < LS_OPTIM_STATES ? u->state[i] : NULL;
}

/* What the new value x of element i adds to *u->hash, modulo 2^32: its bits times an odd number of its own, so that a
 * sum is the same however elements are divided into pieces, and another one if any single value differs. */
static inline uint32_t ls_update_hash(const ls_update *u, int64_t i, float x)
{
    union { float x; uint32_t bits; } as = { x };
    return as.bits * (2u * (uint32_t)u->first + 2u * (uint32_t)i + 1u);
}

/* A kind of optimizer: one file, one of these, and for the library's own one line in ls_optim_classes. */
struct ls_optim_class {
    const char *name;
    ls_optim_config defaults;
    int nstates;         /* arrays of floats per parameter, at most LS_OPTIM_STATES, */
    const char *state_name[LS_OPTIM_STATES]; /* and what files call them: "exp_avg"; NULL after the last */
    /* How many of them these settings need; NULL: all. */
    int (*uses)(const ls_optim_config *c);
    /* The configuration's keys that set what is its own, as "optim.eps"; NULL-ended; NULL: none. */
    const char *const *keys;
    /* LS_BAD_CONFIG for settings out of range, lr and weight_decay apart, which are checked for all; NULL: no rule. */
    ls_status (*check)(const ls_optim_config *c);
    bool hashes;         /* update hashes what it writes, if that is wanted (ls_update.hash); false: the library reads
                            the values once more for it */
    void (*update)(const ls_optim_config *c, const ls_update *u);
    /* Operations per element of an update with this decay: an addition, a multiplication, a division or a square root
     * is one. NULL: not known, and counted as none (lockstep explain roofline). */
    int (*flops)(const ls_optim_config *c, double weight_decay);
};
extern const ls_optim_class *const ls_optim_classes[]; /* the library's, NULL-ended */
extern const char ls_optim_choices[];                   /* their names: "sgd|adam|adamw" */
const ls_optim_class *ls_optim_class_find(const char *name); /* of the library; NULL: none is named so */
/* Whether one of this class reads a key of the configuration: yes, unless the key is of other classes alone. */
bool ls_optim_reads(const ls_optim_class *cls, const char *key);
/* "adam and adamw": those that read the key (NULL: all), in buf. */
const char *ls_optim_names(const char *key, char *buf, size_t n);

/* --- an optimizer -------------------------------------------------------------------- */

/* Parameters with a rate and a decay of their own, as torch.optim's param_groups have. Those in no group have the
 * configuration's (in PyTorch they would not be trained). */
typedef struct ls_optim_group {
    const char *const *param; /* names; NULL-ended, borrowed until ls_optim_create_groups returns */
    double lr, weight_decay;  /* the decay is for all of them, ls_param.no_decay or not */
} ls_optim_group;

/* Operations that the optimizer's next update takes for the elements that this rank updates (ls_optim_class.flops). */
double ls_optim_flops(const ls_optim *o);

/* PyTorch's defaults for a name (adam: 1e-3, 0.9, 0.999, 1e-8, 0; adamw: decay
 * 0.01; sgd: lr 1e-3, momentum 0). LS_BAD_CONFIG for an unknown name. */
ls_status ls_optim_defaults(const char *name, ls_optim_config *out);

/* State (kind optim) comes from `arena`. params is borrowed.
 * LS_BAD_CONFIG: lr < 0, a beta outside [0, 1), eps < 0, momentum < 0; a class that asks for more state than it
 * declares, or writes past the end of an array: its update is tried out with one element. */
ls_status ls_optim_create(const ls_optim_config *c, ls_params *params, ls_arena *arena, ls_optim **out);
/* The same with groups. LS_BAD_CONFIG names a parameter that is not there, or is in two of them. */
ls_status ls_optim_create_groups(const ls_optim_config *c, ls_params *params, const ls_optim_group *group, int ngroups,
                                 ls_arena *arena, ls_optim **out);
void ls_optim_destroy(ls_optim *o);
/* State by name, of the elements that this rank owns of a parameter: [p->own.count], which a program may read and write
 * between steps. NULL: there is no such parameter, or state. */
float *ls_optim_state(const ls_optim *o, const char *param, const char *state);
/* Updates of one parameter so far; -1: there is no such parameter. */
int64_t ls_optim_steps_of(const ls_optim *o, const char *param);
/* One update with every parameter whose gradient is ready; it is not ready any more
 * then: the next backward writes it. The configuration's decay is not for parameters with no_decay. A copy in
 * bf16 (ls_params_bind_bf16) gets the new values in the same pass. The elements that this rank owns (ls_param.own)
 * are updated, and only they have state. LS_INVALID, and no weight is touched, when a parameter that DDP wraps on more
 * than one rank has a gradient that was not averaged over the ranks since it was last written (ls_ddp_create says
 * when): the message names the parameter, the rank and the step. Without DDP whoever averages gradients sets
 * t.grad_reduced. */
ls_status ls_optim_step(ls_optim *o);
/* The same with every gradient times grad_scale, inside the pass: ls_clip_scale, 1 / a loss
 * scale, or their product. LS_INVALID, and no weight is touched, unless it is finite and >= 0. */
ls_status ls_optim_step_scaled(ls_optim *o, double grad_scale);
/* The rate of parameters in no group. */
void ls_optim_set_lr(ls_optim *o, double lr);
/* The rate of a group, by its place among those that were given. LS_INVALID: there is none, or the rate is not finite
 * and >= 0. */
ls_status ls_optim_set_group_lr(ls_optim *o, int group, double lr);
int64_t ls_optim_steps(const ls_optim *o); /* updates done */
int ls_optim_nstates(const ls_optim *o);   /* floats of state per element, with these settings, */
const char *ls_optim_state_name(const ls_optim *o, int i); /* and the name of one of them; static */
/* To go on where another optimizer stopped: updates of a parameter so far (param NULL: of the optimizer, which
 * ls_optim_steps gives). LS_INVALID: there is no such parameter, or steps is negative. */
ls_status ls_optim_set_steps(ls_optim *o, const char *param, int64_t steps);

/* --- are replicas the same? ---------------------------------------------------------- */

/* From the next update on, the optimizer hashes the values that it writes, while they are in the cache. */
ls_status ls_optim_hash_values(ls_optim *o);
/* One number for the values that the updates so far have written; 0 without ls_optim_hash_values. Two ranks that
 * own the same elements and have other values have the same number with probability 2^-32. It fits a double. */
uint64_t ls_optim_hash(const ls_optim *o);
/* The same of some parameters, a view of the optimizer's (ls_params.before says where it begins). */
uint64_t ls_optim_hash_some(const ls_optim *o, const ls_params *some);
/* Every rank of g calls it, with the same `shards`: ranks of g whose numbers are equal modulo `shards` own the same
 * elements; 1: all ranks do. LS_DIVERGED unless ranks with the same elements have the same hash of every parameter: it
 * names the parameters that differ, and the ranks whose hash most of these ranks do not have; if there is no majority
 * it also names a rank that these differ from. *culprit (may be NULL) is the first rank named. `since` (may be NULL):
 * words for the message on when the difference began. LS_INVALID: `shards` is below 1 or does not divide g's size. */
ls_status ls_optim_compare(const ls_optim *o, ls_group *g, int shards, const char *since, int *culprit);
/* The same of some parameters, as above: experts that ranks divide have fewer replicas than the others. */
ls_status ls_optim_compare_some(const ls_optim *o, const ls_params *some, ls_group *g, int shards, const char *since,
                                int *culprit);

/* --- clipping --------------------------------------------------------------- */

/* Euclidean norm of all gradients that are ready, in double, parameter by parameter in
 * their order. LS_NAN when it is not finite: *norm is what was found, *culprit (may be NULL)
 * the first parameter whose gradient is not finite. */
ls_status ls_grad_norm(const ls_params *ps, double *norm, const ls_param **culprit);
/* The same in every layout: all ranks of `g`, the world, call it after DDP's backward, each adds up the elements that
 * it alone keeps (ls_param.keeps), and the sums are all_reduced. Where every rank has all gradients it has the bits of
 * ls_grad_norm. Of sharded ones (zero_stage 1), which ls_grad_norm refuses, sums are cut elsewhere: equal up to
 * rounding in double. LS_INVALID names a parameter that no strategy (ls_ddp_create) has taken on. In a dry world the
 * all_reduce is recorded, and the norm is 0. */
ls_status ls_grad_norm_shared(ls_group *g, const ls_params *ps, double *norm, const ls_param **culprit);
/* The same with the same bits in every layout: rows of parameters are summed in double, each by the rank that keeps it,
 * and sums of rows are added without rounding (elements, where a row has fewer than 16). So the norm is off by a row's
 * rounding at most: a relative (row / 8 + 4) 2^-53. Where it is not finite, *norm is NaN. Costs an all_reduce of 552
 * bytes, and another of 8 bytes where it is not finite. */
ls_status ls_grad_norm_exact(ls_group *g, const ls_params *ps, double *norm, const ls_param **culprit);
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
/* What a rate is multiplied with when `ranks` ranks train together, each on a batch as large as that of one: "none": 1;
 * "linear": ranks (Goyal et al. 2017, with warm-up); "sqrt": the square root of ranks (Krizhevsky 2014).
 * LS_BAD_CONFIG: another word; LS_INVALID: ranks below 1. */
ls_status ls_lr_scale(const char *how, int ranks, double *out);
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
 * scale. False: it is not finite, this step must not be taken: ls_params_zero_grad drops its gradients. */
bool ls_grad_scaler_update(ls_grad_scaler *s, double grad_norm);

#ifdef __cplusplus
}
#endif
#endif
