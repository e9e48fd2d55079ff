/* ledger.c -- bytes of states and activations (Rajbhandari et al. 2020, Korthikanti et al. 2022). */
#include "lockstep/plan.h"

double ls_state_bytes(int zero_stage, double grad, double state, int64_t d)
{
    const double D = (double)d;
    switch (zero_stage) {
    case 0: return 2 + grad + state;
    case 1: return 2 + grad + state / D;
    case 2: return 2 + (grad + state) / D;
    default: return (2 + grad + state) / D;
    }
}

double ls_activation_bytes(const ls_llm *m, int64_t b, int64_t t, bool sequence_parallel, ls_recompute_kind kept)
{
    const double one = (double)m->seq * (double)b * (double)m->hidden, T = (double)t;
    const double scores = kept == LS_KEEP_ALL ? 5.0 * (double)m->heads * (double)m->seq / (double)m->hidden : 0;
    if (kept == LS_KEEP_INPUTS) return one * (sequence_parallel ? 2 / T : 2);
    return one * (sequence_parallel ? (34 + scores) / T : 10 + (24 + scores) / T);
}

double ls_latent_bytes(const ls_llm *m, int64_t tokens, int64_t t, bool again)
{
    const double a = (double)m->heads, qk = (double)(m->nope_dim + m->rope_dim), v = (double)m->v_dim;
    const double compressed = (double)(m->q_rank + m->kv_rank + m->rope_dim);
    if (!m->kv_rank) return 0;
    return (double)tokens / (double)t * (2 * compressed + (again ? 0 : 2 * a * (2 * qk + v)) + 2 * a * v + 4 * a);
}

double ls_layer_bytes(const ls_llm *m, int64_t tokens, int64_t t, bool dense)
{
    const double h = (double)m->hidden, a = (double)m->heads, k = (double)(m->kv_heads ? m->kv_heads : m->heads);
    const double w = (double)(m->head_dim ? m->head_dim : m->hidden / m->heads), n = (double)tokens / (double)t;
    const double f = (double)(m->ffn ? m->ffn : 4 * m->hidden), fe = (double)m->expert_ffn;
    double attention = 2 * w * (a + 2 * k) + 2 * a * w + 4 * a;
    if (m->kv_rank) attention = ls_latent_bytes(m, 1, 1, false);
    double mlp = (m->gated ? 6 : 4) * f;
    if (m->experts && !dense) {
        const double load = m->load > 0 ? m->load : 1, per = 4 * h + (m->gated ? 6 : 4) * fe;
        mlp = per * ((double)m->topk * load + (double)m->shared) + 4 * (double)m->experts;
    }
    /* Both norms' inputs and outputs. */
    return n * (8 * h + attention + mlp);
}
