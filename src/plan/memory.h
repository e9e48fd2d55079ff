/* memory.h -- what a published row's rank has in memory. */
#ifndef LS_PLAN_MEMORY_H
#define LS_PLAN_MEMORY_H
#include "plan/row.h"

/* The row's value in its unit, where it is one of memory; LS_UNSUPPORTED otherwise. */
ls_status ls_row_memory(const ls_row *r, double *value);

#endif
