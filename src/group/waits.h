/* waits.h -- in which group another rank waits. */
#ifndef LS_GROUP_WAITS_H
#define LS_GROUP_WAITS_H
#include "group/engine.h"

/* The group in which `rank` of the world waits for a collective, if this rank is a member, too, and that collective in
 * *where. NULL: `rank` waits for nothing, or in a group without this rank. Groups that have no rank in common may have
 * the same id, and count their collectives apart: those of two stages of a pipeline, for example. */
const ls_group *ls_group_waited(const ls_engine *e, int rank, uint64_t waits_for, ls_coll_desc *where);

#endif
