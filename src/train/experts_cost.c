/* experts_cost.c -- operations and bytes of a layer of experts, by formula. */
#include "train/experts_cost.h"

#include "lockstep/dtype.h"

/* Bytes of a product's two operands and its result; each of forward and both halves of backward has the same three. */
static double operands(double rows, double in, double out, double experts)
{
    return rows * (in + out) + experts * in * out;
}

void ls_experts_cost_of(const ls_lm_config *c, const ls_experts_layout *l, ls_experts_cost *out)
{
    *out = (ls_experts_cost){ 0 };
    if (c->n_experts == 0) return;
    const double bytes = (double)ls_dtype_size(l->dtype), C = (double)c->d_model, F = (double)c->d_expert / l->tp;
    const double rows = (double)(l->tokens * c->top_k), here = (double)c->n_experts / l->ep, micros = (double)l->micros;
    const double away = (double)(l->ep - 1) / l->ep;
    out->rows = l->tokens * c->top_k;
    out->flops = 3 * 3 * 2 * rows * C * F;
    out->memory = 3 * bytes * micros * (2 * operands(rows / micros, C, F, here) + operands(rows / micros, F, C, here));
    out->sent = away * (4 * rows * C * bytes + micros * 8 * (double)c->n_experts);
}

double ls_experts_balance(const ls_experts_cost *k, double peak_gflops)
{
    return k->flops > 0 ? k->sent * peak_gflops / k->flops : 0;
}

static const char *bound(double balance, double link) { return link < balance ? "the network" : "computing"; }

void ls_experts_cost_words(const ls_experts_cost *k, double peak_gflops, const ls_cost *here, ls_level level,
                           ls_text *out)
{
    const double balance = ls_experts_balance(k, peak_gflops), link = 1 / here->link[level].beta_ns,
                 slow = 1 / ls_cost_preset.link[LS_LEVEL_NETWORK].beta_ns;
    char memory[32], sent[32];
    ls_text_add(out, "experts: per rank, layer and step, in balance: %.3g MFLOP, %s through memory (%.3g FLOP per byte)",
                k->flops * 1e-6, ls_bytes_text(k->memory, memory, sizeof memory), k->flops / k->memory);
    if (!(k->sent > 0)) {
        ls_text_add(out, ", nothing sent (ep 1)");
        return;
    }
    ls_text_add(out, ", %s sent (%.3g FLOP per byte)", ls_bytes_text(k->sent, sent, sizeof sent), k->flops / k->sent);
    if (!(peak_gflops > 0)) return;
    ls_text_add(out, "\nexperts: bound by the network on a link below %.3g GB/s, else by computing; here (%s, %.3g GB/s) %s bounds "
                "them, on a network of %.3g GB/s %s", balance, ls_level_name(level), link, bound(balance, link), slow, bound(balance, slow));
}
