/* alone.h -- steps of one rank that has the whole model, or of a mirror: what is timed before a run. */
#ifndef LS_TRAIN_ALONE_H
#define LS_TRAIN_ALONE_H
#include "lockstep/group.h"
#include "lockstep/parallel.h"
#include "train/config.h"

/* *out: c, which it borrows from, without whatever a run does besides steps. The learning rate is next to none, so that
 * parameters stay as they are, until ls_alone_learn. */
void ls_alone_only_steps(const ls_train_config *c, ls_train_config *out);
/* The same on one rank with the whole model, and sequences as long as a rank's part: most operations then have the
 * sizes that they have in layout p. At most two micro-batches, so that gradients are written by one and added to by the
 * other. */
void ls_alone_config(const ls_train_config *c, const ls_plan *p, ls_train_config *out);
/* *out, which is one of these, learns as layout p of c does when it begins. LS_BAD_CONFIG: optim.scale_lr. */
ls_status ls_alone_learn(const ls_train_config *c, const ls_plan *p, ls_train_config *out);
/* Runs `rank` on a world of one rank, a thread. `copies` processes of this machine do so at the same time: LS_NO_MEMORY
 * if it has too little for all of them. And the failures of a run. */
ls_status ls_alone_run(const ls_train_config *c, int copies, ls_status (*rank)(ls_world *w, void *arg), void *arg);

#endif
