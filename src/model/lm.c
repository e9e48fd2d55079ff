/* lm.c -- sizes of language models: defaults, rules, presets, counts, first values. */
#include "model/lm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tape.h"

#define MOST_WIDTH ((int64_t)1 << 20)
#define MOST_TOKENS ((int64_t)1 << 24)

static bool is_llama(const char *model) { return strcmp(model, "llama") == 0; }

/* --- sizes --------------------------------------------------------------------------- */

static ls_status check_sizes(const char *model, const ls_lm_config *c)
{
    const struct { const char *key; int64_t value, most; } size[] = {
        { "vocab_size", c->vocab_size, MOST_TOKENS }, { "seq_len", c->seq_len, MOST_TOKENS },
        { "n_layer", c->n_layer, 1024 },              { "n_head", c->n_head, 1024 },
        { "n_kv_head", c->n_kv_head, 1024 },          { "d_model", c->d_model, MOST_WIDTH },
        { "d_ff", c->d_ff, MOST_TOKENS },
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value < 1 || size[i].value > size[i].most)
            return ls_fail(LS_BAD_CONFIG, "model.%s is %lld; expected 1 to %lld", size[i].key, (long long)size[i].value,
                           (long long)size[i].most);
    if (c->d_model % c->n_head != 0)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld is not a multiple of model.n_head %lld", (long long)c->d_model,
                       (long long)c->n_head);
    if (c->n_head % c->n_kv_head != 0)
        return ls_fail(LS_BAD_CONFIG, "model.n_head %lld is not a multiple of model.n_kv_head %lld", (long long)c->n_head,
                       (long long)c->n_kv_head);
    if (!is_llama(model) && c->n_kv_head != c->n_head)
        return ls_fail(LS_UNSUPPORTED, "model.n_kv_head is %lld: gpt2 has as many heads for keys and values as for "
                       "queries, %lld; llama may have fewer", (long long)c->n_kv_head, (long long)c->n_head);
    if (is_llama(model) && c->d_model / c->n_head % 2 != 0)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld over model.n_head %lld gives heads of %lld channels: rotary "
                       "positions need an even number", (long long)c->d_model, (long long)c->n_head,
                       (long long)(c->d_model / c->n_head));
    return LS_OK;
}

ls_status ls_lm_resolve(const char *model, const ls_lm_config *c, ls_lm_config *out)
{
    *out = *c;
    if (strcmp(model, "gpt2") != 0 && !is_llama(model))
        return ls_fail(LS_BAD_CONFIG, "model.name: '%s' is not a language model; known: gpt2, llama", model);
    if (out->n_kv_head == 0) out->n_kv_head = c->n_head;
    if (out->d_ff == 0) out->d_ff = 4 * c->d_model;
    if (!(out->norm_eps > 0) && !(out->norm_eps < 0)) out->norm_eps = 1e-5;
    if (!(out->rope_theta > 0) && !(out->rope_theta < 0)) out->rope_theta = 10000;
    LS_TRY(check_sizes(model, out));
    if (!(out->norm_eps > 0 && out->norm_eps < 1))
        return ls_fail(LS_BAD_CONFIG, "model.norm_eps is %g; expected more than 0, less than 1", out->norm_eps);
    if (!(out->rope_theta >= 1 && out->rope_theta <= 1e12))
        return ls_fail(LS_BAD_CONFIG, "model.rope_theta is %g; expected 1 to 1e12", out->rope_theta);
    const double p[] = { out->embd_dropout, out->attn_dropout, out->resid_dropout };
    for (int i = 0; i < 3; i++) {
        if (!(p[i] >= 0 && p[i] < 1))
            return ls_fail(LS_BAD_CONFIG, "a dropout of %g; expected a probability, 0 or more and less than 1", p[i]);
        if (p[i] > 0 && is_llama(model))
            return ls_fail(LS_UNSUPPORTED, "a dropout of %g: llama has none here; set it to 0", p[i]);
    }
    return LS_OK;
}

int64_t ls_lm_count(const char *model, const ls_lm_config *c)
{
    const int64_t V = c->vocab_size, T = c->seq_len, L = c->n_layer, C = c->d_model, F = c->d_ff;
    const int64_t head = c->tied ? 0 : V * C;
    if (!is_llama(model)) return V * C + T * C + L * (4 * C * C + 2 * C * F + 9 * C + F) + 2 * C + head;
    const int64_t kv = C / c->n_head * c->n_kv_head;
    return V * C + L * (2 * C * C + 2 * C * kv + 3 * C * F + 2 * C) + C + head;
}

/* --- presets --------------------------------------------------------------------------- */

#define GPT2(L, H, C) { .vocab_size = 50257, .seq_len = 1024, .n_layer = (L), .n_head = (H), .n_kv_head = (H), \
                        .d_model = (C), .d_ff = 4 * (C), .norm_eps = 1e-5, .rope_theta = 10000, .tied = true }
#define LLAMA(V, T, L, H, K, C, F, tie) \
    { .vocab_size = (V), .seq_len = (T), .n_layer = (L), .n_head = (H), .n_kv_head = (K), .d_model = (C), .d_ff = (F), \
      .norm_eps = 1e-5, .rope_theta = 10000, .tied = (tie) }

/* OpenAI's four GPT-2 (Radford et al. 2019). The Llamas in between are the sizes of small
 * models that people train on stories; llama-1b is TinyLlama's (Zhang et al. 2024). */
const ls_model_preset ls_model_presets[] = {
    { "gpt2-1m", "gpt2",
      { .vocab_size = 1024, .seq_len = 256, .n_layer = 4, .n_head = 4, .n_kv_head = 4, .d_model = 128, .d_ff = 512,
        .norm_eps = 1e-5, .rope_theta = 10000, .tied = true } },
    { "gpt2", "gpt2", GPT2(12, 12, 768) },
    { "gpt2-medium", "gpt2", GPT2(24, 16, 1024) },
    { "gpt2-large", "gpt2", GPT2(36, 20, 1280) },
    { "gpt2-xl", "gpt2", GPT2(48, 25, 1600) },
    { "llama-tiny", "llama", LLAMA(512, 512, 5, 8, 4, 64, 172, true) },
    { "llama-15m", "llama", LLAMA(32000, 256, 6, 6, 6, 288, 768, true) },
    { "llama-110m", "llama", LLAMA(32000, 1024, 12, 12, 12, 768, 2048, true) },
    { "llama-1b", "llama", LLAMA(32000, 2048, 22, 32, 4, 2048, 5632, false) },
    { NULL, NULL, { 0 } },
};

const ls_model_preset *ls_model_preset_find(const char *name)
{
    for (const ls_model_preset *p = ls_model_presets; name && p->name; p++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

/* --- what the classes share ---------------------------------------------------------------- */

ls_status ls_lm_create(const ls_model_config *c, ls_model *m)
{
    ls_lm_config *s = malloc(sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "%s", c->name);
    m->state = s;
    return ls_lm_resolve(c->name, &c->lm, s);
}

void ls_lm_destroy(ls_model *m) { free(m->state); }

void ls_lm_input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    const ls_lm_config *c = m->state;
    const int64_t T = tokens ? tokens : c->seq_len;
    *in = (ls_model_input){ .dtype = LS_I64, .ndim = 2, .dim = { batch, T },
                            .label_ndim = 2, .label_dim = { batch, T } };
}

ls_status ls_lm_add(ls_model *m, const char *name, int64_t layer, int64_t d0, int64_t d1)
{
    char whole[LS_NAME_BYTES];
    const char *number = strstr(name, "%d");
    if (number)
        snprintf(whole, sizeof whole, "%.*s%lld%s", (int)(number - name), name, (long long)layer, number + 2);
    else snprintf(whole, sizeof whole, "%s", name);
    return ls_params_add(&m->params, whole, d1 ? 2 : 1, (int64_t[]){ d0, d1 });
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

ls_status ls_lm_init(ls_model *m, const ls_model_config *c, const char *const *residual)
{
    const ls_lm_config *s = m->state;
    if (c->init != LS_INIT_PHILOX)
        return ls_fail(LS_UNSUPPORTED, "model.init torch: only an mlp has PyTorch's initial values; set it to philox");
    for (int i = 0; i < m->params.n; i++) {
        ls_param *p = &m->params.item[i];
        const size_t n = (size_t)ls_tensor_count(&p->t);
        if (!p->t.data)
            return ls_fail(LS_INVALID, "parameter '%s' has no memory yet; call ls_params_bind first", p->name);
        if (p->t.ndim == 1) {
            const float v = ends_with(p->name, ".bias") ? 0.0f : 1.0f;
            for (size_t k = 0; k < n; k++) ((float *)p->t.data)[k] = v;
            continue;
        }
        float stddev = 0.02f;
        for (const char *const *r = residual; *r; r++)
            if (ends_with(p->name, *r)) stddev = (float)(0.02 / sqrt(2.0 * (double)s->n_layer));
        ls_philox_normal(c->seed, ls_stream(LS_STREAM_VALUES, (uint64_t)i), 0, n, stddev, p->t.data);
    }
    return LS_OK;
}

/* --- pieces of forward ------------------------------------------------------------------------ */

ls_tensor *ls_lm_ids(const ls_model *m, ls_tape *t, ls_tensor *ids, const ls_kv *kv)
{
    const ls_lm_config *c = m->state;
    char shape[96];
    if (!ids) return NULL;
    if (ids->dtype != LS_I64 || ids->ndim != 2)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "%s: token ids %s of %s: expected [B, T] of int64", m->cls->name,
                                     ls_tensor_shape(ids, shape, sizeof shape), ls_dtype_name(ids->dtype)));
    const int64_t tokens = ids->dim[1] + (kv ? kv->n : 0);
    if (tokens > c->seq_len)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "%s: a sequence of %lld tokens, the model's longest is %lld", m->cls->name,
                                     (long long)tokens, (long long)c->seq_len));
    return ids;
}

ls_tensor *ls_lm_rows_from(ls_tape *t, ls_tensor *w, int64_t first)
{
    if (first >= w->dim[0]) return w; /* ls_lm_ids has the sentence */
    const int64_t dim[2] = { w->dim[0] - first, w->dim[1] };
    return ls_tape_input(t, w->dtype, 2, dim, w->data ? (float *)w->data + first * w->dim[1] : NULL);
}

#define SITE_BITS 16 /* of a site's number: at most 3 in each of 1024 layers, and one */

static uint64_t stream_of(const ls_draw *draw, int64_t site)
{
    return ls_stream(LS_STREAM_DROPOUT, draw->step << SITE_BITS | (uint64_t)site);
}

ls_tensor *ls_lm_dropout(const ls_draw *draw, ls_tape *t, ls_tensor *x, double p, int64_t site)
{
    if (!x || !(p > 0) || !ls_tape_grad(t)) return x;
    const uint64_t sample = (uint64_t)(ls_tensor_count(x) / x->dim[0]);
    return ls_dropout(t, x, (float)p, draw->seed, stream_of(draw, site), draw->sample * sample);
}

ls_attention_dropout ls_lm_attention_dropout(const ls_draw *draw, const ls_tape *t, double p, int64_t site,
                                             int64_t heads, int64_t T)
{
    if (!(p > 0) || !ls_tape_grad(t)) return (ls_attention_dropout){ 0 };
    return (ls_attention_dropout){
        .p = (float)p, .seed = draw->seed, .stream = stream_of(draw, site),
        .first = draw->sample * (uint64_t)(heads * T * T),
    };
}

static ls_tensor *head(ls_model *m)
{
    const ls_lm_config *c = m->state;
    return &m->params.item[c->tied ? 0 : m->params.n - 1].t;
}

ls_tensor *ls_lm_logits(ls_model *m, ls_tape *t, ls_tensor *h) { return ls_linear(t, h, head(m), NULL); }

ls_tensor *ls_lm_last_logits(ls_model *m, ls_tape *t, ls_tensor *h) { return ls_last_logits(t, h, head(m)); }

ls_tensor *ls_lm_loss(ls_model *m, ls_tape *t, ls_tensor *h, ls_tensor *labels, ls_loss_sums *sums)
{
    if (!h || !labels) return NULL;
    return ls_linear_cross_entropy(t, h, head(m), labels, 1.0 / (double)ls_tensor_count(labels),
                                   sums ? &sums->sum : NULL, sums ? &sums->counted : NULL);
}
