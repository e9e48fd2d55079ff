/* memory.c -- the ledger of a published row: states by owner, activations in flight, logits, and workspaces.
 *
 * Workspaces are what libraries allocate beside the model. Their sizes are constants of a device and of the software
 * that the row names: cuBLAS has 8 MiB per handle on Ampere and 32 MiB on Hopper, Transformer Engine as much again,
 * and one per stream for grouped products.
 */
#include <math.h>
#include <string.h>

#include "plan/memory.h"
#include "plan/row_run.h"

typedef struct megatron { /* a row of Megatron-LM's continuous integration */
    double shared, experts;  /* parameters per rank of the last stage */
    double layers, tokens, V;
    bool flash, transformer_engine;
    int64_t t;
} megatron;

static double round_up(double v, double to) { return ceil(v / to) * to; }

static void last_stage(const ls_row *r, const ls_run *o, megatron *g)
{
    const ls_llm *m = &r->m;
    const double t = (double)o->t, h = (double)m->hidden, L = (double)m->layers, p = (double)o->p;
    const double w = ls_row_noted(r, "kv-channels=", (double)m->hidden / (double)m->heads);
    const double q = (double)m->heads * w, kv = 2 * (double)(m->kv_heads ? m->kv_heads : m->heads) * w;
    const bool bias = !ls_row_notes(r, "disable-bias-linear"), rms = ls_row_notes(r, "RMSNorm"), gated =
        ls_row_notes(r, "swiglu");
    const double mats = gated ? 3 : 2, experts = ls_row_noted(r, "num-experts=", 0);
    double f = (double)m->ffn;
    /* Megatron-LM's default width with a gate keeps the parameters of 4 h. */
    if (gated && experts == 0 && m->ffn == 4 * m->hidden) f = floor(4 * h * 2 / 3 / 64) * 64;
    const double fe = ls_row_noted(r, "moe-ffn-hidden-size=", f), te = ls_row_noted(r, "expert-tensor-parallel-size=",
            t);
    double layer = h * (q + kv) / t + q * h / t + (rms ? 2 : 4) * h + (bias ? (q + kv) / t + h : 0);
    if (ls_row_notes(r, "multi-latent-attention")) {
        const double rkv = ls_row_noted(r, "kv-lora-rank=", 32), dn = 128, dr = 64, dv = 128, a = (double)m->heads;
        layer = h * a * (dn + dr) / t + h * (rkv + dr) + rkv * a * (dn + dv) / t + a * dv * h / t + 2 * h + rkv +
            (bias ? h : 0);
    }
    if (ls_row_notes(r, "qk-layernorm")) layer += 4 * w;
    g->experts = 0;
    if (experts > 0) {
        layer += experts * h + mats * h * ls_row_noted(r, "moe-shared-expert-intermediate-size=", 0) / t;
        g->experts = experts / (double)o->e * mats * h * fe / te;
    } else {
        layer += mats * h * f / t + (bias ? (mats - 1) * f / t + h : 0);
    }
    g->V = round_up((double)m->vocab, 128 * t);
    g->layers = ls_row_notes(r, "account-for-loss") ? (L + 2) / p - 1 : L / p;
    const bool tied = !ls_row_notes(r, "untie-embeddings");
    g->shared = g->layers * layer + g->V / t * h + (rms ? h : 2 * h);
    if (o->p == 1) {
        if (!ls_row_notes(r, "position-embedding-type=rope")) g->shared +=
            ls_row_noted(r, "max-position-embeddings=", 0) * h;
        if (!tied) g->shared += g->V / t * h;
    }
    g->experts *= g->layers;
    g->tokens = (double)o->micro * (double)m->seq / (double)o->c;
    g->t = o->t;
    g->transformer_engine = !ls_row_notes(r, "transformer-impl=local");
    g->flash = g->transformer_engine && !ls_row_notes(r, "attention-backend=unfused");
}

static double workspace_mb(const ls_row *r, const megatron *g)
{
    const bool ampere = r->gpu[0] == 'A', experts = ls_row_notes(r, "num-experts=");
    if (!g->transformer_engine) return 80 + 65.0 / (double)g->t + (experts && !ampere ? 31 : 0);
    if (ls_row_notes(r, "moe-grouped-gemm")) return ampere ? 96 : 250;
    if (ampere) return !g->flash ? 82 : ls_row_notes(r, "deterministic-mode") ? 98 : 30;
    return 112;
}

/* Bytes of parameters, gradients and optimizer of the last stage, and workspaces. */
static double allocated(const ls_row *r, const ls_run *o, const megatron *g)
{
    const double d = (double)(o->d * o->c);
    double states = (g->shared + g->experts) * (strcmp(r->dtype, "fp16") == 0 ? 20 : 18);
    if (r->zero >= 1) {
        const double copies = ls_row_noted(r, "num-distributed-optimizer-instances=", 1);
        const double te = ls_row_noted(r, "expert-tensor-parallel-size=", (double)o->t);
        const double of_experts = fmax(1, (double)o->n / (double)o->p / ((double)o->e * te));
        states = g->shared * (6 + 12 * copies / d) + g->experts * (6 + 12 * fmin(copies, of_experts) / of_experts);
    }
    return states + 1e6 * workspace_mb(r, g);
}

/* Beside that, when the loss is computed: logits in 16 and 32 bits, and the activations in flight on the last stage. */
static double at_peak(const ls_row *r, const ls_run *o, const megatron *g)
{
    const ls_llm *m = &r->m;
    const double t = (double)o->t, h = (double)m->hidden, one = g->tokens * h;
    const bool sp = ls_row_notes(r, "sequence-parallel");
    const double fewer = 4 * (1 - (double)(m->kv_heads ? m->kv_heads : m->heads) / (double)m->heads); /* grouped keys */
    double layer = sp ? (34 - fewer) * one / t : one * (10 + (24 - fewer) / t);
    if (!g->flash) layer += 5 * (double)m->heads * (double)m->seq * g->tokens / t;
    if (ls_row_notes(r, "num-experts=")) {
        const double K = ls_row_noted(r, "moe-router-topk=", 1), fe = ls_row_noted(r, "moe-ffn-hidden-size=",
                (double)m->ffn);
        const double te = ls_row_noted(r, "expert-tensor-parallel-size=", t);
        layer += g->tokens / t * (K * (4 * h + 4 * fe * t / te) - 4 * (double)m->ffn);
    }
    double in_flight = ls_pipe_in_flight(o->form, (int)o->p, (int)o->v, o->batch / (o->micro * o->d), (int)o->p - 1);
    double kept = g->layers * layer * in_flight;
    if (strcmp(r->recompute, "full") == 0) kept = g->layers * 2 * one + layer;
    return kept + 6 * g->tokens * g->V / t;
}

/* The stage with the most states and activations; its inputs alone stay where all is recomputed. */
static double fullest_stage(const ls_row *r, const ls_run *o)
{
    const ls_llm *m = &r->m;
    const double L = (double)m->layers, h = (double)m->hidden, t = (double)o->t, d = (double)o->d;
    const double one = (double)m->seq * (double)o->micro * h / (double)o->c, per =
        (L + o->embedding_layers) / (double)o->p;
    const double grad = o->grad_bytes, V = (double)m->vocab * h / t;
    const int64_t in_step = o->batch > 0 ? o->batch / (o->micro * o->d) : 1 << 20;
    double most = 0;
    for (int i = 0; i < o->p; i++) {
        const bool end = i == 0 || i == o->p - 1;
        const double layers = end ? per - o->embedding_layers / 2 : per;
        const double params = layers * 12 * h * h / t + (end ? V : 0);
        const double states = params * ls_state_bytes(o->zero > 0 ? 1 : 0, grad, 12, o->zero > 0 ? (int64_t)d : 1);
        const double kept = ls_activation_bytes(m, o->micro, o->t, o->sequence_parallel, o->kept) / (double)o->c;
        double bytes = states + layers * kept * ls_pipe_in_flight(o->form, (int)o->p, (int)o->v, in_step, i);
        if (o->kept == LS_KEEP_INPUTS) bytes += ls_activation_bytes(m, o->micro, o->t, o->sequence_parallel,
                                                                    LS_KEEP_ALL);
        if (i == o->p - 1) bytes += 8 * one / h * (double)m->vocab / t;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Korthikanti et al. 2022: the first stage, with what an interleaved schedule has more of; dropout before it, norm and
 * logits where it is the last, too. */
static double korthikanti(const ls_row *r)
{
    const double h = (double)r->m.hidden, L = (double)r->m.layers, t = (double)r->t, p = (double)r->p, v = r->v > 1 ?
        (double)r->v : 1;
    const bool plain = ls_row_notes(r, "TP baseline");
    if (strcmp(r->metric, "param_grad_opt_gib") == 0) return 18 * (12 * L * h * h / p) / t;
    const ls_recompute_kind kept = plain ? LS_KEEP_ALL : LS_KEEP_SELECTIVE;
    const double interleaved = v > 1 ? 1 + (p - 1) / (p * v) : 1;
    return L * interleaved * ls_activation_bytes(&r->m, r->micro, r->t, !plain, kept);
}

ls_status ls_row_memory(const ls_row *r, double *value)
{
    ls_run o;
    const bool ci_allocated = strcmp(r->metric, "mem_allocated_bytes") == 0;
    if (strcmp(r->metric, "model_state_gb") == 0) {
        if (r->params <= 0 || r->d < 1 || r->zero < 0) return ls_fail(LS_UNSUPPORTED,
                                                                      "params, dp or zero_stage is not stated");
        *value = 1e-9 * r->params * ls_state_bytes((int)r->zero, 2, 12, r->d);
        return LS_OK;
    }
    if (strcmp(r->metric, "param_grad_opt_gib") == 0 || strcmp(r->metric, "activation_gib") == 0) {
        if (!r->m.layers || !r->m.hidden || !r->t || !r->p || !r->micro) return ls_fail(LS_UNSUPPORTED,
                "the layout is not stated");
        *value = korthikanti(r) / (1 << 30);
        return LS_OK;
    }
    if (ci_allocated || strcmp(r->metric, "mem_max_allocated_bytes") == 0) {
        megatron g = { 0 };
        if (strncmp(r->family, "megatron", 8) != 0) return ls_fail(LS_UNSUPPORTED,
                                                                   "flags of Megatron-LM are not stated");
        LS_TRY(ls_row_run(r, &o));
        last_stage(r, &o, &g);
        *value = allocated(r, &o, &g) + (ci_allocated ? 0 : at_peak(r, &o, &g));
        return LS_OK;
    }
    const bool fits = strcmp(r->metric, "fits_80gb") == 0, bloom = strcmp(r->family, "bloom") == 0;
    if (fits || (strcmp(r->metric, "peak_memory_gb") == 0 && (bloom || strncmp(r->family, "zb", 2) == 0))) {
        ls_row all = *r;
        if (!all.batch) all.batch = all.micro << 20; /* as many micro-batches as there is memory for */
        LS_TRY(ls_row_run(&all, &o));
        if (strcmp(r->schedule, "zb-2p") == 0) o.form = LS_PIPE_ZB_H2;
        if (bloom && o.grad_bytes == 4) o.grad_bytes = 6; /* in 16 bits, and added up in 32 */
        /* Bloom's numbers are of the device, with CUDA's context, NCCL's buffers and what the allocator has not given
         * out. */
        const double bytes = bloom ? 1.22 * fullest_stage(r, &o) + 2e9 : fullest_stage(r, &o);
        *value = fits ? bytes <= 80e9 : 1e-9 * bytes;
        return LS_OK;
    }
    return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
}
