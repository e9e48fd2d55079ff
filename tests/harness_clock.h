/* harness_clock.h -- deadlines that a busy machine cannot make pass too early.
 *
 * A deadline of 0.3 s says who is late as long as the others run. On a machine with more to do than cores, a rank
 * may be kept from running for that long, and is blamed for it. Here the ranks of a test share a clock that moves
 * once each thread of each rank has looked at it since it last moved, by what has passed, and by 10 ms at most. So a
 * deadline that passes has been waited for by ranks that all run. Where a rank looks no more, the clock moves again
 * after 60 s, which is a hang.
 */
#ifndef LS_TEST_HARNESS_CLOCK_H
#define LS_TEST_HARNESS_CLOCK_H
#include "harness.h"

/* ls_test_ranks with such a clock; at most 32 ranks. A rank that waits for something in fn looks at the clock: by
 * ls_wait, or by yield or mono_ns of ls_env_get(), not by usleep. */
ls_rank_report ls_test_ranks_in_step(ls_test_mode mode, int n, const ls_world_opts *opts, ls_rank_fn fn, void *arg);

/* The calling rank looks no more: it is about to be killed. */
void ls_test_looks_no_more(void);

#endif
