/* search.c -- the best layouts of a world: visits nodes that no bound excludes. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/team.h"
#include "plan/search.h"

/* --- layouts of a node --------------------------------------------------------------------------------------- */

static bool better(double value, double second, const ls_search_visit *v)
{
    return !v->found || value < v->value || (value == v->value && second < v->second);
}

/* Times of one schedule, recomputation and ZeRO stage in each place, whose memory is known. */
static void visit_places(const ls_search *s, const ls_search_node *n, ls_run *r, double bytes, ls_search_visit *v)
{
    const bool least_memory = s->b.q->objective == LS_LEAST_MEMORY;
    const ls_search_layers *y = &s->layer[n->layers];
    const int64_t rest = s->b.node / (n->at.t_in * n->at.c_in * n->at.e_in);
    for (int64_t p_in = 1; p_in <= rest && p_in <= r->p; p_in++) {
        ls_step_cost c;
        ls_layout l = n->at;
        if (rest % p_in != 0 || r->p % p_in != 0 || l.d / l.e % (rest / p_in) != 0) continue;
        l.p_in = p_in, l.d_in = rest / p_in;
        ls_layout_place(&s->b, &l, &r->at);
        ls_step_cost_from(r, s->b.k, &y->cost, &c);
        v->evaluated++;
        const double value = least_memory ? bytes : c.total, second = least_memory ? c.total : bytes;
        if (!better(value, second, v)) continue;
        v->found = true, v->value = value, v->second = second;
        l.v = r->v, l.zero = r->zero, l.kept = r->kept, l.form = r->form, l.fewer = r->embedding_layers > 0 ? 2 : 0;
        v->best = (ls_layout_cost){ l, c, bytes };
    }
}

static void visit_node(const ls_search *s, const ls_search_node *n, ls_search_visit *v)
{
    const ls_search_layers *y = &s->layer[n->layers];
    const ls_search_stages *st = ls_search_stages_find(s, n->at.p);
    const int64_t m = s->b.q->batch / (n->at.micro * n->at.d), each = ls_search_places(s, &n->at);
    ls_run r;
    ls_layout_run(&s->b, &n->at, &r);
    for (int i = 0; i < st->n; i++) {
        const ls_schedule *schedule = &st->schedule[i];
        struct ls_search_shapes shapes = st->shapes[i];
        if (ls_schedule_refused(schedule, n->at.p, m) != LS_REFUSE_NONE) continue;
        r.form = schedule->form, r.v = schedule->v, r.embedding_layers = schedule->fewer;
        for (int k = 0; k < shapes.n; k++) {
            double *in_flight = &shapes.shape[k].in_flight;
            *in_flight = ls_pipe_in_flight(r.form, (int)r.p, (int)(r.p > 1 ? r.v : 1), m, shapes.rank[k]);
            if (r.p > 1 && r.form == LS_PIPE_DUALPIPE) *in_flight /= 2;
        }
        for (int kept = LS_KEEP_ALL; kept <= LS_KEEP_INPUTS; kept++) {
            if (!ls_kept_searched(&s->b, kept)) continue;
            r.kept = (ls_recompute_kind)kept;
            for (r.zero = 0; r.zero <= 3; r.zero++) {
                double bytes = 0;
                if (!ls_zero_searched(&s->b, r.zero) || ls_zero_refused(r.zero, r.d * r.c, m) != LS_REFUSE_NONE)
                    continue;
                r.grad_bytes = r.zero >= 3 ? 4 : 2;
                for (int k = 0; k < shapes.n; k++) {
                    ls_stage_memory stage;
                    ls_stage_memory_of(&r, &y->memory, &shapes.shape[k], &stage);
                    if (stage.total > bytes) bytes = stage.total;
                }
                if (bytes > s->b.memory) v->too_large += each;
                else visit_places(s, n, &r, bytes, v);
            }
        }
    }
}

/* How many layouts of a node were not visited one by one. */
static int64_t leaves_of(const ls_search *s, const ls_search_node *n)
{
    return ls_search_leaves(s, &n->at, ls_search_stages_find(s, n->at.p));
}

static void visit_nth(void *arg, int64_t i)
{
    ls_search *s = arg;
    const ls_search_node *n = &s->nodes[s->first + (size_t)i];
    s->round[i] = (ls_search_visit){ 0 };
    if (s->b.q->exhaustive || (!n->too_large && n->bound <= s->limit[i])) visit_node(s, n, &s->round[i]);
}

/* --- the best ------------------------------------------------------------------------------------------------- */

static bool same_degrees(const ls_layout *a, const ls_layout *b)
{
    return a->t == b->t && a->p == b->p && a->c == b->c && a->e == b->e && a->d == b->d;
}

static double value_of(const ls_problem *b, const ls_layout_cost *c, double *second)
{
    const bool memory = b->q->objective == LS_LEAST_MEMORY;
    *second = memory ? c->cost.total : c->bytes;
    return memory ? c->bytes : c->cost.total;
}

/* Fields in the order in which layouts are enumerated. */
static int compare_layouts(const ls_layout *a, const ls_layout *b)
{
    const int64_t x[] = { a->t, a->c, a->e, a->p, a->micro, a->t_in, a->c_in, a->e_in };
    const int64_t y[] = { b->t, b->c, b->e, b->p, b->micro, b->t_in, b->c_in, b->e_in };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0; /* within a node the first was taken */
}

static bool before(const ls_problem *b, const ls_layout_cost *x, const ls_layout_cost *y)
{
    double xs, ys;
    const double xv = value_of(b, x, &xs), yv = value_of(b, y, &ys);
    if (xv != yv) return xv < yv;
    return xs != ys ? xs < ys : compare_layouts(&x->layout, &y->layout) < 0;
}

static void insert(const ls_problem *b, const ls_layout_cost *c, ls_layouts *out)
{
    int at = 0;
    while (at < out->n && !same_degrees(&out->best[at].layout, &c->layout)) at++;
    if (at < out->n) {
        if (!before(b, c, &out->best[at])) return;
    } else if (out->n < b->q->top) {
        out->n++;
    } else {
        at = out->n - 1;
        if (!before(b, c, &out->best[at])) return;
    }
    for (; at > 0 && before(b, c, &out->best[at - 1]); at--) out->best[at] = out->best[at - 1];
    out->best[at] = *c;
}

/* A node with a higher bound changes nothing: its degrees have a better layout, or all that are returned are better. */
static double limit_of(const ls_problem *b, const ls_search_node *n, const ls_layouts *out)
{
    double second;
    for (int i = 0; i < out->n; i++)
        if (same_degrees(&out->best[i].layout, &n->at)) return value_of(b, &out->best[i], &second);
    return out->n < b->q->top ? (double)INFINITY : value_of(b, &out->best[out->n - 1], &second);
}

static int by_bound(const void *a, const void *b)
{
    const ls_search_node *x = a, *y = b;
    if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* An axis of the query, and its degree in a layout. */
static const struct { const char *name; size_t at; } axes[] = {
    { "tp", offsetof(ls_layout, t) }, { "pp", offsetof(ls_layout, p) }, { "cp", offsetof(ls_layout, c) },
    { "ep", offsetof(ls_layout, e) }, { "dp", offsetof(ls_layout, d) },
};
enum { AXES = sizeof axes / sizeof *axes, DP = AXES - 1 };

static int64_t degree_of(const ls_layout *l, int axis) { return *(const int64_t *)((const char *)l + axes[axis].at); }

/* Whether a layout may have this degree, if dp has all other ranks. */
static bool is_legal_alone(const ls_problem *b, int axis, int64_t degree)
{
    ls_layout l = { .t = 1, .p = 1, .c = 1, .e = 1, .d = b->q->world };
    if (degree < 1 || b->q->world % degree != 0) return false;
    *(int64_t *)((char *)&l + axes[axis].at) = degree;
    if (axis != DP) l.d = axes[axis].at == offsetof(ls_layout, e) ? b->q->world : b->q->world / degree;
    const ls_refusal r = ls_degrees_refused(b, &l);
    return r == LS_REFUSE_NONE || r == LS_REFUSE_BATCH;
}

/* "; nearest tp: 2 or 4", of each degree that was asked for and that no layout of the world has. */
static const char *nearest_degrees(const ls_problem *b, char *buf, size_t n)
{
    size_t used = 0;
    *buf = 0;
    for (int a = 0; a < DP; a++) {
        const int64_t asked = degree_of(&b->q->fixed, a);
        int64_t below = asked < b->q->world ? asked : b->q->world, above = asked;
        if (!asked || is_legal_alone(b, a, asked) || used >= n) continue;
        while (below > 0 && !is_legal_alone(b, a, below)) below--;
        while (above <= b->q->world && !is_legal_alone(b, a, above)) above++;
        used += (size_t)snprintf(buf + used, n - used, "; nearest %s: %lld", axes[a].name,
                                 (long long)(below > 0 ? below : above));
        if (below > 0 && above <= b->q->world && used < n)
            used += (size_t)snprintf(buf + used, n - used, " or %lld", (long long)above);
    }
    return buf;
}

static ls_status none_legal(const ls_problem *b, const ls_layouts *out)
{
    const ls_layout_query *q = b->q;
    char nearest[200];
    int most = LS_REFUSE_HEADS;
    for (int i = most; i < LS_REFUSE_COUNT; i++) most = out->refused[i] > out->refused[most] ? i : most;
    if (out->legal_degrees > 0 && q->fixed.micro)
        return ls_fail(LS_BAD_CONFIG, "micro-batch %lld does not divide the sequences per replica of any layout of "
                       "%lld ranks with a batch of %lld: expected a divisor of batch / dp; take another, or 0 to "
                       "search",
                       (long long)q->fixed.micro, (long long)q->world, (long long)q->batch);
    return ls_fail(LS_BAD_CONFIG, "%lld ranks and a batch of %lld have no legal layout: of %lld degrees most are "
                   "refused because %s%s; take another world, batch, sequence length or degrees", (long long)q->world,
                   (long long)q->batch, (long long)out->degrees, ls_refusal_text((ls_refusal)most),
                   nearest_degrees(b, nearest, sizeof nearest));
}

/* The degrees that were asked for are no factors of the world, or of a model without experts. */
static ls_status no_such_degrees(const ls_problem *b)
{
    const ls_layout_query *q = b->q;
    if (q->fixed.e > 1 && !q->model.experts)
        return ls_fail(LS_BAD_CONFIG, "ep %lld: the model has no experts; leave ep out", (long long)q->fixed.e);
    char text[160] = "", nearest[200];
    size_t n = 0;
    for (int a = 0; a < AXES && n < sizeof text; a++)
        if (degree_of(&q->fixed, a))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %lld", n ? " " : "", axes[a].name,
                                  (long long)degree_of(&q->fixed, a));
    return ls_fail(LS_BAD_CONFIG, "%lld ranks cannot be divided as %s: expected tp x pp x cp x dp to be the number of "
                   "ranks, and ep to divide dp%s; take other degrees, or 0 to search", (long long)q->world, text,
                   nearest_degrees(b, nearest, sizeof nearest));
}

ls_status ls_layout_search(const ls_layout_query *q, ls_layouts *out)
{
    ls_search *s = calloc(1, sizeof *s);
    *out = (ls_layouts){ 0 };
    if (!s) return ls_fail(LS_NO_MEMORY, "a search");
    ls_status st = ls_problem_of(q, &s->b);
    if (st == LS_OK) st = ls_search_nodes(s, out);
    if (st == LS_OK && s->n > 1) qsort(s->nodes, s->n, sizeof *s->nodes, by_bound);
    /* Short rounds first: they find a good layout, with which the bounds of later ones compare. */
    for (size_t n = 4; st == LS_OK && s->first < s->n; s->first += n, n = n < LS_SEARCH_ROUND ? 2 * n : n) {
        if (n > s->n - s->first) n = s->n - s->first;
        for (size_t i = 0; i < n; i++) s->limit[i] = limit_of(&s->b, &s->nodes[s->first + i], out);
        ls_team_run(visit_nth, s, (int64_t)n);
        for (size_t i = 0; i < n; i++) {
            const ls_search_node *x = &s->nodes[s->first + i];
            const ls_search_visit *v = &s->round[i];
            out->evaluated += v->evaluated;
            out->too_large += v->too_large;
            if (!q->exhaustive && x->too_large) out->too_large += leaves_of(s, x);
            else if (!q->exhaustive && x->bound > s->limit[i]) out->bounded += leaves_of(s, x);
            if (v->found) insert(&s->b, &v->best, out);
        }
    }
    if (st == LS_OK && out->legal == 0) st = out->degrees > 0 ? none_legal(&s->b, out) : no_such_degrees(&s->b);
    free(s->nodes);
    free(s->layer);
    free(s->stage);
    free(s);
    return st;
}
