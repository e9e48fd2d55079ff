/* pipeline.h -- what `lockstep pipeline` shows of a schedule. */
#ifndef LS_CLI_PIPELINE_H
#define LS_CLI_PIPELINE_H
#include "base/text.h"
#include "lockstep/opts.h"
#include "parallel/pipe_replay.h"

typedef struct ls_pipeline_options {
    const char *schedule, *file, *svg;
    int64_t ranks, micro, chunks, alive, columns;
    ls_opt_doubles forward, input, weight;
    double transfer;
    bool csv, messages, compare, json, list, help;
} ls_pipeline_options;

/* A program and its times. `name` is its schedule's, or that of the file. */
typedef struct ls_pipeline {
    const char *name;
    ls_pipe_program program;
    ls_pipe_replay replay; /* in milliseconds */
} ls_pipeline;

/* --- pipeline_report.c */
void ls_pipeline_text(const ls_pipeline *p, int columns, ls_text *out);
void ls_pipeline_json(const ls_pipeline *p, ls_text *out);
void ls_pipeline_svg(const ls_pipeline *p, ls_text *out);
void ls_pipeline_list(bool json, ls_text *out);
/* The most micro-batches that are alive on a rank, each counted as the part of the rank's layers that a chunk is. */
double ls_pipeline_alive(const ls_pipe_program *g);

/* --- pipeline_compare.c */
/* All schedules for the ranks and micro-batches of `o`, which are at most LS_PIPELINE_MOST_COMPARED. */
#define LS_PIPELINE_MOST_COMPARED 4096
ls_status ls_pipeline_compare(const ls_pipeline_options *o, ls_text *out);

#endif
