/* roofline.h -- what limits a training step: products, memory or the network.
 *
 * A device computes at most at its peak, moves at most what its memory moves, and sends at most what its links carry
 * (Williams, Waterman and Patterson 2009). An operation with fewer FLOPs per byte than peak over memory rate, the
 * ridge, is bound by memory, any other by its products. The dry step of step_list.h says what a rank computes, reads,
 * writes and sends; step_sim.h says which of its communication is hidden behind computation. The step is limited by
 * what takes most of its time: operations that products bound, operations that memory bounds, or communication that
 * the rank waits for.
 *
 * Bytes of memory are those of operands and results, each once per operation, as if no cache held anything from one
 * operation to the next.
 */
#ifndef LS_PLAN_ROOFLINE_H
#define LS_PLAN_ROOFLINE_H
#include "plan/step_sim.h"

typedef enum ls_bound { LS_BOUND_COMPUTE, LS_BOUND_MEMORY, LS_BOUND_NETWORK, LS_BOUNDS } ls_bound;
const char *ls_bound_name(ls_bound b); /* "compute", "memory", "communication" */

typedef struct ls_roofline_phase {
    double flops, bytes, sent;  /* of a rank; sent: at least, over the network */
    double least_s[LS_BOUNDS];  /* flops at the peak, bytes at the memory's rate, all its communication one by one */
    double part_s[LS_BOUNDS];   /* operations that products bound, that memory bounds; the third as above */
    ls_bound bound;             /* the longest of part_s */
} ls_roofline_phase;

typedef struct ls_roofline {
    const ls_topo *t;           /* borrowed, as the next one */
    const ls_step_lists *l;
    ls_step_rates rates;
    int stage;                  /* of the pipeline: the one that computes longest, which all here is about */
    ls_roofline_phase phase[LS_STEP_PHASES], all;
    double step_s;              /* of these: */
    double part_s[LS_BOUNDS];   /* operations by what bounds them, and communication that is waited for */
    double bubble_s;            /* waits for other stages, their messages apart */
    double hidden_s;            /* communication beside computation that is not waited for */
    ls_bound bound;             /* the longest of part_s */
    double doubled_s[LS_BOUNDS]; /* the step if products, memory, or links were twice as fast */
} ls_roofline;

/* FLOPs per byte; infinite without bytes. */
double ls_intensity(double flops, double bytes);
/* Where both take equally long. */
double ls_roofline_ridge(const ls_step_rates *r);

/* `l` is of these rates. The failures of ls_step_simulate; out->doubled_s is not filled in. */
ls_status ls_roofline_of(const ls_step_lists *l, const ls_step_rates *rates, const ls_topo *t, ls_roofline *out);
/* Fills in out->doubled_s from further dry steps of `c`. */
ls_status ls_roofline_sensitivity(const ls_train_config *c, ls_roofline *out);

/* --- roofline_print.c --------------------------------------------------------------------------------------- */

/* Of a run; step_s 0: there is none. */
typedef struct ls_roofline_measured {
    double step_s;              /* mean of its steady steps, */
    double exposed_s, hidden_s; /* and communication of rank 0 in them */
    double moved;               /* bytes per step */
    double *op_s;               /* owned: of each operation of the stage's list, seconds per step; 0: not traced. NULL:
                                 * the run has no trace */
} ls_roofline_measured;

/* roofline_trace.c: op_s, from FOLDER/trace/trace.json if it is there (--trace.steps): of the first rank of the stage,
 * each operation's mean per call. LS_BAD_FILE: it is no trace. op_s is to be freed. */
ls_status ls_roofline_trace(const ls_roofline *r, const char *folder, ls_roofline_measured *m);

/* peaks: where the rates are from, in words. */
void ls_roofline_print(const ls_roofline *r, const char *peaks, const ls_roofline_measured *m, ls_text *out);
void ls_roofline_json(const ls_roofline *r, const char *peaks, const ls_roofline_measured *m, ls_text *out);

#endif
