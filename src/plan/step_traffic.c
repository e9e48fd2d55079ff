/* step_traffic.c -- a dry step, summed up by axis. */
#include "plan/step_traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/mfu.h"
#include "train/dry.h"
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

static ls_status add(ls_step_traffic *to, const ls_step_row *row)
{
    for (int i = 0; i < to->n; i++) {
        ls_step_row *r = &to->row[i];
        if (r->axes != row->axes || r->coll != row->coll || r->how != row->how) continue;
        r->calls += row->calls;
        r->bytes += row->bytes;
        return LS_OK;
    }
    if (to->n == LS_STEP_ROWS) return ls_fail(LS_INTERNAL, "more than %d kinds of collectives in a step", LS_STEP_ROWS);
    to->row[to->n++] = *row;
    return LS_OK;
}

static int by_calls(const void *a, const void *b)
{
    const ls_step_row *x = a, *y = b;
    if (x->calls != y->calls) return x->calls < y->calls ? 1 : -1;
    return x->bytes < y->bytes ? 1 : -1;
}

/* Along which axes the ranks of a group differ. */
static ls_status axes_of(const ls_group *g, const int size[LS_AXES], unsigned *out)
{
    int first[LS_AXES], other[LS_AXES], spanned = 1;
    *out = 0;
    ls_mesh_coord(size, ls_group_world_rank(g, 0), first);
    for (int i = 1; i < ls_group_size(g); i++) {
        ls_mesh_coord(size, ls_group_world_rank(g, i), other);
        for (int a = 0; a < LS_AXES; a++) *out |= (other[a] != first[a] ? 1u : 0u) << a;
    }
    for (int a = 0; a < LS_AXES; a++) spanned *= *out >> a & 1u ? size[a] : 1;
    if (spanned == ls_group_size(g)) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "groups that are parts of an axis (zero.hsdp) cannot be placed: set zero.hsdp 1");
}

/* One end counts a message. */
static bool is_sent(const ls_recorded *r) { return r->coll != LS_SENDRECV || r->moved > 0; }

static double sum(const size_t *counts, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += (double)counts[i];
    return all;
}

/* Of an all_to_all with counts, what this rank has for all, with as much going out as coming in: a dry world counts the
 * rows of experts that may come in the worst case, on one of the two sides. */
static double vector_bytes(const ls_recorded *r)
{
    const int n = ls_group_size(r->group);
    if (r->coll != LS_ALL_TO_ALL || !r->counts) return (double)r->bytes;
    const double out = sum(r->counts, n), in = r->recv_counts ? sum(r->recv_counts, n) : out;
    return (out < in ? out : in) * (double)ls_dtype_size(r->dtype);
}

static ls_status sum_up(ls_world *w, const int size[LS_AXES], ls_step_traffic *out)
{
    const ls_recorded *had;
    const int n = ls_world_recorded(w, &had);
    for (int i = 0; i < n; i++) {
        ls_step_row row = { .coll = had[i].coll, .how = LS_TO_NEXT, .calls = 1, .bytes = vector_bytes(&had[i]) };
        LS_TRY(axes_of(had[i].group, size, &row.axes));
        if (row.axes && is_sent(&had[i])) LS_TRY(add(out, &row));
    }
    return LS_OK;
}

/* --- a dry step --------------------------------------------------------------------------------------------------- */

/* Every rank on a node of its own, so that no collective is left out because ranks share memory; the algorithm does not
 * matter, and is named so that none is searched for. */
static ls_status record(const ls_train_config *c, const ls_model_config *mc, const int size[LS_AXES], int ranks,
                        ls_step_traffic *out)
{
    ls_train_dry d = { 0 };
    ls_world_opts o = ls_train_dry_opts(c);
    const int64_t local = c->train.global_batch / ls_train_batch_ranks(c, ranks);
    int *node = malloc((size_t)ranks * sizeof *node);
    if (!node) return ls_fail(LS_NO_MEMORY, "%d ranks", ranks);
    for (int r = 0; r < ranks; r++) node[r] = r;
    o.transport = NULL;
    o.algo = "ring,all_to_all=pairwise,broadcast=chain,reduce=chain,gather=linear,scatter=linear,barrier=dissemination";
    ls_status st = ls_train_dry_open(c, mc, 0, ranks, node, &o, &d);
    for (int step = 1; st == LS_OK && step <= 3; step++) { /* in the second one buckets are rebuilt */
        ls_world_record_clear(d.w);
        st = ls_train_dry_step(c, &d, ls_train_micro_batch(c, local));
    }
    if (st == LS_OK) st = sum_up(d.w, size, out);
    ls_train_dry_close(&d);
    free(node);
    return st;
}

/* Each stage sends the activations of a micro-batch to the next one, and their gradients to the one before. */
static ls_status add_stages(const ls_train_config *c, const ls_model_config *mc, int ranks, ls_step_traffic *out)
{
    const int64_t pp = c->parallel.pp, local = c->train.global_batch / ls_train_batch_ranks(c, ranks);
    const int64_t micro = ls_train_micro_batch(c, local), passes = micro > 0 ? (local + micro - 1) / micro : 1;
    const int64_t shards = c->parallel.cp * (c->parallel.sp ? c->parallel.tp : 1);
    const double sent = (double)local * (double)ls_train_seq_len(c) * (double)mc->lm.d_model / (double)shards;
    for (int i = 0; i < out->n; i++) {
        out->row[i].bytes /= (double)pp;
        out->row[i].calls /= (double)pp;
    }
    return add(out, &(ls_step_row){ .axes = 1u << LS_AXIS_PP, .coll = LS_SENDRECV, .how = LS_TO_BOTH,
                                    .calls = 2 * (double)passes,
                                    .bytes = sent * (double)ls_dtype_size(ls_train_dtype(c)) });
}

ls_status ls_step_traffic_of(const ls_train_config *c, int ranks, ls_step_traffic *out)
{
    ls_train_config one = *c; /* without its stages */
    ls_source source = { 0 };
    ls_model_config mc, whole;
    ls_plan plan;
    ls_mfu f;
    const int pp = (int)c->parallel.pp;
    *out = (ls_step_traffic){ .ranks = ranks, .staged = pp > 1 };
    if (ranks < 1 || ranks % pp != 0)
        return ls_fail(LS_BAD_CONFIG, "%d ranks cannot be divided into parallel.pp %d stages", ranks, pp);
    if (pp > 1 && !ls_train_is_lm(c))
        return ls_fail(LS_UNSUPPORTED, "parallel.pp is %d: the formula is that of language models", pp);
    one.parallel.pp = 1;
    if (one.model.vocab_size && (!one.data.path || !*one.data.path)) one.data.path = "not read"; /* a plan needs no data */
    LS_TRY(ls_train_config_check(&one, ranks / pp));
    LS_TRY(ls_train_plan(&one, ranks / pp, &plan));
    ls_status st = ls_train_model(&one, one.model.vocab_size ? NULL : &source, &mc);
    if (st == LS_OK) st = ls_model_resolve(&mc, &whole);
    if (st == LS_OK) st = record(&one, &mc, plan.size, ranks / pp, out);
    memcpy(out->size, plan.size, sizeof out->size);
    out->size[LS_AXIS_PP] = pp;
    if (st == LS_OK && pp > 1) st = add_stages(c, &whole, ranks, out);
    if (st == LS_OK) {
        const int64_t T = ls_train_is_lm(c) ? ls_train_seq_len(c) : 0;
        ls_mfu_count(&whole, ls_model_count(&mc), T, &f);
        out->of = T ? "tokens" : "samples";
        out->tokens = (double)c->train.global_batch * (double)(T ? T : 1);
        out->flops = f.flops * out->tokens;
        qsort(out->row, (size_t)out->n, sizeof *out->row, by_calls);
    }
    ls_source_free(&source);
    return st;
}
