/* cmd_doctor.c -- lockstep doctor: what this machine has, and what of it is used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/cli.h"
#include "group/backend.h"
#include "lockstep/lockstep.h"
#include "net/job_env.h"
#include "tensor/gemm.h"
#include "tensor/gemm_tile.h"

#define DATA_DIR "/usr/share/datasets/fashion-mnist"

static void row(const char *what) { printf("%-14s", what); }

/* The value after "key ... : " in a file of such lines; "" if absent. */
static void file_value(const char *path, const char *key, char *out, size_t n)
{
    char line[512];
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

static void machine(void)
{
    struct utsname u;
    char cpu[128], flags[4096] = " ";
    file_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    file_value("/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2);
    strcat(flags, " ");
    row("system");
    if (uname(&u) == 0) printf("%s %s, %s\n", u.sysname, u.release, u.machine);
    else puts("unknown");
    row("processor");
    printf("%s", *cpu ? cpu : "unknown");
    static const char *const known[] = { "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char word[20];
        snprintf(word, sizeof word, " %s ", known[i]);
        if (strstr(flags, word)) printf("%s%s", i ? " " : "; ", known[i]);
    }
    puts("");
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
    printf("own tiles (%s) up to %lld flops, %s above\n", ls_gemm_tile_best()->name,
           (long long)ls_gemm_tile_best()->most_flops, ls_gemm_library_name());
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
    static const char *const files[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte" };
    char path[128];
    row("data");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ls_file_info plain = { 0 }, gz = { 0 };
        snprintf(path, sizeof path, DATA_DIR "/%s", files[i]);
        ls_env_get()->info(path, &plain);
        snprintf(path, sizeof path, DATA_DIR "/%s.gz", files[i]);
        ls_env_get()->info(path, &gz);
        if (plain.type != LS_FILE_REGULAR && gz.type != LS_FILE_REGULAR) {
            printf("Fashion-MNIST is not in " DATA_DIR " (%s is missing): `scripts/setup --data` installs it\n", files[i]);
            return;
        }
    }
    puts("Fashion-MNIST in " DATA_DIR);
}

static int run(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return ls_cli_help(&ls_cmd_doctor, NULL);
    if (argc > 1) return ls_cli_fail("doctor", ls_fail(LS_USAGE, "unexpected '%s'; doctor takes no arguments", argv[1]));
    build();
    machine();
    cores();
    memory();
    launcher();
    data();
    return 0;
}

const ls_cmd ls_cmd_doctor = {
    .name = "doctor",
    .summary = "what this machine has, and what of it is used",
    .usage = "lockstep doctor",
    .example = "lockstep doctor",
    .run = run,
};
