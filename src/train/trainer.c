/* trainer.c -- builds what a run needs, in the order in which it can fail, and undoes it. */
#include "train/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "group/backend.h"
#include "group/debug.h"
#include "meet/job_env.h"
#include "meet/page.h"
#include "net/world.h"
#include "train/memory_units.h"

ls_world_opts ls_train_world_opts(const ls_train_config *c, const ls_memory_plan *p)
{
    return (ls_world_opts){
        .backend = ls_train_backend(c),
        .rank_order = strcmp(c->comm.order, "ranks") == 0,
        .transport = *c->comm.transport ? c->comm.transport : NULL,
        .algo = *c->comm.algo ? c->comm.algo : NULL,
        .arena_bytes = p->world_arena,
        .coll_timeout_ns = c->comm.timeout,
        .progress = strcmp(c->comm.progress, "thread") == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE,
        .wire_bf16 = strcmp(c->comm.wire, "bf16") == 0,
        .security = strcmp(c->comm.security, "encrypt") == 0 ? LS_SECURITY_ENCRYPT
                    : strcmp(c->comm.security, "auth") == 0  ? LS_SECURITY_AUTH
                                                             : LS_SECURITY_DEFAULT,
        .no_crc = strcmp(c->comm.check, "none") == 0,
    };
}

/* This rank's plan, if rank r runs on node[r], and whether it fits. */
static ls_status plan_on(ls_trainer *t, int rank, int peers, const int *node)
{
    const ls_memory_ranks mine = { .size = peers, .here = 1, .rank = rank, .node = node };
    LS_TRY(ls_memory_plan_units(&t->fit.c, &t->mc, rank, peers, node, &t->plan, &t->planned));
    return ls_memory_check(&t->fit.c, &t->mc, &mine, &t->plan);
}

static bool is_one_node(const ls_trainer *t)
{
    const int *node = ls_debug_look(ls_world_group(t->w)).node;
    for (int r = 0; r < ls_world_size(t->w); r++)
        if (node && node[r] != node[0]) return false;
    return true;
}

/* The plan of a rank that has yet to join. That it may be one of several nodes its environment says, which need not be
 * right: joining checks it. */
static ls_status plan_memory(ls_trainer *t, int rank, int peers)
{
    ls_job_env job;
    t->fit.c = *t->c;
    if (t->thread && is_one_node(t)) LS_TRY(ls_memory_stages_fit(t->c, &t->mc, peers, &t->fit));
    if (t->thread) return plan_on(t, rank, peers, ls_debug_look(ls_world_group(t->w)).node);
    if (ls_job_env_read(&job) < 0 || job.local_size < 1) job.local_size = peers;
    if (job.local_size == peers) LS_TRY(ls_memory_stages_fit(t->c, &t->mc, peers, &t->fit));
    int *node = malloc((size_t)peers * sizeof *node);
    if (!node) return ls_fail(LS_NO_MEMORY, "the nodes of %d ranks", peers);
    for (int r = 0; r < peers; r++) node[r] = r / job.local_size;
    const ls_status st = plan_on(t, rank, peers, node);
    free(node);
    return st;
}

static ls_status open_world(ls_trainer *t)
{
    int rank, peers; /* joining checks them; here they only size the arena */
    if (t->thread) rank = ls_world_rank(t->w), peers = ls_world_size(t->w);
    else (void)ls_world_launched(&rank, &peers);
    if (peers > LS_WORLD_MOST_RANKS) peers = LS_WORLD_MOST_RANKS;
    if (rank >= peers) rank = peers - 1;
    LS_TRY(ls_train_config_check(t->c, peers));
    LS_TRY(plan_memory(t, rank, peers));
    const ls_world_opts o = ls_train_world_opts(t->c, &t->plan);
    if (!t->thread) LS_TRY(ls_world_join(&o, &t->w));
    t->words = calloc((size_t)ls_world_size(t->w), sizeof *t->words);
    t->busy_ns = calloc((size_t)ls_world_size(t->w), sizeof *t->busy_ns);
    t->busy_sum = calloc((size_t)ls_world_size(t->w) * LS_BUSY_PHASES, sizeof *t->busy_sum);
    return t->words && t->busy_ns && t->busy_sum ? LS_OK : ls_fail(LS_NO_MEMORY, "what %d ranks tell", ls_world_size(t->w));
}

/* Of the checkpoint that the run goes on from, or of model.load, in place of those that the model draws. */
static ls_status load_values(void *arg, ls_model *m)
{
    ls_trainer *t = arg;
    if (t->from) {
        ls_train_task(t, LS_TASK_READING, ls_checkpoint_folder(t->from));
        LS_TRY(ls_checkpoint_values(t->from, &m->params));
        ls_train_task(t, LS_TASK_NONE, NULL);
        return LS_OK;
    }
    ls_train_task(t, LS_TASK_READING, t->c->model.load);
    LS_TRY(ls_train_load(t->c, &m->params, &t->special));
    ls_train_task(t, LS_TASK_NONE, NULL);
    return LS_OK;
}

/* Ranks whose numbers are equal modulo this update the same elements; 0: no two ranks do. */
static int shards_of(const ls_trainer *t)
{
    const int shards = t->par.shards ? ls_group_size(t->par.shards) : t->c->zero.stage == 0 ? 1 : 0;
    return shards < ls_group_size(t->par.mesh.replicas) ? shards : 0;
}

static ls_status open_model(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    ls_optim_config oc;
    ls_plan p;
    LS_TRY(ls_train_optim(c, &oc));
    LS_TRY(ls_train_lr(c, t->feed.size, t->steps, &t->lr));
    LS_TRY(ls_train_scaler(c, &t->scaler, &t->adapts));
    t->scales = strcmp(c->optim.loss_scale, "none") != 0;

    LS_TRY(ls_arena_create(t->plan.own_arena, false, ls_world_ledger(t->w), &t->arena));
    const bool load = t->from || strcmp(c->model.init, "file") == 0 || *c->model.load;
    const ls_parallel_opts o = { .own = t->arena, .tape_bytes = t->plan.tape, .chunk_bytes = t->plan.chunk,
                                 .most_rows = ls_feed_most_rows(c), .packed_bytes = t->plan.packed,
                                 .values = load ? load_values : NULL, .arg = t };
    LS_TRY(ls_train_plan(&t->fit.c, ls_world_size(t->w), &p));
    LS_TRY(ls_parallelize(t->w, &p, &t->mc, &o, &t->par));
    ls_comm_log_open(&t->comm, &t->par);
    if (!(t->alive = calloc((size_t)t->par.ntapes, sizeof *t->alive)))
        return ls_fail(LS_NO_MEMORY, "a list of %d micro-batches", t->par.ntapes);

    ls_params *ps = &t->par.model->params;
    if (strcmp(c->optim.decay, "matrices") == 0) ls_params_decay_matrices(ps);
    LS_TRY(ls_optim_create(&oc, ps, t->arena, &t->optim));
    t->guard = c->ddp.guard ? shards_of(t) : 0;
    if (t->guard) LS_TRY(ls_optim_hash_values(t->optim));
    LS_TRY(ls_state_create(ls_world_group(t->w), &t->state));
    LS_TRY(ls_state_add_model(t->state, ps, t->optim));
    LS_TRY(ls_train_kept_add(t->state, &t->kept));
    if (ls_train_copies(c)) LS_TRY(ls_state_reserve(t->state));
    if (ls_train_snapshots(c)) ls_count_shared(t->w, LS_MEM_CKPT, LS_NO_UNIT, ls_snapshots_bytes(t->state));
    return ls_train_describe(t);
}

/* Another program's checkpoint has the steps of its optimizer, and not where the run was in its data. */
static void begin_after(ls_trainer *t)
{
    t->kept = (ls_train_kept){ .step = ls_optim_steps(t->optim), .clean = t->scaler.clean,
                               .scale = (double)t->scaler.scale, .loss = NAN };
    if (ls_world_rank(t->w) == 0)
        ls_say("resuming %s, saved by another program: the optimizer's state is of step %lld, and the data go on as if this run "
               "had taken these steps", ls_checkpoint_folder(t->from), (long long)t->kept.step);
}

/* The optimizer's state, and where the run was. */
static ls_status load_state(ls_trainer *t)
{
    const ls_train_kept *k = &t->kept;
    if (!t->from) return LS_OK;
    ls_train_task(t, LS_TASK_READING, ls_checkpoint_folder(t->from));
    LS_TRY(ls_state_load(t->state, t->from));
    ls_train_task(t, LS_TASK_NONE, NULL);
    if (ls_checkpoint_is_foreign(t->from)) begin_after(t);
    else LS_TRY(ls_resume_check_data(k, &t->feed, t->from));
    if (k->step > t->steps)
        return ls_fail(LS_BAD_CONFIG, "%s is of step %lld, and the run has %lld steps: raise train.steps or train.epochs",
                       ls_checkpoint_folder(t->from), (long long)k->step, (long long)t->steps);
    t->step = t->begun = k->step;
    t->loss = k->loss;
    t->skipped = k->skipped;
    if (t->adapts) {
        t->scaler.scale = (float)k->scale;
        t->scaler.clean = k->clean;
    }
    ls_checkpoint_close(t->from);
    t->from = NULL;
    return LS_OK;
}

/* Which checkpoint, and whether its run was configured alike: before anything is built of it. */
static ls_status open_checkpoint(ls_trainer *t)
{
    ls_text changed = { 0 };
    if (t->c->eval_only) return LS_OK;
    ls_train_task(t, LS_TASK_READING, "checkpoints");
    ls_status st = ls_world_generation(t->w) > 1 ? ls_resume_again(ls_world_group(t->w), &t->again) : LS_OK;
    if (st == LS_OK) ls_snapshot_find(t);
    if (st == LS_OK) st = ls_resume_open(t->c, &t->again, t->snapshots, ls_world_group(t->w), &t->from);
    ls_train_task(t, LS_TASK_NONE, NULL);
    t->from_memory = t->from && t->snapshots && ls_snapshots_step(t->snapshots) == ls_checkpoint_step(t->from);
    if (st == LS_OK && t->from) st = ls_resume_check(t->c, t->from, &changed);
    if (st == LS_OK && t->from && ls_world_rank(t->w) == 0 && !ls_checkpoint_is_foreign(t->from))
        ls_say("resuming step %lld of %s%s, saved by %d rank%s%s%s", (long long)ls_checkpoint_step(t->from),
               t->from_memory ? "the snapshot in memory " : "", ls_checkpoint_folder(t->from), ls_checkpoint_world_size(t->from),
               ls_checkpoint_world_size(t->from) == 1 ? "" : "s", changed.n ? "; changed since: " : "", ls_text_str(&changed));
    ls_text_free(&changed);
    return st;
}

/* With train.numerics invariant: over how many ranks the sums of gradients go before those over micro-batches do. A
 * strategy that reduces every backward sums over all ranks that share the model, or over a set of shards where the sets
 * add up in a second step (src/parallel/fsdp.c). `world` NULL: nothing is read, and any number will do. */
static int inner_ranks(const ls_train_config *c, const ls_plan *p, ls_group *world, int size)
{
    if (!ls_train_is_invariant(c)) return 0;
    if (p->ddp.zero_stage < 2 || p->ddp.reduce_last) return 1;
    return p->hsdp > 1 && world && !ls_group_is_mapped(world) ? size / p->hsdp : size;
}

/* The samples of a rank of the world. */
static ls_status size_feed(ls_feed *f, const ls_train_config *c, ls_group *world, int rank, int world_size)
{
    ls_plan p;
    LS_TRY(ls_train_plan(c, world_size, &p));
    ls_mesh_place(p.size, p.order, rank, LS_ALONG(LS_AXIS_DP) | LS_ALONG(LS_AXIS_EP), &f->rank, &f->size);
    f->local = (size_t)(c->train.global_batch / f->size);
    f->micro = (size_t)p.micro_batch;
    f->inner = inner_ranks(c, &p, world, f->size);
    return LS_OK;
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
    LS_TRY(size_feed(&t->feed, c, ls_world_group(t->w), ls_world_rank(t->w), ls_world_size(t->w)));
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
    LS_TRY(size_feed(&f, c, NULL, 0, size));
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
    if (!ls_page_cause(t->w->page, &first, &s, cause, sizeof cause) || first == ls_world_rank(t->w)) return st;
    snprintf(mine, sizeof mine, "rank %d: %s", first, ls_last_error());
    return strcmp(mine, cause) == 0 ? ls_world_aborted(t->w) : st;
}

/* Before the team's threads start, which inherit what is blocked: a signal to the process kills it through any thread
 * that does not block it. */
static ls_status watch_signals(ls_trainer *t)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    return t->thread || t->c->eval_only ? LS_OK : ls_stop_watch(sigs, 2, &t->stop);
}

ls_status ls_train_check_launcher(const ls_train_config *c)
{
    return strcmp(c->comm.backend, "mpi") == 0 ? ls_backend_launched(ls_train_ranks(c)) : LS_OK;
}

ls_status ls_trainer_create(const ls_train_config *c, ls_trainer **out)
{
    return ls_trainer_create_in(c, NULL, NULL, out);
}

ls_status ls_trainer_create_in(const ls_train_config *c, ls_world *w, ls_stop *stop, ls_trainer **out)
{
    *out = NULL;
    ls_trainer *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "a trainer");
    t->c = c;
    t->w = w;
    t->stop = stop;
    t->thread = w != NULL;
    t->metrics_fd = t->events_fd = t->samples_fd = -1;
    t->inject.rank = -1;
    t->special = (ls_train_special){ -1, -1 };
    ls_status st = w ? LS_OK : ls_train_check_launcher(c);
    if (st == LS_OK) st = ls_train_trace_steps(c, &t->trace_first, &t->trace_last);
    if (st == LS_OK && !ls_train_is_lm(c)) st = ls_source_prepare(c); /* before ranks wait for one another */
    if (st == LS_OK) st = ls_train_model(c, &t->source, &t->mc);
    if (st == LS_OK) st = open_world(t);
    if (st == LS_OK) st = ls_train_config_check(c, ls_world_size(t->w));
    if (st == LS_OK) st = ls_injection_parse(c->inject, ls_world_size(t->w), &t->inject);
    if (st == LS_OK) st = open_checkpoint(t);
    if (st == LS_OK) st = open_feed(t);
    if (st == LS_OK && t->trace_last) st = ls_record_make_room(t);
    if (st == LS_OK) st = watch_signals(t);
    if (st == LS_OK) st = open_model(t);
    if (st == LS_OK) st = load_state(t);
    if (st == LS_OK && !c->eval_only) st = ls_best_open(t);
    if (st == LS_OK) st = ls_samples_open(t);
    if (st == LS_OK && t->par.mesh.speaks && c->log.straggler > 0 && ls_world_size(t->w) > 1)
        st = ls_straggler_create(ls_world_size(t->w), c->log.straggler, &t->straggler);
    if (st == LS_OK) st = ls_compare_open(t, &t->compare);
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
    if (t->samples_fd >= 0) env->close_fd(t->samples_fd);
    ls_text_free(&t->sample_line);
    if (!t->thread) ls_stop_end(t->stop);
    if (t->events_fd >= 0) env->close_fd(t->events_fd);
    ls_text_free(&t->metrics);
    ls_tensorboard_close(t->events);
    ls_watch_close(&t->watch);
    ls_straggler_destroy(t->straggler);
    ls_decoder_destroy(t->decoder);
    ls_model_destroy(t->sample_model);
    ls_snapshots_close(t->snapshots);
    ls_state_destroy(t->state); /* first: its thread reads some of what follows */
    free(t->saved);
    free(t->config);
    free(t->described);
    ls_checkpoint_close(t->from);
    ls_compare_close(t->compare);
    ls_run_json_close(t->json);
    ls_feed_close(&t->feed);
    ls_source_free(&t->source);
    ls_memory_units_free(&t->planned);
    ls_optim_destroy(t->optim);
    ls_parallel_destroy(&t->par);
    free(t->alive);
    ls_arena_destroy(t->arena); /* before the world, whose ledger it keeps */
    free(t->words);
    free(t->busy_ns);
    free(t->busy_sum);
    if (!t->thread) ls_world_leave(t->w);
    free(t);
}
