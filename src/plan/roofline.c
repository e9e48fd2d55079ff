/* roofline.c -- a dry step against the peaks of its device and links. */
#include "plan/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *ls_bound_name(ls_bound b)
{
    static const char *const name[LS_BOUNDS] = { "compute", "memory", "communication" };
    return name[b];
}

double ls_intensity(double flops, double bytes) { return bytes > 0 ? flops / bytes : (double)INFINITY; }

double ls_roofline_ridge(const ls_step_rates *r) { return ls_intensity(r->flops_per_s, r->memory_bytes_per_s); }

static ls_bound longest(const double s[LS_BOUNDS])
{
    int most = 0;
    for (int b = 1; b < LS_BOUNDS; b++)
        if (s[b] > s[most]) most = b;
    return (ls_bound)most;
}

/* --- the network --------------------------------------------------------------------------------------------- */

/* Which part of a vector each of n ranks has to send at least. */
static double part_sent(ls_coll coll, int n)
{
    const double others = (double)(n - 1) / n;
    switch (coll) {
    case LS_ALL_REDUCE: return 2 * others;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: return others;
    default: return n > 1 ? 1 : 0;
    }
}

/* A message to the next stage. */
static double message_s(const ls_roofline *r, double bytes)
{
    const int next = ls_mesh_at(r->l->size, r->l->order, 0, LS_ALONG(LS_AXIS_PP), 1);
    double rate, latency;
    ls_topo_pair(r->t, 0, next, &rate, &latency);
    return latency + bytes / rate;
}

static double call_s(const ls_step_result *x, const ls_step_item *i)
{
    const ls_step_call call = ls_step_call_of(i);
    for (int k = 0; k < x->ncalled; k++)
        if (ls_step_same_call(&x->called[k].call, &call)) return x->called[k].price.seconds;
    return 0;
}

static void add_item(ls_roofline *r, const ls_step_result *x, const ls_step_item *i)
{
    ls_roofline_phase *p = &r->phase[i->phase];
    ls_mesh_groups g = { .ranks = r->l->ranks, .span = i->span };
    if (i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN) {
        memcpy(g.size, r->l->size, sizeof g.size);
        memcpy(g.order, r->l->order, sizeof g.order);
        p->sent += i->bytes * part_sent(i->coll, ls_mesh_groups_members(&g));
        p->least_s[LS_BOUND_NETWORK] += call_s(x, i);
    } else if (i->kind == LS_ITEM_SEND) {
        p->sent += i->bytes;
        p->least_s[LS_BOUND_NETWORK] += message_s(r, i->bytes);
    }
}

/* --- a step -------------------------------------------------------------------------------------------------- */

static void add_phase(ls_roofline_phase *to, const ls_roofline_phase *p)
{
    to->flops += p->flops;
    to->bytes += p->bytes;
    to->sent += p->sent;
    for (int b = 0; b < LS_BOUNDS; b++) {
        to->least_s[b] += p->least_s[b];
        to->part_s[b] += p->part_s[b];
    }
}

static void sum_up(ls_roofline *r, const ls_step_result *x)
{
    const ls_step_list *of = &r->l->of[r->stage];
    for (int i = 0; i < of->n; i++) add_item(r, x, &of->item[i]);
    for (int i = 0; i < of->nops; i++) {
        const ls_step_op *op = &of->op[i];
        ls_roofline_phase *p = &r->phase[op->phase];
        p->flops += op->flops;
        p->bytes += op->bytes;
        p->part_s[LS_BOUND_COMPUTE] += op->compute_s;
        p->part_s[LS_BOUND_MEMORY] += op->memory_s;
    }
    for (int k = 0; k < LS_STEP_PHASES; k++) {
        ls_roofline_phase *p = &r->phase[k];
        p->least_s[LS_BOUND_COMPUTE] = p->flops / r->rates.flops_per_s;
        p->least_s[LS_BOUND_MEMORY] = p->bytes / r->rates.memory_bytes_per_s;
        p->part_s[LS_BOUND_NETWORK] = p->least_s[LS_BOUND_NETWORK];
        p->bound = longest(p->part_s);
        add_phase(&r->all, p);
    }
    r->all.bound = longest(r->all.part_s);
}

static int longest_stage(const ls_step_lists *l, const ls_step_result *x)
{
    int most = 0;
    for (int k = 1; k < l->stages; k++)
        if (x->stage[k].compute > x->stage[most].compute) most = k;
    return most;
}

/* Messages between stages are waited for in `stages`, with the bubble. */
static double messages_s(const ls_roofline *r)
{
    const ls_step_list *of = &r->l->of[r->stage];
    double all = 0;
    for (int i = 0; i < of->n; i++)
        if (of->item[i].kind == LS_ITEM_SEND) all += message_s(r, of->item[i].bytes);
    return all;
}

static void split(ls_roofline *r, const ls_step_result *x)
{
    const ls_step_parts *p = &x->stage[r->stage];
    const double messages = r->l->stages > 1 ? fmin(p->stages, messages_s(r)) : 0;
    r->step_s = x->step_s;
    r->part_s[LS_BOUND_COMPUTE] = r->all.part_s[LS_BOUND_COMPUTE];
    r->part_s[LS_BOUND_MEMORY] = r->all.part_s[LS_BOUND_MEMORY];
    const double tail = ls_step_tail_s(x->stage, r->l->stages);
    r->part_s[LS_BOUND_NETWORK] = p->collectives + p->beside + p->others + messages + tail;
    r->bubble_s = p->stages - messages + p->idle - tail;
    r->hidden_s = fmax(0, x->beside_s - p->beside - tail);
    r->bound = longest(r->part_s);
}

static ls_status simulate(const ls_step_lists *l, const ls_topo *t, ls_step_result **out)
{
    const ls_step_sim_opts o = { .t = t };
    *out = calloc(1, sizeof **out);
    return *out ? ls_step_simulate(l, &o, *out) : ls_fail(LS_NO_MEMORY, "a simulation");
}

ls_status ls_roofline_of(const ls_step_lists *l, const ls_step_rates *rates, const ls_topo *t, ls_roofline *out)
{
    ls_step_result *x;
    *out = (ls_roofline){ .t = t, .l = l, .rates = *rates };
    const ls_status st = simulate(l, t, &x);
    if (st == LS_OK) {
        out->stage = longest_stage(l, x);
        sum_up(out, x);
        split(out, x);
    }
    free(x);
    return st;
}

/* --- what would help ----------------------------------------------------------------------------------------- */

/* As in `like`, but with these rates. */
static ls_status step_of(const ls_train_config *c, const ls_roofline *like, const ls_step_rates *rates, double *out)
{
    ls_step_lists l = { 0 };
    ls_step_result *x = NULL;
    ls_status st = ls_step_lists_create(c, like->l->ranks, like->l->local, rates, &l);
    if (st == LS_OK) st = simulate(&l, like->t, &x);
    if (st == LS_OK) *out = x->step_s;
    free(x);
    ls_step_lists_free(&l);
    return st;
}

ls_status ls_roofline_sensitivity(const ls_train_config *c, ls_roofline *out)
{
    const ls_step_rates products = { .flops_per_s = 2 * out->rates.flops_per_s,
                                      .memory_bytes_per_s = out->rates.memory_bytes_per_s };
    const ls_step_rates memory = { .flops_per_s = out->rates.flops_per_s,
                                    .memory_bytes_per_s = 2 * out->rates.memory_bytes_per_s };
    ls_topo links = *out->t;
    ls_step_result *x;
    for (int i = 0; i < links.nlevels; i++) {
        links.level[i].bytes_per_s *= 2;
        links.level[i].latency_s /= 2;
    }
    for (int i = 0; i < links.nslow; i++) links.slow[i].bytes_per_s *= 2;
    LS_TRY(step_of(c, out, &products, &out->doubled_s[LS_BOUND_COMPUTE]));
    LS_TRY(step_of(c, out, &memory, &out->doubled_s[LS_BOUND_MEMORY]));
    const ls_status st = simulate(out->l, &links, &x);
    if (st == LS_OK) out->doubled_s[LS_BOUND_NETWORK] = x->step_s;
    free(x);
    return st;
}
