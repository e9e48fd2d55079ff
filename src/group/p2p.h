/* p2p.h -- the end of a group's messages; the calls are public. */
#ifndef LS_GROUP_P2P_H
#define LS_GROUP_P2P_H
#include "lockstep/group.h"

/* Discards, with a warning, messages of this group that no call on this rank has received; every member calls it.
 * So a channel is empty when another group gets it. */
ls_status ls_p2p_drain(ls_group *g);

#endif
