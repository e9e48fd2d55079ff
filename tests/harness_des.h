/* harness_des.h -- models of the event engine by hand: operations, networks, and when each process ends. */
#ifndef LS_TESTS_HARNESS_DES_H
#define LS_TESTS_HARNESS_DES_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/rng.h"
#include "sim/des.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NEAR(got, want) is_near(__LINE__, got, want)

static inline void is_near(int line, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("line %d: %.17g, expected %.17g", line, got, want);
}

static inline double uniform(uint64_t *at)
{
    uint32_t w[4];
    ls_philox_block(11, 0, (*at)++, w);
    return w[0] * 0x1p-32;
}

#define WORK(c)         ls_des_op_of(LS_DES_WORK, 0, 0, c)
#define SEND(p, via, c) ls_des_op_of(LS_DES_SEND, p, via, c)
#define RECV(p, via, c) ls_des_op_of(LS_DES_RECV, p, via, c)
#define MEET(axis, c)   ls_des_op_of(LS_DES_MEET, axis, 0, c)
#define END             ls_des_op_of(LS_DES_END, 0, 0, 0)

static double ends[64];

static inline double run(const ls_des_model *m)
{
    ls_des_result r = { .ends_s = ends };
    if (ls_des_run(m, &r) != LS_OK) fail_msg("%s", ls_last_error());
    return r.end_s;
}

static const double costs[] = { 0, 1, 2, 4, 8, 100, 200 };
enum { C0, C1, C2, C4, C8, C100, C200 };

static const ls_des_net flat = { .latency_s = 0.5, .bytes_per_s = 100 };

static inline ls_des_net shared(ls_des_sharing how)
{
    ls_des_net net = flat;
    net.sharing = how;
    return net;
}

static inline ls_des_model model_of(uint32_t n, const ls_des_op *const *program, ls_des_net net)
{
    return (ls_des_model){ .n = n, .program = program, .cost = costs, .ncosts = COUNT(costs), .net = net };
}

#endif
