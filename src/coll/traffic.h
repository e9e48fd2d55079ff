/* traffic.h -- what one rank moves for a collective: said once for each way to carry one out, by its schedule here, or
 * by its form in memory (group/form.h).
 */
#ifndef LS_COLL_TRAFFIC_H
#define LS_COLL_TRAFFIC_H
#include "base/rank_set.h"
#include "coll/cost.h"
#include "lockstep/sched.h"

typedef struct ls_traffic {
    uint64_t flags;   /* cache lines that it signals to peers; or messages that it sends */
    uint64_t read;    /* bytes that come out of others' memory, whoever moves them; or that it receives */
    uint64_t written; /* bytes that it puts into others' memory beside those; or that it sends */
    uint64_t added;   /* bytes that it adds to others */
    uint64_t copied;  /* forms in memory: bytes that it puts into its own slots, lines and mailboxes */
    uint64_t counted; /* of those read and written, what ls_comm_stats counts: each byte at one of its two ranks */
    int rounds;       /* waits for peers, of which each needs the one before */
} ls_traffic;

/* What the schedule's rank moves. The result (LS_BUF_OUT) has `count` elements of `elem` bytes, or counts[r] from rank
 * r; in an all_to_all this rank sends in[r] elements to rank r, else `in` is NULL. Between this rank and
 * those in `narrow` (NULL: none) values of 4 bytes travel as 2 (ls_run.narrow). `copied`, `counted` and `rounds` are
 * not set. */
ls_status ls_sched_traffic(const ls_sched *s, size_t count, const size_t *counts, const size_t *in, size_t elem,
                           const ls_rank_set *narrow, ls_traffic *out);
/* Rounds until every rank is through: the longest chain of messages, by the simulator. */
ls_status ls_sched_rounds(const ls_algo *algo, const ls_shape *shape, int *out);

/* By the cost model, in memory: rounds x alpha, beta for each byte moved or copied, gamma instead for each that is
 * added where it lies. */
double ls_traffic_ns(const ls_cost *c, const ls_traffic *t);

#endif
