/* probe.h -- what the files of lab 00's probe share. */
#ifndef LS_LAB_CONVERSION_PROBE_H
#define LS_LAB_CONVERSION_PROBE_H
#include <stdbool.h>
#include <string.h>

#include "lockstep/lockstep.h"

enum { RANKS = 4, PATH = 512 };

/* A word with what follows it, and what its ranks tell main. */
typedef struct job {
    const char *more, *more2;
    char folder[PATH]; /* of files that ranks write; removed at the end */
    char digest[RANKS][33], loaded[33];
    uint64_t bytes[2];
    int64_t parameters, elements;
    int calls, ascending, last, code, says;
} job;

static inline bool more_is(const job *j, const char *word) { return strcmp(j->more, word) == 0; }

/* The bytes of a file, at most 1 MiB, and a NUL; the caller frees *text. LS_IO. */
ls_status read_file(const char *path, char **text, size_t *nbytes);

/* Words: see probe.c. */
ls_status nodes(job *j);
ls_status save(job *j);
ls_status writers(job *j);
ls_status module(job *j);
/* What `nodes` starts as each rank. */
ls_status report(ls_world *w, void *arg);

#endif
