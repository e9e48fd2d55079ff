/* straggler.h -- finds the rank that slows all others down.
 *
 * Ranks that train together take steps of the same length: those that are fast wait for the slowest. So each rank tells
 * for how long it was busy itself, computing or getting its samples; time in which it waited for other ranks is in
 * neither. A rank is slow if it is busy for much longer than the median rank, in three windows of steps in a row,
 * without the longest step of each window: a pause, however long, makes no straggler, and neither does a machine on
 * which ranks and other programs wait for cores.
 */
#ifndef LS_TRAIN_STRAGGLER_H
#define LS_TRAIN_STRAGGLER_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/status.h"

typedef enum ls_busy { LS_BUSY_COMPUTE, LS_BUSY_INPUT, LS_BUSY_PHASES } ls_busy;

/* So many windows in a row, each of at least so many steps and so much time: found within 20 steps or 10 s. */
#define LS_STRAGGLER_WINDOWS 3
#define LS_STRAGGLER_STEPS 5
#define LS_STRAGGLER_NS 2000000000u

/* Whether a rank that is busy for `ns` of steps of `step_ns` slows down the others, whose median is median_ns. */
bool ls_straggler_is_slow(double ratio, double ns, double median_ns, double step_ns);

typedef struct ls_straggler ls_straggler;

/* What has changed. */
typedef struct ls_straggler_change {
    bool found, over;         /* a rank is slow; the one that was is slow no longer. Both false: nothing has changed */
    int rank;                 /* that rank, */
    ls_busy phase;            /* what it is slow in, */
    int others;               /* how many other ranks are slow in it, too, */
    int64_t steps;            /* and the means per step over so many steps: */
    double ns, median_ns;     /* its own, and the median rank's */
} ls_straggler_change;

/* Watches `size` ranks; ratio > 1: a rank is slow from so many times the median rank's time on. */
ls_status ls_straggler_create(int size, double ratio, ls_straggler **out);
void ls_straggler_destroy(ls_straggler *s); /* NULL is fine */
/* How long a rank was busy in a step. Of every rank once, then ls_straggler_step. */
void ls_straggler_tell(ls_straggler *s, int rank, const double ns[LS_BUSY_PHASES]);
/* The step is over, at this time. */
ls_straggler_change ls_straggler_step(ls_straggler *s, uint64_t now_ns);

#endif
