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
#include "model/llama.h"

#include <math.h>
#include <stddef.h>

/* --- sizes ------------------------------------------------------------------------------ */

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    LS_TRY(ls_lm_resolve(c, out));
    const ls_lm_config *s = &out->lm;
    if (s->d_model / s->n_head % 2 != 0)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld over model.n_head %lld gives heads of %lld channels: rotary "
                       "positions need an even number", (long long)s->d_model, (long long)s->n_head,
                       (long long)(s->d_model / s->n_head));
    const double p[] = { s->embd_dropout, s->attn_dropout, s->resid_dropout };
    for (int i = 0; i < 3; i++)
        if (p[i] > 0) return ls_fail(LS_UNSUPPORTED, "a dropout of %g: llama has none here; set it to 0", p[i]);
    return LS_OK;
}

/* V C + L (2 C^2 + 2 C C Hkv / H + 3 C F + 2 C) + C, and V C more where the head has a matrix of its own. */
static int64_t count(const ls_model_config *c)
{
    const int64_t V = c->lm.vocab_size, L = c->lm.n_layer, C = c->lm.d_model, F = c->lm.d_ff;
    const int64_t kv = C / c->lm.n_head * c->lm.n_kv_head;
    return V * C + L * (2 * C * C + 2 * C * kv + 3 * C * F + 2 * C) + C + (c->lm.tied ? 0 : V * C);
}

static void flops(const ls_model_config *c, ls_model_flops *out)
{
    const int64_t V = c->lm.vocab_size, C = c->lm.d_model, H = c->lm.n_head;
    *out = (ls_model_flops){ .tables = c->lm.tied ? 0 : V * C, .layers = c->lm.n_layer, .heads = H, .width = C / H };
}

#define SIZES(V, T, L, H, K, C, F, tie) \
    { .vocab_size = (V), .seq_len = (T), .n_layer = (L), .n_head = (H), .n_kv_head = (K), .d_model = (C), .d_ff = (F), \
      .norm_eps = 1e-5, .rope_theta = 10000, .tied = (tie) }

/* Sizes of small models that people train on stories; llama-1b is TinyLlama's (Zhang et al. 2024). */
static const ls_model_preset presets[] = {
    { "llama-tiny", "llama", SIZES(512, 512, 5, 8, 4, 64, 172, true) },
    { "llama-15m", "llama", SIZES(32000, 256, 6, 6, 6, 288, 768, true) },
    { "llama-110m", "llama", SIZES(32000, 1024, 12, 12, 12, 768, 2048, true) },
    { "llama-1b", "llama", SIZES(32000, 2048, 22, 32, 4, 2048, 5632, false) },
    { NULL, NULL, { 0 } },
};

/* --- parameters ----------------------------------------------------------------------------- */

enum { EMBED };
const ls_lm_param ls_llama_embedding_params[] = {
    [EMBED] = { "model.embed_tokens.weight", { LS_LM_V, LS_LM_C }, .cut = LS_LM_COLUMNS, .head = true },
};

#define MLP .mlp = true
const ls_lm_param ls_llama_block_params[] = {
    [LS_LLAMA_Q_PROJ] = { "model.layers.%d.self_attn.q_proj.weight", { LS_LM_C, LS_LM_C }, .cut = LS_LM_COLUMNS },
    [LS_LLAMA_K_PROJ] = { "model.layers.%d.self_attn.k_proj.weight", { LS_LM_KV, LS_LM_C }, .cut = LS_LM_COLUMNS },
    [LS_LLAMA_V_PROJ] = { "model.layers.%d.self_attn.v_proj.weight", { LS_LM_KV, LS_LM_C }, .cut = LS_LM_COLUMNS },
    [LS_LLAMA_O_PROJ] = { "model.layers.%d.self_attn.o_proj.weight", { LS_LM_C, LS_LM_C }, .init = LS_LM_RESIDUAL, .cut = LS_LM_ROWS },
    [LS_LLAMA_GATE_PROJ] = { "model.layers.%d.mlp.gate_proj.weight", { LS_LM_F, LS_LM_C }, .cut = LS_LM_COLUMNS, MLP },
    [LS_LLAMA_UP_PROJ] = { "model.layers.%d.mlp.up_proj.weight", { LS_LM_F, LS_LM_C }, .cut = LS_LM_COLUMNS, MLP },
    [LS_LLAMA_DOWN_PROJ] = { "model.layers.%d.mlp.down_proj.weight", { LS_LM_C, LS_LM_F }, .init = LS_LM_RESIDUAL,
                             .cut = LS_LM_ROWS, MLP },
    [LS_LLAMA_INPUT_NORM] = { "model.layers.%d.input_layernorm.weight", { LS_LM_C }, .init = LS_LM_ONE },
    [LS_LLAMA_POST_NORM] = { "model.layers.%d.post_attention_layernorm.weight", { LS_LM_C }, .init = LS_LM_ONE, MLP },
};

enum { NORM, HEAD };
const ls_lm_param ls_llama_head_params[] = {
    [NORM] = { "model.norm.weight", { LS_LM_C }, .init = LS_LM_ONE },
    [HEAD] = { "lm_head.weight", { LS_LM_V, LS_LM_C }, .cut = LS_LM_COLUMNS, .head = true },
};

/* --- forward ------------------------------------------------------------------------------------ */

#define P(position) (&ls_unit_param(u, pass, position)->t)
#define BIAS(i) (biases > 0 ? P(biases + (i)) : NULL)

ls_tensor *ls_llama_embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass)
{
    return ls_lm_embedding(u, t, ids, P(EMBED), pass);
}

/* x w^T + b as heads: [B, T, C] -> [B, T, heads, D]. */
static ls_tensor *heads(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, int64_t n, int64_t D)
{
    ls_tensor *y = ls_linear(t, x, w, b);
    return y ? ls_reshape(t, y, 4, (int64_t[]){ y->dim[0], y->dim[1], n, D }) : NULL;
}

ls_tensor *ls_llama_attention(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass, int biases)
{
    const ls_lm_config *c = ls_lm_sizes(u);
    const int64_t D = c->d_model / c->n_head;
    const float scale = (float)(1.0 / sqrt((double)D));
    const int64_t Hq = ls_lm_heads(pass, c->n_head), Hkv = ls_lm_heads(pass, c->n_kv_head);
    ls_tensor *h = ls_tp_enter(t, ls_rmsnorm(t, x, P(LS_LLAMA_INPUT_NORM), (float)c->norm_eps), pass->place);
    ls_tensor *q = ls_lm_rope(t, heads(t, h, P(LS_LLAMA_Q_PROJ), BIAS(0), Hq, D), c->rope_theta, pass);
    ls_tensor *k = ls_lm_rope(t, heads(t, h, P(LS_LLAMA_K_PROJ), BIAS(1), Hkv, D), c->rope_theta, pass);
    ls_tensor *v = heads(t, h, P(LS_LLAMA_V_PROJ), BIAS(2), Hkv, D);
    ls_tensor *y = pass->kv ? ls_attention_cached(t, q, k, v, scale, pass->kv, u->number)
                            : ls_cp_attention(t, q, k, v, scale, pass->at.causal, NULL, pass->place);
    if (y) y = ls_reshape(t, y, 3, (int64_t[]){ y->dim[0], y->dim[1], Hq * D });
    return ls_tp_rows(t, y, P(LS_LLAMA_O_PROJ), NULL, pass->place);
}

static ls_tensor *mlp(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const float eps = (float)ls_lm_sizes(u)->norm_eps;
    ls_tensor *h = ls_tp_enter(t, ls_rmsnorm(t, x, P(LS_LLAMA_POST_NORM), eps), pass->place);
    ls_tensor *gate = ls_linear(t, h, P(LS_LLAMA_GATE_PROJ), NULL);
    ls_tensor *up = ls_linear(t, h, P(LS_LLAMA_UP_PROJ), NULL);
    return ls_tp_rows(t, ls_swiglu(t, gate, up), P(LS_LLAMA_DOWN_PROJ), NULL, pass->place);
}

ls_tensor *ls_llama_first(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_add(t, x, ls_llama_attention(u, t, x, pass, 0));
}

ls_tensor *ls_llama_second(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_add(t, x, mlp(u, t, x, pass));
}

ls_tensor *ls_llama_block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_llama_second(u, t, ls_llama_first(u, t, x, pass), pass);
}

ls_tensor *ls_llama_head(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    x = ls_rmsnorm(t, x, P(NORM), (float)ls_lm_sizes(u)->norm_eps);
    return ls_lm_output(u, t, x, P(HEAD), pass);
}

/* --- Hugging Face's config.json -------------------------------------------------------------------- */

#define AT(member) offsetof(ls_lm_config, member)

static const ls_hf_key config_json[] = {
    { "vocab_size", LS_HF_SIZE, AT(vocab_size), NULL, NULL },
    { "max_position_embeddings", LS_HF_SIZE, AT(seq_len), "2048", NULL },
    { "hidden_size", LS_HF_SIZE, AT(d_model), NULL, NULL },
    { "intermediate_size", LS_HF_SIZE, AT(d_ff), NULL, NULL },
    { "num_hidden_layers", LS_HF_SIZE, AT(n_layer), NULL, NULL },
    { "num_attention_heads", LS_HF_SIZE, AT(n_head), NULL, NULL },
    { "num_key_value_heads", LS_HF_SIZE, AT(n_kv_head), "0", NULL }, /* 0, null: as many as the others */
    { "rms_norm_eps", LS_HF_REAL, AT(norm_eps), "1e-6", NULL },
    { "rope_theta", LS_HF_REAL, AT(rope_theta), "10000.0", NULL },
    { "attention_dropout", LS_HF_ONLY, 0, "0.0", "0" },
    { "tie_word_embeddings", LS_HF_FLAG, AT(tied), "false", NULL },
    { "hidden_act", LS_HF_ONLY, 0, "\"silu\"", "\"swish\"" },
    { "attention_bias", LS_HF_ONLY, 0, "false", NULL },
    { "mlp_bias", LS_HF_ONLY, 0, "false", NULL },
    { "partial_rotary_factor", LS_HF_CHECK, 0, "1.0", "1" },
    { 0 },
};

/* --- all together -------------------------------------------------------------------------------------- */

static const ls_lm_class lm = {
    .embedding = LS_LLAMA_EMBEDDING_UNIT,
    .block = LS_LLAMA_BLOCK_UNIT,
    .head = LS_LLAMA_HEAD_UNIT,
    .architecture = "LlamaForCausalLM",
    .prefix = "model.",
    .keys = config_json,
    .buffers = (const char *const[]){ ".rotary_emb.inv_freq", NULL },
    .rotary = true,
};

const ls_model_class ls_model_llama = {
    .name = "llama", .summary = "Llama: rotary positions, RMS norm, SwiGLU, grouped queries",
    .keys = (const char *const[]){ LS_LM_KEYS, "model.n_kv_head", "model.rope_theta", NULL },
    .presets = presets, .lm = &lm, .resolve = resolve, .count = count, .flops = flops,
    .create = ls_lm_create, .init = ls_lm_init_values, .input = ls_lm_input,
};
