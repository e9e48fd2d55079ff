/* problem.c -- what a query means: which constants, which links, and which layouts are legal. */
#include <math.h>
#include <string.h>

#include "plan/predict.h"
#include "plan/problem.h"

const char *ls_refusal_text(ls_refusal r)
{
    static const char *const text[LS_REFUSE_COUNT] = {
        [LS_REFUSE_NONE] = "legal",
        [LS_REFUSE_HEADS] = "tp does not divide the heads",
        [LS_REFUSE_KV_HEADS] = "tp does not divide the key heads",
        [LS_REFUSE_WIDTH] = "tp does not divide the feed-forward width",
        [LS_REFUSE_EXPERTS] = "ep does not divide the experts",
        [LS_REFUSE_SEQUENCE] = "2 cp does not divide the sequence",
        [LS_REFUSE_ROWS] = "tp cp does not divide the sequence",
        [LS_REFUSE_LAYERS] = "pp does not divide the layers, nor two more",
        [LS_REFUSE_BATCH] = "dp does not divide the batch",
        [LS_REFUSE_NODE] = "no parts of these degrees fill a node",
        [LS_REFUSE_MICRO] = "the schedule needs other or more micro-batches",
        [LS_REFUSE_ZERO] = "ZeRO without replicas, or stage 2 with several micro-batches",
        [LS_REFUSE_WORLD] = "degrees are not the world's",
    };
    return r >= 0 && r < LS_REFUSE_COUNT ? text[r] : "";
}

static double scale(const ls_layout_query *q, ls_resource r) { return q->scale[r] > 0 ? q->scale[r] : 1; }

/* All adapters of a unit of this level: of the slowest one. */
static double slowest(const ls_topo *t, int level)
{
    double rate = ls_topo_uplink(t, level, 0);
    for (int i = 0; i < t->nslow; i++)
        if (t->slow[i].level == level) rate = fmin(rate, ls_topo_uplink(t, level, t->slow[i].unit));
    return rate;
}

static ls_status constants(const ls_layout_query *q, ls_problem *b)
{
    const ls_topo *t = q->topo;
    const ls_device_sheet *d = ls_device_sheet_find(t->device.name);
    if (!d)
        return ls_fail(LS_BAD_CONFIG, "topology %s: no constants for device '%s': expected a name that begins with "
                        "V100, A100, H100, H800, H200, B200, B300, GB200 or GB300; change device.name, or measure "
                        "rows of it and run `make fit`", t->name, t->device.name);
    if ((q->bits == 8 && d->peak8 <= d->peak16) || (q->bits == 4 && d->peak4 <= d->peak8))
        return ls_fail(LS_BAD_CONFIG, "%s has no products of %d bits that are faster than those of %d: expected --dtype "
                       "%s, or another device", t->device.name, q->bits, 2 * q->bits < 16 && d->peak8 > d->peak16 ? 8 : 16,
                       q->bits == 4 && d->peak8 > d->peak16 ? "bf16 or fp8" : "bf16");
    b->stack = ls_stack_of_device(d, q->model.experts > 0);
    b->device = *d;
    b->flash = d->name[0] != 'A' && d->name[0] != 'V';
    const double peak = t->device.flops_per_s > 0 ? t->device.flops_per_s / d->peak16 : 1;
    const double flops = peak * scale(q, LS_RES_FLOPS);
    b->device.peak16 *= flops, b->device.peak8 *= flops, b->device.peak4 *= flops;
    b->device.bytes_per_s *= scale(q, LS_RES_MEMORY_RATE);
    memcpy(b->k, ls_constants[b->stack], sizeof b->k);
    double links = ls_topo_port(t, 0, 0) / d->links, adapters = t->nlevels > 1 ? slowest(t, 1) / d->adapters : 1;
    links *= scale(q, LS_RES_LINKS), adapters *= scale(q, LS_RES_ADAPTERS);
    static const int latencies[] = { LS_K_TP_LATENCY, LS_K_SKEW, LS_K_HOP_LATENCY, LS_K_NET_LATENCY };
    static const int nccl_latencies[] = { LS_C_LL, LS_C_LL_RANK, LS_C_LL128, LS_C_LL128_RANK, LS_C_SIMPLE,
                                          LS_C_SIMPLE_RANK };
    b->k[LS_K_TP_RATE] *= links, b->k[LS_K_EXCHANGE] *= links;
    b->k[LS_K_NODE_RATE] *= adapters, b->k[LS_K_HOP_RATE] *= adapters, b->device.adapters *= adapters;
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) b->k[latencies[i]] *= scale(q, LS_RES_LATENCY);
    memcpy(b->coll, ls_coll_constants, sizeof b->coll);
    /* TP_RATE divides latencies, too: they are multiplied by as much, so that faster links do not shorten them. */
    for (int c = 0; c < LS_COLL_CLASSES; c++)
        for (size_t i = 0; i < sizeof nccl_latencies / sizeof *nccl_latencies; i++)
            b->coll[c][nccl_latencies[i]] *= links * scale(q, LS_RES_LATENCY);
    b->k[LS_K_LAUNCH] *= scale(q, LS_RES_LAUNCH);
    b->hop_in = 4 * links / adapters;
    b->level_net[0] = b->level_net[1] = 1;
    for (int l = 2; l < t->nlevels; l++) {
        const double each = slowest(t, l) / (double)ls_topo_unit_devices(t, l);
        b->level_net[l] = fmin(1, each / (slowest(t, 1) / (double)ls_topo_unit_devices(t, 1)));
    }
    return LS_OK;
}

/* Ranks fill nodes evenly; a sixteenth of a node may be idle, as in racks of 72 of which 64 work. */
static ls_status nodes(const ls_layout_query *q, ls_problem *b)
{
    const ls_topo *t = q->topo;
    const int64_t each = t->level[0].count, world = q->world, devices = ls_topo_devices(t);
    if (world < 1) return ls_fail(LS_BAD_CONFIG, "the world is %lld ranks; expected 1 or more", (long long)world);
    if (world > devices)
        return ls_fail(LS_BAD_CONFIG, "world %lld does not fit topology %s, which has %lld devices: take a smaller "
                        "world, or a larger topology (--units N: so many of its highest unit)", (long long)world,
                        t->name,
                       (long long)devices);
    if (world <= each) {
        b->node = world;
        return LS_OK;
    }
    for (b->node = each; b->node > 0 && (world % b->node != 0 || world / b->node > devices / each);) b->node--;
    if (b->node * 8 < each * 7) {
        const int64_t below = world / each * each, above = below + each;
        return ls_fail(LS_BAD_CONFIG, "world %lld does not fit topology %s: nodes of %lld devices are not filled "
                        "evenly; the nearest worlds that do are %lld and %lld", (long long)world, t->name,
                        (long long)each,
                       (long long)below, (long long)above);
    }
    return LS_OK;
}

ls_status ls_problem_of(const ls_layout_query *q, ls_problem *b)
{
    *b = (ls_problem){ .q = q };
    LS_TRY(ls_llm_check(&q->model));
    if (q->batch < 1) return ls_fail(LS_BAD_CONFIG, "the batch is %lld sequences; expected 1 or more",
        (long long)q->batch);
    if (q->top < 1 || q->top > LS_LAYOUT_TOP)
        return ls_fail(LS_INVALID, "%d plans; expected 1 to %d", q->top, LS_LAYOUT_TOP);
    LS_TRY(nodes(q, b));
    LS_TRY(constants(q, b));
    b->memory = q->memory > 0 ? q->memory : q->topo->device.memory_bytes;
    if (!(b->memory > 0))
        return ls_fail(LS_BAD_CONFIG, "topology %s does not state its device's memory: add device.memory, or give "
            "--memory",
                       q->topo->name);
    const unsigned usual = 1u << LS_PIPE_GPIPE | 1u << LS_PIPE_1F1B | 1u << LS_PIPE_INTERLEAVED | 1u << LS_PIPE_ZB_H1 |
                           1u << LS_PIPE_ZB_H2;
    b->schedules = q->schedules ? q->schedules : usual;
    return LS_OK;
}

ls_refusal ls_degrees_refused(const ls_problem *b, const ls_layout *l)
{
    const ls_llm *m = &b->q->model;
    const int64_t kv = m->kv_heads ? m->kv_heads : m->heads, f = m->ffn ? m->ffn : 4 * m->hidden;
    ls_schedule s[LS_SCHEDULES];
    if (l->t < 1 || l->p < 1 || l->c < 1 || l->e < 1 || l->d < 1 || l->t * l->p * l->c * l->d != b->q->world ||
        l->d % l->e != 0) return LS_REFUSE_WORLD;
    if (m->heads % l->t != 0) return LS_REFUSE_HEADS;
    if (!m->kv_rank && kv % l->t != 0) return LS_REFUSE_KV_HEADS;
    if ((!m->experts || m->dense_layers) && f % l->t != 0) return LS_REFUSE_WIDTH;
    if (m->experts && l->e == 1 && m->expert_ffn % l->t != 0) return LS_REFUSE_WIDTH;
    if (l->e > 1 && (!m->experts || m->experts % l->e != 0)) return LS_REFUSE_EXPERTS;
    if (l->c > 1 && m->seq % (2 * l->c) != 0) return LS_REFUSE_SEQUENCE;
    if (m->seq % (l->t * l->c) != 0) return LS_REFUSE_ROWS; /* with sequence parallelism */
    if (ls_schedules_of(b, l->p, s) == 0) return LS_REFUSE_LAYERS;
    return b->q->batch % l->d != 0 ? LS_REFUSE_BATCH : LS_REFUSE_NONE;
}

int ls_schedules_of(const ls_problem *b, int64_t p, ls_schedule out[LS_SCHEDULES])
{
    const int64_t L = b->q->model.layers + b->q->model.mtp;
    int n = 0;
    if (p == 1) {
        out[n++] = (ls_schedule){ LS_PIPE_1F1B, 1, 0 };
        return n;
    }
    for (int f = LS_PIPE_GPIPE; f <= LS_PIPE_DUALPIPE; f++) {
        if (!(b->schedules >> f & 1u) || (f == LS_PIPE_DUALPIPE && p % 2 != 0)) continue;
        const int64_t from = f == LS_PIPE_INTERLEAVED || f == LS_PIPE_ZB_V ? 2 : 1;
        const int64_t to = f == LS_PIPE_INTERLEAVED ? (L + 2) / p : from;
        for (int64_t v = from; v <= to; v++)
            for (int fewer = 0; fewer <= 2; fewer += 2)
                if ((L + fewer) % (p * v) == 0 && (L + fewer) / (p * v) > (fewer ? 1 : 0) && n < LS_SCHEDULES)
                    out[n++] = (ls_schedule){ (ls_pipe_form)f, v, fewer };
    }
    return n;
}

ls_refusal ls_schedule_refused(const ls_schedule *s, int64_t p, int64_t m)
{
    bool fits = true;
    if (p == 1) return LS_REFUSE_NONE;
    switch (s->form) {
    case LS_PIPE_GPIPE:
    case LS_PIPE_1F1B: break;
    case LS_PIPE_INTERLEAVED: fits = m % p == 0; break;
    case LS_PIPE_ZB_H1: fits = m >= p; break;
    case LS_PIPE_ZB_H2:
    case LS_PIPE_ZB_V: fits = m >= 2 * p; break;
    case LS_PIPE_DUALPIPE: fits = m >= 2 * p && m % 2 == 0; break;
    }
    return fits ? LS_REFUSE_NONE : LS_REFUSE_MICRO;
}

ls_refusal ls_zero_refused(int zero, int64_t replicas, int64_t m)
{
    return (zero > 0 && replicas == 1) || (zero == 2 && m > 1) ? LS_REFUSE_ZERO : LS_REFUSE_NONE;
}

bool ls_zero_searched(const ls_problem *b, int zero) { return !b->q->zeros || b->q->zeros >> zero & 1u; }

bool ls_kept_searched(const ls_problem *b, int kept)
{
    if (b->flash && kept == LS_KEEP_SELECTIVE) return false;
    return !b->q->kept || b->q->kept >> kept & 1u;
}

/* Of the rate of a node's adapters: over how many ranks in consecutive nodes a group reaches. */
static double net_of(const ls_problem *b, int64_t nodes)
{
    double net = 1;
    for (int l = 2; l < b->q->topo->nlevels; l++) {
        const int64_t per_unit = ls_topo_unit_devices(b->q->topo, l) / b->q->topo->level[0].count;
        if (nodes > per_unit) net = fmin(net, b->level_net[l]);
    }
    return net;
}

void ls_layout_place(const ls_problem *b, const ls_layout *l, ls_spans *o)
{
    const int64_t t_out = l->t / l->t_in, c_out = l->c / l->c_in, e_out = l->e / l->e_in;
    const int64_t d_out = l->d / l->e / l->d_in, p_out = l->p / l->p_in;
    const int64_t at_c = t_out * c_out, at_e = at_c * e_out, at_d = at_e * d_out;
    const double node = (double)b->node;
    /* A message uses one adapter where they are divided among devices. */
    const bool rails = b->q->topo->nlevels > 1 && b->q->topo->level[1].rails;
    *o = (ls_spans){
        .tensor_out = t_out > 1, .context_out = c_out > 1, .data_out = c_out * e_out * d_out > 1,
        .hop_out = l->p > 1 && l->p_in == 1 && b->q->world > b->node,
        .tensor_rings = node / (double)l->t_in, .context_rings = rails ? node : node / (double)l->c_in,
        .data_rings = node / (double)(l->c_in * l->e_in * l->d_in), .experts_in = (double)l->e_in,
        .tensor_net = net_of(b, t_out), .context_net = net_of(b, at_c), .exchange_net = net_of(b, at_e),
        .data_net = net_of(b, at_d), .hop_net = net_of(b, at_d * p_out), .hop_in = b->hop_in,
    };
}

void ls_layout_run(const ls_problem *b, const ls_layout *l, ls_run *o)
{
    *o = (ls_run){
        .m = b->q->model, .device = &b->device, .per_node = b->node, .node_devices = b->q->topo->level[0].count,
        .n = b->q->world, .t = l->t, .p = l->p, .v = l->v,
        .c = l->c, .e = l->e, .d = l->d, .micro = l->micro, .batch = b->q->batch, .zero = l->zero,
        .bits = b->q->bits ? b->q->bits : 16, .grad_bytes = l->zero >= 3 ? 4 : 2, .flash = b->flash,
        .sequence_parallel = l->t > 1, .kept = l->kept, .form = l->form, .embedding_layers = l->fewer, .coll = b->coll,
        .placed = true,
    };
    ls_layout_place(b, l, &o->at);
}
