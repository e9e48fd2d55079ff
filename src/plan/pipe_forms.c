/* pipe_forms.c -- pipeline schedules in closed form: time and micro-batches in flight (GPipe, PipeDream-Flush,
 * Megatron-LM's interleaving, Qi et al. 2023 and 2024, DeepSeek-AI 2024). */
#include "lockstep/plan.h"

double ls_pipe_seconds(ls_pipe_form f, const ls_pipe_costs *c)
{
    const double F = c->forward, D = c->input, W = c->weight, T = F + D + W, x = c->hop;
    const double p = c->p, m = (double)c->m, v = c->v > 1 ? c->v : 1;
    if (c->p <= 1) return m * T;
    switch (f) {
    case LS_PIPE_GPIPE: return (m + p - 1) * T + 2 * (p - 1) * x;
    /* p micro-batches are in flight, so a round trip of p T + 2 (p - 1) x serves p of them. */
    case LS_PIPE_1F1B: return (m + p - 1) * T + 2 * x * ((p - 1) * (m + p) / p - 1);
    case LS_PIPE_INTERLEAVED: return m * T + (p - 1) * T / v + ((2 * v - 1) * p - 2) * x;
    case LS_PIPE_ZB_H1: return m * T + (p - 1) * (F + D - W) + 4 * (p - 1) * x;
    case LS_PIPE_ZB_H2: return m * T + (p - 1) * (F + D - 2 * W) + 2 * (p - 1) * x;
    /* Forward and input gradients pass the pipeline before the last weight gradients. */
    case LS_PIPE_ZB_V: {
        const double path = (m + p - 1) * (F + D) + W;
        return path > m * T ? path : m * T;
    }
    case LS_PIPE_DUALPIPE: return m * T + (p / 2 - 1) * (T + D + W - 3 * W);
    }
    return m * T;
}

double ls_pipe_bubble_rate(ls_pipe_form f, const ls_pipe_costs *c)
{
    const double all = ls_pipe_seconds(f, c);
    return (all - (double)c->m * (c->forward + c->input + c->weight)) / all;
}

double ls_pipe_in_flight(ls_pipe_form f, int p, int v, int64_t m, int i)
{
    const double P = p, V = v > 1 ? v : 1, M = (double)m;
    double n = M;
    if (p <= 1) return 1;
    switch (f) {
    case LS_PIPE_GPIPE: break;
    case LS_PIPE_1F1B: n = P - i; break;
    case LS_PIPE_INTERLEAVED: n = (2 * (P - i - 1) + (V - 1) * P + 1) / V; break;
    case LS_PIPE_ZB_H1: n = P; break;
    case LS_PIPE_ZB_H2: n = 2 * P - 1; break;
    case LS_PIPE_ZB_V: n = P; break;
    case LS_PIPE_DUALPIPE: n = P + 1; break;
    }
    return n < M ? n : M;
}

void ls_pipe_1f1b_bounds(const double *forward, const double *backward, int p, int64_t m, double *least, double *most)
{
    double above = 0, slowest = 0; /* above: of the stages before, for one micro-batch */
    *least = 0;
    for (int i = 0; i < p; i++) {
        const double own = forward[i] + backward[i], through = above + (double)m * own;
        if (through > *least) *least = through;
        if (own > slowest) slowest = own;
        above += own;
    }
    *most = above + (double)(m - 1) * slowest;
}

/* With h = p / 2: 3 h - 1 forwards and as many backwards have no partner; 2 h - 1 of these backwards give the input's
 * gradient first and the weights' later. */
void ls_pipe_split_of(const ls_pipe_costs *c, double pair, ls_pipe_split *out)
{
    const double h = c->p / 2, B = c->input + c->weight;
    *out = (ls_pipe_split){
        .forward = (3 * h - 1) * c->forward,
        .bubble = (h - 1) * (pair + B - 3 * c->weight),
        .backward = h * B + (2 * h - 1) * c->input,
        .weight = (2 * h - 1) * c->weight,
        .pairs = ((double)c->m - 3 * h + 1) * pair,
    };
}
