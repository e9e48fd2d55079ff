/* pipe_list.h -- pipeline schedules: the lists of actions of all ranks, what they say of communication, and their
 * proof.
 *
 * Words: p ranks, v chunks of the model on each, S = p v stages, m micro-batches. Stage s + 1 computes what stage s
 * gives.
 *
 * A schedule emits computations only. Communication is derived from them:
 *
 *     forward of stage s                    needs the activation of (s - 1, micro-batch), unless s = 0, and
 *                                           gives it to stage s + 1, unless s = S - 1
 *     backward, or backward of the input,   needs the gradient of (s + 1, micro-batch), unless s = S - 1, and
 *     of stage s                            gives that of its input to stage s - 1, unless s = 0
 *
 * Where the other stage is on another rank (ls_pipe_place_rank), that is a message; where it is on the same rank, as at
 * the turn of a V, it is handed over. The messages of an edge (two neighbouring stages and a direction) are in
 * ascending order of micro-batches at both ends.
 */
#ifndef LS_PARALLEL_PIPE_LIST_H
#define LS_PARALLEL_PIPE_LIST_H
#include <stdint.h>
#include "lockstep/pipe.h"

typedef struct ls_pipe_shape {
    int ranks;         /* p, along the pp axis */
    int chunks;        /* v, per rank */
    int micro_batches; /* m, of a step */
} ls_pipe_shape;

#define LS_PIPE_MOST_ACTIONS (1 << 26) /* of all ranks: their lists are 2 GiB */

/* --- where stages are ------------------------------------------------------------------------------------------- */

typedef enum ls_pipe_placement {
    LS_PIPE_LOOP, /* stage s is on rank s % p */
    LS_PIPE_V,    /* v = 2: there and back; rank r has stages r and 2 p - 1 - r */
} ls_pipe_placement;

int ls_pipe_place_stage(ls_pipe_placement where, int ranks, int rank, int chunk); /* of rank and chunk */
int ls_pipe_place_rank(ls_pipe_placement where, int ranks, int stage);
int ls_pipe_place_chunk(ls_pipe_placement where, int ranks, int stage);

/* --- the list of a rank -------------------------------------------------------------------------- */

typedef struct ls_pipe_list {
    ls_pipe_action *action; /* [room], borrowed from the program */
    int n, room;
    int wanted; /* micro-batches of the step: ls_pipe_put leaves out later ones */
    bool full;  /* an action found no room */
} ls_pipe_list;

/* Adds an action; slot, stage and last are the prover's. */
void ls_pipe_put(ls_pipe_list *l, ls_pipe_what what, int chunk, int micro_batch);
/* "forward", "backward", "backward of the input", "backward of the weights"; F, B, I, W as in PyTorch's files. */
const char *ls_pipe_what_name(ls_pipe_what what);
char ls_pipe_letter(ls_pipe_what what);

/* --- schedules: schedule_*.c ------------------------------------------------------------------------------------- */

typedef struct ls_pipe_schedule {
    const char *name;    /* as pipeline.schedule has it */
    const char *summary; /* one line */
    const char *source;  /* the paper */
    int least_chunks, most_chunks; /* v that it is defined for; the least is the default */
    ls_pipe_placement placement;
    bool splits; /* some backwards are in two halves */
    /* The smallest number of micro-batches from s->micro_batches on that `emit` is defined for; NULL: any is. Of a
     * longer step, the later micro-batches are left out: no other action waits for theirs. */
    int (*defined_for)(const ls_pipe_shape *s);
    /* The list of a rank, p > 1. Forwards and backwards of a chunk are in ascending order of micro-batches. */
    void (*emit)(const ls_pipe_shape *s, int rank, ls_pipe_list *out);
} ls_pipe_schedule;

extern const ls_pipe_schedule *const ls_pipe_schedules[]; /* NULL-ended */
extern const char ls_pipe_choices[];                      /* "gpipe|1f1b|...": values of pipeline.schedule */
/* NULL is "1f1b". LS_BAD_CONFIG names all. */
ls_status ls_pipe_schedule_find(const char *name, const ls_pipe_schedule **out);
/* Whether the schedule has lists for the shape; 0 chunks become its default (1, where p is 1). LS_BAD_CONFIG names the
 * value and the nearest valid one. */
ls_status ls_pipe_shape_check(const ls_pipe_schedule *s, ls_pipe_shape *shape);

/* --- the lists of all ranks --------------------------------------------------------------------------------------- */

/* Zeros are a program without memory. */
typedef struct ls_pipe_program {
    const ls_pipe_schedule *schedule; /* borrowed; NULL: the lists are from a file */
    ls_pipe_placement placement;
    ls_pipe_shape shape; /* as it is made now; micro_batches 0: it is not made */
    int most;            /* micro-batches that there is memory for */
    /* All below is owned and proved (ls_pipe_prove). */
    ls_pipe_list *list; /* [p] */
    int *slots;         /* [p]: of micro-batches and chunks on a rank alive at most at a time */
    int buffers; /* messages that an edge stores at least, sent and not yet consumed: with so many, no rank waits
                  * forever for space. An action consumes its message when it begins */
    struct ls_pipe_scratch *scratch; /* the prover's */
} ls_pipe_program;

/* Memory for programs of the shape and of fewer micro-batches. The failures of ls_pipe_shape_check, LS_NO_MEMORY. */
ls_status ls_pipe_program_create(const ls_pipe_schedule *s, const ls_pipe_shape *shape, ls_pipe_program *out);
/* The same without a schedule: lists to be filled with up to `most` actions each, and proved, by the caller. */
ls_status ls_pipe_program_create_empty(ls_pipe_placement where, const ls_pipe_shape *shape, int most,
                                       ls_pipe_program *out);
void ls_pipe_program_free(ls_pipe_program *g);
/* The lists of a step of so many micro-batches, 1 to g->most, proved: those of g->most without the micro-batches that
 * are not there, so no rank needs more slots than with all. A pure function of schedule and shape: each rank makes the
 * lists of all. Allocates nothing. LS_INTERNAL: the failures of ls_pipe_prove. */
ls_status ls_pipe_program_make(ls_pipe_program *g, int micro_batches);

/* Whether the lists, of which `what`, `chunk` and `micro_batch` are read, are a step of g->shape:
 *  - per chunk, each micro-batch goes forward once, then backward once or once per half, input first, each in ascending
 *    order; and nothing else is in a list;
 *  - no rank has more than `most_alive` micro-batches of its chunks alive at a time (0: any number);
 *  - with g->buffers messages per edge, at most `most_buffers` (0: any number), every rank comes to its end.
 * Gives each action its stage, its slot and `last`, and g->slots and g->buffers their values. LS_INTERNAL names the
 * first violation: rank, action, and what was expected. */
ls_status ls_pipe_prove(ls_pipe_program *g, int most_alive, int most_buffers);

#endif
