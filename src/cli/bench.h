/* bench.h -- lockstep bench from the inside.
 *
 *   cmd_bench.c     options, starting ranks
 *   bench_run.c     measuring, on every rank
 *   bench_data.c    what is sent, and what must arrive
 *   bench_fit.c     latency and bandwidth behind the rows
 *   bench_report.c  nccl-tests' table and its JSON file
 *   bench_explain.c why an algorithm is chosen, without measuring
 */
#ifndef LS_CLI_BENCH_H
#define LS_CLI_BENCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/text.h"
#include "lockstep/dtype.h"
#include "lockstep/sched.h"
#include "lockstep/world.h"

typedef struct ls_bench_opts {
    ls_coll coll;                /* from the positional argument */
    int64_t ranks;
    size_t min_bytes, max_bytes, step_bytes;
    int64_t step_factor;         /* 1: sizes grow by step_bytes */
    int64_t iters, warmup, agg, cycles, check, root, average, skip, unalign;
    bool more_iters;             /* nobody asked for `iters`: quick operations get more */
    int64_t trials;              /* of each row; the median is shown */
    uint64_t trial_time;         /* ns; 0: `iters` decides how long a trial is */
    bool blocking, touch, private_memory, threads, per_iter, timestamps, csv, ping_pong, checksums;
    bool count, fit, explain, print_json, help;
    const char *op, *dtype, *json, *transport, *backend, *algo, *wire;
    const char *place;           /* "both", "in" or "out" */
    const char *counts;          /* "even" or "uneven" */
    uint64_t timeout;
    int argc;                    /* of the whole command, for the JSON file; borrowed */
    char **argv;
} ls_bench_opts;

/* --- bench_data.c ------------------------------------------------------------------- */

/* One collective whose result is known beforehand. Contributions are small integers, so that every sum
 * and product of up to LS_HOST_MOST_RANKS of them is exact in every dtype, in any order of adding. */
typedef struct ls_bench_case {
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    int size, root;
    size_t count;       /* elements of the whole vector */
    const size_t *each; /* [size] elements of each rank's share, borrowed; for all_to_all [size][size]: what each
                           rank sends to each; NULL: equal shares */
    bool narrow;        /* floats of few bits, that bf16 holds too */
    uint32_t round;     /* other rounds have other data: a result left over from before is wrong */
} ls_bench_case;

/* Elements that rank `from` has for rank `to` (all_to_all), or of the share of rank `to` (`from` ignored). */
size_t ls_bench_share(const ls_bench_case *c, int from, int to);
/* Where they begin in the vector of `from`; in a vector of shares: where the share begins. */
size_t ls_bench_share_at(const ls_bench_case *c, int from, int to);

/* Elements [first, first + n) of the vector that `rank` contributes. */
void ls_bench_fill(const ls_bench_case *c, int rank, size_t first, size_t n, void *dst);
/* How many of the elements [first, first + n) of the result differ from what `rank` must find there. */
size_t ls_bench_wrong(const ls_bench_case *c, int rank, size_t first, size_t n, const void *found);

/* --- bench_run.c: bytes ---------------------------------------------------------------- */

/* What one operation moved, on every rank. */
typedef struct ls_bench_count {
    const char *algo;          /* NULL: not counted */
    bool known;                /* it says how many bytes it moves */
    int ranks, rounds;
    uint64_t most;             /* the most that a rank sends or receives, by what it says */
    uint64_t *measured, *formula; /* [ranks], borrowed until the next row */
} ls_bench_count;

/* --- bench_fit.c ---------------------------------------------------------------------- */

typedef struct ls_bench_point { double rounds, bytes, us; } ls_bench_point;
typedef struct ls_bench_line {
    double alpha_us, beta_us;  /* of a round, of a byte */
    double rms, worst;         /* relative residuals: 0.1 is 10 % */
} ls_bench_line;

/* T = rounds alpha + bytes beta, neither below 0, that fits best; false when two rows do not differ enough. */
bool ls_bench_fit(const ls_bench_point *p, int n, ls_bench_line *out);
double ls_bench_line_us(const ls_bench_line *l, const ls_bench_point *p);
/* Whether rounds take more of the time than bytes. */
bool ls_bench_line_latency(const ls_bench_line *l, const ls_bench_point *p);

/* --- bench_report.c ----------------------------------------------------------------- */

typedef struct ls_bench_device {
    int32_t rank, group, pid, device;
    char host[64];
} ls_bench_device;

/* Times of single iterations; arrays borrowed, microseconds. */
typedef struct ls_bench_iters {
    int n, skip, ranks;
    const double *each;          /* [n] the slowest rank's */
    const double *rank;          /* [ranks][n] */
} ls_bench_iters;

typedef struct ls_bench_result {
    const char *algo;            /* that ran: of the registry, or a form in mapped memory; NULL: none */
    int segments;                /* pieces of a share, of a schedule; 0 elsewhere */
    double us, algbw, busbw;     /* GB/s, 10^9; us is the median of the trials, */
    double least_us;             /* this the quickest of them, */
    double single_us;            /* and this the median of single operations; 0: they were not timed one by one */
    double nwrong;               /* < 0: not checked */
    ls_bench_iters iters;        /* n 0: not asked for */
    ls_bench_count count;
} ls_bench_result;

typedef struct ls_bench_row {
    size_t bytes, count;         /* count: of one rank's share where nccl-tests counts that */
    const char *dtype, *op;      /* op: "none" where there is none */
    int root, iterations;        /* root: -1 where there is none */
    int ranks;
    ls_bench_result out_of_place, in_place;
} ls_bench_row;

/* Owned by rank 0. */
typedef struct ls_bench_report {
    const ls_bench_opts *o;
    const char *ranks_from;      /* who started them, */
    const char *carried_by;      /* and who carries out their collectives */
    FILE *to, *file;             /* file: JSON, NULL when not asked for */
    bool table, as_json;         /* `to` gets the table; `json` is filled, for `to`, `file` or both */
    ls_text json;
    int nrows, nbw;
    char by[160];                /* the algorithms of the row before, as shown */
    double bw;
    int64_t wrong;
    int counted, miscounted, unknown; /* with --count: results, those off their formula, those without one */
    struct ls_bench_sample {
        ls_bench_point at;
        const char *algo;
        size_t size;
        bool in_place;
    } *sample;                   /* owned, with --fit */
    int nsamples;
} ls_bench_report;

/* Opens the JSON file; a name that exists gets a number after it. LS_IO. */
ls_status ls_bench_report_open(ls_bench_report *r, const ls_bench_opts *o, FILE *to);
void ls_bench_report_header(ls_bench_report *r, const ls_bench_device *device, int n);
void ls_bench_report_row(ls_bench_report *r, const ls_bench_row *row);
/* The footer; writes the JSON file. LS_IO. */
ls_status ls_bench_report_close(ls_bench_report *r);
void ls_bench_report_free(ls_bench_report *r);

/* A number in at most `width` columns, with up to two decimals, as nccl-tests shrinks it. */
void ls_bench_number(double v, int width, char out[32]);
/* Sorts v[n]; the upper one of two middle ones. */
double ls_bench_median(double *v, int n);
/* Bus bandwidth over algorithm bandwidth: what the links carry of a vector, whatever the algorithm. */
double ls_bench_bus_factor(ls_coll coll, int size);

/* --- bench_run.c -------------------------------------------------------------------- */

/* Every rank of a world. Rank 0 prints. LS_INTERNAL when results were wrong. */
ls_status ls_bench_run(ls_world *w, const ls_bench_opts *o);
/* Whether each rank has a share of the vector. */
bool ls_bench_has_shares(ls_coll coll);
/* "ring, direct": the algorithms that --algo may name for o's collective, memory and counts. */
void ls_bench_algos(const ls_bench_opts *o, char *out, size_t n);
/* Bytes of registered memory that it needs on every rank. */
size_t ls_bench_arena_bytes(const ls_bench_opts *o);
/* The smallest and largest of a list "float" or "all"; false when the name is none. */
bool ls_bench_dtypes(const char *name, int *first, int *last);
bool ls_bench_ops(const char *name, int *first, int *last);

/* --- bench_explain.c ------------------------------------------------------------------ */

/* Prints, on rank 0, how every size would be carried out, with what the cost model says of each candidate. */
ls_status ls_bench_explain(ls_world *w, const ls_bench_opts *o);

#endif
