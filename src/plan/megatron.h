/* megatron.h -- bytes that PyTorch's allocator counts on the last rank of a run of Megatron-LM, from its flags. */
#ifndef LS_PLAN_MEGATRON_H
#define LS_PLAN_MEGATRON_H
#include "plan/cost.h"
#include "plan/row.h"

typedef struct ls_megatron_memory {
    double states;      /* parameters, gradients and the optimizer's state */
    double workspaces;  /* of cuBLAS and Transformer Engine */
    double between;     /* what else stays between steps: the mask, tensors of the last messages, buffers */
    double kept;        /* activations of the micro-batches in flight while the last stage computes the loss */
    double logits;      /* in 16 and in 32 bits */
    double freed;       /* of the states: not allocated before the end of backward */
} ls_megatron_memory;

/* The row's note lists flags of Megatron-LM; `o` is the row's run. Between steps the first three are allocated, and at
 * the peak all of them except `freed`. */
void ls_megatron_memory_of(const ls_row *r, const ls_run *o, ls_megatron_memory *out);

/* Decoder layers per stage that a `--pipeline-model-parallel-layout` names, such as "Et*3|(tt|)*6tmL": letters are the
 * embedding E, decoder layers t, layers of multi-token prediction m and the loss L, `|` ends a stage, and `*3` repeats
 * the letter or group before it. Returns the number of stages; 0: it is no layout, or has more than `most` stages. */
int ls_megatron_layout(const char *text, double *layers, int most);

#endif
