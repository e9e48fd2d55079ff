/* harness_env.h -- what the suites of the real env share. */
#ifndef LS_TEST_HARNESS_ENV_H
#define LS_TEST_HARNESS_ENV_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/env.h"

#define SECOND 1000000000u
#define N(a) (sizeof(a) / sizeof *(a))

static const ls_env *const env = &ls_env_real;

/* The time in s seconds, for a deadline. */
static inline uint64_t in_s(unsigned s) { return env->mono_ns() + (uint64_t)s * SECOND; }

/* Sleeps for a millisecond. */
static inline void nap(void) { env->wait(NULL, 0, NULL, 0, env->mono_ns() + SECOND / 1000); }

#endif
