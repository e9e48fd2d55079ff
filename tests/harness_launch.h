/* harness_launch.h -- jobs for the suites of ls_launch. Most ranks are shell scripts; those that need the world page
 * are the suite's program started again, with a role as its first argument.
 */
#ifndef LS_TEST_HARNESS_LAUNCH_H
#define LS_TEST_HARNESS_LAUNCH_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/env.h"
#include "lockstep/launch.h"
#include "meet/page.h"
#include "meet/store.h"

static char self[4096]; /* this program; set by find_self and never again */

/* --- running a job ---------------------------------------------------------------------------- */

/* More than any machine needs for what a script does when it is told to end: the launcher kills nobody before. */
static const uint64_t long_ns = 100000000000u;

typedef struct outcome {
    ls_status st;
    ls_launch_result r;
    char *err;   /* everything on stderr */
    char *out;   /* and stdout */
    double s;    /* how long it took */
} outcome;

static inline char *whole(int fd)
{
    off_t n = lseek(fd, 0, SEEK_END);
    char *p = calloc(1, (size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(pread(fd, p, (size_t)n, 0), n);
    close(fd);
    return p;
}

static inline int scratch_file(void)
{
    char path[] = "/tmp/lockstep-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static inline outcome launch(const ls_launch_opts *o)
{
    outcome x = { 0 };
    int out = scratch_file(), err = scratch_file();
    int was_out = fcntl(1, F_DUPFD_CLOEXEC, 3), was_err = fcntl(2, F_DUPFD_CLOEXEC, 3);
    uint64_t t0 = ls_env_get()->mono_ns();
    fflush(NULL);
    dup2(out, 1);
    dup2(err, 2);
    x.st = ls_launch(o, &x.r);
    dup2(was_out, 1);
    dup2(was_err, 2);
    close(was_out);
    close(was_err);
    x.s = (double)(ls_env_get()->mono_ns() - t0) * 1e-9;
    x.out = whole(out);
    x.err = whole(err);
    return x;
}

static inline void release(outcome *x)
{
    free(x->out);
    free(x->err);
}

static inline outcome shell(int nproc, const char *script, ls_launch_opts o)
{
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    o.argv = argv;
    o.nproc = nproc;
    return launch(&o);
}

static inline outcome role(int nproc, const char *name, ls_launch_opts o)
{
    const char *argv[] = { self, name, NULL };
    o.argv = argv;
    o.nproc = nproc;
    return launch(&o);
}

static inline bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static inline char *folder(void)
{
    static const char form[] = "/tmp/lockstep-test-XXXXXX";
    char *path = malloc(sizeof form);
    assert_non_null(path);
    memcpy(path, form, sizeof form);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void remove_folder(char *path)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
    free(path);
}

/* What a shell command prints in the folder `dir`, for the caller to free. */
static inline char *printed(const char *dir, const char *what)
{
    char command[4200];
    snprintf(command, sizeof command, "cd %s && %s", dir, what);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    size_t n = fread(text, 1, 65535, f);
    text[n] = 0;
    pclose(f);
    return text;
}

/* --- ranks that know the world page ------------------------------------------------------------ */

static inline ls_world_page *join(int *rank, ls_store_client **client)
{
    const ls_env *env = ls_env_get();
    uint8_t secret[LS_SECRET_BYTES];
    int fd = -1, size = atoi(getenv("WORLD_SIZE"));
    *rank = atoi(getenv("RANK"));
    if (pread(atoi(getenv("LOCKSTEP_SECRET_FD")), secret, sizeof secret, 0) != sizeof secret) exit(100);
    ls_store_caller who = { .unix_name = getenv("LOCKSTEP_STORE"), .secret = secret, .rank = *rank, .size = size };
    if (ls_store_connect(&who, env->mono_ns() + 10000000000u, client, &fd) < 0)
        exit(101);
    ls_world_page *page = env->map_shared(fd, ls_page_bytes(size), true);
    if (!page || ls_page_check(page, ls_page_bytes(size), size) < 0) exit(102);
    atomic_store(&page->rank[*rank].state, LS_RANK_RUNNING);
    atomic_store(&page->rank[*rank].step, 12);
    return page;
}

/* Both are there before anything happens. */
static inline void meet(ls_store_client *c, int rank)
{
    char key[16], byte;
    uint64_t deadline = ls_env_get()->mono_ns() + 10000000000u;
    snprintf(key, sizeof key, "met/%d", rank);
    if (ls_store_set(c, key, "x", 1, deadline) < 0) exit(103);
    for (int r = 0; r < atoi(getenv("WORLD_SIZE")); r++) {
        size_t n = 1;
        snprintf(key, sizeof key, "met/%d", r);
        if (ls_store_get(c, key, &byte, &n, deadline) < 0) exit(104);
    }
}

static inline void until_aborted(const ls_world_page *page)
{
    for (int i = 0; i < 20000; i++) {
        if (atomic_load(&page->abort_ready)) return;
        usleep(1000);
    }
    exit(105);
}

/* Runs a rank of role(): `play` is its part, once all ranks have met; what it returns is the exit code. */
static inline int act(const char *name, int (*play)(const char *name, int rank, ls_world_page *page))
{
    ls_store_client *client;
    int rank;
    ls_world_page *page = join(&rank, &client);
    meet(client, rank);
    int code = play(name, rank, page);
    ls_store_disconnect(client);
    return code;
}

/* A suite whose program is also a rank calls this first. False: the program is not found. */
static inline bool find_self(void) { return readlink("/proc/self/exe", self, sizeof self - 1) > 0; }

#endif
