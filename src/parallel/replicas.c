/* replicas.c -- the calls of dp.h: one model on all ranks of a group, wrapped by a strategy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/text.h"
#include "lockstep/hook.h"
#include "nn/note.h"
#include "parallel/first_values.h"
#include "parallel/join.h"
#include "parallel/partial.h"
#include "parallel/strategy.h"
#include "parallel/unused.h"

/* --- before it is wrapped ------------------------------------------------------------------- */

/* What a call without a strategy means. */
static ls_status strategy_of(const ls_ddp_config *c, const ls_dp_strategy **out)
{
    return ls_dp_strategy_of(c ? c->zero_stage : 0, out);
}

/* Whether the groups of hybrid sharding fit the strategy and each other. */
static ls_status check_copies(const ls_dp_strategy *s, const ls_group *g, const ls_ddp_config *c)
{
    if (!c || (!c->shards && !c->copies)) return LS_OK;
    if (!s->shards)
        return ls_fail(LS_INVALID, "hybrid sharding with strategy %s, which does not shard: expected zero_stage 1, 2 or 3, or no "
                       "groups in ls_ddp_config", s->name);
    if (!c->shards || !c->copies)
        return ls_fail(LS_INVALID, "hybrid sharding needs two groups, ls_ddp_config.shards and copies: %s is NULL",
                       c->shards ? "copies" : "shards");
    const int a = ls_group_size(c->shards), b = ls_group_size(c->copies), n = ls_group_size(g);
    if (a * b == n) return LS_OK;
    return ls_fail(LS_INVALID, "hybrid sharding: %d shards (%s) with %d copies of each (%s) are %d ranks: expected %d, the size of "
                   "the group", a, ls_group_text(c->shards), b, ls_group_text(c->copies), a * b, n);
}

/* Whether the groups of nodes fit the configuration and each other: a column has one rank of each node. */
static ls_status check_nodes(ls_group *g, const ls_ddp_config *c)
{
    if (!c || (!c->node && !c->column)) return LS_OK;
    if (c->zero_stage != 3 || c->copy != LS_ZERO_COPY_HOST)
        return ls_fail(LS_INVALID, "ls_ddp_config.node and column belong to zero_stage 3 with LS_ZERO_COPY_HOST: expected "
                       "NULL");
    if (!c->node || !c->column)
        return ls_fail(LS_INVALID, "one copy per node needs two groups, ls_ddp_config.node and column: %s is NULL",
                       c->node ? "column" : "node");
    const int a = ls_group_size(c->node), b = ls_group_size(c->column), n = ls_group_size(ls_dp_shards(g, c));
    if (a * b != n)
        return ls_fail(LS_INVALID, "one copy per node: %d ranks of a node (%s) by %d nodes (%s) are %d ranks: expected %d, the "
                       "number of shards", a, ls_group_text(c->node), b, ls_group_text(c->column), a * b, n);
    for (int r = 0; r < a; r++)
        for (int q = 0; q < b; q++)
            if (r != ls_group_rank(c->node) && ls_group_world_rank(c->node, r) == ls_group_world_rank(c->column, q))
                return ls_fail(LS_INVALID, "one copy per node: rank %d is in this rank's node and in its column: expected one "
                               "rank of each node in a column", ls_group_world_rank(c->node, r));
    return LS_OK;
}

ls_status ls_dp_bind(const ls_dp_strategy *s, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype,
                     ls_arena *own)
{
    if (dtype != LS_F32 && dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "parameters for %s: expected f32 or bf16", ls_dtype_name(dtype));
    LS_TRY(check_copies(s, g, c));
    LS_TRY(check_nodes(g, c));
    ps->bound = dtype;
    return s->bind(g, ps, c, dtype, own);
}

ls_status ls_ddp_bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    const ls_dp_strategy *s;
    LS_TRY(strategy_of(c, &s));
    return ls_dp_bind(s, g, ps, c, dtype, own);
}

/* --- wrapping it ------------------------------------------------------------------------ */

/* Two ways to divide the ranks of a group. */
typedef struct grid {
    const char *what, *row_name, *column_name; /* for messages */
    ls_group *row, *column;
} grid;

/* Every rank of g calls it. LS_INVALID unless the groups are rows and columns of a grid, with rank 0 in its corner. */
static ls_status check_grid(ls_group *g, const grid *x)
{
    const int size = ls_group_size(g), me = ls_group_rank(g);
    if (!x->column) return LS_OK;
    int32_t *at = calloc((size_t)size, sizeof *at);
    if (!at) return ls_fail(LS_NO_MEMORY, "the places of %d ranks in %s and %s", size, x->row_name, x->column_name);
    at[me] = ls_group_rank(x->column) * ls_group_size(x->row) + ls_group_rank(x->row);
    ls_status st = ls_all_gather(g, NULL, at, (size_t)size, LS_I32);
    for (int r = 0; st == LS_OK && r < size; r++)
        for (int q = 0; st == LS_OK && q < r; q++)
            if (at[q] == at[r])
                st = ls_fail(LS_INVALID, "%s: ranks %d and %d have the same place in %s and in %s: expected that every rank of %s is "
                             "in another group of %s", x->what, q, r, x->row_name, x->column_name, x->row_name, x->column_name);
    if (st == LS_OK && at[0] != 0)
        st = ls_fail(LS_INVALID, "%s: rank 0 is not the first of %s and of %s, whose values all ranks get", x->what, x->row_name,
                     x->column_name);
    free(at);
    return st;
}

static ls_status check_grids(ls_group *g, const ls_ddp_config *c)
{
    if (!c) return LS_OK;
    LS_TRY(check_grid(g, &(grid){ "hybrid sharding", "shards", "copies", c->shards, c->copies }));
    return check_grid(ls_dp_shards(g, c), &(grid){ "one copy per node", "node", "column", c->node, c->column });
}

static void set_replicas(ls_params *ps, ls_group *g)
{
    for (int i = 0; i < ps->n; i++) ps->item[i].replicas = g;
}

ls_status ls_dp_create(const ls_dp_strategy *s, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out)
{
    *out = NULL;
    if (!g) return ls_fail(LS_INVALID, "no process group: call ls_world_join before ls_ddp_create");
    const bool dry = ls_world_is_dry(ls_group_world(g));
    LS_TRY(check_copies(s, g, c));
    LS_TRY(check_nodes(g, c));
    if (!ls_world_is_alone(ls_group_world(g))) LS_TRY(check_grids(g, c));
    LS_TRY(ls_dp_same_model(g, ps));
    LS_TRY(ls_first_values_end(g, ps));
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (p->settled) continue;
        if (!p->t.data)
            return ls_fail(LS_INVALID, "parameter %s has no values: call ls_ddp_bind before ls_ddp_create", p->name);
        LS_TRY(ls_broadcast(g, p->t.data, (size_t)ls_tensor_count(&p->t), LS_F32, 0));
    }
    if (!dry) ls_params_round(ps);

    ls_status st = LS_NO_MEMORY;
    size_t n = (size_t)ps->n;
    ls_ddp *d = calloc(1, sizeof *d);
    if (!d) return ls_fail(LS_NO_MEMORY, "DDP");
    d->strategy = s;
    d->g = g;
    d->shards = ls_dp_shards(g, c);
    d->gathers_in = d->shards;
    d->ps = ps;
    d->c = ls_ddp_defaults(c);
    d->dry = dry;
    d->divisor = c && c->divisor > 0 ? c->divisor : ls_group_size(g);
    d->bucket_of = calloc(n, sizeof *d->bucket_of);
    d->ready = calloc(n, sizeof *d->ready);
    d->arrival = calloc(n, sizeof *d->arrival);
    if (!d->bucket_of || !d->ready || !d->arrival) {
        st = ls_fail(LS_NO_MEMORY, "DDP of %d parameters", ps->n);
        goto fail;
    }
    if ((st = ls_unused_create(d)) < 0 || (st = s->place(d)) < 0) goto fail;
    for (int k = 0; k < d->nbuckets && !d->lends; k++) {
        if (d->b[k].data) continue;
        st = ls_fail(LS_INTERNAL, "strategy %s does not lend memory, and bucket %d has none", s->name, k);
        goto fail;
    }
    if ((st = ls_partial_create(d)) < 0) goto fail;
    ps->wrapper = d;
    ls_params_zero_grad(ps); /* earlier gradients lay elsewhere */
    set_replicas(ps, g);
    if (!dry) ls_params_note("wrap", ps);
    *out = d;
    return LS_OK;
fail:
    d->second = NULL; /* destroying a group takes all its ranks, and others may have succeeded: the world does it */
    ls_ddp_destroy(d);
    return st;
}

ls_status ls_ddp_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out)
{
    const ls_dp_strategy *s;
    *out = NULL;
    LS_TRY(strategy_of(c, &s));
    return ls_dp_create(s, g, ps, c, out);
}

/* Unless a later wrapper has taken the parameters over. */
static bool holds_gradients(const ls_ddp *d) { return d->ps->wrapper == d; }

void ls_ddp_destroy(ls_ddp *d)
{
    if (!d) return;
    for (int i = 0; i < d->nbuckets; i++)
        if (d->b[i].work) (void)ls_work_wait(d->b[i].work); /* peers may still be reading */
    if (d->strategy->destroy) d->strategy->destroy(d);
    if (holds_gradients(d)) {
        set_replicas(d->ps, NULL);
        d->ps->wrapper = NULL;
        for (int i = 0; i < d->ps->n; i++) { /* their memory is the world's */
            ls_param *p = &d->ps->item[i];
            p->grad.data = NULL;
            p->dmaster = NULL;
            p->t.grad = NULL;
            p->t.grad_ready = p->t.grad_reduced = p->dmaster_ready = false;
            p->keeps = p->own;
        }
    }
    if (d->hook && d->hook->destroy) d->hook->destroy(d->hook);
    for (int i = 0; i < d->ntapes; i++) ls_tape_unlisten(d->tape[i], d);
    free(d->tape);
    ls_unused_destroy(d->unused);
    ls_partial_destroy(d->partial);
    free(d->buffer);
    free(d->join);
    ls_buckets_free(d);
    ls_group_destroy(d->second);
    free(d->bucket_of);
    free(d->ready);
    free(d->arrival);
    free(d);
}

/* --- a step ---------------------------------------------------------------------------------- */

static LS_COLD ls_status unfinished(const ls_ddp *d)
{
    ls_text list = { 0 };
    for (int i = 0; i < d->ps->n; i++)
        if (!d->ready[i]) ls_text_add(&list, "%s%d (%s)", list.n ? ", " : "", i, d->ps->item[i].name);
    ls_status st =
        ls_fail(LS_INVALID,
                "Expected to have finished reduction in the prior iteration before starting a new one: rank %d got no "
                "gradient for parameter %.300s; without find_unused every parameter must take part in the loss",
                ls_group_rank(d->g), ls_text_str(&list));
    ls_text_free(&list);
    return st;
}

static void on_end(void *arg, ls_tape *t)
{
    ls_ddp *d = arg;
    for (int i = 0; i < d->ntapes; i++)
        if (d->tape[i] == t) d->tape[i--] = d->tape[--d->ntapes];
}

static ls_status listen_to(ls_ddp *d, ls_tape *t)
{
    ls_tape_events events = d->strategy->events;
    events.end = on_end;
    for (int i = 0; i < d->ntapes; i++)
        if (d->tape[i] == t) return LS_OK;
    if (d->ntapes == d->tapes_cap) {
        ls_tape **more = realloc(d->tape, (size_t)(d->ntapes + 4) * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of %d tapes", d->ntapes + 4);
        d->tape = more;
        d->tapes_cap = d->ntapes + 4;
    }
    LS_TRY(ls_tape_listen(t, &events, d));
    d->tape[d->ntapes++] = t;
    return LS_OK;
}

ls_status ls_ddp_listen(ls_ddp *d, ls_tape *t) { return listen_to(d, t); }

/* Says what the coming backward does. */
static ls_status begin(ls_ddp *d, ls_tape *t, bool sync)
{
    int from = 0;
    if (d->join) LS_TRY(ls_join_forward(d, sync, &from));
    if (d->partial) LS_TRY(ls_partial_begin(d, sync));
    LS_TRY(ls_dp_before_forward(d, from));
    for (int i = 0; d->unused && i < d->ps->n; i++)
        d->ps->item[i].t.uses = 0; /* a forward that failed may have left some */
    if (d->partial) ls_partial_place(d);
    const bool reduced = sync || d->every_backward;
    d->last = sync;
    d->state = reduced ? LS_DP_SYNC : LS_DP_LOCAL;
    if (reduced) ls_buckets_begin(d);
    return listen_to(d, t);
}

ls_status ls_ddp_begin_forward(ls_ddp *d, ls_tape *t, bool sync)
{
    if (d->state == LS_DP_PENDING) return unfinished(d);
    if (ls_tape_pending(t))
        return ls_fail(LS_INVALID,
                       "ls_ddp_begin_forward on rank %d: the tape holds a forward whose backward has not run, and the "
                       "coming backward must do what was said before that forward (sync %s): call ls_ddp_begin_forward "
                       "before the forward, once per backward, or ls_tape_reset first",
                       ls_group_rank(d->g), d->last ? "true" : "false");
    return begin(d, t, sync);
}

ls_status ls_ddp_begin_backward(ls_ddp *d, ls_tape *t, bool sync)
{
    return d->state == LS_DP_PENDING ? unfinished(d) : begin(d, t, sync);
}

ls_status ls_ddp_end_weights(ls_ddp *d)
{
    if (d->state != LS_DP_SYNC && d->state != LS_DP_PENDING) return LS_OK;
    for (int i = 0; i < d->ps->n; i++)
        if (!d->ready[i] && d->ps->item[i].t.grad_ready) LS_TRY(ls_buckets_grad_ready(d, &d->ps->item[i].t));
    return d->strategy->events.done ? d->strategy->events.done(d) : LS_OK;
}

bool ls_ddp_values_stay(const ls_ddp *d) { return !d->lends; }
bool ls_ddp_forwards_meet(const ls_ddp *d) { return d->forwards_meet; }
ls_ddp_in_use ls_ddp_units_in_use(const ls_ddp *d) { return d->in_use; }
int ls_ddp_reductions(const ls_ddp *d, int n) { return d->every_backward ? n : 1; }

ls_status ls_ddp_after_step(ls_ddp *d)
{
    if (d->state != LS_DP_REDUCED) return LS_OK;
    if (d->strategy->after_step) LS_TRY(d->strategy->after_step(d));
    d->state = LS_DP_CURRENT;
    return LS_OK;
}

static ls_status whole_of(void *arg, const ls_param *p, const float **out)
{
    ls_ddp *d = arg;
    return d->strategy->whole(d, p, out);
}

ls_values ls_ddp_values(ls_ddp *d) { return (ls_values){ whole_of, d }; }

/* --- inspection ------------------------------------------------------------------------------- */

int ls_ddp_buckets(const ls_ddp *d) { return d->nbuckets; }
bool ls_ddp_rebuilt(const ls_ddp *d) { return d->narrived < 0; }
const char *ls_ddp_bucket_order(const ls_ddp *d)
{
    if (d->c.find_unused && !d->c.static_graph) return "registration order, the last bucket first: find_unused";
    return ls_ddp_rebuilt(d) ? d->strategy->order : "first iteration";
}

ls_ddp_bucket_info ls_ddp_bucket(const ls_ddp *d, int index)
{
    const ls_bucket *b = &d->b[index];
    return (ls_ddp_bucket_info){ .index = index, .param = b->param, .nparams = b->nparams, .nbytes = b->nbytes };
}
