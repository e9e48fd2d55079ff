/* cmd_doctor.c -- lockstep doctor: what this machine has, and what of it is used. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "data/sets.h"
#include "group/backend.h"
#include "lockstep/lockstep.h"
#include "meet/job_env.h"
#include "tensor/gemm.h"
#include "tensor/gemm_tile.h"
#include "tensor/threads.h"

#define PEAK_S 1.0 /* of products, of each type and number of threads */

static void row(const char *what) { printf("%-14s", what); }

/* Products are summed in the order that suits the widest instructions, so these decide the last bits of results. */
static void machine(const ls_doctor *d)
{
    row("system");
    if (d->system.sysname[0]) printf("%s %s, %s\n", d->system.sysname, d->system.release, d->system.machine);
    else puts("unknown");
    row("processor");
    printf("%s\n", d->processor[0] ? d->processor : "unknown");
    row("instructions");
    for (int i = 0; i < LS_DOCTOR_INSTRUCTIONS; i++)
        printf("%s%s %s", i ? ", " : "", d->instructions[i].name, d->instructions[i].here ? "yes" : "no");
    puts("; CPUs that have the same ones end a run with the same `final` line");
}

static const char *s_of(int n) { return n == 1 ? "" : "s"; }

static void cores(const ls_doctor *d)
{
    row("cores");
    printf("%d usable (affinity and cgroup) of %ld online", d->cores_usable, d->cores_online);
    if (d->sockets > 0 && d->cores > 0)
        printf("; %d socket%s, %d core%s, %d thread%s", d->sockets, s_of(d->sockets), d->cores, s_of(d->cores), d->threads,
               s_of(d->threads));
    puts("");
    row("caches");
    int shown = 0;
    for (int i = 0; i < LS_DOCTOR_CACHES; i++)
        if (d->cache[i].bytes > 0) printf("%s%s %ld KiB", shown++ ? ", " : "", d->cache[i].name, d->cache[i].bytes >> 10);
    puts(shown ? "" : "unknown");
    row("NUMA");
    if (d->numa_nodes > 0) printf("%d node%s\n", d->numa_nodes, s_of(d->numa_nodes));
    else puts("unknown");
}

static void attach(const ls_doctor *d)
{
    row("peer memory");
    if (d->peer_errno) printf("process_vm_readv is refused: %s; private memory goes through copies\n", strerror(d->peer_errno));
    else if (d->yama == 0) puts("ranks of a node read one another's private memory (process_vm_readv)");
    else if (d->yama == 1) puts("ranks that `lockstep run` starts read one another's private memory; others may not (Yama's ptrace_scope is 1)");
    else printf("private memory goes through copies: Yama's ptrace_scope is %d\n", d->yama);
}

static void memory(const ls_doctor *d)
{
    row("memory");
    printf("%.1f GiB available (MemAvailable and cgroup), pages of %ld KiB\n", (double)d->available_bytes / (1u << 30),
           d->page_bytes >> 10);
    row("shared memory");
    if (d->memfd_errno == 0) puts("sealed memfd works");
    else printf("memfd_create is refused: %s; ranks cannot share gradients\n", strerror(d->memfd_errno));
    row("limits");
    for (int i = 0; i < LS_DOCTOR_LIMITS; i++) {
        const ls_doctor_limit *l = &d->limit[i];
        if (!l->known) continue;
        printf("%s%s ", i ? ", " : "", l->name);
        if (l->unlimited) printf("unlimited");
        else printf("%" PRIu64 "%s", l->value / l->unit, l->unit_name);
    }
    puts("");
}

static void build(void)
{
    row("lockstep");
    puts(ls_version());
    row("products");
    char library[96];
    ls_gemm_library_describe(library, sizeof library);
    printf("own tiles (%s) up to %lld flops, %s above; bf16 %s\n", ls_gemm_tile_best()->name,
           (long long)ls_gemm_tile_best()->most_flops, library,
           ls_gemm_library_has_bf16() ? "by the processor's instructions" : "by way of f32: right, and slower");
    const char *told = ls_env_get()->getenv("OMP_NUM_THREADS");
    row("threads");
    if (told) printf("%d per rank, by OMP_NUM_THREADS=%s\n", ls_team_size(), told);
    else printf("%d for a rank alone; usable cores / local ranks for several\n", ls_env_get()->cpus());
    row("transports");
    for (size_t i = 0; ls_transports[i]; i++) printf("%s%s", i ? ", " : "", ls_transports[i]->name);
    puts("");
    ls_backend_info plugin;
    for (int i = 0; ls_backend_list(i, &plugin); i++) {
        row(i ? "" : "plugins");
        printf("%s %s: %s\n", plugin.name, plugin.found ? "on" : "off", plugin.text);
    }
}

/* How this process would get its rank, by the variables that are set. */
static void launcher(void)
{
    ls_job_env j;
    ls_status st = ls_job_env_read(&j);
    row("launcher");
    if (j.source == LS_JOB_ALONE)
        printf("none around: `lockstep run --nproc-per-node %d PROGRAM` starts a rank for each core", ls_env_get()->cpus());
    else printf("this is rank %d of %d, from %s", j.rank, j.size, ls_job_source_text(&j));
    if (st < 0) printf("; joining would fail: %s", ls_last_error());
    puts("");
}

static void data(void)
{
    for (const ls_set *s = ls_sets; s->name; s++) {
        char path[LS_SET_PATH];
        row(s == ls_sets ? "data" : "");
        if (ls_set_find(s, path)) printf("%s in %s\n", s->name, path);
        else printf("%s is not here: `lockstep data fetch %s` fetches it, %s\n", s->name, s->name, s->download);
    }
}

/* How fast products are here, as kept: what training compares itself with. */
static void peaks(void)
{
    char path[4096];
    ls_peaks p;
    const ls_status st = ls_doctor_peaks(path, sizeof path, &p);
    row("peak");
    if (st == LS_AGAIN) puts("not measured: `lockstep doctor --peak` does, and keeps it for the MFU of training");
    if (st < 0) printf("%s\n", ls_last_error());
    if (st != LS_OK) return;
    for (int i = 0; i < p.n; i++)
        printf("%s%s %.1f GFLOP/s a thread with %d", i ? ", " : "", p.row[i].dtype == LS_BF16 ? "bf16" : "f32",
               p.row[i].gflops, p.row[i].threads);
    printf(" (measured on %s)\n", p.host);
}

static ls_status measure_peak(void)
{
    char path[4096];
    ls_peaks p;
    if (!ls_peak_path(path, sizeof path))
        return ls_fail(LS_USAGE, "nowhere to keep it: LOCKSTEP_PEAK or HOME says where");
    LS_TRY(ls_peak_measure_all(PEAK_S, &p));
    return ls_peak_keep(&p, path);
}

static void print_all(void)
{
    ls_doctor d;
    ls_doctor_look(&d);
    build();
    machine(&d);
    cores(&d);
    memory(&d);
    attach(&d);
    peaks();
    launcher();
    data();
}

static ls_status print(bool peak, bool json)
{
    char path[4096];
    ls_text out = { 0 };
    ls_doctor d;
    if (!json && !peak) print_all();
    if (!json && peak) {
        peaks();
        row("");
        if (ls_peak_path(path, sizeof path)) printf("kept in %s\n", path);
    }
    if (!json) return LS_OK;
    if (peak) ls_doctor_peaks_json(&out);
    if (!peak) {
        ls_doctor_look(&d);
        ls_doctor_print_json(&d, &out);
    }
    ls_text_add(&out, "\n");
    return ls_cli_print(&out);
}

typedef struct options {
    bool peak, json, help;
} options;

static const ls_opt table[] = {
    { .name = "peak", .type = LS_OPT_BOOL, .offset = offsetof(options, peak), .def = "false",
      .help = "measure how fast matrices are multiplied here, some seconds, and keep it: training's MFU is a fraction of it" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print one JSON object" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        code = ls_cli_help(&ls_cmd_doctor);
    } else if (st == LS_OK && ls_opts_npositional(opts) > 0) {
        st = ls_fail(LS_USAGE, "unexpected '%s'; --help shows what doctor takes", ls_opts_positional(opts, 0));
    } else {
        if (st == LS_OK && o.peak) st = measure_peak();
        if (st == LS_OK) st = print(o.peak, o.json);
    }
    if (st < 0) code = ls_cli_fail("doctor", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_doctor = {
    .name = "doctor",
    .summary = "what this machine has, and what of it is used",
    .usage = "lockstep doctor [--peak] [--json]",
    .example = "lockstep doctor\n"
               "  lockstep doctor --json",
    LS_CMD_OPTS(table),
    .run = run,
};
