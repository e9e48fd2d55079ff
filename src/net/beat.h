/* beat.h -- what one host tells another of its ranks, some ten times a second.
 *
 * A beat has the job's cause, once there is one, the newest checkpoint, and for each rank
 * its process, its step and its newest collective. Who reads it writes that into the slots of his own
 * world page that stand for ranks of other hosts; so whoever looks at the page for
 * blame, for a mismatch or for a report need not care where a rank is.
 */
#ifndef LS_NET_BEAT_H
#define LS_NET_BEAT_H
#include <stdbool.h>
#include "net/page.h"

typedef struct ls_beat_head {
    uint32_t nranks, count; /* of the world; of ranks told here */
    uint32_t abort_by;      /* as in the page; 0: no cause yet */
    int32_t abort_status, abort_about;
    uint32_t text;          /* bytes of the cause's sentence, which follow */
    uint32_t saved;         /* an ls_saved_state: the newest checkpoint */
    uint32_t path;          /* bytes of its path, which follow that sentence */
    int64_t saved_step;
} ls_beat_head;
_Static_assert(sizeof(ls_beat_head) == 40, "no padding on the wire");

/* An ls_flow: of the group of the rank's newest collective, or of the message that it waits for. */
typedef struct ls_beat_flow {
    uint32_t group, seq, done, block;
    uint64_t waits[LS_PAGE_LANES];
    uint32_t message[LS_MAX_RANKS], sent[LS_PAGE_LANES][LS_MAX_RANKS];
} ls_beat_flow;

#define LS_BEAT_FILE_BYTES 24 /* so that a beat of all ranks is one value of the store */

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
} ls_beat_rank;
_Static_assert(sizeof(ls_beat_rank) == 48 + 64 + 24 + LS_BLACKBOX_STRING_BYTES + LS_BEAT_FILE_BYTES +
                                               sizeof(ls_beat_flow) &&
                   sizeof(ls_beat_flow) == 32 + 12 * LS_MAX_RANKS,
               "no padding on the wire");

#define LS_BEAT_MAX_BYTES                                                                                              \
    (sizeof(ls_beat_head) + LS_ERROR_BYTES + LS_SAVED_PATH_BYTES + LS_MAX_RANKS * sizeof(ls_beat_rank))

/* Tells of the ranks in `mask` that have joined. Returns the bytes written to out[LS_BEAT_MAX_BYTES]. */
size_t ls_beat_write(const ls_world_page *p, uint64_t mask, uint64_t now_ns, void *out);
/* Takes over what is told of ranks in `mask`, and, if rank 0 is one, of its checkpoint; the others are left alone.
 * *told: the ranks it spoke of. False, with the page as it was, when the bytes are no beat of this world. */
bool ls_beat_read(ls_world_page *p, uint64_t mask, const void *in, size_t n, uint64_t now_ns, uint64_t *told);

#endif
