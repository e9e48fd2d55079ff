/* rounds.h -- a schedule round by round, for people who want to watch it.
 *
 * The prover's steps, all ranks in step: in a round each lane sends at most one message and receives at most one
 * (a SUM receives from everybody at once). So a ring of n ranks takes 2 (n-1) rounds for an all_reduce, and a binomial
 * tree log2 n for a broadcast, as in the books.
 */
#ifndef LS_COLL_ROUNDS_H
#define LS_COLL_ROUNDS_H
#include "lockstep/sched.h"

typedef struct ls_round_message {
    int round;        /* 1 .. n: when it is received; of a SUM, when it is sent */
    int from, to, lane;
    ls_slice src, dst;
    bool adds;        /* what comes is added to what is there */
} ls_round_message;

typedef struct ls_rounds {
    int n, size;
    uint32_t nchunks;          /* of OUT */
    ls_round_message *message; /* owned: [nmessages], by round */
    int nmessages;
    uint8_t *count;            /* owned: [n + 1][size][nchunks][size], see ls_rounds_count */
} ls_rounds;

/* Schedules of all ranks that the prover accepts. LS_NO_MEMORY; LS_INTERNAL: they end in a deadlock; LS_UNSUPPORTED:
 * too large to watch. Free with ls_rounds_free, also after a failure. */
ls_status ls_rounds_create(const ls_sched *const *per_rank, int size, ls_rounds *out);
void ls_rounds_free(ls_rounds *r); /* zeroed is fine */

/* How often rank q's contribution is in chunk c of `rank` after a round; round 0: at the start. */
static inline uint8_t ls_rounds_count(const ls_rounds *r, int round, int rank, uint32_t c, int q)
{
    const size_t n = (size_t)r->size, at = ((size_t)round * n + (size_t)rank) * r->nchunks + c;
    return r->count[at * n + (size_t)q];
}
/* Of how many ranks chunk c of `rank` has a contribution after a round. */
int ls_rounds_ranks(const ls_rounds *r, int round, int rank, uint32_t c);

#endif
