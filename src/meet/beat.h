/* beat.h -- what one host tells another of its ranks, some ten times a second.
 *
 * A beat has the job's cause, once there is one, the newest checkpoint, and for each rank
 * its process, its step and its newest collective. Who reads it writes that into the slots of his own
 * world page that stand for ranks of other hosts; so whoever looks at the page for
 * blame, for a mismatch or for a report need not care where a rank is.
 */
#ifndef LS_MEET_BEAT_H
#define LS_MEET_BEAT_H
#include <stdbool.h>
#include "base/rank_set.h"
#include "meet/page.h"

typedef struct ls_beat_head {
    uint32_t nranks, count; /* of the world; of ranks told here */
    uint32_t abort_by;      /* as in the page; 0: no cause yet */
    int32_t abort_status, abort_about;
    uint32_t text;          /* bytes of the cause's sentence, which follow */
    uint32_t saved;         /* an ls_saved_state: the newest checkpoint */
    uint32_t path;          /* bytes of its path, which follow that sentence */
    int64_t saved_step;
    int64_t snapshot;       /* step of the newest snapshot in memory; -1: none */
} ls_beat_head;
_Static_assert(sizeof(ls_beat_head) == 48, "no padding on the wire");

/* An ls_flow: of the group of the rank's newest collective, or of the message that it waits for. */
typedef struct ls_beat_flow {
    uint32_t group, seq, done, block;
    uint64_t waits[LS_PAGE_LANES];
    uint32_t named; /* the group that the name is of */
    char name[LS_GROUP_TEXT_BYTES];
} ls_beat_flow;

/* What it has sent to one peer (ls_page_sent). Peers to whom it has sent nothing are not told of. */
typedef struct ls_beat_peer {
    uint32_t rank, sent[LS_PAGE_LANES + 1];
} ls_beat_peer;

#define LS_BEAT_FILE_BYTES 24

typedef struct ls_beat_rank {
    uint32_t rank;
    int32_t pid;
    uint32_t state, step, micro_batch, in_coll;
    uint64_t waits_for;
    uint64_t still_ns;      /* since its collectives moved last */
    uint32_t has_desc, has_message;
    ls_coll_desc desc;      /* its newest collective, whose label is the string that follows */
    ls_coll_desc message;   /* and the message that it waits for */
    uint32_t task, reserved; /* an ls_task_kind */
    uint64_t task_ns, limit_ns; /* since when (UINT64_MAX: since ever), and for how long at most */
    char label[LS_BLACKBOX_STRING_BYTES];
    char file[LS_BEAT_FILE_BYTES]; /* the end of a longer path, behind dots */
    ls_beat_flow flow;
    uint32_t npeers, reserved2; /* ls_beat_peer, which follow */
} ls_beat_rank;
_Static_assert(sizeof(ls_beat_rank) == 48 + 64 + 24 + LS_BLACKBOX_STRING_BYTES + LS_BEAT_FILE_BYTES +
                                               sizeof(ls_beat_flow) + 8 &&
                   sizeof(ls_beat_flow) == 36 + LS_GROUP_TEXT_BYTES && sizeof(ls_beat_peer) == 16,
               "no padding on the wire");

/* Of every beat of a world. Each rank may have sent to all others; more than LS_BEAT_PEERS per rank, on average, are
 * not told of: then nobody can say where that rank's messages are. */
#define LS_BEAT_PEERS 64
size_t ls_beat_most_bytes(uint32_t nranks);

/* Which ranks a beat is about: those in the set or, with `others`, those that are not. */
typedef struct ls_beat_of {
    const ls_rank_set *set;
    bool others;
} ls_beat_of;
static inline bool ls_beat_is_of(ls_beat_of of, int rank) { return ls_rank_set_has(of.set, rank) != of.others; }

/* Tells of the ranks in `of` that have joined. Returns the bytes written to out[ls_beat_most_bytes(p->nranks)]. */
size_t ls_beat_write(const ls_world_page *p, ls_beat_of of, uint64_t now_ns, void *out);
/* Takes over what is told of ranks in `of`, and, if rank 0 is one, of its checkpoint; the others are left alone.
 * told (of the world's size; NULL is fine) gets the ranks it spoke of. False, with the page as it was, when the bytes
 * are no beat of this world. */
bool ls_beat_read(ls_world_page *p, ls_beat_of of, const void *in, size_t n, uint64_t now_ns, ls_rank_set *told);

#endif
