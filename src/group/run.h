/* run.h -- collectives carried out by reading a schedule: the table is in form.h. */
#ifndef LS_GROUP_RUN_H
#define LS_GROUP_RUN_H
#include "coll/traffic.h"
#include "group/work.h"

struct ls_sched_cache; /* a group's schedules, their runs and scratch memory */
void ls_sched_cache_free(struct ls_sched_cache *c); /* NULL is fine */
/* Takes what the schedule of a work needs of the arena, and no more, in a dry world. */
ls_status ls_run_take(ls_work *k);
/* What this rank moves for a work (ls_form.traffic), by reading its schedule once more; `rounds` where wanted. */
ls_status ls_run_traffic(const ls_work *k, bool rounds, ls_traffic *out);

#endif
