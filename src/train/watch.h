/* watch.h -- what rank 0 shows of a run while it goes on: a line now and then, in the format that log.format names. */
#ifndef LS_TRAIN_WATCH_H
#define LS_TRAIN_WATCH_H
#include "base/text.h"
#include "train/config.h"
#include "report/logline.h"
#include "report/mfu.h"
#include "report/peak.h"
#include "train/straggler.h"

typedef struct ls_watch {
    const ls_log_format *format;
    bool colour; /* stdout is a terminal, and NO_COLOR does not forbid it */
    ls_mfu mfu;
    ls_peak peak;            /* gflops is 0 where it is not known */
    double reserved, memory; /* bytes of this rank's arenas, and what there is for a rank on this host */
    int64_t samples, units;  /* so far, all ranks; units: tokens, or samples of features */
    ls_log_window losses, norms;
    double loss_z, norm_z; /* of the newest step among them */
    struct {
        int64_t steps, skipped;
        uint64_t step_ns, exposed_ns, units; /* units: tokens, or samples of features */
    } since;                                 /* the line before */
    ls_text line;                            /* owned */
} ls_watch;

struct ls_trainer;
struct ls_step_stats;
struct ls_eval;

/* Finds the peak (ls_peak_find). LS_BAD_FILE: the file that LOCKSTEP_PEAK names is broken. */
ls_status ls_watch_open(struct ls_trainer *t);
void ls_watch_close(ls_watch *w); /* zeroed is fine */
/* A step is over. */
void ls_watch_step(struct ls_trainer *t, const struct ls_step_stats *s);
/* Prints the line of step s; the rest of the run takes so many seconds. */
void ls_watch_line(struct ls_trainer *t, const struct ls_step_stats *s, double eta_s);
/* Prints the line of an evaluation after t->step, of a language model; train_loss is the newest step's. */
void ls_watch_eval(struct ls_trainer *t, const struct ls_eval *e, double train_loss);
/* Warns of the rank that slows the others down, or says that it no longer does; also in the job's event file. */
void ls_watch_straggler(struct ls_trainer *t, const ls_straggler_change *c);
/* Operations per second and rank, of a step that took so long. */
double ls_watch_flops(const struct ls_trainer *t, const struct ls_step_stats *s);

/* What `lockstep train --explain mfu` prints: the formula with the numbers of a run on so many ranks. */
ls_status ls_watch_explain(const ls_train_config *c, int ranks, ls_text *out);

#endif
