/* tokens.h -- token files in memory, and writing them. */
#ifndef LS_DATA_TOKENS_H
#define LS_DATA_TOKENS_H
#include <stdint.h>
#include "lockstep/data.h"

#define LS_LLMC_HEADER 1024 /* bytes */
#define LS_LLMC_MAX    INT32_MAX /* tokens: its header counts in int32 */

/* The tokens of a file's n bytes, which must stay: out->map is NULL, path NULL. p is aligned to 4 bytes. */
ls_status ls_tokens_parse(const char *name, const void *p, size_t n, ls_token_format format, ls_tokens *out);

/* Tokens that grow in memory until they are written: 16 bits each while vocab <= 65536, else 32. */
typedef struct ls_token_writer {
    ls_token_format format;
    uint32_t vocab;
    uint8_t *p;    /* owned: the file, header first */
    size_t n, cap; /* bytes */
    size_t tokens;
} ls_token_writer;

/* LS_UNSUPPORTED: nanoGPT's format has no 32 bits. */
ls_status ls_token_writer_init(ls_token_writer *w, ls_token_format format, uint32_t vocab);
ls_status ls_token_writer_add(ls_token_writer *w, const uint32_t *id, size_t n);
/* The file under its name, whole or not at all. LS_IO; LS_INVALID: more tokens than the header can count. */
ls_status ls_token_writer_save(ls_token_writer *w, const char *path);
void ls_token_writer_free(ls_token_writer *w);

#endif
