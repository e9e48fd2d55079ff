/* pipe_replay.h -- when each action of a pipeline schedule begins and ends, from the times of stages. */
#ifndef LS_PARALLEL_PIPE_REPLAY_H
#define LS_PARALLEL_PIPE_REPLAY_H
#include "parallel/pipe_list.h"

typedef struct ls_pipe_times {
    const double *forward, *input, *weight; /* [S]: of a micro-batch per stage; a whole backward is input + weight */
    double transfer; /* from the end of an action to the arrival of what it gives to another rank; no rank computes less
                      * meanwhile, and messages do not delay each other */
} ls_pipe_times;

typedef struct ls_pipe_span {
    double begins, ends;
} ls_pipe_span;

/* A rank begins an action when the one before has ended and what it needs has arrived. Zeros are a replay without
 * memory. */
typedef struct ls_pipe_replay {
    int ranks;
    ls_pipe_span **action; /* owned, [p][n]: of each action of the program's lists */
    ls_pipe_span *rank;    /* owned, [p]: from its first action to the end of its last */
    double *busy;          /* owned, [p]: of its actions */
    double step;           /* from 0, when the first begins, to the end of the last */
    double span;           /* the longest of `rank`: how far apart steps are if ranks do not wait for each other between
                            * them. Shorter than `step` where another rank ends last than begins first */
} ls_pipe_replay;

/* Of a proved program. LS_NO_MEMORY; LS_INVALID: a time that is negative or not finite. */
ls_status ls_pipe_replay_create(const ls_pipe_program *g, const ls_pipe_times *t, ls_pipe_replay *out);
void ls_pipe_replay_free(ls_pipe_replay *r);
/* The phases of a rank's step: warm-up until its first backward begins, cool-down from the end of its last forward on
 * (no earlier than that), steady between. What it computes in each, and what it idles, add up to `step`. */
typedef struct ls_pipe_phases {
    double warm_up, steady, cool_down, idle;
    double steady_begins, cool_down_begins; /* equal: there is no steady phase */
} ls_pipe_phases;

void ls_pipe_phases_of(const ls_pipe_program *g, const ls_pipe_replay *r, int rank, ls_pipe_phases *out);
/* Which part of p times `step` ranks idle: the bubble. */
double ls_pipe_bubble(const ls_pipe_replay *r);

#endif
