/* mem.h -- arenas and the memory ledger.
 *
 * Big memory comes from two arenas per rank: a *shared* one (a sealed memfd that
 * every local rank maps, so that peers read and write gradients in place) and
 * a *private* one. Both are allocated, and their pages touched, once at start:
 * a page fault costs 10 to 50 times a page copy.
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
    LS_MEM_PARAM, LS_MEM_GRAD, LS_MEM_OPTIM, LS_MEM_ACT, LS_MEM_COMM, LS_MEM_DATA, LS_MEM_KINDS
} ls_mem_kind;

/* Bytes in use (each allocation rounded up to 64) and the high-water mark, by
 * kind. One ledger a rank. */
typedef struct ls_ledger {
    size_t now[LS_MEM_KINDS], peak[LS_MEM_KINDS];
} ls_ledger;

/* "param" "grad" "optim" "act" "comm" "data". */
const char *ls_mem_kind_name(ls_mem_kind k);

/* An arena of nbytes (rounded up to pages), zeroed and prefaulted. `shared`
 * makes it a sealed memfd whose descriptor peers can map. `ledger` (borrowed,
 * may be NULL) counts what is allocated from it.
 * LS_NO_MEMORY names need and what is available, and nothing is reserved. */
ls_status ls_arena_create(size_t nbytes, bool shared, ls_ledger *ledger, ls_arena **out);
void ls_arena_destroy(ls_arena *a); /* NULL is fine; unmaps and closes */

/* 64-byte aligned, zeroed on the arena's first use only; lives until the arena
 * is destroyed or reset to an older mark. LS_NO_MEMORY when it does not fit. Two
 * threads may do this at once (a rank and the thread that moves its messages). */
ls_status ls_arena_alloc(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out);
size_t ls_arena_mark(const ls_arena *a);
void ls_arena_reset(ls_arena *a, size_t mark); /* the ledger's `now` follows */

void *ls_arena_base(const ls_arena *a);
size_t ls_arena_size(const ls_arena *a);
size_t ls_arena_room(const ls_arena *a); /* bytes not handed out */
int ls_arena_fd(const ls_arena *a); /* -1 for a private arena */
/* Whether [p, p + nbytes) lies inside. */
bool ls_arena_holds(const ls_arena *a, const void *p, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
