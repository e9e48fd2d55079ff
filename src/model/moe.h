/* moe.h -- what the rest of a run asks a model with experts: what was routed, and how a balancing bias moves. */
#ifndef LS_MODEL_MOE_H
#define LS_MODEL_MOE_H
#include "lockstep/model.h"

extern const ls_model_class ls_model_moe; /* listed in registry.c */

/* Numbers that a model counts of what it has routed in training, since they were last cleared; 0: it has no experts. */
int ls_moe_words(const ls_model *m);
/* [ls_moe_words], to be summed over the ranks with different samples; who clears them writes zeros. */
double *ls_moe_counts(const ls_model *m);
/* Of them those of a layer: chosen[E], dropped[E], then ls_moe_stats.sums. */
const double *ls_moe_layer_words(const ls_model *m, const double *words, int layer);
/* Where a layer's routing is counted. */
ls_moe_stats *ls_moe_layer_stats(const ls_model *m, int layer);
/* After an optimizer's step, with the counts of all ranks: the bias of each expert grows by moe.bias_rate if the expert
 * was chosen less often than the mean, and falls if it was chosen more often. Nothing happens where there is none. */
void ls_moe_balance(ls_model *m, const double *words);

#endif
