/* loop.c -- epochs of steps; what users see of them; evaluation and checkpoints between them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "ckpt/state.h"
#include "model/moe.h"
#include "net/world.h"
#include "train/attention_work.h"
#include "train/experts_cost.h"
#include "train/memory_units.h"
#include "train/trainer.h"

#define LINES_PER_EPOCH 10 /* of features */
#define STEPS_PER_LINE 10  /* of tokens, whose epochs may be long */
#define MOST_FAILED_SAVES 3 /* in a row: the run ends */

/* --- what users see ------------------------------------------------------------------ */

/* The parts of the plan add up to its total. */
static void announce_memory(const ls_trainer *t)
{
    char number[32];
    ls_text line = { 0 };
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (t->plan.bytes[k])
            ls_text_add(&line, "%s%s %s", line.n ? ", " : "", ls_memory_kind_name(k),
                        ls_bytes_text((double)t->plan.bytes[k], number, sizeof number));
    ls_say("memory per rank: %s; total %s", ls_text_str(&line), ls_bytes_text((double)t->plan.total, number, sizeof number));
    ls_text_free(&line);
}

/* Who has how much to do where ranks divide sequences. */
static void announce_attention(const ls_trainer *t)
{
    ls_text line = { 0 };
    ls_attention_work_text(t, &line);
    if (line.n) ls_say("%s", ls_text_str(&line));
    ls_text_free(&line);
}

/* What data parallelism does besides plain DDP, in words after "DDP". */
static void describe_dp(const ls_train_config *c, char *buf, size_t n)
{
    const bool hooked = strcmp(c->ddp.hook, "none") != 0;
    const char *graph = c->ddp.static_graph ? "static_graph" : c->ddp.find_unused ? "find_unused" : "";
    *buf = 0;
    char sets[48] = "";
    if (c->zero.hsdp > 1) snprintf(sets, sizeof sets, ", %lld sets of shards", (long long)c->zero.hsdp);
    if (c->zero.stage) snprintf(buf, n, " with ZeRO stage %lld%s", (long long)c->zero.stage, sets);
    else if (hooked || *graph)
        snprintf(buf, n, " (%s%s%s%s)", graph, hooked && *graph ? ", " : "", hooked ? "hook " : "", hooked ? c->ddp.hook : "");
}

/* Who divides layers and sequences: "pp 2 (1f1b) x tp 2 (sequence parallel) x cp 2 (ring) x dp 2: ", or nothing. */
static void describe_axes(const ls_mesh *m, const ls_train_config *c, char *buf, size_t n)
{
    const int tp = m->size[LS_AXIS_TP], cp = m->size[LS_AXIS_CP], ep = m->size[LS_AXIS_EP];
    const int pp = m->size[LS_AXIS_PP];
    char p[64] = "", t[56] = "", s[48] = "", e[24] = "", how[32] = "";
    *buf = 0;
    if (pp > 1) snprintf(p, sizeof p, "pp %d (%s) x ", pp, c->pipeline.schedule);
    if (c->parallel.tp_pieces > 0)
        snprintf(how, sizeof how, " (%lld piece%s)", (long long)c->parallel.tp_pieces, c->parallel.tp_pieces > 1 ? "s" : "");
    if (tp > 1) snprintf(t, sizeof t, "tp %d%s x ", tp, c->parallel.sp ? " (sequence parallel)" : how);
    if (ls_train_exchanges(c))
        snprintf(s, sizeof s, "cp %d (ulysses %d x ring %d) x ", cp, ls_train_neighbours(c), cp / ls_train_neighbours(c));
    else if (cp > 1) snprintf(s, sizeof s, "cp %d (%s) x ", cp, c->parallel.context);
    if (ep > 1) snprintf(e, sizeof e, "ep %d x ", ep);
    if (pp > 1 || tp > 1 || cp > 1 || ep > 1) snprintf(buf, n, "%s%s%s%sdp %d, ", p, t, s, e, m->size[LS_AXIS_DP]);
}

static void announce_scale(const ls_trainer *t)
{
    const ls_train_config *c = t->c;
    const bool root = strcmp(c->optim.scale_lr, "sqrt") == 0;
    ls_say("learning rate: %g = optim.lr %g x %s%d%s rank%s%s (optim.scale_lr %s)", t->lr.peak, c->optim.lr, root ? "sqrt(" : "",
           t->feed.size, root ? ")" : "", t->feed.size == 1 ? "" : "s", t->lr.warmup ? ", reached by warm-up" : "", c->optim.scale_lr);
}

/* What train.numerics invariant costs, as far as it is known before the first step. */
static void announce_invariant(const ls_trainer *t)
{
    const ls_train_config *c = t->c;
    const ls_feed *f = &t->feed;
    const int grains = (int)(f->local / f->micro), reductions = ls_ddp_reductions(t->par.ddp, grains);
    const int64_t micro = c->train.micro_batch ? c->train.micro_batch : (int64_t)f->local;
    const int fast = ls_ddp_reductions(t->par.ddp, (int)((int64_t)f->local / micro));
    ls_say("numerics: invariant: one binary tree over %lld grains of %zu sample%s; per rank and step %d forward%s (fast: %lld), "
           "%d reduction%s of gradients (fast: %d), %.1f MiB of partial sums (fast: none)",
           (long long)(c->train.global_batch / (int64_t)f->micro), f->micro, f->micro == 1 ? "" : "s", grains,
           grains == 1 ? "" : "s", (long long)f->local / micro, reductions, reductions == 1 ? "" : "s", fast,
           (double)ls_ddp_partial_sums(t->par.ddp) / 1048576.0);
}

/* What a layer of experts takes, and what bounds it. */
static ls_status announce_experts(const ls_trainer *t)
{
    const ls_mesh *m = &t->par.mesh;
    const ls_group *ep = m->axis[LS_AXIS_EP];
    const ls_feed *f = &t->feed;
    const ls_experts_layout l = { .tokens = (int64_t)(f->local * f->tokens) / m->size[LS_AXIS_CP],
                                  .micros = (int64_t)(f->local / f->micro), .ep = m->size[LS_AXIS_EP],
                                  .tp = m->size[LS_AXIS_TP], .dtype = ls_train_dtype(t->c) };
    const ls_level level = ls_group_is_mapped(ep)      ? LS_LEVEL_MEMORY
                           : ls_group_nodes(ep) > 1 ? LS_LEVEL_NETWORK
                                                    : LS_LEVEL_LOOPBACK;
    ls_experts_cost k;
    ls_cost links;
    ls_text line = { 0 };
    char from[320];
    if (!ls_moe_words(t->par.model)) return LS_OK;
    LS_TRY(ls_cost_load(&links, from, sizeof from));
    ls_experts_cost_of(&t->mc.lm, &l, &k);
    ls_experts_cost_words(&k, t->watch.peak.gflops, &links, level, &line);
    ls_say("%s", ls_text_str(&line));
    ls_text_free(&line);
    return LS_OK;
}

static void announce(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    const int ranks = ls_world_size(t->w);
    char a[32], b[32], dp[64], axes[128];
    int rank, size;
    if (!t->par.mesh.speaks) return;
    describe_dp(c, dp, sizeof dp);
    describe_axes(&t->par.mesh, c, axes, sizeof axes);
    ls_say("lockstep %s: %s with %s parameters, %d rank%s over %s, %sDDP%s", LS_VERSION, c->model.name,
           ls_number_text((double)ls_params_count_whole(&t->par.model->params), 0, a, sizeof a), ranks, ranks == 1 ? "" : "s",
           strcmp(ls_train_backend(c), "mpi") == 0 ? "mpi" : ls_world_transport(t->w),
           axes, dp);
    if (ls_world_launched(&rank, &size) && strcmp(ls_world_source(t->w), "lockstep run") != 0)
        ls_say("ranks: from %s\ncollectives: %s", ls_world_source(t->w), ls_comm_text(t->w));
    const ls_feed *f = &t->feed;
    if (f->tokens)
        ls_say("data: %s, %s tokens, vocabulary %s, sequence length %zu", t->source.train,
               ls_number_text((double)f->train_tokens.n, 0, a, sizeof a),
               ls_number_text((double)t->mc.lm.vocab_size, 0, b, sizeof b), f->tokens);
    const long long micros = (long long)(f->local / f->micro);
    ls_say("batch: global %lld = %d rank%s x %lld micro-batch%s x %zu %s%s; %s steps per epoch, %s steps in this run",
           (long long)c->train.global_batch, f->size, f->size == 1 ? "" : "s", micros, micros == 1 ? "" : "es", f->micro,
           f->tokens ? "sequence" : "sample", f->micro == 1 ? "" : "s",
           ls_number_text((double)f->steps_per_epoch, 0, a, sizeof a),
           ls_number_text((double)t->steps, 0, b, sizeof b));
    if (ls_train_is_invariant(c)) announce_invariant(t);
    if (strcmp(c->optim.scale_lr, "none") != 0)
        announce_scale(t);
    announce_attention(t);
    announce_memory(t);
    if (strcmp(c->train.pack_weights, "always") == 0 && t->plan.packed == 0)
        ls_say("packed weights: none. train.pack_weights is always, but on this processor no product of this model in %s "
               "gains by it: the library packs none, or products of few tokens read weights as they lie", c->train.dtype);
    if (*t->fit.said) ls_say("%s", t->fit.said);
    ls_say("peak: %s", t->watch.peak.text);
    if (announce_experts(t) < 0) ls_log(LS_LOG_WARN, "%s", ls_last_error());
    ls_say("run folder: %s", t->run_dir);
    if (c->predict && c->predicted_text) ls_say("%s", c->predicted_text);
}

static void dump_buckets(const ls_trainer *t)
{
    ls_say("buckets (%s):", ls_ddp_bucket_order(t->par.ddp));
    for (int i = 0; i < ls_ddp_buckets(t->par.ddp); i++) {
        ls_ddp_bucket_info b = ls_ddp_bucket(t->par.ddp, i);
        ls_text names = { 0 };
        for (int k = 0; k < b.nparams; k++)
            ls_text_add(&names, "%s%s", k ? ", " : "", t->par.model->params.item[b.param[k]].name);
        ls_say("  bucket %d: %s: %zu bytes", i, ls_text_str(&names), b.nbytes);
        ls_text_free(&names);
    }
}

/* Sums over the run. */
typedef struct totals {
    uint64_t step_ns, exposed_ns, hidden_ns, bytes, units; /* units: tokens, or samples of features */
} totals;

static void add(totals *sum, const ls_step_stats *s)
{
    sum->step_ns += s->step_ns;
    sum->exposed_ns += s->comm.exposed_ns;
    sum->hidden_ns += s->comm.busy_ns > s->comm.exposed_ns ? s->comm.busy_ns - s->comm.exposed_ns : 0;
    sum->bytes += s->comm.bytes;
    sum->units += (uint64_t)(s->tokens ? s->tokens : s->samples);
}

static const char *unit(const ls_trainer *t) { return t->feed.tokens ? "tokens" : "samples"; }

static void summary(const ls_trainer *t, const totals *s)
{
    if (s->step_ns == 0) return;
    double all = (double)s->step_ns;
    ls_say("communication: %.1f%% of the time exposed, %.1f%% hidden behind compute; %.1f MB moved by this rank; %.0f "
           "%s/s",
           100 * (double)s->exposed_ns / all, 100 * (double)s->hidden_ns / all, (double)s->bytes * 1e-6,
           (double)s->units / (all * 1e-9), unit(t));
    ls_snapshot_say(t, s->step_ns);
}

static bool line_is_due(const ls_trainer *t)
{
    int64_t every = t->c->log.every, tenth = t->feed.steps_per_epoch / LINES_PER_EPOCH;
    if (every == 0) every = t->feed.tokens ? STEPS_PER_LINE : tenth > 0 ? tenth : 1;
    return t->step == t->begun + 1 || t->step % every == 0 || t->step == t->steps || t->stop_signal;
}

static void log_step(ls_trainer *t, const ls_step_stats *s, const totals *sum)
{
    if (!t->par.mesh.speaks) return;
    const double seconds = (double)sum->step_ns * 1e-9;
    ls_watch_step(t, s);
    if (s->straggler.found || s->straggler.over) ls_watch_straggler(t, &s->straggler);
    if (line_is_due(t)) {
        ls_bar_clear(&t->bar);
        ls_watch_line(t, s, seconds / (double)(t->step - t->begun) * (double)(t->steps - t->step));
    }
    ls_bar_draw(&t->bar, t->step, t->steps, t->epoch, s->loss, (double)sum->units / seconds, unit(t));
}

/* --- the loop ----------------------------------------------------------------------------- */

static void say_eval(ls_trainer *t, const ls_eval *e, double train_loss)
{
    if (!t->par.mesh.speaks) return;
    ls_bar_clear(&t->bar);
    if (t->feed.tokens) ls_watch_eval(t, e, train_loss);
    else ls_say("epoch=%lld test_loss=%.4f test_accuracy=%.4f", (long long)t->epoch, e->loss, e->accuracy);
}

static void keep_eval(const ls_eval *e, ls_train_result *out)
{
    out->test_loss = e->loss;
    out->test_accuracy = e->accuracy;
    out->perplexity = e->perplexity;
}

static bool eval_is_due(const ls_trainer *t)
{
    const int64_t every = t->c->train.eval_every ? t->c->train.eval_every : t->feed.steps_per_epoch;
    return t->feed.test_samples > 0 && (t->step == t->steps || t->step % every == 0);
}

/* A save that fails is not the end of a run that goes on, unless the ones before it have failed, too. All ranks decide
 * alike. */
static ls_status forgive(ls_trainer *t, ls_status st, bool last)
{
    if (st != LS_CKPT_FAILED) return st;
    if (last || ++t->failed_saves == MOST_FAILED_SAVES) { /* the rank whose disk it is ends the job */
        if (ls_state_culprit(t->state) != ls_world_rank(t->w)) LS_TRY(ls_barrier(ls_world_group(t->w)));
        return st;
    }
    if (!t->par.mesh.speaks) return LS_OK;
    ls_bar_clear(&t->bar);
    ls_log(LS_LOG_WARN, "ckpt-failed: %s; training goes on, and %s%s", ls_last_error(),
           *t->checkpoint ? "the newest checkpoint is " : "there is no checkpoint yet", t->checkpoint);
    return LS_OK;
}

static ls_status saved(ls_trainer *t, ls_status st, int64_t step, bool last)
{
    if (st < 0) ls_best_failed(t, step);
    if (st < 0) return forgive(t, st, last);
    t->failed_saves = 0;
    ls_snapshot_durable(t);
    if (!t->par.mesh.speaks) return LS_OK;
    ls_bar_clear(&t->bar);
    if (t->best.step == step && step > 0) ls_say("checkpoint: %s, the best so far: %s %.4f", t->checkpoint, t->c->checkpoint.best, t->best.value);
    else ls_say("checkpoint: %s", t->checkpoint);
    return LS_OK;
}

/* The save in flight, if there is one. */
static ls_status advance_save(ls_trainer *t, bool wait)
{
    const ls_status st = ls_train_save_advance(t, wait);
    return st == LS_AGAIN ? LS_OK : saved(t, st, t->saving, false);
}

static void say_waits(ls_trainer *t)
{
    if (!ls_state_saving(t->state) || t->save_waited || !t->par.mesh.speaks) return;
    t->save_waited = true;
    ls_bar_clear(&t->bar);
    ls_log(LS_LOG_WARN, "ckpt-waits: the checkpoint of step %lld is due, and that of step %lld is still being written: training waits "
                        "for it (this is said once); a higher checkpoint.every, or a faster disk, avoids that",
           (long long)t->step, (long long)t->saving);
}

/* One save is in flight at a time, and none when the run ends. */
static ls_status save(ls_trainer *t, bool last)
{
    if (!last) say_waits(t);
    LS_TRY(advance_save(t, true));
    t->save_ns = ls_env_get()->mono_ns();
    if (last || !t->c->checkpoint.async) return saved(t, ls_train_save(t), t->step, last);
    const ls_status st = ls_train_save_begin(t);
    return st < 0 ? saved(t, st, t->step, last) : LS_OK;
}

static bool save_is_due(const ls_trainer *t)
{
    const int64_t every = t->c->checkpoint.every;
    return every > 0 ? t->step % every == 0 : t->save_due;
}

static ls_status after_step(ls_trainer *t, const ls_step_stats *s, ls_train_result *out)
{
    ls_eval eval = { 0 };
    LS_TRY(advance_save(t, false));
    bool over = t->step == t->steps || t->stop_signal; /* a trace that was to go on longer ends here */
    bool traced = t->trace_last && t->step >= (int64_t)t->trace_first && t->step <= (int64_t)t->trace_last;
    if (traced && (over || t->step == (int64_t)t->trace_last)) LS_TRY(ls_record_trace(t));
    if (t->par.mesh.speaks && t->c->dump_buckets && (t->step == 1 || t->step == 2)) dump_buckets(t);
    if (eval_is_due(t)) {
        LS_TRY(ls_train_evaluate(t, &eval));
        keep_eval(&eval, out);
        say_eval(t, &eval, s->loss);
    }
    const bool sample = ls_samples_due(t), best = ls_best_look(t, &eval), due = best || save_is_due(t);
    const bool snapshot = ls_snapshot_due(t, over || (due && !t->c->checkpoint.async));
    LS_TRY(ls_record_step(t, s, &eval, line_is_due(t)));
    LS_TRY(ls_sample_log_step(t));
    const bool flush = line_is_due(t) || due || snapshot; /* a reader is not far behind, and a checkpoint not ahead */
    if (flush) LS_TRY(ls_record_flush(t));
    if (sample) LS_TRY(ls_samples_say(t));
    if (due || over) { /* what has parted is not saved */
        LS_TRY(ls_train_compare(t));
        LS_TRY(save(t, over));
    }
    if (snapshot) LS_TRY(ls_snapshot_save(t));
    return ls_compare_step(t, s);
}

static ls_status train(ls_trainer *t, ls_train_result *out)
{
    totals sum = { 0 };
    t->save_ns = ls_env_get()->mono_ns();
    while (t->step < t->steps && !t->stop_signal) {
        ls_step_stats s;
        t->epoch = t->step / t->feed.steps_per_epoch;
        LS_TRY(ls_train_step(t, &s));
        out->loss = s.loss;
        out->steps = t->step;
        ls_train_event(t, "step", t->step);
        ls_run_json_step(t->json, t, &s);
        add(&sum, &s);
        log_step(t, &s, &sum);
        LS_TRY(after_step(t, &s, out));
    }
    LS_TRY(ls_record_flush(t));
    if (t->par.mesh.speaks) summary(t, &sum);
    ls_compare_say(t);
    if (t->stop_signal)
        return ls_fail(t->stop_signal == SIGTERM ? LS_PREEMPTED : LS_INTERRUPTED,
                       "stopped by %s after step %lld of %lld; kept %s", t->stop_signal == SIGTERM ? "SIGTERM" : "Ctrl-C",
                       (long long)t->step, (long long)t->steps, t->par.mesh.speaks ? t->checkpoint : "a checkpoint");
    return LS_OK;
}

static ls_status eval_only(ls_trainer *t, ls_train_result *out)
{
    ls_eval e;
    if (t->feed.test_samples == 0)
        return ls_fail(LS_BAD_CONFIG, "--eval-only: there is nothing to evaluate on: no val.bin is beside %s", t->source.train);
    LS_TRY(ls_train_evaluate(t, &e));
    keep_eval(&e, out);
    if (!t->par.mesh.speaks) return LS_OK;
    if (t->feed.tokens) ls_say("val_loss=%.4f perplexity=%.2f", e.loss, e.perplexity);
    else ls_say("test_loss=%.4f test_accuracy=%.4f", e.loss, e.accuracy);
    return LS_OK;
}

static ls_status run(ls_trainer *t, ls_opts *opts, ls_train_result *out)
{
    if (t->c->eval_only) return eval_only(t, out);
    LS_TRY(ls_record_open(t, opts));
    LS_TRY(ls_run_json_open(t, &t->json));
    LS_TRY(ls_snapshot_open(t));
    ls_bar_init(&t->bar);
    if (!t->par.mesh.speaks) t->bar.terminal = false;
    announce(t);
    const bool begins_at_end = t->step == t->steps && (t->steps == 0 || !ls_resume_in_place(t->c));
    if (begins_at_end) LS_TRY(save(t, true)); /* nothing to do: the first model is the result */
    out->loss = t->loss;
    out->steps = t->step;
    LS_TRY(train(t, out));
    LS_TRY(ls_record_memory(t));
    LS_TRY(ls_comm_log_write(t));
    const ls_values values = ls_parallel_values(&t->par);
    LS_TRY(ls_params_digest_of(&t->par.model->params, &values, out->digest));
    if (t->par.mesh.speaks) {
        char self[512];
        if (ls_env_get()->self_path(self, sizeof self) < 0) snprintf(self, sizeof self, "lockstep");
        char prompt[64];
        if (t->source.opened) ls_source_prompt(&t->source, &t->feed.train_tokens, prompt, sizeof prompt);
        if (t->source.opened) ls_say("try next: %s generate %s --prompt '%s'", self, t->run_dir, prompt);
        else ls_say("try next: %s train %s/config.yaml --eval-only --model.load %s", self, t->run_dir, t->checkpoint);
        ls_say("final step=%lld loss=%a digest=%s", (long long)t->step, out->loss, out->digest);
    }
    LS_TRY(ls_run_json_print(t->json, t, out->loss, out->digest));
    if (ls_context_get()->stdout_lost) /* a full disk must not look like success */
        return ls_fail(LS_IO, "writing to standard output failed, and lines are missing there; the run is complete in %s", t->run_dir);
    return LS_OK;
}

ls_status ls_train_in(const ls_train_config *c, ls_opts *opts, ls_world *w, ls_stop *stop, ls_train_result *out)
{
    ls_trainer *t;
    *out = (ls_train_result){ 0 };
    LS_TRY(ls_trainer_create_in(c, w, stop, &t));
    ls_status st = run(t, opts, out);
    snprintf(out->run_dir, sizeof out->run_dir, "%s", t->run_dir);
    snprintf(out->checkpoint, sizeof out->checkpoint, "%s", t->checkpoint);
    if (st == LS_OK || st == LS_INTERRUPTED || st == LS_PREEMPTED) ls_snapshot_end(t);
    if (st < 0) {
        (void)ls_record_flush(t);
        /* a stop on request is agreed: every rank leaves in order */
        if (st != LS_INTERRUPTED && st != LS_PREEMPTED) (void)ls_world_abort(t->w, st);
        st = ls_world_verdict(t->w, st);
    }
    ls_trainer_destroy(t);
    return st;
}

ls_status ls_train(const ls_train_config *c, ls_opts *opts, ls_train_result *out)
{
    return ls_train_in(c, opts, NULL, NULL, out);
}
