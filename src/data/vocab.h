/* vocab.h -- the tokens of a tokenizer: bytes by id, and ids by bytes. */
#ifndef LS_DATA_VOCAB_H
#define LS_DATA_VOCAB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#define LS_NO_TOKEN UINT32_MAX

typedef struct ls_vocab {
    uint32_t n;          /* ids are below it */
    uint32_t cap;        /* of at and len */
    uint32_t *at, *len;  /* owned, [n]: token i is bytes[at[i]], len[i] of them; len 0: no such token */
    char *bytes;         /* owned */
    size_t nbytes, room; /* of bytes: used, allocated */
    uint32_t *slot;      /* owned, [mask + 1]: a hash table of id + 1; 0: empty */
    uint32_t mask, used;
} ls_vocab;

/* LS_NO_MEMORY; LS_INVALID: the id is taken or beyond the limit, the token empty, too long, or there
 * already under another id. Messages do not show the token: it may be anything. */
ls_status ls_vocab_add(ls_vocab *v, uint32_t id, const char *p, size_t n);
uint32_t ls_vocab_find(const ls_vocab *v, const char *p, size_t n); /* LS_NO_TOKEN: not there */
void ls_vocab_free(ls_vocab *v);

/* GPT-2's alphabet: vocabularies are text files, so each byte is written as a character that can be
 * printed. '!'..'~', U+00A1..U+00AC and U+00AE..U+00FF stand for themselves; the other 68 bytes are, in
 * ascending order, U+0100 and the following. A blank becomes U+0120. */
unsigned ls_byte_to_char(uint8_t b);
/* The other way, of n bytes of UTF-8 into out (as many bytes at most); returns the number of bytes, or
 * SIZE_MAX when there is something else than that alphabet. */
size_t ls_chars_to_bytes(const char *p, size_t n, char *out);

#endif
