/* experts.c -- what a step has routed to experts. */
#include "train/experts.h"

#include <string.h>

void ls_experts_begin(const ls_model *m)
{
    if (ls_moe_words(m)) memset(ls_moe_counts(m), 0, (size_t)ls_moe_words(m) * sizeof(double));
}

ls_status ls_experts_end(const ls_mesh *mesh, ls_model *m, bool balances)
{
    if (!ls_moe_words(m)) return LS_OK;
    if (ls_group_size(mesh->replicas) > 1)
        LS_TRY(ls_all_reduce(mesh->replicas, NULL, ls_moe_counts(m), (size_t)ls_moe_words(m), LS_F64, LS_SUM));
    if (balances && !ls_world_is_dry(mesh->w)) ls_moe_balance(m, ls_moe_counts(m));
    return LS_OK;
}

/* The busiest rank, and the mean. */
static void find_busiest(const double *busy_ns, int ranks, ls_experts_load *out)
{
    for (int r = 0; r < ranks && ranks > 1; r++) {
        out->mean += busy_ns[r] / ranks;
        if (!(busy_ns[r] > out->busy)) continue;
        out->busy = busy_ns[r];
        out->rank = r;
    }
}

bool ls_experts_load_of(const ls_model *m, const double *busy_ns, int ranks, ls_experts_load *out)
{
    const int64_t E = m->lm.n_experts;
    double all = 0, dropped = 0, layers = 0;
    *out = (ls_experts_load){ 0 };
    for (int l = 0; ls_moe_words(m) && l < m->lm.n_layer; l++) {
        const double *chosen = ls_moe_layer_words(m, ls_moe_counts(m), l), *sums = chosen + 2 * E;
        double mean = 0;
        for (int64_t e = 0; e < E; e++) {
            mean += chosen[e] / (double)E;
            dropped += chosen[E + e];
        }
        if (!(mean > 0)) continue; /* a dense layer */
        all += mean * (double)E;
        layers++;
        out->aux += sums[LS_MOE_AUX] / sums[LS_MOE_CALLS];
        out->z += sums[LS_MOE_Z] / sums[LS_MOE_CALLS];
        for (int e = 0; e < E; e++) {
            if (!(chosen[e] / mean > out->most)) continue;
            out->most = chosen[e] / mean;
            out->layer = l;
            out->expert = e;
        }
    }
    if (!(layers > 0)) return false;
    find_busiest(busy_ns, ranks, out);
    out->dropped = dropped / all;
    out->aux /= layers;
    out->z /= layers;
    return true;
}

static void table(const ls_model *m, const char *name, int64_t first, ls_text *out)
{
    ls_text_add(out, ", \"%s\": [", name);
    for (int l = 0; l < m->lm.n_layer; l++) {
        const double *v = ls_moe_layer_words(m, ls_moe_counts(m), l) + first;
        for (int64_t e = 0; e < m->lm.n_experts; e++) ls_text_add(out, "%s%.17g", e ? ", " : l ? ", [" : "[", v[e]);
        ls_text_add(out, "]");
    }
    ls_text_add(out, "]");
}

void ls_experts_json(const ls_model *m, const double *busy_ns, int ranks, ls_text *out)
{
    if (!ls_moe_words(m)) return;
    table(m, "moe/chosen", 0, out);
    table(m, "moe/dropped", m->lm.n_experts, out);
    ls_text_add(out, ", \"moe/busy_ms\": [");
    for (int r = 0; r < ranks; r++) ls_text_add(out, "%s%.3f", r ? ", " : "", busy_ns[r] * 1e-6);
    ls_text_add(out, "]");
}

/* Which expert comes after `last`, or first (-1), if those with more tokens come first; of equal ones the lower. */
static int next_chosen(const double *chosen, int64_t E, int last)
{
    int best = -1;
    for (int e = 0; e < E; e++) {
        const bool after = last < 0 || chosen[e] < chosen[last] || (!(chosen[e] > chosen[last]) && e > last);
        if (after && (best < 0 || chosen[e] > chosen[best])) best = e;
    }
    return best;
}

void ls_experts_words(const ls_model *m, const ls_experts_load *l, ls_text *out)
{
    const int64_t E = m->lm.n_experts;
    const double *chosen = ls_moe_layer_words(m, ls_moe_counts(m), l->layer), *dropped = chosen + E;
    const bool all = E <= LS_EXPERTS_SHOWN;
    double lost = 0;
    ls_text_add(out, "experts: largest load %.2fx the mean (layer %d, expert %d), dropped %.1f%%, balancing loss %.4f", l->most,
                l->layer, l->expert, 100.0 * l->dropped, l->aux);
    if (l->mean > 0)
        ls_text_add(out, "; busiest rank %d, %.2fx the mean (%.3g ms)", l->rank, l->busy / l->mean, l->busy * 1e-6);
    ls_text_add(out, "\nexperts of layer %d: tokens", l->layer);
    for (int e = 0; e < E; e++) lost += dropped[e];
    for (int i = 0, e = -1; i < E && i < LS_EXPERTS_SHOWN; i++) {
        e = all ? i : next_chosen(chosen, E, e);
        if (all) ls_text_add(out, " %.0f", chosen[e]);
        else ls_text_add(out, "%s %.0f of %d", i ? "," : "", chosen[e], e);
        if (lost > 0) ls_text_add(out, " (%.0f dropped)", dropped[e]);
    }
    if (!all) ls_text_add(out, " ... (%lld experts)", (long long)E);
}
