/* parallelize.c -- a plan applied to a model: the groups of its axes, this rank's stages, replicas and tapes. Whether
 * that is possible is in parallelize_check.c. */
#include "train/parallelize.h"

#include <stdlib.h>
#include <string.h>

#include "group/link.h"
#include "lockstep/ckpt.h"
#include "nn/unit_ledger.h"

/* --- 3. who keeps replicas in step ------------------------------------------------------------------- */

static ls_status open_hook(const ls_plan *p, ls_ddp *d)
{
    ls_comm_hook *h;
    LS_TRY(ls_hook_named(p->hook, &p->powersgd, &h));
    const ls_status st = ls_ddp_set_hook(d, h);
    if (st < 0) h->destroy(h);
    return st;
}

/* Consecutive ranks hold one set of shards. */
static int set_of(const void *shards, int rank) { return rank / *(const int *)shards; }
static int shard_of(const void *shards, int rank) { return rank % *(const int *)shards; }

/* Of g the sets into c; `names` of both groups. */
static ls_status open_sets(const ls_plan *p, ls_group *g, const char *const names[2], ls_ddp_config *c)
{
    if (p->hsdp < 2) return LS_OK;
    const int shards = ls_group_size(g) / p->hsdp;
    LS_TRY(ls_group_split_by(g, set_of, &shards, names[0], &c->shards));
    return ls_group_split_by(g, shard_of, &shards, names[1], &c->copies);
}

static int node_of(const void *group, int rank) { return ls_group_node(group, rank); }

/* Which of the ranks of its node it is. */
static int place_of(const void *group, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++) place += ls_group_node(group, r) == ls_group_node(group, rank);
    return place;
}

/* LS_UNSUPPORTED unless every node has as many ranks of g as the first one. Nodes are numbered within g. */
static ls_status check_equal(const ls_group *g)
{
    const int size = ls_group_size(g);
    int first = 0;
    for (int r = 0; r < size; r++) first += ls_group_node(g, r) == 0;
    for (int node = 1; node < ls_group_nodes(g); node++) {
        int here = 0;
        for (int r = 0; r < size; r++) here += ls_group_node(g, r) == node;
        if (here != first)
            return ls_fail(LS_UNSUPPORTED, "one copy of the parameters per node: node 0 has %d rank%s and node %d has %d: expected the "
                           "same number of ranks on every node, or zero.copy rank (LS_ZERO_COPY_RANK)", first, first == 1 ? "" : "s", node,
                           here);
    }
    return LS_OK;
}

/* Where one set of shards of g is on several nodes: the ranks of a node share one copy of the values. */
static ls_status open_nodes(ls_group *g, const char *const names[2], ls_ddp_config *c)
{
    if (c->shards) g = c->shards;
    if (c->zero_stage != 3 || c->copy != LS_ZERO_COPY_HOST) return LS_OK;
    if (ls_group_is_mapped(g) || ls_group_nodes(g) == 1) return LS_OK; /* ls_ddp_bind refuses what it cannot share */
    LS_TRY(check_equal(g));
    LS_TRY(ls_group_split_by(g, node_of, g, names[0], &c->node));
    return ls_group_split_by(g, place_of, g, names[1], &c->column);
}

/* --- 2. what of the model is here ------------------------------------------------------------------- */

static int neighbours_of(const void *exchange, int rank) { return rank / *(const int *)exchange; }
static int place_among(const void *exchange, int rank) { return rank % *(const int *)exchange; }

/* Ranks of tp that share heads of keys. */
static ls_status open_twins(ls_parallel *out)
{
    const ls_lm_config *lm = &out->model->lm;
    const int copies = ls_part_copies(&out->model->place.tp, out->model->cls->lm ? lm->n_kv_head : 0);
    if (copies < 2) return LS_OK;
    return ls_group_split_by(out->mesh.axis[LS_AXIS_TP], neighbours_of, &copies, "twins", &out->twins);
}

/* The ranks of cp as lines of neighbours that exchange heads, and rings across the lines. */
static ls_status open_rings(const ls_plan *p, ls_parallel *out)
{
    ls_group *g = out->mesh.axis[LS_AXIS_CP];
    if (p->exchange < 2) return LS_OK;
    LS_TRY(ls_group_split_by(g, neighbours_of, &p->exchange, "exchange", &out->exchange));
    return ls_group_split_by(g, place_among, &p->exchange, "ring", &out->ring);
}

static ls_along along(ls_group *g) { return g ? (ls_along){ g, ls_group_size(g), ls_group_rank(g) } : (ls_along){ 0 }; }

static ls_place here_of(const ls_plan *p, const ls_parallel *out)
{
    const ls_mesh *m = &out->mesh;
    const ls_axis tp = LS_AXIS_TP, cp = LS_AXIS_CP, ep = LS_AXIS_EP;
    ls_place place = { .tp = { m->axis[tp], m->size[tp], m->coord[tp] }, .sequence_parallel = p->sequence_parallel,
                       .cp = { m->axis[cp], m->size[cp], m->coord[cp] },
                       .exchange = along(out->exchange), .ring = along(out->ring),
                       .ep = { m->axis[ep], m->size[ep], m->coord[ep] }, .in_turn = p->in_turn };
    if (p->context) (void)ls_cp_mode_find(p->context, &place.context); /* ls_plan_check has found it */
    ls_link_cost link;
    place.pieces = p->tp_pieces;
    if (ls_group_link(place.tp.ranks, &link)) place.link.message_ns = link.alpha_ns, place.link.byte_ns = link.beta_ns;
    return place;
}

bool ls_parallel_divides(const ls_parallel *p)
{
    const int *size = p->mesh.size;
    return size[LS_AXIS_PP] > 1 || size[LS_AXIS_TP] > 1 || size[LS_AXIS_CP] > 1 || size[LS_AXIS_EP] > 1;
}

/* Operations in the time that the optimizer takes per element: AdamW reads and writes 28 bytes and the gradient's norm
 * reads 4, in 1.5 ns per element on a core that multiplies 105 GFLOP/s in f32 (bench_gpt, an Intel Xeon with AMX). */
#define UPDATE_OPERATIONS 160.0
#define WORTH_IT 0.015 /* of a step: costs are not known better, and stages of equal cost have more even memory */

/* The place whose costs decide, on every rank: parts of a vocabulary or of a sequence may differ from rank to rank, and
 * the ranks of a stage need the same one. The first rank has the larger part of a vocabulary, the last one of cp
 * attends to most keys. */
static ls_place deciding_place(const ls_place *here)
{
    ls_place one = ls_place_alone(here);
    ls_along *const last[] = { &one.cp, &one.exchange, &one.ring };
    one.tp.rank = one.ep.rank = 0;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) last[i]->rank = last[i]->size > 1 ? last[i]->size - 1 : 0;
    return one;
}

/* Ranks that divide the optimizer's state of an element. */
static double shards_of(const ls_plan *p)
{
    const int all = p->size[LS_AXIS_DP] * p->size[LS_AXIS_EP] * p->size[LS_AXIS_CP];
    return p->ddp.zero_stage > 0 ? (double)all / (p->hsdp > 1 ? p->hsdp : 1) : 1.0;
}

/* What units cost a replay. */
typedef struct costs {
    ls_pipe_units u;
    double *each; /* owned: [4 x n] */
} costs;

static void free_costs(costs *x)
{
    free(x->each);
    *x = (costs){ 0 };
}

static ls_status costs_of(const ls_plan *p, const ls_model *m, costs *out)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    const int n = m->units.n, ranks = p->size[LS_AXIS_PP];
    ls_unit_costs_of of = { .batch = p->micro_batch, .tokens = p->tokens, .dtype = p->dtype, .recompute = p->recompute,
                            .halves = ls_pipe_splits(&c) };
    ls_unit_cost *cost = calloc((size_t)n, sizeof *cost);
    double *each = calloc(4 * (size_t)n, sizeof *each);
    *out = (costs){ { n, each, each + n, each + 2 * n, each + 3 * n, 0.0 }, each };
    ls_status st = cost && each ? LS_OK : ls_fail(LS_NO_MEMORY, "costs of %d units", n);
    if (st == LS_OK) st = ls_pipe_loss_waits(&c, ranks, &of.logits_in_forward);
    if (st == LS_OK) st = ls_model_unit_costs(m, &of, cost);
    const double updates = UPDATE_OPERATIONS / shards_of(p);
    for (int i = 0; i < n && st == LS_OK; i++) {
        each[i] = cost[i].forward;
        each[n + i] = cost[i].input;
        each[2 * n + i] = cost[i].weight;
        each[3 * n + i] = updates * cost[i].elements;
    }
    for (int i = 0; i < m->units.nroot; i++) out->u.root += updates * (double)ls_tensor_count(&m->params.item[i].t);
    free(cost);
    return st;
}

/* Moves the bounds of stages of equal cost so that the replayed step is short; `memory` NULL: not limited. */
static ls_status cut_by_replay(const ls_plan *p, const ls_model *m, const ls_pipe_memory *memory, int *first)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    costs x;
    ls_status st = costs_of(p, m, &x);
    if (st == LS_OK) st = ls_pipe_cut(&c, p->size[LS_AXIS_PP], &x.u, memory, WORTH_IT, first, NULL);
    free_costs(&x);
    return st < 0 ? ls_while(st, "cutting the model into pipeline stages") : LS_OK;
}

/* Ranks of tp that would spend as long in the collectives of a layer as in its operations, whose number per rank falls
 * with tp while the bytes stay: with H100s and NVLink a quarter to a third of the time is collectives at 8. An
 * all_reduce of tp moves 2 vectors of a token, so a vector takes 1 / (2 TP_HALF) of the operations of half a layer on
 * one rank. */
#define TP_HALF 16.0

/* What attention and mlp exchange per token, forward, in vectors of the model's width. */
static void exchanged(const ls_plan *p, const ls_model *m, double *attention, double *mlp)
{
    const double tp = p->size[LS_AXIS_TP], cp = p->size[LS_AXIS_CP], ep = p->size[LS_AXIS_EP];
    const ls_lm_config *lm = &m->lm;
    const double keys = lm->n_kv_head > 0 ? (double)lm->n_kv_head / (double)lm->n_head : 1.0;
    *attention = *mlp = tp > 1 ? 2.0 : 0.0;
    if (cp > 1) *attention += 2.0 * keys * (cp - 1) / tp; /* keys and values of others, per token that is here */
    if (ep > 1) *mlp += 2.0 * (double)lm->top_k * (ep - 1) / ep; /* there and back */
}

/* Adds the collectives within layers: those of tensor parallelism, of which the embedding has one forward and the head
 * one backward, too; the exchanges of context parallelism, backward of gradients, too; and those of experts. */
static void add_collectives(const ls_plan *p, const ls_model *m, costs *halved)
{
    const int n = halved->u.n;
    double sum = 0.0, attention, mlp;
    exchanged(p, m, &attention, &mlp);
    for (int i = 1; i < n - 1; i++) sum += halved->each[i];
    const double vector = sum / (n - 2) * p->size[LS_AXIS_TP] / (2.0 * TP_HALF);
    const double end = p->size[LS_AXIS_TP] > 1 ? 2.0 : 0.0;
    for (int i = 0; i < n; i++) {
        const double one = i == 0 || i == n - 1 ? end : i % 2 == 1 ? attention : mlp;
        if (i < n - 1) halved->each[i] += vector * one;
        if (i > 0) halved->each[n + i] += vector * (i % 2 == 1 && i < n - 1 ? 2.0 * attention - end : one);
    }
}

/* Whether a cut into halves that is shorter without collectives within the layers is still shorter with long ones. How
 * long they take here is not known. */
static ls_status still_shorter(const ls_plan *p, const ls_model *halved, const int *whole, const int *first, bool *yes)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    const int ranks = p->size[LS_AXIS_PP];
    double without = 0.0, with = 0.0;
    costs x;
    ls_status st = costs_of(p, halved, &x);
    if (st == LS_OK) add_collectives(p, halved, &x);
    if (st == LS_OK) st = ls_pipe_step_of(&c, ranks, &x.u, whole, &without);
    if (st == LS_OK) st = ls_pipe_step_of(&c, ranks, &x.u, first, &with);
    free_costs(&x);
    *yes = with < without * (1.0 - WORTH_IT);
    return st;
}

/* Stages of whole layers, and in place of them stages that begin and end inside layers where the replayed step is then
 * shorter. With more stages than layers there are only these. Where ranks divide layers, halves have to be worth it
 * with the collectives within layers and without. */
static ls_status cut_halves(const ls_plan *p, const ls_model *layers, const ls_model *halved, int *first)
{
    const int stages = ls_plan_stages(p);
    if (p->split || stages > layers->units.n) {
        LS_TRY(ls_model_split(halved, stages, p->split, p->nsplit, first));
        return p->split ? LS_OK : cut_by_replay(p, halved, NULL, first);
    }
    LS_TRY(ls_model_split(layers, stages, NULL, 0, first));
    LS_TRY(cut_by_replay(p, layers, NULL, first));
    if (!layers->cls->lm) return LS_OK;
    ls_model_to_halves(layers, halved, stages, first);
    const size_t nbytes = ((size_t)stages + 1) * sizeof *first;
    int *whole = malloc(nbytes);
    if (!whole) return ls_fail(LS_NO_MEMORY, "%d pipeline stages", stages);
    memcpy(whole, first, nbytes);
    bool shorter = true;
    ls_status st = cut_by_replay(p, halved, NULL, first);
    const int inside = p->size[LS_AXIS_TP] * p->size[LS_AXIS_CP] * p->size[LS_AXIS_EP]; /* ranks that divide layers */
    if (st == LS_OK && inside > 1 && memcmp(whole, first, nbytes) != 0)
        st = still_shorter(p, halved, whole, first, &shorter);
    if (!shorter) memcpy(first, whole, nbytes);
    free(whole);
    return st;
}

ls_status ls_plan_cut_layers(const ls_plan *p, const ls_model_config *mc, const ls_place *here,
                             const ls_pipe_memory *memory, int *first)
{
    ls_model *layers = NULL;
    ls_place one = deciding_place(here);
    memset(one.halved, 0, sizeof one.halved);
    ls_status st = ls_model_create_at(mc, &one, &layers);
    if (st == LS_OK) st = ls_model_split(layers, ls_plan_stages(p), NULL, 0, first);
    if (st == LS_OK) st = cut_by_replay(p, layers, memory, first);
    ls_model_destroy(layers);
    return st;
}

/* The bounds of stages, in units of a model at *place, in which the layers are halved that they cut. */
static ls_status cut(const ls_plan *p, const ls_model_config *mc, int *first, ls_place *place)
{
    ls_model *layers = NULL, *halved = NULL;
    ls_place one = deciding_place(place);
    ls_status st = ls_model_create_at(mc, &one, &layers);
    memset(one.halved, 0xff, sizeof one.halved);
    if (st == LS_OK && layers->cls->lm) st = ls_model_create_at(mc, &one, &halved);
    if (st == LS_OK) st = cut_halves(p, layers, halved ? halved : layers, first);
    if (st == LS_OK) ls_model_to_layers(halved ? halved : layers, ls_plan_stages(p), first, place);
    ls_model_destroy(halved);
    ls_model_destroy(layers);
    return st;
}

ls_status ls_plan_stage_costs(const ls_plan *p, const ls_model_config *mc, const ls_place *here, double *forward,
                              double *input, double *weight)
{
    const int stages = ls_plan_stages(p);
    ls_place place = *here;
    ls_model *m = NULL;
    costs x = { 0 };
    int *first = calloc((size_t)stages + 1, sizeof *first);
    ls_status st = first ? cut(p, mc, first, &place) : ls_fail(LS_NO_MEMORY, "%d pipeline stages", stages);
    place = deciding_place(&place);
    if (st == LS_OK) st = ls_model_create_at(mc, &place, &m);
    if (st == LS_OK) st = costs_of(p, m, &x);
    for (int s = 0; st == LS_OK && s < stages; s++) {
        forward[s] = input[s] = weight[s] = 0.0;
        for (int i = first[s]; i < first[s + 1]; i++) {
            forward[s] += x.u.forward[i];
            input[s] += x.u.input[i];
            weight[s] += x.u.weight[i];
        }
    }
    free_costs(&x);
    ls_model_destroy(m);
    free(first);
    return st;
}

/* The model with the units of this rank's stages, and where a loss is. */
static ls_status open_model(const ls_plan *p, const ls_model_config *mc, ls_parallel *out)
{
    ls_place place = here_of(p, out);
    ls_mesh *m = &out->mesh;
    const ls_pipe_config c = ls_plan_pipe(p);
    const int ranks = p->size[LS_AXIS_PP], rank = m->coord[LS_AXIS_PP];
    const int stages = ls_plan_stages(p), chunks = stages / ranks;
    if (stages == 1) return ls_model_create_at(mc, &place, &out->model);
    int *number = calloc((size_t)chunks, sizeof *number);
    out->first_unit = calloc((size_t)stages + 1, sizeof *out->first_unit);
    ls_status st = number && out->first_unit ? LS_OK : ls_fail(LS_NO_MEMORY, "%d pipeline stages", stages);
    if (st == LS_OK) st = cut(p, mc, out->first_unit, &place);
    if (st == LS_OK) st = ls_model_create_at(mc, &place, &out->model);
    if (st == LS_OK) {
        ls_pipe_stages_of(&c, ranks, rank, number);
        st = ls_model_keep(out->model, stages, out->first_unit, number, chunks);
    }
    free(number);
    m->has_loss = ls_pipe_rank_of(&c, ranks, stages - 1) == rank && m->coord[LS_AXIS_TP] == 0;
    return st;
}

static bool has_stage(const ls_parallel *p, int number)
{
    for (int i = 0; i < p->model->nstages; i++)
        if (p->model->stage[i].number == number) return true;
    return false;
}

/* Whether another rank has the root's parameters that are here, too: those of the first and of the last stage. */
static bool shares_root(const ls_parallel *p)
{
    const int stages = p->model->nstages ? p->model->stage[0].of : 1;
    return stages > 1 && has_stage(p, 0) != has_stage(p, stages - 1);
}

/* Of what all ranks of a line have, the first one counts and saves it. Of the root that is the rank of the last stage,
 * which has fewer layers and so fewer parameters of its own, since it has the head to compute. */
static void keep_once(ls_parallel *out)
{
    ls_params *ps = &out->model->params;
    const int stages = out->model->nstages ? out->model->stage[0].of : 1;
    const bool again = shares_root(out) && !has_stage(out, stages - 1);
    const int rank = out->mesh.coord[LS_AXIS_TP];
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const int copies = ls_part_is_all(&p->part) ? out->mesh.size[LS_AXIS_TP] : p->tp_copies > 1 ? p->tp_copies : 1;
        if (rank % copies != 0) p->keeps.count = 0;
        if (again && p->unit < 0) p->keeps.count = 0;
    }
}

/* Adds up the gradients of those parameters of which `wanted` is true. */
static ls_status sum_over(ls_group *g, ls_params *ps, bool (*wanted)(const ls_param *))
{
    int n = 0;
    void **of = calloc((size_t)ps->n, sizeof *of);
    size_t *count = calloc((size_t)ps->n, sizeof *count);
    const bool room = of && count;
    for (int i = 0; room && i < ps->n; i++) {
        const ls_param *q = &ps->item[i];
        if (!wanted(q) || !ls_param_has_gradient(q) || q->own.count == 0) continue;
        of[n] = ls_param_gradients(q);
        count[n++] = q->own.count;
    }
    const ls_status st = !room    ? ls_fail(LS_NO_MEMORY, "a list of %d gradients", ps->n)
                         : n == 0 ? LS_OK
                         : n == 1 ? ls_all_reduce(g, NULL, of[0], count[0], LS_F32, LS_SUM) /* where it lies */
                                  : ls_all_reduce_coalesced(g, of, count, n, LS_F32, LS_SUM);
    free(of);
    free(count);
    return st;
}

static bool has_twins(const ls_param *p) { return p->tp_copies > 1; }
/* All ranks of tp have it: with sequence parallelism each has the gradient for its tokens. */
static bool is_whole(const ls_param *p) { return ls_part_is_all(&p->part) && !has_twins(p); }
static bool is_root(const ls_param *p) { return p->unit < 0; }

ls_status ls_parallel_sum_gradients(ls_parallel *p)
{
    ls_params *ps = &p->model->params;
    if (p->twins) LS_TRY(sum_over(p->twins, ps, has_twins));
    if (p->model->place.sequence_parallel) LS_TRY(sum_over(p->mesh.axis[LS_AXIS_TP], ps, is_whole));
    return shares_root(p) ? sum_over(p->mesh.embedding, ps, is_root) : LS_OK;
}

ls_values ls_parallel_values(const ls_parallel *p) { return p->kept ? ls_kept_values(p->kept) : ls_ddp_values(p->ddp); }

static ls_params view_of(const ls_params *ps, ls_range r)
{
    return (ls_params){ .item = ps->item + r.first, .n = (int)r.count, .cap = (int)r.count, .before = (int)r.first };
}

/* The model's parameters as one list, or as some: those of each chunk, and of each all but the experts, and those. */
static ls_status open_views(ls_parallel *out)
{
    const ls_model *m = out->model;
    const ls_params *ps = &m->params;
    out->nchunks = m->nstages ? m->nstages : 1;
    if (!(out->chunk = calloc((size_t)out->nchunks, sizeof *out->chunk))) return ls_fail(LS_NO_MEMORY, "%d chunks", out->nchunks);
    for (int c = 0; c < out->nchunks; c++) {
        ls_chunk *k = &out->chunk[c];
        const size_t dense = ps->experts ? (size_t)ps->experts : (size_t)ps->n;
        const ls_range all = { 0, dense }, last = { dense, (size_t)ps->n - dense };
        k->dense = view_of(ps, m->nstages ? m->stage[c].part.params : all);
        k->sparse = view_of(ps, m->nstages ? m->stage[c].part.experts : last);
    }
    return LS_OK;
}

/* How the replicas of all parameters but experts are wrapped. */
static ls_status open_dense(const ls_plan *p, ls_parallel *out, ls_ddp_config *c)
{
    static const char *const sets[] = { "shards", "copies" }, *const nodes[] = { "node-ranks", "column" };
    *c = p->ddp;
    ls_status st = open_sets(p, out->mesh.replicas, sets, c);
    if (st == LS_OK) st = open_nodes(out->mesh.replicas, nodes, c);
    out->shards = c->shards, out->copies = c->copies, out->node = c->node, out->column = c->column;
    return st;
}

/* The wrapper of experts that ranks divide: its replicas are fewer, and its gradients sums over all ranks' samples. */
static ls_status open_experts(const ls_plan *p, ls_parallel *out, ls_ddp_config *c)
{
    static const char *const sets[] = { "expert-shards", "expert-copies" };
    static const char *const nodes[] = { "expert-node", "expert-column" };
    *c = p->ddp;
    c->divisor = ls_group_size(out->mesh.replicas);
    if (p->size[LS_AXIS_EP] < 2) return LS_OK;
    ls_status st = open_sets(p, out->mesh.expert_replicas, sets, c);
    if (st == LS_OK) st = open_nodes(out->mesh.expert_replicas, nodes, c);
    out->expert_shards = c->shards, out->expert_copies = c->copies;
    out->expert_node = c->node, out->expert_column = c->column;
    return st;
}

/* Without chunks and experts one wrapper has the model's own list. */
static ls_params *dense_of(ls_parallel *out, int chunk)
{
    ls_params *all = &out->model->params;
    return out->nchunks == 1 && out->chunk[0].sparse.n == 0 ? all : &out->chunk[chunk].dense;
}

static ls_status open_replicas(const ls_plan *p, const ls_model_config *mc, const ls_parallel_opts *o, ls_parallel *out)
{
    ls_group *const g = out->mesh.replicas, *const few = out->mesh.expert_replicas;
    const ls_dp_strategy *s;
    ls_ddp_config c, e;
    LS_TRY(ls_plan_strategy(p, &s));
    LS_TRY(open_dense(p, out, &c));
    LS_TRY(open_experts(p, out, &e));
    LS_TRY(open_views(out));
    for (int i = 0; i < out->nchunks; i++) {
        ls_chunk *k = &out->chunk[i];
        LS_TRY(ls_dp_bind(s, g, dense_of(out, i), &c, p->dtype, o->own));
        if (k->sparse.n > 0) LS_TRY(ls_dp_bind(s, few, &k->sparse, &e, p->dtype, o->own));
    }
    out->model->params.bound = p->dtype;
    if (!ls_world_is_dry(ls_group_world(g)))
        LS_TRY(o->values ? o->values(o->arg, out->model) : ls_model_init(out->model, mc));
    for (int i = 0; i < out->nchunks; i++) {
        ls_chunk *k = &out->chunk[i];
        LS_TRY(ls_dp_create(s, g, dense_of(out, i), &c, &k->ddp));
        if (k->sparse.n > 0) LS_TRY(ls_dp_create(s, few, &k->sparse, &e, &k->experts));
        if (p->hook) LS_TRY(open_hook(p, k->ddp));
        const bool travels = k->experts && ls_group_size(few) > 1;
        if (p->hook && travels) LS_TRY(open_hook(p, k->experts));
    }
    out->ddp = out->chunk[0].ddp;
    out->experts = out->chunk[0].experts;
    keep_once(out);
    return LS_OK;
}

ls_status ls_parallel_begin_forward(const ls_parallel *p, ls_tape *t, bool sync)
{
    LS_TRY(ls_ddp_begin_forward(p->ddp, t, sync));
    return p->experts ? ls_ddp_begin_forward(p->experts, t, sync) : LS_OK;
}

ls_status ls_parallel_begin_backward(ls_parallel *p, int chunk, ls_tape *t, bool last)
{
    const ls_chunk *k = &p->chunk[chunk];
    LS_TRY(ls_ddp_begin_backward(k->ddp, t, last));
    return k->experts ? ls_ddp_begin_backward(k->experts, t, last) : LS_OK;
}

ls_status ls_parallel_end_weights(ls_parallel *p, int chunk)
{
    const ls_chunk *k = &p->chunk[chunk];
    LS_TRY(ls_ddp_end_weights(k->ddp));
    return k->experts ? ls_ddp_end_weights(k->experts) : LS_OK;
}

ls_status ls_parallel_after_step(ls_parallel *p)
{
    for (int i = 0; i < p->nchunks; i++) {
        LS_TRY(ls_ddp_after_step(p->chunk[i].ddp));
        if (p->chunk[i].experts) LS_TRY(ls_ddp_after_step(p->chunk[i].experts));
    }
    return LS_OK;
}

/* --- 5. what stays until backward: a tape, or with pipeline stages several that share memory --------------- */

static ls_status alloc_shared(const ls_device *d, size_t nbytes, void **out)
{
    return ls_alloc(d->state, nbytes, LS_MEM_ACT, out);
}

static void stays(const ls_device *d, void *p, size_t nbytes)
{
    (void)d, (void)p, (void)nbytes;
} /* until the world ends */

bool ls_parallel_forwards_meet(const ls_parallel *p) { return ls_parallel_divides(p) || ls_ddp_forwards_meet(p->ddp); }

bool ls_parallel_shares_tapes(const ls_parallel *p)
{
    for (int a = 0; a < LS_AXES; a++)
        if (a != LS_AXIS_DP && p->mesh.size[a] > 1 && ls_group_is_mapped(p->mesh.axis[a])) return true;
    return false;
}

static ls_status open_tape(ls_world *w, const ls_plan *p, const ls_parallel *at, size_t nbytes, ls_tape **out)
{
    ls_ledger *const ledger = ls_world_ledger(w);
    ls_tracer *const tracer = ls_world_tracer(w);
    LS_TRY(at->scratch ? ls_tape_create_shared(at->scratch, nbytes, ledger, tracer, out)
           : nbytes    ? ls_tape_create_on(&at->device, nbytes, ledger, tracer, out)
                       : ls_tape_create_dry(out));
    ls_tape_set_recompute(*out, p->recompute);
    return ls_tape_set_dtype(*out, p->dtype);
}

static ls_status open_scratch(ls_world *w, const ls_parallel_opts *o, ls_parallel *out)
{
    if (!ls_parallel_staged(out)) return LS_OK;
    if (o->tape_bytes == 0) return ls_tape_scratch_create_dry(&out->scratch);
    return ls_tape_scratch_create_on(&out->device, o->tape_bytes, ls_world_ledger(w), &out->scratch);
}

/* Whether the chunk's stage has the loss and is better off with logits in forward: while ranks compute forwards alone,
 * the last stage has time to spare, and its backwards would be the longest. */
static bool has_early_loss(const ls_parallel *p, int chunk)
{
    if (!ls_parallel_staged(p)) return false;
    const ls_stage *s = &p->model->stage[chunk];
    return s->number == s->of - 1 && ls_pipe_forwards_first(p->pipe, chunk);
}

/* The tapes of a chunk, from *at on. */
static ls_status open_chunk(ls_world *w, const ls_plan *p, const ls_parallel_opts *o, int chunk, ls_parallel *out,
                            int *at)
{
    const ls_chunk *k = &out->chunk[chunk];
    const bool early = has_early_loss(out, chunk);
    const size_t nbytes = out->scratch && o->chunk_bytes ? o->chunk_bytes[chunk] : o->tape_bytes;
    for (int i = 0; i < ls_pipe_slots_of(out->pipe, chunk); i++) {
        ls_tape **t = &out->tape[(*at)++];
        LS_TRY(open_tape(w, p, out, nbytes, t));
        ls_tape_logits_in_forward(*t, early);
        LS_TRY(ls_unit_ledger_listen(out->units, *t));
        LS_TRY(ls_ddp_listen(k->ddp, *t));
        if (k->experts) LS_TRY(ls_ddp_listen(k->experts, *t));
    }
    return LS_OK;
}

static ls_status open_tapes(ls_world *w, const ls_plan *p, const ls_parallel_opts *o, ls_parallel *out)
{
    const int n = ls_pipe_slots(out->pipe);
    int at = 0;
    void *packed;
    if (!(out->tape = calloc((size_t)n, sizeof *out->tape))) return ls_fail(LS_NO_MEMORY, "a list of %d tapes", n);
    out->ntapes = n;
    out->device = ls_device_cpu;
    if (ls_parallel_shares_tapes(out)) {
        out->device.state = w;
        out->device.alloc = alloc_shared;
        out->device.release = stays;
    }
    LS_TRY(open_scratch(w, o, out));
    for (int c = 0; c < out->nchunks; c++) LS_TRY(open_chunk(w, p, o, c, out, &at));
    if (o->packed_bytes == 0) return LS_OK;
    LS_TRY(ls_arena_alloc(o->own, o->packed_bytes, LS_MEM_PARAM, &packed));
    if (o->tape_bytes == 0) return LS_OK; /* a dry tape takes note of the size alone */
    return ls_tape_pack_memory(out->tape[0], packed, o->packed_bytes);
}

/* Bytes of what enters or leaves this rank's stages, at most. */
static size_t edge_bytes(const ls_plan *p, const ls_parallel_opts *o, const ls_model *m)
{
    const int64_t rows = o->most_rows > p->micro_batch ? o->most_rows : p->micro_batch;
    size_t most = 0;
    for (int i = 0; i < m->nstages; i++)
        for (int in = 0; in < 2; in++) {
            const ls_stage *s = &m->stage[i];
            ls_tensor x;
            if (in ? s->number == 0 : s->number == s->of - 1) continue;
            ls_model_edge(m, i, in, rows, 0, p->dtype, &x);
            if (ls_tensor_nbytes(&x) > most) most = ls_tensor_nbytes(&x);
        }
    return most;
}

ls_status ls_parallelize(ls_world *w, const ls_plan *p, const ls_model_config *mc, const ls_parallel_opts *opts,
                         ls_parallel *out)
{
    memset(out, 0, sizeof *out);
    LS_TRY(ls_plan_check(p, mc, ls_world_size(w)));
    LS_TRY(ls_mesh_create(w, p->size, p->order, &out->mesh)); /* 1. who is who */
    LS_TRY(open_rings(p, out));
    LS_TRY(open_model(p, mc, out)); /* 2. what of the model is here */
    LS_TRY(open_twins(out));
    if (ls_parallel_divides(out) && !ls_world_is_dry(w)) LS_TRY(ls_kept_create(ls_world_group(w), &out->kept));
    LS_TRY(ls_unit_ledger_open(&out->model->units, ls_world_ledger(w), &out->units));
    LS_TRY(open_replicas(p, mc, opts, out));
    ls_pipe_config order = ls_plan_pipe(p);
    order.stages = out->mesh.axis[LS_AXIS_PP];
    order.edge_bytes = edge_bytes(p, opts, out->model);
    LS_TRY(ls_pipe_create(&order, &out->pipe));         /* 4. in which order */
    return open_tapes(w, p, opts, out);
}

static void close_chunk(ls_chunk *k)
{
    ls_ddp_destroy(k->experts);
    ls_ddp_destroy(k->ddp);
    ls_params_take_sink(&k->sparse, NULL);
    ls_params_take_sink(&k->dense, NULL);
}

void ls_parallel_destroy(ls_parallel *p)
{
    for (int i = 0; i < p->ntapes; i++) ls_tape_destroy(p->tape[i]);
    free(p->tape);
    ls_tape_scratch_destroy(p->scratch);
    ls_unit_ledger_close(p->units);
    ls_pipe_destroy(p->pipe);
    for (int i = 0; i < p->nchunks && p->chunk; i++) close_chunk(&p->chunk[i]);
    free(p->chunk);
    free(p->first_unit);
    ls_kept_destroy(p->kept);
    ls_model_destroy(p->model);
    ls_group_destroy(p->ring);
    ls_group_destroy(p->exchange);
    ls_group_destroy(p->expert_column);
    ls_group_destroy(p->expert_node);
    ls_group_destroy(p->expert_copies);
    ls_group_destroy(p->expert_shards);
    ls_group_destroy(p->twins);
    ls_group_destroy(p->column);
    ls_group_destroy(p->node);
    ls_group_destroy(p->copies);
    ls_group_destroy(p->shards);
    ls_mesh_destroy(&p->mesh);
    memset(p, 0, sizeof *p);
}
