/* prepare.h -- documents to token files; images to files that training reads. */
#ifndef LS_DATA_PREPARE_H
#define LS_DATA_PREPARE_H
#include "data/corpus.h"
#include "lockstep/data.h"

typedef struct ls_prepare {
    const char *out;         /* the folder; made if it is missing */
    ls_token_format format;
    double val;              /* share of the documents, 0 <= val < 1: the last ones */
    bool lossy;              /* what is not UTF-8 becomes U+FFFD */
    /* Called now and then; may be NULL. bytes of total are done. */
    void (*progress)(void *arg, size_t bytes, size_t total);
    void *arg;
} ls_prepare;

typedef struct ls_prepared {
    size_t documents[2], bytes[2], tokens[2]; /* train, val */
    uint32_t vocab;
} ls_prepared;

/* Writes out/train.bin, out/val.bin (unless val is 0) and out/tokenizer.json, each whole or not at all. Every
 * document begins with end-of-text. The last ceil(val * documents) are the validation's; a single document is cut
 * behind the last line that ends before its share begins.
 * LS_BAD_FILE: not UTF-8, or a character without a token; file and byte are named. LS_IO; LS_UNSUPPORTED: the
 * tokenizer has no end-of-text, or the format cannot hold it. */
ls_status ls_prepare_tokens(const ls_prepare *p, ls_corpus *c, ls_tokenizer *t, ls_prepared *out);

/* A tokenizer of all characters in the corpus. LS_BAD_FILE as above. */
ls_status ls_prepare_chars(const ls_prepare *p, ls_corpus *c, ls_tokenizer **out);

/* Images and labels of MNIST's layout in the folder `from` (ls_dataset_open_idx), looked through and written unpacked
 * into the folder `out`, which is made if it is missing; data.path may name it. images: of training and of tests.
 * LS_IO; LS_BAD_FILE: as there. */
ls_status ls_prepare_idx(const char *from, const char *out, size_t images[2]);

#endif
