/* dry.c -- a rank of a run whose other ranks are not there. */
#include "train/dry.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/team.h"
#include "parallel/strategy.h"
#include "train/experts.h"
#include "train/feed.h"

#define LEAST_START 2 /* of ddp.powersgd_start */

/* --- what both sorts of ranks tell each other ------------------------------------------------------ */

ls_status ls_train_tell(ls_world *w, double (*words)[LS_TRAIN_WORDS], const double mine[LS_TRAIN_WORDS],
                        const double (**all)[LS_TRAIN_WORDS])
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    memcpy(words[rank], mine, sizeof words[rank]);
    *all = (const double (*)[LS_TRAIN_WORDS])words;
    return ls_all_gather(ls_world_group(w), NULL, words, (size_t)size * LS_TRAIN_WORDS, LS_F64);
}

ls_status ls_train_count_labels(ls_group *batch, double *counted)
{
    return ls_all_reduce(batch, NULL, counted, 1, LS_F64, LS_SUM);
}

ls_status ls_train_sum_losses(ls_world *w, ls_exact *sum)
{
    ls_exact_carry(sum);
    return ls_all_reduce(ls_world_group(w), NULL, sum->word, LS_EXACT_WORDS, LS_I64, LS_SUM);
}

ls_status ls_train_norm(const ls_train_config *c, ls_group *world, const ls_params *ps, double *norm,
                        const ls_param **culprit)
{
    return ls_train_is_invariant(c) ? ls_grad_norm_exact(world, ps, norm, culprit)
                                    : ls_grad_norm_shared(world, ps, norm, culprit);
}

uint64_t ls_train_record(ls_world *w, ls_ev_kind kind, const char *label, uint64_t t0_ns)
{
    ls_tracer *tr = ls_world_tracer(w);
    ls_event ev = { .t0_ns = t0_ns, .kind = (uint8_t)kind, .peer = -1, .label = ls_tracer_label(tr, label) };
    ev.t1_ns = ls_env_get()->mono_ns();
    ls_tracer_add(tr, &ev);
    return ev.t1_ns;
}

/* --- the rank --------------------------------------------------------------------------------------- */

ls_world_opts ls_train_dry_opts(const ls_train_config *c)
{
    return (ls_world_opts){ .backend = ls_train_backend(c),
                            .transport = *c->comm.transport ? c->comm.transport : NULL,
                            .algo = *c->comm.algo ? c->comm.algo : NULL,
                            .progress = strcmp(c->comm.progress, "thread") == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE,
                            .wire_bf16 = strcmp(c->comm.wire, "bf16") == 0 };
}

/* What a rank's loops take depends on its threads, which have scratch memory each. It would have as many as the
 * launcher gives it or joining leaves it (net/cores.c). */
static void take_threads(int rank, int size, const int *node, ls_train_dry *out)
{
    int here = 0;
    for (int r = 0; r < size; r++) here += !node || (rank < size && node[r] == node[rank]);
    out->threads = ls_team_resize(ls_team_planned(here));
}

static ls_status reserve_copy(const ls_train_config *c, ls_train_dry *d)
{
    LS_TRY(ls_state_create(ls_world_group(d->w), &d->state));
    LS_TRY(ls_state_add_model(d->state, &d->par.model->params, d->optim));
    LS_TRY(ls_train_kept_add(d->state, &d->kept));
    if (ls_train_copies(c)) LS_TRY(ls_state_reserve(d->state));
    if (ls_train_snapshots(c)) ls_count_shared(d->w, LS_MEM_CKPT, LS_NO_UNIT, ls_snapshots_bytes(d->state));
    return LS_OK;
}

ls_status ls_train_dry_open(const ls_train_config *c, const ls_model_config *mc, int rank, int size, const int *node,
                            const ls_world_opts *o, ls_train_dry *out)
{
    ls_plan p;
    memset(out, 0, sizeof *out);
    LS_TRY(ls_train_plan(c, size, &p));
    return ls_train_dry_open_plan(c, &p, mc, rank, size, node, o, out);
}

ls_status ls_train_dry_open_plan(const ls_train_config *c, const ls_plan *plan, const ls_model_config *mc, int rank,
                                 int size, const int *node, const ls_world_opts *o, ls_train_dry *out)
{
    ls_plan p = *plan;
    ls_optim_config oc;
    memset(out, 0, sizeof *out);
    out->mc = mc;
    if (p.micro_batch < 1) p.micro_batch = 1; /* too many ranks: ls_train_config_check says so */
    if (p.micro_batches < 1) p.micro_batches = 1;
    out->micro_batches = p.micro_batches;
    LS_TRY(ls_train_optim(c, &oc));
    if (size > 0 && !(out->words = calloc((size_t)size, sizeof *out->words)))
        return ls_fail(LS_NO_MEMORY, "what %d ranks tell", size);
    LS_TRY(ls_world_dry(rank, size, node, o, &out->w));
    take_threads(rank, size, node, out);
    LS_TRY(ls_arena_create_dry(ls_world_ledger(out->w), &out->own));
    const ls_parallel_opts po = { .own = out->own, .most_rows = ls_feed_most_rows(c) };
    LS_TRY(ls_parallelize(out->w, &p, mc, &po, &out->par));
    if (strcmp(c->optim.decay, "matrices") == 0) ls_params_decay_matrices(&out->par.model->params);
    LS_TRY(ls_optim_create(&oc, &out->par.model->params, out->own, &out->optim));
    return ls_train_copies(c) || ls_train_snapshots(c) ? reserve_copy(c, out) : LS_OK;
}

void ls_train_dry_close(ls_train_dry *d)
{
    ls_state_destroy(d->state);
    ls_optim_destroy(d->optim);
    ls_parallel_destroy(&d->par);
    ls_arena_destroy(d->own); /* before the world, whose ledger it keeps */
    ls_world_leave(d->w);
    free(d->words);
    if (d->threads) (void)ls_team_resize(d->threads);
}

/* --- its steps -------------------------------------------------------------------------------------- */

static ls_status micro_batch(const ls_train_config *c, ls_train_dry *d, int64_t rows, bool last)
{
    const ls_model *m = d->par.model;
    ls_tape *t = d->par.tape[0];
    ls_model_input in;
    ls_tape_reset(t);
    ls_tape_pack_begin(t);
    LS_TRY(ls_parallel_begin_forward(&d->par, t, last));
    m->cls->input(m, rows, ls_train_is_lm(c) ? ls_train_seq_len(c) : 0, &in);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    ls_tensor *labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    ls_tensor *loss = ls_model_loss(m, t, x, labels, NULL);
    LS_TRY(ls_tape_status(t));
    LS_TRY(ls_backward(t, loss));
    ls_tape_pack_end(t);
    return LS_OK;
}

/* With pipeline stages: all micro-batches, since those that are alive at a time are what counts. */
typedef struct staged {
    ls_parallel *par;
    int64_t rows, tokens; /* of a micro-batch */
    ls_stage_pass *alive; /* [ntapes] */
    const ls_train_dry *d;
} staged;

static void tell(const staged *s, const ls_pipe_action *a)
{
    if (s->d->on_action) s->d->on_action(s->d->arg, a);
}

static ls_status stage_forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    const staged *s = arg;
    tell(s, a);
    ls_tape_pack_begin(s->par->tape[0]);
    return ls_parallel_stage_forward(s->par, a, s->rows, s->tokens, NULL, NULL, data, &s->alive[a->slot]);
}

static ls_status stage_backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    static const float scale = 1.0f;
    const staged *s = arg;
    tell(s, a);
    return ls_parallel_stage_backward(s->par, a, &s->alive[a->slot], &scale, data);
}

static size_t stage_edge(void *arg, int number, int micro_batch, ls_dtype *dtype)
{
    const staged *s = arg;
    (void)micro_batch;
    return ls_parallel_edge(s->par, number, s->rows, s->tokens, dtype);
}

static ls_status run_stages(const ls_train_config *c, ls_train_dry *d, int64_t rows, bool evaluate)
{
    static const ls_pipe_work work = { NULL, stage_forward, stage_backward, stage_edge };
    staged s = { .par = &d->par, .d = d, .rows = rows, .tokens = ls_train_is_lm(c) ? ls_train_seq_len(c) : 0,
                 .alive = calloc((size_t)d->par.ntapes, sizeof *s.alive) };
    if (!s.alive) return ls_fail(LS_NO_MEMORY, "a list of %d micro-batches", d->par.ntapes);
    for (int i = 0; i < d->par.ntapes; i++) ls_tape_set_grad(d->par.tape[i], !evaluate);
    const ls_status st = evaluate ? ls_pipe_forward(d->par.pipe, 1, &work, &s)
                                  : ls_pipe_run(d->par.pipe, d->micro_batches, &work, &s);
    for (int i = 0; i < d->par.ntapes; i++) ls_tape_set_grad(d->par.tape[i], true);
    ls_tape_pack_end(d->par.tape[0]);
    free(s.alive);
    return st;
}

ls_status ls_train_dry_evaluate(const ls_train_config *c, ls_train_dry *d, int64_t rows)
{
    return run_stages(c, d, rows, true);
}

/* Micro-batches that a dry step runs: those that have collectives. */
static int passes_of(const ls_train_dry *d)
{
    return ls_parallel_staged(&d->par) || ls_parallel_forwards_meet(&d->par)
               ? d->micro_batches
               : ls_ddp_reductions(d->par.ddp, d->micro_batches);
}

ls_status ls_train_dry_step(const ls_train_config *c, ls_train_dry *d, int64_t rows)
{
    const double mine[LS_TRAIN_WORDS] = { 0 };
    const double (*all)[LS_TRAIN_WORDS];
    double counted = 0, norm;
    ls_exact loss = { 0 };
    if (ls_train_is_lm(c) && c->data.ignore_token >= 0) LS_TRY(ls_train_count_labels(d->par.mesh.batch, &counted));
    const int n = passes_of(d);
    if (ls_parallel_staged(&d->par)) LS_TRY(run_stages(c, d, rows, false));
    for (int i = 0; i < n && !ls_parallel_staged(&d->par); i++) LS_TRY(micro_batch(c, d, rows, i == n - 1));
    LS_TRY(ls_train_tell(d->w, d->words, mine, &all));
    if (ls_train_is_invariant(c)) LS_TRY(ls_train_sum_losses(d->w, &loss));
    LS_TRY(ls_parallel_sum_gradients(&d->par));
    LS_TRY(ls_train_norm(c, ls_world_group(d->w), &d->par.model->params, &norm, NULL));
    LS_TRY(ls_optim_step(d->optim));
    LS_TRY(ls_experts_end(&d->par.mesh, d->par.model, true));
    LS_TRY(ls_parallel_after_step(&d->par));
    ls_train_record(d->w, LS_EV_OPTIM, "optimizer step", 0);
    ls_train_record(d->w, LS_EV_STEP, "step", 0);
    return LS_OK;
}

ls_status ls_train_dry_steps(const ls_train_config *c, ls_train_dry *d, int64_t rows, int steps)
{
    for (int i = 0; i < steps; i++) {
        ls_world_record_clear(d->w);
        LS_TRY(ls_train_dry_step(c, d, rows));
    }
    return LS_OK;
}

bool ls_train_dry_settle(const ls_train_config *c, ls_train_config *out)
{
    *out = *c;
    if (strcmp(c->ddp.hook, "powersgd") != 0) return true;
    const bool never = c->train.steps > 0 && c->train.steps <= c->ddp.powersgd_start;
    out->ddp.powersgd_start = never ? INT32_MAX : LEAST_START;
    return c->train.steps > 0;
}

static ls_train_events events_of(const ls_tracer *t)
{
    return (ls_train_events){ .ops = ls_tracer_count(t, LS_EV_OP), .colls = ls_tracer_count(t, LS_EV_COLL),
                              .marks = ls_tracer_count(t, LS_EV_MARK),
                              .others = ls_tracer_count(t, LS_EV_OPTIM) + ls_tracer_count(t, LS_EV_STEP) };
}

ls_status ls_train_dry_count(const ls_train_config *c, ls_train_dry *d, int64_t rows, ls_train_events *out)
{
    ls_tracer *tracer = ls_world_tracer(d->w);
    const ls_train_events before = events_of(tracer);
    const uint64_t all = (uint64_t)d->micro_batches, done = (uint64_t)passes_of(d);
    for (int i = 0; i < d->par.ntapes; i++) ls_tape_set_tracer(d->par.tape[i], tracer);
    const ls_status st = ls_train_dry_step(c, d, rows);
    for (int i = 0; i < d->par.ntapes; i++) ls_tape_set_tracer(d->par.tape[i], NULL);
    const ls_train_events now = events_of(tracer);
    out->ops = (now.ops - before.ops) / done * all;
    out->colls = now.colls - before.colls;
    out->marks = now.marks - before.marks;
    out->others = now.others - before.others;
    return st;
}

/* Elements of a parameter in the largest of its parts: ranks of tp divide a vocabulary as evenly as its rows go. */
static void largest_part(const ls_train_dry *d, const ls_param *p, int64_t dim[LS_MAX_DIMS])
{
    const int tp = d->par.mesh.size[LS_AXIS_TP];
    const int64_t most = (p->part.of + tp - 1) / tp;
    memcpy(dim, p->t.dim, sizeof p->t.dim);
    if (!ls_part_is_all(&p->part) && most > p->part.count) dim[p->part.dim] += (most - p->part.count) * p->part.runs;
}

/* Most elements of a parameter that one rank keeps. */
static size_t most_kept(const ls_train_dry *d, const ls_param *p)
{
    ls_tensor part = p->t;
    largest_part(d, p, part.dim);
    const size_t all = (size_t)ls_tensor_count(&part), rows = (size_t)part.dim[0];
    const int shards =
        d->par.shards ? ls_group_size(d->par.shards) : ls_group_size(p->replicas ? p->replicas : d->par.mesh.replicas);
    return d->par.ddp->strategy->shards ? ls_shard_of(rows, 0, shards).count * (all / rows) : all;
}

/* As ls_kept_values does it, in memory that is not registered. Who brings what changes nothing here, how much does. */
static ls_status put_together(const ls_train_dry *d)
{
    const ls_params *ps = &d->par.model->params;
    ls_group *const g = ls_world_group(d->w);
    size_t *counts = calloc((size_t)ls_group_size(g), sizeof *counts);
    ls_status st = counts ? LS_OK : ls_fail(LS_NO_MEMORY, "what %d ranks keep", ls_group_size(g));
    for (int i = 0; st == LS_OK && i < ls_params_total(ps); i++) {
        const ls_param *p = ls_params_at(ps, i);
        ls_tensor whole = p->t;
        ls_part_shape(&p->part, &p->t, whole.dim);
        size_t left = (size_t)ls_tensor_count(&whole), most = most_kept(d, p);
        for (int r = 0; r < ls_group_size(g); r++, left -= most) {
            most = most < left ? most : left;
            counts[r] = most;
        }
        st = ls_all_gather_v(g, NULL, counts, counts, LS_F32);
    }
    free(counts);
    return st;
}

ls_status ls_train_dry_end(ls_train_dry *d)
{
    if (ls_parallel_divides(&d->par)) {
        LS_TRY(put_together(d));
        return ls_barrier(ls_world_group(d->w));
    }
    const ls_values values = ls_ddp_values(d->par.ddp);
    const ls_params *ps = &d->par.model->params;
    const float *whole;
    for (int i = 0; i < ps->n; i++) LS_TRY(values.whole(values.arg, &ps->item[i], &whole));
    return ls_barrier(ls_world_group(d->w));
}
