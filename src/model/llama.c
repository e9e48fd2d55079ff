/* llama.c -- Llama (Touvron et al. 2023), as in Hugging Face's LlamaForCausalLM.
 *
 *   x = embed_tokens[ids]                                           [B, T, C]
 *   L times:
 *     h = rmsnorm(x);  q, k, v = q_proj h, k_proj h, v_proj h       k, v: Hkv heads, each for H / Hkv of q
 *     x = x + o_proj(attention(rope(q), rope(k), v))
 *     h = rmsnorm(x)
 *     x = x + down_proj(silu(gate_proj h) * up_proj h)              C -> F -> C
 *   logits = head(rmsnorm(x))                                       [B, T, V]; the head is embed_tokens where tied
 *
 * No biases. Matrices are [out, in], in memory and in files.
 */
#include "model/lm.h"

static ls_status add_block(ls_model *m, int64_t l, int64_t C, int64_t kv, int64_t F)
{
    LS_TRY(ls_lm_add(m, "model.layers.%d.self_attn.q_proj.weight", l, C, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.self_attn.k_proj.weight", l, kv, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.self_attn.v_proj.weight", l, kv, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.self_attn.o_proj.weight", l, C, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.mlp.gate_proj.weight", l, F, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.mlp.up_proj.weight", l, F, C));
    LS_TRY(ls_lm_add(m, "model.layers.%d.mlp.down_proj.weight", l, C, F));
    LS_TRY(ls_lm_add(m, "model.layers.%d.input_layernorm.weight", l, C, 0));
    return ls_lm_add(m, "model.layers.%d.post_attention_layernorm.weight", l, C, 0);
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    LS_TRY(ls_lm_create(c, m));
    const ls_lm_config *s = m->state;
    const int64_t C = s->d_model, kv = C / s->n_head * s->n_kv_head;
    LS_TRY(ls_lm_add(m, "model.embed_tokens.weight", 0, s->vocab_size, C));
    for (int64_t l = 0; l < s->n_layer; l++) LS_TRY(add_block(m, l, C, kv, s->d_ff));
    LS_TRY(ls_lm_add(m, "model.norm.weight", 0, C, 0));
    return s->tied ? LS_OK : ls_lm_add(m, "lm_head.weight", 0, s->vocab_size, C);
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    static const char *const residual[] = { ".o_proj.weight", ".down_proj.weight", NULL };
    return ls_lm_init(m, c, residual);
}

extern const ls_model_class ls_model_llama; /* listed in registry.c */

const ls_model_class ls_model_llama = {
    .name = "llama", .summary = "Llama: rotary positions, RMS norm, SwiGLU, grouped queries",
    .create = create, .init = init, .input = ls_lm_input, .destroy = ls_lm_destroy,
};
