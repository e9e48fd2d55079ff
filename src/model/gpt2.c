/* gpt2.c -- GPT-2 (Radford et al. 2019), as in Hugging Face's GPT2LMHeadModel.
 *
 *   x = wte[ids] + wpe[0 .. T-1]                                    [B, T, C]
 *   L times:
 *     x = x + c_proj(attention(c_attn(ln_1(x))))                    c_attn: C -> 3C, queries, keys, values
 *     x = x + c_proj(gelu(c_fc(ln_2(x))))                           c_fc: C -> F
 *   logits = head(ln_f(x))                                          [B, T, V]; the head is wte where tied
 *
 * Matrices are [out, in] in memory. The files have those of attn and mlp the other way round
 * (a "Conv1D"); src/ckpt/hf.c turns them.
 */
#include "model/lm.h"

static ls_status add_block(ls_model *m, int64_t l, int64_t C, int64_t F)
{
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_1.weight", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_1.bias", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_attn.weight", l, 3 * C, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_attn.bias", l, 3 * C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_proj.weight", l, C, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_proj.bias", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_2.weight", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_2.bias", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.mlp.c_fc.weight", l, F, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.mlp.c_fc.bias", l, F, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.mlp.c_proj.weight", l, C, F));
    return ls_lm_add(m, "transformer.h.%d.mlp.c_proj.bias", l, C, 0);
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    LS_TRY(ls_lm_create(c, m));
    const ls_lm_config *s = m->state;
    const int64_t C = s->d_model;
    LS_TRY(ls_lm_add(m, "transformer.wte.weight", 0, s->vocab_size, C));
    LS_TRY(ls_lm_add(m, "transformer.wpe.weight", 0, s->seq_len, C));
    for (int64_t l = 0; l < s->n_layer; l++) LS_TRY(add_block(m, l, C, s->d_ff));
    LS_TRY(ls_lm_add(m, "transformer.ln_f.weight", 0, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.ln_f.bias", 0, C, 0));
    return s->tied ? LS_OK : ls_lm_add(m, "lm_head.weight", 0, s->vocab_size, C);
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    static const char *const residual[] = { ".c_proj.weight", NULL };
    return ls_lm_init(m, c, residual);
}

extern const ls_model_class ls_model_gpt2; /* listed in registry.c */

const ls_model_class ls_model_gpt2 = {
    .name = "gpt2", .summary = "GPT-2: learned positions, layer norm, GELU",
    .create = create, .init = init, .input = ls_lm_input, .destroy = ls_lm_destroy,
};
