/* call_gaps.h -- what a rank does between two calls of a step. */
#ifndef LS_PLAN_CALL_GAPS_H
#define LS_PLAN_CALL_GAPS_H
#include "plan/step_list.h"

/* On average. */
typedef struct ls_call_gap {
    double seconds; /* of a rank's operations, */
    double nbytes;  /* and what they read and write: operands and results, each once */
} ls_call_gap;

/* Messages of a ring have pieces of attention between them, which are small; other calls, and messages from other
 * stages, have the rest of the step. */
typedef struct ls_call_gaps {
    ls_call_gap all;           /* calls and messages */
    ls_call_gap ring, others;
} ls_call_gaps;

/* Over the ranks of all stages. A ring of n ranks has n pieces of attention, each of which reads queries and results
 * again: so much is in ring.nbytes. It is 0 without a ring. */
ls_call_gaps ls_call_gaps_of(const ls_step_lists *l);

/* Whether it is a message that goes on while its rank computes, and is waited for afterwards: of a ring (cp_ring.c). */
bool ls_step_is_of_ring(const ls_step_call *x);

#endif
