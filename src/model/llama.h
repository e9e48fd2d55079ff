/* llama.h -- pieces of Llama that other models are made of, too. */
#ifndef LS_MODEL_LLAMA_H
#define LS_MODEL_LLAMA_H
#include "model/lm.h"

/* Positions in a block's table. Another block may have other matrices at GATE_PROJ to DOWN_PROJ, and more after them.
 */
enum {
    LS_LLAMA_Q_PROJ,
    LS_LLAMA_K_PROJ,
    LS_LLAMA_V_PROJ,
    LS_LLAMA_O_PROJ,
    LS_LLAMA_GATE_PROJ,
    LS_LLAMA_UP_PROJ,
    LS_LLAMA_DOWN_PROJ,
    LS_LLAMA_INPUT_NORM,
    LS_LLAMA_POST_NORM,
    LS_LLAMA_BLOCK,
};

extern const ls_lm_param ls_llama_embedding_params[], ls_llama_block_params[], ls_llama_head_params[];
/* ids [B, T] -> [B, T, C]. */
ls_tensor *ls_llama_embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass);
/* x [B, T, C] -> the same shape: a layer, its attention with the residual, its mlp with the residual. */
ls_tensor *ls_llama_block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass);
ls_tensor *ls_llama_first(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass);
ls_tensor *ls_llama_second(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass);
/* x [B, T, C] -> logits or loss. */
ls_tensor *ls_llama_head(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass);
#define LS_LLAMA_EMBEDDING_UNIT                                                     \
    {                                                                               \
        .param = ls_llama_embedding_params, .cls = { ls_llama_embedding, 1, false } \
    }
#define LS_LLAMA_BLOCK_UNIT \
    LS_LM_LAYER(ls_llama_block_params, LS_LLAMA_BLOCK, ls_llama_block, ls_llama_first, ls_llama_second)
#define LS_LLAMA_HEAD_UNIT                                                \
    {                                                                     \
        .param = ls_llama_head_params, .cls = { ls_llama_head, 2, false } \
    }

extern const ls_model_class ls_model_llama; /* listed in registry.c */

/* x [B, T, C]: what a block's first half adds to it. The biases of queries, keys and values are at `biases` and after;
 * 0: there are none. */
ls_tensor *ls_llama_attention(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass, int biases);

#endif
