/* hang.h -- what to say when a rank does not come, or a message is lost. */
#ifndef LS_GROUP_HANG_H
#define LS_GROUP_HANG_H
#include "group/group.h"

/* The rank of the world that k waits for, as far as can be seen: for statistics. */
int ls_hang_whom(const ls_group *g, const ls_work *k);
/* At the deadline: until when every rank that is waited for is excused by long work (meet/task.h), or by what has just
 * ended; 0: one is not. */
uint64_t ls_hang_excused(const ls_group *g);
/* LS_RANK_HUNG, which names the rank that does not come, the pair and direction in which a message was lost, or says
 * that neither can be known. */
ls_status ls_hang_timeout(ls_group *g, const ls_work *k, uint64_t waited_ns);

#endif
