/* stage.c -- a model in stages: which units each has, and what passes from one to the next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lockstep/model.h"
#include "model/lm.h"

/* --- costs ----------------------------------------------------------------------------------- */

/* What is known of a unit without its data. */
typedef struct looked {
    double flops;  /* of forward; backward has twice as many in every unit */
    ls_tensor out; /* shape of what leaves it, of one sample */
} looked;

/* Tokens of the shortest sequence that ranks can divide. */
static int64_t fewest_tokens(const ls_model *m)
{
    const int64_t tokens =
        (m->place.sequence_parallel ? m->place.tp.size : 1) * (ls_divides(&m->place.cp) ? 2 * m->place.cp.size : 1);
    return tokens <= m->lm.seq_len ? tokens : m->lm.seq_len > 0 ? m->lm.seq_len : 1;
}

/* One sample of so many tokens through all units, on a dry tape. */
static ls_status look(const ls_model *whole, int64_t tokens, looked *unit)
{
    ls_model alone = *whole;
    ls_model_input in;
    ls_tape *t;
    alone.place = ls_place_alone(&whole->place);
    LS_TRY(ls_tape_create_dry(&t));
    ls_tape_set_grad(t, false);
    alone.cls->input(&alone, 1, tokens, &in);
    ls_pass pass = ls_model_pass(&alone);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    pass.labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    pass.output = LS_OUTPUT_LOSS;
    for (int i = 0; i < alone.units.n && ls_tape_status(t) == LS_OK; i++) {
        const double before = ls_tape_flops(t);
        x = ls_units_forward(&alone.units, i, 1, t, x, &pass);
        unit[i].flops = ls_tape_flops(t) - before;
        if (x) unit[i].out = *x;
    }
    const ls_status st = ls_tape_status(t);
    ls_tape_destroy(t);
    return st;
}

/* --- dividing ---------------------------------------------------------------------------------- */

/* A way to divide units [0, i) into stages: the costliest stage, and the sum of the squares of all. */
typedef struct division {
    double most, squares;
    int last; /* where its last stage begins */
} division;

static bool better(const division *a, const division *b)
{
    if (a->most < b->most || a->most > b->most) return a->most < b->most;
    return a->squares < b->squares;
}

/* The best divisions of units [0, i) into s stages, for all s and i, from those into s - 1: row s of d is [n + 1]. */
static void divide(const double *before, int n, int stages, division *d)
{
    const double never = before[n] * 4 + 1;
    for (int i = 0; i <= n; i++) d[i] = (division){ i ? never : 0, 0, 0 };
    for (int s = 1; s <= stages; s++)
        for (int i = 0; i <= n; i++) {
            division best = { never, 0, 0 };
            for (int k = s - 1; k < i; k++) {
                const division *rest = &d[(s - 1) * (n + 1) + k];
                const double cost = before[i] - before[k];
                const division with = { cost > rest->most ? cost : rest->most, rest->squares + cost * cost, k };
                if (better(&with, &best)) best = with;
            }
            d[s * (n + 1) + i] = best;
        }
}

static ls_status split_by_cost(const ls_model *m, int stages, int *first)
{
    const int n = m->units.n;
    looked *unit = calloc((size_t)n, sizeof *unit);
    double *before = calloc((size_t)n + 1, sizeof *before);
    division *d = calloc((size_t)(stages + 1) * (size_t)(n + 1), sizeof *d);
    const int64_t fewest = fewest_tokens(m), tokens = m->lm.seq_len / fewest * fewest; /* what a run could have */
    ls_status st = unit && before && d ? look(m, tokens, unit) : ls_fail(LS_NO_MEMORY, "%d stages of %d units", stages, n);
    if (st == LS_OK) {
        for (int i = 0; i < n; i++) before[i + 1] = before[i] + unit[i].flops;
        divide(before, n, stages, d);
        first[stages] = n;
        for (int s = stages; s > 0; s--) first[s - 1] = d[s * (n + 1) + first[s]].last;
    }
    free(unit);
    free(before);
    free(d);
    return st;
}

static bool is_second(const ls_model *m, int i) { return m->cls->lm && ls_lm_is_second_half(m, i); }

/* Where unit i begins, in halves of layers: 0 of an embedding, too. */
static int64_t begins_at(const ls_model *m, int i)
{
    if (!m->cls->lm) return 2 * (int64_t)i;
    if (i == 0) return 0;
    return i == m->units.n - 1 ? 2 * m->lm.n_layer : 2 * (int64_t)m->units.item[i].number + is_second(m, i);
}

double ls_model_layers_before(const ls_model *m, int i)
{
    return 0.5 * (double)begins_at(m, m->cls->lm && i == m->units.n ? i - 1 : i);
}

/* Halves of layers in `layers` of stage s, which is at least `least` and at most `most`. */
static ls_status halves_of(const ls_model *m, int s, double layers, double least, double most, int64_t *out)
{
    if (!(layers >= least && layers <= most))
        return ls_fail(LS_BAD_CONFIG, "a split gives stage %d %g layers: expected %g to %g", s, layers, least, most);
    *out = (int64_t)(2 * layers);
    if ((double)*out < 2 * layers)
        return ls_fail(LS_BAD_CONFIG, "a split gives stage %d %g layers: expected a multiple of 0.5, because a layer can be cut only "
                       "between its attention and its mlp", s, layers);
    if (m->cls->lm || *out % 2 == 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "a split gives stage %d %g layers: expected a whole number, because layers of %s have no halves", s,
                   layers, m->cls->name);
}

static ls_status split_as_told(const ls_model *m, int stages, const double *split, int nsplit, int *first)
{
    const int ends = m->cls->lm ? 1 : 0;
    const int64_t all = begins_at(m, m->units.n - ends);
    int64_t sum = 0, halves = 0;
    if (nsplit != stages)
        return ls_fail(LS_BAD_CONFIG, "a split of %d number%s of layers for %d stages: expected one number per stage (pipeline.split, or "
                       "ls_plan.split; without it the stages are cut by their cost)", nsplit, nsplit == 1 ? "" : "s", stages);
    for (int s = 0, i = ends; s < stages; s++, sum += halves) {
        const double least = ends && (s == 0 || s == stages - 1) ? 0.0 : ends ? 0.5 : 1.0;
        while (i < m->units.n - ends && begins_at(m, i) < sum) i++;
        first[s] = s == 0 ? 0 : i;
        LS_TRY(halves_of(m, s, split[s], least, 0.5 * (double)all, &halves));
        if (sum + halves <= all && s > 0 && begins_at(m, i) != sum)
            return ls_fail(LS_INVALID, "stage %d begins inside layer %d: expected a model whose layers are halved", s, (int)(sum / 2));
    }
    first[stages] = m->units.n;
    if (sum == all) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "a split gives %g layers to %d stages: expected %g, the layers of the model", 0.5 * (double)sum,
                   stages, 0.5 * (double)all);
}

ls_status ls_model_split(const ls_model *m, int stages, const double *split, int nsplit, int *first)
{
    if (stages < 1 || stages > m->units.n)
        return ls_fail(LS_BAD_CONFIG, "%d stages of a model of %d units (of a language model embedding, layers or their halves, and "
                       "head): expected 1 to %d, pipeline ranks by chunks per rank", stages, m->units.n, m->units.n);
    return split ? split_as_told(m, stages, split, nsplit, first) : split_by_cost(m, stages, first);
}

/* --- halves of layers ------------------------------------------------------------------------ */

void ls_model_to_halves(const ls_model *layers, const ls_model *halved, int stages, int *first)
{
    for (int s = 0, i = 0; s <= stages; s++) {
        if (first[s] == layers->units.n) {
            first[s] = halved->units.n;
            continue;
        }
        const int ends = first[s] > 0 && layers->cls->lm; /* the first layer begins where the embedding does */
        const int64_t at = begins_at(layers, first[s]);
        for (i = ends; begins_at(halved, i) < at;) i++;
        first[s] = i;
    }
}

void ls_model_to_layers(const ls_model *halved, int stages, int *first, ls_place *place)
{
    memset(place->halved, 0, sizeof place->halved);
    for (int s = 1; s < stages; s++)
        if (is_second(halved, first[s])) ls_halve_layer(place, halved->units.item[first[s]].number);
    for (int s = 0, i = 0, n = 0; s <= stages; s++) {
        for (; i < first[s]; i++) n += !is_second(halved, i) || ls_layer_is_halved(place, halved->units.item[i].number);
        first[s] = n;
    }
}

/* --- keeping some ---------------------------------------------------------------------------- */

static int stage_of(const int *first, int unit)
{
    int s = 0;
    while (first[s + 1] <= unit) s++;
    return s;
}

/* A parameter of the root may be used by the first and the last stage. */
static ls_status check_root(const ls_model *m, int stages, const int *first)
{
    for (int i = 0; i < m->units.n; i++) {
        const int s = stage_of(first, i);
        for (int k = 0; k < m->units.item[i].npositions; k++) {
            if (m->units.item[i].position[k] == LS_UNIT_SKIPPED) continue;
            const ls_param *p = ls_units_param(&m->params, &m->units.item[i], k);
            if (p->unit >= 0 || s == 0 || s == stages - 1) continue;
            return ls_fail(LS_UNSUPPORTED, "parameter '%s' is used by unit '%s' of stage %d and by other units: expected that only "
                           "units of the first and the last stage share a parameter", p->name, m->units.item[i].name, s);
        }
    }
    return LS_OK;
}

static ls_status keep(ls_model *m, const int *first, int n)
{
    ls_stage_part *part = calloc((size_t)n, sizeof *part);
    if (!part) return ls_fail(LS_NO_MEMORY, "%d stages", n);
    for (int i = 0; i < n; i++) {
        const int s = m->stage[i].number;
        part[i].units = (ls_range){ (size_t)first[s], (size_t)(first[s + 1] - first[s]) };
    }
    const ls_status st = ls_units_keep(&m->units, &m->params, part, n);
    for (int i = 0; i < n; i++) m->stage[i].part = part[i];
    free(part);
    return st;
}

ls_status ls_model_keep(ls_model *m, int stages, const int *first, const int *number, int n)
{
    LS_TRY(check_root(m, stages, first));
    looked *unit = calloc((size_t)m->units.n, sizeof *unit);
    m->stage = calloc((size_t)n, sizeof *m->stage);
    ls_status st = unit && m->stage ? LS_OK : ls_fail(LS_NO_MEMORY, "%d stages of %d units", n, m->units.n);
    m->edge_tokens = fewest_tokens(m);
    if (st == LS_OK) st = look(m, m->edge_tokens, unit);
    for (int i = 0; st == LS_OK && i < n; i++) {
        const int s = number[i];
        m->stage[i] = (ls_stage){ .number = s, .of = stages, .out = unit[first[s + 1] - 1].out };
        if (s > 0) m->stage[i].in = unit[first[s] - 1].out;
    }
    if (st == LS_OK) st = keep(m, first, m->nstages = n);
    free(unit);
    return st;
}

/* --- computing --------------------------------------------------------------------------------- */

void ls_model_edge(const ls_model *m, int i, bool in, int64_t batch, int64_t tokens, ls_dtype dtype, ls_tensor *out)
{
    const ls_tensor *one = in ? &m->stage[i].in : &m->stage[i].out;
    *out = (ls_tensor){ .dtype = dtype, .ndim = one->ndim };
    memcpy(out->dim, one->dim, sizeof out->dim);
    out->dim[0] *= batch;
    if (m->cls->lm) out->dim[1] = one->dim[1] * (tokens ? tokens : m->lm.seq_len) / m->edge_tokens;
}

ls_tensor *ls_model_stage_forward(const ls_model *m, int i, ls_tape *t, ls_tensor *x, ls_tensor *labels,
                                  ls_loss_sums *sums)
{
    const ls_range *units = &m->stage[i].part.units;
    ls_pass pass = ls_model_pass(m);
    pass.output = LS_OUTPUT_LOSS;
    pass.labels = labels;
    pass.sums = sums;
    if (sums) *sums = (ls_loss_sums){ .correct = -1 };
    return ls_units_forward(&m->units, (int)units->first, (int)units->count, t, x, &pass);
}
