/* pipe_cut.h -- where a model is cut into the stages of a pipeline, so that the replayed step is short. */
#ifndef LS_PARALLEL_PIPE_CUT_H
#define LS_PARALLEL_PIPE_CUT_H
#include "parallel/pipe_list.h"

/* Of each unit of the model, in one measure for all, as operations or seconds. */
typedef struct ls_pipe_units {
    int n;
    const double *forward, *input, *weight; /* [n]: of a micro-batch; a whole backward is input + weight */
    const double *update; /* [n]: of the optimizer, once per step, after all ranks have ended their lists */
    double root;          /* the same of parameters that the first and the last stage share: of each rank that has
                           * one of these stages, or both */
} ls_pipe_units;

/* What a step takes with stage s having units [first[s], first[s + 1]): the replay of the schedule with the sums of its
 * stages' units (pipe_replay.h, without transfers), and then the update of the rank that has most to update. The
 * failures of ls_pipe_program_create and ls_pipe_replay_create. */
ls_status ls_pipe_step_of(const ls_pipe_config *c, int ranks, const ls_pipe_units *u, const int *first, double *step);

/* What a cut needs of memory, if that is limited. */
typedef struct ls_pipe_memory {
    size_t limit; /* bytes per rank */
    /* Bytes of the rank that needs most with these bounds, [S + 1]. The same answer on every rank. */
    ls_status (*need)(void *arg, const int *first, size_t *bytes);
    void *arg;
} ls_pipe_memory;

/* Moves the bounds first[1 .. S) of S = ranks x chunks stages, each of which keeps one unit at least, to the cut with
 * the shortest step; *step is what it takes (NULL: not wanted). The cut that is given stays unless the step gets
 * shorter by more than `least` of it (0: by anything). Where there are too many cuts to replay them all, the result is
 * one of which no bound, and no two by one unit each, can be moved so that the step gets shorter. The same on every
 * rank: it depends on the arguments alone, and ends after a fixed number of replayed actions.
 *
 * With `memory` (NULL: not limited) a cut that needs less above the limit is better than a faster one, and `least` is
 * compared only with cuts that need as much above it: the result is the fastest of the cuts that fit, if any does. */
ls_status ls_pipe_cut(const ls_pipe_config *c, int ranks, const ls_pipe_units *u, const ls_pipe_memory *memory,
                      double least, int *first, double *step);

/* Whether the rank of the last stage computes all of several forwards of it before its first backward. */
ls_status ls_pipe_loss_waits(const ls_pipe_config *c, int ranks, bool *waits);
/* The same of any chunk of a program. */
bool ls_pipe_program_forwards_first(const ls_pipe_program *g, int rank, int chunk);

#endif
