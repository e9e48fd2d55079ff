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

#include <math.h>

enum { EMBED, FIRST_BLOCK }; /* indices of parameters */
enum { Q_PROJ, K_PROJ, V_PROJ, O_PROJ, GATE_PROJ, UP_PROJ, DOWN_PROJ, INPUT_NORM, POST_NORM, PER_BLOCK };

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

/* x w^T as heads: [B, T, C] -> [B, T, heads, D]. */
static ls_tensor *heads(ls_tape *t, ls_tensor *x, ls_param *w, int64_t n, int64_t D)
{
    ls_tensor *y = ls_linear(t, x, &w->t, NULL);
    return y ? ls_reshape(t, y, 4, (int64_t[]){ y->dim[0], y->dim[1], n, D }) : NULL;
}

static ls_tensor *attention(const ls_lm_block *b, ls_tape *t, ls_tensor *x)
{
    const ls_lm_config *c = b->c;
    ls_param *w = b->w;
    const int64_t D = c->d_model / c->n_head, first = b->kv ? b->kv->n : 0;
    const float scale = (float)(1.0 / sqrt((double)D));
    ls_tensor *h = ls_rmsnorm(t, x, &w[INPUT_NORM].t, (float)c->norm_eps);
    ls_tensor *q = ls_rope(t, heads(t, h, &w[Q_PROJ], c->n_head, D), c->rope_theta, first);
    ls_tensor *k = ls_rope(t, heads(t, h, &w[K_PROJ], c->n_kv_head, D), c->rope_theta, first);
    ls_tensor *v = heads(t, h, &w[V_PROJ], c->n_kv_head, D);
    ls_tensor *y = b->kv ? ls_attention_cached(t, q, k, v, scale, b->kv, b->layer)
                         : ls_attention(t, q, k, v, scale, true);
    if (y) y = ls_reshape(t, y, 3, (int64_t[]){ y->dim[0], y->dim[1], c->d_model });
    return ls_linear(t, y, &w[O_PROJ].t, NULL);
}

static ls_tensor *mlp(const ls_lm_config *c, ls_tape *t, ls_tensor *x, ls_param *w)
{
    ls_tensor *h = ls_rmsnorm(t, x, &w[POST_NORM].t, (float)c->norm_eps);
    ls_tensor *gate = ls_linear(t, h, &w[GATE_PROJ].t, NULL);
    ls_tensor *up = ls_linear(t, h, &w[UP_PROJ].t, NULL);
    return ls_linear(t, ls_swiglu(t, gate, up), &w[DOWN_PROJ].t, NULL);
}

/* x [B, T, C] -> the same shape. */
static ls_tensor *block(ls_tape *t, ls_tensor *x, const void *arg)
{
    const ls_lm_block *b = arg;
    x = ls_add(t, x, attention(b, t, x));
    return ls_add(t, x, mlp(b->c, t, x, b->w));
}

/* ids [B, T] -> the last norm's [B, T, C]. */
static ls_tensor *hidden(ls_model *m, ls_tape *t, ls_tensor *ids, ls_kv *kv)
{
    const ls_lm_config *c = m->state;
    ls_param *p = m->params.item;
    ls_tensor *x = ls_embedding(t, ls_lm_ids(m, t, ids, kv), &p[EMBED].t);
    for (int64_t l = 0; l < c->n_layer; l++) {
        const ls_lm_block b = { .c = c, .w = p + FIRST_BLOCK + l * PER_BLOCK, .layer = l, .kv = kv };
        x = ls_block(t, x, block, &b, sizeof b);
    }
    return ls_rmsnorm(t, x, &p[FIRST_BLOCK + c->n_layer * PER_BLOCK].t, (float)c->norm_eps);
}

static ls_tensor *forward(ls_model *m, ls_tape *t, ls_tensor *x) { return ls_lm_logits(m, t, hidden(m, t, x, NULL)); }

static ls_tensor *loss(ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums)
{
    return ls_lm_loss(m, t, hidden(m, t, x, NULL), labels, sums);
}

extern const ls_model_class ls_model_llama; /* listed in registry.c */

const ls_model_class ls_model_llama = {
    .name = "llama", .summary = "Llama: rotary positions, RMS norm, SwiGLU, grouped queries",
    .create = create, .init = init, .input = ls_lm_input, .forward = forward, .loss = loss,
    .hidden = hidden, .destroy = ls_lm_destroy,
};
