/* cmd_train.c -- lockstep train: a run from a YAML file and flags. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/place.h"
#include "lockstep/launch.h"
#include "meet/job_env.h"
#include "plan/predicted.h"
#include "train/config.h"
#include "train/memory.h"
#include "report/rundir.h"
#include "train/source.h"
#include "train/trainer.h"
#include "train/watch.h"

/* --- stopped before there is anything to keep ----------------------------------------------------- */

#define TOO_EARLY "before the first step; nothing was kept"

/* Until training watches for them (train/trainer.c), which blocks them. */
static void stopped_early(int sig)
{
    static const char by_int[] = "lockstep train: error[interrupted]: stopped by Ctrl-C " TOO_EARLY "\n";
    static const char by_term[] = "lockstep train: error[interrupted]: stopped by SIGTERM " TOO_EARLY "\n";
    ssize_t n = sig == SIGINT ? write(2, by_int, sizeof by_int - 1) : write(2, by_term, sizeof by_term - 1);
    (void)n; /* nobody is left to tell */
    _exit(128 + sig);
}

/* Who ignores them, as a background job of a script does, goes on. */
static void answer_early(void)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        if (signal(sigs[i], stopped_early) == SIG_IGN) signal(sigs[i], SIG_IGN);
}

/* For ranks that could not: they were gone before they watched, or were killed. */
static void answer_for_ranks(const ls_launch_result *r)
{
    if (r->status != LS_INTERRUPTED || !r->unanswered) return;
    const char *what = r->exit_code == 128 + SIGINT ? "stopped by Ctrl-C" : r->message;
    const char *saved = *r->saved ? r->saved : "no checkpoint was saved";
    if (r->killed) ls_fail(LS_INTERRUPTED, "%s: ranks were killed; %s", what, saved);
    else if (!*r->saved) ls_fail(LS_INTERRUPTED, "%s " TOO_EARLY, what);
    else ls_fail(LS_INTERRUPTED, "%s: the ranks did not save; %s", what, saved);
    ls_cli_fail("train", LS_INTERRUPTED);
}

/* Another launcher started these ranks: flags that only a launcher can follow must be given to that one. */
static ls_status check_started(const ls_train_config *c)
{
    if (ls_train_as_threads(c))
        return ls_fail(LS_USAGE, "--ranks-as threads: a launcher has started this rank, and it is a process: leave the flag out, or "
                       "start `lockstep train` without a launcher");
    const char *events = getenv("LOCKSTEP_EVENTS"), *logs = getenv("LOCKSTEP_LOG_DIR");
    LS_TRY(ls_cli_check_started(c));
    if (*c->events && (!events || strcmp(events, c->events) != 0))
        return ls_fail(LS_USAGE, "--events is the launcher's to write: give it to `lockstep run`");
    if (*c->log_dir && (!logs || strcmp(logs, c->log_dir) != 0))
        return ls_fail(LS_USAGE, "--log-dir is the launcher's to fill: give it to `lockstep run`");
    const char *restarts = getenv("TORCHELASTIC_MAX_RESTARTS");
    if (c->max_restarts && (!restarts || strtoll(restarts, NULL, 10) != c->max_restarts))
        return ls_fail(LS_USAGE, "--max-restarts is for the launcher, which starts ranks again: give it to `lockstep run`");
    return LS_OK;
}

/* This program again, once per rank, with the same arguments. */
static int spawn(const ls_train_config *c, int nproc, int argc, char **argv)
{
    const ls_launch_opts o = { .nproc = nproc, .timeout_ns = c->comm.timeout,
                               .log_dir = *c->log_dir ? c->log_dir : NULL,
                               .events = *c->events ? c->events : NULL, .ranks_answer = true,
                               .max_restarts = (int)c->max_restarts };
    ls_launch_result result;
    ls_status st = ls_cli_launch(&o, argc, argv, &result);
    if (st < 0) return ls_cli_fail("train", st);
    if (!c->eval_only) answer_for_ranks(&result);
    return result.exit_code;
}

static int explain(const ls_train_config *c)
{
    ls_text out = { 0 };
    ls_status st = ls_train_config_check(c, ls_train_ranks(c));
    if (st >= 0) st = ls_watch_explain(c, ls_train_ranks(c), &out);
    if (st >= 0) printf("%s", ls_text_str(&out));
    ls_text_free(&out);
    return st < 0 ? ls_cli_fail("train", st) : 0;
}

static int dry_run(const ls_train_config *c)
{
    ls_text out = { 0 };
    ls_status st = ls_train_config_check(c, ls_train_ranks(c));
    if (st >= 0) st = ls_memory_explain(c, ls_train_ranks(c), &out);
    if (st >= 0) printf("%s", ls_text_str(&out));
    ls_text_free(&out);
    return st < 0 ? ls_cli_fail("train", st) : 0;
}

/* --- what is expected before the first step ----------------------------------------------------------------- */

typedef struct expectation { ls_text text, json; } expectation;

/* Ranks on this node. */
static int local_of(int size)
{
    ls_job_env job;
    const bool several = ls_world_launched(&(int){ 0 }, &(int){ 0 }) && ls_job_env_read(&job) == LS_OK;
    return several && job.local_size > 0 ? job.local_size : size;
}

/* Of `size` ranks, into a copy of the configuration, which borrows the texts. */
static ls_status predict(int size, expectation *e, ls_train_config *c)
{
    ls_predicted p;
    ls_status st = ls_predict(c, size, local_of(size), &p);
    if (st == LS_OK) ls_predicted_text(&p, &e->text);
    if (st == LS_OK) ls_predicted_json(&p, &e->json);
    ls_predicted_free(&p);
    if (st == LS_OK) st = ls_text_status(&e->text);
    if (st == LS_OK) st = ls_text_status(&e->json);
    if (st < 0) return ls_while(st, "predicting the run (--predict)");
    c->predicted_text = ls_text_str(&e->text);
    c->predicted_json = ls_text_str(&e->json);
    return LS_OK;
}

static void forget(expectation *e)
{
    ls_text_free(&e->text);
    ls_text_free(&e->json);
}

/* One process of the run: its ranks that are threads, or one rank. Rank 0 predicts before it joins the others,
 * which keep their cores as busy meanwhile. */
static ls_status train_here(const ls_train_config *c, ls_opts *o, int rank, int size, bool threads)
{
    ls_train_config mine = *c;
    ls_train_result result;
    expectation e = { 0 };
    mine.predicted_text = mine.predicted_json = NULL;
    ls_status st = c->predict && rank == 0 ? predict(size, &e, &mine) : LS_OK;
    if (c->predict && rank != 0) ls_predict_beside(c, size, local_of(size));
    if (st == LS_OK) st = threads ? ls_train_threads(&mine, o, size, &result) : ls_train(&mine, o, &result);
    forget(&e);
    return st;
}

static int train_threads(const ls_train_config *c, ls_opts *o, int nproc)
{
    ls_status st = ls_train_threads_check(c);
    if (st == LS_OK) st = ls_trainer_check(c, nproc);
    if (st == LS_OK) st = train_here(c, o, 0, nproc, true);
    return st < 0 ? ls_cli_fail("train", st) : 0;
}

/* Nodes of the job, by the launcher that has started this rank; 0: it does not say, or they are of different sizes. */
static int nodes_here(int size)
{
    ls_job_env job;
    if (ls_job_env_read(&job) < 0) return 0;
    if (!job.several) return 1;
    return job.local_size > 0 && size % job.local_size == 0 ? size / job.local_size : 0;
}

static int train(const ls_train_config *c, ls_opts *o, int argc, char **argv)
{
    const int nproc = ls_train_ranks(c);
    signal(SIGPIPE, SIG_IGN); /* who reads our lines may go: a run's product is its files. Ranks inherit it */
    if (c->dry_run) return dry_run(c);
    ls_status st = LS_OK;
    int rank, size;
    const bool launched = ls_world_launched(&rank, &size);
    if (rank == 0 && !c->eval_only) answer_early(); /* one voice */
    if (!ls_train_as_threads(c)) st = ls_train_check_launcher(c);
    if (st < 0) return ls_cli_fail_alike("train", st, argc, argv);
    if (!launched) {
        /* before any rank starts: one message instead of one a rank */
        if ((st = ls_train_config_check(c, nproc)) < 0) return ls_cli_fail("train", st);
        if ((st = ls_cli_place(o, c, nproc, 1)) < 0) return ls_cli_fail("train", st);
        if (!c->eval_only && !ls_resume_in_place(c) && (st = ls_rundir_check(c->run.dir)) < 0) return ls_cli_fail("train", st);
        if (ls_train_as_threads(c)) return train_threads(c, o, nproc);
        const bool watched = *c->events || *c->log_dir || c->max_restarts; /* by a launcher, a single rank too */
        if (nproc > 1 || watched) {
            if ((st = ls_trainer_check(c, nproc)) < 0) return ls_cli_fail("train", st);
            if ((st = ls_memory_explain(c, nproc, NULL)) < 0) return ls_cli_fail("train", st);
            return spawn(c, nproc, argc, argv);
        }
    }
    if (launched) {
        st = check_started(c);
        if (st == LS_OK) st = ls_train_config_check(c, size);
        if (st == LS_OK) st = ls_source_prepare(c);
        if (st == LS_OK) st = ls_cli_place(o, c, size, nodes_here(size));
        if (st < 0) return ls_cli_fail_alike("train", st, argc, argv);
    }
    st = train_here(c, o, rank, size, false);
    bool told = (st == LS_INTERRUPTED || st == LS_PREEMPTED) && rank != 0;
    /* one voice: the rank that failed first, or rank 0 for a stop on request */
    /* a broken connection is mostly a dead peer's: our launcher knows, and waits for no word of ours */
    told = told || (st == LS_PEER_RESET && getenv("LOCKSTEP_LAUNCHER"));
    if (st == LS_ABORTED || told) return ls_status_exit_code(st);
    return st < 0 ? ls_cli_fail("train", st) : 0;
}

static const ls_help_index sections[] = {
    { "model", "which network, and its sizes" },
    { "data", "what it learns from, and how that is read" },
    { "train", "steps, batches, precision, evaluations and samples" },
    { "moe", "how tokens are routed to experts" },
    { "optim", "the optimizer, its learning rate and schedule" },
    { "parallel", "how ranks divide the work" },
    { "ddp", "gradient buckets and when they travel" },
    { "zero", "what every rank keeps only a part of" },
    { "pipeline", "stages of a pipeline" },
    { "checkpoint", "when the model is saved, and which saves stay" },
    { "log", "log lines and metrics" },
    { "trace", "a timeline of some steps" },
    { "comm", "transport, algorithms, timeouts, encryption" },
    { "run", "name and folder of the run" },
    { "memory", "what it may take" },
    { NULL, NULL },
};

static int run(int argc, char **argv)
{
    if (argc == 3 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return ls_cli_help_section(&ls_cmd_train, argv[2]);
    ls_train_config c;
    ls_opts *o;
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o);
    if (st < 0) return ls_cli_fail("train", st);
    int code = 0;
    if ((st = ls_train_read(o, &c, argc, argv)) < 0) {
        code = ls_cli_fail_alike("train", st, argc, argv);
    } else if (c.help) {
        code = ls_cli_help(&ls_cmd_train);
    } else if (c.print_config && c.json) {
        code = ls_cli_fail("train", ls_fail(LS_USAGE, "--json is about a run, and --print-config starts none: leave one of them out"));
    } else if (c.print_config) {
        char *text = ls_opts_print_config(o);
        printf("%s", text ? text : "");
        free(text);
    } else if ((st = ls_train_check_given(o, &c)) < 0) {
        code = ls_cli_fail_alike("train", st, argc, argv);
    } else if (strcmp(c.explain, "none") != 0) {
        code = explain(&c);
    } else {
        code = train(&c, o, argc, argv);
    }
    ls_opts_destroy(o);
    return code;
}

const ls_cmd ls_cmd_train = {
    .name = "train",
    .summary = "train a model as a YAML file says, on one rank or many",
    .usage = "lockstep train CONFIG.yaml|RECIPE [--section.key value]...",
    .example = "lockstep train recipes/fashion-mnist.yaml --nproc-per-node 2 --train.epochs 3",
    .sections = sections,
    .opts = ls_train_opts,
    .nopts = &ls_train_nopts,
    .readers = ls_train_readers,
    .run = run,
};
