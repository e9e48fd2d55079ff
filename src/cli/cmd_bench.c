/* cmd_bench.c -- lockstep bench: time and check a collective, with nccl-tests' flags and table. */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "group/backend.h"
#include "lockstep/launch.h"
#include "lockstep/lockstep.h"
#include "net/world.h"

#define AT(field) offsetof(ls_bench_opts, field)
static const ls_opt table[] = {
    { "ranks", LS_OPT_INT, AT(ranks), "2", "1..256", "ranks to start, unless a launcher did", 'g', "ngpus" },
    { "minbytes", LS_OPT_BYTES, AT(min_bytes), "8", "0..16TiB", "smallest size", 'b', NULL },
    { "maxbytes", LS_OPT_BYTES, AT(max_bytes), "128M", "0..16TiB", "largest size", 'e', NULL },
    { "stepbytes", LS_OPT_BYTES, AT(step_bytes), "1M", "1..16TiB", "from size to size, where no factor is given", 'i', NULL },
    { "stepfactor", LS_OPT_INT, AT(step_factor), "2", "1..65536", "from size to size", 'f', NULL },
    { "iters", LS_OPT_INT, AT(iters), "20", "1..1000000", "timed operations a row; when not given, quick ones get up to 10,000",
      'n', NULL },
    { "warmup_iters", LS_OPT_INT, AT(warmup), "1", "0..1000000", "operations before them", 'w', NULL },
    { "agg_iters", LS_OPT_INT, AT(agg), "1", "1..32", "operations in flight together, on buffers of their own", 'm', NULL },
    { "run_cycles", LS_OPT_INT, AT(cycles), "1", "1..1000000", "how often to go through all sizes", 'N', NULL },
    { "check", LS_OPT_INT, AT(check), "1", "0..1000000", "operations whose results are checked, element by element; 0: none", 'c', NULL },
    { "op", LS_OPT_CHOICE, AT(op), "sum", "sum|prod|max|min|avg|all", "reduction", 'o', NULL },
    { "datatype", LS_OPT_CHOICE, AT(dtype), "float", "float|double|half|bfloat16|int32|int64|uint8|all", "of the elements", 'd', NULL },
    { "root", LS_OPT_INT, AT(root), "0", "0..63", "rank that has what is sent, or gets what is collected", 'r', NULL },
    { "blocking", LS_OPT_BOOL, AT(blocking), "false", NULL, "a barrier after each operation, timed with it", 'z', NULL },
    { "average", LS_OPT_INT, AT(average), "1", "0..3", "time shown: 0 rank 0's, 1 mean, 2 least, 3 greatest over ranks", 'a', NULL },
    { "per_iter_timing", LS_OPT_BOOL, AT(per_iter), "false", NULL, "time each operation; columns with their spread", 'I', NULL },
    { "per_iter_skip", LS_OPT_INT, AT(skip), "0", "0..1000000", "operations to leave out of that spread", 'K', NULL },
    { "output_file", LS_OPT_STRING, AT(json), NULL, NULL, "the table as JSON, for example x.json", 'J', NULL },
    { "timeout", LS_OPT_TIME, AT(timeout), "30s", "1ms..24h", "silence of a rank that ends the run", 'T', NULL },
    { "report_timestamps", LS_OPT_BOOL, AT(timestamps), "false", NULL, "when each row was measured", 'S', NULL },
    { "unalign", LS_OPT_INT, AT(unalign), "0", "0..1024", "elements by which buffers miss their alignment", 'u', NULL },
    { "transport", LS_OPT_STRING, AT(transport), "shm", ls_transport_choices, "how messages travel, or fault:<one of them>[,<fault>...]", 0, NULL },
    { "backend", LS_OPT_CHOICE, AT(backend), "sched", "sched|mpi", "who carries them out; mpi: the MPI library, under mpirun", 0, NULL },
    { "algo", LS_OPT_STRING, AT(algo), NULL, NULL, "algorithm instead of the one chosen by size; those that serve: lockstep coll --list", 0, NULL },
    { "touch", LS_OPT_BOOL, AT(touch), "false", NULL, "data are rewritten before and read after each operation, untimed", 0, NULL },
    { "private", LS_OPT_BOOL, AT(private_memory), "false", NULL, "buffers that peers cannot reach (malloc), not ls_alloc's", 'M', NULL },
    { "place", LS_OPT_CHOICE, AT(place), "both", "both|in|out", "measure only one placement", 0, NULL },
    { "counts", LS_OPT_CHOICE, AT(counts), "even", "even|uneven", "where ranks have shares: equal, or rank r has r times as much as rank 1", 0, NULL },
    { "trials", LS_OPT_INT, AT(trials), "1", "1..99", "measure each row so often and show the median", 0, NULL },
    { "trial_time", LS_OPT_TIME, AT(trial_time), "0", "0..1h", "as many operations a trial as take so long, instead of --iters", 0, NULL },
    { "ping_pong", LS_OPT_BOOL, AT(ping_pong), "false", NULL, "sendrecv there and back between 2 ranks; the time is half of it", 0, NULL },
    { "wire", LS_OPT_CHOICE, AT(wire), "f32", "f32|bf16", "how float sums of all_reduce and reduce_scatter travel over connections (comm.wire)", 0, NULL },
    { "checksums", LS_OPT_BOOL, AT(checksums), "true", NULL, "of frames, over connections (comm.check)", 0, NULL },
    { "count", LS_OPT_BOOL, AT(count), "false", NULL, "bytes that each rank moved, beside the formula of the algorithm", 0, NULL },
    { "fit", LS_OPT_BOOL, AT(fit), "false", NULL, "latency and bandwidth (alpha, beta) that fit the rows, with residuals", 0, NULL },
    { "csv", LS_OPT_BOOL, AT(csv), "false", NULL, "rows for a program to read, instead of the table", 0, NULL },
    { "json", LS_OPT_BOOL, AT(print_json), "false", NULL, "print one JSON object instead of the table: what -J writes, or what --explain says", 0, NULL },
    { "threads", LS_OPT_BOOL, AT(threads), "false", NULL, "ranks are threads of one process", 0, NULL },
    { "explain", LS_OPT_BOOL, AT(explain), "false", NULL,
      "measure nothing; print which algorithm or form would run, the alternatives, and modelled times", 0, NULL },
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "this text", 'h', NULL },
};

#define SERVED "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather, scatter, sendrecv, barrier"

/* --- options --------------------------------------------------------------------------------- */

static ls_status read_collective(const char *name, ls_coll *out)
{
    const char *names[LS_COLLS];
    *out = name ? ls_coll_find(name) : LS_COLLS;
    for (int c = 0; c < LS_COLLS; c++) names[c] = ls_coll_name((ls_coll)c);
    if (*out != LS_COLLS) return LS_OK;
    if (!name) return ls_fail(LS_USAGE, "which collective? One of " SERVED);
    const char *near = ls_nearest(name, names, LS_COLLS);
    if (near) return ls_fail(LS_USAGE, "no collective named '%s'; did you mean '%s'?", name, near);
    return ls_fail(LS_USAGE, "no collective named '%s'; supported are " SERVED, name);
}

/* What would do nothing for the collective, its transport or the way rows are printed. A default asks for nothing. */
static ls_status check_given(const ls_opts *opts, const ls_bench_opts *o)
{
    const bool wire = ls_transport_reads(o->transport, "comm.wire"), frames = ls_transport_reads(o->transport, "comm.check");
    char wires[160] = "--transport ", framed[160] = "--transport ";
    const bool table_or_json = !o->csv || (o->json && *o->json);
    const struct { const char *flag; bool applies; const char *belongs, *found; } rule[] = {
        { "counts", ls_bench_has_shares(o->coll), "collectives of shares", ls_coll_name(o->coll) },
        { "wire", o->coll == LS_ALL_REDUCE || o->coll == LS_REDUCE_SCATTER, "all_reduce and reduce_scatter", ls_coll_name(o->coll) },
        { "wire", wire, wires, o->transport },
        { "checksums", frames, framed, o->transport },
        { "per_iter_skip", o->per_iter, "--per_iter_timing", "it is not given" },
        { "per_iter_timing", table_or_json, "the table and its JSON file", "--csv" },
        { "report_timestamps", !o->csv && !o->print_json, "the table", o->csv ? "--csv" : "--json" },
        { "count", table_or_json, "the table and its JSON file", "--csv" },
        { "fit", table_or_json, "the table and its JSON file", "--csv" },
    };
    (void)ls_transport_names("comm.wire", wires + strlen(wires), sizeof wires - strlen(wires));
    (void)ls_transport_names("comm.check", framed + strlen(framed), sizeof framed - strlen(framed));
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (!rule[i].applies && !ls_opts_is_default(opts, rule[i].flag))
            return ls_fail(LS_USAGE, "--%s belongs to %s, here is %s: leave it out", rule[i].flag, rule[i].belongs, rule[i].found);
    if (ls_opts_is_set(opts, "stepbytes") && ls_opts_is_set(opts, "stepfactor") && o->step_factor > 1)
        return ls_fail(LS_USAGE, "--stepbytes and --stepfactor: sizes grow by one of them");
    return LS_OK;
}

/* The algorithm that is asked for carries out this collective, or nothing is measured under its name. */
static ls_status check_algo(const ls_bench_opts *o)
{
    const ls_algo *by[LS_COLLS];
    char names[256];
    if (!o->algo || !*o->algo) return LS_OK;
    if (ls_algo_parse(o->algo, by) < 0) return ls_fail(LS_USAGE, "--algo: %s", ls_last_error());
    if (o->coll == LS_SENDRECV) return ls_fail(LS_USAGE, "--algo %s: sendrecv is messages, no algorithm carries it out", o->algo);
    ls_bench_algos(o, names, sizeof names);
    if (!by[o->coll])
        return ls_fail(LS_USAGE, "--algo %s does not serve %s: expected one of %s", o->algo, ls_coll_name(o->coll), names);
    if (o->private_memory && strcmp(by[o->coll]->name, "fold") == 0)
        return ls_fail(LS_USAGE, "--algo fold works where peers reach each other's buffers, which --private forbids: expected one of %s", names);
    return LS_OK;
}

static ls_status no_transport(const char *name)
{
    const char *known[32];
    char names[128];
    size_t n = 0;
    for (; ls_transports[n] && n < 32; n++) known[n] = ls_transports[n]->name;
    const char *near = ls_nearest(name, known, n);
    return near ? ls_fail(LS_USAGE, "no transport named '%s'; did you mean '%s'?", name, near)
                : ls_fail(LS_USAGE, "no transport named '%s': expected one of %s", name, ls_transport_names(NULL, names, sizeof names));
}

/* What ranges cannot say. */
static ls_status check_together(const ls_opts *opts, ls_bench_opts *o)
{
    int d0, d1, op0, op1;
    (void)ls_bench_dtypes(o->dtype, &d0, &d1); /* a choice: one of them */
    (void)ls_bench_ops(o->op, &op0, &op1);
    bool integers = d0 == d1 && (d0 == LS_I32 || d0 == LS_I64 || d0 == LS_U8);
    bool reduces = o->coll == LS_ALL_REDUCE || o->coll == LS_REDUCE_SCATTER || o->coll == LS_REDUCE;
    if (integers && op0 == op1 && op0 == LS_AVG && reduces)
        return ls_fail(LS_USAGE, "--op avg of %s is not defined: use sum, or a floating-point --datatype", o->dtype);
    if (!ls_opts_is_set(opts, "maxbytes") && o->max_bytes < o->min_bytes) o->max_bytes = o->min_bytes;
    if (o->min_bytes > o->max_bytes)
        return ls_fail(LS_USAGE, "--minbytes %zu is more than --maxbytes %zu", o->min_bytes, o->max_bytes);
    if (ls_opts_is_set(opts, "stepbytes") && !ls_opts_is_set(opts, "stepfactor")) o->step_factor = 1;
    if (strcmp(o->wire, "bf16") == 0 && op1 == LS_AVG)
        return ls_fail(LS_USAGE, "--wire bf16 rounds averages, so they have more than one right answer: use --op sum");
    if (o->csv && o->print_json) return ls_fail(LS_USAGE, "--csv and --json: expected one of them");
    if (o->ping_pong && (o->coll != LS_SENDRECV || o->agg > 1))
        return ls_fail(LS_USAGE, "--ping_pong is a way to do sendrecv, one at a time");
    if (o->per_iter && (o->trials > 1 || o->trial_time))
        return ls_fail(LS_USAGE, "--per_iter_timing shows one trial of --iters operations");
    o->more_iters = !ls_opts_is_set(opts, "iters") && !o->per_iter;
    if (o->algo && *o->algo && !strpbrk(o->algo, "=,") && !ls_algo_find(o->algo)) {
        const char *names[32];
        size_t n = 0;
        for (; ls_algos[n] && n < 32; n++) names[n] = ls_algos[n]->name;
        const char *near = ls_nearest(o->algo, names, n);
        return ls_fail(LS_USAGE, "no algorithm named '%s'%s%s%s", o->algo, near ? "; did you mean '" : "; ", near ? near : "lockstep coll --list",
                       near ? "'?" : " names them");
    }
    if (!ls_transport_find(o->transport)) return no_transport(o->transport);
    LS_TRY(ls_transport_check(o->transport));
    LS_TRY(check_given(opts, o));
    return check_algo(o);
}

static ls_status read_all(ls_opts *opts, ls_bench_opts *o, int argc, char **argv)
{
    int rest;
    LS_TRY(ls_opts_parse(opts, argc, argv, false, &rest));
    if (o->help) return LS_OK;
    LS_TRY(read_collective(ls_opts_positional(opts, 0), &o->coll));
    if (ls_opts_npositional(opts) > 1)
        return ls_fail(LS_USAGE, "one collective at a time: '%s' is a second one", ls_opts_positional(opts, 1));
    o->argc = argc;
    o->argv = argv;
    return check_together(opts, o);
}

/* --- ranks ------------------------------------------------------------------------------------ */

static ls_world_opts world_opts(const ls_bench_opts *o)
{
    return (ls_world_opts){ .backend = o->backend, .transport = o->transport,
                            .algo = o->algo && *o->algo ? o->algo : NULL, .arena_bytes = ls_bench_arena_bytes(o),
                            .coll_timeout_ns = o->timeout, .no_crc = !o->checksums,
                            .wire_bf16 = strcmp(o->wire, "bf16") == 0 };
}

static ls_status run_world(ls_world *w, const ls_bench_opts *o)
{
    return o->explain ? ls_bench_explain(w, o) : ls_bench_run(w, o);
}

static ls_status run_thread(ls_world *w, void *arg) { return run_world(w, arg); }

/* As one rank that somebody started. */
static ls_status run_rank(const ls_bench_opts *o)
{
    ls_world_opts wo = world_opts(o);
    ls_world *w;
    LS_TRY(ls_world_join(&wo, &w));
    ls_status st = run_world(w, o);
    if (st < 0) (void)ls_world_abort(w, st);
    st = ls_world_verdict(w, st);
    ls_world_leave(w);
    return st;
}

/* This program again, once per rank, with the same arguments. */
static int spawn(const ls_bench_opts *o, int argc, char **argv)
{
    const ls_launch_opts lo = { .nproc = (int)o->ranks, .timeout_ns = o->timeout };
    ls_launch_result result;
    ls_status st = ls_cli_launch(&lo, argc, argv, &result);
    return st < 0 ? ls_cli_fail("bench", st) : result.exit_code;
}

static int start(ls_bench_opts *o, int argc, char **argv)
{
    int rank, size;
    bool launched = ls_world_launched(&rank, &size);
    ls_status st = LS_OK;
    if (!o->threads && strcmp(o->backend, "mpi") == 0 && (st = ls_backend_launched((int)o->ranks)) < 0)
        return ls_cli_fail_alike("bench", st, argc, argv);
    if (!launched && o->root >= o->ranks)
        st = ls_fail(LS_USAGE, "--root %lld of %lld ranks: expected 0 to %lld", (long long)o->root, (long long)o->ranks, (long long)o->ranks - 1);
    else if (!launched && o->coll == LS_SENDRECV && o->ranks < 2)
        st = ls_fail(LS_USAGE, "sendrecv needs at least 2 ranks");
    else if (launched && o->threads)
        st = ls_fail(LS_USAGE, "--threads starts ranks by itself: run it without a launcher");
    else if (o->threads) {
        ls_world_opts wo = world_opts(o);
        st = ls_world_threads((int)o->ranks, &wo, run_thread, o);
    } else if (!launched && o->ranks > 1) {
        return spawn(o, argc, argv);
    } else {
        st = run_rank(o);
    }
    if (st == LS_ABORTED) return ls_status_exit_code(st); /* the rank that failed first says why */
    return st < 0 ? ls_cli_fail("bench", st) : 0;
}

static int run(int argc, char **argv)
{
    ls_bench_opts o = { 0 };
    ls_opts *opts = NULL;
    int code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = read_all(opts, &o, argc, argv);
    if (st < 0) code = ls_cli_fail("bench", st);
    else code = o.help ? ls_cli_help(&ls_cmd_bench) : start(&o, argc, argv);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_bench = {
    .name = "bench",
    .summary = "time and check a collective; nccl-tests' flags and table",
    .usage = "lockstep bench all_reduce|reduce_scatter|all_gather|broadcast|reduce|all_to_all|gather|scatter|sendrecv|barrier [options]",
    .example = "lockstep bench all_reduce --ranks 2 -b 8 -e 128M -f 2\n"
               "  lockstep bench reduce_scatter --ranks 4 -b 1K -e 64M -f 4 --touch 1 -J rows.json\n"
               "  lockstep bench all_reduce --ranks 8 -b 1M -e 1M --transport tcp --algo ring --count\n"
               "  lockstep bench all_to_all --ranks 3 -b 1K -e 1M -f 4 --counts uneven --private --fit\n"
               "  lockstep bench sendrecv --ping_pong -b 8 -e 8M -f 16 --csv --trials 3 --trial_time 40ms\n"
               "  lockstep bench all_gather --ranks 4 -b 1M -e 1M --json",
    LS_CMD_OPTS(table),
    .run = run,
};
