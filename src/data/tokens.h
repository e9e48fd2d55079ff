/* tokens.h -- token files in memory, and writing them. */
#ifndef LS_DATA_TOKENS_H
#define LS_DATA_TOKENS_H
#include <stdint.h>
#include "base/commit.h"
#include "lockstep/data.h"

#define LS_LLMC_HEADER 1024 /* bytes */
#define LS_LLMC_MAX    INT32_MAX /* tokens: its header counts in int32 */

/* The tokens of a file's n bytes, which must stay: out->map is NULL, path NULL. p is aligned to 4 bytes. */
ls_status ls_tokens_parse(const char *name, const void *p, size_t n, ls_token_format format, ls_tokens *out);

/* A token file on its way: 16 bits each while vocab <= 65536, else 32. A bounded piece of it is in memory. */
typedef struct ls_token_writer {
    ls_token_format format;
    bool wide;       /* 32 bits */
    ls_commit *file; /* owned */
    uint8_t *p;      /* owned: not written yet */
    size_t n;        /* bytes of it */
    size_t tokens;   /* so far */
} ls_token_writer;

/* Begins the file: under its name it is there when it is finished, whole or not at all. LS_UNSUPPORTED: nanoGPT's
 * format has no 32 bits. LS_IO. On failure there is nothing to close. */
ls_status ls_token_writer_open(ls_token_writer *w, const char *path, ls_token_format format, uint32_t vocab);
ls_status ls_token_writer_add(ls_token_writer *w, const uint32_t *id, size_t n);
/* LS_IO; LS_INVALID: more tokens than the header can count. Close it all the same. */
ls_status ls_token_writer_finish(ls_token_writer *w);
void ls_token_writer_close(ls_token_writer *w); /* zeroed is fine; a file that is not finished goes */

#endif
