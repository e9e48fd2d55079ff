/* Wrong: a job that was killed begins at its first epoch again. */
#include "lockstep/lockstep.h"

#define ls_ckpt_open(file, c) ((void)(file), (void)(c), LS_IO)
#include "00_conversion/ex3/solution.c"
