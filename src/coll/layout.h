/* layout.h -- where the chunks of a schedule lie in a vector of `count` elements.
 *
 * The vector is cut over ranks by ls_shard_range (broadcast and its like: not
 * cut), and each share again over segments, so that a share that does not
 * divide, or is empty, needs no special case anywhere. IN, OUT and TMP are cut
 * alike.
 */
#ifndef LS_COLL_LAYOUT_H
#define LS_COLL_LAYOUT_H
#include <stddef.h>
#include "lockstep/sched.h"

typedef struct ls_layout {
    size_t *at;       /* owned: element where chunk c starts; at[nchunks] is count */
    uint32_t nchunks;
    uint32_t parts;   /* shares: size, or 1 */
    size_t count;     /* SIZE_MAX before the first ls_layout_set */
} ls_layout;

/* LS_UNSUPPORTED when the schedule's chunks are not parts * segments. */
ls_status ls_layout_create(const ls_sched *s, ls_layout *out);
void ls_layout_free(ls_layout *l);

/* Cuts count elements. Cheap when count is what it was. */
void ls_layout_set(ls_layout *l, size_t count);

/* Elements of a slice, and where it starts. */
static inline size_t ls_layout_first(const ls_layout *l, ls_slice a) { return l->at[a.first]; }
static inline size_t ls_layout_count(const ls_layout *l, ls_slice a) { return l->at[a.first + a.n] - l->at[a.first]; }

/* Bytes of TMP that a run over `count` elements of `elem` bytes needs; 0: none. */
size_t ls_sched_tmp_bytes(const ls_sched *s, size_t count, size_t elem);

#endif
