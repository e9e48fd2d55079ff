/* source.h -- where a run's data come from: files that are there, that are fetched, or that are made of a text. */
#ifndef LS_TRAIN_SOURCE_H
#define LS_TRAIN_SOURCE_H
#include "data/sets.h"
#include "lockstep/data.h"
#include "train/config.h"

#define LS_SOURCE_PATH 400

typedef struct ls_source {
    char train[LS_SOURCE_PATH], val[LS_SOURCE_PATH], tokenizer[LS_SOURCE_PATH]; /* files; "": there is none */
    ls_tokenizer *opened; /* owned: that of the file, else of data.tokenizer; NULL: neither is known */
    bool made;            /* the token files were made by this call */
    const char *prompt;   /* of samples, borrowed: train.sample_prompt; "" where the tokenizer cannot encode it */
    char no_prompt[160];  /* and why it cannot; "": it can */
} ls_source;

/* The token files that c->data names:
 *
 *   tokens            data.path: a folder with train.bin, val.bin and tokenizer.json, or a token file; beside
 *                     abc_train.bin are abc_val.bin and tokenizer.json, as far as they are there
 *   sotu, moby-dick   the corpora of `lockstep data prepare`, which are fetched (data/sets.h) when they are missing,
 *   a file, a folder  the user's own text (data/corpus.h): both in data.path, else in .cache/tokens
 *
 * A text that has no token files yet gets them, with data.tokenizer: from the first rank of each host, while
 * the others wait for it. They appear at once, as a whole folder.
 * LS_IO, LS_BAD_FILE: what is missing or wrong, by name. */
ls_status ls_source_find(const ls_train_config *c, ls_source *out);
void ls_source_free(ls_source *s); /* zeroed is fine */
/* Ids are below it: model.vocab_size, else what the tokenizer says, else the preset. LS_BAD_CONFIG: nothing
 * says it, or the tokenizer has more tokens. */
ls_status ls_source_vocab(const ls_train_config *c, const ls_source *s, int64_t *out);
/* The folder of a run's images: data.path, else that of fashion-mnist, which the first rank of each node fetches when
 * it is missing, while the others wait for it. LS_IO: it could not be fetched. */
ls_status ls_source_images(const ls_train_config *c, char path[LS_SET_PATH]);
/* Before ranks are started, or meet: fetches and makes what is missing, and finds what would fail in each of them. */
ls_status ls_source_prepare(const ls_train_config *c);
/* A prompt to try, for a shell's '...': a common one, else what `text` begins with, where the tokenizer has no tokens
 * for that; "" where that does not help either. s->opened is not NULL. */
void ls_source_prompt(const ls_source *s, const ls_tokens *text, char *out, size_t n);
/* The file's format: data.format, or what the file itself says. LS_BAD_FILE: auto, and it is text. */
ls_status ls_source_format(const ls_train_config *c, const char *path, ls_token_format *out);

#endif
