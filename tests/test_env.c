/* The real env: each slot does in the real world what env.h says. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"

#define SECOND 1000000000u
#define N(a) (sizeof(a) / sizeof *(a))

static const ls_env *const env = &ls_env_real;
static char dir[64]; /* a fresh folder for each test of files */

static uint64_t in_s(unsigned s) { return env->mono_ns() + (uint64_t)s * SECOND; }

static void nap(void) { env->wait(NULL, 0, NULL, 0, env->mono_ns() + SECOND / 1000); }

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

/* --- sockets ------------------------------------------------------------------------------- */

static int accept_soon(int fd)
{
    int s;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_IN };
    for (uint64_t deadline = in_s(10); (s = env->accept(fd)) == -EAGAIN && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return s;
}

static ssize_t recv_soon(int fd, void *to, size_t n)
{
    ssize_t k;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_IN };
    for (uint64_t deadline = in_s(10); (k = env->recv(fd, to, n)) == -EAGAIN && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return k;
}

static int connect_result(int fd)
{
    int r;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_OUT };
    for (uint64_t deadline = in_s(10); (r = env->connect_done(fd)) == -EINPROGRESS && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return r;
}

static void a_descriptor_travels_over_an_abstract_socket(void **state)
{
    (void)state;
    char name[64], long_name[200];
    snprintf(name, sizeof name, "lockstep-test-env-%d", (int)getpid());
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(env->connect_unix(name), -ECONNREFUSED);
    int door = env->listen_unix(name);
    assert_true(door >= 0);
    assert_int_equal(env->listen_unix(name), -EADDRINUSE);
    assert_int_equal(env->listen_unix(long_name), -ENAMETOOLONG);
    assert_int_equal(access(name, F_OK), -1); /* nothing in the file system */
    assert_int_equal(env->accept(door), -EAGAIN);
    int us = env->connect_unix(name), them = accept_soon(door);
    assert_true(us >= 0 && them >= 0);
    assert_int_equal(env->connect_done(us), 0);
    assert_int_equal(env->peer_uid_is_ours(us), 1);
    assert_int_equal(env->peer_pid(us), env->pid());
    assert_true(env->parent_pid() == (int)getppid());
    assert_int_equal(env->peer_uid_is_ours(them), 1);

    assert_int_equal(env->recv_fd(us), -EAGAIN);
    int fd = env->memfd("passed", 4096);
    char *p = env->map_shared(fd, 4096, false);
    strcpy(p, "passed on");
    assert_int_equal(env->send_fd(them, fd), 0);
    int got = env->recv_fd(us);
    assert_true(got >= 0 && got != fd);
    assert_int_equal(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    char *q = env->map_shared(got, 4096, false);
    assert_string_equal(q, "passed on");

    assert_int_equal(env->send(them, "x", 1), 1);
    assert_int_equal(env->recv_fd(us), -EPROTO); /* a byte without a descriptor */
    env->close_fd(them);
    assert_int_equal(env->recv_fd(us), -ECONNRESET);
    env->close_fd(us);
    env->close_fd(door);
    env->close_fd(fd);
    env->close_fd(got);
    env->unmap(p, 4096);
    env->unmap(q, 4096);
    assert_int_equal(env->connect_unix(name), -ECONNREFUSED); /* the name went with its socket */
}

static void tcp_moves_bytes_and_tells_when_the_peer_closes(void **state)
{
    (void)state;
    int port = 0, other = 0;
    char text[8];
    int door = env->listen_tcp("127.0.0.1", 0, &port);
    assert_true(door >= 0);
    assert_in_range(port, 1, 65535);
    assert_int_equal(env->listen_tcp("127.0.0.1", port, &other), -EADDRINUSE);
    int us = env->connect_tcp("localhost", port), them = accept_soon(door);
    assert_true(us >= 0 && them >= 0);
    assert_int_equal(connect_result(us), 0);
    assert_int_equal(env->recv(them, text, sizeof text), -EAGAIN);
    assert_int_equal(env->send(us, "hello", 5), 5);
    assert_int_equal(recv_soon(them, text, sizeof text), 5);
    assert_memory_equal(text, "hello", 5);

    static char chunk[1 << 16];
    ssize_t k;
    size_t sent = 0;
    while ((k = env->send(us, chunk, sizeof chunk)) > 0 && sent < (size_t)1 << 30) sent += (size_t)k;
    assert_int_equal(k, -EAGAIN); /* full, not stuck */

    env->close_fd(us);
    for (size_t left = sent; left > 0; left -= (size_t)k) {
        k = recv_soon(them, chunk, sizeof chunk);
        assert_true(k > 0);
    }
    assert_int_equal(recv_soon(them, text, sizeof text), 0);
    for (int i = 0; i < 100 && (k = env->send(them, "x", 1)) == 1; i++) nap();
    assert_true(k == -EPIPE || k == -ECONNRESET); /* and no SIGPIPE */
    env->close_fd(them);
    env->close_fd(door);
    assert_int_equal(connect_result(us = env->connect_tcp("127.0.0.1", port)), -ECONNREFUSED);
    env->close_fd(us);
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

static void tcp_listens_elsewhere_and_tells_both_ends(void **state)
{
    (void)state;
    int port;
    char addr[64];
    int door = env->listen_open("0.0.0.0", 0, &port);
    assert_true(door >= 0);
    int us = env->connect_tcp("127.0.0.1", port), them = accept_soon(door);
    assert_int_equal(connect_result(us), 0);
    assert_int_equal(env->local_addr(us, addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->peer_addr(them, addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->peer_addr(door, addr, sizeof addr), -ENOTCONN);
    assert_int_equal(env->peer_addr(them, addr, 3), -ENOSPC);
    env->close_fd(us);
    env->close_fd(them);
    env->close_fd(door);
    assert_int_equal(env->resolve("127.0.0.1", addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->resolve("no.such.host.invalid", addr, sizeof addr), -ENOENT);
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

static void tcp_listens_on_loopback_only(void **state)
{
    (void)state;
    static const struct { const char *addr; int want; } row[] = {
        { "0.0.0.0", -EACCES }, { "10.1.2.3", -EACCES }, { "126.255.255.255", -EACCES }, { "128.0.0.1", -EACCES },
        { "::", -EACCES }, { "::2", -EACCES }, { "example.org", -EINVAL }, { "127.0.0.1:80", -EINVAL }, { "", -EINVAL },
    };
    int port = 0;
    for (size_t i = 0; i < N(row); i++) assert_int_equal(env->listen_tcp(row[i].addr, 0, &port), row[i].want);
    assert_int_equal(env->listen_tcp("127.0.0.1", 65536, &port), -EINVAL);
    int fd = env->listen_tcp("127.9.8.7", 0, &port);
    assert_true(fd >= 0);
    env->close_fd(fd);
    fd = env->listen_tcp("::1", 0, &port);
    assert_true(fd >= 0 || fd == -EADDRNOTAVAIL || fd == -EAFNOSUPPORT); /* a host without IPv6 */
    env->close_fd(fd);
}

static void names_who_holds_a_port(void **state)
{
    (void)state;
    int port = env->free_port(), bound = 0;
    char text[64] = "", want[64];
    assert_in_range(port, 1, 65535);
    assert_int_equal(env->port_holder(port, text, sizeof text), 0);
    int fd = env->listen_tcp("127.0.0.1", port, &bound); /* it was free */
    assert_true(fd >= 0);
    assert_int_equal(bound, port);
    snprintf(want, sizeof want, "pid %d (test_env)", (int)getpid());
    assert_int_equal(env->port_holder(port, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
    int us = env->connect_tcp("127.0.0.1", port), them = accept_soon(fd);
    env->close_fd(fd); /* what is left is a connection */
    assert_int_equal(env->port_holder(port, text, sizeof text), strlen(want));
    env->close_fd(us);
    env->close_fd(them);
}

/* --- processes ------------------------------------------------------------------------------- */

static int start(const char *const *argv, const ls_child *more, int *pidfd)
{
    ls_child c = more ? *more : (ls_child){ .stdout_fd = -1, .stderr_fd = -1 };
    c.argv = argv;
    return env->spawn(&c, pidfd);
}

static int start_shell(const char *script, const ls_child *more)
{
    return start((const char *const[]){ "sh", "-c", script, NULL }, more, NULL);
}

static ls_child_state state_soon(int pid, ls_child_state not_this, int *code)
{
    ls_child_state s;
    uint64_t deadline = in_s(10);
    while ((s = env->child_poll(pid, code)) == not_this && env->mono_ns() < deadline) nap();
    return s;
}

/* What a shell command prints when started so. */
static const char *output_of(const char *script, const ls_child *more)
{
    static char text[4096];
    int ends[2], code;
    ls_child c = *more;
    size_t have = 0;
    assert_int_equal(env->pipe(ends), 0);
    c.stdout_fd = ends[1];
    int pid = start_shell(script, &c);
    assert_true(pid > 0);
    env->close_fd(ends[1]);
    ls_pollfd p = { .fd = ends[0], .events = LS_POLL_IN };
    for (ssize_t k; (k = env->read(ends[0], text + have, sizeof text - 1 - have)) != 0;) {
        if (k > 0) have += (size_t)k;
        else env->wait(NULL, 0, &p, 1, in_s(10));
    }
    text[have] = 0;
    env->close_fd(ends[0]);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    return text;
}

static const ls_child plain = { .stdout_fd = -1, .stderr_fd = -1 };

static void a_program_that_cannot_start_says_why_and_leaves_no_child(void **state)
{
    (void)state;
    static const struct { const char *program; int want; } row[] = {
        { "lockstep-no-such-program", -ENOENT }, { "/no/such/program", -ENOENT }, { "/etc/passwd", -EACCES }, { "/", -EACCES },
    };
    for (size_t i = 0; i < N(row); i++) {
        int pidfd = 5;
        assert_int_equal(start((const char *const[]){ row[i].program, NULL }, NULL, &pidfd), row[i].want);
        assert_int_equal(pidfd, -1);
    }
    assert_int_equal(start((const char *const[]){ NULL }, NULL, NULL), -EINVAL);
    ls_child c = plain;
    c.cpu_first = env->cpus() + 8000;
    c.cpu_count = 1;
    assert_int_equal(start_shell("true", &c), -EINVAL);
    c = plain;
    c.keep_fds = (const int[]){ 999 };
    c.nkeep = 1;
    assert_int_equal(start_shell("true", &c), -EBADF);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void tells_how_a_child_ended(void **state)
{
    (void)state;
    int code, pidfd = -1;
    int pid = start_shell("exit 3", NULL);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(code, 3);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_EXITED); /* reaped before */
    assert_int_equal(code, -1);

    pid = start((const char *const[]){ "sleep", "100", NULL }, NULL, &pidfd);
    assert_true(pid > 0 && pidfd >= 0);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_RUNNING);
    assert_int_equal(env->kill(pid, SIGSTOP), 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_STOPPED);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_STOPPED); /* and stays so for who asks next */
    assert_int_equal(env->kill(pid, SIGCONT), 0);
    assert_int_equal(state_soon(pid, LS_CHILD_STOPPED, &code), LS_CHILD_RUNNING);
    assert_int_equal(env->kill(pid, SIGKILL), 0);
    ls_pollfd p = { .fd = pidfd, .events = LS_POLL_IN };
    env->wait(NULL, 0, &p, 1, in_s(10));
    assert_int_equal(p.revents & LS_POLL_IN, LS_POLL_IN);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_SIGNALED);
    assert_int_equal(code, SIGKILL);
    env->close_fd(pidfd);
}

static void kill_refuses_everyone(void **state)
{
    (void)state;
    assert_int_equal(env->kill(0, SIGKILL), -EINVAL);
    assert_int_equal(env->kill(-1, SIGKILL), -EINVAL);
}

static void a_child_gets_environment_descriptors_and_cpus_as_given(void **state)
{
    (void)state;
    int fd = env->memfd("kept", 4096), closed = env->memfd("closed", 4096), code;
    char script[128], want[64];
    assert_int_equal(setenv("LOCKSTEP_TEST_A", "ours", 1), 0);
    assert_int_equal(setenv("LOCKSTEP_TEST_B", "ours", 1), 0);

    ls_child c = plain;
    c.env_set = (const char *const[]){ "LOCKSTEP_TEST_B=set", "LOCKSTEP_TEST_BB=new", NULL };
    assert_string_equal(output_of("echo $LOCKSTEP_TEST_A $LOCKSTEP_TEST_B $LOCKSTEP_TEST_BB", &c), "ours set new\n");
    assert_string_equal(getenv("LOCKSTEP_TEST_B"), "ours");

    c = plain;
    c.keep_fds = &fd;
    c.nkeep = 1;
    snprintf(script, sizeof script, "readlink /proc/$$/fd/%d /proc/$$/fd/%d", fd, closed);
    assert_string_equal(output_of(script, &c), "/memfd:kept (deleted)\n");

    c = plain;
    c.cpu_count = 1;
    c.cpu_first = env->cpus() - 1;
    assert_string_equal(output_of("nproc", &c), "1\n");

    c = plain;
    c.own_group = true;
    int pid = start_shell("test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$", &c);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(code, 0);

    snprintf(want, sizeof want, "%d\n", (int)getpgrp());
    assert_string_equal(output_of("cut -d' ' -f5 /proc/$$/stat", &plain), want);
    env->close_fd(fd);
    env->close_fd(closed);
}

static void both_streams_may_change_places(void **state)
{
    (void)state;
    int a[2], b[2], code;
    char text[8] = "";
    assert_int_equal(env->pipe(a), 0);
    assert_int_equal(env->pipe(b), 0);
    ls_child c = { .stdout_fd = a[1], .stderr_fd = b[1] };
    int pid = start_shell("printf out; printf err >&2", &c);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(env->read(a[0], text, sizeof text), 3);
    assert_memory_equal(text, "out", 3);
    assert_int_equal(env->read(b[0], text, sizeof text), 3);
    assert_memory_equal(text, "err", 3);

    c = (ls_child){ .stdout_fd = 2, .stderr_fd = 1 };
    int out = dup(1), err = dup(2);
    fflush(stdout);
    dup2(a[1], 1);
    dup2(b[1], 2);
    pid = start_shell("printf out; printf err >&2", &c);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(env->read(a[0], text, sizeof text), 3);
    assert_memory_equal(text, "err", 3);
    for (int i = 0; i < 2; i++) {
        env->close_fd(a[i]);
        env->close_fd(b[i]);
    }
}

static void handler(int sig) { (void)sig; }

static void a_child_starts_with_no_signal_blocked_or_handled(void **state)
{
    (void)state;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGUSR2, handler);
    const char *status = output_of("exec cat /proc/self/status", &plain);
    assert_non_null(strstr(status, "SigBlk:\t0000000000000000\n"));
    assert_non_null(strstr(status, "SigCgt:\t0000000000000000\n"));
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    assert_int_equal(sigismember(&now, SIGTERM), 1); /* ours is as it was */
    signal(SIGUSR2, SIG_DFL);
}

/* A process between us and the child ends; we adopt the child and see what became of it. */
static void a_child_dies_with_its_parent_if_told(void **state)
{
    (void)state;
    int told[2], code, pid = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe(told), 0);
    pid_t middle = fork();
    if (middle == 0) {
        ls_child c = plain;
        c.die_with_parent = true;
        int child = start((const char *const[]){ "sleep", "100", NULL }, &c, NULL);
        ssize_t k = write(told[1], &child, sizeof child);
        _exit(k == (ssize_t)sizeof child ? 0 : 1);
    }
    assert_int_equal(read(told[0], &pid, sizeof pid), sizeof pid);
    assert_true(pid > 0);
    assert_int_equal(state_soon(middle, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_SIGNALED);
    assert_int_equal(code, SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(told[0]);
    close(told[1]);
}

static void signals_are_read_from_a_descriptor(void **state)
{
    (void)state;
    sigset_t old;
    sigprocmask(SIG_SETMASK, NULL, &old);
    int fd = env->signal_fd((const int[]){ SIGUSR1, SIGUSR2 }, 2);
    assert_true(fd >= 0);
    assert_int_equal(env->signal_read(fd), 0);
    assert_int_equal(env->kill(getpid(), SIGUSR1), 0);
    assert_int_equal(env->signal_read(fd), SIGUSR1);
    assert_int_equal(env->signal_read(fd), 0);
    env->close_fd(fd);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

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
        cmocka_unit_test(a_scratch_file_is_opened_by_its_path),
        cmocka_unit_test(private_memory_is_zero_and_present),
        IN_FOLDER(files_are_written_and_read_back),
        IN_FOLDER(open_read_takes_regular_files_only_and_never_blocks),
        IN_FOLDER(folders_are_listed_in_order),
        cmocka_unit_test(a_pipe_is_no_terminal),
        cmocka_unit_test(a_descriptor_travels_over_an_abstract_socket),
        cmocka_unit_test(tcp_moves_bytes_and_tells_when_the_peer_closes),
        cmocka_unit_test(tcp_listens_on_loopback_only),
        cmocka_unit_test(tcp_listens_elsewhere_and_tells_both_ends),
        cmocka_unit_test(secret_memory_is_left_out_of_dumps),
        cmocka_unit_test(info_of_an_open_file),
        cmocka_unit_test(names_who_holds_a_port),
        cmocka_unit_test(a_program_that_cannot_start_says_why_and_leaves_no_child),
        cmocka_unit_test(tells_how_a_child_ended),
        cmocka_unit_test(kill_refuses_everyone),
        cmocka_unit_test(a_child_gets_environment_descriptors_and_cpus_as_given),
        cmocka_unit_test(both_streams_may_change_places),
        cmocka_unit_test(a_child_starts_with_no_signal_blocked_or_handled),
        cmocka_unit_test(a_child_dies_with_its_parent_if_told),
        cmocka_unit_test(signals_are_read_from_a_descriptor),
        cmocka_unit_test(loads_a_library_and_finds_its_symbols),
    };
    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
