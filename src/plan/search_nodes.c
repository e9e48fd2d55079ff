/* search_nodes.c -- every legal layout of a world, as nodes of the search with their bounds. */
#include <math.h>
#include <stdlib.h>

#include "plan/search.h"

static ls_status grow(void **p, size_t n, size_t *cap, size_t each)
{
    if (n < *cap) return LS_OK;
    const size_t more = *cap ? 2 * *cap : 256;
    void *q = realloc(*p, more * each);
    if (!q) return ls_fail(LS_NO_MEMORY, "%zu nodes of the search", more);
    *p = q;
    *cap = more;
    return LS_OK;
}

/* Stages of a schedule that differ in layers or ends. A rank further on has no more in flight. */
static void shapes_of(const ls_search *s, const ls_layout *l, const ls_schedule *schedule, struct ls_search_shapes *o)
{
    ls_run r;
    ls_layout with = *l;
    with.form = schedule->form, with.v = schedule->v, with.fewer = schedule->fewer;
    ls_layout_run(&s->b, &with, &r);
    o->n = 0;
    for (int i = 0; i < r.p && o->n < 8; i++) {
        ls_stage_shape shape;
        int k = 0;
        ls_stage_shape_of(&r, i, &shape);
        while (k < o->n && !(o->shape[k].dense == shape.dense && o->shape[k].sparse == shape.sparse &&
                             o->shape[k].first == shape.first && o->shape[k].last == shape.last)) k++;
        if (k < o->n) continue;
        o->rank[o->n] = i;
        o->shape[o->n++] = shape;
    }
}

static ls_status stages_of(ls_search *s, const ls_layout *l, const ls_search_stages **out)
{
    for (int i = 0; i < s->nstage; i++)
        if (s->stage[i].p == l->p) {
            *out = &s->stage[i];
            return LS_OK;
        }
    ls_search_stages *more = realloc(s->stage, (size_t)(s->nstage + 1) * sizeof *more);
    if (!more) return ls_fail(LS_NO_MEMORY, "schedules of %lld stages", (long long)l->p);
    s->stage = more;
    ls_search_stages *o = &more[s->nstage++];
    o->p = l->p;
    o->n = ls_schedules_of(&s->b, l->p, o->schedule);
    for (int i = 0; i < o->n; i++) shapes_of(s, l, &o->schedule[i], &o->shapes[i]);
    *out = o;
    return LS_OK;
}

const ls_search_stages *ls_search_stages_find(const ls_search *s, int64_t p)
{
    int i = 0;
    while (s->stage[i].p != p) i++;
    return &s->stage[i];
}

static int64_t micro_batches(const ls_search *s, const ls_layout *l) { return s->b.q->batch / (l->micro * l->d); }

int64_t ls_search_places(const ls_search *s, const ls_layout *l)
{
    const int64_t rest = s->b.node / (l->t_in * l->c_in * l->e_in);
    int64_t n = 0;
    for (int64_t p_in = 1; p_in <= rest && p_in <= l->p; p_in++)
        n += rest % p_in == 0 && l->p % p_in == 0 && l->d / l->e % (rest / p_in) == 0;
    return n;
}

static int kinds(const ls_search *s)
{
    int n = 0;
    for (int k = LS_KEEP_ALL; k <= LS_KEEP_INPUTS; k++) n += ls_kept_searched(&s->b, k);
    return n;
}

int64_t ls_search_leaves(const ls_search *s, const ls_layout *l, const ls_search_stages *st)
{
    const int64_t m = micro_batches(s, l);
    int64_t schedules = 0, zeros = 0;
    for (int i = 0; i < st->n; i++) schedules += ls_schedule_refused(&st->schedule[i], l->p, m) == LS_REFUSE_NONE;
    for (int z = 0; z <= 3; z++) zeros += ls_zero_searched(&s->b, z) && ls_zero_refused(z, l->d * l->c, m) ==
        LS_REFUSE_NONE;
    return ls_search_places(s, l) * schedules * kinds(s) * zeros;
}

/* A rank of some stage has at least the average of all stages: states in the highest ZeRO stage, one layer input
 * each. */
static double least_memory(const ls_search *s, const ls_layout *l, const ls_search_layers *y)
{
    const ls_llm *m = &s->b.q->model;
    const double dense = m->experts ? (double)m->dense_layers : (double)(m->layers + m->mtp);
    const double sparse = (double)(m->layers + m->mtp) - dense, p = (double)l->p, d = (double)(l->d * l->c);
    const double te = l->e > 1 ? 1 : (double)l->t, de = fmax(1, (double)l->t * d / ((double)l->e * te));
    const double shared = dense * y->memory.dense + sparse * y->memory.sparse, experts = sparse * y->memory.expert;
    const double states = 18 * (shared / d + experts / de) / p;
    const double least = l->p == 1 || l->p % 2 == 1 ? 1 : .5; /* of DualPipe's halves */
    return (1 - 1e-9) * (states + least * (dense + sparse - 2) / p * y->memory.input + LS_WORKSPACE_BYTES +
                         LS_RESERVED_BYTES);
}

/* r: a run of the node but for its stages and replicas. */
static ls_status add_node(ls_search *s, const ls_layout *l, ls_run *r, uint32_t layer, ls_layouts *out)
{
    const ls_search_stages *st = NULL;
    LS_TRY(stages_of(s, l, &st));
    const int64_t n = ls_search_leaves(s, l, st);
    if (n == 0) return LS_OK;
    out->legal += n;
    LS_TRY(grow((void **)&s->nodes, s->n, &s->cap, sizeof *s->nodes));
    r->p = l->p, r->d = l->d;
    ls_search_node *o = &s->nodes[s->n];
    const double memory = least_memory(s, l, &s->layer[layer]);
    *o = (ls_search_node){ .at = *l, .layers = layer, .too_large = memory > s->b.memory, .order = s->n };
    o->bound = s->b.q->objective == LS_LEAST_MEMORY ? memory : ls_step_cost_bound(r, s->b.k, &s->layer[layer].cost);
    s->n++;
    return LS_OK;
}

/* Degrees that the query leaves free, or has fixed like this. */
static bool asked(const ls_layout_query *q, const ls_layout *l)
{
    const ls_layout *f = &q->fixed;
    return (!f->t || f->t == l->t) && (!f->p || f->p == l->p) && (!f->c || f->c == l->c) && (!f->e || f->e == l->e) &&
           (!f->d || f->d == l->d);
}

/* Numbers of stages. */
typedef struct stage_counts { int64_t p[LS_DIVISORS]; int n; } stage_counts;

/* Nodes of the search whose groups of tp, cp and ep have l's parts inside a node of the cluster. Work and memory of a
 * layer do not depend on which parts these are. */
static ls_status add_place(ls_search *s, ls_layout l, const stage_counts *legal, const ls_layer_work *work,
                           const ls_layer_memory *memory, ls_layouts *out)
{
    const int64_t rest = s->b.q->world / (l.t * l.c);
    ls_run r;
    LS_TRY(grow((void **)&s->layer, s->nlayers, &s->caplayers, sizeof *s->layer));
    l.p = legal->p[0], l.d = rest / l.p;
    ls_layout_run(&s->b, &l, &r);
    s->layer[s->nlayers].memory = *memory;
    ls_layer_cost_with(&r, s->b.k, work, &s->layer[s->nlayers].cost);
    s->nlayers++;
    for (int i = 0; i < legal->n; i++) {
        l.p = legal->p[i], l.d = rest / l.p;
        LS_TRY(add_node(s, &l, &r, (uint32_t)(s->nlayers - 1), out));
    }
    return LS_OK;
}

/* Nodes of t, c, e and the micro-batch: what of each group shares a node, and stages. */
static ls_status add_places(ls_search *s, ls_layout l, const stage_counts *legal, ls_layouts *out)
{
    const int64_t in = s->b.node;
    ls_layer_work work;
    ls_layer_memory memory;
    ls_run r;
    l.t_in = l.c_in = l.e_in = l.d_in = l.p_in = l.v = 1;
    l.p = legal->p[0], l.d = s->b.q->world / (l.t * l.c) / l.p;
    ls_layout_run(&s->b, &l, &r);
    ls_layer_work_of(&r, s->b.k, &work);
    ls_layer_memory_of(&r, &memory);
    for (l.t_in = 1; l.t_in <= in; l.t_in++) {
        if (in % l.t_in != 0 || l.t % l.t_in != 0) continue;
        for (l.c_in = 1; l.t_in * l.c_in <= in; l.c_in++) {
            if (in % (l.t_in * l.c_in) != 0 || l.c % l.c_in != 0) continue;
            for (l.e_in = 1; l.t_in * l.c_in * l.e_in <= in; l.e_in++) {
                if (in % (l.t_in * l.c_in * l.e_in) != 0 || l.e % l.e_in != 0) continue;
                LS_TRY(add_place(s, l, legal, &work, &memory, out));
            }
        }
    }
    return LS_OK;
}

static ls_status add_micro_batches(ls_search *s, ls_layout l, const stage_counts *legal, ls_layouts *out)
{
    const int64_t rest = s->b.q->world / (l.t * l.c), batch = s->b.q->batch;
    for (int i = 0; i < s->nmicros; i++) {
        stage_counts fit = { .n = 0 };
        l.micro = s->micro[i];
        if (s->b.q->fixed.micro && s->b.q->fixed.micro != l.micro) continue;
        for (int k = 0; k < legal->n; k++)
            if (batch / l.micro % (rest / legal->p[k]) == 0) fit.p[fit.n++] = legal->p[k];
        if (fit.n > 0) LS_TRY(add_places(s, l, &fit, out));
    }
    return LS_OK;
}

/* All degrees of t, c and e: legal ones are nodes, the others are counted by the first rule that they break. */
static ls_status add_degrees(ls_search *s, int64_t t, int64_t c, int64_t e, ls_layouts *out)
{
    const int64_t rest = s->b.q->world / (t * c);
    stage_counts legal = { .n = 0 };
    for (int i = 0; i < s->ndivisors; i++) {
        const int64_t p = s->divisor[i];
        const ls_layout l = { .t = t, .c = c, .e = e, .p = p, .d = rest / p };
        if (rest % p != 0 || l.d % e != 0 || !asked(s->b.q, &l)) continue;
        const ls_refusal why = ls_degrees_refused(&s->b, &l);
        out->degrees++;
        if (why == LS_REFUSE_NONE) legal.p[legal.n++] = p;
        else out->refused[why]++;
    }
    out->legal_degrees += legal.n;
    return legal.n > 0 ? add_micro_batches(s, (ls_layout){ .t = t, .c = c, .e = e }, &legal, out) : LS_OK;
}

/* Divisors of n, in their order; returns how many. */
static int divisors_of(int64_t n, int64_t *out, int most)
{
    int count = 0;
    for (int64_t i = 1; i <= n / i; i++)
        if (n % i == 0 && count < most) out[count++] = i;
    for (int k = count - 1; k >= 0; k--)
        if (out[k] != n / out[k] && count < most) out[count++] = n / out[k];
    return count;
}

ls_status ls_search_nodes(ls_search *s, ls_layouts *out)
{
    const int64_t n = s->b.q->world;
    s->ndivisors = divisors_of(n, s->divisor, LS_DIVISORS);
    s->nmicros = divisors_of(s->b.q->batch, s->micro, LS_BATCH_DIVISORS);
    for (int i = 0; i < s->ndivisors; i++)
        for (int j = 0; j < s->ndivisors; j++)
            for (int k = 0; k < s->ndivisors; k++) {
                const int64_t t = s->divisor[i], c = s->divisor[j], e = s->divisor[k];
                if (n % (t * c) != 0 || n / (t * c) % e != 0 || (e > 1 && !s->b.q->model.experts)) continue;
                LS_TRY(add_degrees(s, t, c, e, out));
            }
    return LS_OK;
}
