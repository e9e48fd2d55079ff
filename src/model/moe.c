/* moe.c -- Llama with a mixture of experts in place of the mlp, as in Hugging Face's MixtralForCausalLM (Jiang et al.
 * 2024).
 *
 *     h = rmsnorm(x)
 *     p = softmax(gate h);  the top_k experts with the largest p, w their p, which add up to 1 with norm_topk
 *     x = x + sum over them of w_e w2_e (silu(w1_e h) * w3_e h)         C -> d_expert -> C
 *         + sigmoid(shared_gate h) times an mlp of width shared_expert, where there is one (Qwen2-MoE)
 *
 * The first first_dense layers have Llama's mlp. The experts' matrices of a layer are three parameters, [E F, C] each,
 * one expert below another, w2 transposed: a checkpoint, ZeRO's rows and expert parallelism then see matrices as they
 * see all others, and ranks with other experts have parameters of the same names.
 */
#include <stddef.h>
#include <stdlib.h>

#include "model/llama.h"
#include "model/moe.h"

/* --- sizes ------------------------------------------------------------------------------ */

static ls_status check_experts(const ls_lm_config *s)
{
    const struct {
        const char *key;
        int64_t value, least, most;
    } size[] = {
        { "n_experts", s->n_experts, 1, LS_MOE_EXPERTS },
        { "top_k", s->top_k, 1, s->n_experts < LS_MOE_TOP_K ? s->n_experts : LS_MOE_TOP_K },
        { "d_expert", s->d_expert, 1, (int64_t)1 << 24 },
        { "shared_expert", s->shared_expert, 0, (int64_t)1 << 24 },
        { "first_dense", s->first_dense, 0, s->n_layer - 1 },
    };
    if (s->forced_expert < 0 || s->forced_expert > s->n_experts)
        return ls_fail(LS_BAD_CONFIG, "moe.force_expert is %lld; expected -1 (none) to %lld, the last of model.n_experts",
                       (long long)s->forced_expert - 1, (long long)s->n_experts - 1);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value < size[i].least || size[i].value > size[i].most)
            return ls_fail(LS_BAD_CONFIG, "model.%s is %lld; expected %lld to %lld%s", size[i].key,
                           (long long)size[i].value, (long long)size[i].least, (long long)size[i].most,
                           i == 1   ? ", and not above model.n_experts"
                           : i == 4 ? ", so that at least one layer has experts; model.name llama is a model without"
                                    : "");
    const struct {
        const char *key;
        double value;
    } number[] = {
        { "capacity_factor", s->capacity_factor },
        { "aux_loss", s->aux_loss },
        { "z_loss", s->z_loss },
        { "bias_rate", s->bias_rate },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!(number[i].value >= 0 && number[i].value <= 1e6))
            return ls_fail(LS_BAD_CONFIG, "moe.%s is %g; expected 0 to 1e6", number[i].key, number[i].value);
    return LS_OK;
}

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    LS_TRY(ls_model_llama.resolve(c, out));
    ls_lm_config *s = &out->lm;
    if (s->n_experts == 0) s->n_experts = 8;
    if (s->top_k == 0) s->top_k = s->n_experts < 2 ? s->n_experts : 2;
    if (s->d_expert == 0) s->d_expert = s->d_ff;
    return check_experts(s);
}

static int64_t sparse_layers(const ls_lm_config *s) { return s->n_layer - s->first_dense; }

/* Of one expert. */
static int64_t expert_count(const ls_lm_config *s) { return 3 * s->d_model * s->d_expert; }

/* Llama's, without its mlp in the layers that have experts. */
static int64_t count(const ls_model_config *c)
{
    const ls_lm_config *s = &c->lm;
    const int64_t C = s->d_model, S = s->shared_expert, E = s->n_experts;
    const int64_t layer = E * expert_count(s) + E * C +
                          (S > 0 ? 3 * C * S + C + C + 2 * (C / s->n_head * s->n_kv_head) : 0) +
                          (s->bias_rate > 0 ? E : 0);
    return ls_model_llama.count(c) + sparse_layers(s) * (layer - 3 * C * s->d_ff);
}

/* An expert that a token is not sent to takes no part in its products. */
static void flops(const ls_model_config *c, ls_model_flops *out)
{
    const ls_lm_config *s = &c->lm;
    ls_model_llama.flops(c, out);
    out->tables += sparse_layers(s) * (s->n_experts - s->top_k) * expert_count(s);
}

#define SIZES(V, T, L, H, K, C, F, E, k)                                                                     \
    {                                                                                                        \
        .vocab_size = (V), .seq_len = (T), .n_layer = (L), .n_head = (H), .n_kv_head = (K), .d_model = (C),  \
        .d_ff = (F), .norm_eps = 1e-5, .rope_theta = 10000, .n_experts = (E), .top_k = (k), .d_expert = (F), \
        .norm_topk = true                                                                                    \
    }

static const ls_model_preset presets[] = {
    { "moe-tiny", "moe", SIZES(512, 256, 4, 4, 4, 128, 256, 8, 2) },
    { "mixtral-8x7b", "moe", SIZES(32000, 32768, 32, 32, 8, 4096, 14336, 8, 2) },
    { NULL, NULL, { 0 } },
};

/* --- parameters ----------------------------------------------------------------------------- */

/* As in llama.h, with the experts' matrices in place of the mlp's. */
enum { W1 = LS_LLAMA_GATE_PROJ, W3 = LS_LLAMA_UP_PROJ, W2 = LS_LLAMA_DOWN_PROJ };
enum { ROUTER = LS_LLAMA_BLOCK, BIAS, IN_BLOCK };
enum { S_ROUTER = LS_LLAMA_BLOCK, Q_BIAS, K_BIAS, V_BIAS, S_GATE, S_UP, S_DOWN, S_SIGMOID, S_BIAS, IN_SHARED };

#define LAYER "model.layers.%d."
#define MLP .mlp = true
#define ATTENTION                                                                                         \
    [LS_LLAMA_Q_PROJ] = { LAYER "self_attn.q_proj.weight", { LS_LM_C, LS_LM_C }, .cut = LS_LM_COLUMNS },  \
    [LS_LLAMA_K_PROJ] = { LAYER "self_attn.k_proj.weight", { LS_LM_KV, LS_LM_C }, .cut = LS_LM_COLUMNS }, \
    [LS_LLAMA_V_PROJ] = { LAYER "self_attn.v_proj.weight", { LS_LM_KV, LS_LM_C }, .cut = LS_LM_COLUMNS }, \
    [LS_LLAMA_O_PROJ] = { LAYER "self_attn.o_proj.weight",                                                \
                          { LS_LM_C, LS_LM_C },                                                           \
                          .init = LS_LM_RESIDUAL,                                                         \
                          .cut = LS_LM_ROWS },                                                            \
    [LS_LLAMA_INPUT_NORM] = { LAYER "input_layernorm.weight", { LS_LM_C }, .init = LS_LM_ONE },           \
    [LS_LLAMA_POST_NORM] = { LAYER "post_attention_layernorm.weight", { LS_LM_C }, .init = LS_LM_ONE, MLP }
#define EXPERTS(in, gate, up, down)                                             \
    [W1] = { LAYER in gate, { LS_LM_EF, LS_LM_C }, .cut = LS_LM_EXPERTS, MLP }, \
    [W3] = { LAYER in up, { LS_LM_EF, LS_LM_C }, .cut = LS_LM_EXPERTS, MLP },   \
    [W2] = { LAYER in down, { LS_LM_EF, LS_LM_C }, .init = LS_LM_RESIDUAL, .cut = LS_LM_EXPERTS, MLP }

static const ls_lm_param block_params[] = {
    ATTENTION,
    EXPERTS("block_sparse_moe.experts.", "w1.weight", "w3.weight", "w2.weight"),
    [ROUTER] = { LAYER "block_sparse_moe.gate.weight", { LS_LM_E, LS_LM_C }, .init = LS_LM_NORMAL, MLP },
    [BIAS] = { LAYER "block_sparse_moe.gate.balance", { LS_LM_E }, .init = LS_LM_ZERO, MLP },
};

static const ls_lm_param shared_params[] = {
    ATTENTION,
    EXPERTS("mlp.experts.", "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    [S_ROUTER] = { LAYER "mlp.gate.weight", { LS_LM_E, LS_LM_C }, .init = LS_LM_NORMAL, MLP },
    [Q_BIAS] = { LAYER "self_attn.q_proj.bias", { LS_LM_C }, .init = LS_LM_ZERO, .cut = LS_LM_COLUMNS },
    [K_BIAS] = { LAYER "self_attn.k_proj.bias", { LS_LM_KV }, .init = LS_LM_ZERO, .cut = LS_LM_COLUMNS },
    [V_BIAS] = { LAYER "self_attn.v_proj.bias", { LS_LM_KV }, .init = LS_LM_ZERO, .cut = LS_LM_COLUMNS },
    [S_GATE] = { LAYER "mlp.shared_expert.gate_proj.weight", { LS_LM_S, LS_LM_C }, .cut = LS_LM_COLUMNS, MLP },
    [S_UP] = { LAYER "mlp.shared_expert.up_proj.weight", { LS_LM_S, LS_LM_C }, .cut = LS_LM_COLUMNS, MLP },
    [S_DOWN] = { LAYER "mlp.shared_expert.down_proj.weight",
                 { LS_LM_C, LS_LM_S },
                 .init = LS_LM_RESIDUAL,
                 .cut = LS_LM_ROWS,
                 MLP },
    [S_SIGMOID] = { LAYER "mlp.shared_expert_gate.weight", { LS_LM_1, LS_LM_C }, .init = LS_LM_NORMAL, MLP },
    [S_BIAS] = { LAYER "mlp.gate.balance", { LS_LM_E }, .init = LS_LM_ZERO, MLP },
};

/* --- forward ------------------------------------------------------------------------------------ */

#define P(position) (&ls_unit_param(u, pass, position)->t)

static const ls_model *model_of(const ls_unit *u) { return u->arg; }

/* Weights [B, T, k] of h [B, T, C], and where its tokens go. */
static ls_tensor *router(const ls_unit *u, ls_tape *t, ls_tensor *h, const ls_pass *pass, ls_tensor *bias,
                         ls_routing **r)
{
    const ls_lm_config *c = ls_lm_sizes(u);
    const ls_along *cp = &pass->place->cp;
    const ls_moe_rule rule = { .top_k = c->top_k,
                               .renormalize = c->norm_topk,
                               .capacity = c->capacity_factor,
                               .by_probability = c->drop_by_probability,
                               .aux = c->aux_loss,
                               .z = c->z_loss,
                               .bias = bias,
                               .forced = c->forced_expert,
                               .loads = c->expert_loads ? c->expert_loads + u->number * c->n_experts : NULL,
                               .alike = c->expert_loads_alike,
                               .cp = cp->ranks,
                               .ncp = cp->size,
                               .tokens = ls_cp_all_tokens(t, pass->place, h ? h->dim[1] * cp->size : 0),
                               .stats =
                                   pass->output == LS_OUTPUT_LOSS ? ls_moe_layer_stats(model_of(u), u->number) : NULL };
    ls_tensor *logits = ls_tp_same(t, ls_linear(t, h, P(ROUTER), NULL), pass->place);
    return ls_tp_sum_gradient(t, ls_route(t, logits, &rule, r), pass->place);
}

/* The experts' sum for h [B, T, C]; of ranks that divide their width, this rank's part of it. */
static ls_tensor *experts(const ls_unit *u, ls_tape *t, ls_tensor *h, ls_tensor *w, ls_routing *r, const ls_pass *pass)
{
    ls_tensor *rows = ls_dispatch(t, h, r, &pass->place->ep);
    ls_tensor *gate = ls_experts(t, rows, P(W1), r, false);
    ls_tensor *up = ls_experts(t, rows, P(W3), r, false);
    return ls_combine(t, ls_experts(t, ls_swiglu(t, gate, up), P(W2), r, true), w, r);
}

/* x [B, T, C]: its norm for what every rank computes alike (*same), and for products that ranks divide. */
static ls_tensor *norm(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass, ls_tensor **same)
{
    ls_tensor *h = ls_rmsnorm(t, x, P(LS_LLAMA_POST_NORM), (float)ls_lm_sizes(u)->norm_eps);
    ls_tensor *all = ls_tp_enter(t, h, pass->place);
    *same = pass->place->sequence_parallel ? all : h;
    return all;
}

static ls_tensor *mixture(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_routing *r = NULL;
    ls_tensor *same, *h = norm(u, t, x, pass, &same);
    ls_tensor *w = router(u, t, same, pass, u->npositions > BIAS ? P(BIAS) : NULL, &r);
    return ls_tp_leave(t, experts(u, t, h, w, r, pass), pass->place);
}

static ls_tensor *mixture_and_shared(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_routing *r = NULL;
    ls_tensor *same, *h = norm(u, t, x, pass, &same);
    ls_tensor *w = router(u, t, same, pass, u->npositions > S_BIAS ? P(S_BIAS) : NULL, &r);
    ls_tensor *g = ls_tp_same(t, ls_linear(t, same, P(S_SIGMOID), NULL), pass->place);
    ls_tensor *y = ls_swiglu(t, ls_linear(t, h, P(S_GATE), NULL), ls_linear(t, h, P(S_UP), NULL));
    y = ls_gate_rows(t, ls_linear(t, y, P(S_DOWN), NULL), ls_tp_sum_gradient(t, g, pass->place));
    return ls_tp_leave(t, ls_add(t, experts(u, t, h, w, r, pass), y), pass->place);
}

/* x [B, T, C] -> the same shape: the second half of a layer, and all of it. */
static ls_tensor *second(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_add(t, x, mixture(u, t, x, pass));
}

static ls_tensor *block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return second(u, t, ls_llama_first(u, t, x, pass), pass);
}

/* The same with a shared expert, and biases. */
static ls_tensor *shared_first(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_add(t, x, ls_llama_attention(u, t, x, pass, Q_BIAS));
}

static ls_tensor *shared_second(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return ls_add(t, x, mixture_and_shared(u, t, x, pass));
}

static ls_tensor *shared_block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    return shared_second(u, t, shared_first(u, t, x, pass), pass);
}

static const ls_lm_unit *block_at(const ls_lm_config *c, int layer)
{
    static const ls_lm_unit dense = LS_LLAMA_BLOCK_UNIT;
    static const ls_lm_unit sparse = LS_LM_LAYER(block_params, BIAS, block, ls_llama_first, second);
    static const ls_lm_unit balanced = LS_LM_LAYER(block_params, IN_BLOCK, block, ls_llama_first, second);
    static const ls_lm_unit shared = LS_LM_LAYER(shared_params, S_BIAS, shared_block, shared_first, shared_second);
    static const ls_lm_unit balanced_shared =
        LS_LM_LAYER(shared_params, IN_SHARED, shared_block, shared_first, shared_second);
    if (layer < c->first_dense) return &dense;
    if (c->shared_expert > 0) return c->bias_rate > 0 ? &balanced_shared : &shared;
    return c->bias_rate > 0 ? &balanced : &sparse;
}

/* --- what was routed ------------------------------------------------------------------------------------ */

/* ls_model.own: for each layer chosen[E], dropped[E], and aux, z and calls. */
int ls_moe_words(const ls_model *m)
{
    return m->cls == &ls_model_moe ? (int)(m->lm.n_layer * (2 * m->lm.n_experts + LS_MOE_SUMS)) : 0;
}

static int layer_words(const ls_model *m) { return (int)(2 * m->lm.n_experts) + LS_MOE_SUMS; }

typedef struct counts {
    ls_moe_stats *layer; /* [L], behind the words */
    double word[];
} counts;

double *ls_moe_counts(const ls_model *m) { return ls_moe_words(m) ? ((counts *)m->own)->word : NULL; }

const double *ls_moe_layer_words(const ls_model *m, const double *words, int layer)
{
    return words + layer * layer_words(m);
}

ls_moe_stats *ls_moe_layer_stats(const ls_model *m, int layer)
{
    counts *k = m->own;
    return &k->layer[layer];
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    LS_TRY(ls_lm_create(c, m));
    const int words = ls_moe_words(m), L = (int)m->lm.n_layer;
    const size_t nbytes = sizeof(counts) + (size_t)words * sizeof(double);
    counts *k = m->own = calloc(1, nbytes + (size_t)L * sizeof(ls_moe_stats));
    if (!k) return ls_fail(LS_NO_MEMORY, "counts of %lld experts", (long long)m->lm.n_experts);
    k->layer = (ls_moe_stats *)(void *)((char *)k + nbytes);
    for (int l = 0; l < L; l++) {
        double *w = k->word + l * layer_words(m);
        k->layer[l] = (ls_moe_stats){ .chosen = w, .dropped = w + m->lm.n_experts, .sums = w + 2 * m->lm.n_experts };
    }
    return LS_OK;
}

/* --- balancing without a loss ------------------------------------------------------------------------------ */

void ls_moe_balance(ls_model *m, const double *words)
{
    const int64_t E = m->lm.n_experts;
    if (!ls_moe_words(m) || !(m->lm.bias_rate > 0)) return;
    for (int l = (int)m->lm.first_dense; l < m->lm.n_layer; l++) {
        const ls_unit *u = ls_lm_last_of(m, l);
        const double *chosen = ls_moe_layer_words(m, words, l);
        if (u->elsewhere) continue;
        ls_param *p = &m->params.item[u->position[u->npositions - 1]];
        float *v = ls_param_values(p);
        double mean = 0;
        for (int64_t e = 0; e < E; e++) mean += chosen[e] / (double)E;
        for (size_t i = 0; i < p->own.count; i++) {
            const double more = mean - chosen[p->own.first + i];
            v[i] += (float)(more > 0 ? m->lm.bias_rate : more < 0 ? -m->lm.bias_rate : 0.0);
        }
    }
}

/* --- Hugging Face's config.json -------------------------------------------------------------------- */

#define AT(member) offsetof(ls_lm_config, member)

#define ALIKE(positions, kv_heads, theta, eps)                                                                         \
    { "vocab_size", LS_HF_SIZE, AT(vocab_size), NULL, NULL },                                                          \
        { "max_position_embeddings", LS_HF_SIZE, AT(seq_len), positions, NULL },                                       \
        { "hidden_size", LS_HF_SIZE, AT(d_model), NULL, NULL },                                                        \
        { "num_hidden_layers", LS_HF_SIZE, AT(n_layer), NULL, NULL },                                                  \
        { "num_attention_heads", LS_HF_SIZE, AT(n_head), NULL, NULL },                                                 \
        { "num_key_value_heads", LS_HF_SIZE, AT(n_kv_head), kv_heads, NULL },                                          \
        { "rms_norm_eps", LS_HF_REAL, AT(norm_eps), eps, NULL },                                                       \
        { "rope_theta", LS_HF_REAL, AT(rope_theta), theta, NULL }, { "attention_dropout", LS_HF_ONLY, 0, "0.0", "0" }, \
        { "tie_word_embeddings", LS_HF_FLAG, AT(tied), "false", NULL },                                                \
        { "hidden_act", LS_HF_ONLY, 0, "\"silu\"", "\"swish\"" },                                                      \
        { "lockstep_first_dense", LS_HF_COUNT, AT(first_dense), "0", NULL }, /* in own */                              \
    {                                                                                                                  \
        "lockstep_bias_rate", LS_HF_REAL, AT(bias_rate), "0.0", NULL                                                   \
    } /* files */

/* MixtralForCausalLM, whose weights always add up to 1. */
static const ls_hf_key mixtral_json[] = {
    ALIKE("131072", "8", "1000000.0", "1e-5"),
    { "intermediate_size", LS_HF_SIZE, AT(d_expert), NULL, NULL },
    { "num_local_experts", LS_HF_SIZE, AT(n_experts), "8", NULL },
    { "num_experts_per_tok", LS_HF_SIZE, AT(top_k), "2", NULL },
    { "norm_topk_prob", LS_HF_FLAG, AT(norm_topk), "true", NULL },
    { "lockstep_d_ff", LS_HF_COUNT, AT(d_ff), "0", NULL },
    { 0 },
};

/* Qwen2MoeForCausalLM. */
static const ls_hf_key qwen_json[] = {
    ALIKE("32768", "16", "10000.0", "1e-6"),
    { "intermediate_size", LS_HF_SIZE, AT(d_ff), "5632", NULL },
    { "moe_intermediate_size", LS_HF_SIZE, AT(d_expert), "1408", NULL },
    { "shared_expert_intermediate_size", LS_HF_SIZE, AT(shared_expert), "5632", NULL },
    { "num_experts", LS_HF_SIZE, AT(n_experts), "60", NULL },
    { "num_experts_per_tok", LS_HF_SIZE, AT(top_k), "4", NULL },
    { "norm_topk_prob", LS_HF_FLAG, AT(norm_topk), "false", NULL },
    { "qkv_bias", LS_HF_ONLY, 0, "true", NULL },
    { "decoder_sparse_step", LS_HF_ONLY, 0, "1", NULL },
    { "mlp_only_layers", LS_HF_ONLY, 0, "[]", "null" },
    { 0 },
};

static bool has_shared(const ls_lm_config *c) { return c->shared_expert > 0; }

/* --- all together -------------------------------------------------------------------------------------- */

static const ls_lm_class qwen = {
    .embedding = LS_LLAMA_EMBEDDING_UNIT,
    .head = LS_LLAMA_HEAD_UNIT,
    .block_at = block_at,
    .architecture = "Qwen2MoeForCausalLM",
    .model_type = "qwen2_moe",
    .prefix = "model.",
    .keys = qwen_json,
    .buffers = (const char *const[]){ ".rotary_emb.inv_freq", NULL },
    .rotary = true,
};

static const ls_lm_class lm = {
    .embedding = LS_LLAMA_EMBEDDING_UNIT,
    .head = LS_LLAMA_HEAD_UNIT,
    .block_at = block_at,
    .architecture = "MixtralForCausalLM",
    .model_type = "mixtral",
    .second = &qwen,
    .is_second = has_shared,
    .prefix = "model.",
    .keys = mixtral_json,
    .buffers = (const char *const[]){ ".rotary_emb.inv_freq", NULL },
    .rotary = true,
};

const ls_model_class ls_model_moe = {
    .name = "moe",
    .summary = "Llama with a mixture of experts: Mixtral's, and Qwen2-MoE's with a shared expert",
    .keys =
        (const char *const[]){ LS_LM_KEYS, "model.n_kv_head", "model.rope_theta", "model.n_experts", "model.top_k",
                               "model.d_expert", "model.shared_expert", "model.first_dense", "model.norm_topk",
                               "moe.capacity_factor", "moe.drop", "moe.aux_loss", "moe.z_loss", "moe.bias_rate",
                               "moe.force_expert", NULL },
    .presets = presets,
    .lm = &lm,
    .resolve = resolve,
    .count = count,
    .flops = flops,
    .create = create,
    .init = ls_lm_init_values,
    .input = ls_lm_input,
};
