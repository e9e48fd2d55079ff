/* probe.h -- what the files of lab 10's probe share. */
#ifndef LS_LAB_SCRIPT_PROBE_H
#define LS_LAB_SCRIPT_PROBE_H
#include "lockstep/lockstep.h"

enum { MOST_RANKS = 8, VECTOR = 13440, KINDS = 3, MOST_LOSSES = 16 };

/* What a rank has found, in memory that its parent shares with it. */
typedef struct finding {
    ls_status status;
    char text[512];
    float sum;
    bool refused;
    _Atomic bool counted;
    int before[KINDS], after[KINDS];
    double loss[MOST_LOSSES], whole; /* the printed ones; of the trained model over all samples */
    unsigned order[MOST_LOSSES];
    char digest[33];
    unsigned long long bytes;
} finding;

typedef struct task {
    int size, epochs;
    const char *word, *out, *algo; /* out: NULL: nothing is saved */
    const ls_model_config *model;  /* the starter's */
    finding *f;                    /* [size] */
} task;

typedef ls_status (*rank_fn)(int rank, const task *t, finding *f);

/* Runs fn in t->size processes, waits for all, and fails as the first rank that failed. */
ls_status fork_ranks(const task *t, rank_fn fn);
/* "key": [v, ..] */
void print_list(const char *key, const double *v, int n);

/* Ranks that are threads, for ls_world_threads: the words start and ring. */
ls_status starts(ls_world *w, void *arg);
ls_status moves(ls_world *w, void *arg);

/* Words: see probe.c. */
ls_status sampler(long long n, int ranks, const char *word);
ls_status demo(const char *word);

#endif
