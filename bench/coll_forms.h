/* coll_forms.h -- algorithms whose time has a closed form in the literature: for bench_plan and test_coll_program. */
#ifndef LS_BENCH_COLL_FORMS_H
#define LS_BENCH_COLL_FORMS_H
#include <stdbool.h>

#include "lockstep/plan.h"
#include "lockstep/sched.h"

typedef struct coll_form {
    const char *algo;
    ls_coll coll;
    ls_coll_form form;
    bool powers; /* it is of powers of two of ranks */
} coll_form;

static const coll_form coll_forms[] = {
    { "ring", LS_ALL_REDUCE, LS_COLL_RING, false },
    { "ring", LS_REDUCE_SCATTER, LS_COLL_RING, false },
    { "ring", LS_ALL_GATHER, LS_COLL_RING, false },
    { "halving_doubling", LS_ALL_REDUCE, LS_COLL_HALVING, true },
    { "halving_doubling", LS_REDUCE_SCATTER, LS_COLL_HALVING, true },
    { "halving_doubling", LS_ALL_GATHER, LS_COLL_HALVING, true },
    { "recursive_doubling", LS_ALL_REDUCE, LS_COLL_DOUBLING, true },
    { "pairwise", LS_ALL_TO_ALL, LS_COLL_PAIRWISE, false },
};

#endif
