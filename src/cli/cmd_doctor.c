/* cmd_doctor.c -- lockstep doctor: what this machine has, and what of it is used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "data/sets.h"
#include "group/backend.h"
#include "lockstep/lockstep.h"
#include "meet/job_env.h"
#include "tensor/gemm.h"
#include "tensor/gemm_tile.h"
#include "tensor/threads.h"
#include "report/peak.h"

#define PEAK_S 1.0 /* of products, of each type and number of threads */

static void row(const char *what) { printf("%-14s", what); }

/* The value after "key ... : " in a file of such lines; "" if absent. */
static void file_value(const char *path, const char *key, char *out, size_t n)
{
    char line[8192]; /* the flags of a CPU are long */
    FILE *f = fopen(path, "r");
    *out = 0;
    while (f && !*out && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f) fclose(f);
}

/* Products are summed in the order that suits the widest instructions, so these decide the last bits of results.
 * `flags` has a blank around each word. */
static void instructions(const char *flags)
{
    static const struct { const char *flag, *name; } set[] = {
        { " avx2 ", "AVX2" }, { " avx512f ", "AVX-512" }, { " avx512_bf16 ", "AVX512-BF16" }, { " amx_bf16 ", "AMX" },
    };
    row("instructions");
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        printf("%s%s %s", i ? ", " : "", set[i].name, strstr(flags, set[i].flag) ? "yes" : "no");
    puts("; CPUs that have the same ones end a run with the same `final` line");
}

static void machine(void)
{
    struct utsname u;
    char cpu[128], flags[8192] = " ";
    file_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    file_value("/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2);
    strcat(flags, " ");
    row("system");
    if (uname(&u) == 0) printf("%s %s, %s\n", u.sysname, u.release, u.machine);
    else puts("unknown");
    row("processor");
    printf("%s\n", *cpu ? cpu : "unknown");
    instructions(flags);
}

static void cores(void)
{
    row("cores");
    printf("%d usable (affinity and cgroup) of %ld online\n", ls_env_get()->cpus(), sysconf(_SC_NPROCESSORS_ONLN));
    row("caches");
    const struct { const char *name; int which; } level[] = {
        { "L1d", _SC_LEVEL1_DCACHE_SIZE }, { "L2", _SC_LEVEL2_CACHE_SIZE }, { "L3", _SC_LEVEL3_CACHE_SIZE },
    };
    int shown = 0;
    for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
        long n = sysconf(level[i].which);
        if (n > 0) printf("%s%s %ld KiB", shown++ ? ", " : "", level[i].name, n >> 10);
    }
    puts(shown ? "" : "unknown");
    int nodes = 0;
    char path[64];
    for (; nodes < 1024; nodes++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", nodes);
        if (access(path, F_OK) != 0) break;
    }
    row("NUMA");
    if (nodes > 0) printf("%d node%s\n", nodes, nodes == 1 ? "" : "s");
    else puts("unknown");
}

static void limit(const char *name, int which, rlim_t unit, const char *unit_name)
{
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)which, &r) != 0) return;
    if (r.rlim_cur == RLIM_INFINITY) printf(", %s unlimited", name);
    else printf(", %s %" PRIu64 "%s", name, (uint64_t)(r.rlim_cur / unit), unit_name);
}

/* Whether ranks can read one another's private memory (net/attach.h): what can be known without ranks. */
static void attach(void)
{
    const ls_env *env = ls_env_get();
    const uint32_t mine = 0x600d;
    uint32_t got = 0;
    char scope[32] = "";
    row("peer memory");
    const int r = env->read_process(env->pid(), (uint64_t)(uintptr_t)&mine, &got, sizeof got);
    FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
    if (f && !fgets(scope, sizeof scope, f)) scope[0] = 0;
    if (f) fclose(f);
    const int yama = atoi(scope);
    if (r < 0) printf("process_vm_readv is refused: %s; private memory goes through copies\n", strerror(-r));
    else if (yama == 0) puts("ranks of a node read one another's private memory (process_vm_readv)");
    else if (yama == 1) puts("ranks that `lockstep run` starts read one another's private memory; others may not (Yama's ptrace_scope is 1)");
    else printf("private memory goes through copies: Yama's ptrace_scope is %d\n", yama);
}

static void memory(void)
{
    const ls_env *env = ls_env_get();
    row("memory");
    printf("%.1f GiB available (MemAvailable and cgroup), pages of %ld KiB\n", (double)env->mem_available() / (1u << 30),
           sysconf(_SC_PAGESIZE) >> 10);
    row("shared memory");
    int fd = env->memfd("lockstep-doctor", 1 << 20);
    if (fd >= 0) puts("sealed memfd works");
    else printf("memfd_create is refused: %s; ranks cannot share gradients\n", strerror(-fd));
    if (fd >= 0) env->close_fd(fd);
    struct rlimit files;
    row("limits");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) printf("open files %" PRIu64, (uint64_t)files.rlim_cur);
    limit("processes", RLIMIT_NPROC, 1, "");
    limit("locked memory", RLIMIT_MEMLOCK, 1024, " KiB");
    limit("address space", RLIMIT_AS, 1 << 20, " MiB");
    limit("core files", RLIMIT_CORE, 1024, " KiB");
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
    char path[4096], *text = NULL;
    size_t n;
    ls_peaks p;
    ls_file_info info = { 0 };
    row("peak");
    if (!ls_peak_path(path, sizeof path) || ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_NONE) {
        puts("not measured: `lockstep doctor --peak` does, and keeps it for the MFU of training");
        return;
    }
    ls_status st = ls_file_read(path, LS_PEAK_MAX_BYTES, &text, &n);
    if (st == LS_OK) st = ls_peak_read_json(path, text, n, &p);
    free(text);
    if (st < 0) {
        printf("%s\n", ls_last_error());
        return;
    }
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
    LS_TRY(ls_peak_keep(&p, path));
    peaks();
    row("");
    printf("kept in %s\n", path);
    return LS_OK;
}

typedef struct options {
    bool peak, help;
} options;

static const ls_opt table[] = {
    { .name = "peak", .type = LS_OPT_BOOL, .offset = offsetof(options, peak), .def = "false",
      .help = "measure how fast matrices are multiplied here, some seconds, and keep it: training's MFU is a fraction of it" },
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
    } else if (st == LS_OK && o.peak) {
        st = measure_peak();
    } else if (st == LS_OK) {
        build();
        machine();
        cores();
        memory();
        attach();
        peaks();
        launcher();
        data();
    }
    if (st < 0) code = ls_cli_fail("doctor", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_doctor = {
    .name = "doctor",
    .summary = "what this machine has, and what of it is used",
    .usage = "lockstep doctor [--peak]",
    .example = "lockstep doctor",
    LS_CMD_OPTS(table),
    .run = run,
};
