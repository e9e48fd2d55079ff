/* resume.h -- a run that goes on from a checkpoint: which one, whether it is this run's, and what it has of the run. */
#ifndef LS_TRAIN_RESUME_H
#define LS_TRAIN_RESUME_H
#include <stdbool.h>
#include <stdint.h>
#include "ckpt/snapshot.h"
#include "train/config.h"
#include "train/feed.h"

/* The best evaluation of a run (checkpoint.best). */
typedef struct ls_train_best {
    int64_t of;   /* the metric: 0 none, 1 loss, 2 accuracy of an evaluation */
    int64_t step; /* of the best evaluation; 0: there was none */
    double value; /* that it found */
} ls_train_best;

/* What a checkpoint has of a run besides parameters and the optimizer's state. The place in the data follows from the
 * step, and random numbers follow from seed and step, so neither needs more than that. */
typedef struct ls_train_kept {
    int64_t step;     /* finished */
    int64_t seed;     /* train.seed */
    int64_t position; /* samples that all ranks have used: step times train.global_batch, without what an epoch's end
                         left */
    int64_t samples;  /* of the data set, */
    int64_t data;     /* and a checksum of some of it (ls_feed_checksum) */
    int64_t clean;    /* of the loss scale, as the next one (ls_grad_scaler) */
    double scale;
    int64_t skipped;  /* steps that changed no weight */
    double loss;      /* of the step */
    ls_train_best best; /* of the run so far, this step included (checkpoint.best) */
} ls_train_kept;

/* Adds all of it to a state. */
ls_status ls_train_kept_add(ls_state *s, ls_train_kept *k);

/* What an earlier generation of this job left, as its launcher tells rank 0 (LOCKSTEP_RUN_DIR, LOCKSTEP_CHECKPOINT). */
typedef struct ls_train_again {
    char run_dir[256];    /* "": the job begins, or ended before it had a folder */
    char checkpoint[400]; /* its newest checkpoint; "": none */
} ls_train_again;

/* Every rank of g calls it: what rank 0 was told. */
ls_status ls_resume_again(ls_group *g, ls_train_again *out);

/* checkpoint.resume is not never. */
bool ls_resume_asked(const ls_train_config *c);
/* It is auto: the run goes on in its own folder. */
bool ls_resume_in_place(const ls_train_config *c);
/* The folder in which a run goes on: an earlier generation's; else run.dir, or runs/<run.name>. */
void ls_resume_folder(const ls_train_config *c, const ls_train_again *a, char *out, size_t n);
/* Every rank calls it: opens the checkpoint to go on from, with every byte checked. The newest one of an earlier
 * generation comes before what checkpoint.resume names, and a whole snapshot (NULL: there are none) that is newer
 * before both. *out is NULL if there is none: the run begins. LS_BAD_FILE: the
 * PATH of checkpoint.resume has none. LS_CKPT_CORRUPT. */
ls_status ls_resume_open(const ls_train_config *c, const ls_train_again *a, ls_snapshots *snapshots, ls_group *g,
                         ls_checkpoint **out);
/* LS_BAD_CONFIG names each key whose value is another one than in the run that saved, unless it is one that may change.
 * *changed gets those that may and did: "train.steps 100 -> 200, ..." */
ls_status ls_resume_check(const ls_train_config *c, const ls_checkpoint *from, ls_text *changed);
/* LS_BAD_CONFIG: the data set is another one. */
ls_status ls_resume_check_data(const ls_train_kept *k, const ls_feed *f, const ls_checkpoint *from);

#endif
