/* plan_answer.h -- a request of `lockstep plan MODEL --topology ...`, as its options have it. */
#ifndef LS_CLI_PLAN_ANSWER_H
#define LS_CLI_PLAN_ANSWER_H
#include "base/text.h"
#include "lockstep/plan.h"

typedef struct ls_plan_request {
    const char *topology, *memory, *objective, *dtype, *schedules, *write, *rank_by; /* NULL or "": the default */
    int64_t world, units, batch;
    int top, threads, zero; /* zero -1: all stages */
    double want_mfu, want_s;
    ls_layout fixed;
    bool json, exhaustive, sensitivity;
} ls_plan_request;

ls_status ls_plan_answer(const ls_plan_request *q, const ls_llm *m, ls_text *out);

#endif
