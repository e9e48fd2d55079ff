/* step.c -- one optimizer step. Every stop of the data's path is a line here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "train/trainer.h"

/* What every rank tells the others after its backward. */
typedef struct report {
    double loss_sum;    /* over this rank's labels that count */
    double counted;     /* those labels */
    double stop_signal; /* 0: go on */
} report;

ls_tensor *ls_train_loss(ls_trainer *t, const ls_rows *rows, ls_loss_sums *sums)
{
    ls_model_input in;
    t->model->cls->input(t->model, (int64_t)rows->n, (int64_t)rows->tokens, &in);
    ls_tensor *x = ls_tape_input(t->tape, in.dtype, in.ndim, in.dim, rows->x);
    ls_tensor *labels = ls_tape_input(t->tape, LS_I64, in.label_ndim, in.label_dim, rows->label);
    return ls_model_loss(t->model, t->tape, x, labels, sums);
}

/* Labels that count in the step at hand, over all ranks; they differ from rank to rank only where some do not. */
static ls_status count_labels(ls_trainer *t, double *counted)
{
    *counted = (double)t->feed.counted;
    if (t->feed.ignore < 0) {
        *counted *= t->size;
        return LS_OK;
    }
    LS_TRY(ls_all_reduce(t->group, NULL, counted, 1, LS_F64, LS_SUM));
    if (*counted > 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "no label of step %lld counts: all of them are %lld, data.ignore_token",
                   (long long)t->step + 1, (long long)t->feed.ignore);
}

/* Forward and backward of this rank's samples, in micro-batches; only the last one synchronises. */
static ls_status accumulate(ls_trainer *t, double counted, report *mine)
{
    const double labels = t->feed.tokens ? (double)t->feed.tokens : 1.0; /* of a sample */
    uint16_t micro_batch = 0;
    for (ls_rows rows; (rows = ls_feed_next(&t->feed)).n > 0; micro_batch++) {
        ls_world_at(t->w, (uint32_t)t->step + 1, micro_batch);
        t->model->draw.seed = (uint64_t)t->c->train.seed;
        t->model->draw.step = (uint64_t)t->step;
        t->model->draw.sample = rows.first;
        ls_tape_reset(t->tape);
        LS_TRY(ls_ddp_begin_forward(t->ddp, t->tape, t->feed.done == t->feed.step.n));
        ls_loss_sums sums;
        ls_tensor *loss = ls_train_loss(t, &rows, &sums);
        LS_TRY(ls_tape_status(t->tape));

        /* The loss is a sum by all labels of the micro-batch, the step's a mean over all that count; ranks are
         * averaged. */
        const float weight = (float)((double)rows.n * labels * t->size / counted);
        LS_TRY(ls_backward_from(t->tape, loss, &weight)); /* the sum of a language model is known from here on */
        if (t->inject.rank == t->rank && t->inject.kind == LS_INJECT_NAN && t->inject.step == t->step + 1)
            sums.sum = (double)NAN;
        mine->loss_sum += sums.sum;
        mine->counted += (double)sums.counted;
    }
    return LS_OK;
}

/* A loss that is not finite is the fault of one rank, which alone ends the job with it: the others
 * wait to be told. */
static LS_COLD ls_status not_finite(ls_trainer *t, int rank)
{
    char first[160] = "";
    if (rank != t->rank) LS_TRY(ls_barrier(t->group));
    else ls_train_find_nonfinite(t, first, sizeof first);
    return ls_fail(LS_NAN, "the loss of rank %d in step %lld is not finite%s%s; no weight was changed by this step: lower "
                   "optim.lr, or look at that rank's data",
                   rank, (long long)t->step + 1, *first ? ": it began with " : "", first);
}

/* Sums in rank order, so that every rank has the same bits; finds a rank whose loss is not finite. */
static ls_status agree(ls_trainer *t, const report *mine, ls_step_stats *out)
{
    report all[LS_MAX_RANKS];
    all[t->rank] = *mine;
    size_t each = sizeof *mine / sizeof(double);
    LS_TRY(ls_all_gather(t->group, NULL, all, (size_t)t->size * each, LS_F64));
    double sum = 0, counted = 0;
    out->max_loss = -INFINITY;
    for (int r = 0; r < t->size; r++) {
        if (!isfinite(all[r].loss_sum)) return not_finite(t, r);
        if (all[r].stop_signal > 0) t->stop_signal = (int)all[r].stop_signal;
        sum += all[r].loss_sum;
        counted += all[r].counted;
        double mean = all[r].loss_sum / all[r].counted; /* a NAN where no label of a rank counts: never the largest */
        if (mean > out->max_loss) out->max_loss = mean;
    }
    out->loss = sum / counted;
    return LS_OK;
}

/* Of the averaged gradient, so that every rank finds the same. */
static ls_status grad_norm(const ls_trainer *t, double *out)
{
    const ls_param *culprit;
    const ls_status st = ls_grad_norm_shared(t->group, &t->model->params, out, &culprit);
    if (st != LS_NAN) return st;
    return ls_fail(LS_NAN,
                   "the gradient of %s in step %lld is not finite, though the loss is; no weight was changed by "
                   "this step: lower optim.lr, or set optim.clip",
                   culprit->name, (long long)t->step + 1);
}

static ls_status get_samples(ls_trainer *t, ls_step_stats *out)
{
    const uint64_t t0 = ls_env_get()->mono_ns();
    LS_TRY(ls_feed_step(&t->feed, t->step));
    out->data_ns = ls_env_get()->mono_ns() - t0;
    out->samples = (int64_t)t->feed.step.n * t->size; /* as many on every rank */
    out->tokens = out->samples * (int64_t)t->feed.tokens;
    return LS_OK;
}

/* An event that ends now. Each looks at the clock for itself: where the outer of two slices ends no
 * later than the inner one, rounding makes trace viewers stumble. */
static uint64_t record(ls_trainer *t, ls_ev_kind kind, const char *label, uint64_t t0_ns)
{
    ls_tracer *tr = ls_world_tracer(t->w);
    ls_event ev = { .t0_ns = t0_ns, .kind = (uint8_t)kind, .peer = -1, .label = ls_tracer_label(tr, label) };
    ev.t1_ns = ls_env_get()->mono_ns();
    ls_tracer_add(tr, &ev);
    return ev.t1_ns;
}

ls_status ls_train_step(ls_trainer *t, ls_step_stats *out)
{
    const ls_env *env = ls_env_get();
    uint64_t t0 = env->mono_ns();
    ls_comm_stats before, after;
    report mine = { 0 };
    *out = (ls_step_stats){ 0 };
    ls_comm_stats_read(t->w, &before);
    ls_world_at(t->w, (uint32_t)t->step + 1, 0);
    LS_TRY(ls_injection_apply(t, t->step + 1));
    mine.stop_signal = ls_stop_seen(t->stop);

    double counted;
    LS_TRY(get_samples(t, out));
    LS_TRY(count_labels(t, &counted));
    if (t->feed.step.n == t->feed.local) ls_tape_pack_begin(t->tape); /* a rest has other micro-batches */
    const ls_status st = accumulate(t, counted, &mine); /* forward, backward; buckets on their way */
    ls_tape_pack_end(t->tape);
    LS_TRY(st);
    LS_TRY(agree(t, &mine, out));
    LS_TRY(grad_norm(t, &out->grad_norm));
    uint64_t o0 = env->mono_ns();
    ls_optim_set_lr(t->optim, out->lr = ls_lr_at(&t->lr, t->step));
    LS_TRY(ls_optim_step_scaled(t->optim, ls_clip_scale(out->grad_norm, t->c->optim.clip))); /* on all ranks alike */

    LS_TRY(ls_ddp_after_step(t->ddp));
    record(t, LS_EV_OPTIM, "optimizer step", o0);
    uint64_t t1 = record(t, LS_EV_STEP, "step", t0);
    ls_comm_stats_read(t->w, &after);
    out->comm = (ls_comm_stats){ .ops = after.ops - before.ops,
                                 .bytes = after.bytes - before.bytes,
                                 .exposed_ns = after.exposed_ns - before.exposed_ns,
                                 .busy_ns = after.busy_ns - before.busy_ns,
                                 .slow_waits = after.slow_waits - before.slow_waits,
                                 .slow_rank = after.slow_rank };
    out->step_ns = t1 - t0;
    t->step++;
    return LS_OK;
}
