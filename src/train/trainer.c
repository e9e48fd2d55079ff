/* trainer.c -- builds what a run needs, in the order in which it can fail, and undoes it. */
#include "train/trainer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "net/page.h"
#include "net/world.h"

static ls_status open_world(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    int rank, peers; /* joining checks them; here they only size the arena */
    (void)ls_world_launched(&rank, &peers);
    if (peers > LS_MAX_RANKS) peers = LS_MAX_RANKS;
    LS_TRY(ls_memory_plan_make(c, t->model, peers, &t->plan));
    LS_TRY(ls_memory_check(c, t->model, peers, 1));
    ls_world_opts o = {
        .backend = strcmp(c->comm.backend, "mpi") == 0 ? "mpi" : "sched",
        .rank_order = strcmp(c->comm.order, "ranks") == 0,
        .transport = *c->comm.transport ? c->comm.transport : NULL,
        .algo = *c->comm.algo ? c->comm.algo : NULL,
        .arena_bytes = t->plan.world_arena,
        .coll_timeout_ns = c->comm.timeout,
        .progress = strcmp(c->comm.progress, "thread") == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE,
        .wire_bf16 = strcmp(c->comm.wire, "bf16") == 0,
        .security = strcmp(c->comm.security, "encrypt") == 0 ? LS_SECURITY_ENCRYPT
                    : strcmp(c->comm.security, "auth") == 0  ? LS_SECURITY_AUTH
                                                             : LS_SECURITY_DEFAULT,
        .no_crc = strcmp(c->comm.check, "none") == 0,
    };
    LS_TRY(ls_world_join(&o, &t->w));
    t->group = ls_world_group(t->w);
    t->rank = ls_world_rank(t->w);
    t->size = ls_world_size(t->w);
    return LS_OK;
}

static ls_status open_tape(ls_trainer *t)
{
    ls_recompute how;
    LS_TRY(ls_recompute_find(t->c->train.recompute, &how));
    LS_TRY(ls_tape_create(t->plan.tape, ls_world_ledger(t->w), ls_world_tracer(t->w), &t->tape));
    ls_tape_set_recompute(t->tape, how);
    if (t->plan.packed > 0) {
        void *memory;
        LS_TRY(ls_arena_alloc(t->arena, t->plan.packed, LS_MEM_PARAM, &memory));
        LS_TRY(ls_tape_pack_memory(t->tape, memory, t->plan.packed));
    }
    return ls_tape_set_dtype(t->tape, ls_train_dtype(t->c));
}

static ls_status open_model(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    ls_optim_config oc;
    LS_TRY(ls_optim_defaults(c->optim.name, &oc));
    oc.lr = c->optim.lr;
    oc.momentum = c->optim.momentum;
    oc.eps = c->optim.eps;
    oc.weight_decay = c->optim.weight_decay;
    LS_TRY(ls_train_betas(c, &oc.beta1, &oc.beta2));

    ls_params *ps = &t->model->params;
    LS_TRY(ls_arena_create(t->plan.own_arena, false, ls_world_ledger(t->w), &t->arena));
    const ls_ddp_config dc = ls_train_ddp(c);
    LS_TRY(ls_ddp_bind(t->group, ps, &dc, ls_train_dtype(c), t->arena));
    if (strcmp(c->model.init, "file") == 0 || *c->model.load) {
        ls_train_task(t, LS_TASK_READING, c->model.load);
        LS_TRY(ls_train_load(c, ps, &t->special));
        ls_train_task(t, LS_TASK_NONE, NULL);
    } else {
        LS_TRY(ls_model_init(t->model, &t->mc));
    }

    if (strcmp(c->optim.decay, "matrices") == 0) ls_params_decay_matrices(ps);
    LS_TRY(ls_train_lr(c, t->steps, &t->lr));

    LS_TRY(ls_ddp_create(t->group, ps, &dc, &t->ddp));
    ls_params_round(ps); /* the values are rank 0's now */
    LS_TRY(ls_optim_create(&oc, ps, t->arena, &t->optim));
    return open_tape(t);
}

static void size_feed(ls_feed *f, const ls_train_config *c, int rank, int size)
{
    f->rank = rank;
    f->size = size;
    f->local = (size_t)(c->train.global_batch / size);
    f->micro = c->train.micro_batch ? (size_t)c->train.micro_batch : f->local;
}

/* What the configuration asks for at steps that the data, which say how many there are, do not have. */
static ls_status count_steps(const ls_train_config *c, const ls_feed *f, const ls_injection *inject,
                             uint32_t trace_first, int64_t *steps)
{
    LS_TRY(ls_train_steps(c, f->steps_per_epoch, steps));
    if (inject->rank >= 0 && inject->step > *steps)
        return ls_fail(LS_BAD_CONFIG, "inject %s: the run has %lld steps, the fault would never come", c->inject, (long long)*steps);
    if ((int64_t)trace_first > *steps)
        return ls_fail(LS_BAD_CONFIG, "trace.steps begins at %u, but the run has %lld steps", trace_first, (long long)*steps);
    return LS_OK;
}

static ls_status open_feed(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    size_feed(&t->feed, c, t->rank, t->size);
    ls_train_task(t, LS_TASK_READING, *t->source.train ? t->source.train : ls_train_data_name(c));
    LS_TRY(ls_feed_open(&t->feed, c, &t->mc, &t->source));
    ls_train_task(t, LS_TASK_NONE, NULL);
    LS_TRY(count_steps(c, &t->feed, &t->inject, t->trace_first, &t->steps));
    if ((int64_t)t->trace_last > t->steps) t->trace_last = (uint32_t)t->steps;
    return LS_OK;
}

ls_status ls_trainer_check(const ls_train_config *c, int size)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_feed f = { 0 };
    ls_injection inject;
    uint32_t first, last;
    int64_t steps;
    if (!ls_train_is_lm(c)) return ls_source_prepare(c);
    LS_TRY(ls_train_trace_steps(c, &first, &last));
    LS_TRY(ls_injection_parse(c->inject, size, &inject));
    size_feed(&f, c, 0, size);
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_feed_open(&f, c, &mc, &source);
    if (st == LS_OK) st = count_steps(c, &f, &inject, first, &steps);
    ls_feed_close(&f);
    ls_source_free(&source);
    return st;
}

/* Ends the job. Of ranks that find the same thing wrong, the first one reports it; the others are aborted by it. */
static ls_status fail_together(ls_trainer *t, ls_status st)
{
    char mine[LS_ERROR_BYTES], cause[LS_ERROR_BYTES];
    ls_status s;
    int first;
    (void)ls_world_abort(t->w, st);
    if (!ls_page_cause(t->w->page, &first, &s, cause, sizeof cause) || first == t->rank) return st;
    snprintf(mine, sizeof mine, "rank %d: %s", first, ls_last_error());
    return strcmp(mine, cause) == 0 ? ls_world_aborted(t->w) : st;
}

/* Before the team's threads start, which inherit what is blocked: a signal to the process kills it through any thread
 * that does not block it. */
static ls_status watch_signals(ls_trainer *t)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    return t->c->eval_only ? LS_OK : ls_stop_watch(sigs, 2, &t->stop);
}

ls_status ls_trainer_create(const ls_train_config *c, ls_trainer **out)
{
    *out = NULL;
    ls_trainer *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "a trainer");
    t->c = c;
    t->metrics_fd = t->events_fd = -1;
    t->inject.rank = -1;
    t->special = (ls_train_special){ -1, -1 };
    ls_status st = ls_train_trace_steps(c, &t->trace_first, &t->trace_last);
    if (st == LS_OK && !ls_train_is_lm(c)) st = ls_source_prepare(c); /* before ranks wait for one another */
    if (st == LS_OK) st = ls_train_model(c, &t->source, &t->mc);
    if (st == LS_OK) st = ls_model_create(&t->mc, &t->model);
    if (st == LS_OK) st = open_world(t);
    if (st == LS_OK) st = ls_train_config_check(c, t->size);
    if (st == LS_OK) st = ls_injection_parse(c->inject, t->size, &t->inject);
    if (st == LS_OK) st = open_feed(t);
    if (st == LS_OK) st = watch_signals(t);
    if (st == LS_OK) st = open_model(t);
    if (st == LS_OK) st = ls_samples_open(t);
    if (st < 0) {
        if (t->w) st = fail_together(t, st);
        ls_trainer_destroy(t);
        return st;
    }
    *out = t;
    return LS_OK;
}

void ls_trainer_destroy(ls_trainer *t)
{
    if (!t) return;
    const ls_env *env = ls_env_get();
    ls_bar_clear(&t->bar);
    if (t->metrics_fd >= 0) env->close_fd(t->metrics_fd);
    ls_stop_end(t->stop);
    if (t->events_fd >= 0) env->close_fd(t->events_fd);
    ls_text_free(&t->metrics);
    ls_tensorboard_close(t->events);
    ls_watch_close(&t->watch);
    ls_decoder_destroy(t->decoder);
    free(t->saved);
    ls_feed_close(&t->feed);
    ls_source_free(&t->source);
    ls_tape_destroy(t->tape);
    ls_optim_destroy(t->optim);
    ls_ddp_destroy(t->ddp);
    ls_model_destroy(t->model);
    ls_arena_destroy(t->arena); /* before the world, whose ledger it keeps */
    ls_world_leave(t->w);
    free(t);
}
