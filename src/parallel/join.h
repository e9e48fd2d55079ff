/* join.h -- what DDP calls while ranks have uneven inputs (ls_ddp_join_begin). */
#ifndef LS_PARALLEL_JOIN_H
#define LS_PARALLEL_JOIN_H
#include "parallel/strategy.h"

typedef struct ls_join ls_join;

/* A forward of this rank begins: tells ranks whose inputs have ended, which mirror it. LS_INVALID: stop_together,
 * and the inputs of some rank have ended; or ranks differ in `sync`. *from: a rank that has inputs, whose buffers
 * all get. */
ls_status ls_join_forward(ls_ddp *d, bool sync, int *from);

#endif
