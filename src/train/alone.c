/* alone.c -- the configuration of a run, made that of a few steps on one rank. */
#include "train/alone.h"

#include <string.h>

#include "train/trainer.h"

#define SMALL_RATE 1e-20 /* gradients of most mirrors are wrong, and would drive parameters to denormals */
#define MOST_TAKEN (1 << 20) /* steps: more than the limits of time allow */

void ls_alone_only_steps(const ls_train_config *c, ls_train_config *out)
{
    (void)ls_train_dry_settle(c, out);
    out->train.steps = MOST_TAKEN;
    out->optim.lr = SMALL_RATE;
    out->optim.min_lr = out->optim.min_lr_ratio = 0;
    out->train.epochs = 0;
    out->train.eval_every = out->train.sample_every = 0;
    out->checkpoint.resume = "never";
    out->checkpoint.best = "none";
    out->checkpoint.snapshot = 0;
    out->checkpoint.async = false;
    out->comm.backend = "sched";
    out->comm.progress = "inline";
    out->trace.steps = out->inject = out->compare = "";
    out->model.load = "";
    out->model.init = strcmp(c->model.init, "file") == 0 ? "philox" : c->model.init;
    out->log.samples = false;
}

void ls_alone_config(const ls_train_config *c, const ls_plan *p, ls_train_config *out)
{
    const int64_t micro = p->micro_batch > 0 ? p->micro_batch : 1, n = p->micro_batches > 1 ? 2 : 1;
    ls_alone_only_steps(c, out);
    out->train.global_batch = n * micro;
    out->train.micro_batch = micro;
    if (ls_train_is_lm(c) && c->parallel.cp > 1) out->train.seq_len = ls_train_seq_len(c) / c->parallel.cp;
    out->parallel.dp = out->parallel.tp = out->parallel.pp = out->parallel.cp = out->parallel.ep = 1;
    out->parallel.sp = false;
    out->parallel.tp_pieces = 0;
    out->parallel.order = "pp-dp-ep-cp-tp";
    out->parallel.dp_strategy = "auto";
    out->parallel.context = "ring";
    out->parallel.cp_ulysses = 0;
    out->zero.stage = 0;
    out->zero.hsdp = 1;
    out->ddp.hook = "none";
    out->pipeline.schedule = "1f1b";
    out->pipeline.chunks = 0;
    out->pipeline.split.n = 0;
    out->comm.transport = out->comm.algo = "";
    out->comm.wire = "f32";
    out->nproc_per_node = "1";
}

ls_status ls_alone_learn(const ls_train_config *c, const ls_plan *p, ls_train_config *out)
{
    double factor;
    LS_TRY(ls_lr_scale(c->optim.scale_lr, p->size[LS_AXIS_DP] * p->size[LS_AXIS_EP], &factor));
    out->optim.scale_lr = "none";
    out->optim.lr = factor * c->optim.lr;
    out->optim.min_lr = c->optim.min_lr;
    out->optim.min_lr_ratio = c->optim.min_lr_ratio;
    return LS_OK;
}

ls_status ls_alone_run(const ls_train_config *c, int copies, ls_status (*rank)(ls_world *w, void *arg), void *arg)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_memory_plan p;
    const ls_memory_ranks one = { .size = 1, .here = copies };
    LS_TRY(ls_train_config_check(c, 1));
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_memory_plan_make(c, &mc, 0, 1, &p);
    if (st == LS_OK) st = ls_memory_check(c, &mc, &one, &p);
    if (st == LS_OK) {
        ls_world_opts o = ls_train_world_opts(c, &p);
        st = ls_world_threads(1, &o, rank, arg);
    }
    ls_source_free(&source);
    return st;
}
