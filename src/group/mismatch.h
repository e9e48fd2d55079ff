/* mismatch.h -- what to say when ranks call different collectives. */
#ifndef LS_GROUP_MISMATCH_H
#define LS_GROUP_MISMATCH_H
#include "group/group.h"

/* LS_COLL_MISMATCH with both descriptions, also as the job's cause: a member's line or message is not of k. */
ls_status ls_mismatch(ls_group *g, const ls_work *k, int member);
/* The same for an all_to_all to which a member sends `sends` elements, where we expect others. */
ls_status ls_mismatch_block(const ls_work *k, int member, size_t sends, size_t expects);
/* The same for a message. */
ls_status ls_mismatch_message(ls_group *g, const ls_coll_desc *mine, const ls_coll_desc *theirs);
/* LS_COLL_MISMATCH if a member is known to have called something else as k's number: for works whose messages do
 * not say what they belong to. */
ls_status ls_mismatch_compare(ls_group *g, const ls_work *k);
/* For the caller's thread while it waits: LS_COLL_MISMATCH if a member has entered something else under the number of a
 * work in flight, waits for us in another group, or has left; LS_RANK_DIED for the rank that serves the store; else
 * LS_OK. */
ls_status ls_mismatch_check(ls_group *g);

#endif
