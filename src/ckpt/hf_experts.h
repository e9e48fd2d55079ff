/* hf_experts.h -- experts in Hugging Face's files: a tensor for each, where a model has one parameter of all of them.
 *
 *   here      model.layers.0.block_sparse_moe.experts.w1.weight     [E F, C], one expert below another
 *   in files  model.layers.0.block_sparse_moe.experts.0.w1.weight   [F, C], and so on to E - 1; w2 (down_proj) is [C,
 * F]
 */
#ifndef LS_CKPT_HF_EXPERTS_H
#define LS_CKPT_HF_EXPERTS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/model.h"

#define LS_HF_NAME_BYTES (LS_NAME_BYTES + 8)

/* Tensors that the parameter of this name is in files: the number of experts, or 1. A configuration of zeros is that of
 * a model without experts. */
int64_t ls_hf_tensors(const ls_lm_config *c, const char *name);
/* The name of its tensor of expert e; a parameter that is one tensor keeps its name. */
const char *ls_hf_tensor_name(const char *name, int64_t e, char out[LS_HF_NAME_BYTES]);
/* The parameter that a tensor of a file belongs to: the name without the number of an expert. */
const char *ls_hf_param_name(const char *tensor, char out[LS_HF_NAME_BYTES]);
/* Whether files have the experts' matrices of this parameter transposed. */
bool ls_hf_expert_transposed(const char *name);
/* The number of the expert in a tensor's name; -1: it is not one of an expert's own. */
int64_t ls_hf_expert_of(const char *tensor);

/* What is here of a parameter of E experts: rows [first, first + rows) of the matrices [F, C] of experts
 * [begin, end). */
typedef struct ls_hf_experts {
    int64_t begin, end, F, C, first, rows;
} ls_hf_experts;
ls_hf_experts ls_hf_experts_of(const ls_param *p, int64_t E);

#endif
