/* link.h -- what a message between members of a group costs. */
#ifndef LS_GROUP_LINK_H
#define LS_GROUP_LINK_H
#include "coll/cost.h"
#include "lockstep/group.h"

/* The slowest link between members, by the costs that all ranks agreed on when they joined (cost.h) and by the rates of
 * a fault transport. False where a link leaves the ranks no time to compute meanwhile: they copy the bytes themselves
 * (in memory that they map, or through sockets of one host), or another library carries out the collectives. The same
 * on all members, and in a dry world. */
bool ls_group_link(const ls_group *g, ls_link_cost *out);

#endif
