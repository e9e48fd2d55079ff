/* gpt2.c -- GPT-2 (Radford et al. 2019), as in Hugging Face's GPT2LMHeadModel.
 *
 *   x = wte[ids] + wpe[0 .. T-1]                                    [B, T, C]
 *   L times:
 *     x = x + c_proj(attention(c_attn(ln_1(x))))                    c_attn: C -> 3C, queries, keys, values
 *     x = x + c_proj(gelu(c_fc(ln_2(x))))                           c_fc: C -> F
 *   logits = head(ln_f(x))                                          [B, T, V]; the head is wte where tied
 *
 * Matrices are [out, in] in memory. The files have those of attn and mlp the other way round
 * (a "Conv1D"); reading and writing them transposes them.
 */
#include "model/lm.h"

#include <math.h>
#include <stddef.h>

/* --- sizes ------------------------------------------------------------------------------ */

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    LS_TRY(ls_lm_resolve(c, out));
    if (out->lm.n_kv_head == out->lm.n_head) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "model.n_kv_head is %lld: gpt2 has as many heads for keys and values as for queries, %lld",
                   (long long)out->lm.n_kv_head, (long long)out->lm.n_head);
}

/* V C + T C + L (12 C^2 + 13 C, or with d_ff = F: 4 C^2 + 2 C F + 9 C + F) + 2 C, and V C more where the head has a
 * matrix of its own. */
static int64_t count(const ls_model_config *c)
{
    const int64_t V = c->lm.vocab_size, T = c->lm.seq_len, L = c->lm.n_layer, C = c->lm.d_model, F = c->lm.d_ff;
    return V * C + T * C + L * (4 * C * C + 2 * C * F + 9 * C + F) + 2 * C + (c->lm.tied ? 0 : V * C);
}

static void flops(const ls_model_config *c, ls_model_flops *out)
{
    const int64_t V = c->lm.vocab_size, T = c->lm.seq_len, C = c->lm.d_model, H = c->lm.n_head;
    const int64_t tables = T * C + (c->lm.tied ? 0 : V * C);
    *out = (ls_model_flops){ .tables = tables, .layers = c->lm.n_layer, .heads = H, .width = C / H };
}

#define SIZES(L, H, C) { .vocab_size = 50257, .seq_len = 1024, .n_layer = (L), .n_head = (H), .n_kv_head = (H), \
                         .d_model = (C), .d_ff = 4 * (C), .norm_eps = 1e-5, .rope_theta = 10000, .tied = true }

/* OpenAI's four (Radford et al. 2019), and one that trains in minutes. */
static const ls_model_preset presets[] = {
    { "gpt2-1m", "gpt2",
      { .vocab_size = 1024, .seq_len = 256, .n_layer = 4, .n_head = 4, .n_kv_head = 4, .d_model = 128, .d_ff = 512,
        .norm_eps = 1e-5, .rope_theta = 10000, .tied = true } },
    { "gpt2", "gpt2", SIZES(12, 12, 768) },
    { "gpt2-medium", "gpt2", SIZES(24, 16, 1024) },
    { "gpt2-large", "gpt2", SIZES(36, 20, 1280) },
    { "gpt2-xl", "gpt2", SIZES(48, 25, 1600) },
    { NULL, NULL, { 0 } },
};

/* --- parameters ----------------------------------------------------------------------------- */

enum { WTE, WPE, IN_EMBEDDING };
static const ls_lm_param embedding_params[] = {
    [WTE] = { "transformer.wte.weight", { LS_LM_V, LS_LM_C }, .cut = LS_LM_COLUMNS, .head = true },
    [WPE] = { "transformer.wpe.weight", { LS_LM_T, LS_LM_C }, .f32 = true },
};

enum {
    LN_1_WEIGHT, LN_1_BIAS, C_ATTN_WEIGHT, C_ATTN_BIAS, ATTN_PROJ_WEIGHT, ATTN_PROJ_BIAS,
    LN_2_WEIGHT, LN_2_BIAS, C_FC_WEIGHT, C_FC_BIAS, MLP_PROJ_WEIGHT, MLP_PROJ_BIAS, IN_BLOCK
};
#define CONV1D .transposed = true
#define MLP .mlp = true
static const ls_lm_param block_params[] = {
    [LN_1_WEIGHT] = { "transformer.h.%d.ln_1.weight", { LS_LM_C }, .init = LS_LM_ONE },
    [LN_1_BIAS] = { "transformer.h.%d.ln_1.bias", { LS_LM_C }, .init = LS_LM_ZERO },
    [C_ATTN_WEIGHT] = { "transformer.h.%d.attn.c_attn.weight", { LS_LM_3C, LS_LM_C }, .cut = LS_LM_COLUMNS, CONV1D },
    [C_ATTN_BIAS] = { "transformer.h.%d.attn.c_attn.bias", { LS_LM_3C }, .init = LS_LM_ZERO, .cut = LS_LM_COLUMNS },
    [ATTN_PROJ_WEIGHT] = { "transformer.h.%d.attn.c_proj.weight", { LS_LM_C, LS_LM_C }, .init = LS_LM_RESIDUAL,
                           .cut = LS_LM_ROWS, CONV1D },
    [ATTN_PROJ_BIAS] = { "transformer.h.%d.attn.c_proj.bias", { LS_LM_C }, .init = LS_LM_ZERO },
    [LN_2_WEIGHT] = { "transformer.h.%d.ln_2.weight", { LS_LM_C }, .init = LS_LM_ONE, MLP },
    [LN_2_BIAS] = { "transformer.h.%d.ln_2.bias", { LS_LM_C }, .init = LS_LM_ZERO, MLP },
    [C_FC_WEIGHT] = { "transformer.h.%d.mlp.c_fc.weight", { LS_LM_F, LS_LM_C }, .cut = LS_LM_COLUMNS, CONV1D, MLP },
    [C_FC_BIAS] = { "transformer.h.%d.mlp.c_fc.bias", { LS_LM_F }, .init = LS_LM_ZERO, .cut = LS_LM_COLUMNS, MLP },
    [MLP_PROJ_WEIGHT] = { "transformer.h.%d.mlp.c_proj.weight", { LS_LM_C, LS_LM_F }, .init = LS_LM_RESIDUAL,
                          .cut = LS_LM_ROWS, CONV1D, MLP },
    [MLP_PROJ_BIAS] = { "transformer.h.%d.mlp.c_proj.bias", { LS_LM_C }, .init = LS_LM_ZERO, MLP },
};

enum { LN_F_WEIGHT, LN_F_BIAS, HEAD, IN_HEAD };
static const ls_lm_param head_params[] = {
    [LN_F_WEIGHT] = { "transformer.ln_f.weight", { LS_LM_C }, .init = LS_LM_ONE },
    [LN_F_BIAS] = { "transformer.ln_f.bias", { LS_LM_C }, .init = LS_LM_ZERO },
    [HEAD] = { "lm_head.weight", { LS_LM_V, LS_LM_C }, .cut = LS_LM_COLUMNS, .head = true },
};

/* --- forward ------------------------------------------------------------------------------------ */

#define P(position) (&ls_unit_param(u, pass, position)->t)

/* ids [B, T] -> [B, T, C]. */
static ls_tensor *embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass)
{
    ls_tensor *x = ls_lm_embedding(u, t, ids, P(WTE), pass);
    x = ls_lm_positions(t, x, P(WPE), pass);
    return ls_lm_dropout(pass, t, x, ls_lm_sizes(u)->embd_dropout, 0);
}

static ls_tensor *attention(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const ls_lm_config *c = ls_lm_sizes(u);
    const float scale = (float)(1.0 / sqrt((double)(c->d_model / c->n_head)));
    ls_tensor *h = ls_layernorm(t, x, P(LN_1_WEIGHT), P(LN_1_BIAS), (float)c->norm_eps);
    h = ls_linear(t, ls_tp_enter(t, h, pass->place), P(C_ATTN_WEIGHT), P(C_ATTN_BIAS));
    if (!h) return NULL;
    const int64_t heads = ls_lm_heads(pass, c->n_head);
    const int64_t site = 2 * c->n_layer + 1 + u->number;
    const ls_attention_dropout dropout =
        ls_lm_attention_dropout(pass, t, c->attn_dropout, site, c->n_head, h->dim[1]);
    h = pass->kv ? ls_attention_packed_cached(t, h, heads, scale, pass->kv, u->number)
                 : ls_cp_attention_packed(t, h, heads, scale, pass->at.causal, &dropout, pass->place);
    return ls_tp_rows(t, h, P(ATTN_PROJ_WEIGHT), P(ATTN_PROJ_BIAS), pass->place);
}

static ls_tensor *mlp(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_tensor *h = ls_layernorm(t, x, P(LN_2_WEIGHT), P(LN_2_BIAS), (float)ls_lm_sizes(u)->norm_eps);
    h = ls_gelu(t, ls_linear(t, ls_tp_enter(t, h, pass->place), P(C_FC_WEIGHT), P(C_FC_BIAS)));
    return ls_tp_rows(t, h, P(MLP_PROJ_WEIGHT), P(MLP_PROJ_BIAS), pass->place);
}

/* x [B, T, C] -> the same shape: the halves of a layer, and all of it. */
static ls_tensor *first(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const double p = ls_lm_sizes(u)->resid_dropout;
    return ls_add(t, x, ls_lm_dropout(pass, t, attention(u, t, x, pass), p, 2 * u->number + 1));
}

static ls_tensor *second(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const double p = ls_lm_sizes(u)->resid_dropout;
    return ls_add(t, x, ls_lm_dropout(pass, t, mlp(u, t, x, pass), p, 2 * u->number + 2));
}

static ls_tensor *block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return second(u, t, first(u, t, x, pass), pass);
}

/* x [B, T, C] -> logits or loss. */
static ls_tensor *head(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    x = ls_layernorm(t, x, P(LN_F_WEIGHT), P(LN_F_BIAS), (float)ls_lm_sizes(u)->norm_eps);
    return ls_lm_output(u, t, x, P(HEAD), pass);
}

/* --- Hugging Face's config.json -------------------------------------------------------------------- */

#define AT(member) offsetof(ls_lm_config, member)

static const ls_hf_key config_json[] = {
    { "vocab_size", LS_HF_SIZE, AT(vocab_size), NULL, NULL },
    { "n_positions", LS_HF_SIZE, AT(seq_len), NULL, NULL },
    { "n_embd", LS_HF_SIZE, AT(d_model), NULL, NULL },
    { "n_layer", LS_HF_SIZE, AT(n_layer), NULL, NULL },
    { "n_head", LS_HF_SIZE, AT(n_head), NULL, NULL },
    { "n_inner", LS_HF_SIZE, AT(d_ff), "0", NULL }, /* 0, null: 4 n_embd */
    { "layer_norm_epsilon", LS_HF_REAL, AT(norm_eps), "1e-5", NULL },
    { "embd_pdrop", LS_HF_REAL, AT(embd_dropout), "0.1", NULL },
    { "attn_pdrop", LS_HF_REAL, AT(attn_dropout), "0.1", NULL },
    { "resid_pdrop", LS_HF_REAL, AT(resid_dropout), "0.1", NULL },
    { "tie_word_embeddings", LS_HF_FLAG, AT(tied), "true", NULL },
    { "activation_function", LS_HF_ONLY, 0, "\"gelu_new\"", "\"gelu_pytorch_tanh\"" },
    { "scale_attn_weights", LS_HF_ONLY, 0, "true", NULL },
    { "scale_attn_by_inverse_layer_idx", LS_HF_ONLY, 0, "false", NULL },
    { "reorder_and_upcast_attn", LS_HF_ONLY, 0, "false", NULL },
    { "add_cross_attention", LS_HF_ONLY, 0, "false", NULL },
    { 0 },
};

/* --- all together -------------------------------------------------------------------------------------- */

static const ls_lm_class lm = {
    .embedding = { .param = embedding_params, .cls = { embedding, IN_EMBEDDING, false } },
    .block = LS_LM_LAYER(block_params, IN_BLOCK, block, first, second),
    .head = { .param = head_params, .cls = { head, IN_HEAD, false } },
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .keys = config_json,
    .buffers = (const char *const[]){ ".attn.bias", ".attn.masked_bias", NULL },
};

extern const ls_model_class ls_model_gpt2; /* listed in registry.c */

const ls_model_class ls_model_gpt2 = {
    .name = "gpt2", .summary = "GPT-2: learned positions, layer norm, GELU",
    .keys = (const char *const[]){ LS_LM_KEYS, "model.embd_dropout", "model.attn_dropout", "model.resid_dropout", NULL },
    .presets = presets, .lm = &lm, .resolve = resolve, .count = count, .flops = flops,
    .create = ls_lm_create, .init = ls_lm_init_values, .input = ls_lm_input,
};
