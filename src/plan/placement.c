/* placement.c -- bytes and times of an order of the axes, and of all orders. */
#include "plan/placement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/opts.h"

/* --- orders ------------------------------------------------------------------------------------------------------- */

void ls_placement_usual(const ls_step_traffic *x, ls_placement *out)
{
    *out = (ls_placement){ 0 };
    for (int i = LS_AXES - 1; i >= 0; i--) {
        const int a = (int)ls_mesh_axis(x->order, i);
        if (x->size[a] > 1) out->order[out->n++] = a;
    }
}

const char *ls_placement_order_text(const ls_placement *p, char *buf, size_t n)
{
    size_t at = 0;
    snprintf(buf, n, "%s", p->n ? "" : "one rank");
    for (int i = p->n - 1; i >= 0 && at < n; i--)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? "-" : "", ls_axis_name((ls_axis)p->order[i]));
    return buf;
}

ls_status ls_placement_order(const ls_step_traffic *x, const char *text, ls_placement *out)
{
    int order[LS_AXES], named;
    char why[300];
    *out = (ls_placement){ 0 };
    if (ls_mesh_order_read(text, order, &named) < 0) {
        snprintf(why, sizeof why, "%s", ls_last_error());
        return ls_fail(LS_USAGE, "--%s", why);
    }
    for (int i = LS_AXES - 1; i >= 0; i--) {
        const int a = order[i];
        if (x->size[a] < 2) continue;
        if (i < LS_AXES - named)
            return ls_fail(LS_USAGE, "--order %s: %s, which has %d ranks, is missing", text, ls_axis_name((ls_axis)a), x->size[a]);
        out->order[out->n++] = a;
    }
    return LS_OK;
}

void ls_placement_strides(const ls_step_traffic *x, const ls_placement *p, int64_t stride[LS_AXES])
{
    int64_t next = 1;
    for (int a = 0; a < LS_AXES; a++) stride[a] = 0; /* of axes with one rank */
    for (int i = 0; i < p->n; i++) {
        stride[p->order[i]] = next;
        next *= x->size[p->order[i]];
    }
}

int ls_placement_reach(const ls_topo *t, const ls_step_traffic *x, const ls_placement *p, ls_axis axis)
{
    int64_t stride[LS_AXES];
    int level = 0;
    ls_placement_strides(x, p, stride);
    for (int64_t d = 0; d < x->ranks && x->size[axis] > 1; d++) {
        if (d / stride[axis] % x->size[axis] != 0) continue;
        const int meet = ls_topo_meet(t, d, d + (x->size[axis] - 1) * stride[axis]);
        level = meet > level ? meet : level;
    }
    return level;
}

/* --- bytes of one group --------------------------------------------------------------------------- */

typedef struct work {
    const ls_topo *t;
    const ls_step_traffic *x;
    int64_t stride[LS_AXES];
    int64_t *member;  /* [ranks]: devices of a group, in its order */
    int *unit_n;      /* [devices]: members in each unit, of one level */
    double *load[LS_TOPO_MOST_LEVELS]; /* [units]: bytes per step through the ports of a unit, one direction */
    double *rail[LS_TOPO_MOST_LEVELS]; /* [devices]: where a level has rails, by the adapter of each device */
} work;

/* The ranks whose device differs from `base` along the row's axes; the faster axis of the mesh first. */
static int members(work *w, const ls_step_row *r, int64_t base)
{
    int n = 1;
    w->member[0] = base;
    for (int a = LS_AXES - 1; a >= 0; a--) {
        if (!(r->axes >> a & 1u)) continue;
        const int count = r->ends ? 2 : w->x->size[a];
        const int64_t step = r->ends ? w->x->size[a] - 1 : 1;
        for (int c = 1; c < count; c++)
            for (int i = 0; i < n; i++) w->member[c * n + i] = w->member[i] + c * step * w->stride[a];
        n *= count;
    }
    return n;
}

/* The pipeline stage of a device. */
static int stage_of(const work *w, int64_t device)
{
    const int pp = w->x->size[LS_AXIS_PP];
    return pp > 1 ? (int)(device / w->stride[LS_AXIS_PP] % pp) : 0;
}

/* Bytes of the calls of a group that has this device; of several stages all have called the same. */
static double bytes_of(const work *w, const ls_step_row *r, int64_t device)
{
    return r->axes >> LS_AXIS_PP & 1u ? r->bytes : r->of_stage[stage_of(w, device)];
}

/* What a unit with g of n members sends, of K units that have members, and of vectors of S bytes. */
static double sent(ls_coll coll, double S, int K, int g, int n)
{
    const double part = (double)(K - 1) / K;
    switch (coll) {
    case LS_ALL_REDUCE: return 2 * part * S;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_GATHER:
    case LS_SCATTER: return part * S;
    case LS_BROADCAST:
    case LS_REDUCE: return K > 1 ? S : 0;
    case LS_ALL_TO_ALL: return (double)g * S * (double)(n - g) / (double)n;
    default: return 0;
    }
}

/* Adds what each member of a group sends by level l: through the ports of units (load), by adapters (rail). Level 0 has
 * what stays within a node. */
static void messages(const work *w, const ls_step_row *r, int n, int l, double *load, double *rail)
{
    const int64_t devices = ls_topo_unit_devices(w->t, l);
    for (int i = 0; i < n; i++)
        for (int way = 1; way >= (r->how == LS_TO_NEXT ? 1 : -1); way -= 2) {
            const bool end = r->how == LS_TO_BOTH && (i == 0 || i == n - 1);
            if (r->how == LS_TO_BOTH && (i + way < 0 || i + way >= n)) continue;
            const int64_t from = w->member[i];
            const int meet = ls_topo_meet(w->t, from, w->member[(i + way + n) % n]);
            if (l == 0 ? meet != 0 : meet < l) continue;
            const double bytes = r->of_stage[stage_of(w, from)] / (r->how == LS_TO_NEXT || end ? 1 : 2);
            load[from / devices] += bytes;
            rail[from] += bytes;
        }
}

static void collective(const work *w, const ls_step_row *r, int n, int l, double *load, double *rail)
{
    const int64_t devices = ls_topo_unit_devices(w->t, l), within = l == 0 ? ls_topo_unit_devices(w->t, 1) : devices;
    const double S = bytes_of(w, r, w->member[0]);
    int K = 0;
    for (int i = 0; i < n; i++) K += w->unit_n[w->member[i] / within]++ == 0;
    for (int i = 0; i < n; i++) {
        const int64_t d = w->member[i];
        const int g = w->unit_n[d / within];
        double mine = sent(r->coll, S, K, g, n) / g;
        if (l == 0) mine = r->coll == LS_ALL_TO_ALL ? S * (g - 1) / n : sent(r->coll, S, g, 1, g);
        load[d / devices] += mine;
        rail[d] += mine;
    }
    for (int i = 0; i < n; i++) w->unit_n[w->member[i] / within] = 0;
}

/* --- one order ------------------------------------------------------------------------------------ */

/* The first rank of each group: all coordinates along the row's axes are 0. */
static bool is_base(const work *w, unsigned axes, int64_t device)
{
    for (int a = 0; a < LS_AXES; a++)
        if (axes >> a & 1u && device / w->stride[a] % w->x->size[a] != 0) return false;
    return true;
}

/* The busiest unit and the longest time of a level. */
static void busiest(const work *w, int l, const double *load, const double *rail, double *bytes, double *seconds,
                    double *total)
{
    const int64_t each = ls_topo_unit_devices(w->t, l), used = (w->x->ranks + each - 1) / each;
    *bytes = *seconds = *total = 0;
    for (int64_t u = 0; u < used; u++) {
        *total += load[u];
        *bytes = fmax(*bytes, load[u]);
        *seconds = fmax(*seconds, load[u] / ls_topo_uplink(w->t, l, u));
    }
    for (int64_t d = 0; w->rail[l] && d < w->x->ranks; d++)
        *seconds = fmax(*seconds, rail[d] / ls_topo_port(w->t, l, d / each));
}

static void evaluate_row(work *w, int row, double *load, double *rail, ls_placed_row *out)
{
    const ls_step_row *r = &w->x->row[row];
    int n = 0;
    *out = (ls_placed_row){ .rate = (double)INFINITY };
    for (int l = 0; l < w->t->nlevels; l++) {
        double ignored;
        memset(load, 0, (size_t)w->x->ranks * sizeof *load);
        memset(rail, 0, (size_t)w->x->ranks * sizeof *rail);
        for (int64_t d = 0; d < w->x->ranks; d++) {
            if (!is_base(w, r->axes, d)) continue;
            n = members(w, r, d);
            if (r->coll == LS_SENDRECV) messages(w, r, n, l, load, rail);
            else collective(w, r, n, l, load, rail);
        }
        busiest(w, l, load, rail, &out->bytes[l], &out->seconds[l], &ignored);
        for (int64_t u = 0; u < w->x->ranks; u++) w->load[l][u] += load[u];
        for (int64_t d = 0; w->rail[l] && d < w->x->ranks; d++) w->rail[l][d] += rail[d];
        out->serial_s += out->seconds[l];
    }
    for (int64_t d = 0; d < w->x->ranks; d++) { /* how far the members of a group are apart */
        if (!is_base(w, r->axes, d)) continue;
        n = members(w, r, d);
        for (int i = 1; i < n; i++) {
            const int meet = ls_topo_meet(w->t, w->member[0], w->member[i]);
            double rate, latency;
            ls_topo_pair(w->t, w->member[0], w->member[i], &rate, &latency);
            out->level = meet > out->level ? meet : out->level;
            out->rate = fmin(out->rate, rate);
        }
    }
    const double steps = r->coll == LS_SENDRECV ? 1 : ceil(log2((double)n));
    out->latency_s = r->calls * steps * w->t->level[out->level].latency_s;
    out->serial_s += out->latency_s;
}

static ls_status make(const ls_topo *t, const ls_step_traffic *x, work *w)
{
    const size_t n = (size_t)x->ranks;
    bool whole = (w->member = malloc(n * sizeof *w->member)) && (w->unit_n = calloc(n, sizeof *w->unit_n));
    for (int l = 0; l < t->nlevels; l++) {
        whole = whole && (w->load[l] = calloc(n, sizeof **w->load));
        whole = whole && (!t->level[l].rails || (w->rail[l] = calloc(n, sizeof **w->rail)));
    }
    w->t = t;
    w->x = x;
    return whole ? LS_OK : ls_fail(LS_NO_MEMORY, "the bytes of %d ranks", x->ranks);
}

static void release(work *w)
{
    free(w->member);
    free(w->unit_n);
    for (int l = 0; l < LS_TOPO_MOST_LEVELS; l++) {
        free(w->load[l]);
        free(w->rail[l]);
    }
}

ls_status ls_placement_evaluate(const ls_topo *t, const ls_step_traffic *x, ls_placement *p)
{
    work w = { 0 };
    LS_TRY(ls_topo_check_ranks(t, x->ranks));
    double *scratch = calloc(2 * (size_t)x->ranks, sizeof *scratch);
    ls_status st = make(t, x, &w);
    if (st == LS_OK && !scratch) st = ls_fail(LS_NO_MEMORY, "the bytes of %d ranks", x->ranks);
    if (st == LS_OK) {
        ls_placement_strides(x, p, w.stride);
        p->compute_s = t->device.flops_per_s > 0 ? x->flops / (t->device.flops_per_s * x->ranks) : 0;
        p->bound_s = p->serial_s = p->compute_s;
        for (int i = 0; i < x->n; i++) {
            evaluate_row(&w, i, scratch, scratch + x->ranks, &p->row[i]);
            p->serial_s += p->row[i].serial_s;
        }
        for (int l = 0; l < t->nlevels; l++) {
            busiest(&w, l, w.load[l], w.rail[l], &p->bytes[l], &p->seconds[l], &p->total[l]);
            p->bound_s = fmax(p->bound_s, p->seconds[l]);
        }
    }
    free(scratch);
    release(&w);
    return st;
}

/* --- all orders ----------------------------------------------------------------------------------- */

/* The next permutation in lexicographic order of the axes' places in the usual order; false after the last. */
static bool next_order(int *at, int n)
{
    int i = n - 2, k = n - 1;
    while (i >= 0 && at[i] > at[i + 1]) i--;
    if (i < 0) return false;
    while (at[k] < at[i]) k--;
    int v = at[i];
    at[i] = at[k];
    at[k] = v;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) {
        v = at[a];
        at[a] = at[b];
        at[b] = v;
    }
    return true;
}

ls_status ls_placement_search(const ls_topo *t, const ls_step_traffic *x, ls_placement *all, int *n, int *best)
{
    ls_placement usual;
    int at[LS_AXES];
    ls_placement_usual(x, &usual);
    for (int i = 0; i < LS_AXES; i++) at[i] = i;
    *n = *best = 0;
    do {
        ls_placement *p = &all[(*n)++];
        *p = (ls_placement){ .n = usual.n };
        for (int i = 0; i < usual.n; i++) p->order[i] = usual.order[at[i]];
        LS_TRY(ls_placement_evaluate(t, x, p));
        const ls_placement *b = &all[*best];
        if (p->serial_s < b->serial_s || (p->serial_s == b->serial_s && p->bound_s < b->bound_s)) *best = *n - 1;
    } while (next_order(at, usual.n));
    return LS_OK;
}

/* --- what should be exchanged --------------------------------------------------------------------- */

/* Into out[LS_STEP_ROWS]; returns how many. */
static int sum_axes(const ls_step_traffic *x, const ls_placement *p, ls_placed_axes *out)
{
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        int k = 0;
        while (k < n && out[k].axes != x->row[i].axes) k++;
        if (k == n)
            out[n++] = (ls_placed_axes){ .axes = x->row[i].axes, .level = p->row[i].level, .rate = p->row[i].rate };
        out[k].calls += x->row[i].calls;
        out[k].bytes += x->row[i].bytes;
    }
    return n;
}

/* Entry i and k of sum_axes, whose order is the same in every placement. */
static bool crossed(const ls_placed_axes *axes, int i, int k)
{
    return axes[i].calls > axes[k].calls && axes[i].bytes > axes[k].bytes && axes[i].rate < axes[k].rate;
}

int ls_placement_warnings(const ls_step_traffic *x, const ls_placement *p, const ls_placement *all, int n,
                          ls_placement_warning *out)
{
    ls_placed_axes mine[LS_STEP_ROWS], others[LS_STEP_ROWS];
    const int groups = sum_axes(x, p, mine);
    int found = 0;
    for (int i = 0; i < groups; i++)
        for (int k = 0; k < groups; k++) {
            const ls_placement *better = NULL;
            if (!crossed(mine, i, k)) continue;
            for (int q = 0; q < n; q++) {
                (void)sum_axes(x, &all[q], others);
                const bool faster = all[q].serial_s < (better ? better : p)->serial_s;
                if (faster && !crossed(others, i, k)) better = &all[q];
            }
            if (better && out) out[found] = (ls_placement_warning){ mine[i], mine[k], better };
            found += better != NULL;
        }
    return found;
}
