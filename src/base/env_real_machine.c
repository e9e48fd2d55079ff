/* env_real_machine.c -- the real env's view of the machine: CPUs, memory, processes. */
#include "base/env_real.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* The beginning of a small file of /proc or /sys as text; -errno. */
static int slurp(const char *path, char *buf, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t have = 0;
    while (have < n - 1) {
        ssize_t k = read(fd, buf + have, n - 1 - have);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        have += (size_t)k;
    }
    close(fd);
    buf[have] = 0;
    return (int)have;
}

/* The number that follows `key` at the start of a line of `text`. */
static bool number_after(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, n) != 0) continue;
        char *end;
        *out = strtoull(line + n, &end, 10);
        return end != line + n;
    }
    return false;
}

static bool number_in(const char *dir, const char *file, const char *key, uint64_t *out)
{
    char path[PATH_BYTES + 64], text[8192];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return slurp(path, text, sizeof text) >= 0 && number_after(text, key, out);
}

/* --- control groups ------------------------------------------------------------------ */

/* The limit that one directory of the control group tree sets; UINT64_MAX for none. */
typedef uint64_t (*limit_fn)(const char *dir);

/* v2: "max 100000" or "150000 100000"; v1: a quota of -1 is none. In thousandths of a CPU. */
static uint64_t cpu_limit(const char *dir)
{
    char path[PATH_BYTES + 64], text[128];
    uint64_t quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (slurp(path, text, sizeof text) > 0) {
        char *end;
        quota = strtoull(text, &end, 10);
        if (end == text) return UINT64_MAX;
        period = strtoull(end, NULL, 10);
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        if (slurp(path, text, sizeof text) <= 0 || text[0] == '-') return UINT64_MAX;
        quota = strtoull(text, NULL, 10);
        if (!number_in(dir, "cpu.cfs_period_us", "", &period)) return UINT64_MAX;
    }
    return period ? quota * 1000 / period : UINT64_MAX;
}

/* Bytes still free below this directory's limit. Cached file pages count as
 * used there but are given back under pressure, as in MemAvailable. */
static uint64_t memory_limit(const char *dir)
{
    uint64_t max, now, cache = 0;
    if (number_in(dir, "memory.max", "", &max) && number_in(dir, "memory.current", "", &now))
        number_in(dir, "memory.stat", "inactive_file ", &cache);
    else if (number_in(dir, "memory.limit_in_bytes", "", &max) && number_in(dir, "memory.usage_in_bytes", "", &now))
        number_in(dir, "memory.stat", "total_inactive_file ", &cache);
    else return UINT64_MAX;
    now = now > cache ? now - cache : 0;
    return max > now ? max - now : 0;
}

/* The least limit on the way from our group up to the root of the mount. Inside
 * a container our path may not exist there: the root then is our own group. */
static uint64_t least_up(const char *root, const char *group, limit_fn limit)
{
    char dir[PATH_BYTES];
    size_t nroot = strlen(root);
    uint64_t least = UINT64_MAX;
    int n = snprintf(dir, sizeof dir, "%s%s", root, group);
    if (n < 0 || (size_t)n >= sizeof dir) return least;
    for (;;) {
        uint64_t v = limit(dir);
        if (v < least) least = v;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < nroot) return least;
        *slash = 0;
    }
}

/* True when `name` is one of the comma-separated names in list[0..n). */
static bool listed(const char *list, size_t n, const char *name)
{
    size_t want = strlen(name);
    for (const char *p = list, *end = list + n; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t k = (size_t)((comma ? comma : end) - p);
        if (k == want && memcmp(p, name, k) == 0) return true;
        p += k + 1;
    }
    return false;
}

/* Lines of /proc/self/cgroup read "id:controllers:path"; no controllers means v2. */
static uint64_t cgroup_limit(const char *controller, limit_fn limit)
{
    char text[8192], root[256];
    uint64_t least = UINT64_MAX;
    if (slurp("/proc/self/cgroup", text, sizeof text) < 0) return least;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        list++;
        size_t nlist = (size_t)(path - list);
        path++;
        uint64_t v = UINT64_MAX;
        if (nlist == 0) {
            v = least_up("/sys/fs/cgroup", path, limit);
        } else if (listed(list, nlist, controller)) {
            snprintf(root, sizeof root, "/sys/fs/cgroup/%.*s", (int)nlist, list);
            if (access(root, F_OK) != 0) snprintf(root, sizeof root, "/sys/fs/cgroup/%s", controller);
            v = least_up(root, path, limit);
        }
        if (v < least) least = v;
    }
    return least;
}

/* --- the slots ----------------------------------------------------------------------- */

int ls_real_cpus(void)
{
    cpu_set_t set[8]; /* 8,192 CPUs */
    uint64_t n = 1;
    if (sched_getaffinity(0, sizeof set, set) == 0) n = (uint64_t)CPU_COUNT_S(sizeof set, set);
    uint64_t limit = cgroup_limit("cpu", cpu_limit);
    if (limit != UINT64_MAX && (limit + 999) / 1000 < n) n = (limit + 999) / 1000;
    return n > 0 ? (int)n : 1;
}

int ls_real_cpu_mask(uint64_t *mask, int n)
{
    cpu_set_t set[8];
    int count = 0;
    memset(mask, 0, (size_t)n * sizeof *mask);
    if (sched_getaffinity(0, sizeof set, set) < 0) return -errno;
    for (size_t cpu = 0; cpu < 8 * sizeof set && cpu < 64 * (size_t)n; cpu++)
        if (CPU_ISSET_S(cpu, sizeof set, set)) mask[cpu / 64] |= 1ull << cpu % 64, count++;
    return count;
}

int ls_real_bind_cpus(const uint64_t *mask, int n)
{
    cpu_set_t set[8];
    CPU_ZERO_S(sizeof set, set);
    for (size_t cpu = 0; cpu < 8 * sizeof set && cpu < 64 * (size_t)n; cpu++)
        if (mask[cpu / 64] >> cpu % 64 & 1u) CPU_SET_S(cpu, sizeof set, set);
    return sched_setaffinity(0, sizeof set, set) < 0 ? -errno : 0;
}

uint64_t ls_real_mem_available(void)
{
    char text[8192];
    uint64_t kib = 0, available = UINT64_MAX;
    if (slurp("/proc/meminfo", text, sizeof text) > 0 && number_after(text, "MemAvailable:", &kib))
        available = kib * 1024;
    uint64_t limit = cgroup_limit("memory", memory_limit);
    return limit < available ? limit : available;
}

int ls_real_hostname(char *buf, size_t n)
{
    if (n == 0) return -ENAMETOOLONG;
    if (gethostname(buf, n) < 0) return -errno;
    buf[n - 1] = 0;
    return (int)strlen(buf);
}

int ls_real_folder(char *buf, size_t n) { return getcwd(buf, n) ? 0 : -errno; }

const char *ls_real_getenv(const char *name) { return getenv(name); }

int ls_real_pid(void) { return (int)getpid(); }

int ls_real_parent_pid(void) { return (int)getppid(); }
unsigned ls_real_uid(void) { return geteuid(); }

bool ls_real_traced(int pid)
{
    char path[64], text[4096];
    uint64_t tracer = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    return slurp(path, text, sizeof text) > 0 && number_after(text, "TracerPid:", &tracer) && tracer != 0;
}

/* "41 (name) S 1 ...": the name may itself hold brackets, so the last one counts. */
char ls_real_proc_state(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (slurp(path, text, sizeof text) <= 0) return 0;
    const char *close_paren = strrchr(text, ')');
    if (!close_paren || close_paren[1] != ' ') return 0;
    char state = close_paren[2];
    return (char)(state == 't' ? 'T' : state == 'X' || state == 'x' ? 0 : state);
}

int ls_real_self_path(char *buf, size_t n)
{
    ssize_t k = readlink("/proc/self/exe", buf, n);
    if (k < 0) return -errno;
    if ((size_t)k >= n) return -ENAMETOOLONG;
    buf[k] = 0;
    return (int)k;
}

/* Tiles are 8 KiB a thread, which the kernel saves only for a process that asked. */
int ls_real_use_tiles(void)
{
#if defined(__x86_64__)
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h; the state's bit in XCR0 */
    return ls_real_result((int)syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA));
#else
    return -ENOSYS;
#endif
}
