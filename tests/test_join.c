/* ls_world_join from a process's environment: what is missing or wrong is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "base/context.h"
#include "base/env.h"
#include "lockstep/group.h"
#include "lockstep/world.h"

#define MOST 6

/* What a child found: in memory that both see. */
typedef struct finding {
    ls_status status;
    int rank, size;
    char error[512];
    uint64_t took_ns, longest_ns; /* longest: that it slept at once */
} finding;

static finding *found;
static ls_env usual;

/* Sleeps that wait for nothing else. */
static void note_sleep(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    const uint64_t now = usual.mono_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;
    if (!word && nfds == 0 && ns > found->longest_ns) found->longest_ns = ns;
    usual.wait(word, value, fds, nfds, deadline_ns);
}

/* Joins in a process of its own, whose environment has these variables only. */
static finding join_with(const char *const set[MOST], uint64_t timeout_ns)
{
    static const char *const all[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                      "LOCKSTEP_LISTEN", "LOCKSTEP_SECRET_FILE" };
    finding *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f != MAP_FAILED);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ls_world *w = NULL;
        ls_world_opts opts = { .join_timeout_ns = timeout_ns };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
        for (int i = 0; i < MOST && set[i]; i++) putenv((char *)(uintptr_t)set[i]);
        ls_env env = usual = *ls_env_get();
        env.wait = note_sleep;
        ls_context_get()->env = &env;
        found = f;
        uint64_t t0 = ls_env_get()->mono_ns();
        f->status = ls_world_join(&opts, &w);
        f->took_ns = ls_env_get()->mono_ns() - t0;
        snprintf(f->error, sizeof f->error, "%s", ls_last_error());
        if (w) {
            f->rank = ls_world_rank(w);
            f->size = ls_world_size(w);
        }
        ls_world_leave(w);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    finding out = *f;
    munmap(f, sizeof *f);
    return out;
}

static void is_a_world_of_one_without_variables(void **state)
{
    (void)state;
    finding f = join_with((const char *[MOST]){ NULL }, 0);
    assert_int_equal(f.status, LS_OK);
    assert_int_equal(f.rank, 0);
    assert_int_equal(f.size, 1);
}

static void names_the_ranks_that_never_came(void **state)
{
    (void)state;
    char port[32];
    snprintf(port, sizeof port, "MASTER_PORT=%d", ls_env_get()->free_port());
    const uint64_t timeout = 300000000;
    finding f = join_with((const char *[MOST]){ "RANK=0", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", port }, timeout);
    assert_int_equal(f.status, LS_JOIN_TIMEOUT);
    assert_int_equal(ls_status_exit_code(f.status), 69);
    if (!strstr(f.error, "1 of 3 ranks joined") || !strstr(f.error, "1, 2")) fail_msg("%s", f.error);
    assert_true(f.took_ns >= timeout);
    /* for a tenth of the time that it has waited, so that others that compute meanwhile are not disturbed for long */
    assert_in_range(f.longest_ns, timeout / 20, timeout / 10);
}

static void says_that_nobody_is_there_to_meet(void **state)
{
    (void)state;
    char port[32];
    snprintf(port, sizeof port, "MASTER_PORT=%d", ls_env_get()->free_port());
    finding f = join_with((const char *[MOST]){ "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port }, 200000000);
    assert_int_equal(f.status, LS_JOIN_TIMEOUT);
    if (!strstr(f.error, "is rank 0 running?")) fail_msg("%s", f.error);
}

static void names_the_variable_that_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *set[MOST]; ls_status status; const char *says; } row[] = {
        { { "RANK=0" }, LS_INVALID, "WORLD_SIZE is not set" },
        { { "WORLD_SIZE=2" }, LS_INVALID, "RANK is not set" },
        { { "RANK=0", "WORLD_SIZE=2" }, LS_INVALID, "MASTER_ADDR is not set" },
        { { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1" }, LS_INVALID, "MASTER_PORT is not set" },
        { { "RANK=two", "WORLD_SIZE=2" }, LS_INVALID, "RANK is 'two'" },
        { { "RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500" }, LS_INVALID, "RANK from 0 to 1" },
        { { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=70000" }, LS_INVALID, "MASTER_PORT is '70000'" },
        { { "RANK=0", "WORLD_SIZE=65537", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500" }, LS_INVALID, "at most 65536" },
        { { "RANK=0", "WORLD_SIZE=257", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500" }, LS_INVALID, "257 ranks are on this machine: at most 256" },
        { { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500" }, LS_INVALID, "LOCAL_WORLD_SIZE" },
        { { "RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500" },
          LS_AUTH_FAILED, "lockstep secret new" },
        { { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "LOCKSTEP_LISTEN=0.0.0.0" },
          LS_AUTH_FAILED, "lockstep secret new" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        finding f = join_with(row[i].set, 0);
        if (f.status != row[i].status || !strstr(f.error, row[i].says))
            fail_msg("row %zu: status %d, '%s' lacks '%s'", i, f.status, f.error, row[i].says);
    }
}

static ls_status nothing(ls_world *w, void *arg)
{
    (void)w;
    (void)arg;
    return LS_OK;
}

/* What is for processes is not silently left out for threads. */
static void threads_number_themselves(void **state)
{
    (void)state;
    assert_int_equal(ls_world_threads(2, &(ls_world_opts){ .size = 2 }, nothing, NULL), LS_INVALID);
    if (!strstr(ls_last_error(), "since these ranks are numbered here")) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_world_threads(2, &(ls_world_opts){ .bind = true }, nothing, NULL), LS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_world_of_one_without_variables),
        cmocka_unit_test(names_the_ranks_that_never_came),
        cmocka_unit_test(says_that_nobody_is_there_to_meet),
        cmocka_unit_test(names_the_variable_that_is_wrong),
        cmocka_unit_test(threads_number_themselves),
    };
    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
