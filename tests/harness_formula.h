/* harness_formula.h -- what an algorithm moves, by the formulas of the literature. */
#ifndef LS_TESTS_HARNESS_FORMULA_H
#define LS_TESTS_HARNESS_FORMULA_H
#include "cli/bench.h"

/* What carried a collective out. */
typedef struct ls_test_ran {
    const char *algo;   /* a name of the registry, or of a form in mapped memory */
    int segments;       /* pieces of a share */
    const int *node;    /* [size] which host each rank is on; borrowed; NULL: all on one */
} ls_test_ran;

/* Payload bytes of one rank; in mapped memory `received` is what it reads from peers' memory and writes there. */
typedef struct ls_test_moved { uint64_t sent, received; int rounds; } ls_test_moved;

/* By the literature's formula for the algorithm; false when there is none for it. */
bool ls_test_formula(const ls_bench_case *c, int rank, const ls_test_ran *ran, ls_test_moved *out);

#endif
