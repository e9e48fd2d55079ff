/* logits.h -- how many of its logits a language model's head stores at a time: for op_linear_cross_entropy.c, which
 * computes them, and for plans of memory.
 */
#ifndef LS_TENSOR_LOGITS_H
#define LS_TENSOR_LOGITS_H
#include <stdint.h>

#define LS_LOGITS_BYTES ((int64_t)64 << 20) /* of f32, at most; as many may be kept from forward until backward */
#define LS_LOGITS_BLOCK 4096                /* of the vocabulary */
#define LS_LOGITS_EVAL_ROWS 256             /* without gradients; with a block 4 MiB */

#endif
