/* attach.h -- reading a peer's private memory where it lies (cross memory attach).
 *
 * The system lets a process read another one's memory, or not: not in many containers, and under Yama (ptrace_scope 1)
 * only for whom the other one names. So it is tried when ranks meet: each reads a proof, random bytes in private
 * memory, from each peer of its host, and all tell one another for whom that worked. A rank that a launcher of ours
 * started names the launcher to Yama, which covers its descendants: the ranks of the host.
 */
#ifndef LS_NET_ATTACH_H
#define LS_NET_ATTACH_H
#include "net/world.h"

#define LS_ATTACH_PROOF 2 /* words */
#define LS_ATTACH_MOST ((size_t)16 << 20) /* bytes from one rank to another: from here on copies that go past the caches,
                                             twice, are as fast, or faster; */
#define LS_ATTACH_MESSAGE_MOST ((size_t)2 << 20) /* of a message: its sender would only wait while it is read */

/* Before the ranks meet: our slot in the page says where our proof is. */
void ls_attach_offer(ls_world *w);
/* Once all have offered: tries it, and learns what the others could; every rank calls it. */
ls_status ls_attach_meet(ls_world *w);

/* Whether `reader` can read the memory of `owner`: the same answer on every rank. */
static inline bool ls_attach_reads(const ls_world *w, int reader, int owner)
{
    return w->reads && ls_rank_set_has(&w->reads[reader], owner);
}

/* Reads n bytes at an address of another rank of this host. LS_UNSUPPORTED, LS_SYSTEM: the system has no such thing,
 * refuses it; LS_PEER_RESET: the rank's process has ended; LS_PROTOCOL: those bytes are not mapped there. Where the job
 * was given up: ls_world_aborted. */
ls_status ls_attach_read(ls_world *w, int rank, uint64_t address, void *to, size_t n);
#endif
