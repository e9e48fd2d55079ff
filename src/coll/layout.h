/* layout.h -- where the chunks of a schedule lie in a vector.
 *
 * The vector is cut over ranks by ls_shard_range, or by counts per rank
 * (broadcast and its like: not cut), and each share again over segments, so
 * that a share that does not divide, or is empty, needs no special case
 * anywhere. IN, OUT and TMP are cut alike; only in an all_to_all with counts is
 * IN cut by what is sent, OUT and TMP by what is received.
 */
#ifndef LS_COLL_LAYOUT_H
#define LS_COLL_LAYOUT_H
#include <stddef.h>
#include "lockstep/sched.h"

typedef struct ls_layout {
    size_t *at[3];    /* of each buffer: element where chunk c starts; at[b][nchunks] is where the last ends */
    uint32_t nchunks;
    uint32_t parts;   /* shares: size, or 1 */
    size_t count;     /* elements of OUT; SIZE_MAX: cut by counts, or not yet */
    size_t *memory;   /* owned: what `at` points into */
} ls_layout;

/* LS_UNSUPPORTED when the schedule's chunks are not parts * segments. */
ls_status ls_layout_create(const ls_sched *s, ls_layout *out);
void ls_layout_free(ls_layout *l);

/* Cuts count elements evenly. Cheap when count is what it was. */
void ls_layout_set(ls_layout *l, size_t count);
/* Cuts by counts: out[r] elements of OUT and TMP are rank r's; of IN in[r], or, for NULL, as many. [parts] each. */
void ls_layout_set_counts(ls_layout *l, const size_t *out, const size_t *in);

/* Elements of a slice, and where it starts. */
static inline size_t ls_layout_first(const ls_layout *l, ls_slice a) { return l->at[a.buf][a.first]; }
static inline size_t ls_layout_count(const ls_layout *l, ls_slice a)
{
    return l->at[a.buf][a.first + a.n] - l->at[a.buf][a.first];
}

/* Bytes of TMP that a run whose OUT has `count` elements of `elem` bytes needs; 0: none. */
size_t ls_sched_tmp_bytes(const ls_sched *s, size_t count, size_t elem);

#endif
