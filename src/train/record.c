/* record.c -- what rank 0 keeps of a run beside checkpoints: its folder, metrics, traces. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "net/world.h"
#include "report/rundir.h"
#include "train/experts.h"
#include "train/memory_units.h"
#include "group/debug.h"
#include "train/trainer.h"

#define METRICS_BYTES 65536 /* buffered between writes */
#define METRICS_LINE 4096   /* more than a line has */

/* The configuration as it is carried out: running it again gives the same run, in a folder of its own. */
static ls_status write_config(ls_trainer *t, ls_opts *opts)
{
    char path[320], size[16];
    snprintf(size, sizeof size, "%d", t->par.mesh.size[LS_AXIS_DP]);
    LS_TRY(ls_opts_set(opts, "parallel.dp", size, "flag"));
    LS_TRY(ls_opts_set(opts, "run.dir", "", "flag")); /* t->run_dir from here on */
    t->config = ls_opts_yaml(opts);
    if (!t->config) return ls_fail(LS_NO_MEMORY, "the resolved configuration");
    snprintf(path, sizeof path, "%s/config.yaml", t->run_dir);
    return ls_file_write(path, t->config, strlen(t->config));
}

static ls_status write_prediction(const ls_trainer *t)
{
    char path[320];
    if (!t->c->predict || !t->c->predicted_json) return LS_OK;
    snprintf(path, sizeof path, "%s/predicted.json", t->run_dir);
    return ls_file_write(path, t->c->predicted_json, strlen(t->c->predicted_json));
}

/* What only describes the run must not end it. */
static void go_on_without(const char *why) { ls_log(LS_LOG_WARN, "%s; training goes on without it", why); }

static void forget(const ls_trainer *t, const char *name)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", t->run_dir, name);
    ls_env_get()->unlink(path);
}

/* A run that goes on in its folder: metrics of steps that are taken again go, and the checkpoints in it are this run's.
 * */
static ls_status go_on_in_place(ls_trainer *t)
{
    char path[400];
    ls_resume_folder(t->c, &t->again, path, sizeof path);
    LS_TRY(ls_rundir_continue(path, t->run_dir, sizeof t->run_dir));
    forget(t, "failure.json"); /* how an earlier part of the run ended, and what it expected */
    forget(t, "predicted.json");
    snprintf(path, sizeof path, "%s/metrics.jsonl", t->run_dir);
    LS_TRY(ls_rundir_cut_metrics(path, t->begun));
    LS_TRY(ls_sample_log_cut(t));
    return ls_train_adopt(t);
}

static ls_status open_folder(ls_trainer *t, ls_opts *opts)
{
    const ls_env *env = ls_env_get();
    char path[320];
    ls_train_task(t, LS_TASK_WRITING, *t->c->run.dir ? t->c->run.dir : "the run folder");
    if (ls_resume_in_place(t->c) || *t->again.run_dir) LS_TRY(go_on_in_place(t));
    else LS_TRY(ls_rundir_create(t->c->run.dir, t->c->run.name, t->run_dir, sizeof t->run_dir));
    ls_run_dir_write(&t->w->page->run_dir, t->run_dir);
    LS_TRY(write_config(t, opts));
    LS_TRY(write_prediction(t));
    LS_TRY(ls_sample_log_folder(t));
    /* Now, and not when hours of work are to be saved. */
    const char *dir = t->c->checkpoint.dir;
    ls_status st = *dir ? ls_mkdirs(dir) : LS_OK;
    if (st < 0) return ls_while(st, "preparing checkpoint.dir %s", dir);
    snprintf(path, sizeof path, "%s/metrics.jsonl", t->run_dir);
    t->metrics_fd = env->append(path);
    if (t->metrics_fd < 0) return ls_fail(LS_IO, "creating %s: %s", path, strerror(-t->metrics_fd));
    ls_text_reserve(&t->metrics, METRICS_BYTES + METRICS_LINE);
    LS_TRY(ls_text_status(&t->metrics));
    const char *events = env->getenv("LOCKSTEP_EVENTS");
    if (events) t->events_fd = env->append(events);
    snprintf(path, sizeof path, "%s/tb", t->run_dir);
    if (t->c->log.tensorboard && ls_tensorboard_open(path, &t->events) < 0) go_on_without(ls_last_error());
    ls_status opened = ls_watch_open(t);
    const int64_t durable = t->nsaved > 0 ? t->saved[t->nsaved - 1] : t->from_memory ? 0 : t->begun;
    ls_saved_write(&t->w->page->saved, durable ? t->checkpoint : NULL, durable);
    ls_train_task(t, LS_TASK_NONE, NULL);
    return opened;
}

ls_status ls_record_open(ls_trainer *t, ls_opts *opts)
{
    if (t->par.mesh.speaks) LS_TRY(open_folder(t, opts));
    LS_TRY(ls_broadcast(ls_world_group(t->w), t->run_dir, sizeof t->run_dir, LS_U8, 0));
    return ls_sample_log_open(t);
}

ls_status ls_record_memory(ls_trainer *t)
{
    const ls_ledger *l = ls_world_ledger(t->w);
    ls_text x = { 0 };
    char path[320];
    size_t all = 0;
    const ls_memory_units held = { l->row, l->nrows };
    if (!t->par.mesh.speaks) return LS_OK;
    for (int k = 0; k < LS_MEM_KINDS; k++) {
        ls_text_add(&x, "%s\"%s\": {\"planned\": %zu, \"peak\": %zu, \"units\": ", k ? ", " : "{",
                    ls_mem_kind_name((ls_mem_kind)k), t->plan.bytes[k], l->peak[k]);
        ls_memory_units_json(&t->planned, t->plan.bytes[k], &held, l->peak[k], (ls_mem_kind)k, &x);
        ls_text_add(&x, "}");
        all += l->peak[k];
    }
    ls_text_add(&x, ", \"total\": {\"planned\": %zu, \"peak\": %zu}}\n", t->plan.total, all);
    snprintf(path, sizeof path, "%s/memory.json", t->run_dir);
    ls_status st = ls_text_status(&x);
    ls_train_task(t, LS_TASK_WRITING, path);
    if (st == LS_OK) st = ls_file_write(path, x.p, x.n);
    ls_train_task(t, LS_TASK_NONE, NULL);
    ls_text_free(&x);
    return st;
}

/* --- metrics ------------------------------------------------------------------------- */

static void write_metrics(ls_trainer *t)
{
    const ls_env *env = ls_env_get();
    size_t at = 0;
    while (t->metrics_fd >= 0 && at < t->metrics.n) {
        ssize_t k = env->write(t->metrics_fd, t->metrics.p + at, t->metrics.n - at);
        if (k <= 0) {
            char why[400];
            snprintf(why, sizeof why, "%s/metrics.jsonl cannot be written: %s", t->run_dir, strerror((int)-k));
            go_on_without(why);
            env->close_fd(t->metrics_fd);
            t->metrics_fd = -1;
            break;
        }
        at += (size_t)k;
    }
    t->metrics.n = 0;
}

ls_status ls_record_flush(ls_trainer *t)
{
    char path[320];
    LS_TRY(ls_text_status(&t->metrics));
    if (!t->par.mesh.speaks) return LS_OK;
    snprintf(path, sizeof path, "%s/metrics.jsonl", t->run_dir);
    ls_train_task(t, LS_TASK_WRITING, path); /* a disk may take its time */
    write_metrics(t);
    if (t->events && ls_tensorboard_flush(t->events) < 0) {
        go_on_without(ls_last_error());
        ls_tensorboard_close(t->events);
        t->events = NULL;
    }
    ls_train_task(t, LS_TASK_NONE, NULL);
    return LS_OK;
}

static size_t peak_bytes(ls_trainer *t)
{
    const ls_ledger *l = ls_world_ledger(t->w);
    size_t sum = 0;
    for (int k = 0; k < LS_MEM_KINDS; k++) sum += l->peak[k];
    return sum;
}

/* JSON has no word for what is not finite: null, and a list of the keys. */
static void add_line(ls_text *x, int64_t step, const ls_scalar *m, size_t n)
{
    bool any = false;
    ls_text_add(x, "{\"step\": %lld", (long long)step);
    for (size_t i = 0; i < n; i++) {
        ls_text_add(x, ", \"%s\": ", m[i].name);
        ls_json_number(x, m[i].value);
    }
    for (size_t i = 0; i < n; i++) {
        if (isfinite(m[i].value)) continue;
        ls_text_add(x, "%s\"%s\"", any ? ", " : ", \"nonfinite\": [", m[i].name);
        any = true;
    }
    if (any) ls_text_add(x, "]");
}

ls_status ls_record_step(ls_trainer *t, const ls_step_stats *s, const ls_eval *eval, bool line)
{
    if (!t->par.mesh.speaks) return LS_OK;
    const double seconds = (double)s->step_ns * 1e-9, flops = ls_watch_flops(t, s), peak = t->watch.peak.gflops * 1e9;
    ls_experts_load load;
    const bool routes = ls_experts_load_of(t->par.model, t->busy_ns, ls_world_size(t->w), &load);
    uint64_t hidden = s->comm.busy_ns > s->comm.exposed_ns ? s->comm.busy_ns - s->comm.exposed_ns : 0;
    const ls_scalar every[] = { /* without a name: not in this line */
        { "epoch", (double)t->epoch },
        { "world_size", (double)ls_world_size(t->w) },
        { "wall_time", (double)ls_env_get()->wall_ns() * 1e-9 },
        { t->feed.tokens ? "n_tokens_seen" : "n_samples_seen", (double)t->watch.units },
        { "loss_metrics/global_avg_loss", s->loss },
        { "loss_metrics/global_max_loss", s->max_loss },
        { "grad_norm", s->grad_norm },
        { "lr", s->lr },
        { t->scales ? "loss_scale" : NULL, s->loss_scale },
        { t->scales ? "skipped_steps" : NULL, (double)t->skipped },
        { "throughput(tps)", (double)(s->tokens ? s->tokens : s->samples) / ls_world_size(t->w) / seconds },
        { "tflops", flops * 1e-12 },
        { peak > 0.0 ? "mfu(%)" : NULL, 100.0 * flops / peak },
        { "time_metrics/end_to_end(s)", seconds },
        { "time_metrics/data_loading(s)", (double)s->data_ns * 1e-9 },
        { "memory/max_active(GiB)", (double)peak_bytes(t) / (1 << 30) },
        { "memory/max_reserved(GiB)", t->watch.reserved / (1 << 30) },
        { "comm/exposed(s)", (double)s->comm.exposed_ns * 1e-9 },
        { "comm/hidden(s)", (double)hidden * 1e-9 },
        { "comm/bytes", (double)s->comm.bytes },
        { routes ? "moe/max_load" : NULL, load.most },
        { routes ? "moe/dropped_share" : NULL, load.dropped },
        { routes ? "moe/aux_loss" : NULL, load.aux },
        { routes ? "moe/z_loss" : NULL, load.z },
        { routes && load.mean > 0 ? "moe/max_busy" : NULL, load.busy / load.mean },
        { eval->done ? "eval/loss" : NULL, eval->loss },
        { !eval->done      ? NULL
          : t->feed.tokens ? "eval/perplexity"
                           : "eval/accuracy",
          t->feed.tokens ? eval->perplexity : eval->accuracy },
    };
    ls_scalar m[sizeof every / sizeof *every];
    size_t n = 0;
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (every[i].name) m[n++] = every[i];
    add_line(&t->metrics, t->step, m, n);
    ls_experts_json(t->par.model, t->busy_ns, ls_world_size(t->w), &t->metrics);
    ls_text_add(&t->metrics, "}\n");
    if (t->events && (line || eval->done)) ls_tensorboard_add(t->events, t->step, m, n);
    return t->metrics.n >= METRICS_BYTES ? ls_record_flush(t) : LS_OK;
}

/* --- traces ------------------------------------------------------------------------------ */

/* Multiples of `every` (0: none) in [first, last). */
static uint64_t times(int64_t every, int64_t first, int64_t last)
{
    return every > 0 ? (uint64_t)((last - 1) / every - (first - 1) / every) : 0;
}

/* An evaluation's batches are forwards, which take no more than a micro-batch; and parameters that are split may have
 * to be whole for it, for a checkpoint, for samples. */
static uint64_t between_steps(const ls_trainer *t, const ls_train_events *step, uint64_t whole, bool meet)
{
    const ls_train_config *c = t->c;
    const int64_t first = t->trace_first, last = t->trace_last;
    const int64_t every = c->train.eval_every ? c->train.eval_every : t->feed.steps_per_epoch;
    const size_t share = t->feed.test_samples / (size_t)t->feed.size + 1;
    const size_t batches = t->feed.test_rows ? share / t->feed.test_rows + 1 : 0;
    const uint64_t meets = meet ? batches : 0; /* forwards that have collectives */
    const int64_t saves = c->checkpoint.every < 0 ? 1 : c->checkpoint.every; /* of a time: at worst after each step */
    const uint64_t eval = step->ops * batches + (2 + meets) * (step->colls + step->marks) + whole;
    return times(every, first, last) * eval + (times(saves, first, last) +
           times(c->train.sample_every, first, last)) * whole + 2 * times(saves, first, last);
}

/* *step: of the one that has most of the first three, which the later ones are like. */
static ls_status count_events(const ls_train_config *c, ls_train_dry *d, int64_t rows, ls_train_events *step,
                              uint64_t *whole)
{
    *step = (ls_train_events){ 0 };
    for (int i = 0; i < 3; i++) {
        ls_train_events e;
        LS_TRY(ls_train_dry_count(c, d, rows, &e));
        if (ls_train_events_most(&e) > ls_train_events_most(step)) *step = e;
    }
    const uint64_t before = ls_tracer_count(ls_world_tracer(d->w), LS_EV_COLL);
    LS_TRY(ls_train_dry_end(d));
    *whole = 2 * (ls_tracer_count(ls_world_tracer(d->w), LS_EV_COLL) - before);
    return LS_OK;
}

ls_status ls_record_make_room(ls_trainer *t)
{
    const ls_world_opts o = ls_train_dry_opts(t->c);
    const int *node = ls_debug_look(ls_world_group(t->w)).node;
    const uint64_t steps = (uint64_t)t->trace_last - t->trace_first + 1;
    ls_train_events step = { 0 };
    uint64_t whole = 0;
    ls_train_dry d;
    ls_status st = ls_train_dry_open(&t->fit.c, &t->mc, ls_world_rank(t->w), ls_world_size(t->w), node, &o, &d);
    if (st == LS_OK) st = count_events(&t->fit.c, &d, (int64_t)t->feed.micro, &step, &whole);
    const bool meet = st == LS_OK && ls_parallel_forwards_meet(&d.par);
    ls_train_dry_close(&d);
    if (st < 0) return ls_while(st, "counting the events of a step");

    const uint64_t each = ls_train_events_most(&step);
    /* A full ring does not show its oldest event. */
    const uint64_t n = steps * each + between_steps(t, &step, whole, meet) + 5; /* replicas are compared at the end */
    if (n > LS_BLACKBOX_MOST && ls_world_rank(t->w) == 0)
        ls_log(LS_LOG_WARN, "trace.steps %u:%u needs up to %llu events per rank, but at most %d are kept: trace about "
               "%llu steps", t->trace_first, t->trace_last, (unsigned long long)n, LS_BLACKBOX_MOST,
               (unsigned long long)((LS_BLACKBOX_MOST - 1) / each));
    return ls_world_trace_capacity(t->w, n);
}

ls_status ls_record_trace(ls_trainer *t)
{
    LS_TRY(ls_barrier(ls_world_group(t->w))); /* no rank writes events while rank 0 reads them */
    ls_status st = LS_OK;
    if (t->par.mesh.speaks) {
        char path[320];
        snprintf(path, sizeof path, "%s/trace", t->run_dir);
        ls_train_task(t, LS_TASK_WRITING, path);
        st = ls_mkdirs(path);
        snprintf(path, sizeof path, "%s/trace/trace.json", t->run_dir);
        if (st == LS_OK) st = ls_world_trace_export(t->w, t->trace_first, t->trace_last, path);
        if (st == LS_OK) ls_say("trace of steps %u to %u: %s", t->trace_first, t->trace_last, path);
        ls_train_task(t, LS_TASK_NONE, NULL);
    }
    return st < 0 ? st : ls_barrier(ls_world_group(t->w));
}
