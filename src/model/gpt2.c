/* gpt2.c -- GPT-2 (Radford et al. 2019), as in Hugging Face's GPT2LMHeadModel.
 *
 *   x = wte[ids] + wpe[0 .. T-1]                                    [B, T, C]
 *   L times:
 *     x = x + c_proj(attention(c_attn(ln_1(x))))                    c_attn: C -> 3C, queries, keys, values
 *     x = x + c_proj(gelu(c_fc(ln_2(x))))                           c_fc: C -> F
 *   logits = head(ln_f(x))                                          [B, T, V]; the head is wte where tied
 *
 * Matrices are [out, in] in memory. The files have those of attn and mlp the other way round
 * (a "Conv1D"); reading and writing them turns them.
 */
#include "model/lm.h"

#include <math.h>

#include "tensor/tape.h"

enum { WTE, WPE, FIRST_BLOCK }; /* indices of parameters */
enum {
    LN_1_WEIGHT, LN_1_BIAS, C_ATTN_WEIGHT, C_ATTN_BIAS, ATTN_PROJ_WEIGHT, ATTN_PROJ_BIAS,
    LN_2_WEIGHT, LN_2_BIAS, C_FC_WEIGHT, C_FC_BIAS, MLP_PROJ_WEIGHT, MLP_PROJ_BIAS, PER_BLOCK
};

/* A matrix of attn or mlp. */
static ls_status add_conv1d(ls_model *m, const char *name, int64_t l, int64_t out, int64_t in)
{
    LS_TRY(ls_lm_add(m, name, l, out, in));
    m->params.item[m->params.n - 1].turned = true;
    return LS_OK;
}

static ls_status add_block(ls_model *m, int64_t l, int64_t C, int64_t F)
{
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_1.weight", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_1.bias", l, C, 0));
    LS_TRY(add_conv1d(m, "transformer.h.%d.attn.c_attn.weight", l, 3 * C, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_attn.bias", l, 3 * C, 0));
    LS_TRY(add_conv1d(m, "transformer.h.%d.attn.c_proj.weight", l, C, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.attn.c_proj.bias", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_2.weight", l, C, 0));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.ln_2.bias", l, C, 0));
    LS_TRY(add_conv1d(m, "transformer.h.%d.mlp.c_fc.weight", l, F, C));
    LS_TRY(ls_lm_add(m, "transformer.h.%d.mlp.c_fc.bias", l, F, 0));
    LS_TRY(add_conv1d(m, "transformer.h.%d.mlp.c_proj.weight", l, C, F));
    return ls_lm_add(m, "transformer.h.%d.mlp.c_proj.bias", l, C, 0);
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    LS_TRY(ls_lm_create(c, m));
    const ls_lm_config *s = m->state;
    const int64_t C = s->d_model;
    LS_TRY(ls_lm_add(m, "transformer.wte.weight", 0, s->vocab_size, C));
    LS_TRY(ls_lm_add(m, "transformer.wpe.weight", 0, s->seq_len, C));
    m->params.item[WPE].whole = true; /* ls_add_rows */
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

static ls_tensor *attention(const ls_lm_block *b, ls_tape *t, ls_tensor *x)
{
    const ls_lm_config *c = b->c;
    ls_param *w = b->w;
    const float scale = (float)(1.0 / sqrt((double)(c->d_model / c->n_head)));
    ls_tensor *h = ls_layernorm(t, x, &w[LN_1_WEIGHT].t, &w[LN_1_BIAS].t, (float)c->norm_eps);
    h = ls_linear(t, h, &w[C_ATTN_WEIGHT].t, &w[C_ATTN_BIAS].t);
    if (!h) return NULL;
    const ls_attention_dropout dropout = ls_lm_attention_dropout(&b->draw, t, c->attn_dropout,
                                                                 2 * c->n_layer + 1 + b->layer, c->n_head, h->dim[1]);
    h = b->kv ? ls_attention_packed_cached(t, h, c->n_head, scale, b->kv, b->layer)
              : ls_attention_packed_dropped(t, h, c->n_head, scale, true, &dropout);
    return ls_linear(t, h, &w[ATTN_PROJ_WEIGHT].t, &w[ATTN_PROJ_BIAS].t);
}

static ls_tensor *mlp(const ls_lm_config *c, ls_tape *t, ls_tensor *x, ls_param *w)
{
    ls_tensor *h = ls_layernorm(t, x, &w[LN_2_WEIGHT].t, &w[LN_2_BIAS].t, (float)c->norm_eps);
    h = ls_gelu(t, ls_linear(t, h, &w[C_FC_WEIGHT].t, &w[C_FC_BIAS].t));
    return ls_linear(t, h, &w[MLP_PROJ_WEIGHT].t, &w[MLP_PROJ_BIAS].t);
}

/* x [B, T, C] -> the same shape. */
static ls_tensor *block(ls_tape *t, ls_tensor *x, const void *arg)
{
    const ls_lm_block *b = arg;
    const ls_lm_config *c = b->c;
    x = ls_add(t, x, ls_lm_dropout(&b->draw, t, attention(b, t, x), c->resid_dropout, 2 * b->layer + 1));
    return ls_add(t, x, ls_lm_dropout(&b->draw, t, mlp(c, t, x, b->w), c->resid_dropout, 2 * b->layer + 2));
}

/* ids [B, T] -> ln_f's [B, T, C]. */
static ls_tensor *hidden(ls_model *m, ls_tape *t, ls_tensor *ids, ls_kv *kv)
{
    const ls_lm_config *c = m->state;
    ls_param *p = m->params.item;
    ls_tensor *wpe = kv ? ls_lm_rows_from(t, &p[WPE].t, kv->n) : &p[WPE].t;
    ls_tensor *x = ls_add_rows(t, ls_embedding(t, ls_lm_ids(m, t, ids, kv), &p[WTE].t), wpe);
    x = ls_lm_dropout(&m->draw, t, x, c->embd_dropout, 0);
    for (int64_t l = 0; l < c->n_layer; l++) {
        const ls_lm_block b = { .c = c, .w = p + FIRST_BLOCK + l * PER_BLOCK, .layer = l, .kv = kv, .draw = m->draw };
        x = ls_block(t, x, block, &b, sizeof b);
    }
    ls_param *ln_f = p + FIRST_BLOCK + c->n_layer * PER_BLOCK;
    return ls_layernorm(t, x, &ln_f[0].t, &ln_f[1].t, (float)c->norm_eps);
}

static ls_tensor *forward(ls_model *m, ls_tape *t, ls_tensor *x) { return ls_lm_logits(m, t, hidden(m, t, x, NULL)); }

static ls_tensor *loss(ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums)
{
    return ls_lm_loss(m, t, hidden(m, t, x, NULL), labels, sums);
}

extern const ls_model_class ls_model_gpt2; /* listed in registry.c */

const ls_model_class ls_model_gpt2 = {
    .name = "gpt2", .summary = "GPT-2: learned positions, layer norm, GELU",
    .create = create, .init = init, .input = ls_lm_input, .forward = forward, .loss = loss,
    .hidden = hidden, .destroy = ls_lm_destroy,
};
