/* harness_pipe.h -- a proved pipeline schedule for a test. */
#ifndef LS_TEST_HARNESS_PIPE_H
#define LS_TEST_HARNESS_PIPE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "parallel/pipe_list.h"

/* The lists of all ranks; the test fails where there are none. */
static inline ls_pipe_program program_of(const char *name, int p, int v, int m)
{
    const ls_pipe_schedule *s;
    const ls_pipe_shape shape = { p, v, m };
    ls_pipe_program g = { 0 };
    if (ls_pipe_schedule_find(name, &s) < 0 || ls_pipe_program_create(s, &shape, &g) < 0 ||
        ls_pipe_program_make(&g, m) < 0)
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", name, p, v, m, ls_last_error());
    return g;
}

#endif
