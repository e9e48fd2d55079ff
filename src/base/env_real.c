/* env_real.c -- the table of the real world, and its clock, waiting and memory. */
#include "base/env_real.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
#define NAP_NS 1000000u /* with descriptors and a word: how late a change of the word may be seen */
#define SPIN_TURNS 2000 /* some 20 to 50 us: longer than a hand-over between two cores */

/* --- time ------------------------------------------------------------------------ */

static uint64_t mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * NS_PER_S + (int64_t)t.tv_nsec;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void random_bytes(void *p, size_t n)
{
    char *to = p;
    while (n > 0) {
        ssize_t k = getrandom(to, n, 0);
        if (k < 0 && errno != EINTR) abort(); /* a guessable key is worse than no job */
        if (k < 0) continue;
        to += k;
        n -= (size_t)k;
    }
}

/* --- waiting ---------------------------------------------------------------------- */

/* ls_pollfd is handed to poll(2) as it is. */
_Static_assert(sizeof(ls_pollfd) == sizeof(struct pollfd), "ls_pollfd is pollfd");
_Static_assert(offsetof(ls_pollfd, revents) == offsetof(struct pollfd, revents), "ls_pollfd is pollfd");
_Static_assert((int)LS_POLL_IN == POLLIN && (int)LS_POLL_OUT == POLLOUT, "events of poll(2)");

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
}

/* The deadline of a bitset wait is absolute, so a late start cannot lengthen it.
 * Not PRIVATE: the word may lie in memory shared between processes. */
static void wait_word(const uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    struct timespec at = timespec_of(deadline_ns);
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, deadline_ns == UINT64_MAX ? NULL : &at, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

/* poll(2) cannot watch a word: with one, sleep in naps. */
static void wait_fds(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    for (;;) {
        if (word && __atomic_load_n(word, __ATOMIC_ACQUIRE) != value) deadline_ns = 0; /* still fill revents */
        uint64_t now = mono_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
        uint64_t nap = word && left > NAP_NS ? NAP_NS : left;
        struct timespec span = timespec_of(nap);
        bool for_ever = deadline_ns == UINT64_MAX && !word;
        int n = ppoll((struct pollfd *)(void *)fds, (nfds_t)nfds, for_ever ? NULL : &span, NULL);
        if (n != 0 || nap == left) return; /* ready, a signal, or the deadline */
    }
}

static void wait_real(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    if (word && nfds == 0) wait_word(word, value, deadline_ns);
    else wait_fds(word, value, fds, nfds, deadline_ns);
}

static void wake_real(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

static void yield_real(void) { sched_yield(); }

/* --- memory ----------------------------------------------------------------------- */

/* Touches every page now: MADV_POPULATE_WRITE (Linux 5.14) says when memory is
 * short, where a fault later would kill. Older kernels: by hand. */
static bool populate(void *p, size_t n)
{
#ifdef MADV_POPULATE_WRITE
    int r;
    do r = madvise(p, n, MADV_POPULATE_WRITE);
    while (r < 0 && errno == EINTR);
    if (r == 0) return true;
    if (errno != EINVAL) return false;
#endif
    volatile char *page = p;
    for (size_t i = 0; i < n; i += 4096) page[i] = 0;
    return true;
}

static void *map_private(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, n, MADV_HUGEPAGE); /* a wish: fewer faults and TLB misses */
    if (!populate(p, n)) {
        munmap(p, n);
        return NULL;
    }
    return p;
}

static void *map_nothing(size_t n)
{
    void *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *map_secret(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, n, MADV_DONTDUMP);
    mlock(p, n); /* a wish: the limit may be small */
    return p;
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define HUGE_PAGE  ((size_t)2 << 20)
#define HUGE_LEAST ((size_t)16 << 20) /* smaller memory has few enough pages for a processor's TLB */
#define HUGE_PIECE ((size_t)32 << 20)
#define HUGE_NS    NS_PER_S           /* how long to try: the kernel may have to move pages of others first */

/* Addresses of n bytes, the first a multiple of HUGE_PAGE, which the caller maps something over; NULL when refused. */
static char *aligned_addresses(size_t n)
{
    char *p = mmap(NULL, n + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    const size_t before = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1)), after = HUGE_PAGE - before;
    if (before > 0) munmap(p, before);
    munmap(p + before + n, after);
    return p + before;
}

static void *map_file(int fd, size_t n, int flags)
{
    char *at = n >= HUGE_LEAST && n < SIZE_MAX / 2 ? aligned_addresses((n + 4095) / 4096 * 4096) : NULL;
    void *p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_SHARED | flags | (at ? MAP_FIXED : 0), fd, 0);
    if (p != MAP_FAILED) return p;
    if (at) munmap(at, n);
    return NULL;
}

/* Has the kernel put the first n bytes of an empty memfd into huge pages: fewer faults and TLB misses. The usual
 * setting of shared memory (shmem_enabled) is never, and MADV_COLLAPSE is the one way that works with it. It wants a
 * page in each huge page, and fills the rest with zeros. It is a wish: what is refused is left to small pages. */
static void use_huge_pages(int fd, size_t n)
{
    const size_t whole = n / HUGE_PAGE * HUGE_PAGE;
    char *p = n >= HUGE_LEAST ? map_file(fd, whole, 0) : NULL;
    const uint64_t began_ns = mono_ns();
    bool fine = p != NULL;
    for (size_t at = 0; fine && at < whole && mono_ns() - began_ns < HUGE_NS; at += HUGE_PIECE) {
        const size_t piece = whole - at < HUGE_PIECE ? whole - at : HUGE_PIECE;
        for (size_t i = 0; fine && i < piece; i += HUGE_PAGE) fine = fallocate(fd, 0, (off_t)(at + i), 4096) == 0;
        fine = fine && madvise(p + at, piece, MADV_COLLAPSE) == 0;
    }
    if (p) munmap(p, whole);
}

/* fallocate reserves every block, so that a full system says ENOSPC here and
 * not SIGBUS at some later store; the seals keep it so for all who map it. */
static int memfd_sparse(const char *name, size_t n, size_t reserved)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    int r = n > INT64_MAX ? -EFBIG : ls_real_result(ftruncate(fd, (off_t)n));
    if (r == 0 && reserved > 0) {
        use_huge_pages(fd, reserved);
        do r = ls_real_result(fallocate(fd, 0, 0, (off_t)reserved));
        while (r == -EINTR);
    }
    if (r == 0) r = ls_real_result(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    if (r == 0) return fd;
    close(fd);
    return r;
}

static int memfd_real(const char *name, size_t n) { return memfd_sparse(name, n, n); }

static int reserve(void *p, size_t n)
{
    uintptr_t first = (uintptr_t)p & ~(uintptr_t)4095, end = ((uintptr_t)p + n + 4095) & ~(uintptr_t)4095;
#ifdef MADV_POPULATE_WRITE
    int r;
    do r = ls_real_result(madvise((void *)first, end - first, MADV_POPULATE_WRITE));
    while (r == -EINTR);
    if (r == 0) return 0;
    if (r != -EINVAL) return -ENOMEM; /* -EFAULT where a touch would be a SIGBUS */
#endif
    for (uintptr_t page = first; page != end; page += 4096) (void)*(const volatile char *)page; /* an older kernel */
    return 0;
}

static int scratch(const char *name) { return ls_real_result(memfd_create(name, MFD_CLOEXEC)); }

static void *map_shared(int fd, size_t n, bool prefault)
{
    return map_file(fd, n, prefault ? MAP_POPULATE : 0);
}

static const void *map_read(int fd, size_t n)
{
    const void *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

static int read_ahead(const void *p, size_t n, bool now)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)p & ~(page - 1);
    size_t bytes = n + ((uintptr_t)p - first);
    if (n == 0) return 0;
    if (!now) return ls_real_result(madvise((void *)first, bytes, MADV_WILLNEED));
    int r = ls_real_result(madvise((void *)first, bytes, MADV_POPULATE_READ));
    if (r != -EINVAL) return r;
    for (size_t at = 0; at < bytes; at += page) (void)*(const volatile char *)(first + at); /* an older kernel */
    return 0;
}

static void unmap_real(void *p, size_t n)
{
    if (p) munmap(p, n);
}

static int64_t fd_size(int fd)
{
    struct stat s;
    return fstat(fd, &s) < 0 ? -errno : (int64_t)s.st_size;
}

/* --- the table ---------------------------------------------------------------------- */

const ls_env ls_env_real = {
    .mono_ns = mono_ns,
    .wall_ns = wall_ns,
    .cpu_ns = cpu_ns,
    .thread_cpu_ns = thread_cpu_ns,
    .random = random_bytes,

    .wait = wait_real,
    .wake = wake_real,
    .yield = yield_real,
    .spin_turns = SPIN_TURNS,

    .cpus = ls_real_cpus,
    .cpu_mask = ls_real_cpu_mask,
    .bind_cpus = ls_real_bind_cpus,
    .mem_available = ls_real_mem_available,
    .hostname = ls_real_hostname,
    .folder = ls_real_folder,
    .getenv = ls_real_getenv,
    .pid = ls_real_pid,
    .parent_pid = ls_real_parent_pid,
    .uid = ls_real_uid,
    .traced = ls_real_traced,
    .proc_state = ls_real_proc_state,
    .self_path = ls_real_self_path,
    .use_tiles = ls_real_use_tiles,

    .map_private = map_private,
    .map_nothing = map_nothing,
    .map_secret = map_secret,
    .memfd = memfd_real,
    .memfd_sparse = memfd_sparse,
    .reserve = reserve,
    .scratch = scratch,
    .map_shared = map_shared,
    .map_read = map_read,
    .read_ahead = read_ahead,
    .unmap = unmap_real,
    .fd_size = fd_size,

    .open_read = ls_real_open_read,
    .create = ls_real_create,
    .create_secret = ls_real_create_secret,
    .append = ls_real_append,
    .discard = ls_real_discard,
    .read = ls_real_read,
    .pread = ls_real_pread,
    .write = ls_real_write,
    .pwrite = ls_real_pwrite,
    .write_behind = ls_real_write_behind,
    .uncached = ls_real_uncached,
    .fsync = ls_real_fsync,
    .fsync_dir = ls_real_fsync_dir,
    .rename = ls_real_rename,
    .exchange = ls_real_exchange,
    .unlink = ls_real_unlink,
    .mkdir = ls_real_mkdir,
    .mkdir_secret = ls_real_mkdir_secret,
    .real_path = ls_real_real_path,
    .lock = ls_real_lock,
    .rmdir = ls_real_rmdir,
    .info = ls_real_info,
    .fd_info = ls_real_fd_info,
    .list = ls_real_list,
    .isatty = ls_real_isatty,
    .columns = ls_real_columns,
    .close_fd = ls_real_close_fd,

    .listen_unix = ls_real_listen_unix,
    .connect_unix = ls_real_connect_unix,
    .listen_tcp = ls_real_listen_tcp,
    .listen_open = ls_real_listen_open,
    .connect_tcp = ls_real_connect_tcp,
    .resolve = ls_real_resolve,
    .local_addr = ls_real_local_addr,
    .peer_addr = ls_real_peer_addr,
    .connect_done = ls_real_connect_done,
    .accept = ls_real_accept,
    .send = ls_real_send,
    .recv = ls_real_recv,
    .sendv = ls_real_sendv,
    .recvv = ls_real_recvv,
    .received = ls_real_received,
    .send_fd = ls_real_send_fd,
    .recv_fd = ls_real_recv_fd,
    .peer_uid_is_ours = ls_real_peer_uid_is_ours,
    .peer_pid = ls_real_peer_pid,
    .free_port = ls_real_free_port,
    .port_holder = ls_real_port_holder,

    .thread_start = ls_real_thread_start,
    .thread_join = ls_real_thread_join,
    .at_thread_end = ls_real_at_thread_end,
    .fork = ls_real_fork,
    .spawn = ls_real_spawn,
    .child_poll = ls_real_child_poll,
    .read_process = ls_real_read_process,
    .let_read = ls_real_let_read,
    .kill = ls_real_kill,
    .pipe = ls_real_pipe,
    .signal_fd = ls_real_signal_fd,
    .signal_read = ls_real_signal_read,
    .signal_release = ls_real_signal_release,
    .set_cloexec = ls_real_set_cloexec,
    .library = ls_real_library,
    .symbol = ls_real_symbol,
};
