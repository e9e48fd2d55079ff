/* harness.h -- several ranks in one test. */
#ifndef LS_TEST_HARNESS_H
#define LS_TEST_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/lockstep.h"

#define LS_TEST_RANKS 64 /* at most, of a test's own arrays and of its processes */

typedef struct ls_rank_report {
    int failed;     /* ranks that failed */
    ls_status status;
    char text[512]; /* the first cause */
    uint64_t not_joined; /* processes: the ranks, a bit each, whom ls_world_join refused, */
    char join_text[512]; /* and what it said to the last of them */
} ls_rank_report;

typedef enum ls_test_mode { LS_TEST_THREADS, LS_TEST_PROCESSES } ls_test_mode;

/* Runs fn on n ranks that share a world and reports the first failure. Processes are forked: they
 * join through the environment like ranks started by hand. opts may be NULL (4 MiB arenas). */
ls_rank_report ls_test_ranks(ls_test_mode mode, int n, const ls_world_opts *opts, ls_rank_fn fn, void *arg);

/* Forks n processes for whom a launcher seems to have set the environment: fn joins a world by itself, and what it
 * returns is the rank's status. */
typedef ls_status (*ls_process_fn)(void *arg);
ls_rank_report ls_test_processes(int n, ls_process_fn fn, void *arg);

/* A condition inside a rank: returns LS_INTERNAL with the text when it does not hold. */
#define LS_EXPECT(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) return ls_fail(LS_INTERNAL, __VA_ARGS__);                                     \
    } while (0)

#endif
