/* doctor_look.c -- what lockstep doctor asks the system. */
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/hw.h"

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

static void machine(ls_doctor *d)
{
    static const struct { const char *flag, *name; } set[LS_DOCTOR_INSTRUCTIONS] = {
        { " avx2 ", "AVX2" }, { " avx512f ", "AVX-512" }, { " avx512_bf16 ", "AVX512-BF16" }, { " amx_bf16 ", "AMX" },
    };
    char flags[8192] = " "; /* with a blank around each word */
    if (uname(&d->system) != 0) d->system.sysname[0] = 0;
    file_value("/proc/cpuinfo", "model name", d->processor, sizeof d->processor);
    file_value("/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2);
    strcat(flags, " ");
    for (int i = 0; i < LS_DOCTOR_INSTRUCTIONS; i++) {
        d->instructions[i].name = set[i].name;
        d->instructions[i].here = strstr(flags, set[i].flag) != NULL;
    }
}

static void cores(ls_doctor *d)
{
    static const char *const cache[LS_DOCTOR_CACHES] = { "L1d", "L2", "L3" };
    ls_hw h;
    /* After a failure nothing is known; and a file or description stands for another machine. */
    if (ls_hw_look(&h) < 0 || !h.here) h = (ls_hw){ 0 };
    d->cores_usable = ls_env_get()->cpus();
    d->cores_online = sysconf(_SC_NPROCESSORS_ONLN);
    d->sockets = h.part[LS_HW_SOCKET].n;
    d->cores = h.part[LS_HW_CORE].n;
    d->threads = h.threads;
    d->numa_nodes = h.part[LS_HW_NUMA].n;
    for (int i = 0; i < LS_DOCTOR_CACHES; i++) {
        d->cache[i].name = cache[i];
        d->cache[i].bytes = (long)h.cache[i];
    }
}

/* Whether ranks can read one another's private memory (net/attach.h): what can be known without ranks. */
static void attach(ls_doctor *d)
{
    const ls_env *env = ls_env_get();
    const uint32_t mine = 0x600d;
    uint32_t got = 0;
    char scope[32] = "";
    const int r = env->read_process(env->pid(), (uint64_t)(uintptr_t)&mine, &got, sizeof got);
    FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
    if (f && !fgets(scope, sizeof scope, f)) scope[0] = 0;
    if (f) fclose(f);
    d->yama = atoi(scope);
    d->peer_errno = r < 0 ? -r : 0;
}

static void memory(ls_doctor *d)
{
    static const struct { const char *name, *key, *unit_name; int which; uint64_t unit; } all[LS_DOCTOR_LIMITS] = {
        { "open files", "open_files", "", RLIMIT_NOFILE, 1 },
        { "processes", "processes", "", RLIMIT_NPROC, 1 },
        { "locked memory", "locked_memory_bytes", " KiB", RLIMIT_MEMLOCK, 1 << 10 },
        { "address space", "address_space_bytes", " MiB", RLIMIT_AS, 1 << 20 },
        { "core files", "core_file_bytes", " KiB", RLIMIT_CORE, 1 << 10 },
    };
    const ls_env *env = ls_env_get();
    d->available_bytes = env->mem_available();
    d->page_bytes = sysconf(_SC_PAGESIZE);
    const int fd = env->memfd("lockstep-doctor", 1 << 20);
    d->memfd_errno = fd < 0 ? -fd : 0;
    if (fd >= 0) env->close_fd(fd);
    for (int i = 0; i < LS_DOCTOR_LIMITS; i++) {
        struct rlimit r;
        ls_doctor_limit *l = &d->limit[i];
        *l = (ls_doctor_limit){ .name = all[i].name, .key = all[i].key, .unit_name = all[i].unit_name,
                                .unit = all[i].unit };
        l->known = getrlimit((__rlimit_resource_t)all[i].which, &r) == 0;
        l->unlimited = l->known && r.rlim_cur == RLIM_INFINITY;
        l->value = l->known ? (uint64_t)r.rlim_cur : 0;
    }
}

void ls_doctor_look(ls_doctor *out)
{
    *out = (ls_doctor){ 0 };
    machine(out);
    cores(out);
    memory(out);
    attach(out);
}

ls_status ls_doctor_peaks(char *path, size_t n, ls_peaks *out)
{
    char *text = NULL;
    size_t length;
    ls_file_info info = { 0 };
    if (!ls_peak_path(path, n) || ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_NONE) return LS_AGAIN;
    ls_status st = ls_file_read(path, LS_PEAK_MAX_BYTES, &text, &length);
    if (st == LS_OK) st = ls_peak_read_json(path, text, length, out);
    free(text);
    return st;
}
