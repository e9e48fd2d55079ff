/* hostlist.h -- the two compressed lists in which Slurm says where ranks are. */
#ifndef LS_MEET_HOSTLIST_H
#define LS_MEET_HOSTLIST_H
#include <stddef.h>
#include "base/limits.h"
#include "lockstep/status.h"

/* "node[01-03,7],login" is node01, node02, node03, node7, login; several brackets in a name multiply, the
 * last one running fastest ("rack[1-2]n[1-2]": rack1n1, rack1n2, rack2n1 ...). Leading zeros of a range's
 * beginning are kept. Writes at most `max` names to out, in order; *n is how many there are (more than max
 * is a failure). LS_INVALID says what is wrong with the text. */
ls_status ls_hostlist_expand(const char *text, char (*out)[LS_HOST_MAX_NAME + 1], int max, int *n);

/* "2(x3),1" is 2 2 2 1: tasks on each node of a list. Each count is from 1 to 65536. */
ls_status ls_tasklist_expand(const char *text, int *out, int max, int *n);

#endif
