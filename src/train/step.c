/* step.c -- one optimizer step. Every stop of the data's path is a line here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "train/trainer.h"

/* What every rank tells the others after its backward. */
typedef struct report {
    double loss_sum;    /* over this rank's samples */
    double samples;
    double stop_signal; /* 0: go on */
} report;

/* Forward and backward of `want` samples, in micro-batches; only the last one synchronises. */
static ls_status accumulate(ls_trainer *t, size_t want, report *mine, uint64_t *data_ns)
{
    const ls_env *env = ls_env_get();
    uint16_t micro_batch = 0;
    for (size_t done = 0; done < want; micro_batch++) {
        ls_world_at(t->w, (uint32_t)t->step + 1, micro_batch);
        uint64_t t0 = env->mono_ns();
        size_t n = ls_loader_next(t->loader);
        *data_ns += env->mono_ns() - t0;
        if (n == 0) return ls_fail(LS_INTERNAL, "the loader ended %zu samples before the step did", want - done);

        ls_tape_reset(t->tape);
        LS_TRY(ls_ddp_begin_forward(t->ddp, t->tape, done + n >= want));
        const int64_t xdim[2] = { (int64_t)n, (int64_t)t->train.features }, ydim[1] = { (int64_t)n };
        ls_tensor *x = ls_tape_input(t->tape, LS_F32, 2, xdim, t->loader->x);
        ls_tensor *y = ls_tape_input(t->tape, LS_I64, 1, ydim, t->loader->label);
        ls_loss_sums sums;
        ls_tensor *loss = ls_model_loss(t->model, t->tape, x, y, &sums);
        LS_TRY(ls_tape_status(t->tape));

        float weight = (float)n / (float)want; /* the step's loss is the mean over all its samples */
        LS_TRY(ls_backward_from(t->tape, loss, &weight));
        if (t->inject.rank == t->rank && t->inject.kind == LS_INJECT_NAN && t->inject.step == t->step + 1)
            sums.sum = (double)NAN;
        mine->loss_sum += sums.sum;
        mine->samples += (double)n;
        done += n;
    }
    return LS_OK;
}

/* A loss that is not finite is the fault of one rank, which alone ends the job with it: the others
 * wait to be told. */
static LS_COLD ls_status not_finite(ls_trainer *t, int rank)
{
    if (rank != t->rank) LS_TRY(ls_barrier(t->group));
    return ls_fail(LS_NAN,
                   "the loss of rank %d in step %lld is not finite; no weight was changed by this step: lower optim.lr, "
                   "or look at that rank's data",
                   rank, (long long)t->step + 1);
}

/* Sums in rank order, so that every rank has the same bits; finds a rank whose loss is not finite. */
static ls_status agree(ls_trainer *t, const report *mine, ls_step_stats *out)
{
    report all[LS_MAX_RANKS];
    all[t->rank] = *mine;
    size_t each = sizeof *mine / sizeof(double);
    LS_TRY(ls_all_gather(t->group, NULL, all, (size_t)t->size * each, LS_F64));
    double sum = 0, samples = 0;
    for (int r = 0; r < t->size; r++) {
        if (!isfinite(all[r].loss_sum)) return not_finite(t, r);
        if (all[r].stop_signal > 0) t->stop_signal = (int)all[r].stop_signal;
        sum += all[r].loss_sum;
        samples += all[r].samples;
    }
    out->loss = sum / samples;
    out->samples = (int64_t)samples;
    return LS_OK;
}

/* Of the averaged gradient, so that every rank finds the same. */
static ls_status grad_norm(const ls_trainer *t, double *out)
{
    const ls_param *culprit;
    const ls_status st = ls_grad_norm(&t->model->params, out, &culprit);
    if (st != LS_NAN) return st;
    return ls_fail(LS_NAN,
                   "the gradient of %s in step %lld is not finite, though the loss is; no weight was changed by "
                   "this step: lower optim.lr, or set optim.clip",
                   culprit->name, (long long)t->step + 1);
}

/* Samples of this rank in the coming step: whole batches but for the end of an epoch. */
static size_t samples_of_step(const ls_trainer *t)
{
    size_t left = t->sampler->num_samples - t->loader->next;
    return left < t->local_batch ? left : t->local_batch;
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
    if (t->signal_fd >= 0) mine.stop_signal = env->signal_read(t->signal_fd);

    ls_params_zero_grad(&t->model->params);
    LS_TRY(accumulate(t, samples_of_step(t), &mine, &out->data_ns)); /* data, forward, backward; buckets on their way */
    LS_TRY(agree(t, &mine, out));
    LS_TRY(grad_norm(t, &out->grad_norm));
    uint64_t o0 = env->mono_ns();
    ls_optim_set_lr(t->optim, out->lr = ls_lr_at(&t->lr, t->step));
    LS_TRY(ls_optim_step_scaled(t->optim, ls_clip_scale(out->grad_norm, t->c->optim.clip))); /* on all ranks alike */

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
