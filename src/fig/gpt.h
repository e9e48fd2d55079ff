/* gpt.h -- the parameters of a GPT-2 of some size, as shapes: what figures divide over ranks and buckets.
 *
 * They are those of src/model/gpt2.c, in its order, with a tied head (tests/test_figures.c compares them).
 */
#ifndef LS_FIG_GPT_H
#define LS_FIG_GPT_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/status.h"

typedef struct ls_fig_gpt {
    int layers;
    size_t width, vocab, seq_len;
} ls_fig_gpt;

typedef struct ls_fig_param {
    size_t rows, cols; /* a vector has cols 1 */
    bool matrix;       /* a product reads it: it has a copy in bf16 */
} ls_fig_param;

/* out: to be freed by the caller; returns LS_NO_MEMORY or LS_OK. */
ls_status ls_fig_gpt_params(const ls_fig_gpt *g, ls_fig_param **out, int *n);
static inline size_t ls_fig_param_count(const ls_fig_param *p) { return p->rows * p->cols; }

#endif
