/* source.h -- where a language model's tokens come from: files that are there, or that are made of a text. */
#ifndef LS_TRAIN_SOURCE_H
#define LS_TRAIN_SOURCE_H
#include "lockstep/data.h"
#include "train/config.h"

#define LS_SOURCE_PATH 400

typedef struct ls_source {
    char train[LS_SOURCE_PATH], val[LS_SOURCE_PATH], tokenizer[LS_SOURCE_PATH]; /* files; "": there is none */
    ls_tokenizer *opened; /* owned: that of the file, else of data.tokenizer; NULL: neither is known */
    bool made;            /* the token files were made by this call */
} ls_source;

/* The token files that c->data names:
 *
 *   tokens            data.path: a folder with train.bin, val.bin and tokenizer.json, or a token file; beside
 *                     abc_train.bin are abc_val.bin and tokenizer.json, as far as they are there
 *   sotu, moby-dick   the corpora of `lockstep data prepare`,
 *   a file, a folder  text of one's own: both in data.path, else in .cache/tokens
 *
 * A text that has no token files yet gets them, with data.tokenizer: from the first rank of each host, while
 * the others wait for it. They appear at once, as a whole folder.
 * LS_IO, LS_BAD_FILE: what is missing or wrong, by name. */
ls_status ls_source_find(const ls_train_config *c, ls_source *out);
void ls_source_free(ls_source *s); /* zeroed is fine */
/* Ids are below it: model.vocab_size, else what the tokenizer says, else the preset. LS_BAD_CONFIG: nothing
 * says it, or the tokenizer has more tokens. */
ls_status ls_source_vocab(const ls_train_config *c, const ls_source *s, int64_t *out);
/* Before ranks are started: makes what has to be made, and finds what would fail in each of them. */
ls_status ls_source_prepare(const ls_train_config *c);
/* A prompt to try, for a shell's '...': a common one, else what `text` begins with, where the tokenizer has no tokens
 * for that; "" where that does not help either. s->opened is not NULL. */
void ls_source_prompt(const ls_source *s, const ls_tokens *text, char *out, size_t n);
/* The file's format: data.format, or what the file itself says. LS_BAD_FILE: auto, and it is text. */
ls_status ls_source_format(const ls_train_config *c, const char *path, ls_token_format *out);

#endif
