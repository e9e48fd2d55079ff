/* probe.h -- what the files of lab 01's probe share. */
#ifndef LS_LAB_BUCKETS_PROBE_H
#define LS_LAB_BUCKETS_PROBE_H
#include "../net.h"

enum { RANKS = 4, SEED = 42, MOST = 32768, BUCKETS = 8, NAMES = 1024 };

/* Caps that make three buckets of the net, as mlp.yaml's do. */
static const ls_ddp_config caps = { .first_bucket = 2048, .bucket_cap = 16384 };

/* A word with what follows it, and what its ranks tell main. */
typedef struct job {
    const char *word, *more;
    bool late, first, rebuilt;
    int from, other; /* buckets */
    uint64_t hash[RANKS];
    double result, second;
    char text[4][NAMES], events[NAMES];
    int at[5], named[RANKS]; /* named: the rank that a rank has waited for */
} job;

/* Numbers the events of a step, of one rank: gradients by parameter, launches and ends by bucket. */
typedef struct watcher {
    ls_comm_hook hook; /* first: DDP hands it back */
    const ls_params *ps;
    int clock, last, launch[BUCKETS], reduced[BUCKETS], ready[16];
    uint64_t launched_ns[BUCKETS], ready_ns[16];
    char arrived[NAMES]; /* names of parameters, as their gradients became ready */
    char events[NAMES];  /* their numbers and names */
} watcher;

/* Sets the hook and listens. Call it before the first forward: so the watcher hears of a gradient before DDP does. */
ls_status watch(watcher *x, net *n);
/* The number of the last gradient of a bucket, and its time in *ns. */
int ready_at(const watcher *x, const net *n, int bucket, uint64_t *ns);
void add_name(char *list, const char *name);

/* Words: see probe.c. */
ls_status events(ls_world *w, void *arg);
ls_status order(ls_world *w, void *arg);
ls_status asleep(ls_world *w, void *arg);
ls_status accumulate(ls_world *w, void *arg);
ls_status slow(ls_world *w, void *arg);
ls_status skips(ls_world *w, void *arg);

#endif
