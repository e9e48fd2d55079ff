/* Wrong: every rank writes the file, and none waits for the others. */
#include "lockstep/lockstep.h"

#define ls_barrier(group) (r->file && rank > 0 ? save(r, &model->params, epoch + 1) : LS_OK)
#include "00_conversion/ex3/solution.c"
