/* lm.h -- what the language models of this floor share. */
#ifndef LS_MODEL_LM_H
#define LS_MODEL_LM_H
#include "lockstep/model.h"

/* Resolves c->lm for c->name into m->state, an ls_lm_config. */
ls_status ls_lm_create(const ls_model_config *c, ls_model *m);
void ls_lm_destroy(ls_model *m);
/* ls_model_class.input: ids and labels, both [batch, tokens]; tokens 0: seq_len. */
void ls_lm_input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in);

/* Registers the parameter `name`, [d0, d1], or [d0] where d1 is 0. A "%d" in the name becomes the layer. */
ls_status ls_lm_add(ls_model *m, const char *name, int64_t layer, int64_t d0, int64_t d1);

/* Every parameter's first values: matrices normal with standard deviation 0.02; those whose
 * names end in one of `residual` (NULL-ended) divided by sqrt(2 L), because 2 L of them add up
 * in the residual stream (Radford et al. 2019); biases 0 and the norms' weights 1. Philox,
 * keyed by (seed, index of the parameter) and element. LS_UNSUPPORTED for LS_INIT_TORCH. */
ls_status ls_lm_init(ls_model *m, const ls_model_config *c, const char *const *residual);

/* --- pieces of forward ------------------------------------------------------------------ */

/* ids, unless they are not I64 [B, T], or T and what kv (may be NULL) has is more than seq_len: LS_SHAPE. */
ls_tensor *ls_lm_ids(const ls_model *m, ls_tape *t, ls_tensor *ids, const ls_kv *kv);
/* Rows [first, ..) of w, a matrix, as a leaf without gradient: the learned positions from there on. */
ls_tensor *ls_lm_rows_from(ls_tape *t, ls_tensor *w, int64_t first);
/* Dropout with probability p at place `site` of the formula, by `draw` and the element's index in
 * the whole step; x itself where no gradient is recorded. */
ls_tensor *ls_lm_dropout(const ls_draw *draw, ls_tape *t, ls_tensor *x, double p, int64_t site);
/* The same for the probabilities of an attention of `heads` heads over T tokens; p = 0 where no gradient is
 * recorded. */
ls_attention_dropout ls_lm_attention_dropout(const ls_draw *draw, const ls_tape *t, double p, int64_t site,
                                             int64_t heads, int64_t T);
/* What one block of the stack is made from: the arg of ls_block. */
typedef struct ls_lm_block {
    const ls_lm_config *c;
    ls_param *w;   /* the block's first parameter */
    int64_t layer;
    ls_kv *kv;     /* where the keys and values of this and of what came before are; NULL: of this alone, not kept */
    ls_draw draw;  /* as it was in forward */
} ls_lm_block;
/* logits [B, T, V] = h head^T, of the last norm's h [B, T, C]. The embedding is parameter 0, a head of
 * its own the last. */
ls_tensor *ls_lm_logits(ls_model *m, ls_tape *t, ls_tensor *h);
/* The logits after the last token of each sequence alone, [B, V]: without gradient. */
ls_tensor *ls_lm_last_logits(ls_model *m, ls_tape *t, ls_tensor *h);
/* ls_model_class.loss from the same h. */
ls_tensor *ls_lm_loss(ls_model *m, ls_tape *t, ls_tensor *h, ls_tensor *labels, ls_loss_sums *sums);

#endif
