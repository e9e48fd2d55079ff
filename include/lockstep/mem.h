/* mem.h -- arenas and the memory ledger.
 *
 * Big memory comes from two arenas per rank: a *shared* one (sealed memfds that every local rank maps, so that peers
 * read and write gradients in place), which grows, and a *private* one. Their pages are touched when they are
 * allocated: a page fault costs 10 to 50 times a page copy.
 */
#ifndef LS_MEM_H
#define LS_MEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_arena ls_arena;

typedef enum ls_mem_kind {
    LS_MEM_PARAM, LS_MEM_GRAD, LS_MEM_OPTIM, LS_MEM_ACT, LS_MEM_COMM, LS_MEM_DATA, LS_MEM_CKPT,
    LS_MEM_KINDS
} ls_mem_kind;

/* Bytes that one unit of a model (unit.h) holds, by kind, without what alignment adds: now, and at the moment when all
 * rows together held most of the kind. */
#define LS_LEDGER_ROW_NAME 32
typedef struct ls_ledger_row {
    char name[LS_LEDGER_ROW_NAME]; /* "h.3"; "root": what several units use */
    size_t now[LS_MEM_KINDS], peak[LS_MEM_KINDS];
} ls_ledger_row;

/* Bytes in use (each allocation rounded up to 64) and the high-water mark, by kind. One ledger per rank. Bytes of a
 * kind that are in no row: alignment, scratch memory of backward, packed weights, communication, samples, and whatever
 * was not assigned (ls_arena_assign). */
typedef struct ls_ledger {
    size_t now[LS_MEM_KINDS], peak[LS_MEM_KINDS];
    ls_ledger_row *row; /* [nrows], from ls_parallelize to ls_parallel_destroy: row[0] the root, row[1 + u] unit u;
                           NULL: not counted by unit */
    int nrows;
    int first;          /* number of row[0]: numbers are not used again once rows are closed */
    size_t held[LS_MEM_KINDS], most[LS_MEM_KINDS]; /* bytes of all rows together, now and at most */
} ls_ledger;

/* "param" "grad" "optim" "act" "comm" "data" "ckpt". */
const char *ls_mem_kind_name(ls_mem_kind k);

/* An arena of nbytes (rounded up to pages), zeroed and prefaulted. `shared`
 * makes it a sealed memfd whose descriptor peers can map. `ledger` (borrowed,
 * may be NULL) counts what is allocated from it.
 * LS_NO_MEMORY names need and what is available, and nothing is reserved. */
ls_status ls_arena_create(size_t nbytes, bool shared, ls_ledger *ledger, ls_arena **out);
/* An arena of addresses without memory, as many as are asked for, to plan with. Its ledger and its marks are those of a
 * real arena; to read or write what it hands out is a fault. */
ls_status ls_arena_create_dry(ls_ledger *ledger, ls_arena **out);
bool ls_arena_is_dry(const ls_arena *a);
void ls_arena_destroy(ls_arena *a); /* NULL is fine; unmaps and closes */
/* Another ledger (borrowed; NULL: none) counts what is handed out, and what is in use already moves to it. For the
 * arena of a rank that is a thread, which is made before the rank is. */
void ls_arena_charge(ls_arena *a, ls_ledger *ledger);

/* 64-byte aligned, zeroed on the arena's first use only; lives until the arena
 * is destroyed or reset to an older mark. LS_NO_MEMORY when it does not fit. Two
 * threads may do this at once (a rank and the thread that moves its messages). */
ls_status ls_arena_alloc(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out);
/* The same, but the ledger does not count it: for memory that several ranks use, and each counts in part. */
ls_status ls_arena_alloc_uncounted(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out);
/* Counts [p, p + nbytes) in the ledger's row of a unit (its number in ls_units; -1: the root) until the arena takes the
 * memory back. Nothing happens where the ledger has no rows; an unknown unit is counted nowhere. The bytes are of one
 * kind, handed out, and assigned to nothing yet: LS_INVALID otherwise. LS_NO_MEMORY: no memory to note it. */
ls_status ls_arena_assign(ls_arena *a, const void *p, size_t nbytes, int unit);
size_t ls_arena_mark(const ls_arena *a);
void ls_arena_reset(ls_arena *a, size_t mark); /* the ledger's `now` follows */

/* From here on the arena grows: what does not fit gets a further segment, of the same sort and prefaulted. The first is
 * of 1 MiB, each later one twice as large up to 256 MiB, and none smaller than what is asked for. `added` (may be NULL)
 * hears of a segment before anything in it is handed out, on the thread that allocates; the descriptor is closed after
 * it returns. Where it fails, or no memory is left, ls_arena_alloc fails and says what wanted how much. Segments stay
 * until the arena is destroyed. */
#define LS_ARENA_SEGMENTS 64 /* at most */
typedef ls_status (*ls_arena_added_fn)(void *arg, int segment, int fd);
void ls_arena_may_grow(ls_arena *a, ls_arena_added_fn added, void *arg);

/* One span of an arena's memory, as this process has mapped it. */
typedef struct ls_segment {
    char *base;
    size_t size;
} ls_segment;

/* The i-th segment; of size 0 where there is none yet. For any thread. */
ls_segment ls_arena_segment(const ls_arena *a, int i);
/* Where [p, p + nbytes) lies, for peers: the number of its segment << LS_ARENA_PLACE_BITS | its place in there.
 * False when it is not inside one. For any thread. */
#define LS_ARENA_PLACE_BITS 48
bool ls_arena_offset(const ls_arena *a, const void *p, size_t nbytes, uint64_t *offset);

void *ls_arena_base(const ls_arena *a);  /* of the first segment */
size_t ls_arena_size(const ls_arena *a); /* of all; for any thread */
/* Bytes of all segments that are not handed out, and (unless NULL) the arena's size at the same moment. The two threads
 * that may allocate may ask, too: an answer waits for an allocation that has begun. */
size_t ls_arena_room(ls_arena *a, size_t *size);
int ls_arena_fd(const ls_arena *a);      /* of the first segment; -1 for a private arena */
/* Whether [p, p + nbytes) lies inside one segment. */
bool ls_arena_holds(const ls_arena *a, const void *p, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
