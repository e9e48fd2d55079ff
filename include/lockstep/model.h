/* model.h -- models: sizes, units with their parameters, initial values. */
#ifndef LS_MODEL_H
#define LS_MODEL_H
#include <stdbool.h>
#include "lockstep/place.h"
#include "lockstep/unit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_model ls_model;

/* Sizes of a language model: a decoder-only transformer, ids [B, T] -> a distribution over
 * the next token at each of the B T places. Zeros stand for defaults (ls_model_resolve). */
typedef struct ls_lm_config {
    int64_t vocab_size; /* V: ids are 0 .. V - 1 */
    int64_t seq_len;    /* longest sequence: T is at most this */
    int64_t n_layer;    /* L */
    int64_t n_head;     /* H; each has d_model / n_head channels */
    int64_t n_kv_head;  /* heads of keys and values; 0: n_head. gpt2 has as many */
    int64_t d_model;    /* C */
    int64_t d_ff;       /* width inside the mlp; 0: 4 C */
    double norm_eps;    /* 0: 1e-5 */
    double rope_theta;  /* llama: base of the rotary angles; 0: 10000 */
    bool tied;          /* the head's matrix is the embedding's */
    double embd_dropout, attn_dropout, resid_dropout; /* gpt2: probabilities in [0, 1) */
    /* moe (moe.h): */
    int64_t n_experts;     /* E in each layer; 0: 8 */
    int64_t top_k;         /* of them compute a token; 0: 2 */
    int64_t d_expert;      /* width inside an expert; 0: d_ff */
    int64_t shared_expert; /* width of an mlp that computes every token besides; 0: there is none */
    int64_t first_dense;   /* so many layers, the first ones, have an mlp and no experts */
    bool norm_topk;        /* the weights of the chosen experts add up to 1 */
    bool drop_by_probability;
    double capacity_factor, aux_loss, z_loss, bias_rate; /* 0: none */
    int64_t forced_expert; /* an experiment, 1 + e: every token goes to expert e (ls_moe_rule.forced); 0: none */
    const float *expert_loads; /* an experiment, borrowed: [n_layer][n_experts], ls_moe_rule.loads; NULL: none */
    bool expert_loads_alike;   /* ls_moe_rule.alike */
} ls_lm_config;

/* A named set of sizes: "gpt2-medium", "llama-15m". */
typedef struct ls_model_preset {
    const char *name;
    const char *model; /* ls_model_config.name */
    ls_lm_config lm;   /* resolved */
} ls_model_preset;
const ls_model_preset *ls_model_preset_find(const char *name); /* NULL if unknown */
/* The names of all presets, "gpt2-1m, gpt2, ..." into buf; returns buf. */
const char *ls_model_preset_names(char *buf, size_t n);

/* What a model is built from. */
typedef struct ls_model_config {
    const char *name;    /* of a class: "mlp", "gpt2" ... */
    const int64_t *dims; /* mlp: [in, hidden..., classes]; cnn: [pixels, channels..., classes] */
    int ndims;
    const char *activation; /* mlp, timed, cnn: "relu" (default, NULL) or "gelu" */
    const double *forward_ms, *backward_ms; /* timed: how long each layer sleeps, milliseconds, */
    int nforward_ms, nbackward_ms;          /* so many: one per layer, or one for all of them; 0: it does not */
    ls_lm_config lm;        /* language models */
    ls_init init;
    uint64_t seed;
    const struct ls_model_class *cls; /* borrowed: a class that a program brings; NULL: the library's of that name */
} ls_model_config;

/* The x and the labels of a micro-batch. */
typedef struct ls_model_input {
    ls_dtype dtype;           /* of x: F32 features, or I64 token ids */
    int ndim;
    int64_t dim[LS_MAX_DIMS]; /* of x: [N, features] or [B, T] */
    int label_ndim;
    int64_t label_dim[LS_MAX_DIMS]; /* of the labels, I64: [N] or [B, T] */
} ls_model_input;

/* What a model computes for a token, or for a sample where samples are not sequences: the numbers of PaLM's formula
 * for the operations of forward and backward, 6 (parameters - tables) + 12 L H Q T (Chowdhery et al. 2022). */
typedef struct ls_model_flops {
    int64_t tables;               /* parameters that are only looked up and take part in no product */
    int64_t layers, heads, width; /* L layers with H heads of Q channels; 0 where there is no attention */
} ls_model_flops;

/* A kind of model: one file, one of these, and for the library's own a word in its registry. */
typedef struct ls_model_class {
    const char *name;
    const char *summary;
    /* Configuration keys that it reads and not every model does ("model.n_layer", "train.recompute"); NULL-ended. */
    const char *const *keys;
    const ls_model_preset *presets; /* ends with a name of NULL; NULL: none */
    /* Of a language model of the library: tables of its parameters and files; else NULL. */
    const struct ls_lm_class *lm;
    /* Fills in what is 0 and checks that the sizes fit together. LS_BAD_CONFIG names the value (model.n_head ...),
     * LS_UNSUPPORTED what this model does not do. */
    ls_status (*resolve)(const ls_model_config *c, ls_model_config *out);
    /* The following get a resolved configuration. */
    int64_t (*count)(const ls_model_config *c); /* parameters, by the model's formula */
    void (*flops)(const ls_model_config *c, ls_model_flops *out);
    /* Describes the units and registers their parameters (unit.h); no memory for values yet. */
    ls_status (*create)(const ls_model_config *c, ls_model *m);
    /* Draws the initial values, after binding. */
    ls_status (*init)(ls_model *m, const ls_model_config *c);
    /* What a micro-batch of `batch` samples, each of `tokens` tokens, looks like. A model
     * whose samples are not sequences ignores `tokens`. */
    void (*input)(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in);
} ls_model_class;
extern const ls_model_class *const ls_model_classes[]; /* NULL-ended */
/* The names of all classes as the range of an option, "mlp|gpt2|llama", and of those that are not implemented yet. */
extern const char ls_model_choices[];
const ls_model_class *ls_model_class_find(const char *name); /* NULL if unknown */
/* Whether the class reads the key, or no class says that it does: a key of all models. */
bool ls_model_reads(const ls_model_class *cls, const char *key);
/* The models that read `key`, or all where key is NULL, as "mlp, gpt2 and llama" into buf; returns buf. */
const char *ls_model_names(const char *key, char *buf, size_t n);
/* A key that language models read, and no other model. */
#define LS_LM_KEY "model.vocab_size"

/* A stage of a pipeline: consecutive units that are computed on one rank. */
typedef struct ls_stage {
    int number, of;     /* it is stage `number` of `of` */
    ls_stage_part part; /* its units, and which of the parameters here are theirs */
    ls_tensor in, out;  /* shapes of what enters and what leaves it of one sample of edge_tokens tokens */
} ls_stage;

struct ls_model {
    const ls_model_class *cls;
    ls_params params;
    ls_units units;
    ls_lm_config lm; /* of a language model: resolved; of all ranks together */
    ls_place place;  /* which part of its layers is here */
    ls_arena *arena; /* owned: ls_model_destroy frees it; NULL: the values lie in arenas of the caller */
    ls_stage *stage; /* owned: [nstages] the stages that are here, ascending (ls_model_keep) */
    int nstages;     /* 0: the model is whole */
    int64_t edge_tokens;
    ls_draw draw;    /* set before each forward that has a gradient */
    void *own;       /* owned, free()d by ls_model_destroy: what the class needs besides; NULL: nothing */
};

/* c->cls, or the library's class of that name. LS_BAD_CONFIG: there is none. */
ls_status ls_model_class_of(const ls_model_config *c, const ls_model_class **out);
/* Its resolve, and its count. count resolves c, and is 0 where that fails, or where the class has none. */
ls_status ls_model_resolve(const ls_model_config *c, ls_model_config *out);
int64_t ls_model_count(const ls_model_config *c);

/* Describes the units and registers the parameters; bind them (ls_params_bind), then ls_model_init.
 * LS_BAD_CONFIG names the value that is wrong. A class whose units do not fit together fails here, too, with the
 * name of the unit: LS_INVALID where parameters are missing or registered twice, LS_SHAPE where shapes do not fit. */
ls_status ls_model_create(const ls_model_config *c, ls_model **out);
/* The part of it that the rank at `place` (copied) has. LS_UNSUPPORTED: a model that is not one of language is whole.
 */
ls_status ls_model_create_at(const ls_model_config *c, const ls_place *place, ls_model **out);
/* The same for a class of your own, whatever c->name says. */
ls_status ls_model_create_of(const ls_model_class *cls, const ls_model_config *c, ls_model **out);
ls_status ls_model_init(ls_model *m, const ls_model_config *c);
/* x -> logits [N, classes] or [B, T, V]: all of them. */
ls_tensor *ls_model_forward(const ls_model *m, ls_tape *t, ls_tensor *x);
/* What backward starts from: the sum of -log softmax(logits)[label] over the counted labels, by
 * the number N of all labels of the micro-batch. A step over several micro-batches and ranks
 * starts each backward from N / (labels of the step that count), so any split gives the same.
 *
 * `sums` may be NULL. It must stay until backward is over: a language model never has all its
 * logits, makes them in backward, and only then knows sums->sum and the loss. */
ls_tensor *ls_model_loss(const ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums);
/* What a pass through the model begins with: its parameters, m->draw, all of a causal sequence. */
ls_pass ls_model_pass(const ls_model *m);

/* --- stages of a pipeline ------------------------------------------------------------------------------------
 *
 * A pipeline divides a model's units among ranks: stage s has units [first[s], first[s + 1]). What leaves a stage
 * enters the next one; the last stage gives the loss. */

/* Divides m's units into `stages` stages, at least one each, so that the costliest stage costs as little as it can: the
 * cost of a unit are its operations, and of a head its product with the vocabulary is the most of them. `split` (NULL:
 * divide by cost) has the number of layers of each stage, [nsplit]; an embedding and a head, which are no layers, go to
 * the first and the last stage. In a language model each number is a multiple of 0.5: a layer can be cut between its
 * attention and its mlp, if these are units of m (ls_place.halved). first[stages + 1] is written. LS_BAD_CONFIG: more
 * stages than units, or a split that does not add up. */
ls_status ls_model_split(const ls_model *m, int stages, const double *split, int nsplit, int *first);
/* Layers of m before unit i, with i up to m->units.n; half a layer counts 0.5, an embedding and a head nothing. */
double ls_model_layers_before(const ls_model *m, int i);
/* `halved` is `layers` with every layer halved. Rewrites first[stages + 1], bounds of stages in units of `layers`, as
 * units of `halved`. */
void ls_model_to_halves(const ls_model *layers, const ls_model *halved, int stages, int *first);
/* The other way: halves in `place` the layers that a bound of stages cuts, and no other, and rewrites
 * first[stages + 1], units of `halved`, as units of a model at that place. */
void ls_model_to_layers(const ls_model *halved, int stages, int *first, ls_place *place);
/* What a unit costs for a micro-batch: forward, and backward of its input and of its weights, in operations, or in as
 * many as take as long as moving the bytes of an op takes, if those are more. What an op computes in one piece is in
 * `input`. `elements`: of the parameters that belong to it. */
typedef struct ls_unit_cost {
    double forward, input, weight, elements;
} ls_unit_cost;

/* A micro-batch, and how it is computed. */
typedef struct ls_unit_costs_of {
    int64_t batch, tokens;  /* samples; tokens of each, 0: as many as the model allows */
    ls_dtype dtype;         /* ls_tape_set_dtype */
    ls_recompute recompute; /* ls_tape_set_recompute; what is recomputed counts as backward */
    bool logits_in_forward; /* ls_tape_logits_in_forward */
    bool halves;            /* ls_tape_defer_weights */
} ls_unit_costs_of;
/* The cost of each of m's units, [m->units.n], before ls_model_keep: from the counts of a dry run. */
ls_status ls_model_unit_costs(const ls_model *m, const ls_unit_costs_of *of, ls_unit_cost *out);

/* Keeps the stages number[0 .. n), ascending, of those that first[stages + 1] describes: parameters of other stages go
 * to m->params.elsewhere (ls_units_keep). Before parameters are bound. LS_UNSUPPORTED: a parameter of the root that
 * other stages than the first and the last use. */
ls_status ls_model_keep(ls_model *m, int stages, const int *first, const int *number, int n);
/* Shape of what enters stage m->stage[i] (`in`), or leaves it, of so many samples: of what leaves the last stage
 * nothing is known. */
void ls_model_edge(const ls_model *m, int i, bool in, int64_t batch, int64_t tokens, ls_dtype dtype, ls_tensor *out);
/* x through stage m->stage[i]: ls_model_loss of the last one, else what the next stage gets. */
ls_tensor *ls_model_stage_forward(const ls_model *m, int i, ls_tape *t, ls_tensor *x, ls_tensor *labels,
                                  ls_loss_sums *sums);
void ls_model_destroy(ls_model *m); /* NULL is fine. Frees m->arena; other arenas are the caller's */

/* Bytes of tape slab that one ls_model_loss and backward of `batch` samples take with all
 * gradients wanted; 0 after a failure (ls_last_error). Exact: it is a dry run. Samples that are
 * sequences are as long as the model allows; those of _of have `tokens` tokens. */
size_t ls_model_tape_bytes(const ls_model *m, int64_t batch);
size_t ls_model_tape_bytes_of(const ls_model *m, int64_t batch, int64_t tokens);

/* How a tape is used. Zeros: training in float, everything kept. */
typedef struct ls_tape_mode {
    ls_dtype dtype;         /* ls_tape_set_dtype */
    ls_recompute recompute; /* ls_tape_set_recompute */
    bool evaluate;          /* ls_model_loss alone, without gradients */
} ls_tape_mode;
/* The same in any mode. */
size_t ls_model_tape_bytes_in(const ls_model *m, int64_t batch, int64_t tokens, const ls_tape_mode *mode);
/* Bytes that packed weights take in it (ls_tape_pack_memory), 0 where no product is faster by them. */
ls_status ls_model_packed_bytes(const ls_model *m, int64_t batch, int64_t tokens, const ls_tape_mode *mode,
                                size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
