/* The real env: time, memory, files and libraries do in the real world what env.h says.
 * Its sockets are in test_env_sockets.c, its processes in test_env_process.c. */
#include "harness_env.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64]; /* a fresh folder for each test of files */

/* --- time and waiting ------------------------------------------------------------------ */

static void time_passes_and_random_bytes_differ(void **state)
{
    (void)state;
    uint64_t t0 = env->mono_ns(), a[4] = { 0 }, b[4] = { 0 };
    nap();
    assert_true(env->mono_ns() > t0);
    assert_true(env->wall_ns() > (int64_t)1600000000 * SECOND); /* after 2020 */
    env->random(a, sizeof a);
    env->random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void wait_lasts_until_the_deadline(void **state)
{
    (void)state;
    uint32_t word = 7;
    int ends[2];
    assert_int_equal(env->pipe(ends), 0);
    ls_pollfd fd = { .fd = ends[0], .events = LS_POLL_IN };
    const struct { const uint32_t *word; ls_pollfd *fds; int nfds; } row[] = {
        { NULL, NULL, 0 }, { &word, NULL, 0 }, { NULL, &fd, 1 }, { &word, &fd, 1 },
    };
    for (size_t i = 0; i < N(row); i++) {
        uint64_t deadline = env->mono_ns() + SECOND / 100;
        int turns = 0;
        while (env->mono_ns() < deadline) { /* it may return early, but must not spin */
            env->wait(row[i].word, 7, row[i].fds, row[i].nfds, deadline);
            turns++;
        }
        assert_true(turns <= 3);
    }
    env->close_fd(ends[0]);
    env->close_fd(ends[1]);
}

static void wait_returns_at_once_when_the_word_differs_or_a_descriptor_is_ready(void **state)
{
    (void)state;
    uint32_t word = 7;
    int ends[2];
    assert_int_equal(env->pipe(ends), 0);
    ls_pollfd fd = { .fd = ends[0], .events = LS_POLL_IN };
    uint64_t t0 = env->mono_ns();
    env->wait(&word, 8, NULL, 0, t0 + 20ull * SECOND);
    env->wait(&word, 8, &fd, 1, t0 + 20ull * SECOND);
    assert_int_equal(fd.revents, 0);
    assert_int_equal(env->write(ends[1], "x", 1), 1);
    env->wait(NULL, 0, &fd, 1, UINT64_MAX);
    assert_int_equal(fd.revents & LS_POLL_IN, LS_POLL_IN);
    env->wait(&word, 7, &fd, 1, UINT64_MAX);
    fd.revents = 0;
    env->wait(&word, 8, &fd, 1, UINT64_MAX); /* both: revents are filled all the same */
    assert_int_equal(fd.revents & LS_POLL_IN, LS_POLL_IN);
    assert_true(env->mono_ns() - t0 < 10ull * SECOND);
    env->close_fd(ends[0]);
    env->close_fd(ends[1]);
}

typedef struct sleeper {
    _Atomic uint32_t word;
    _Atomic int tid, woken;
} sleeper;

static void sleep_on_word(void *arg)
{
    sleeper *s = arg;
    atomic_store(&s->tid, (int)syscall(SYS_gettid));
    uint64_t deadline = in_s(20);
    while (atomic_load(&s->word) == 0 && env->mono_ns() < deadline)
        env->wait((const uint32_t *)(const void *)&s->word, 0, NULL, 0, deadline);
    atomic_fetch_add(&s->woken, 1);
}

static void wait_until_asleep(const sleeper *s)
{
    while (atomic_load(&s->tid) == 0) env->yield();
    while (env->proc_state(atomic_load(&s->tid)) != 'S') env->yield();
}

static void wake_reaches_every_thread(void **state)
{
    (void)state;
    sleeper s = { .word = 0 };
    void *handle[3];
    uint64_t t0 = env->mono_ns();
    for (size_t i = 0; i < N(handle); i++) {
        atomic_store(&s.tid, 0);
        assert_int_equal(env->thread_start(sleep_on_word, &s, &handle[i]), 0);
        wait_until_asleep(&s);
    }
    atomic_store(&s.word, 1); /* they sleep for certain: the store goes unseen, only the wake gets them up */
    env->wake((const uint32_t *)(const void *)&s.word);
    for (size_t i = 0; i < N(handle); i++) env->thread_join(handle[i]);
    assert_int_equal(atomic_load(&s.woken), N(handle));
    assert_true(env->mono_ns() - t0 < 10ull * SECOND);
}

static void wake_reaches_another_process(void **state)
{
    (void)state;
    int fd = env->memfd("word", 4096);
    assert_true(fd >= 0);
    sleeper *s = env->map_shared(fd, 4096, true);
    assert_non_null(s);
    uint64_t t0 = env->mono_ns();
    pid_t pid = fork();
    if (pid == 0) {
        sleep_on_word(s);
        _exit(0);
    }
    wait_until_asleep(s);
    atomic_store(&s->word, 1);
    env->wake((const uint32_t *)(const void *)&s->word);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(atomic_load(&s->woken), 1);
    assert_true(env->mono_ns() - t0 < 10ull * SECOND);
    env->unmap(s, 4096);
    env->close_fd(fd);
}

/* --- the machine and memory --------------------------------------------------------------- */

static void sees_the_machine(void **state)
{
    (void)state;
    char text[512];
    assert_in_range(env->cpus(), 1, sysconf(_SC_NPROCESSORS_CONF));
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(env->mem_available() > (1u << 20) && env->mem_available() <= total);
    assert_true(env->hostname(text, sizeof text) > 0);
    assert_true(env->self_path(text, sizeof text) > 0);
    assert_non_null(strstr(text, "/test_env"));
    assert_int_equal(env->self_path(text, 4), -ENAMETOOLONG);
    FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
    bool tiles = false;
    char *line = NULL;
    size_t capacity = 0;
    while (cpuinfo && getline(&line, &capacity, cpuinfo) > 0) tiles |= strstr(line, " amx_tile") != NULL;
    free(line);
    if (cpuinfo) fclose(cpuinfo);
    if (tiles) assert_int_equal(env->use_tiles(), 0);
    else assert_in_range(-env->use_tiles(), 1, 4095);
    assert_int_equal(env->pid(), getpid());
    assert_null(env->getenv("LOCKSTEP_NO_SUCH_VARIABLE"));
    assert_int_equal(setenv("LOCKSTEP_TEST_VARIABLE", "here", 1), 0);
    assert_string_equal(env->getenv("LOCKSTEP_TEST_VARIABLE"), "here");
}

static void cpus_follow_the_affinity(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        cpu_set_t all, one;
        if (sched_getaffinity(0, sizeof all, &all) != 0) _exit(2);
        CPU_ZERO(&one);
        for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
            if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
        uint64_t mask[128];
        if (sched_setaffinity(0, sizeof one, &one) != 0 || env->cpus() != 1 || env->cpu_mask(mask, 128) != 1) _exit(1);
        for (size_t i = 0; i < CPU_SETSIZE; i++)
            if ((mask[i / 64] >> i % 64 & 1) != (CPU_ISSET(i, &one) ? 1u : 0u)) _exit(3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void sees_a_debugger_and_a_stopped_process(void **state)
{
    (void)state;
    assert_false(env->traced(-1));
    assert_int_equal(env->proc_state(-1), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(env->traced(pid));
    assert_int_equal(env->proc_state(pid), 'T');
    assert_int_equal(env->kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(env->proc_state(pid), 0);
}

/* -EPERM where this system refuses it, for our own memory too: then it says so, and that is all there is to see. */
static void reads_memory_of_a_process(void **state)
{
    (void)state;
    const size_t n = (size_t)3 << 20, page = 4096;
    char *from = mmap(NULL, n + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *to = malloc(n);
    assert_true(from != MAP_FAILED && to);
    for (size_t i = 0; i < n; i++) from[i] = (char)(i * 31 >> 3);
    const int r = env->read_process(getpid(), (uint64_t)(uintptr_t)from, to, n);
    if (r == -EPERM || r == -ENOSYS) {
        print_message("this system refuses process_vm_readv: %s\n", strerror(-r));
        skip();
    }
    assert_int_equal(r, 0);
    assert_memory_equal(to, from, n);
    memset(to, 0, n);
    assert_int_equal(env->read_process(getpid(), (uint64_t)(uintptr_t)from + 1, to, 1), 0);
    assert_true(to[0] == from[1] && to[1] == 0);
    assert_int_equal(env->read_process(getpid(), 0, to, 0), 0);
    munmap(from + n, page); /* all but the last bytes are there: a short read is no success */
    assert_int_equal(env->read_process(getpid(), (uint64_t)(uintptr_t)from + page, to, n), -EFAULT);
    assert_int_equal(env->read_process(getpid(), 0, to, 8), -EFAULT);
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(env->read_process(pid, (uint64_t)(uintptr_t)from, to, 8), -ESRCH);
    const int let = env->let_read(getppid());
    assert_true(let == 0 || let == -EINVAL); /* EINVAL: there is no Yama here */
    munmap(from, n);
    free(to);
}

static void a_memfd_is_shared_sealed_and_reserved(void **state)
{
    (void)state;
    const size_t n = 3 * 4096;
    int fd = env->memfd("sealed", n);
    assert_true(fd >= 0);
    assert_int_equal(env->fd_size(fd), n);
    struct stat s;
    assert_int_equal(fstat(fd, &s), 0);
    assert_true((size_t)s.st_blocks * 512 >= n);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1); /* nor can a peer seal it further */
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);

    char *a = env->map_shared(fd, n, true), *b = env->map_shared(fd, n, false);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    a[n - 1] = 'x';
    assert_int_equal(b[n - 1], 'x');
    env->unmap(a, n);
    env->unmap(b, n);
    env->close_fd(fd);
    assert_int_equal(env->memfd("absurd", SIZE_MAX), -EFBIG);
    assert_null(env->map_shared(-1, 4096, true));
}

/* KiB of the mapping that contains p which the kernel maps by huge pages, as it says itself. */
static long huge_kib(const void *p)
{
    char line[256];
    unsigned long first, end;
    long kib = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2) here = first <= (uintptr_t)p && (uintptr_t)p < end;
        else if (here) sscanf(line, "ShmemPmdMapped: %ld", &kib);
    }
    if (f) fclose(f);
    return kib;
}

#define HUGE ((size_t)2 << 20)

/* Whether this kernel makes a huge page of shared memory for who asks: ours of two, so that one is aligned. */
static bool kernel_collapses(void)
{
    int fd = memfd_create("ours", 0);
    assert_int_equal(ftruncate(fd, 2 * HUGE), 0);
    char *p = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = p + (-(uintptr_t)p & (HUGE - 1));
    assert_ptr_equal(mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), at);
    at[0] = 1;
    const bool does = madvise(at, HUGE, 25 /* MADV_COLLAPSE */) == 0 && huge_kib(at) > 0;
    munmap(p, 4 * HUGE);
    close(fd);
    return does;
}

/* Each mapping of long shared memory, so that a peer's reads miss the TLB as seldom as the owner's; all other promises
 * of a memfd hold, also for the end that is no whole huge page. */
static void long_shared_memory_is_in_huge_pages(void **state)
{
    (void)state;
    const size_t n = 20 * HUGE + 5 * 4096;
    int fd = env->memfd("long", n);
    struct stat s;
    assert_true(fd >= 0);
    assert_int_equal(env->fd_size(fd), n);
    assert_int_equal(fstat(fd, &s), 0);
    assert_true((size_t)s.st_blocks * 512 >= n);
    assert_int_equal(ftruncate(fd, (off_t)(2 * n)), -1);
    char *a = env->map_shared(fd, n, true), *b = env->map_shared(fd, n, true);
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < n; i += 4096) assert_int_equal(a[i], 0);
    for (size_t i = 0; i < n; i += 4096) a[i] = (char)(i >> 12);
    for (size_t i = 0; i < n; i += 4096) assert_int_equal(b[i], (char)(i >> 12));
    assert_int_equal((uintptr_t)a % HUGE, 0);
    assert_int_equal((uintptr_t)b % HUGE, 0);
    if (kernel_collapses()) {
        assert_int_equal(huge_kib(b), huge_kib(a));
        print_message("%zu KiB in huge pages\n", huge_kib(a));
    } else {
        print_message("this kernel makes no huge pages of shared memory: not tested\n");
    }
    env->unmap(a, n);
    env->unmap(b, n);
    env->close_fd(fd);
}

/* As a child of ours does. */
static void a_scratch_file_is_opened_by_its_path(void **state)
{
    (void)state;
    char path[64], got[8] = "", here[4096], short_name[2];
    int fd = env->scratch("reply");
    assert_true(fd >= 0);
    assert_int_equal(env->fd_size(fd), 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", env->pid(), fd);
    int other = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(other >= 0);
    assert_int_equal(write(other, "hello", 5), 5);
    close(other);
    assert_int_equal(env->fd_size(fd), 5);
    assert_int_equal(env->pread(fd, got, sizeof got - 1, 0), 5);
    assert_string_equal(got, "hello");
    env->close_fd(fd);
    assert_int_equal(access(path, F_OK), -1);

    assert_int_equal(env->folder(here, sizeof here), 0);
    assert_int_equal(here[0], '/');
    assert_int_equal(env->folder(short_name, sizeof short_name), -ERANGE);
}

static void private_memory_is_zero_and_present(void **state)
{
    (void)state;
    const size_t n = 64 * 4096;
    unsigned char *p = env->map_private(n), present[64];
    assert_non_null(p);
    assert_int_equal(syscall(SYS_mincore, p, n, present), 0);
    for (size_t i = 0; i < 64; i++) assert_int_equal(present[i] & 1, 1);
    for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
    env->unmap(p, n);
    env->unmap(NULL, 0);
    assert_null(env->map_private((size_t)1 << 62));
}

static void secret_memory_is_left_out_of_dumps(void **state)
{
    (void)state;
    char *p = env->map_secret(4096), line[512], wanted[32];
    assert_non_null(p);
    for (int i = 0; i < 4096; i++) assert_int_equal(p[i], 0);
    p[0] = 1;
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)(uintptr_t)p);
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    bool here = false, left_out = false;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmFlags:", 8) != 0 && strchr(line, '-')) here = strncmp(line, wanted, strlen(wanted)) == 0;
        if (here && strncmp(line, "VmFlags:", 8) == 0) left_out = strstr(line, " dd") != NULL;
    }
    fclose(f);
    assert_true(left_out);
    env->unmap(p, 4096);
}

/* --- files --------------------------------------------------------------------------------- */

static int enter_folder(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/lockstep-test-env-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    char names[1024];
    int n = env->list(dir, names, sizeof names);
    for (char *p = names; n > 0; n--, p += strlen(p) + 1)
        if (env->unlink(p) < 0) env->rmdir(p);
    return chdir("/") == 0 ? env->rmdir(dir) : -1;
}

static void files_are_written_and_read_back(void **state)
{
    (void)state;
    char text[16] = "";
    ls_file_info info;
    int fd = env->create("a");
    assert_true(fd >= 0);
    assert_int_equal(env->create("a"), -EEXIST);
    assert_int_equal(env->write(fd, "hello", 5), 5);
    assert_int_equal(env->write_behind(fd, 0, 1), 0);
    assert_int_equal(env->fsync(fd), 0);
    env->close_fd(fd);
    fd = env->append("a");
    assert_true(fd >= 0);
    assert_int_equal(env->write(fd, ", you", 5), 5);
    env->close_fd(fd);

    assert_int_equal(env->rename("a", "b"), 0);
    assert_int_equal(env->fsync_dir("."), 0);
    assert_int_equal(env->info("a", &info), 0);
    assert_int_equal(info.type, LS_FILE_NONE);
    assert_int_equal(env->info("b", &info), 0);
    assert_int_equal(info.type, LS_FILE_REGULAR);
    assert_int_equal(info.size, 10);
    assert_int_equal(info.mode & 0133, 0); /* nobody else may write to it, as the umask says */
    assert_true(info.owned);

    fd = env->open_read("b");
    assert_true(fd >= 0);
    assert_int_equal(env->fd_size(fd), 10);
    assert_int_equal(env->pread(fd, text, sizeof text, 7), 3);
    assert_memory_equal(text, "you", 3);
    assert_int_equal(env->read(fd, text, sizeof text), 10);
    assert_memory_equal(text, "hello, you", 10);
    assert_int_equal(env->read(fd, text, sizeof text), 0);
    assert_int_equal(env->write(fd, "x", 1), -EBADF);
    env->close_fd(fd);
    assert_int_equal(env->unlink("b"), 0);
    assert_int_equal(env->unlink("b"), -ENOENT);

    const mode_t was = umask(0);
    env->close_fd(env->create_secret("c"));
    umask(was);
    assert_int_equal(env->info("c", &info), 0);
    assert_int_equal(info.mode, 0600);
    assert_int_equal(env->create_secret("c"), -EEXIST);
    assert_int_equal(env->mkdir("d"), 0);
    assert_int_equal(env->exchange("c", "d"), 0);
    assert_int_equal(env->info("c", &info), 0);
    assert_int_equal(info.type, LS_FILE_DIR);
    assert_int_equal(env->exchange("c", "none"), -ENOENT);
}

static void open_read_takes_regular_files_only_and_never_blocks(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(env->mkdir("folder"), 0);
    assert_int_equal(symlink("/etc/passwd", "link"), 0);
    static const struct { const char *path; int want; } row[] = {
        { "missing", -ENOENT }, { "link", -ELOOP }, { "folder", -EISDIR }, { "fifo", -EINVAL }, { "/dev/zero", -EINVAL },
    };
    for (size_t i = 0; i < N(row); i++) assert_int_equal(env->open_read(row[i].path), row[i].want);
    assert_true(env->append("fifo") < 0);
    assert_int_equal(env->append("link"), -ELOOP);
    assert_int_equal(env->create("link"), -EEXIST);
}

static void folders_are_listed_in_order(void **state)
{
    (void)state;
    static const char *const made[] = { "b", "a", "C", "ab", ".hidden" };
    char names[64];
    ls_file_info info;
    assert_int_equal(env->list(".", names, sizeof names), 0);
    for (size_t i = 0; i < N(made); i++) env->close_fd(env->create(made[i]));
    assert_int_equal(env->list(".", names, sizeof names), 5);
    assert_memory_equal(names, ".hidden\0C\0a\0ab\0b", 17);
    assert_int_equal(env->list(".", names, 16), -ENOBUFS);
    assert_int_equal(env->list(".", names, 17), 5);
    assert_int_equal(env->list("missing", names, sizeof names), -ENOENT);
    assert_int_equal(env->mkdir("d"), 0);
    assert_int_equal(env->mkdir("d"), -EEXIST);
    assert_int_equal(symlink("d", "l"), 0);
    assert_int_equal(env->info("d", &info), 0);
    assert_int_equal(info.type, LS_FILE_DIR);
    assert_int_equal(env->info("l", &info), 0);
    assert_int_equal(info.type, LS_FILE_OTHER);
    assert_int_equal(env->info("a/b", &info), 0); /* below a file there is nothing */
    assert_int_equal(info.type, LS_FILE_NONE);
}

static void a_pipe_is_no_terminal(void **state)
{
    (void)state;
    int ends[2];
    char c;
    assert_int_equal(env->pipe(ends), 0);
    assert_false(env->isatty(ends[0]));
    assert_int_equal(env->columns(ends[0]), 80);
    assert_int_equal(env->read(ends[0], &c, 1), -EAGAIN);
    assert_int_equal(fcntl(ends[1], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(env->set_cloexec(ends[1], false), 0);
    assert_int_equal(fcntl(ends[1], F_GETFD) & FD_CLOEXEC, 0);
    assert_int_equal(env->set_cloexec(-1, true), -EBADF);
    env->close_fd(ends[0]);
    env->close_fd(ends[1]);
}

static void info_of_an_open_file(void **state)
{
    (void)state;
    ls_file_info info;
    char path[] = "/tmp/lockstep-test-info-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", 3), 3);
    assert_int_equal(env->fd_info(fd, &info), 0);
    assert_int_equal(info.type, LS_FILE_REGULAR);
    assert_int_equal(info.size, 3);
    assert_int_equal(info.mode, 0600);
    assert_true(info.owned);
    close(fd);
    unlink(path);
    assert_int_equal(env->fd_info(fd, &info), -EBADF);
}

/* --- libraries --------------------------------------------------------------------------- */

static void loads_a_library_and_finds_its_symbols(void **state)
{
    (void)state;
    char why[256] = "";
    assert_null(env->library("/nonexistent/liblockstep_none.so", false, why, sizeof why));
    assert_non_null(strstr(why, "liblockstep_none.so"));
    void *library = env->library("libm.so.6", false, why, sizeof why);
    assert_non_null(library);
    assert_non_null(env->symbol(library, "cos"));
    assert_null(env->symbol(library, "ls_no_such_symbol"));
    assert_non_null(env->symbol(NULL, "malloc"));
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_passes_and_random_bytes_differ),
        cmocka_unit_test(wait_lasts_until_the_deadline),
        cmocka_unit_test(wait_returns_at_once_when_the_word_differs_or_a_descriptor_is_ready),
        cmocka_unit_test(wake_reaches_every_thread),
        cmocka_unit_test(wake_reaches_another_process),
        cmocka_unit_test(sees_the_machine),
        cmocka_unit_test(cpus_follow_the_affinity),
        cmocka_unit_test(sees_a_debugger_and_a_stopped_process),
        cmocka_unit_test(reads_memory_of_a_process),
        cmocka_unit_test(a_memfd_is_shared_sealed_and_reserved),
        cmocka_unit_test(long_shared_memory_is_in_huge_pages),
        cmocka_unit_test(a_scratch_file_is_opened_by_its_path),
        cmocka_unit_test(private_memory_is_zero_and_present),
        IN_FOLDER(files_are_written_and_read_back),
        IN_FOLDER(open_read_takes_regular_files_only_and_never_blocks),
        IN_FOLDER(folders_are_listed_in_order),
        cmocka_unit_test(a_pipe_is_no_terminal),
        cmocka_unit_test(secret_memory_is_left_out_of_dumps),
        cmocka_unit_test(info_of_an_open_file),
        cmocka_unit_test(loads_a_library_and_finds_its_symbols),
    };
    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
