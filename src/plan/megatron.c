/* megatron.c -- what Megatron-LM allocates on the last rank: states by owner, workspaces of libraries, and what is in
 * flight when the last stage computes the loss, which is the peak.
 *
 * Sizes are those of the code that allocates. cuBLAS has a workspace per thread that calls it, forward's and
 * autograd's: 32 MiB each on Hopper and later, and with deterministic algorithms; two of 4 MiB and eight of 16 KiB
 * else. Transformer Engine has one of 32 MiB from Hopper on (4 MiB before), and four more for grouped products.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/megatron.h"

enum { STAGES = 512, STREAMS = 5 };
static const double MIB = 1 << 20;

/* Rows say nothing of how a router divides tokens. Routers at the beginning of training, which these runs have, give
 * the experts of a rank up to a third more or less than the mean. */
static const double EXPERT_LOAD = 1.2;

typedef struct flags { /* what the command line and the image decide */
    bool sequence, local, flash, experts, gated, rms, bias, mla, deterministic, hopper, dropout, score_dropout;
    bool no_norms, no_up, no_mlp, no_activation; /* --recompute-modules */
    double h, q, kv, heads, w, f, fe, te, shared_f, K, E;
    double q_rank, kv_rank;  /* of latent attention; q_rank 0: queries are not compressed */
    double nope, rope, value; /* its head sizes */
    double mtp, t, e, c, p, micro, seq, V;
} flags;

static double round_up(double v, double to) { return ceil(v / to) * to; }

#define MOST_READ 100000 /* letters: repeats within repeats would never end */

/* A group ends at ')' or at the end of the text; a repeated one is read again. `left`: letters that may yet be read. */
static const char *group(const char *s, double *layers, int most, int *at, int depth, int *left)
{
    while (s && *s && *s != ')' && !isspace((unsigned char)*s)) {
        const char *begin = s;
        long times = 1;
        for (long done = 0; done < times; done++) {
            s = begin;
            if (--*left < 0) return NULL;
            if (*s == '(') {
                if (depth > 4) return NULL;
                s = group(s + 1, layers, most, at, depth + 1, left);
                if (!s || *s != ')') return NULL;
            } else if (*s == '|') {
                if (++*at >= most) return NULL;
                layers[*at] = 0;
            } else if (*s == 't') {
                layers[*at]++;
            } else if (!strchr("EmL", *s)) {
                return NULL;
            }
            s++;
            if (*s == '*') {
                char *end;
                times = strtol(s + 1, &end, 10);
                if (end == s + 1 || times < 1 || times > STAGES) return NULL;
                s = end;
            }
        }
    }
    return s;
}

int ls_megatron_layout(const char *text, double *layers, int most)
{
    int at = 0, left = MOST_READ;
    if (most < 1) return 0;
    layers[0] = 0;
    const char *end = group(text, layers, most, &at, 0, &left);
    return end && *end != ')' ? at + 1 : 0;
}

static flags flags_of(const ls_row *r, const ls_run *o)
{
    const ls_llm *m = &r->m;
    flags g = { .h = (double)m->hidden, .heads = (double)m->heads, .f = (double)m->ffn, .t = (double)o->t,
                .e = (double)o->e, .c = (double)o->c, .p = (double)o->p, .micro = (double)o->micro,
                .seq = (double)m->seq };
    g.w = ls_row_noted(r, "kv-channels=", g.h / g.heads);
    g.q = g.heads * g.w, g.kv = 2 * (double)(m->kv_heads ? m->kv_heads : m->heads) * g.w;
    g.E = ls_row_noted(r, "num-experts=", 0), g.experts = g.E > 0;
    g.gated = ls_row_notes(r, "swiglu"), g.rms = ls_row_notes(r, "RMSNorm");
    g.bias = !ls_row_notes(r, "disable-bias-linear"), g.mla = ls_row_notes(r, "multi-latent-attention");
    /* Megatron-LM's default width with a gate keeps the parameters of 4 h. */
    if (g.gated && !g.experts && m->ffn == 4 * m->hidden) g.f = floor(4 * g.h * 2 / 3 / 64) * 64;
    g.fe = ls_row_noted(r, "moe-ffn-hidden-size=", g.f);
    g.te = ls_row_noted(r, "expert-tensor-parallel-size=", g.t);
    g.shared_f = ls_row_noted(r, "moe-shared-expert-intermediate-size=", 0);
    g.K = ls_row_noted(r, "moe-router-topk=", 1);
    /* Where no flag states the sizes of latent attention: with experts DeepSeek's, which are Megatron-LM's defaults for
     * heads; else those of model_config.yaml in Megatron-LM's test of a dense model (gpt3_mcore_te_tp2_pp2_mla). */
    g.q_rank = ls_row_noted(r, "q-lora-rank=", g.experts ? 1536 : 192);
    g.kv_rank = ls_row_noted(r, "kv-lora-rank=", g.experts ? 512 : 64);
    g.nope = ls_row_noted(r, "qk-head-dim=", g.experts ? 128 : 16);
    g.rope = ls_row_noted(r, "qk-pos-emb-head-dim=", g.experts ? 64 : 8);
    g.value = ls_row_noted(r, "v-head-dim=", g.experts ? 128 : 16);
    g.mtp = ls_row_noted(r, "mtp-num-layers=", 0);
    g.V = round_up((double)m->vocab, ls_row_noted(r, "make-vocab-size-divisible-by=", 128) * g.t);
    g.sequence = ls_row_notes(r, "sequence-parallel"), g.local = ls_row_notes(r, "transformer-impl=local");
    g.deterministic = ls_row_notes(r, "deterministic-mode"), g.hopper = r->gpu[0] != 'A';
    g.dropout = !ls_row_notes(r, "hidden-dropout=0.0"), g.score_dropout = !ls_row_notes(r, "attention-dropout=0.0");
    /* Transformer Engine of the long-term support image has no deterministic attention in one kernel. */
    const bool old = strstr(r->source, "lts_") != NULL;
    g.flash = !g.local && !ls_row_notes(r, "attention-backend=unfused") && !(old && g.deterministic);
    const char *modules = strstr(r->note, "recompute-modules=[");
    if (modules) {
        char text[128] = "";
        const size_t n = strcspn(modules, "]");
        memcpy(text, modules, n < sizeof text - 1 ? n : sizeof text - 1);
        g.no_norms = strstr(text, "layernorm"), g.no_up = strstr(text, "mla_up_proj");
        g.no_mlp = strstr(text, "mlp"), g.no_activation = strstr(text, "moe_act");
    }
    return g;
}

/* Parameters per rank: of a layer without its experts, and of its experts. */
static double attention_params(const ls_row *r, const flags *g)
{
    const double norms = (g->rms ? 2 : 4) * g->h + (ls_row_notes(r, "qk-layernorm") ? 4 * g->w : 0);
    if (g->mla) {
        const double queries = g->heads * (g->nope + g->rope) / g->t;
        return (g->q_rank > 0 ? (g->h + queries) * g->q_rank : g->h * queries) + g->h * (g->kv_rank + g->rope) +
               g->kv_rank * g->heads * (g->nope + g->value) / g->t + g->heads * g->value * g->h / g->t + norms +
               (g->bias ? g->h : 0);
    }
    return g->h * (2 * g->q + g->kv) / g->t + norms + (g->bias ? (g->q + g->kv) / g->t + g->h : 0);
}

static double mlp_params(const flags *g)
{
    const double mats = g->gated ? 3 : 2;
    return mats * g->h * g->f / g->t + (g->bias ? (mats - 1) * g->f / g->t + g->h : 0);
}

static double router_params(const flags *g) { return g->E * g->h + (g->gated ? 3 : 2) * g->h * g->shared_f / g->t; }

static double expert_params(const flags *g) { return g->E / g->e * (g->gated ? 3 : 2) * g->h * g->fe / g->te; }

/* Bytes per token of a layer's activations, in 16 bits, where nothing but --recompute-modules is recomputed. */
static double layer_bytes(const flags *g, bool experts)
{
    const double norms = 2 * (2 * g->h + (g->no_norms ? 0 : 2 * g->h)) + (g->dropout ? 2 * g->h : 0);
    double core = 2 * (g->q + g->kv) + 2 * g->q;
    if (g->mla) core = (g->no_up ? 0 : 2 * g->heads * (2 * (g->nope + g->rope) + g->value)) + 2 * g->heads * g->value +
        2 * (g->q_rank + g->kv_rank + g->rope);
    if (g->c > 1) core += 2 * g->kv; /* the ring keeps a copy of keys and values */
    if (!g->flash) core += (g->score_dropout ? 5 : 2) * g->heads * g->seq;
    double mlp = g->no_mlp ? 0 : (g->gated ? 6 : 4) * g->f;
    if (experts) {
        /* The products' inputs and outputs, and the activation scaled by the router; each rank of an expert's tensor
         * parallel group gets the tokens of all. */
        const double wide = g->gated ? 4 : 2, inner = g->no_activation ? wide : wide + 4;
        mlp = EXPERT_LOAD * g->K * (inner * g->fe + g->te * 2 * g->h) + (g->gated ? 6 : 4) * g->shared_f;
    }
    return g->sequence ? (norms + core + mlp) / g->t : norms + (core + mlp) / g->t;
}

/* Layers of the last rank's chunks; returns how many chunks. */
static int chunks(const ls_row *r, const ls_run *o, const flags *g, double *layers)
{
    const char *text = strstr(r->note, "pipeline-model-parallel-layout=");
    double all[STAGES];
    const int stages = text ? ls_megatron_layout(strchr(text, '=') + 1, all, STAGES) : 0;
    if (stages >= o->p && stages % o->p == 0) {
        for (int i = 0; i < stages / (int)o->p; i++) layers[i] = all[(i + 1) * (int)o->p - 1];
        return stages / (int)o->p;
    }
    const bool loss = ls_row_notes(r, "account-for-loss"), first = ls_row_notes(r, "account-for-embedding");
    const int v = o->v > STAGES ? STAGES : o->v < 1 ? 1 : (int)o->v;
    for (int i = 0; i < v; i++) layers[i] = ((double)r->m.layers + loss + first) / (g->p * v);
    if (loss) layers[v - 1]--;
    return v;
}

void ls_megatron_memory_of(const ls_row *r, const ls_run *o, ls_megatron_memory *out)
{
    const flags g = flags_of(r, o);
    double layers[STAGES] = { 0 }, L = 0;
    const int v = chunks(r, o, &g, layers);
    for (int i = 0; i < v; i++) L += layers[i];
    /* Dense layers come first: those that the last rank has none of fill the other stages. */
    const double first = ls_row_noted(r, "moe-layer-freq=([0]*", 0);
    const double before = g.p > 1 ? (double)r->m.layers - L : 0;
    const double dense = !g.experts ? L : first > before ? fmin(first - before, L) : 0, sparse = L - dense;
    const double with = g.experts ? sparse + g.mtp : 0, without = g.experts ? dense : L + g.mtp;
    const double ends = g.V / g.t * g.h;
    double shared = (with + without) * attention_params(r, &g) + without * mlp_params(&g) + with * router_params(&g) +
        ends + (g.rms ? 1 : 2) * g.h + g.mtp * (2 * g.h * g.h / g.t + 3 * g.h);
    const double experts = with * expert_params(&g);
    const bool untied = ls_row_notes(r, "untie-embeddings");
    if (g.p == 1 && !ls_row_notes(r, "position-embedding-type=rope"))
        shared += ls_row_noted(r, "max-position-embeddings=", 0) * g.h;
    if (untied && (g.p == 1 || g.mtp > 0)) shared += ends; /* the embedding, too */

    *out = (ls_megatron_memory){ 0 };
    const bool half = strcmp(r->dtype, "fp16") == 0;
    /* A node of the row's devices may be the whole machine. */
    const double n = strstr(r->source, "_1node") && o->per_node < o->n ? (double)o->per_node : (double)o->n;
    if (r->zero >= 1) {
        const double copies = ls_row_noted(r, "num-distributed-optimizer-instances=", 1), d = n / (g.t * g.p);
        const double of_experts = fmax(1, n / g.p / (g.e * g.te));
        out->states = shared * (6 + 12 * copies / d) + experts * (6 + 12 * fmin(copies, of_experts) / of_experts);
    } else {
        /* In FP16, gradients are in 16 bits, and the optimizer copies them to 32 until the next step. */
        out->states = (shared + experts) * (half ? 20 : 18);
        if (half) out->freed = 4 * (shared + experts);
    }
    /* Weights in 8 bits, and their transposes, are kept from one micro-batch to the next. */
    if (strncmp(r->dtype, "fp8", 3) == 0) out->states += 2 * (shared + experts - ends);

    const bool overlapped = ls_row_notes(r, "overlap-moe-expert-parallel-comm");
    const double cublas = (g.hopper || g.deterministic ? 32 : 8.125) * MIB, engine = (g.hopper ? 32 : 4) * MIB;
    out->workspaces = (overlapped ? 4 : 2) * cublas;
    if (!g.local || g.experts) out->workspaces += engine * (ls_row_notes(r, "moe-grouped-gemm") ? STREAMS : 1);

    const double tokens = g.micro * g.seq / g.c, one = tokens * g.h;
    /* The attention mask of a batch, a byte each, and the tensors that each chunk received and sent last. */
    out->between = g.micro * g.seq * g.seq / g.c +
        (v > 1 ? 2 * v - 1 : g.p > 1 ? 2 : 0) * 2 * one / (g.sequence ? g.t : 1);
    /* Without Transformer Engine, scores have a buffer of their own. */
    if (g.local) out->between += 2 * g.micro * g.heads / g.t * g.seq * g.seq / g.c;
    const bool gathers = g.experts && !ls_row_notes(r, "moe-token-dispatcher-type=alltoall");
    if (gathers) out->between += 2 * one / g.t * g.te * g.e; /* tokens of all ranks that share experts */

    /* The last stage has one micro-batch of its last chunk in flight, and of the others one per stage. */
    const double per[2] = { tokens * layer_bytes(&g, false), tokens * layer_bytes(&g, true) };
    const double in_step = fmax(1, (double)o->batch / ((double)o->micro * (double)o->d));
    if (strcmp(r->recompute, "full") == 0) {
        out->kept = L * 2 * one / (g.sequence ? g.t : 1) + per[g.experts];
    } else {
        double left = dense;
        for (int i = 0; i < v; i++) {
            const double plain = fmin(left, layers[i]);
            out->kept += (i < v - 1 ? fmin(g.p, in_step) : 1) * (plain * per[0] + (layers[i] - plain) * per[g.experts]);
            left -= plain;
        }
        out->kept += g.mtp * per[g.experts];
    }
    out->logits = 6 * tokens * g.V / g.t;
}
