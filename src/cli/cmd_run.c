/* cmd_run.c -- lockstep run: starts the ranks of a program, with torchrun's flags. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "cli/cli.h"
#include "launch/lint.h"
#include "lockstep/launch.h"
#include "meet/address.h"

#define DEFAULT_PORT 29500 /* torchrun's */

typedef struct run_config {
    bool lint, json;
    bool help, standalone, no_python, module, run_path, bind, virtual_local_rank;
    const char *nnodes, *nproc, *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf, *log_dir, *redirects, *tee;
    const char *secret_file, *listen, *local_addr;
    const char *filter, *line_prefix, *copy_stdout, *copy_stderr, *role, *aslr, *numa, *signals, *events, *master_addr;
    const char *start_method, *event_log_handler, *logs_specs, *print_completion;
    int64_t node_rank, master_port, max_restarts, prefix_rank;
    double monitor_interval;
    uint64_t timeout, node_timeout, shutdown_timeout;
} run_config;

#define AT(field) offsetof(run_config, field)

static const ls_opt table[] = {
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "print this text", 'h', NULL },
    { "nproc-per-node", LS_OPT_STRING, AT(nproc), "1", NULL,
      "ranks on this machine: a number, or auto or cpu: one per usable core; MIN:MAX: begin with MAX, and with --max-restarts go on "
      "with one fewer after a failure, and with MAX again after the next checkpoint", 'n', NULL },
    { "nnodes", LS_OPT_STRING, AT(nnodes), "1:1", NULL,
      "machines: N, or MIN:MAX: begin and go on with those that are there, node 0 among them; on each, run the same command "
      "with its own --node-rank", 0,
      NULL },
    { "node-rank", LS_OPT_INT, AT(node_rank), "0", "0..63", "which of them this is", 0, NULL },
    { "master-addr", LS_OPT_STRING, AT(master_addr), "127.0.0.1", NULL,
      "of several machines, node 0's address or name; the ranks of one machine meet on 127.0.0.1", 0, NULL },
    { "master-port", LS_OPT_INT, AT(master_port), "0", "0..65535",
      "of several machines, the port where they meet (0: 29500); of one, MASTER_PORT of the ranks (0: a free one)", 0,
      NULL },
    { "secret-file", LS_OPT_STRING, AT(secret_file), "", NULL,
      "of several machines, the secret that lets them in, the same file on each: `lockstep secret new FILE` makes one", 0,
      NULL },
    { "listen", LS_OPT_STRING, AT(listen), "", NULL,
      "address of this machine to listen on, 0.0.0.0 for all; default: the one that the others reach it by", 0, NULL },
    { "local-addr", LS_OPT_STRING, AT(local_addr), "", NULL,
      "of several machines, the address or name that the others reach this one by; default: found out", 0, NULL },
    { "standalone", LS_OPT_BOOL, AT(standalone), "false", NULL, "one machine and a free port, which is the default", 0,
      NULL },
    { "rdzv-backend", LS_OPT_CHOICE, AT(rdzv_backend), "static", "static|c10d", "either: the rendezvous is our own, with static node ranks", 0,
      NULL },
    { "rdzv-endpoint", LS_OPT_STRING, AT(rdzv_endpoint), "", NULL, "HOST:PORT, the same as --master-addr and --master-port", 0, NULL },
    { "rdzv-id", LS_OPT_STRING, AT(rdzv_id), "none", NULL, "name of the run: TORCHELASTIC_RUN_ID and log folder", 0,
      NULL },
    { "rdzv-conf", LS_OPT_STRING, AT(rdzv_conf), "", NULL,
      "join_timeout=SECONDS for all machines to come; of MIN:MAX, last_call_timeout=SECONDS for more than MIN", 0, NULL },
    { "max-restarts", LS_OPT_INT, AT(max_restarts), "0", "0..1000000",
      "start a job that failed again, so often: as a new generation, a training from its newest checkpoint", 0, NULL },
    { "monitor-interval", LS_OPT_DOUBLE, AT(monitor_interval), "0.1", ">0", "seconds between two polls of the ranks (no effect)", 0,
      NULL },
    { "start-method", LS_OPT_CHOICE, AT(start_method), "spawn", "spawn|fork|forkserver", "of Python's multiprocessing (no effect)", 0,
      NULL },
    { "event-log-handler", LS_OPT_STRING, AT(event_log_handler), "null", NULL, "see --events (no effect)", 0, NULL },
    { "logs-specs", LS_OPT_STRING, AT(logs_specs), "", NULL, "Python class that says where logs go (not implemented)", 0, NULL },
    { "log-dir", LS_OPT_STRING, AT(log_dir), "", NULL, "folder for log files and failure.json", 0, NULL },
    { "redirects", LS_OPT_STRING, AT(redirects), "0", NULL,
      "streams to files alone: 0 to 3 (1 stdout, 2 stderr), or RANK:N,RANK:N", 'r', NULL },
    { "tee", LS_OPT_STRING, AT(tee), "0", NULL, "streams to files and, after [ROLERANK]:, here", 't', NULL },
    { "log-line-prefix-template", LS_OPT_STRING, AT(line_prefix), "", NULL,
      "before teed lines, instead of [${role_name}${local_rank}]:, with these two, ${rank} and ${hostname}", 0, NULL },
    { "duplicate-stdout-filters", LS_OPT_STRING, AT(copy_stdout), "", NULL,
      "WORD,WORD: teed lines of stdout with one of them also go to filtered_stdout.log (,, is a comma)", 0, NULL },
    { "duplicate-stderr-filters", LS_OPT_STRING, AT(copy_stderr), "", NULL,
      "the same of stderr, to filtered_stderr.log", 0, NULL },
    { "local-ranks-filter", LS_OPT_STRING, AT(filter), "", NULL, "show the output of these ranks only: 0,2", 0, NULL },
    { "role", LS_OPT_STRING, AT(role), "default", NULL, "name of the ranks in ROLE_NAME and before teed lines", 0,
      NULL },
    { "bind", LS_OPT_BOOL, AT(bind), "true", NULL, "bind each rank to cores of its own, or with more ranks than cores, rank r to core r modulo cores (if each "
      "core then has equally many ranks)", 0, NULL },
    { "aslr", LS_OPT_CHOICE, AT(aslr), "auto", "auto|always",
      "auto: ranks that share the cores of one machine start without address randomisation (ASLR), which is faster; always: "
      "all ranks keep it", 0, NULL },
    { "numa-binding", LS_OPT_CHOICE, AT(numa), "none", "none|node|socket|exclusive|core-complex",
      "binds ranks near their GPUs; see --bind (no effect)", 0, NULL },
    { "signals-to-handle", LS_OPT_STRING, AT(signals), "SIGTERM,SIGINT,SIGHUP,SIGQUIT", NULL,
      "signals that stop the job in order; also SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU", 0, NULL },
    { "shutdown-timeout", LS_OPT_TIME, AT(shutdown_timeout), NULL, "0..24h",
      "time for ranks to end in, after a signal or a failure, before SIGKILL; default: 0.3 s after a failure; after a signal "
      "as long as something moves", 0, NULL },
    { "virtual-local-rank", LS_OPT_BOOL, AT(virtual_local_rank), "false", NULL,
      "LOCAL_RANK is 0 for every rank, and each sees one GPU, by CUDA_VISIBLE_DEVICES", 0, NULL },
    { "module", LS_OPT_BOOL, AT(module), "false", NULL, "PROGRAM is a Python module: python3 -u -m PROGRAM", 'm', NULL },
    { "no-python", LS_OPT_BOOL, AT(no_python), "false", NULL, "PROGRAM is run as it is, even if its name ends in .py", 0, NULL },
    { "run-path", LS_OPT_BOOL, AT(run_path), "false", NULL, "PROGRAM is a Python script, whatever its name: python3 -u PROGRAM", 0,
      NULL },
    { "print-completion", LS_OPT_STRING, AT(print_completion), "", NULL, "print the completion script of bash, zsh or fish, and stop",
      0, NULL },
    { "prefix-rank", LS_OPT_INT, AT(prefix_rank), "-1", "-1..63", "R \"gdb --args\": put this command before rank R", 0,
      NULL },
    { "events", LS_OPT_STRING, AT(events), "", NULL, "append what happens as JSON lines to this file", 0, NULL },
    { "lint", LS_OPT_BOOL, AT(lint), "false", NULL,
      "watch which calls of this library the ranks make, and print what the program still does as if it were alone: no group, "
      "wrapper, sampler or set_epoch, a model that all ranks save, gradients that it sums itself; exit status 1 if anything is found", 0,
      NULL },
    { "json", LS_OPT_BOOL, AT(json), "false", NULL, "--lint: print one JSON object, the last line of stdout", 0, NULL },
    { "timeout", LS_OPT_TIME, AT(timeout), "30s", "1ms..24h", "a rank that was stopped is reported as hung after this", 0,
      NULL },
    { "node-timeout", LS_OPT_TIME, AT(node_timeout), "5s", "500ms..24h",
      "of several machines, one of which nothing is heard for so long is gone; one that closes its connection is at once",
      0, NULL },
};
#define NTABLE (sizeof table / sizeof *table)

/* torchrun takes the default of --nproc-per-node from PET_NPROC_PER_NODE, and so on; two have another name, too. */
static ls_status read_environment(ls_opts *o)
{
    static const char *const also[][2] = { { "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout" },
                                           { "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log-line-prefix-template" } };
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        const char *value = getenv(also[i][0]);
        if (value && ls_opts_set(o, also[i][1], value, "environment") < 0)
            return ls_while(LS_USAGE, "reading %s of the environment", also[i][0]);
    }
    for (size_t i = 1; i < NTABLE; i++) {
        char name[64] = "PET_";
        size_t n = strlen(name);
        for (const char *p = table[i].name; *p && n + 1 < sizeof name; p++)
            name[n++] = (char)(*p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
        name[n] = 0;
        const char *value = getenv(name);
        if (!value) continue;
        ls_status st = ls_opts_set(o, table[i].name, value, "environment");
        if (st < 0) return ls_while(LS_USAGE, "reading %s of the environment", name);
    }
    return LS_OK;
}

static bool is_prefix_rank(const char *arg)
{
    size_t n = strcspn(arg, "=");
    return n == 13 && (strncmp(arg, "--prefix-rank", n) == 0 || strncmp(arg, "--prefix_rank", n) == 0);
}

/* Flags up to the program; *rest is its index. --prefix-rank takes two words, where ls_opts knows one:
 * it stops at the second, and we go on behind it. */
static ls_status read_flags(ls_opts *o, int argc, char **argv, const char **prefix, int *rest)
{
    int at = 0;
    for (;;) {
        int n;
        LS_TRY(ls_opts_parse(o, argc - at, argv + at, true, &n));
        at += n;
        bool two = at < argc && at >= 2 && strcmp(argv[at - 1], "--") != 0 &&
                   (is_prefix_rank(argv[at - 2]) ? !strchr(argv[at - 2], '=') : is_prefix_rank(argv[at - 1]));
        if (*prefix || !two) break;
        *prefix = argv[at]; /* stands where ls_opts_parse expects the command's name */
    }
    *rest = at;
    return LS_OK;
}

static ls_status count_given(const char *text, size_t n, const char *all, int *out)
{
    char *end;
    const long ranks = strtol(text, &end, 10);
    if (end == text || end != text + n || ranks < 1 || ranks > LS_HOST_MOST_RANKS)
        return ls_fail(LS_USAGE, "--nproc-per-node is '%.40s': expected 1 to %d, MIN:MAX, auto or cpu", all, LS_HOST_MOST_RANKS);
    *out = (int)ranks;
    return LS_OK;
}

/* *least is 0 unless there is a MIN. */
static ls_status count_ranks(const char *text, int *least, int *out)
{
    const char *colon = strchr(text, ':');
    *least = 0;
    if (strcmp(text, "gpu") == 0 || strcmp(text, "xpu") == 0)
        return ls_fail(LS_UNSUPPORTED,
                       "--nproc-per-node %s: this build drives no GPU; give a number, or cpu for one rank per core", text);
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        *out = ls_env_get()->cpus();
        if (*out > LS_HOST_MOST_RANKS) *out = LS_HOST_MOST_RANKS;
        return LS_OK;
    }
    if (!colon) return count_given(text, strlen(text), text, out);
    LS_TRY(count_given(text, (size_t)(colon - text), text, least));
    LS_TRY(count_given(colon + 1, strlen(colon + 1), text, out));
    if (*least <= *out) return LS_OK;
    return ls_fail(LS_USAGE, "--nproc-per-node is '%.40s': MIN is larger than MAX", text);
}

/* join_timeout=60,last_call_timeout=5: what a rendezvous of torchrun's is told. */
static ls_status read_conf(const char *conf, ls_launch_opts *o)
{
    for (const char *p = conf; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const struct { const char *key; uint64_t *ns; } row[] = { { "join_timeout=", &o->join_timeout_ns },
                                                                  { "last_call_timeout=", &o->last_call_ns } };
        const size_t nrows = sizeof row / sizeof *row;
        size_t i = 0;
        while (i < nrows && strncmp(p, row[i].key, strlen(row[i].key)) != 0) i++;
        if (i == nrows)
            return ls_fail(LS_UNSUPPORTED, "--rdzv-conf %.60s: only join_timeout=SECONDS and last_call_timeout=SECONDS are implemented", conf);
        const char *value = p + strlen(row[i].key);
        char *end;
        const double seconds = strtod(value, &end);
        if (end == value || (*end && *end != ',') || !(seconds > 0 && seconds < 1e9))
            return ls_fail(LS_USAGE, "--rdzv-conf %.60s: %.*s is a number of seconds", conf, (int)strlen(row[i].key) - 1, row[i].key);
        *row[i].ns = (uint64_t)(seconds * 1e9);
    }
    if (o->last_call_ns && !o->least_nnodes)
        return ls_fail(LS_USAGE, "--rdzv-conf %.60s: last_call_timeout belongs to --nnodes MIN:MAX: leave it out", conf);
    return LS_OK;
}

/* What this version does not do, and flags of ours that one machine has no use for. */
static ls_status check_given(const ls_opts *o, const run_config *c, int nnodes)
{
    if (strchr(c->nproc, ':') && c->max_restarts == 0)
        return ls_fail(LS_USAGE, "--nproc-per-node %.40s is for a job that is started again after a failure: give --max-restarts K, "
                                 "or one number", c->nproc);
    if (*c->logs_specs)
        return ls_fail(LS_UNSUPPORTED, "--logs-specs %.60s: it names a Python class, and this launcher runs none; leave it out: "
                                       "--log-dir, --redirects and --tee say where logs go", c->logs_specs);
    const char *alone = *c->secret_file && !*c->listen ? "secret-file" : NULL;
    if (!alone && !ls_opts_is_default(o, "node-timeout")) alone = "node-timeout";
    if (nnodes == 1 && alone) return ls_fail(LS_USAGE, "--%s belongs to several machines, and --nnodes is 1: leave it out", alone);
    if (nnodes > 1 && strchr(c->nproc, ':'))
        return ls_fail(LS_USAGE, "--nproc-per-node %.40s is for one machine, and --nnodes is %.40s: give one number", c->nproc, c->nnodes);
    if (c->json && !c->lint) return ls_fail(LS_USAGE, "--json belongs to --lint: leave it out");
    if (c->lint && (nnodes > 1 || c->max_restarts > 0))
        return ls_fail(LS_USAGE, "--lint watches the ranks of one machine, started once: leave out --nnodes and --max-restarts");
    if (c->standalone && nnodes > 1) return ls_fail(LS_USAGE, "--standalone is for one machine, and --nnodes is %d", nnodes);
    if (c->no_python && c->module && !c->run_path)
        return ls_fail(LS_USAGE, "--no-python runs PROGRAM as it is, and --module by Python: leave one of them out");
    return LS_OK;
}

/* Flags of torchrun's that have nothing to do here are taken, and say so, once. */
static void name_ineffective(const ls_opts *o, const run_config *c, const ls_launch_opts *l)
{
    static const struct { const char *flag, *why; } row[] = {
        { "monitor-interval", "the launcher sees a rank's end at once" },
        { "start-method", "each rank is a program of its own, and none of Python's processes" },
        { "event-log-handler", "it names a Python class; --events FILE writes events as JSON" },
        { "numa-binding", "it binds ranks near their GPUs, and this build drives none; --bind gives each rank its own cores" },
    };
    static const char why[] = "has no effect with --nnodes 1: the ranks of one machine meet on 127.0.0.1";
    const char *addr = l->master_addr;
    const bool loopback = strcmp(addr, "localhost") == 0 || strcmp(addr, "127.0.0.1") == 0 || strcmp(addr, "::1") == 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (ls_opts_is_set(o, row[i].flag)) ls_log(LS_LOG_WARN, "lockstep run: --%s has no effect: %s", row[i].flag, row[i].why);
    if (l->nnodes == 1 && !loopback)
        ls_log(LS_LOG_WARN, "lockstep run: %s %s", *c->rdzv_endpoint ? "the host name of --rdzv-endpoint" : "--master-addr", why);
    if (l->nnodes == 1 && *c->local_addr) ls_log(LS_LOG_WARN, "lockstep run: --local-addr %s", why);
}

/* Whether the program is a Python script by its name, and a file. A name that only PATH has is a program. */
static bool is_script(const char *program)
{
    ls_file_info info;
    const size_t n = strlen(program);
    const bool named = n > 3 && strcmp(program + n - 3, ".py") == 0;
    if (!named || ls_env_get()->info(program, &info) < 0) return false;
    return info.type == LS_FILE_REGULAR || info.type == LS_FILE_OTHER; /* or a link to one */
}

/* torchrun's choice: PYTHON_EXEC, or the Python at hand. NULL: the program is run as it is. */
static const char *interpreter(const run_config *c, const char *program)
{
    const char *named = getenv("PYTHON_EXEC");
    const bool wanted = c->run_path || c->module || (!c->no_python && is_script(program));
    return !wanted ? NULL : named && *named ? named : "python3";
}

static ls_status check_machines(const run_config *c, ls_launch_opts *o, char host[256])
{
    char *end;
    long least = strtol(c->nnodes, &end, 10), most = *end == ':' ? strtol(end + 1, &end, 10) : least;
    if (end == c->nnodes || *end || least < 1 || most < least)
        return ls_fail(LS_USAGE, "--nnodes is '%.40s': expected N or MIN:MAX", c->nnodes);
    if (most > LS_WORLD_MOST_RANKS) return ls_fail(LS_USAGE, "--nnodes %ld: at most %d", most, LS_WORLD_MOST_RANKS);
    if (c->node_rank >= most)
        return ls_fail(LS_USAGE, "--node-rank %lld of --nnodes %ld: expected 0 to %ld", (long long)c->node_rank, most,
                       most - 1);
    o->nnodes = (int)most;
    o->least_nnodes = most > least ? (int)least : 0;
    o->node_rank = (int)c->node_rank;
    o->port = (int)c->master_port;
    snprintf(host, 256, "%s", c->master_addr);
    if (*c->rdzv_endpoint) LS_TRY(ls_address_parse(c->rdzv_endpoint, host, 256, &o->port));
    if (most > 1 && o->port == 0) o->port = DEFAULT_PORT;
    o->master_addr = host;
    return read_conf(c->rdzv_conf, o);
}

/* "0" and "" mean that nobody asked. */
static const char *given(const char *text) { return text && *text ? text : NULL; }

/* A name for what ranks note; the first note makes the file. */
static void name_notes(char *path, size_t n)
{
    const ls_env *env = ls_env_get();
    const char *dir = env->getenv("TMPDIR");
    uint64_t word;
    env->random(&word, sizeof word);
    snprintf(path, n, "%s/lockstep-lint-%016llx", dir && *dir ? dir : "/tmp", (unsigned long long)word);
}

/* What the notes say; the exit status of the job, or 1 where it has none and something is found. */
static int judge(const run_config *c, const char *path, int size, int exit_code)
{
    ls_text out = { 0 };
    int findings = 0;
    const ls_status st = ls_lint_judge(path, size, exit_code, c->json, &out, &findings);
    (void)ls_env_get()->unlink(path);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    ls_text_free(&out);
    if (st < 0) return ls_cli_fail("run", st);
    return exit_code ? exit_code : findings > 0;
}

static int launch(const ls_opts *opts, const run_config *c, const char *prefix, char **program, int nprogram)
{
    int nproc = 1, least = 0;
    char host[256];
    ls_launch_opts o = { 0 };
    ls_status st = check_machines(c, &o, host);
    if (st == LS_OK) st = check_given(opts, c, o.nnodes);
    if (st == LS_OK) st = count_ranks(c->nproc, &least, &nproc);
    if (st == LS_OK && nprogram == 0)
        st = ls_fail(LS_USAGE, "which program? lockstep run -n 2 PROGRAM ARGS...");
    if (st == LS_OK && c->prefix_rank >= 0 && !prefix)
        st = ls_fail(LS_USAGE, "--prefix-rank needs a rank and a command: --prefix-rank 1 \"gdb --args\"");
    if (st < 0) return ls_cli_fail("run", st);

    const char **argv = calloc((size_t)nprogram + 2, sizeof *argv);
    if (!argv) return ls_cli_fail("run", ls_fail(LS_NO_MEMORY, "the ranks' command"));
    int n = 0;
    name_ineffective(opts, c, &o);
    o.python = interpreter(c, program[0]);
    if (c->module && !c->run_path) argv[n++] = "-m"; /* of the two, torchrun takes the path */
    for (int i = 0; i < nprogram; i++) argv[n++] = program[i];

    o.argv = argv;
    o.nproc = nproc;
    o.least_nproc = least;
    o.max_restarts = (int)c->max_restarts;
    o.secret_file = given(c->secret_file);
    o.listen = given(c->listen);
    o.local_addr = given(c->local_addr);
    o.log_dir = given(c->log_dir);
    o.run_id = c->rdzv_id;
    o.role = c->role;
    o.redirects = c->redirects;
    o.tee = c->tee;
    o.local_ranks_filter = given(c->filter);
    o.line_prefix = given(c->line_prefix);
    o.copy_stdout = given(c->copy_stdout);
    o.copy_stderr = given(c->copy_stderr);
    o.signals = given(c->signals);
    o.virtual_local_rank = c->virtual_local_rank;
    if (ls_opts_is_set(opts, "shutdown-timeout")) o.shutdown_ns = c->shutdown_timeout ? c->shutdown_timeout : 1;
    o.events = given(c->events);
    o.prefix_rank = (int)c->prefix_rank;
    o.prefix_cmd = c->prefix_rank >= 0 ? prefix : NULL;
    o.timeout_ns = c->timeout;
    o.node_timeout_ns = c->node_timeout;
    o.no_bind = !c->bind;
    o.aslr = strcmp(c->aslr, "always") == 0;
    char notes[512];
    if (c->lint) name_notes(notes, sizeof notes);
    o.lint = c->lint ? notes : NULL;
    ls_launch_result result;
    st = ls_launch(&o, &result);
    free(argv);
    if (st < 0) return ls_cli_fail("run", st);
    return c->lint ? judge(c, notes, nproc, result.exit_code) : result.exit_code;
}

static int print_completion(ls_cmd_list all, const char *shell)
{
    char *words[] = { "completion", (char *)shell, NULL }; /* only read */
    return ls_cli_run(all, ls_cli_find(all, words[0]), 2, words);
}

static int run(ls_cmd_list all, int argc, char **argv)
{
    run_config c;
    ls_opts *o;
    const char *prefix = NULL;
    int rest = argc;
    ls_status st = ls_opts_create(table, NTABLE, &c, &o);
    if (st < 0) return ls_cli_fail("run", st);
    st = read_flags(o, argc, argv, &prefix, &rest);
    if (st == LS_OK) st = read_environment(o);
    int code = st < 0   ? ls_cli_fail("run", st)
               : c.help ? ls_cli_help(&ls_cmd_run)
               : *c.print_completion ? print_completion(all, c.print_completion)
                        : launch(o, &c, prefix, argv + rest, argc - rest);
    ls_opts_destroy(o);
    return code;
}

const ls_cmd ls_cmd_run = {
    .name = "run",
    .summary = "start a program as several ranks, with torchrun's flags and environment",
    .usage = "lockstep run [flags] [--] PROGRAM ARGS...",
    .example = "lockstep run -n 2 ddp.py --epochs 3",
    LS_CMD_OPTS(table),
    .run_with = run,
};
