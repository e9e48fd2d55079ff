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
    bool force;              /* files that are there and were made of something else are replaced */
    /* Called now and then; may be NULL. bytes of total are done. */
    void (*progress)(void *arg, size_t bytes, size_t total);
    void *arg;
} ls_prepare;

typedef struct ls_prepared {
    size_t documents[2], bytes[2], tokens[2]; /* train, val */
    uint32_t vocab;
} ls_prepared;

/* Whether p->out has token files already (*there), and whether they are what ls_prepare_tokens would make there again
 * (*same): as far as its source.txt says, which has digests of the texts and the tokenizer, and the options. LS_IO. */
ls_status ls_prepare_look(const ls_prepare *p, ls_corpus *c, const ls_tokenizer *t, bool *there, bool *same);

/* A digest of a tokenizer's tokens: two that agree in it give the same ids. */
uint64_t ls_prepare_tokenizer_digest(const ls_tokenizer *t);

/* Writes out/train.bin, out/val.bin (unless val is 0), out/tokenizer.json and out/source.txt, each whole or not at all.
 * Every document begins with end-of-text. The last ceil(val * documents) are the validation's; a single document is cut
 * behind the last line that ends before its share begins.
 * LS_BAD_FILE: not UTF-8, or a character without a token; file and byte are named. LS_IO; LS_UNSUPPORTED: the
 * tokenizer has no end-of-text, or the format cannot hold it. LS_INVALID: there are other files (ls_prepare_look). */
ls_status ls_prepare_tokens(const ls_prepare *p, ls_corpus *c, ls_tokenizer *t, ls_prepared *out);

/* A tokenizer of all characters in the corpus. LS_BAD_FILE as above. */
ls_status ls_prepare_chars(const ls_prepare *p, ls_corpus *c, ls_tokenizer **out);

/* Images and labels of MNIST's layout in the folder `from` (ls_dataset_open_idx), looked through and written unpacked
 * into the folder `out`, which is made if it is missing; data.path may name it. images: of training and of tests.
 * LS_IO; LS_BAD_FILE: as there; LS_INVALID: a file that is there is another, and not `force`. */
ls_status ls_prepare_idx(const char *from, const char *out, bool force, size_t images[2]);

#endif
