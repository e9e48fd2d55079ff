/* config.h -- everything a training run can be told, in one table. */
#ifndef LS_TRAIN_CONFIG_H
#define LS_TRAIN_CONFIG_H
#include "lockstep/dp.h"
#include "lockstep/model.h"
#include "lockstep/optim.h"
#include "lockstep/opts.h"
#include "lockstep/parallel.h"
#include "lockstep/status.h"

typedef struct ls_train_config {
    struct {
        const char *name, *preset, *activation, *init, *load;
        ls_opt_ints dims;
        ls_opt_doubles forward_ms, backward_ms;
        int64_t n_layer, n_head, n_kv_head, d_model, d_ff, vocab_size, seq_len;
        double rope_theta, norm_eps, embd_dropout, attn_dropout, resid_dropout;
        bool tied;
        int64_t n_experts, top_k, d_expert, shared_expert, first_dense;
        bool norm_topk;
    } model;
    struct {
        const char *drop;
        double capacity_factor, aux_loss, z_loss, bias_rate;
        int64_t force_expert;
    } moe;
    struct {
        const char *name, *path, *format, *tokenizer;
        bool drop_last, shuffle;
        int64_t workers, ignore_token;
    } data;
    struct {
        int64_t steps, epochs, global_batch, micro_batch, seq_len, grain, seed, eval_every, eval_batches;
        int64_t sample_every, sample_tokens;
        const char *dtype, *recompute, *pack_weights, *numerics, *sample_prompt;
    } train;
    struct {
        const char *name, *schedule, *decay, *scale_lr;
        double lr, momentum, eps, weight_decay, clip, min_lr, min_lr_ratio;
        ls_opt_doubles betas;
        int64_t warmup, decay_steps;
        const char *loss_scale;
        double scale_init, scale_growth, scale_backoff;
        int64_t scale_interval;
    } optim;
    struct {
        int64_t dp, tp, tp_pieces, pp, cp, ep, cp_ulysses;
        bool sp;
        const char *context, *cp_split;
        const char *dp_strategy, *order, *placement;
    } parallel;
    struct {
        size_t bucket_cap, first_bucket;
        bool find_unused, static_graph, bucket_view, overlap, guard;
        const char *hook;
        int64_t powersgd_rank, powersgd_start;
        bool powersgd_feedback, powersgd_warm_start;
    } ddp;
    struct {
        int64_t stage, prefetch, hsdp;
        const char *reduce, *copy, *units, *reshard;
    } zero;
    struct {
        const char *schedule;
        int64_t chunks;
        ls_opt_doubles split;
    } pipeline;
    struct {
        const char *dir, *resume, *consolidate, *best;
        int64_t every; /* steps; below 0: ns (LS_OPT_EVERY) */
        int64_t keep, snapshot;
        uint64_t timeout;
        bool async;
    } checkpoint;
    struct {
        int64_t every;
        const char *format;
        bool tensorboard, samples;
        double straggler;
    } log;
    struct {
        const char *steps;
    } trace;
    struct {
        const char *backend, *order, *transport, *algo, *progress, *wire, *check, *security;
        uint64_t timeout;
    } comm;
    struct {
        const char *dir, *name;
    } run;
    struct {
        size_t limit;
        bool check;
    } memory;
    /* flags that are not part of a recipe */
    const char *nproc_per_node, *ranks_as;
    bool eval_only, print_config, dump_buckets, dry_run, json, predict, help;
    const char *inject, *compare, *events, *log_dir, *explain;
    int64_t max_restarts;
    /* with `predict`, on rank 0: what the command expects of the run, for people and as predicted.json; borrowed, and
     * not read without it */
    const char *predicted_text, *predicted_json;
} ls_train_config;

extern const ls_opt ls_train_opts[];
extern const size_t ls_train_nopts;

/* Defaults that depend on other values (those of the optimizer, the sizes of model.preset and of model.load); after the
 * last value was set, before the configuration is printed or used. LS_BAD_CONFIG: no such preset, or of another model;
 * and the failures of ls_train_load_config (train/load.h). */
ls_status ls_train_config_resolve(ls_opts *o, const ls_train_config *c);

/* The part of it about the optimizer: keys that it reads and that were not set get the class's values. */
ls_status ls_train_optim_defaults(ls_opts *o, const ls_train_config *c, const ls_optim_class *cls);

/* --nproc-per-node as a number: 0 was not given; auto is one rank per usable core. */
int ls_train_nproc(const ls_train_config *c);
/* Ranks that a run without a launcher has: that number, or if it was not given, the product of the parallel degrees. */
int ls_train_ranks(const ls_train_config *c);
bool ls_train_nproc_auto(const ls_train_config *c);

/* A YAML file (at most one) and flags into a configuration, resolved. argv[0] is skipped. LS_USAGE: no argument at all,
 * a second file, and the failures of ls_opts_parse, ls_opts_load_yaml and ls_train_config_resolve. */
ls_status ls_train_read(ls_opts *o, const ls_train_config *c, int argc, char **argv);

/* Whether it is a language model. */
bool ls_train_is_lm(const ls_train_config *c);
bool ls_train_as_threads(const ls_train_config *c); /* ranks-as: threads */
/* A training with checkpoint.async: checkpoints are written from a copy. */
bool ls_train_copies(const ls_train_config *c);
/* Whether the ranks of cp are rings of neighbours that exchange heads (parallel.context ulysses-ring). */
bool ls_train_exchanges(const ls_train_config *c);
/* How many neighbours do so; 0: none. */
int ls_train_neighbours(const ls_train_config *c);
/* Of activations, and of what they are multiplied with. */
ls_dtype ls_train_dtype(const ls_train_config *c);
/* A training with checkpoint.snapshot: checkpoints in memory between those on the disk. */
bool ls_train_snapshots(const ls_train_config *c);
/* What ls_world_opts.backend is for comm.backend: "sched" or "mpi". */
const char *ls_train_backend(const ls_train_config *c);
ls_ddp_config ls_train_ddp(const ls_train_config *c);
/* What the loss is multiplied by, and whether that adapts (optim.loss_scale); 1 with optim.loss_scale none.
 * LS_BAD_CONFIG: it is not none, dynamic or a number above 0; a scale that is no float. */
ls_status ls_train_scaler(const ls_train_config *c, ls_grad_scaler *out, bool *adapts);
/* Whether train.numerics is invariant. */
bool ls_train_is_invariant(const ls_train_config *c);
/* Samples of a forward on a rank that has `local` in a step. */
int64_t ls_train_micro_batch(const ls_train_config *c, int64_t local);
/* Who holds and does what on so many ranks. */
ls_status ls_train_plan(const ls_train_config *c, int world_size, ls_plan *out);
/* data.name, or what stands for "". Static, or c's. */
const char *ls_train_data_name(const ls_train_config *c);
/* Whether the micro-batches of a step read packed copies of weights (train.pack_weights). */
bool ls_train_packs(const ls_train_config *c, int world_size);
/* Tokens of a sequence in training. */
int64_t ls_train_seq_len(const ls_train_config *c);
/* LS_UNSUPPORTED if ranks divide layers or sequences: `who` knows of data parallelism alone. */
ls_status ls_train_check_whole(const ls_train_config *c, const char *who);
/* Of a job's ranks, how many have different samples: at least 1. */
int ls_train_batch_ranks(const ls_train_config *c, int world_size);
/* The sizes of a language model with that vocabulary, resolved. LS_BAD_CONFIG as in ls_model_resolve. */
ls_status ls_train_lm(const ls_train_config *c, int64_t vocab, ls_lm_config *out);

/* invariant.c: the part of ls_train_config_check about train.numerics invariant. */
ls_status ls_train_check_invariant(const ls_train_config *c, int world_size);

/* Values that fit their range but not each other, or that this version does not serve:
 * LS_BAD_CONFIG or LS_UNSUPPORTED with what is supported. `world_size` >= 1. */
ls_status ls_train_config_check(const ls_train_config *c, int world_size);

typedef enum ls_inject_kind {
    LS_INJECT_KILL,
    LS_INJECT_STOP,
    LS_INJECT_HANG,
    LS_INJECT_NAN,
    LS_INJECT_MISMATCH,
    LS_INJECT_SLOW,
    LS_INJECT_SLOW_INPUT,
    LS_INJECT_DIVERGE,
    LS_INJECT_OVERFLOW,
    LS_INJECT_DIVERGE_EXPERTS
} ls_inject_kind;

/* What a fault injection asks for; rank -1: nothing. */
typedef struct ls_injection {
    ls_inject_kind kind;
    int rank;
    int64_t step;
    bool on; /* in all later steps, too */
} ls_injection;

/* Keys that were given although nothing of this run reads them, such as optim.betas with sgd: LS_BAD_CONFIG or
 * LS_UNSUPPORTED with the key, what it belongs to and what is set. A value that equals the default asks for nothing and
 * passes, so a run's config.yaml, which has all keys, runs, and a flag can undo what a file says. */
ls_status ls_train_check_given(const ls_opts *o, const ls_train_config *c);
/* The same where a key may be read by any of [n] variants of a configuration, of the same model, optimizer and
 * transport. */
ls_status ls_train_check_given_any(const ls_opts *o, const ls_train_config *const *variant, int n);

/* Who reads a key that not every run reads (ls_opt_readers): "language models", "llama", "adam and adamw". */
const char *ls_train_readers(const char *key, char *buf, size_t n);

/* "kill@1:20" and so on, "slow@1:20+" for step 20 and all later ones; LS_USAGE when it is not. */
ls_status ls_injection_parse(const char *text, int world_size, ls_injection *out);

/* "10:13" -> 10, 13; "10" -> 10, 10; "" -> 0, 0. Steps count from 1. */
ls_status ls_train_trace_steps(const ls_train_config *c, uint32_t *first, uint32_t *last);
/* Steps of the run: train.steps, else train.epochs of so many. LS_BAD_CONFIG: more than train.steps may be. */
ls_status ls_train_steps(const ls_train_config *c, int64_t steps_per_epoch, int64_t *out);
/* The optimizer that the configuration describes. */
ls_status ls_train_optim(const ls_train_config *c, ls_optim_config *out);
/* optim.betas: two numbers in [0, 1). */
ls_status ls_train_betas(const ls_train_config *c, double *beta1, double *beta2);
/* The learning rates of a run of so many steps on so many data parallel ranks. LS_BAD_CONFIG:
 * optim.min_lr and its ratio, or one above optim.lr. */
ls_status ls_train_lr(const ls_train_config *c, int ranks, int64_t steps, ls_lr *out);

#endif
