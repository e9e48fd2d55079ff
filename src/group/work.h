/* work.h -- a collective or message in flight, and the queue that it waits in. */
#ifndef LS_GROUP_WORK_H
#define LS_GROUP_WORK_H
#include <stdatomic.h>

#include "lockstep/group.h"
#include "lockstep/shard.h"
#include "meet/page.h"

#define LS_WORKS 64             /* collectives of one group in flight */
_Static_assert(LS_PAGE_HISTORY >= LS_WORKS, "all in flight are described");
#define LS_TURN_BYTES ((size_t)256 << 10) /* moved in one turn: a progress point must not take long */
#define LS_LONG_WAIT_NS 1000000u /* 1 ms: then a wait for a smaller work is timed, too */
#define LS_TIMED_BYTES 4096 /* smaller works are counted, not timed, */
#define LS_TIMED_BLOCKING_BYTES \
    ((size_t)1 << 20) /* and so are blocking ones that two looks at the clock would slow down */

/* What every collective touches comes first: four cache lines. */
struct ls_work {
    ls_group *g;             /* borrowed */
    const struct ls_form *form; /* how it is carried out; changes while it moves, see memory/in_place.c */
    int phase, peer;         /* progress of a mapped collective; peer of a message: the other member */
    uint32_t sig;
    uint32_t mseq, rooted;   /* numbers of the group's collectives in memory up to this one: those in which everyone
                                waits for everyone, and the rooted ones */
    bool live;               /* between start and wait */
    bool past_cache;         /* all that is touched is more than a cache holds */
    _Atomic uint32_t done;   /* release: status and results are visible */
    ls_status status;        /* valid once done */
    char *staged;            /* the vector is private: where a copy of it stands; NULL: it is not, or goes in pieces */
    size_t nbytes;           /* of the whole vector */
    size_t pos;
    size_t moved;            /* bytes counted for it so far */
    const char *algo;        /* of the schedule that carries it out; NULL: its form is no schedule */
    ls_range share;          /* this rank's part of the vector, elements */
    uint64_t t0_ns, t1_ns;   /* started, complete; t0 0: too small to be timed */
    const char *copied;      /* the own vector, where the result overwrites it; the group's */
    ls_coll_args a;          /* its counts are not ours: use ls_work_share */
    const size_t *counts, *recv_counts; /* NULL: equal shares; else [size], in the group's keeping */
    const ls_matrix_span *span; /* NULL: one piece per rank. Else [nspans], the caller's; `counts` are the parts */
    ls_coll_desc desc;

    int nspans;
    char *packed, *unpacked; /* borrowed: the packed vector of spans, rank by rank; and where the result belongs: */
    bool apart;              /* this rank's rows only, side by side; false: the whole vector, in place */
    size_t piece;            /* staged: elements of a part in a slot, of which there are `parts`, */
    uint32_t npieces, stage; /* in so many pieces, numbered from `stage` on */
    int parts;
    uint64_t ticket, says;   /* p2p; says: the message's signature */
    bool discards;           /* p2p: receives a message that no call will ask for, and discards it */
    struct ls_backend_request *request; /* of a work that a backend carries out, from phase 1 on */
};

/* work.c: what the calls of calls.c, p2p.c and memory/quick.c are made of, beside ls_coll_start, ls_work_test and
 * ls_work_wait. Starts and waits; what never entered the queue costs the least. */
ls_status ls_coll_run(ls_group *g, const ls_coll_args *a);
/* Goes on with a collective that memory/quick.c has begun, the newest of the group; `shown`: what peers wait for is
 * there. */
LS_COLD ls_status ls_coll_late(ls_group *g, const ls_coll_args *a, uint32_t sig, const struct ls_form *form,
                               bool shown);
/* A group is of no more use after st, and neither is the job. Returns the better cause, if there is one. */
ls_status ls_group_fail(ls_group *g, ls_status st);

#endif
