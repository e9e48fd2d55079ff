/* step_traffic.c -- a dry step, summed up by axis. */
#include "plan/step_traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/pipe.h"
#include "report/mfu.h"
#include "train/memory.h"

const char *ls_step_axes_text(const int size[LS_AXES], unsigned mask, char *buf, size_t n)
{
    size_t at = 0;
    unsigned all = 0;
    *buf = 0;
    for (int a = 0; a < LS_AXES; a++) all |= (size[a] > 1 ? 1u : 0u) << a;
    if (mask == all && (all & (all - 1))) snprintf(buf, n, "all");
    for (int a = 0; a < LS_AXES && mask != 0 && strcmp(buf, "all") != 0 && at < n; a++)
        if (mask >> a & 1u) at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? " x " : "", ls_axis_name((ls_axis)a));
    return buf;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static ls_step_row *row_like(ls_step_traffic *to, const ls_step_row *like)
{
    for (int i = 0; i < to->n; i++) {
        ls_step_row *r = &to->row[i];
        if (r->axes == like->axes && r->ends == like->ends && r->coll == like->coll && r->how == like->how) return r;
    }
    if (to->n == LS_STEP_ROWS) return NULL;
    to->row[to->n] = *like;
    return &to->row[to->n++];
}

static int by_calls(const void *a, const void *b)
{
    const ls_step_row *x = a, *y = b;
    if (x->calls != y->calls) return x->calls < y->calls ? 1 : -1;
    return x->bytes < y->bytes ? 1 : -1;
}

const char *ls_step_span_text(const int size[LS_AXES], const ls_step_span *s, char *buf, size_t n)
{
    char axes[32];
    ls_step_axes_text(size, s->axes, axes, sizeof axes);
    const char *part = s->ends ? " ends" : s->sets < 2 ? "" : s->across ? " across" : " parts";
    snprintf(buf, n, "%s%s", s->ends ? "pp" : axes, part);
    return buf;
}

/* Of `all` ranks along its axes, in the mesh's order, a group has k: neighbours, or ranks at equal distances. */
static bool is_part(const ls_group *g, const int size[LS_AXES], ls_mesh_order order, int all, ls_step_span *out)
{
    const int k = ls_group_size(g);
    int first, place, count;
    bool run = true, comb = true;
    if (all % k != 0) return false;
    ls_mesh_place(size, order, ls_group_world_rank(g, 0), out->axes, &first, &count);
    for (int i = 1; i < k; i++) {
        ls_mesh_place(size, order, ls_group_world_rank(g, i), out->axes, &place, &count);
        run = run && place == first + i;
        comb = comb && place == first + i * (all / k);
    }
    out->across = comb;
    out->sets = comb ? k : all / k;
    return comb ? first < all / k : run && first % k == 0;
}

ls_status ls_step_span_of(const ls_group *g, const int size[LS_AXES], ls_mesh_order order, ls_step_span *out)
{
    int first[LS_AXES], other[LS_AXES], spanned = 1;
    *out = (ls_step_span){ 0 };
    ls_mesh_coord(size, order, ls_group_world_rank(g, 0), first);
    for (int i = 1; i < ls_group_size(g); i++) {
        ls_mesh_coord(size, order, ls_group_world_rank(g, i), other);
        for (int a = 0; a < LS_AXES; a++) out->axes |= (other[a] != first[a] ? 1u : 0u) << a;
    }
    for (int a = 0; a < LS_AXES; a++) spanned *= out->axes >> a & 1u ? size[a] : 1;
    if (spanned == ls_group_size(g)) return LS_OK;
    out->ends = out->axes == LS_ALONG(LS_AXIS_PP) && ls_group_size(g) == 2 && first[LS_AXIS_PP] == 0 &&
                other[LS_AXIS_PP] == size[LS_AXIS_PP] - 1;
    if (out->ends || is_part(g, size, order, spanned, out)) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "group %s has %d of %d ranks along its axes, which are neither neighbours nor at "
                   "equal distances: leave out what divides them (zero.hsdp, parallel.cp_ulysses)", ls_group_text(g),
                   ls_group_size(g), spanned);
}

/* One end counts a message. */
static bool is_sent(const ls_recorded *r) { return r->coll != LS_SENDRECV || r->moved > 0; }

static double sum(const size_t *counts, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += (double)counts[i];
    return all;
}

double ls_step_vector_bytes(const ls_recorded *r)
{
    const int n = ls_group_size(r->group);
    if (r->coll != LS_ALL_TO_ALL || !r->counts) return (double)r->bytes;
    const double out = sum(r->counts, n), in = r->recv_counts ? sum(r->recv_counts, n) : out;
    return (out < in ? out : in) * (double)ls_dtype_size(r->dtype);
}

/* Sends of stages go both ways; in a circle, if the stage after those of all ranks is the first rank's. */
static ls_neighbours neighbours(const ls_train_config *c, const ls_plan *p, unsigned axes)
{
    const ls_pipe_config pipe = { .schedule = p->schedule, .chunks = p->chunks, .micro_batches = p->micro_batches };
    const int pp = (int)c->parallel.pp;
    if (axes != 1u << LS_AXIS_PP) return LS_TO_NEXT;
    return ls_pipe_chunks(&pipe, pp) > 1 && ls_pipe_rank_of(&pipe, pp, pp) == 0 ? LS_TO_BOTH_ROUND : LS_TO_BOTH;
}

static ls_status sum_up(const ls_train_config *c, const ls_plan *p, ls_world *w, int stage, ls_step_traffic *out)
{
    const ls_recorded *had;
    double calls[LS_STEP_ROWS] = { 0 };
    const int n = ls_world_recorded(w, &had);
    for (int i = 0; i < n; i++) {
        ls_step_span span;
        LS_TRY(ls_step_span_of(had[i].group, p->size, p->order, &span));
        if (span.sets > 1)
            return ls_fail(LS_UNSUPPORTED, "groups that are parts of an axis (zero.hsdp, parallel.cp_ulysses) cannot be "
                           "placed: set zero.hsdp 1, and parallel.context other than ulysses-ring");
        ls_step_row like = { .axes = span.axes, .ends = span.ends, .coll = had[i].coll };
        if (like.coll == LS_SENDRECV) like.how = neighbours(c, p, like.axes);
        if (!like.axes || !is_sent(&had[i])) continue;
        ls_step_row *r = row_like(out, &like);
        if (!r) return ls_fail(LS_INTERNAL, "more than %d kinds of collectives in a step", LS_STEP_ROWS);
        r->of_stage[stage] += ls_step_vector_bytes(&had[i]);
        calls[r - out->row]++;
    }
    for (int i = 0; i < out->n; i++) {
        ls_step_row *r = &out->row[i];
        if (calls[i] > r->calls) r->calls = calls[i];
        if (r->of_stage[stage] > r->bytes) r->bytes = r->of_stage[stage];
    }
    return LS_OK;
}

/* --- a dry step ------------------------------------------------------------------------------------- */

ls_status ls_step_dry_begin(const ls_train_config *c, int ranks, int local, bool in_order, ls_step_dry *out)
{
    *out = (ls_step_dry){ .ranks = ranks, .local = local };
    ls_train_config *mine = &out->c;
    if (local < 1 || ranks % local != 0)
        return ls_fail(LS_INVALID, "%d ranks with %d on a node: expected equally many on each node", ranks, local);
    if (local > LS_HOST_MOST_RANKS)
        return ls_fail(LS_UNSUPPORTED, "%d ranks on a node: at most %d share its memory; --topology simulates a cluster", local,
                       LS_HOST_MOST_RANKS);
    (void)ls_train_dry_settle(c, mine);
    if (c->parallel.pp > LS_STEP_STAGES)
        return ls_fail(LS_UNSUPPORTED, "parallel.pp is %lld: at most %d stages can be placed",
                       (long long)c->parallel.pp, LS_STEP_STAGES);
    /* a plan needs no data */
    if (mine->model.vocab_size && (!mine->data.path || !*mine->data.path)) mine->data.path = "not read";
    LS_TRY(ls_train_config_check(mine, ranks));
    if (!in_order && strcmp(c->parallel.placement, "auto") == 0)
        return ls_fail(LS_UNSUPPORTED, "parallel.placement auto: a plan has the ranks in an order that is given: leave it out; "
                       "`lockstep topo place` compares all orders");
    if (!in_order) mine->parallel.order = "pp-dp-ep-cp-tp"; /* what a rank calls does not depend on it */
    /* Pieces that are not asked for depend on the link between ranks, of which nothing is known here. */
    if (mine->parallel.tp > 1 && !mine->parallel.sp && !mine->parallel.tp_pieces) mine->parallel.tp_pieces = 1;
    LS_TRY(ls_train_plan(mine, ranks, &out->plan));
    LS_TRY(ls_train_model(mine, mine->model.vocab_size ? NULL : &out->source, &out->mc));
    LS_TRY(ls_model_resolve(&out->mc, &out->whole));
    out->node = malloc((size_t)ranks * sizeof *out->node);
    for (int r = 0; out->node && r < ranks; r++) out->node[r] = r / local;
    return out->node ? LS_OK : ls_fail(LS_NO_MEMORY, "%d ranks", ranks);
}

/* The algorithm does not matter, and is named so that none is searched for: those of few steps, whose schedules are
 * there soon. Nor does the transport where each rank has a node: one that is for a single node would be refused. */
ls_status ls_step_dry_open(const ls_step_dry *s, int stage, ls_train_dry *d)
{
    ls_world_opts o = ls_train_dry_opts(&s->c);
    if (s->local == 1) o.transport = NULL;
    o.algo = ls_train_is_invariant(&s->c)
                 ? "direct" /* which has the order of the binary tree */
                 : "halving_doubling,all_to_all=pairwise,broadcast=tree,reduce=tree,gather=linear,scatter=linear,"
                   "barrier=dissemination";
    const int rank = ls_mesh_at(s->plan.size, s->plan.order, 0, LS_ALONG(LS_AXIS_PP), stage);
    return ls_train_dry_open(&s->c, &s->mc, rank, s->ranks, s->node, &o, d);
}

ls_status ls_step_dry_steps(const ls_step_dry *s, ls_train_dry *d, int steps)
{
    return ls_train_dry_steps(&s->c, d, s->plan.micro_batch > 0 ? s->plan.micro_batch : 1, steps);
}

void ls_step_dry_end(ls_step_dry *s)
{
    ls_source_free(&s->source);
    free(s->node);
    s->node = NULL;
}

void ls_step_dry_work(const ls_step_dry *s, double *flops, double *tokens, const char **of)
{
    const int64_t T = ls_train_is_lm(&s->c) ? ls_train_seq_len(&s->c) : 0;
    ls_mfu f;
    ls_mfu_count(&s->whole, ls_model_count(&s->mc), T, &f);
    *of = T ? "tokens" : "samples";
    *tokens = (double)s->c.train.global_batch * (double)(T ? T : 1);
    *flops = f.flops * *tokens;
}

static ls_status record(const ls_step_dry *s, int stage, ls_step_traffic *out)
{
    ls_train_dry d = { 0 };
    ls_status st = ls_step_dry_open(s, stage, &d);
    if (st == LS_OK) st = ls_step_dry_steps(s, &d, LS_STEP_SETTLED);
    if (st == LS_OK) st = sum_up(&s->c, &s->plan, d.w, stage, out);
    ls_train_dry_close(&d);
    return st;
}

ls_status ls_step_traffic_of(const ls_train_config *c, int ranks, ls_step_traffic *out)
{
    ls_step_dry s;
    *out = (ls_step_traffic){ .ranks = ranks };
    ls_status st = ls_step_dry_begin(c, ranks, 1, false, &s);
    memcpy(out->size, s.plan.size, sizeof out->size);
    ls_plan p;
    if (st == LS_OK) st = ls_train_plan(c, ranks, &p);
    if (st == LS_OK) memcpy(out->order, p.order, sizeof out->order);
    for (int k = 0; st == LS_OK && k < s.plan.size[LS_AXIS_PP]; k++) st = record(&s, k, out);
    if (st == LS_OK) {
        ls_step_dry_work(&s, &out->flops, &out->tokens, &out->of);
        qsort(out->row, (size_t)out->n, sizeof *out->row, by_calls);
    }
    ls_step_dry_end(&s);
    return st;
}
