/* rank_set.h -- a set of the ranks 0 to size - 1, for any size: one bit per rank.
 *
 *     ls_rank_set far;
 *     LS_TRY(ls_rank_set_create(w->size, &far));
 *     ls_rank_set_add(&far, 3);
 *     for (int r = ls_rank_set_next(&far, 0); r >= 0; r = ls_rank_set_next(&far, r + 1)) ...
 *     ls_rank_set_free(&far);
 *
 * A set of zero bytes is a set of size 0: it has no ranks and need not be freed. */
#ifndef LS_BASE_RANK_SET_H
#define LS_BASE_RANK_SET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

typedef struct ls_rank_set {
    uint64_t *word; /* owned: rank r is bit r % 64 of word[r / 64]; bits from `size` on are 0 */
    int size;
} ls_rank_set;

/* Words of a set of `size` ranks. */
static inline size_t ls_rank_set_words(int size) { return ((size_t)size + 63) / 64; }

/* An empty set. LS_NO_MEMORY. */
ls_status ls_rank_set_create(int size, ls_rank_set *out);
void ls_rank_set_free(ls_rank_set *s);

/* A rank outside [0, size) is in no set. */
static inline bool ls_rank_set_has(const ls_rank_set *s, int rank)
{
    return (unsigned)rank < (unsigned)s->size && (s->word[rank / 64] >> (rank % 64) & 1u);
}
/* 0 <= rank < size */
static inline void ls_rank_set_add(ls_rank_set *s, int rank) { s->word[rank / 64] |= 1ull << (rank % 64); }
static inline void ls_rank_set_remove(ls_rank_set *s, int rank) { s->word[rank / 64] &= ~(1ull << (rank % 64)); }

void ls_rank_set_clear(ls_rank_set *s);
void ls_rank_set_add_all(ls_rank_set *s);
int ls_rank_set_count(const ls_rank_set *s);
bool ls_rank_set_is_empty(const ls_rank_set *s);
/* The lowest rank in the set that is at least `from`; -1: there is none. */
int ls_rank_set_next(const ls_rank_set *s, int from);
/* "0, 1, 4-9" into buf, and "..." at the end of what does not fit. Returns buf. */
const char *ls_rank_set_text(const ls_rank_set *s, char *buf, size_t n);

#endif
