/* coll_cost.h -- the time of NCCL's collectives as measured: three protocols, each latency plus bytes over bandwidth.
 * */
#ifndef LS_PLAN_COLL_COST_H
#define LS_PLAN_COLL_COST_H
#include "lockstep/plan.h"

/* name, prior, standard deviation of its logarithm, meaning */
#define LS_COLL_CONSTANTS(X)                                                                                \
    X(BUS, 230, .7, "GB/s on the bus, large messages")                                                      \
    X(LOCAL, 600, .7, "GB/s at which a rank reads and writes its own part, S / n bytes")                    \
    X(LL, 35, .4, "microseconds, protocol LL")                                                              \
    X(LL_RANK, 1, 1., "the same per rank")                                                                  \
    X(LL_PART, .1, .6, "part of the bus that LL reaches")                                                   \
    X(LL128, 50, .6, "microseconds, protocol LL128")                                                        \
    X(LL128_RANK, 4, 1., "the same per rank")                                                               \
    X(LL128_PART, .6, .5, "part of the bus that LL128 reaches")                                             \
    X(SIMPLE, 100, .8, "microseconds, protocol Simple")                                                     \
    X(SIMPLE_RANK, 10, 1., "the same per rank")                                                             \
    X(RAMP, 1, 1., "of the excess of the ramp, in microseconds^.5")

typedef enum ls_coll_constant {
#define X(name, prior, sd, meaning) LS_C_##name,
    LS_COLL_CONSTANTS(X)
#undef X
    LS_C_COUNT
} ls_coll_constant;

/* Devices, and whether messages leave an NVLink domain, that share constants. */
enum {
    LS_COLL_V100, LS_COLL_A100, LS_COLL_H100, LS_COLL_H100_RING, LS_COLL_B200, LS_COLL_B200_NET,
    LS_COLL_CLASSES
};
extern const char *const ls_coll_classes[LS_COLL_CLASSES];
extern const double ls_coll_constants[LS_COLL_CLASSES][LS_C_COUNT]; /* constants.c, which `make fit` writes */

typedef struct ls_coll_run {
    int class;
    double n, bytes, factor; /* of the bus */
    double rings;            /* part of the bus that the topology leaves */
    bool no_ll128;           /* messages leave NVLink, and the protocol needs it */
} ls_coll_run;

/* Describes a collective of n >= 2 ranks in a node of so many devices (0: 8); the caller sets `bytes`. `nvls`: NCCL may
 * reduce in NVLink's switch. Returns false if no class has the device. */
bool ls_coll_in_node(const char *gpu, int64_t devices, ls_coll coll, int64_t n, bool nvls, ls_coll_run *out);
/* Which protocol NCCL takes on rings of NVLink, LL, LL128 or Simple, by its own model: parts that sum to 1. Only of
 * classes v100 and a100. */
void ls_coll_choice(const ls_coll_run *r, double part[3]);
double ls_coll_cost(const ls_coll_run *r, const double *k); /* seconds */

#endif
