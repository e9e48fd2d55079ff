/* words.h -- a record in shared memory that one process writes and any may read whole.
 *
 * The record lies in words of 8 bytes behind a version, which is odd while they are rewritten: readers retry.
 */
#ifndef LS_MEET_WORDS_H
#define LS_MEET_WORDS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Stores `n` words of a record. */
void ls_words_write(_Atomic uint32_t *version, _Atomic uint64_t *word, const void *record, int n);
/* A consistent copy of them; false: their writer ended while it wrote. */
bool ls_words_read(const _Atomic uint32_t *version, const _Atomic uint64_t *word, void *record, int n);

#endif
