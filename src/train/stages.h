/* stages.h -- forward and backward of a pipeline stage: what a pipe's actions do (lockstep/pipe.h). */
#ifndef LS_TRAIN_STAGES_H
#define LS_TRAIN_STAGES_H
#include "lockstep/parallel.h"
#include "train/feed.h"

/* A micro-batch whose backward is to come. */
typedef struct ls_alive {
    ls_rows rows;
    ls_tensor *loss; /* borrowed from its tape: what backward begins with, of a stage that is not the last its result */
    ls_tensor *in;   /* the same: what entered the stage; NULL: samples did */
    ls_loss_sums sums;
} ls_alive;

/* Whether the action's stage is the last one, which gives the loss. */
bool ls_stages_has_loss(const ls_parallel *p, const ls_pipe_action *a);
/* Forward of m->rows on the action's tape, which is reset; on a dry tape samples may be NULL. */
ls_status ls_stages_forward(const ls_parallel *p, const ls_pipe_action *a, ls_alive *m, ls_pipe_data *data);
/* A backward, or one half of it. `scale`: with what the backward of a loss begins, the same on all stages. */
ls_status ls_stages_backward(ls_parallel *p, const ls_pipe_action *a, ls_alive *m, const float *scale, ls_pipe_data *data);
/* ls_pipe_work.edge for so many samples of so many tokens. */
size_t ls_stages_edge(const ls_parallel *p, int edge, int64_t rows, int64_t tokens, ls_dtype *dtype);

#endif
