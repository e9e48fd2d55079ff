/* step.c -- one optimizer step. Every stop of the data's path is a line here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/exact.h"
#include "ckpt/state.h"
#include "train/experts.h"
#include "train/trainer.h"

/* What every rank tells the others after its backward: the loss summed over its labels that count, how many those are,
 * flags, a hash of the values that its optimizer wrote, and for how long it was busy in the step before. Ranks that do
 * not know a loss say 0 of 0. */
enum { LOSS, COUNTED, FLAGS, HASH, BUSY, WORDS = BUSY + LS_BUSY_PHASES };
/* The flags: the signal that asks a rank to stop (0: none), plus these. */
enum {
    SIGNALS = 256,    /* more than there are */
    SAVING = SIGNALS, /* the rank still writes a checkpoint */
    DUE = 2 * SIGNALS /* rank 0: checkpoint.every, a time, has gone by */
};
_Static_assert(WORDS == LS_TRAIN_WORDS, "what a rank tells the others");

/* Labels that count in the step at hand, over all ranks; they differ from rank to rank only where some do not. */
static ls_status count_labels(ls_trainer *t, double *counted)
{
    *counted = (double)t->feed.counted;
    if (t->feed.ignore < 0) {
        *counted = (double)(t->feed.all * (t->feed.tokens ? t->feed.tokens : 1));
        return LS_OK;
    }
    LS_TRY(ls_train_count_labels(t->par.mesh.batch, counted));
    if (*counted > 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "no label of step %lld counts: all of them are %lld, data.ignore_token",
                   (long long)t->step + 1, (long long)t->feed.ignore);
}

/* --- micro-batches: what the pipe calls (lockstep/pipe.h) ---------------------------------------- */

typedef struct micro_batches {
    ls_trainer *t;
    double counted; /* labels of the step that count, over all ranks */
    double *mine;   /* [WORDS]: what is found */
    ls_exact *loss; /* the sum of losses, with train.numerics invariant */
} micro_batches;

static bool invariant(const ls_trainer *t) { return t->feed.inner > 0; }

static ls_status feed(void *arg, const ls_pipe_action *a)
{
    ls_trainer *t = ((micro_batches *)arg)->t;
    t->alive[a->slot].rows = ls_feed_micro_batch(&t->feed, (size_t)a->micro_batch);
    return LS_OK;
}

/* A micro-batch's losses. With train.numerics invariant their sum has no order, and what a rank tells of a loss is its
 * micro-batch with the largest mean. */
static void add_loss(const micro_batches *step, const ls_loss_sums *sums)
{
    double *mine = step->mine;
    const double counted = (double)sums->counted;
    if (!invariant(step->t)) {
        mine[LOSS] += sums->sum;
        mine[COUNTED] += counted;
        return;
    }
    ls_exact_add(step->loss, sums->sum);
    const bool larger = mine[COUNTED] == 0 || sums->sum / counted > mine[LOSS] / mine[COUNTED];
    if (isfinite(mine[LOSS]) && (!isfinite(sums->sum) || (counted > 0 && larger)))
        mine[LOSS] = sums->sum, mine[COUNTED] = counted;
}

/* Only the last backward synchronises. */
static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    ls_trainer *t = ((micro_batches *)arg)->t;
    ls_alive *m = &t->alive[a->slot];
    ls_tape *tape = t->par.tape[a->slot];
    ls_world_at(t->w, (uint32_t)t->step + 1, (uint16_t)a->micro_batch);
    t->par.model->draw.seed = (uint64_t)t->c->train.seed;
    t->par.model->draw.step = (uint64_t)t->step;
    t->par.model->draw.sample = m->rows.first;
    if (data)
        return ls_parallel_stage_forward(&t->par, a, (int64_t)m->rows.n, (int64_t)m->rows.tokens, m->rows.x,
                                         m->rows.label, data, &m->pass);
    ls_tape_reset(tape);
    LS_TRY(ls_parallel_begin_forward(&t->par, tape, a->last));
    m->pass.out = ls_train_loss(t, tape, &m->rows, &m->pass.sums);
    return ls_tape_status(tape);
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    const micro_batches *step = arg;
    ls_trainer *t = step->t;
    ls_alive *m = &t->alive[a->slot];
    if (data) ls_world_at(t->w, (uint32_t)t->step + 1, (uint16_t)a->micro_batch);
    const double labels = t->feed.tokens ? (double)t->feed.tokens : 1.0; /* of a sample */
    if (a->what == LS_PIPE_BACKWARD_WEIGHT) return ls_parallel_stage_backward(&t->par, a, &m->pass, NULL, data);

    /* The loss is a sum by all labels of the micro-batch, the step's a mean over all that count; ranks are averaged, or
     * with train.numerics invariant added up. */
    const int ranks = invariant(t) ? 1 : ls_group_size(t->par.mesh.replicas);
    const float weight = (float)((double)m->rows.counts * labels * ranks / step->counted);
    float scaled = weight * t->scaler.scale;
    ls_injection_before_backward(t, t->step + 1, &scaled);
    if (data) LS_TRY(ls_parallel_stage_backward(&t->par, a, &m->pass, &scaled, data));
    else
        LS_TRY(ls_backward_from(t->par.tape[a->slot], m->pass.out,
                                &scaled)); /* a language model's sum is known from here on */
    ls_injection_after_backward(t, t->step + 1, &m->pass.sums.sum);
    const bool has_loss = t->par.mesh.has_loss && (!data || ls_parallel_has_loss(&t->par, a));
    if (has_loss && m->rows.counts > 0) add_loss(step, &m->pass.sums);
    return LS_OK;
}

static size_t edge(void *arg, int number, int micro_batch, ls_dtype *dtype)
{
    const ls_trainer *t = ((micro_batches *)arg)->t;
    const ls_rows rows = ls_feed_micro_batch(&t->feed, (size_t)micro_batch);
    return ls_parallel_edge(&t->par, number, (int64_t)rows.n, (int64_t)rows.tokens, dtype);
}

/* Forward and backward of this rank's samples; buckets are on their way when it returns. */
static ls_status run_micro_batches(ls_trainer *t, double counted, double mine[WORDS], ls_exact *loss)
{
    static const ls_pipe_work work = { feed, forward, backward, edge };
    micro_batches step = { t, counted, mine, loss };
    if (t->feed.step.n == t->feed.local) ls_tape_pack_begin(t->par.tape[0]); /* a rest has other micro-batches */
    const ls_status st = ls_pipe_run(t->par.pipe, (int)ls_feed_micro_batches(&t->feed), &work, &step);
    ls_tape_pack_end(t->par.tape[0]);
    return st;
}

/* --- the step -------------------------------------------------------------------------------------- */

/* A loss that is not finite is the fault of one rank, which alone ends the job with it: the others
 * wait to be told. */
static LS_COLD ls_status not_finite(ls_trainer *t, int rank)
{
    char first[160] = "";
    ls_train_save_settle(t); /* what it saves is of a step before this one */
    const bool mine = rank == ls_world_rank(t->w);
    if (mine || ls_parallel_forwards_meet(&t->par)) ls_train_find_nonfinite(t, first, sizeof first);
    if (!mine) LS_TRY(ls_barrier(ls_world_group(t->w)));
    return ls_fail(LS_NAN, "the loss of rank %d in step %lld is not finite%s%s; no weight was changed by this step: lower "
                   "optim.lr, or look at that rank's data",
                   rank, (long long)t->step + 1, *first ? ": it began with " : "", first);
}

/* Whether ranks divide experts: the same on all ranks, though a stage of a pipeline, or a chunk, may have none. */
static bool has_experts(const ls_trainer *t) { return t->par.mesh.size[LS_AXIS_EP] > 1; }

/* Compares some parameters with the other ranks of g; the rank that has parted ends the job. */
static ls_status compare_in(ls_trainer *t, const ls_params *some, ls_group *g, int shards)
{
    char since[64];
    int culprit;
    if (some->n == 0 || ls_group_size(g) == shards) return LS_OK;
    snprintf(since, sizeof since, "since the update of step %lld", (long long)t->step);
    const ls_status st = ls_optim_compare_some(t->optim, some, g, shards, since, &culprit);
    if (st == LS_DIVERGED && culprit != ls_group_rank(g)) LS_TRY(ls_barrier(g));
    return st;
}

ls_status ls_train_compare(ls_trainer *t)
{
    const ls_mesh *m = &t->par.mesh;
    if (!t->guard) return LS_OK;
    if (!has_experts(t)) return compare_in(t, &t->par.model->params, m->replicas, t->guard);
    const int shards = t->par.expert_shards ? ls_group_size(t->par.expert_shards) : 1;
    for (int c = 0; c < t->par.nchunks; c++) {
        LS_TRY(compare_in(t, &t->par.chunk[c].dense, m->replicas, t->guard));
        LS_TRY(compare_in(t, &t->par.chunk[c].sparse, m->expert_replicas, shards));
    }
    return ls_barrier(ls_world_group(t->w)); /* ranks with other experts may have parted */
}

#define HALF ((uint64_t)1 << 26)

/* Experts that ranks divide have fewer replicas than the rest: both hashes in one number, 26 bits each. */
static double hash_of(const ls_trainer *t)
{
    uint64_t dense = 0, sparse = 0;
    if (!has_experts(t)) return (double)ls_optim_hash(t->optim);
    for (int c = 0; c < t->par.nchunks; c++) {
        dense = 31 * dense + ls_optim_hash_some(t->optim, &t->par.chunk[c].dense);
        sparse = 31 * sparse + ls_optim_hash_some(t->optim, &t->par.chunk[c].sparse);
    }
    return (double)(dense % HALF * HALF + sparse % HALF);
}

/* The first rank that owns the same elements as rank r; `experts`: the same elements of experts. Replicas that hold one
 * set of shards follow each other. */
static int like_rank(const ls_trainer *t, int r, bool experts)
{
    const ls_mesh *m = &t->par.mesh;
    const unsigned replicas = LS_ALONG(LS_AXIS_DP) | LS_ALONG(LS_AXIS_CP);
    if (experts && !t->par.shards) return ls_mesh_at(m->size, m->order, r, replicas, 0);
    int place, count;
    const unsigned all = replicas | LS_ALONG(LS_AXIS_EP);
    ls_mesh_place(m->size, m->order, r, all, &place, &count);
    return ls_mesh_at(m->size, m->order, r, all, place % t->guard);
}

static bool same_hash(const ls_trainer *t, const double (*all)[WORDS], int r)
{
    if (!t->guard) return true;
    const uint64_t mine = (uint64_t)all[r][HASH], like = (uint64_t)all[like_rank(t, r, false)][HASH];
    if (!has_experts(t)) return mine == like;
    return mine / HALF == like / HALF && mine % HALF == (uint64_t)all[like_rank(t, r, true)][HASH] % HALF;
}

/* Looks for a rank that slows the others down. The first step of a run takes longer for other reasons, and so do steps
 * beside a save, in which rank 0 may have more to write. */
static void compare_times(ls_trainer *t, const double (*all)[WORDS], bool saving, ls_step_stats *out)
{
    if (!t->straggler || saving || t->step < t->begun + 2) return;
    for (int r = 0; r < ls_world_size(t->w); r++) ls_straggler_tell(t->straggler, r, &all[r][BUSY]);
    out->straggler = ls_straggler_step(t->straggler, ls_env_get()->mono_ns());
}

/* For comm.json: what all ranks told of the step before. The first steps of a run take longer for other reasons. */
static void add_busy(ls_trainer *t, const double (*all)[WORDS])
{
    if (t->step < t->begun + LS_COMM_STEADY) return;
    for (int r = 0; r < ls_world_size(t->w); r++)
        for (int p = 0; p < LS_BUSY_PHASES; p++) t->busy_sum[r * LS_BUSY_PHASES + p] += all[r][BUSY + p];
    t->busy_steps++;
}

/* Sums in rank order, or exactly, so that every rank has the same bits; finds a rank whose loss is not finite. */
static ls_status agree(ls_trainer *t, const double mine[WORDS], ls_exact *loss, double labels, ls_step_stats *out)
{
    const double (*all)[WORDS];
    LS_TRY(ls_train_tell(t->w, t->words, mine, &all));
    const bool saved = t->save_busy;
    bool same = true;
    double sum = 0, counted = 0;
    for (int r = 0; r < ls_world_size(t->w); r++) t->busy_ns[r] = all[r][BUSY + LS_BUSY_COMPUTE];
    add_busy(t, all);
    t->save_busy = false;
    t->save_due = ((unsigned)all[0][FLAGS] & DUE) != 0;
    for (int r = 0; r < ls_world_size(t->w); r++) t->save_busy |= ((unsigned)all[r][FLAGS] & SAVING) != 0;
    compare_times(t, all, saved || t->save_busy, out);
    out->max_loss = -INFINITY;
    for (int r = 0; r < ls_world_size(t->w); r++) {
        if (!isfinite(all[r][LOSS])) return not_finite(t, r);
        same &= same_hash(t, all, r);
        const int stop = (int)all[r][FLAGS] % SIGNALS;
        if (stop > 0) t->stop_signal = stop;
        sum += all[r][LOSS];
        counted += all[r][COUNTED];
        double mean = all[r][LOSS] / all[r][COUNTED]; /* a NAN where no label of a rank counts: never the largest */
        if (mean > out->max_loss) out->max_loss = mean;
    }
    if (invariant(t)) {
        LS_TRY(ls_train_sum_losses(t->w, loss));
        sum = ls_exact_value(loss);
        counted = labels;
    }
    t->loss = out->loss = sum / counted;
    return same ? LS_OK : ls_train_compare(t);
}

static LS_COLD ls_status gradient_not_finite(ls_trainer *t, const ls_param *culprit)
{
    ls_train_save_settle(t);
    char with[64] = "", advice[64] = "lower optim.lr, or set optim.clip";
    if (t->scales) snprintf(with, sizeof with, " with a loss scale of %g", (double)t->scaler.scale);
    if (t->scales && !t->adapts) snprintf(advice, sizeof advice, "set optim.loss_scale to a lower number, or to dynamic");
    return ls_fail(LS_NAN,
                   "the gradient of %s in step %lld is not finite%s, though the loss is; no weight was changed by "
                   "this step: %s", culprit->name, (long long)t->step + 1, with, advice);
}

/* Of the averaged gradient, so that every rank finds the same, and decides the same about scale and step. A scale of 1
 * or less is not what makes a gradient overflow. */
static ls_status grad_norm(ls_trainer *t, ls_step_stats *out)
{
    const ls_param *culprit;
    const ls_status st = ls_train_norm(t->c, ls_world_group(t->w), &t->par.model->params, &out->grad_norm, &culprit);
    out->loss_scale = (double)t->scaler.scale;
    out->grad_norm /= out->loss_scale;
    if (st == LS_NAN && !(t->adapts && t->scaler.scale > 1.0f)) return gradient_not_finite(t, culprit);
    if (st < 0 && st != LS_NAN) return st;
    out->skipped = t->adapts && !ls_grad_scaler_update(&t->scaler, out->grad_norm);
    t->skipped += out->skipped;
    return LS_OK;
}

static ls_status update(ls_trainer *t, ls_step_stats *out)
{
    ls_optim_set_lr(t->optim, out->lr = ls_lr_at(&t->lr, t->step));
    if (out->skipped) ls_params_zero_grad(&t->par.model->params);
    else LS_TRY(ls_optim_step_scaled(t->optim, ls_clip_scale(out->grad_norm, t->c->optim.clip) / out->loss_scale));
    LS_TRY(ls_experts_end(&t->par.mesh, t->par.model, !out->skipped));
    return ls_parallel_after_step(&t->par);
}

static ls_status get_samples(ls_trainer *t, ls_step_stats *out)
{
    const uint64_t t0 = ls_env_get()->mono_ns();
    ls_injection_in_input(t, t->step + 1);
    LS_TRY(ls_feed_step(&t->feed, t->step));
    out->data_ns = ls_env_get()->mono_ns() - t0;
    out->samples = (int64_t)t->feed.all;
    out->tokens = out->samples * (int64_t)t->feed.tokens;
    return LS_OK;
}

static double flags(const ls_trainer *t, int stop)
{
    const int64_t every = t->c->checkpoint.every;
    const bool due = every < 0 && ls_env_get()->mono_ns() - t->save_ns >= (uint64_t)-every;
    return stop + (ls_state_save_busy(t->state) ? SAVING : 0) + (due ? DUE : 0);
}

ls_status ls_train_step(ls_trainer *t, ls_step_stats *out)
{
    const ls_env *env = ls_env_get();
    uint64_t t0 = env->mono_ns();
    ls_comm_stats before;
    double mine[WORDS] = { 0 };
    ls_exact loss = { 0 };
    *out = (ls_step_stats){ 0 };
    ls_comm_stats_read(t->w, &before);
    ls_comm_log_begin(&t->comm);
    ls_world_at(t->w, (uint32_t)t->step + 1, 0);
    LS_TRY(ls_injection_apply(t, t->step + 1));
    const int stop = ls_stop_seen(t->stop);
    mine[HASH] = hash_of(t);

    double counted;
    LS_TRY(get_samples(t, out));
    LS_TRY(count_labels(t, &counted));
    ls_experts_begin(t->par.model);
    LS_TRY(run_micro_batches(t, counted, mine, &loss));
    mine[FLAGS] = flags(t, stop);
    memcpy(&mine[BUSY], t->busy, sizeof t->busy);
    LS_TRY(agree(t, mine, &loss, counted, out));
    LS_TRY(ls_parallel_sum_gradients(&t->par));
    LS_TRY(grad_norm(t, out));
    LS_TRY(ls_injection_before_update(t, t->step + 1));
    uint64_t o0 = env->mono_ns();
    LS_TRY(update(t, out)); /* on all ranks alike */
    /* Each looks at the clock for itself: where the outer of two slices ends no later than the inner one, rounding
     * makes trace viewers stumble. */
    out->optim_ns = ls_train_record(t->w, LS_EV_OPTIM, "optimizer step", o0) - o0;
    uint64_t t1 = ls_train_record(t->w, LS_EV_STEP, "step", t0);
    ls_comm_stats_read(t->w, &out->comm);
    ls_comm_stats_since(&before, &out->comm);
    out->step_ns = t1 - t0;
    const uint64_t others = out->data_ns + out->comm.waited_ns;
    t->busy[LS_BUSY_COMPUTE] = out->step_ns > others ? (double)(out->step_ns - others) : 0.0;
    t->busy[LS_BUSY_INPUT] = (double)out->data_ns;
    t->step++;
    ls_comm_log_end(&t->comm, t->step, t->feed.step.n == t->feed.local);
    return LS_OK;
}
