/* bpe.h -- byte pair encoding of one word: the merges, and what they made of words seen before. */
#ifndef LS_DATA_BPE_H
#define LS_DATA_BPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/data.h"
#include "data/vocab.h"

/* Two neighbouring tokens become one. */
typedef struct ls_merge {
    uint32_t left, right, made;
} ls_merge;

typedef struct ls_pair_slot {
    uint32_t left, right;
    uint32_t rank; /* the index of the merge; LS_NO_TOKEN: an empty slot */
    uint32_t made;
} ls_pair_slot;

/* Words seen and their ids. When it is full it starts again from nothing: only time depends on it. */
typedef struct ls_word_cache {
    struct ls_word_slot *slot; /* owned, [WORD_SLOTS] */
    uint8_t *room;             /* owned: each word and its ids */
    size_t used;               /* bytes of room */
    uint32_t words;
} ls_word_cache;

typedef struct ls_bpe {
    uint32_t of_byte[256];
    ls_merge *merge;      /* owned, [nmerges], the first is the strongest */
    uint32_t nmerges, cap;
    ls_pair_slot *pair;   /* owned, [mask + 1]: the merges by their two tokens */
    uint32_t mask;
    const ls_vocab *whole; /* borrowed: a word that is a token is that token, whatever the merges say. NULL: no */
    ls_word_cache cache;
    void *scratch;        /* owned: for words too long for the stack */
    size_t scratch_bytes;
} ls_bpe;

/* Adds the next merge. LS_NO_MEMORY. */
ls_status ls_bpe_add(ls_bpe *b, uint32_t left, uint32_t right, uint32_t made);
/* Once, after the last merge and with of_byte set. LS_NO_MEMORY; LS_INVALID: a merge stands twice. */
ls_status ls_bpe_finish(ls_bpe *b);
void ls_bpe_free(ls_bpe *b);

/* The ids of a word of n > 0 bytes, added to out: of all pairs of neighbours the one with the strongest merge, the
 * leftmost among equals, becomes one token, until there is none. LS_NO_MEMORY. */
ls_status ls_bpe_word(ls_bpe *b, const char *word, size_t n, ls_ids *out);
/* The same without the memory of earlier words. */
ls_status ls_bpe_merge(ls_bpe *b, const char *word, size_t n, ls_ids *out);

/* Room for n more ids; the caller then writes p[ids->n...]. LS_NO_MEMORY. */
ls_status ls_ids_reserve(ls_ids *ids, size_t n);

#endif
