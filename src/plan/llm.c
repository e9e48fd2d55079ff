/* llm.c -- operations and parameters of a language model. */
#include <stddef.h>
#include <string.h>

#include "lockstep/opts.h"
#include "lockstep/plan.h"

/* What zeros of an ls_llm mean. */
static int64_t kv_heads(const ls_llm *m) { return m->kv_heads ? m->kv_heads : m->heads; }
static int64_t head_dim(const ls_llm *m) { return m->head_dim ? m->head_dim : m->hidden / m->heads; }
static int64_t ffn(const ls_llm *m) { return m->ffn ? m->ffn : 4 * m->hidden; }
static int matrices(const ls_llm *m) { return m->gated ? 3 : 2; }

/* Parameters, at least: where the exact number does not fit an integer. */
static double about(const ls_llm *m)
{
    const double h = (double)m->hidden, w = m->head_dim ? (double)m->head_dim : h / (double)m->heads, a =
        (double)m->heads;
    const double latent = (double)(m->q_rank + m->kv_rank) * a * (double)(m->nope_dim + m->rope_dim + m->v_dim);
    const double mlp = 3 * h * ((double)ffn(m) + (double)m->expert_ffn * (double)(m->experts + m->shared));
    return (double)(m->layers + m->mtp) * (4 * h * a * w + latent + 2 * h * h + mlp) + 2 * h * (double)(m->vocab +
        m->seq);
}

ls_status ls_llm_check(const ls_llm *m)
{
    const struct { const char *name; int64_t v, least, most; } size[] = {
        { "layers", m->layers, 1, 100000 },
        { "hidden", m->hidden, 1, 1 << 24 },
        { "heads", m->heads, 1, 1 << 16 },
        { "vocab", m->vocab, 1, 1 << 28 },
        { "seq", m->seq, 1, 1 << 28 },
        { "kv_heads", m->kv_heads, 0, 1 << 16 },
        { "head_dim", m->head_dim, 0, 1 << 16 },
        { "ffn", m->ffn, 0, 1 << 26 },
        { "experts", m->experts, 0, 1 << 20 },
        { "topk", m->topk, 0, m->experts },
        { "shared", m->shared, 0, 1 << 10 },
        { "dense_layers", m->dense_layers, 0, m->layers },
        { "mtp", m->mtp, 0, 64 },
        { "window", m->window, 0, 1 << 28 },
        { "window_every", m->window_every, 0, 1 << 20 },
        { "expert_ffn", m->expert_ffn, 0, 1 << 26 },
        { "q_rank", m->q_rank, 0, 1 << 20 },
        { "kv_rank", m->kv_rank, 0, 1 << 20 },
        { "nope_dim", m->nope_dim, 0, 1 << 16 },
        { "rope_dim", m->rope_dim, 0, 1 << 16 },
        { "v_dim", m->v_dim, 0, 1 << 16 },
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].v < size[i].least || size[i].v > size[i].most)
            return ls_fail(LS_BAD_CONFIG, "%s is %lld; expected %lld to %lld", size[i].name, (long long)size[i].v,
                           (long long)size[i].least, (long long)size[i].most);
    if (!m->head_dim && m->hidden % m->heads != 0)
        return ls_fail(LS_BAD_CONFIG, "hidden %lld is not a multiple of %lld heads: give head_dim, the width of a head",
                       (long long)m->hidden,
                       (long long)m->heads);
    if (m->kv_heads && m->heads % m->kv_heads != 0)
        return ls_fail(LS_BAD_CONFIG, "%lld heads are not a multiple of %lld key heads: expected kv_heads to divide "
                       "heads", (long long)m->heads, (long long)m->kv_heads);
    if (m->experts && (!m->topk || !m->expert_ffn))
        return ls_fail(LS_BAD_CONFIG, "%lld experts need topk and expert_ffn above 0", (long long)m->experts);
    if (m->kv_rank && (!m->nope_dim || !m->rope_dim || !m->v_dim))
        return ls_fail(LS_BAD_CONFIG, "kv_rank %lld needs nope_dim, rope_dim and v_dim above 0", (long long)m->kv_rank);
    if (about(m) > 1e17) return ls_fail(LS_BAD_CONFIG, "about %.3g parameters; expected at most 1e17", about(m));
    return LS_OK;
}

/* --- operations ------------------------------------------------------------------------------------------------ */

/* Keys that a query meets, on average over a sequence. */
static double keys(const ls_llm *m, bool windowed, ls_flops convention)
{
    const double s = (double)m->seq, w = (double)m->window;
    if (windowed && w < s) /* the first w queries see 1 to w keys */
        return convention == LS_FLOPS_CAUSAL ? (w * (w + 1) / 2 + (s - w) * w) / s : w;
    return convention == LS_FLOPS_CAUSAL ? (s + 1) / 2 : s;
}

/* The mean over layers with and without a window. */
static double mean_keys(const ls_llm *m, ls_flops convention)
{
    if (!m->window) return keys(m, false, convention);
    const double whole = m->window_every ? 1.0 / (double)m->window_every : 0;
    return whole * keys(m, false, convention) + (1 - whole) * keys(m, true, convention);
}

static double attention_flops(const ls_llm *m, ls_flops convention)
{
    const double twice = convention == LS_FLOPS_SELECTIVE ? 2 : 1;
    const double h = (double)m->hidden, a = (double)m->heads, n = twice * mean_keys(m, convention);
    if (m->kv_rank) {
        const double rq = (double)m->q_rank, rkv = (double)m->kv_rank, dn = (double)m->nope_dim, dr =
            (double)m->rope_dim,
                     dv = (double)m->v_dim;
        const double queries = rq > 0 ? 2 * h * rq + 2 * rq * a * (dn + dr) : 2 * h * a * (dn + dr);
        return queries + 2 * h * (rkv + dr) + 2 * rkv * a * (dn + dv) + 2 * a * dv * h + 2 * n * a * (dn + dr + dv);
    }
    const double w = (double)head_dim(m), k = (double)kv_heads(m);
    return 4 * h * w * (a + k) + 4 * a * w * n;
}

double ls_llm_layer_flops(const ls_llm *m, bool dense, ls_flops convention)
{
    const double h = (double)m->hidden, g = matrices(m);
    const double mlp = dense || !m->experts
                           ? 2 * g * h * (double)ffn(m)
                           : 2 * g * h * (double)m->expert_ffn * (double)(m->topk + m->shared) +
                               2 * h * (double)m->experts;
    return attention_flops(m, convention) + mlp;
}

double ls_llm_flops(const ls_llm *m, ls_flops convention)
{
    const int64_t dense = m->experts ? m->dense_layers : m->layers, sparse = m->layers - dense;
    const double h = (double)m->hidden, logits = 2 * h * (double)m->vocab;
    const double layers = (double)dense * ls_llm_layer_flops(m, true, convention) +
                          (double)sparse * ls_llm_layer_flops(m, false, convention);
    /* A layer of multi-token prediction: a product of two hidden states, a layer, the logits again. */
    const double mtp = (double)m->mtp * (4 * h * h + ls_llm_layer_flops(m, false, convention) + logits);
    return (convention == LS_FLOPS_RECOMPUTED ? 4 : 3) * layers + 3 * (logits + mtp);
}

/* --- parameters ------------------------------------------------------------------------------------------------ */

int64_t ls_llm_expert_params(const ls_llm *m)
{
    return matrices(m) * m->hidden * m->expert_ffn + (m->biases ? (matrices(m) - 1) * m->expert_ffn + m->hidden : 0);
}

static int64_t attention_params(const ls_llm *m)
{
    const int64_t h = m->hidden, a = m->heads;
    if (m->kv_rank) {
        const int64_t qk = m->nope_dim + m->rope_dim;
        const int64_t queries = m->q_rank ? m->q_rank * (h + a * qk) + m->q_rank : h * a * qk;
        return queries + h * (m->kv_rank + m->rope_dim) + m->kv_rank + m->kv_rank * a * (m->nope_dim + m->v_dim) +
               a * m->v_dim * h;
    }
    const int64_t w = head_dim(m), q = a * w, kv = 2 * kv_heads(m) * w;
    return h * (q + kv) + q * h + (m->biases ? q + kv + h : 0);
}

int64_t ls_llm_layer_params(const ls_llm *m, bool dense)
{
    const int64_t h = m->hidden, f = ffn(m), norms = m->biases ? 4 * h : 2 * h;
    const int64_t mlp = dense || !m->experts
                            ? matrices(m) * h * f + (m->biases ? (matrices(m) - 1) * f + h : 0)
                            : (m->experts + m->shared) * ls_llm_expert_params(m) + m->experts * h;
    return attention_params(m) + mlp + norms;
}

static int64_t params(const ls_llm *m, int64_t sparse_layer)
{
    const int64_t dense = m->experts ? m->dense_layers : m->layers;
    const int64_t ends = m->vocab * m->hidden * (m->tied ? 1 : 2) + (m->positions ? m->seq * m->hidden : 0);
    const int64_t norm = m->biases ? 2 * m->hidden : m->hidden;
    /* Multi-token prediction: two norms, a product, a layer and its norm; embedding and output matrix are the
     * model's. */
    const int64_t mtp = m->mtp * (sparse_layer + 2 * m->hidden * m->hidden + 3 * norm);
    return dense * ls_llm_layer_params(m, true) + (m->layers - dense) * sparse_layer + ends + norm + mtp;
}

int64_t ls_llm_params(const ls_llm *m) { return params(m, ls_llm_layer_params(m, false)); }

int64_t ls_llm_active_params(const ls_llm *m)
{
    const int64_t idle = m->experts ? (m->experts - m->topk) * ls_llm_expert_params(m) : 0;
    return params(m, ls_llm_layer_params(m, false) - idle);
}

/* --- presets ---------------------------------------------------------------------------------------------------- */

#define GPT(n, l, h_, a, v, s) { .name = n, .layers = l, .hidden = h_, .heads = a, .vocab = v, .seq = s, \
                                 .biases = true, .positions = true, .tied = true }
#define LLAMA(n, l, h_, a, k, f, v, s) { .name = n, .layers = l, .hidden = h_, .heads = a, .kv_heads = k, .ffn = f, \
                                         .vocab = v, .seq = s, .gated = true }
static const ls_llm presets[] = {
    GPT("gpt2-124m", 12, 768, 12, 50257, 1024),
    GPT("gpt2-1.5b", 48, 1600, 25, 50257, 1024),
    GPT("gpt3-175b", 96, 12288, 96, 51200, 2048),
    GPT("mt-nlg-530b", 105, 20480, 128, 51200, 2048),
    LLAMA("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096),
    LLAMA("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096),
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192),
    LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192),
    { .name = "mistral-7b", .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32000,
      .seq = 8192, .gated = true, .window = 4096 },
    { .name = "mixtral-8x7b", .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32000,
      .seq = 4096, .gated = true, .experts = 8, .topk = 2, .expert_ffn = 14336 },
    { .name = "nemotron-340b", .layers = 96, .hidden = 18432, .heads = 96, .kv_heads = 8, .ffn = 73728, .vocab = 256000,
      .seq = 4096 },
    { .name = "qwen3-235b", .layers = 94, .hidden = 4096, .heads = 64, .kv_heads = 4, .head_dim = 128, .ffn = 12288,
      .vocab = 151936, .seq = 4096, .gated = true, .experts = 128, .topk = 8, .expert_ffn = 1536 },
    { .name = "qwen3-30b", .layers = 48, .hidden = 2048, .heads = 32, .kv_heads = 4, .head_dim = 128, .ffn = 6144,
      .vocab = 151936, .seq = 4096, .gated = true, .experts = 128, .topk = 8, .expert_ffn = 768 },
    { .name = "deepseek-v3", .layers = 61, .hidden = 7168, .heads = 128, .ffn = 18432, .vocab = 129280, .seq = 4096,
      .gated = true, .experts = 256, .topk = 8, .shared = 1, .expert_ffn = 2048, .dense_layers = 3, .q_rank = 1536,
      .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128 },
};
#define PRESETS (sizeof presets / sizeof *presets)

const char *ls_llm_preset_name(int n) { return n >= 0 && (size_t)n < PRESETS ? presets[n].name : NULL; }

ls_status ls_llm_preset(const char *name, ls_llm *out)
{
    const char *names[PRESETS];
    for (size_t i = 0; i < PRESETS; i++) {
        names[i] = presets[i].name;
        if (name && strcmp(name, presets[i].name) == 0) {
            *out = presets[i];
            return LS_OK;
        }
    }
    const char *near = ls_nearest(name ? name : "", names, PRESETS);
    return ls_fail(LS_BAD_CONFIG, "no model '%s'%s%s; `lockstep plan --list` names all", name ? name : "",
                   near ? "; the nearest is " : "", near ? near : "");
}
