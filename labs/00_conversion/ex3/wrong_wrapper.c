/* Wrong: no wrapper, so that each rank trains alone on its samples. */
#include "lockstep/lockstep.h"

#define ls_params_bind(ps, values, grads) ls_params_bind(ps, values, values)
#define ls_ddp_create(g, ps, config, out) ((void)(g), *(out) = NULL, LS_OK)
#define ls_ddp_begin_forward(ddp, tape, sync) ((void)(ddp), LS_OK)
#include "00_conversion/ex3/solution.c"
