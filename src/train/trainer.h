/* trainer.h -- one rank's training run from the inside.
 *
 *   trainer.c  builds and destroys everything        parallelize.c  what is here of the model (lockstep/parallel.h)
 *   step.c     one optimizer step                    loss.c     the loss of some samples
 *   feed.c     its samples                           source.c   where tokens come from
 *   stages.c   forward and backward of a pipeline stage (lockstep/parallel.h)
 *   loop.c     steps, logging                        evaluate.c the test set
 *   record.c   folder, metrics, traces of rank 0     save.c     checkpoints, events
 *   snapshot.c  snapshots between checkpoints
 *   watch.c    log lines                             samples.c  what a language model writes
 *   sample_log.c  which samples each rank has used
 *   inject.c   faults on request                     nonfinite.c where a loss went wrong
 *   load.c     the model of model.load               run.c      a whole run, from arguments
 *   threads.c  ranks that are threads                dry.c      a rank whose other ranks are not there
 *   run_json.c  what --json prints (run_json.h)     comm_log.c  comm.json (comm_log.h)
 *   best.c     the best checkpoint                   straggler.c  the rank that slows the others (straggler.h)
 *   compare_run.c  where a run parts from a recorded one (compare_run.h)
 *   resume.c   going on from a checkpoint (resume.h)   tune.c     steps with several bucket caps (tune.h)
 */
#ifndef LS_TRAIN_TRAINER_H
#define LS_TRAIN_TRAINER_H
#include "base/stop.h"
#include "base/text.h"
#include "ckpt/snapshot.h"
#include "lockstep/generate.h"
#include "lockstep/lockstep.h"
#include "lockstep/train.h"
#include "meet/task.h"
#include "train/comm_log.h"
#include "train/compare_run.h"
#include "train/config.h"
#include "train/dry.h"
#include "train/feed.h"
#include "train/load.h"
#include "train/memory.h"
#include "train/memory_stages.h"
#include "train/resume.h"
#include "train/run_json.h"
#include "report/say.h"
#include "train/source.h"
#include "train/straggler.h"
#include "report/tensorboard.h"
#include "train/watch.h"

#define LS_TRAIN_META 4 /* pairs of metadata */

/* A micro-batch whose backward is to come. */
typedef struct ls_alive {
    ls_rows rows;
    ls_stage_pass pass;
} ls_alive;


/* The time that snapshots have kept training waiting. */
typedef struct ls_train_pauses {
    int64_t n;
    uint64_t sum_ns, most_ns;
} ls_train_pauses;

typedef struct ls_trainer {
    const ls_train_config *c;      /* borrowed */
    ls_world *w;                   /* owned, unless `thread` */
    bool thread;                   /* this rank is a thread of a process with others: what they share is borrowed */
    double (*words)[LS_TRAIN_WORDS]; /* owned: [size of the world], of ls_train_tell */
    ls_model_config mc;
    ls_memory_stages fit;          /* c, as memory was planned and the model is built */
    ls_memory_plan plan;           /* of this rank on its nodes */
    ls_memory_units planned;       /* owned: of the plan */
    ls_arena *arena;               /* owned, as all below: parameters, optimizer state */
    ls_parallel par;               /* what of the model is here: mesh, model, DDP, order of micro-batches, tapes */
    ls_alive *alive;               /* [par.ntapes] */
    ls_optim *optim;
    int guard;                     /* ddp.guard: ranks whose numbers are equal modulo this own the same elements, and
                                    * compare hashes of what their optimizers wrote; 0: ranks are not compared */
    ls_lr lr;                      /* what the optimizer's rate follows */
    ls_grad_scaler scaler;         /* the same on every rank; scale 1 with optim.loss_scale none */
    bool scales, adapts;           /* optim.loss_scale is not none; it is dynamic */
    int64_t skipped;               /* steps so far whose gradients were not finite, which changed no weight */
    ls_source source;              /* of tokens */
    ls_train_special special;      /* of model.load */
    ls_feed feed;
    int64_t steps, step;           /* step: the last one finished, from 1 */
    int64_t begun;                 /* steps before this process began: those of the checkpoint that it goes on from */
    double loss;                   /* of the last step finished */
    ls_state *state;               /* owned: what a checkpoint has */
    ls_train_kept kept;            /* in `state` */
    ls_train_best best, best_before; /* the best evaluation so far, and the one before */
    int failed_saves;              /* since the last one that succeeded */
    uint64_t save_ns;              /* when the newest save was begun, or the first step, */
    bool save_due;                 /* and whether rank 0 has found that checkpoint.every, a time, has gone by since */
    int64_t saving;                /* step of the newest save that was begun with checkpoint.async, */
    bool save_busy;                /* whether some rank was at work for it when ranks told each other last, */
    bool save_waited;              /* and whether it was said that another one waits for such a save */
    ls_snapshots *snapshots;       /* owned: of this run, of this process or an earlier one; NULL: none */
    ls_train_pauses pauses;        /* what they took */
    bool snapshots_off;            /* the last one failed: none until the next checkpoint is durable, */
    bool snapshots_warned;         /* and whether that was said */
    ls_comm_log comm;              /* what each group carries per step */
    ls_compare_run *compare;       /* owned; NULL: no --compare */
    ls_run_json *json;             /* owned; NULL: no --json */
    ls_checkpoint *from;           /* owned: the checkpoint that the run goes on from; NULL: it begins, or has loaded it
                                      */
    bool from_memory;              /* it is a snapshot */
    ls_train_again again;          /* what an earlier generation of the job left */
    int64_t epoch;                 /* of the step at hand, from 0 */
    double busy[LS_BUSY_PHASES];   /* ns of the newest step that is over in which this rank waited for no other */
    double *busy_ns;               /* owned: [size of the world], computing, as all ranks told it in the newest step: of
                                      the one before */

    double *busy_sum;              /* owned: [size of the world][LS_BUSY_PHASES], over busy_steps steps: comm.json */
    int64_t busy_steps;
    uint32_t trace_first, trace_last;
    ls_injection inject;
    ls_stop *stop;                 /* owned, unless `thread`: SIGINT and SIGTERM; NULL: they are not watched for */
    int stop_signal;               /* seen by some rank: everybody stops after this step */

    char run_dir[256];
    int samples_fd;                /* the file of log.samples of this rank; -1 */
    ls_text sample_line;           /* owned: its newest line */

    char *described;               /* owned: config.json of a language model, the sizes of another */
    const char *meta[2 * LS_TRAIN_META + 1]; /* pairs that files have of the model */
    char seed[24];                 /* the text of one of them */

    /* rank 0's */
    char *config;                  /* owned: the text of config.yaml */
    char checkpoint[360];
    int64_t *saved;                /* owned: steps whose checkpoints this run has written and kept */
    int nsaved;
    int metrics_fd;                /* -1 on other ranks */
    int events_fd;                 /* the job's event file, when the launcher has one; -1 */
    ls_text metrics;               /* lines not written yet */
    ls_tensorboard *events;        /* owned; NULL: none wanted */
    ls_watch watch;
    ls_decoder *decoder;           /* owned; NULL: no samples are wanted */
    char *sample_values;           /* in `arena`: room for ls_memory_samples; NULL: none is needed */
    ls_model *sample_model;        /* owned: the whole model, where ranks divide its layers; NULL: par.model is whole */
    ls_straggler *straggler;       /* owned; NULL: log.straggler is 0, or this is the only rank */
    ls_bar bar;
} ls_trainer;

/* What one step was like. */
typedef struct ls_step_stats {
    double loss;          /* global mean over the step's samples, or its tokens that count */
    double max_loss;      /* the largest of the ranks' means, of ranks with labels that count */
    double grad_norm;     /* of the averaged gradient, before clipping */
    double lr;            /* of this step's update */
    double loss_scale;    /* of this step's gradients; 1: they were not scaled */
    bool skipped;         /* they were not finite: no weight has changed */
    int64_t samples;      /* of all ranks */
    int64_t tokens;       /* in them; 0: of features */
    uint64_t step_ns, data_ns;
    uint64_t optim_ns;    /* of the update, with what it sends */
    ls_comm_stats comm;   /* of this step alone */
    ls_straggler_change straggler; /* rank 0: whether one has been found, or is over */
} ls_step_stats;

/* Joins the world that the environment describes and trains as `c` says: steps, evaluations between them, a checkpoint,
 * one `final` line on stdout from rank 0. `opts` (borrowed) is written to the run folder as config.yaml, with the
 * number of ranks filled in. On failure the job is aborted with the cause. */
ls_status ls_train(const ls_train_config *c, ls_opts *opts, ls_train_result *out);
/* The same for a rank that is a thread in a world that it has joined; w and stop (may be NULL) are borrowed. */
ls_status ls_train_in(const ls_train_config *c, ls_opts *opts, ls_world *w, ls_stop *stop, ls_train_result *out);
/* ls_train on so many ranks that are threads of this process. LS_UNSUPPORTED: what needs processes. */
ls_status ls_train_threads(const ls_train_config *c, ls_opts *opts, int nranks, ls_train_result *out);
/* LS_UNSUPPORTED unless ranks that are threads can do what `c` says. */
ls_status ls_train_threads_check(const ls_train_config *c);

/* Before anything that depends on the number of ranks is checked: with comm.backend mpi LS_UNSUPPORTED, unless mpirun
 * started this process (ls_backend_launched). */
ls_status ls_train_check_launcher(const ls_train_config *c);
/* Before ranks are started, or meet: fetches and makes the data that are missing, and finds what would fail in each of
 * `size` ranks alike; of images, whose files take time to read, only that they are there. */
ls_status ls_trainer_check(const ls_train_config *c, int size);
ls_status ls_trainer_create(const ls_train_config *c, ls_trainer **out);
/* The same of a rank that is a thread, in a world that it has joined; w and stop (may be NULL) are borrowed. */
ls_status ls_trainer_create_in(const ls_train_config *c, ls_world *w, ls_stop *stop, ls_trainer **out);
/* How such a rank joins, with the memory of a plan. */
ls_world_opts ls_train_world_opts(const ls_train_config *c, const ls_memory_plan *p);
void ls_trainer_destroy(ls_trainer *t);

/* The loss of some samples, as ls_model_loss makes it on the tape. */
ls_tensor *ls_train_loss(ls_trainer *t, ls_tape *tape, const ls_rows *rows, ls_loss_sums *sums);
/* LS_DIVERGED, naming parameters and ranks, unless all replicas have the parameters that they should have after the
 * newest update. Every rank calls it. */
ls_status ls_train_compare(ls_trainer *t);
/* One step: micro-batches, backward with overlapped reduction, update. LS_NAN, before any weight is
 * touched, names the first rank whose loss is not finite, or a parameter whose gradient is not. With optim.loss_scale
 * dynamic and a scale above 1 such a gradient lowers the scale instead, and the update is left out, on every rank. */
ls_status ls_train_step(ls_trainer *t, ls_step_stats *out);

/* All ranks write a checkpoint of the current step, and wait until it is durable. LS_CKPT_FAILED, on all of them: it
 * was not written, and older ones are as they were. */
ls_status ls_train_save(ls_trainer *t);
/* The same of a copy, while training goes on: begins it. No other save may be in flight. */
ls_status ls_train_save_begin(ls_trainer *t);
/* All ranks call it after each step. LS_OK: the checkpoint that was in flight is durable now. LS_AGAIN: it goes on, or
 * none is in flight. Failures as above. With `wait` it returns when none is in flight. */
ls_status ls_train_save_advance(ls_trainer *t, bool wait);
/* All ranks call it before a failure that all have found ends the run: a save that is in flight is waited for. */
void ls_train_save_settle(ls_trainer *t);
/* What a checkpoint of this step has of the run, besides the model and the optimizer: into t->kept. */
void ls_train_fill_kept(ls_trainer *t);
/* Snapshots (checkpoint.snapshot; ckpt/snapshot.h), none of whose failures ends a run: a warning, and it goes on
 * without. Every rank calls these, except Say. Find: those of an earlier process, before a checkpoint is opened. Open:
 * once there is a run folder. Due: whether one of this step is. Save: that one; metrics are flushed before it. Durable:
 * a checkpoint is on the disk. End: the run is over, and what it needs is on the disk. Say: what they took. */
void ls_snapshot_find(ls_trainer *t);
ls_status ls_snapshot_open(ls_trainer *t);
bool ls_snapshot_due(const ls_trainer *t, bool saved);
ls_status ls_snapshot_save(ls_trainer *t);
void ls_snapshot_durable(ls_trainer *t);
void ls_snapshot_end(ls_trainer *t);
void ls_snapshot_say(const ls_trainer *t, uint64_t all_ns);
/* The best checkpoint (checkpoint.best). Open: once the state is loaded; LS_BAD_CONFIG: nothing to evaluate on. Look:
 * whether the evaluation of this step is the best so far, so that a checkpoint of this step is due, on all ranks alike.
 * Failed: that checkpoint was not saved. The other two are rank 0's. Durable: it is, and the file `best` has to name
 * it. Adopt: the file has to name what the checkpoint says that the run goes on from. */
ls_status ls_best_open(ls_trainer *t);
bool ls_best_look(ls_trainer *t, const struct ls_eval *e);
void ls_best_failed(ls_trainer *t, int64_t step);
ls_status ls_best_durable(ls_trainer *t, const char *folder, int64_t step);
ls_status ls_best_adopt(ls_trainer *t);
/* What checkpoints say of the model: once the model is there. */
ls_status ls_train_describe(ls_trainer *t);
/* Rank 0 takes the checkpoints that are in the run's folder, up to the present step, for its own: checkpoint.keep
 * counts them. */
ls_status ls_train_adopt(ls_trainer *t);
/* This rank begins to read or write a file, which may take longer than comm.timeout but not checkpoint.timeout; NONE:
 * it has ended. The ranks that wait for it know by that (meet/task.h). */
void ls_train_task(ls_trainer *t, ls_task_kind kind, const char *file);
/* A line with a step in the job's event file, if there is one: "step", "ckpt_begin" ... */
void ls_train_event(ls_trainer *t, const char *what, int64_t step);

/* What an evaluation found, if there was one. */
typedef struct ls_eval {
    bool done;
    double loss;       /* mean over the samples, or the tokens that count */
    double accuracy;   /* share of the samples whose class is found; of features */
    double perplexity; /* e^loss; of tokens, else 0 */
} ls_eval;

/* Names the first value of this rank's step that is not finite: a parameter, or a result of forward, which is computed
 * again to find it. "" if all are finite, or forward fails. If forwards include collectives, every rank calls it. */
void ls_train_find_nonfinite(ls_trainer *t, char *buf, size_t n);

/* The test set, or train.eval_batches of it, every sample once, shared by the ranks. The same on every rank. */
ls_status ls_train_evaluate(ls_trainer *t, ls_eval *out);

/* Rank 0 makes the run folder with config.yaml, and the folder for checkpoints. */
ls_status ls_record_open(ls_trainer *t, ls_opts *opts);
/* Rank 0 adds a line to metrics.jsonl and, where a log line is or an evaluation was, the same numbers to TensorBoard's
 * event file: in memory, until there are enough or they are flushed. */
ls_status ls_record_step(ls_trainer *t, const ls_step_stats *s, const ls_eval *eval, bool line);
ls_status ls_record_flush(ls_trainer *t);
/* Rank 0 writes memory.json: what was planned of each kind and of its units, and the most that there was. */
ls_status ls_record_memory(ls_trainer *t);
/* sample_log.c, the file of each rank that log.samples asks for. Rank 0: in a run that goes on in its folder, lines of
 * steps that are taken again go, of all ranks that there ever were; and the folder for the files. */
ls_status ls_sample_log_cut(const ls_trainer *t);
ls_status ls_sample_log_folder(const ls_trainer *t);
/* Every rank, after that; and after each step a line. LS_IO ends the run: a list with gaps proves nothing. */
ls_status ls_sample_log_open(ls_trainer *t);
ls_status ls_sample_log_step(ls_trainer *t);
/* Before the first step: this rank's black box gets room for the events of the steps asked for. */
ls_status ls_record_make_room(ls_trainer *t);
/* All ranks' events of the steps asked for, as one Chrome trace; every rank calls it. */
ls_status ls_record_trace(ls_trainer *t);

/* Rank 0 gets a decoder, if train.sample_every wants samples of a language model. LS_BAD_CONFIG: no tokenizer. */
ls_status ls_samples_open(ls_trainer *t);
/* The same on every rank. */
bool ls_samples_due(const ls_trainer *t);
/* Every rank calls it. Rank 0 prints one, after train.sample_prompt; it depends on the weights, train.seed and the step
 * alone, except for its end: it takes a quarter of comm.timeout at most. */
ls_status ls_samples_say(ls_trainer *t);

/* Provokes the fault when its rank and step have come: at the step's begin; where its samples are read, and before each
 * backward, where a slow rank waits 0.2 s; there also the weight of the loss becomes infinite; after it, where the sum
 * of losses becomes NaN; and before the update, where a gradient changes. */
ls_status ls_injection_apply(const ls_trainer *t, int64_t step);
void ls_injection_in_input(const ls_trainer *t, int64_t step);
void ls_injection_before_backward(const ls_trainer *t, int64_t step, float *weight);
ls_status ls_injection_before_update(const ls_trainer *t, int64_t step);
void ls_injection_after_backward(const ls_trainer *t, int64_t step, double *loss);

#endif
