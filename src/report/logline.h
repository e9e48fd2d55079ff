/* logline.h -- a step as a line of text, in the formats that tools for training logs read. */
#ifndef LS_REPORT_LOGLINE_H
#define LS_REPORT_LOGLINE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* The values of a line. Rates and times are means over the steps since the line before. */
typedef struct ls_log_values {
    int64_t step, steps; /* the one that is over, from 1; of the run */
    double loss, grad_norm, lr;
    double loss_scale;          /* 0: the loss is not scaled */
    int64_t skipped;            /* steps since the line before that changed no weight */
    double loss_z, grad_norm_z; /* how far from the steps before, in their standard deviations; NAN: too few */
    double step_s;              /* seconds per step */
    double rate;                /* per second, all ranks: tokens, or samples where there are no tokens */
    bool tokens;                /* true: tokens */
    int ranks;
    double memory_bytes;  /* of one rank */
    double memory_share;  /* of what there is for a rank, 0 to 1 */
    double flops;         /* per second and rank, of the model (mfu.h) */
    double mfu;           /* 0 to 1; NAN: unknown, and left out where the format allows it */
    const char *dtype;    /* of compute: "f32" */
    double exposed;       /* share of the time that waits for communication, 0 to 1 */
    double eta_s;         /* seconds that the rest will take */
    int64_t samples;      /* so far, all ranks */
    int64_t global_batch; /* samples per step */
    int columns;          /* of the terminal; 0: the line goes elsewhere */
} ls_log_values;

/* An evaluation of a language model. */
typedef struct ls_log_eval {
    int64_t step;
    double loss, perplexity;
    double train_loss; /* of the newest step */
} ls_log_eval;

typedef struct ls_log_format {
    const char *name; /* as log.format has it */
    /* Each adds one line, without its end. */
    void (*line)(const ls_log_values *v, bool colour, ls_text *out);
    void (*eval)(const ls_log_eval *e, bool colour, ls_text *out);
} ls_log_format;

/* torchtitan:
 *     step:  1  loss: 10.82500  grad_norm:  1.4100  memory:  1.20GiB(5.00%)  tps: 34,720  tflops: 12.34  mfu: 41.20%
 *   and then tok/s (or samples/s) of all ranks, exposed, lr, scale and skipped (if the loss is scaled), ETA; tps is per
 *   rank. The only one with colours. Below a tenth of a GiB or teraflop a smaller unit stands there (MiB, gflops). On a
 *   terminal the line fits into two of its lines: of what follows mfu, the parts that do not fit are left out.
 * megatron: Megatron-LM's training_log. llmc: train_gpt2.cu's. nanogpt: train.py's, which counts from 0.
 *
 * Ends with a name of NULL. */
extern const ls_log_format ls_log_formats[];
const ls_log_format *ls_log_format_find(const char *name); /* NULL: no such format */

/* The last values of a quantity, for the z of llm.c's line. Zeroed: none yet. */
#define LS_LOG_WINDOW 128
typedef struct ls_log_window {
    double value[LS_LOG_WINDOW];
    uint64_t count; /* that have been added */
} ls_log_window;

/* Adds v; (v - mean) / deviation over the last LS_LOG_WINDOW values, v among them; NAN until there are so many,
 * 0 where they are all alike. */
double ls_log_window_add(ls_log_window *w, double v);

#endif
