/* explain_layout.c -- a plan, rank by rank, from dry worlds. */
#include "train/explain_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"
#include "train/dry.h"
#include "train/explain_zero.h"
#include "train/memory_stages.h"

/* --- groups ---------------------------------------------------------------------------------------------- */

static void add_role(ls_explain_group *g, bool is, const char *role)
{
    const size_t n = strlen(g->role);
    if (is) snprintf(g->role + n, sizeof g->role - n, "%s%s", n ? ", " : "", role);
}

static void describe_group(const ls_parallel *p, const ls_group *g, ls_explain_group *out)
{
    const ls_mesh *m = &p->mesh;
    snprintf(out->text, sizeof out->text, "%s", ls_group_text(g));
    out->size = ls_group_size(g);
    out->nodes = ls_group_nodes(g);
    add_role(out, g == ls_world_group(m->w), "all ranks");
    for (int a = 0; a < LS_AXES; a++) add_role(out, m->size[a] > 1 && g == m->axis[a], ls_axis_name((ls_axis)a));
    if (out->size > 1) {
        add_role(out, g == m->replicas, "gradients");
        add_role(out, g == m->expert_replicas && p->experts, "gradients of experts");
        add_role(out, g == m->batch, "samples");
    }
    add_role(out, g == m->embedding, "tied embedding");
    add_role(out, g == p->shards, "shards");
    add_role(out, g == p->copies, "sets of shards");
    add_role(out, g == p->node || g == p->column, g == p->node ? "copy of a node" : "between copies");
    add_role(out, g == p->ddp->second || (p->experts && g == p->experts->second), "a second one, beside the first");
}

/* --- collectives ------------------------------------------------------------------------------------------- */

/* Of a collective without a label: those of the step itself have none. */
static const char *unlabelled(const ls_recorded *r, const ls_explain_group *g)
{
    const bool sums = r->coll == LS_ALL_REDUCE && r->dtype == LS_F64;
    if (r->coll == LS_BARRIER) return "barrier";
    if (r->dtype == LS_F32) return strcmp(g->role, "tied embedding") == 0 ? "tied embedding" : "gradients of sp";
    if (r->coll == LS_ALL_GATHER) return "losses, signals";
    if (sums) return r->bytes == sizeof(double) ? "labels that count" : "norm";
    return r->dtype == LS_I64 ? "exact sums, or loads" : "signals";
}

/* A label without the number or name at its end: "bucket 3" is "bucket", "values of h.1" is "values of a unit". */
static void purpose_of(const ls_recorded *r, const ls_explain_group *g, char out[LS_EXPLAIN_WHAT])
{
    const char *space = strrchr(r->label, ' ');
    size_t n = strlen(r->label);
    if (space && strspn(space + 1, "0123456789") == strlen(space + 1)) n = (size_t)(space - r->label);
    if (strncmp(r->label, "values of ", 10) == 0) snprintf(out, LS_EXPLAIN_WHAT, "values of a unit");
    else if (n > 0) snprintf(out, LS_EXPLAIN_WHAT, "%.*s", (int)n, r->label);
    else snprintf(out, LS_EXPLAIN_WHAT, "%s", unlabelled(r, g));
}

static ls_explain_calls *row_of(ls_explain_rank *r, int group, ls_coll coll, const char *what)
{
    for (int i = 0; i < r->ncalls; i++) {
        ls_explain_calls *k = &r->calls[i];
        if (k->group == group && k->coll == coll && strcmp(k->what, what) == 0) return k;
    }
    if (r->ncalls == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 16;
        ls_explain_calls *more = realloc(r->calls, (size_t)cap * sizeof *more);
        if (!more) return NULL;
        r->calls = more;
        r->cap = cap;
    }
    ls_explain_calls *k = &r->calls[r->ncalls++];
    *k = (ls_explain_calls){ .group = group, .coll = coll };
    snprintf(k->what, sizeof k->what, "%s", what);
    return k;
}

static ls_status add_call(const ls_recorded *had, int group, ls_explain_rank *out)
{
    char what[LS_EXPLAIN_WHAT];
    uint64_t moved;
    LS_TRY(ls_recorded_traffic(had, &moved, NULL));
    purpose_of(had, &out->group[group], what);
    ls_explain_calls *k = row_of(out, group, had->coll, what);
    if (!k) return ls_fail(LS_NO_MEMORY, "a list of collectives");
    k->calls++;
    k->bytes += had->bytes;
    k->moved += moved;
    out->group[group].dry[had->coll].calls++;
    out->group[group].dry[had->coll].moved += moved;
    return LS_OK;
}

/* Group by group; within one in the order of the first call. There are few, and they are almost in order. */
static void sort_calls(ls_explain_rank *r)
{
    for (int i = 1; i < r->ncalls; i++) {
        const ls_explain_calls k = r->calls[i];
        int at = i;
        for (; at > 0 && r->calls[at - 1].group > k.group; at--) r->calls[at] = r->calls[at - 1];
        r->calls[at] = k;
    }
}

/* The collectives of a steady step. */
static ls_status record(const ls_train_config *c, ls_train_dry *d, int64_t rows, ls_explain_rank *out)
{
    ls_group *group[LS_COMM_GROUPS];
    const ls_recorded *had;
    out->ngroups = ls_comm_groups(&d->par, group);
    for (int k = 0; k < out->ngroups; k++) describe_group(&d->par, group[k], &out->group[k]);
    LS_TRY(ls_train_dry_steps(c, d, rows, LS_TRAIN_DRY_SETTLED));
    const int n = ls_world_recorded(d->w, &had);
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < out->ngroups && group[k] != had[i].group) k++;
        if (k == out->ngroups)
            return ls_fail(LS_INTERNAL, "a dry step calls %s in group %s, which is none of the plan's",
                           ls_coll_name(had[i].coll), ls_group_text(had[i].group));
        LS_TRY(add_call(&had[i], k, out));
    }
    sort_calls(out);
    return LS_OK;
}

/* --- parameters ---------------------------------------------------------------------------------------------- */

static ls_status count(const ls_params *ps, ls_explain_rank *out)
{
    out->params = calloc((size_t)ps->n + 1, sizeof *out->params);
    if (!out->params) return ls_fail(LS_NO_MEMORY, "the shapes of %d parameters", ps->n);
    out->nparams = ps->n;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        ls_explain_elements *e = ps->experts && i >= ps->experts ? &out->experts : &out->dense;
        ls_tensor whole = p->t;
        ls_part_shape(&p->part, &p->t, whole.dim);
        e->whole += (uint64_t)ls_tensor_count(&whole);
        e->here += (uint64_t)ls_tensor_count(&p->t);
        e->own += p->own.count;
        ls_explain_param *x = &out->params[i];
        snprintf(x->name, sizeof x->name, "%s", p->name);
        x->ndim = p->t.ndim;
        memcpy(x->here, p->t.dim, sizeof x->here);
        memcpy(x->whole, whole.dim, sizeof x->whole);
    }
    return LS_OK;
}

/* --- stages of a pipeline ------------------------------------------------------------------------------------- */

static ls_status count_layers(const ls_parallel *p, ls_explain_layout *l)
{
    if (!ls_parallel_staged(p) || l->layers) return LS_OK;
    l->stages = p->model->stage[0].of;
    l->layers = calloc((size_t)l->stages, sizeof *l->layers);
    if (!l->layers) return ls_fail(LS_NO_MEMORY, "the layers of %d pipeline stages", l->stages);
    for (int s = 0; s < l->stages; s++) {
        const int *first = &p->first_unit[s];
        l->layers[s] = ls_model_layers_before(p->model, first[1]) - ls_model_layers_before(p->model, first[0]);
    }
    return LS_OK;
}

/* --- ranks ------------------------------------------------------------------------------------------------------ */

static ls_status make_rank(const ls_train_config *c, const ls_model_config *mc, int rank, ls_explain_layout *l)
{
    const ls_world_opts o = ls_train_dry_opts(c);
    ls_explain_rank *out = &l->rank[rank];
    ls_train_dry d;
    ls_status st = ls_train_dry_open(c, mc, rank, l->size, l->node, &o, &d);
    if (st == LS_OK) memcpy(out->coord, d.par.mesh.coord, sizeof out->coord);
    if (st == LS_OK) st = ls_memory_plan_of(c, &d, &out->plan);
    if (st == LS_OK) st = count(&d.par.model->params, out);
    if (st == LS_OK) st = count_layers(&d.par, l);
    ls_plan fitted;
    if (st == LS_OK) st = ls_train_plan(c, l->size, &fitted);
    if (st == LS_OK) st = ls_explain_pipe_make(&fitted, mc, &d.par.model->place, &l->pipe);
    if (st == LS_OK) st = record(c, &d, l->micro, out);
    ls_train_dry_close(&d);
    return st < 0 ? ls_while(st, "planning rank %d of %d", rank, l->size) : LS_OK;
}

static ls_status place(int nodes, const int *node, ls_explain_layout *l)
{
    if (!node && (nodes < 1 || l->size % nodes != 0))
        return ls_fail(LS_BAD_CONFIG, "--nodes: %d nodes cannot have equally many of %d ranks: expected a divisor of %d", nodes,
                       l->size, l->size);
    for (int r = 0; r < l->size; r++) {
        l->node[r] = node ? node[r] : r / (l->size / nodes);
        if (l->node[r] >= l->nnodes) l->nnodes = l->node[r] + 1;
    }
    return LS_OK;
}

ls_status ls_explain_layout_make(const ls_train_config *c, const ls_model_config *mc, int size, int nodes,
                                 const int *node, ls_explain_layout *out)
{
    ls_train_config settled;
    ls_memory_stages fitted;
    *out = (ls_explain_layout){ .size = size };
    LS_TRY(ls_traffic_is_known(c, size));
    LS_TRY(ls_train_config_check(c, size));
    if (!ls_train_dry_settle(c, &settled))
        return ls_fail(LS_UNSUPPORTED, "ddp.hook powersgd: what ranks send changes after ddp.powersgd_start %lld steps, and "
                       "train.epochs does not say before data are read whether a run has as many: set train.steps",
                       (long long)c->ddp.powersgd_start);
    LS_TRY(ls_train_plan(c, size, &out->plan));
    out->batch = c->train.global_batch;
    out->micro = out->plan.micro_batch;
    out->tokens = ls_train_is_lm(c) ? ls_train_seq_len(c) : 0;
    out->overlaps = c->ddp.overlap;
    out->rank = calloc((size_t)size, sizeof *out->rank);
    out->node = calloc((size_t)size, sizeof *out->node);
    if (!out->rank || !out->node) return ls_fail(LS_NO_MEMORY, "what %d ranks do", size);
    LS_TRY(place(nodes, node, out));
    if (out->nnodes == 1) LS_TRY(ls_memory_stages_fit(&settled, mc, size, &fitted));
    else fitted.c = settled;
    for (int r = 0; r < size; r++) LS_TRY(make_rank(&fitted.c, mc, r, out));
    const int64_t all = ls_model_count(mc); /* 0: the model has no formula, and is whole on each rank */
    out->parameters = all > 0 ? (uint64_t)all : out->rank[0].dense.whole;
    return LS_OK;
}

void ls_explain_layout_free(ls_explain_layout *l)
{
    for (int r = 0; l->rank && r < l->size; r++) {
        free(l->rank[r].calls);
        free(l->rank[r].params);
    }
    free(l->rank);
    free(l->node);
    free(l->layers);
    ls_explain_pipe_free(&l->pipe);
    *l = (ls_explain_layout){ 0 };
}
