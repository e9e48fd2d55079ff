/* stage_memory.c -- states, activations and the rest of a rank of each stage. */
#include "plan/stage_memory.h"

#include "tensor/logits.h"

static double most(double a, double b) { return a > b ? a : b; }
static double least(double a, double b) { return a < b ? a : b; }

void ls_layer_memory_of(const ls_run *r, ls_layer_memory *o)
{
    const ls_llm *m = &r->m;
    const double h = (double)m->hidden, t = (double)r->t, e = r->e > 1 ? (double)r->e : 1, te = r->e > 1 ? 1 : t;
    const double norms = m->biases ? 4 * h : 2 * h, E = (double)m->experts, V = (double)m->vocab;
    const double one = E > 0 ? (double)ls_llm_expert_params(m) : 0, router = E * h;
    const int64_t tokens = m->seq * r->micro / r->c;
    const double n = (double)tokens, along = r->sequence_parallel ? t : 1;
    *o = (ls_layer_memory){
        .dense = ((double)ls_llm_layer_params(m, true) - norms) / t + norms,
        .ends = V * h / t, .positions = m->positions ? (double)m->seq * h : 0, .norm = m->biases ? 2 * h : h,
        .input = 2 * n * h / along, .logits = 6 * n * V / t,
        .slot = r->t == 1 && 4 * n * V <= LS_LOGITS_BYTES
                    ? 4 * n * V
                    : 4 * least(n, LS_LOGITS_EVAL_ROWS) * least(V / t, LS_LOGITS_BLOCK),
    };
    if (E > 0) {
        o->sparse = ((double)ls_llm_layer_params(m, false) - norms - router - E * one) / t + norms + router;
        o->expert = E / e * one / te;
    }
    const int64_t f = m->ffn ? m->ffn : 4 * m->hidden;
    const bool gpt = !m->gated && !m->experts && f == 4 * m->hidden && (!m->kv_heads || m->kv_heads == m->heads);
    const double sp = ls_layer_bytes(m, tokens, r->t, true), outside = 10 * n * h; /* of norms and dropouts */
    o->kept_dense = gpt ? ls_activation_bytes(m, r->micro, r->t, r->sequence_parallel, LS_KEEP_SELECTIVE) / (double)r->c
                        : r->sequence_parallel ? sp : sp + outside * (1 - 1 / t);
    o->kept_sparse = E > 0 ? ls_layer_bytes(m, tokens, r->t, false) + (r->sequence_parallel ? 0 : outside * (1 -
        1 / t)) : 0;
    o->scores = r->flash ? 0 : 5 * (double)m->heads * (double)m->seq * n / t;
}

/* Layers of block b of `blocks`, and how many of them are dense. */
static void block(const ls_run *r, int64_t b, int64_t blocks, ls_stage_shape *o)
{
    const ls_llm *m = &r->m;
    const int64_t L = m->layers + m->mtp, fewer = r->embedding_layers > 0 ? 1 : 0;
    const int64_t each = (L + 2 * fewer) / blocks;
    int64_t from = b * each - (b > 0 ? fewer : 0), to = (b + 1) * each - fewer - (b == blocks - 1 ? fewer : 0);
    const int64_t dense = m->experts ? m->dense_layers : L;
    if (blocks == 1) from = 0, to = L;
    const int64_t d = from >= dense ? 0 : (to < dense ? to : dense) - from;
    o->dense += d;
    o->sparse += to - from - d;
    o->first |= b == 0;
    o->last |= b == blocks - 1;
}

void ls_stage_shape_of(const ls_run *r, int i, ls_stage_shape *o)
{
    const int64_t p = r->p, v = r->v > 1 && p > 1 ? r->v : 1;
    const int64_t m = r->batch / (r->micro * r->d);
    *o = (ls_stage_shape){ .in_flight = ls_pipe_in_flight(r->form, (int)p, (int)v, m, i) };
    if (p > 1 && r->form == LS_PIPE_ZB_V) {
        block(r, i, 2 * p, o);
        block(r, 2 * p - 1 - i, 2 * p, o);
    } else if (p > 1 && r->form == LS_PIPE_DUALPIPE) {
        block(r, i, p, o);
        block(r, p - 1 - i, p, o);
        o->in_flight /= 2; /* its layers are those of two stages */
    } else {
        for (int64_t j = 0; j < v; j++) block(r, j * p + i, p * v, o);
    }
}

void ls_stage_memory_of(const ls_run *r, const ls_layer_memory *l, const ls_stage_shape *s, ls_stage_memory *o)
{
    const double dense = (double)s->dense, sparse = (double)s->sparse, d = (double)r->d * (double)r->c;
    const double e = r->e > 1 ? (double)r->e : 1, te = r->e > 1 ? 1 : (double)r->t;
    const double de = most(1, (double)r->t * d / (e * te)); /* ranks that have the same experts */
    double shared = dense * l->dense + sparse * l->sparse, experts = sparse * l->expert;
    if (s->first) shared += l->ends + l->positions;
    if (s->last) shared += (s->first && r->m.tied ? 0 : l->ends) + l->norm;
    const double w = r->zero >= 3 ? d : 1, g = r->zero >= 2 ? d : 1, k = r->zero >= 1 ? d : 1;
    const double we = r->zero >= 3 ? de : 1, ge = r->zero >= 2 ? de : 1, ke = r->zero >= 1 ? de : 1;
    /* Gradients are summed over micro-batches in 32 bits. */
    o->weights = 2 * (shared / w + experts / we);
    o->gradients = 4 * (shared / g + experts / ge);
    o->optimizer = 12 * (shared / k + experts / ke);
    const double all_dense = l->kept_dense + l->scores, all_sparse = l->kept_sparse + l->scores;
    if (r->kept == LS_KEEP_INPUTS)
        o->activations = s->in_flight * (dense + sparse) * l->input + (sparse > 0 ? most(all_sparse, dense > 0 ?
                                                                                     all_dense : 0) : all_dense);
    else if (r->kept == LS_KEEP_SELECTIVE)
        o->activations = s->in_flight * (dense * l->kept_dense + sparse * l->kept_sparse) + l->scores;
    else
        o->activations = s->in_flight * (dense * all_dense + sparse * all_sparse);
    o->logits = s->last ? l->logits : 0;
    if (s->last && r->p > 1 && r->form == LS_PIPE_GPIPE) o->logits += (s->in_flight - 1) * l->slot;
    o->gathered = r->zero >= 3 && d > 1 ? (2 * 2 + 4) * most(l->dense, l->sparse + l->expert) : 0;
    o->workspace = LS_WORKSPACE_BYTES;
    o->reserved = LS_RESERVED_BYTES;
    o->total = o->weights + o->gradients + o->optimizer + o->activations + o->logits + o->gathered + o->workspace +
        o->reserved;
    o->in_flight = s->in_flight;
    o->dense = dense;
    o->sparse = sparse;
}

double ls_fullest_stage(const ls_run *r, int *which)
{
    ls_layer_memory l;
    double full = 0;
    ls_layer_memory_of(r, &l);
    for (int i = 0; i < r->p; i++) {
        ls_stage_shape s;
        ls_stage_memory m;
        ls_stage_shape_of(r, i, &s);
        ls_stage_memory_of(r, &l, &s, &m);
        if (m.total <= full) continue;
        full = m.total;
        if (which) *which = i;
    }
    return full;
}
