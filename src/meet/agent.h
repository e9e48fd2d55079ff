/* agent.h -- a host's link to node 0's store: who is alive, and the job's cause, both ways.
 *
 * One for each host but node 0's, driven by its launcher's loop or, without a launcher, by the
 * thread that serves the host's store. Every 100 ms, and at once when the job has a cause here, it sends
 * a beat (meet/beat.h) and gets one. When node 0 has been silent for `silent_ns` it is
 * gone: that is the job's cause then.
 */
#ifndef LS_MEET_AGENT_H
#define LS_MEET_AGENT_H
#include "meet/store.h"

typedef struct ls_agent ls_agent;

/* Takes over the client, also on failure. page and local (the store of this host) are borrowed. silent_ns 0:
 * LS_STORE_SILENT_NS. */
ls_status ls_agent_create(ls_store_client *c, ls_world_page *page, const ls_store *local, const char *node0,
                          uint64_t silent_ns, ls_agent **out);
int ls_agent_fd(const ls_agent *a); /* readable: step; -1: it is gone */
/* Sends and reads what can be without waiting; returns when it wants to be called again at the latest. */
uint64_t ls_agent_step(ls_agent *a, uint64_t now_ns);
/* Whether node 0 knows of the cause that stands in our page, or cannot be told any more. */
bool ls_agent_settled(const ls_agent *a);
/* Says goodbye, waiting at most until the deadline, and frees it. NULL is fine. */
void ls_agent_leave(ls_agent *a, uint64_t deadline_ns);

#endif
