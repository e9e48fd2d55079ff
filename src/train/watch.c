/* watch.c -- what rank 0 shows of a run while it goes on. */
#include "train/experts.h"
#include "train/watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "base/team.h"
#include "group/debug.h"
#include "launch/events.h"
#include "net/world.h"
#include "train/trainer.h"

/* A run does without it, but not with a file that it was told to use and that is broken. */
static ls_status find_peak(ls_dtype dtype, int threads, ls_peak *out)
{
    const ls_status st = ls_peak_find(dtype, threads, out);
    if (st >= 0 || st == LS_BAD_FILE || st == LS_IO) return st;
    *out = (ls_peak){ 0 };
    snprintf(out->text, sizeof out->text, "unknown: %.200s", ls_last_error());
    return LS_OK;
}

ls_status ls_watch_open(ls_trainer *t)
{
    const ls_env *env = ls_env_get();
    const char *no_color = env->getenv("NO_COLOR"); /* no-color.org */
    ls_watch *w = &t->watch;
    w->format = ls_log_format_find(t->c->log.format);
    if (!w->format) return ls_fail(LS_BAD_CONFIG, "log.format %s", t->c->log.format);
    w->colour = ls_say_on_terminal() && !(no_color && *no_color);
    ls_mfu_count(&t->mc, ls_params_count_whole(&t->par.model->params), (int64_t)t->feed.tokens, &w->mfu);
    w->reserved =
        (double)(ls_arena_size(t->w->arena) + ls_arena_size(t->arena)) + (double)ls_world_ledger(t->w)->now[LS_MEM_ACT];
    w->memory = w->reserved + (double)env->mem_available() / t->w->local_size;
    return find_peak(ls_train_dtype(t->c), ls_team_size(), &w->peak);
}

void ls_watch_close(ls_watch *w) { ls_text_free(&w->line); }

static int64_t units(const ls_step_stats *s) { return s->tokens ? s->tokens : s->samples; }

double ls_watch_flops(const ls_trainer *t, const ls_step_stats *s)
{
    return t->watch.mfu.flops * (double)units(s) / ls_world_size(t->w) / ((double)s->step_ns * 1e-9);
}

void ls_watch_step(ls_trainer *t, const ls_step_stats *s)
{
    ls_watch *w = &t->watch;
    w->samples += s->samples;
    w->units += units(s);
    w->loss_z = ls_log_window_add(&w->losses, s->loss);
    w->norm_z = ls_log_window_add(&w->norms, s->grad_norm);
    w->since.steps++;
    w->since.skipped += s->skipped;
    w->since.step_ns += s->step_ns;
    w->since.exposed_ns += s->comm.exposed_ns;
    w->since.units += (uint64_t)units(s);
}

void ls_watch_line(ls_trainer *t, const ls_step_stats *s, double eta_s)
{
    ls_watch *w = &t->watch;
    const double seconds = (double)w->since.step_ns * 1e-9, rate = (double)w->since.units / seconds;
    ls_log_values v = { .step = t->step,
                        .steps = t->steps,
                        .loss = s->loss,
                        .grad_norm = s->grad_norm,
                        .lr = s->lr,
                        .loss_scale = t->scales ? s->loss_scale : 0.0,
                        .skipped = w->since.skipped,
                        .loss_z = w->loss_z,
                        .grad_norm_z = w->norm_z,
                        .step_s = seconds / (double)w->since.steps,
                        .rate = rate,
                        .tokens = s->tokens > 0,
                        .ranks = ls_world_size(t->w),
                        .memory_bytes = w->reserved,
                        .memory_share = w->reserved / w->memory,
                        .flops = w->mfu.flops * rate / ls_world_size(t->w),
                        .mfu = (double)NAN,
                        .dtype = t->c->train.dtype,
                        .exposed = (double)w->since.exposed_ns / (double)w->since.step_ns,
                        .eta_s = eta_s,
                        .samples = w->samples,
                        .global_batch = t->c->train.global_batch,
                        .columns = ls_say_columns() };
    if (w->peak.gflops > 0.0) v.mfu = v.flops / (w->peak.gflops * 1e9);
    w->line.n = 0;
    w->format->line(&v, w->colour, &w->line);
    ls_say("%s", ls_text_str(&w->line));
    ls_experts_load load;
    if (ls_experts_load_of(t->par.model, t->busy_ns, ls_world_size(t->w), &load)) {
        w->line.n = 0;
        ls_experts_words(t->par.model, &load, &w->line);
        ls_say("%s", ls_text_str(&w->line));
    }
    memset(&w->since, 0, sizeof w->since);
}

void ls_watch_eval(ls_trainer *t, const ls_eval *e, double train_loss)
{
    ls_watch *w = &t->watch;
    const ls_log_eval v = { .step = t->step, .loss = e->loss, .perplexity = e->perplexity, .train_loss = train_loss };
    w->line.n = 0;
    w->format->eval(&v, w->colour, &w->line);
    ls_say("%s", ls_text_str(&w->line));
}

void ls_watch_straggler(ls_trainer *t, const ls_straggler_change *c)
{
    static const char *const phases[] = { "compute", "input" };
    static const char *const advice[] = {
        "look for other processes, a CPU limit or a slower processor there",
        "look at the disk that its data are on, or raise data.workers",
    };
    const ls_debug_group world = ls_debug_look(ls_world_group(t->w));
    const double ratio = c->ns / (c->median_ns > 1 ? c->median_ns : 1);
    char node[32] = "", others[48] = "", more[160];
    if (world.nnodes > 1) snprintf(node, sizeof node, " on node %d", world.node[c->rank]);
    if (c->others > 0) snprintf(others, sizeof others, " (%d other rank%s slow, too)", c->others, c->others == 1 ? " is" : "s are");
    ls_bar_clear(&t->bar);
    if (c->over) {
        ls_log(LS_LOG_WARN, "straggler: rank %d%s is slow no longer", c->rank, node);
        snprintf(more, sizeof more, ",\"step\":%lld", (long long)t->step);
        ls_event_line(t->events_fd, t->w->generation, "straggler_over", c->rank, more);
        return;
    }
    ls_log(LS_LOG_WARN, "straggler: rank %d%s takes %.*fx the median rank's %s time (%.3g ms against %.3g ms per step, last %lld "
           "steps), and the other ranks wait for it%s: %s", c->rank, node, ratio < 99 ? 1 : 0, ratio, phases[c->phase], c->ns * 1e-6,
           c->median_ns * 1e-6, (long long)c->steps, others, advice[c->phase]);
    snprintf(more, sizeof more, ",\"step\":%lld,\"phase\":\"%s\",\"ratio\":%.3g,\"ms\":%.6g,\"median_ms\":%.6g", (long long)t->step,
             phases[c->phase], ratio, c->ns * 1e-6, c->median_ns * 1e-6);
    ls_event_line(t->events_fd, t->w->generation, "straggler", c->rank, more);
}

ls_status ls_watch_explain(const ls_train_config *c, int ranks, ls_text *out)
{
    ls_model_config mc;
    ls_source source = { 0 };
    ls_mfu mfu;
    ls_peak peak;
    ls_status st = ls_train_model(c, &source, &mc);
    ls_source_free(&source);
    LS_TRY(st);
    LS_TRY(ls_model_resolve(&mc, &mc));
    LS_TRY(find_peak(ls_train_dtype(c), ls_team_planned(ranks), &peak));
    ls_mfu_count(&mc, ls_model_count(&mc), ls_train_seq_len(c), &mfu);
    ls_mfu_explain(&mfu, ranks, peak.gflops, peak.text, out);
    return ls_text_status(out);
}
