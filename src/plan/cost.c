/* cost.c -- a step as products, traffic, collectives and a schedule. */
#include <math.h>
#include <string.h>

#include "plan/cost.h"

static const ls_device_sheet devices[] = {
    { "V100", 125e12, 125e12, 125e12, .90e12, 1, 80, 150e9, 100e9 },
    { "A100", 312e12, 312e12, 312e12, 1.935e12, 1, 108, 300e9, 200e9 },
    { "A100-40GB", 312e12, 312e12, 312e12, 1.555e12, 1, 108, 300e9, 200e9 },
    { "A100-80GB", 312e12, 312e12, 312e12, 2.039e12, 1, 108, 300e9, 200e9 },
    { "H100", 989e12, 1979e12, 1979e12, 3.35e12, 1, 132, 450e9, 400e9 },
    { "H100-96GB-HBM2e-500W", 989e12, 1979e12, 1979e12, 2.4e12, 0.9, 132, 450e9, 400e9 },
    { "H800", 989e12, 1979e12, 1979e12, 3.35e12, 1, 132, 450e9, 400e9 },
    { "H200", 989e12, 1979e12, 1979e12, 4.8e12, 1, 132, 450e9, 400e9 },
    { "B200", 2250e12, 4500e12, 9000e12, 8e12, 0.93, 148, 900e9, 400e9 },
    { "B300", 2250e12, 4500e12, 13500e12, 8e12, 1, 148, 900e9, 400e9 },
    { "GB200", 2500e12, 5000e12, 10000e12, 8e12, 1, 152, 900e9, 400e9 },
    { "GB300", 2500e12, 5000e12, 15000e12, 8e12, 1.17, 152, 900e9, 400e9 },
};

const ls_device_sheet *ls_device_sheet_find(const char *gpu)
{
    const ls_device_sheet *found = NULL;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        const size_t n = strlen(devices[i].name);
        if (strncmp(gpu, devices[i].name, n) == 0 && (!found || n > strlen(found->name))) found = &devices[i];
    }
    return found;
}

typedef struct ls_layer_part part;

/* A product [M, K] x [K, N] in tiles of 256 x 128, which the device's processors take in waves. */
static double product(const ls_run *r, const double *k, double M, double N, double K, double bits)
{
    const ls_device_sheet *d = r->device;
    const double peak = bits == 16 ? d->peak16 : bits == 8 ? d->peak8 : d->peak4;
    /* With a scale per row, casts and scales take what 8 bits gain. */
    const double low = k[LS_K_LOW] * (r->blocks ? k[LS_K_BLOCKS] : 1);
    const double rate = d->sustained * d->peak16 * (bits == 16 || r->row_scaled ? 1 : pow(peak / d->peak16, low));
    const double tiles = ceil(M / 256) * ceil(N / 128), waves = ceil(tiles / d->sms);
    const double fill = M * N / (tiles * 256 * 128) * tiles / (d->sms * waves);
    const double part_of_peak = k[LS_K_GEMM] * K / (K + k[LS_K_DEPTH]) * pow(fill, k[LS_K_WAVE]);
    const double flops = 2 * M * N * K / (rate * part_of_peak);
    const double bytes = 2 * (M * K + K * N + M * N) / d->bytes_per_s;
    return flops > bytes ? flops : bytes;
}

static double ring(double n, double bytes, double rate, double latency) { return (n - 1) * latency +
    (n - 1) / n * bytes / rate; }

/* Ranks in the runtime's order; keys and values of cp travel as if within a node, as the constants were fitted. */
static ls_spans usual(const ls_run *r)
{
    /* The constant is of nodes of eight devices; where a node is a rack, each of its devices has an adapter, too. */
    const double adapters = r->per_node > 8 ? (double)r->per_node / 8 : 1;
    return (ls_spans){
        .tensor_out = r->t > r->per_node, .data_out = r->t * r->c * r->d > r->per_node,
        .hop_out = r->n / r->p >= r->per_node, .tensor_rings = 1, .context_rings = 1,
        .data_rings = (double)(r->t < r->per_node ? r->t : r->per_node),
        .experts_in = (double)r->per_node, /* experts are not divided by tp, so ranks of ep are neighbors */
        .tensor_net = adapters, .context_net = adapters, .data_net = adapters, .exchange_net = adapters, .hop_net = 1,
        .hop_in = 4,
    };
}

static ls_spans spans(const ls_run *r) { return r->placed ? r->at : usual(r); }

/* Bytes per second of a ring of dp or cp inside a node: what was expected of NVLink of A100 beside other traffic (NCCL
 * alone reaches 244 GB/s), for all devices; the speed that is fitted moves it. */
static double ring_rate(const double *k) { return 150e9 * k[LS_K_TP_RATE]; }

/* Bytes per second that leave a node, for what ranks wait for: a fit may find more than adapters have, since traffic of
 * dp hides. Exchanges of experts are not limited so: routing sends fewer bytes than are counted. */
static double node_rate(const ls_run *r, const double *k)
{
    return fmin(1e9 * k[LS_K_NODE_RATE], r->device->adapters);
}

/* One collective of tp inside a node, in the time that NCCL alone takes over a fitted speed. */
static double in_node(const ls_run *r, const double *k, ls_coll coll, double bytes)
{
    ls_coll_run c;
    const int64_t whole = r->node_devices ? r->node_devices : r->per_node;
    if (!ls_coll_in_node(r->device->name, whole, coll, r->t, true, &c)) return INFINITY; /* no device of the sheets */
    c.bytes = bytes;
    return ls_coll_cost(&c, (r->coll ? r->coll : ls_coll_constants)[c.class]) / k[LS_K_TP_RATE];
}

/* How many collectives a sum over tp's ranks is: a reduce_scatter and an all_gather where they divide the sequence. */
static double calls_of_sum(const ls_run *r) { return r->sequence_parallel ? 2 : 1; }

static double tensor_sum(const ls_run *r, const double *k, const ls_spans *at, double bytes)
{
    if (r->t <= 1) return 0;
    const double t = (double)r->t;
    const double besides = calls_of_sum(r) * 1e-6 * (k[LS_K_TP_LATENCY] + k[LS_K_SKEW] * log2(t));
    if (at->tensor_out) {
        const double node = node_rate(r, k) * at->tensor_net / at->tensor_rings;
        return 2 * ring(t, bytes, fmin(node, ring_rate(k)), 1e-6 * k[LS_K_NET_LATENCY]) + besides;
    }
    if (r->sequence_parallel)
        return in_node(r, k, LS_REDUCE_SCATTER, bytes) + in_node(r, k, LS_ALL_GATHER, bytes) + besides;
    return in_node(r, k, LS_ALL_REDUCE, bytes) + besides;
}

/* Bytes per second of the ring that keys and values go round. */
static double context_rate(const ls_run *r, const double *k, const ls_spans *at)
{
    const double inside = ring_rate(k);
    const double outside = node_rate(r, k) * at->context_net / at->context_rings;
    return at->context_out && outside < inside ? outside : inside;
}

static double head_dim(const ls_llm *m) { return m->kv_rank ? (double)(m->nope_dim + m->rope_dim + m->v_dim) / 2 :
    (double)(m->head_dim ? m->head_dim : m->hidden / m->heads); }

static double mean_keys(const ls_llm *m)
{
    const double s = (double)m->seq, w = (double)m->window;
    if (!m->window || w >= s) return s;
    const double whole = m->window_every ? 1.0 / (double)m->window_every : 0;
    return whole * s + (1 - whole) * 2 * w; /* a causal mask halves all of it later */
}

/* True: its kernels do not fuse. */
static bool attention(const ls_run *r, const double *k, double M, part *out)
{
    const ls_llm *m = &r->m;
    const ls_device_sheet *d = r->device;
    const double a = (double)m->heads / (double)r->t, w = head_dim(m), n = mean_keys(m);
    if (r->flash) {
        /* A ring of contiguous parts waits for the rank of the last part, whose queries meet all keys. */
        const double slowest = r->unbalanced ? 2 - 1 / (double)r->c : 1;
        out->attention = slowest * 2 * M * n * a * w /
            (d->peak16 * d->sustained * k[LS_K_ATTENTION] * w / (w + 32) * 1.25);
        return false;
    }
    /* Kernels of Megatron-LM fuse for multiples of 4 pairs of sequence and head, and tensor cores want multiples of
     * 8. */
    const bool odd = (int64_t)w % 8 != 0 || (m->heads / r->t * r->micro) % 4 != 0;
    const double depth = w / (w + k[LS_K_DEPTH]) * (1 + k[LS_K_DEPTH] / 128);
    const double t = 4 * M * n * a * w / (d->peak16 * k[LS_K_ATTENTION] * depth) +
        2 * k[LS_K_SCORES] * M * n * a / d->bytes_per_s;
    out->attention = odd ? t * k[LS_K_ODD] : t;
    return odd;
}

/* Forward of one layer, split by what limits it. */
static part layer(const ls_run *r, const double *k, bool dense, bool *odd)
{
    const ls_llm *m = &r->m;
    const double M = (double)m->seq * (double)r->micro / (double)r->c, h = (double)m->hidden, t = (double)r->t;
    const double a = (double)m->heads, kv = (double)(m->kv_heads ? m->kv_heads : m->heads), w = head_dim(m);
    const double f = (double)(m->ffn ? m->ffn : 4 * m->hidden), wide = m->gated ? 2 : 1;
    part o = { 0 };
    if (m->kv_rank) {
        const double rq = (double)m->q_rank, rkv = (double)(m->kv_rank + m->rope_dim);
        const double up = product(r, k, M, a * (double)(m->nope_dim + m->rope_dim) / t, rq, r->bits) +
            product(r, k, M, a * (double)(m->nope_dim + m->v_dim) / t, (double)m->kv_rank, r->bits);
        o.products = product(r, k, M, rq + rkv, h, r->bits) + up +
                     product(r, k, M, h, a * (double)m->v_dim / t, r->bits);
        if (r->latent_again && r->kept != LS_KEEP_INPUTS) o.again = up;
    } else {
        o.products = product(r, k, M, (a + 2 * kv) * w / t, h, r->bits) + product(r, k, M, h, a * w / t, r->bits);
    }
    *odd = attention(r, k, M, &o);
    const double along = r->sequence_parallel ? t : 1;
    /* Inputs of products in fewer bits are read in 16 and written by rows and by columns; a compiler fuses that. */
    const double narrow = r->bits < 16 && !r->compiled ? 2 + 2 * r->bits / 8 : 0;
    double passes = 16 * h / along + 4 * (a + 2 * kv) * w / t + narrow * (h + a * w / t), unfused = 1;
    if (dense || !m->experts) {
        o.products += product(r, k, M, wide * f / t, h, r->bits) + product(r, k, M, h, f / t, r->bits);
        passes += (m->gated ? 6 : 4) * f / t + narrow * (h + f / t);
    } else {
        const double e = r->e > 1 ? (double)r->e : 1, fe = (double)m->expert_ffn, K = (double)m->topk, E =
            (double)m->experts;
        const double load = m->load > 0 ? m->load : 1, local = E / e, each =
            M / t * K * load * e / E * (r->e > 1 ? 1 : t);
        const double te = r->e > 1 ? 1 : t;
        o.products += local * (product(r, k, each, wide * fe / te, h, r->bits) +
                               product(r, k, each, h, fe / te, r->bits));
        if (m->shared)
            o.products += product(r, k, M, wide * fe * (double)m->shared / t, h, r->bits) +
                          product(r, k, M, h, fe * (double)m->shared / t, r->bits);
        if (r->unfused) unfused = k[LS_K_UNFUSED];
        /* A fused gate reads two values and writes one. GPT-OSS's adds a bias to both, clamps each, scales, takes the
         * sigmoid, multiplies, adds 1 and multiplies again: eight kernels, 40 bytes. */
        const double gate = r->clamped ? 40 * k[LS_K_EAGER] : m->gated ? 6 : 4;
        passes += M > 0 ? K / t * (k[LS_K_ROUTE] * 2 * h + gate * fe + narrow * (h + fe)) : 0;
    }
    o.traffic = unfused * (r->eager ? k[LS_K_EAGER] : 1) * k[LS_K_ELEMENTWISE] * M * passes / r->device->bytes_per_s;
    return o;
}

/* Collectives of tp and cp in a layer's forward. */
static double layer_tensor(const ls_run *r, const double *k, const ls_spans *at)
{
    const ls_llm *m = &r->m;
    const double M = (double)m->seq * (double)r->micro / (double)r->c, h = (double)m->hidden, t = (double)r->t;
    const double kv = (double)(m->kv_heads ? m->kv_heads : m->heads), w = head_dim(m);
    /* An all_reduce is a reduce_scatter, in 16 bits, and an all_gather; both are timed with the mean of their bytes. */
    const double bytes = r->gathers_narrow ? 1 + r->bits / 16 : 2;
    double o = (r->async_tensor ? .5 : 1) * 2 * tensor_sum(r, k, at, bytes * M * h);
    if (r->c > 1) /* keys and values of the other ranks; a part of it hides */
        o += (1 - k[LS_K_HIDDEN]) * 4 * ((double)r->c - 1) * M * kv * w / t / context_rate(r, k, at);
    return o;
}

/* All_to_alls of ep in the forward of a layer with experts. */
static double layer_exchange(const ls_run *r, const double *k, const ls_spans *at)
{
    const ls_llm *m = &r->m;
    const double M = (double)m->seq * (double)r->micro / (double)r->c, h = (double)m->hidden, t = (double)r->t;
    const double e = r->e > 1 ? (double)r->e : 1, K = (double)m->topk;
    if (r->e <= 1) return 0;
    const double load = m->load > 0 ? m->load : 1; /* of the slowest rank, as of its products */
    const double bytes = 2 * M / t * K * h * load * (e - 1) / e, inside = at->experts_in;
    const double net = 1e9 * k[LS_K_NODE_RATE] / (double)r->per_node * at->exchange_net;
    const double out = e > inside ? (e - inside) / e : 0;
    return 2 * (bytes / (1e9 * k[LS_K_EXCHANGE]) + out * bytes / net);
}

/* Kernels wait in a queue: a layer takes the time of the device or of the processor that launches them. */
static double launched(double gpu, double cpu) { return fmax(gpu, cpu); }

/* Bytes per second of a ring of dp: rings of a node share its adapters. */
static double data_rate(const double *k, const ls_spans *at, double *latency)
{
    const double inside = ring_rate(k);
    *latency = 1e-6 * k[LS_K_TP_LATENCY] / 8;
    if (!at->data_out) return inside;
    *latency = 1e-6 * k[LS_K_NET_LATENCY];
    const double outside = 1e9 * k[LS_K_NODE_RATE] / at->data_rings * at->data_net;
    return outside < inside ? outside : inside;
}

static double tokens(const ls_run *r) { return (double)r->m.seq * (double)r->micro / (double)r->c; }

static double micro_batches(const ls_run *r) { return (double)r->batch / ((double)r->micro * (double)r->d); }

void ls_layer_work_of(const ls_run *r, const double *k, ls_layer_work *o)
{
    const ls_llm *m = &r->m;
    const double t = (double)r->t, M = tokens(r), h = (double)m->hidden, bw = r->device->bytes_per_s;
    const double dense = m->experts ? (double)m->dense_layers : (double)m->layers, sparse = (double)m->layers - dense +
        (double)m->mtp;
    const double V = (double)m->vocab, unaligned = r->unaligned ? k[LS_K_UNALIGNED] : 1;
    const double experts = m->experts ? sparse * (double)m->experts * (double)ls_llm_expert_params(m) : 0;
    const double all = (double)ls_llm_params(m), ends = 2 * V * h;
    bool unused;
    *o = (ls_layer_work){
        .cost = {
            .head = (1 + (double)m->mtp) *
                    (3 * unaligned * product(r, k, M, V / t, h, 16) + 4 * k[LS_K_LOSS] * M * V / t / bw),
            .layers = dense + sparse, .sparse = sparse,
            .shared = all - experts - (m->tied ? ends / 2 : ends), .expert = experts, .ends = V * h,
        },
    };
    o->dense = layer(r, k, true, &o->odd);
    o->sparse = m->experts ? layer(r, k, false, &unused) : o->dense;
}

void ls_layer_cost_with(const ls_run *r, const double *k, const ls_layer_work *work_of, ls_layer_cost *o)
{
    const ls_spans at = spans(r);
    const part A = work_of->dense, B = work_of->sparse;
    const double t = (double)r->t;
    const double sparse = work_of->cost.sparse, L = work_of->cost.layers, x = (L - sparse) / L, y = 1 - x;
    const double work = x * (A.products + A.traffic) + y * (B.products + B.traffic), att = x * A.attention +
        y * B.attention;
    const double each = layer_tensor(r, k, &at), one = r->m.experts ? layer_exchange(r, k, &at) : 0;
    const double tensor = x * each + y * each, exchange = y * one;
    const double sockets = t > 1 && 2 * t > (double)r->per_node ? 1 + k[LS_K_JITTER] : 1;
    const double cpu = 1e-6 * k[LS_K_LAUNCH] * sockets * (work_of->odd ? k[LS_K_ODD_LAUNCH] : 1);
    const double calls = t > 1 ? calls_of_sum(r) * 2e-6 * k[LS_K_CALL] : 0; /* two sums forward, and two backward */
    /* A layer's forward and backward; attention's backward is 2.5 times forward in one kernel. */
    const double comm = tensor + exchange;
    const double products = x * A.products + y * B.products, traffic = work - products;
    *o = work_of->cost;
    const double gap = r->flash ? 0 : 1e-6 * k[LS_K_GAP]; /* attention in one kernel: few kernels, and long ones */
    const double forward = work + att + comm + gap;
    const double again = x * A.again + y * B.again;
    const double backward = 2 * k[LS_K_BACKWARD] * products + again + 1.5 * traffic + (r->flash ? 2.5 : 2) * att +
        comm + 1.5 * gap;
    o->fwd = launched(forward, cpu + calls) - comm;
    o->bwd = launched(backward, 1.5 * cpu + calls) - comm;
    /* A recomputed forward waits in one queue with its backward. */
    o->again = fmax(0, launched(forward + backward, 2.5 * cpu + 2 * calls) - 2 * comm - o->bwd);
    o->products = products, o->attention = att, o->tensor = tensor, o->exchange = exchange;
    if (r->paired) { /* the exchanges of both hide behind what the other 112 of 132 processors compute */
        const double slower = 132.0 / 112;
        o->fwd *= slower, o->bwd *= slower, o->again *= slower, o->products *= slower, o->attention *= slower;
        o->exchange = fmax(0, exchange - (o->fwd + o->bwd) / 2);
    }
}

void ls_layer_cost_of(const ls_run *r, const double *k, ls_layer_cost *o)
{
    ls_layer_work w;
    ls_layer_work_of(r, k, &w);
    ls_layer_cost_with(r, k, &w, o);
}

/* What the slowest stage computes beyond the mean number of layers. The last stage computes the logits; stages that
 * count them as layers share them. Where p does not divide the layers, some stages have one layer more than others,
 * and the last stage is one of the others. */
static double extra_of_slowest(const ls_run *r, const ls_layer_cost *l, double layers, double layer)
{
    if (r->embedding_layers > 0) return l->head / (double)r->p;
    return fmax((ceil(layers) - layers) * layer, l->head - (layers - floor(layers)) * layer);
}

/* In a schedule without a bubble the last stage begins p - 1 forwards after the first, and ends as much later. The next
 * step begins on the first stage meanwhile, unless its optimizer waits for all stages. */
static double late_stages(const ls_run *r, double forward)
{
    const bool full = r->form == LS_PIPE_ZB_H2 || r->form == LS_PIPE_ZB_V;
    return r->one_end && full ? (double)(r->p - 1) * forward : 0;
}

double ls_step_cost_bound(const ls_run *r, const double *k, const ls_layer_cost *l)
{
    const double per_stage = l->layers / (double)r->p;
    const double stage = per_stage * (l->fwd + l->bwd + 2 * (l->tensor + l->exchange)) + 2e-3 * k[LS_K_MICRO];
    return (1 - 1e-9) * (micro_batches(r) * (stage + l->head / (double)r->p) + 1e-3 * k[LS_K_STEP]);
}

void ls_step_cost_from(const ls_run *r, const double *k, const ls_layer_cost *l, ls_step_cost *o)
{
    const ls_llm *m = &r->m;
    const ls_spans at = spans(r);
    const double p = (double)r->p, t = (double)r->t, M = tokens(r), h = (double)m->hidden;
    const double m_n = micro_batches(r), bw = r->device->bytes_per_s;
    const double per_stage = (l->layers + r->embedding_layers) / p;
    const double fwd = l->fwd, bwd = l->bwd, tensor = l->tensor, exchange = l->exchange, products = l->products;
    const double some = r->per_op ? fmax(0, fwd - l->attention - products / 2) : r->flash ? 0 : l->attention;
    const double again = r->kept == LS_KEEP_INPUTS ? l->again : r->kept == LS_KEEP_SELECTIVE ? some : 0;
    const double again_comm = r->kept == LS_KEEP_INPUTS ? tensor + exchange : 0;
    const double micro = 2e-3 * k[LS_K_MICRO] * (r->waits_per_chunk && r->v > 1 ? (double)r->v : 1);
    const double ls = per_stage;
    const double layer = fwd + bwd + again + 2 * (tensor + exchange) + again_comm, body = ls * layer + micro;
    const double extra = extra_of_slowest(r, l, ls, layer), slow = body + extra;
    /* Of the other stages: the mean of what the slowest leaves them. */
    const double fewer = r->embedding_layers > 0 ? slow : r->p > 1 ? body + (l->head - extra) / (p - 1) : body;
    const double hop_rate = 1e9 * k[LS_K_HOP_RATE] * (at.hop_out ? at.hop_net : at.hop_in);
    const double hop = r->p > 1 ? 1e-6 * k[LS_K_HOP_LATENCY] + 2 * M * h / (r->sequence_parallel ? t : 1) / hop_rate :
        0;
    const double W = ls * k[LS_K_BACKWARD] * products, F = ls * (fwd + tensor + exchange), D =
        ls * (bwd + tensor + exchange) - W;
    *o = (ls_step_cost){ .forward = F, .input = D, .weight = W, .again = ls * (again + again_comm), .hop = hop,
        .stage_layers = ls };
    const double part_again = ls * again / slow, part_tensor = ls * (2 * tensor +
                                                                     (r->kept == LS_KEEP_INPUTS ? tensor : 0)) / slow;
    const double part_exchange = ls * (2 * exchange + (r->kept == LS_KEEP_INPUTS ? exchange : 0)) / slow;
    const double part_micro = micro / slow;
    const double busy = m_n * slow;
    double pipeline = busy;
    if (r->p > 1) {
        /* The slowest stage is busy for all micro-batches; the others fill and drain. */
        ls_pipe_costs c = { F, fewer - F - W, W, 0, (int)r->p, (int)(r->v > 1 ? r->v : 1),
            (int64_t)(m_n > 1 ? m_n : 1) };
        const double idle = ls_pipe_seconds(r->form, &c) - (double)c.m * fewer, bubble = idle > 0 ? idle : 0;
        c.hop = hop;
        o->hops = ls_pipe_seconds(r->form, &c) - (double)c.m * fewer - idle;
        o->bubble = bubble + late_stages(r, F);
        pipeline = busy + o->bubble + o->hops;
    }
    o->compute = busy * (1 - part_again - part_tensor - part_exchange - part_micro);
    o->recompute = busy * part_again;
    o->tensor = busy * part_tensor;
    o->exchange = busy * part_exchange;
    /* Parameters per rank of the fullest stage. */
    const double shared = l->shared / p / t + l->ends / t;
    const double own = l->expert / p / (r->e > 1 ? (double)r->e : t);
    double latency;
    const double rate = data_rate(k, &at, &latency), d = (double)r->d * (double)r->c;
    double comm = 0;
    if (d > 1) {
        /* Experts have a replica per d / e ranks; without ep, every rank of dp has all of them. */
        const double replicas = r->e > 1 ? fmax(1, d / (double)r->e) : d;
        comm = 2 * ring(d, r->grad_bytes * shared, rate, latency);
        if (l->sparse > 0 && replicas > 1) comm += 2 * ring(replicas, r->grad_bytes * own, rate, latency);
        if (r->whole_sums && r->zero >= 1) comm += ring(d, 2 * shared, rate, latency);
        if (r->zero >= 3) {
            /* Each unit is gathered forward and backward, and its gradient scattered, per micro-batch. */
            const double units = per_stage * p;
            comm = m_n * (3 * (d - 1) / d * 2 * (shared + own) / rate +
                          3 * units * 1e-6 * k[LS_K_NET_LATENCY] * log2(d));
        }
    }
    const double window = r->zero >= 3 ? busy : slow * .6;
    const double hidden = r->late_sums ? 0 : fmin(k[LS_K_HIDDEN] * comm, window);
    o->data = comm - hidden;
    const double divided = r->zero >= 1 ? d : 1;
    o->update = k[LS_K_UPDATE] * 36 * (shared / divided + own / (r->zero >= 1 && d > (double)r->e ?
                                                                 d / (r->e > 1 ? (double)r->e : 1) : 1)) / bw;
    o->overhead = busy * part_micro + 1e-3 * k[LS_K_STEP];
    o->total = pipeline + o->data + o->update + 1e-3 * k[LS_K_STEP];
    if (!(r->slowdown > 0)) return;
    double *const parts[] = { &o->compute, &o->recompute, &o->tensor, &o->exchange, &o->bubble, &o->hops, &o->data,
        &o->update, &o->overhead, &o->total };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] *= 1 + r->slowdown;
}

void ls_step_cost_of(const ls_run *r, const double *k, ls_step_cost *out)
{
    ls_layer_cost l;
    ls_layer_cost_of(r, k, &l);
    ls_step_cost_from(r, k, &l, out);
}
