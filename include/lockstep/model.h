/* model.h -- models: parameters and a formula. */
#ifndef LS_MODEL_H
#define LS_MODEL_H
#include <stdbool.h>
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_model ls_model;

/* Sizes of a language model: a decoder-only transformer, ids [B, T] -> a distribution over
 * the next token at each of the B T places. Zeros stand for the defaults of ls_lm_resolve. */
typedef struct ls_lm_config {
    int64_t vocab_size; /* V: ids are 0 .. V - 1 */
    int64_t seq_len;    /* longest sequence: T is at most this */
    int64_t n_layer;    /* L */
    int64_t n_head;     /* H; each has d_model / n_head channels */
    int64_t n_kv_head;  /* llama: heads of keys and values; 0: n_head */
    int64_t d_model;    /* C */
    int64_t d_ff;       /* width inside the mlp; 0: 4 C */
    double norm_eps;    /* 0: 1e-5 */
    double rope_theta;  /* llama: base of the rotary angles; 0: 10000 */
    bool tied;          /* the head's matrix is the embedding's */
    double embd_dropout, attn_dropout, resid_dropout; /* gpt2: probabilities in [0, 1) */
} ls_lm_config;

/* Fills in what is 0 and checks that the sizes fit together for `model`, "gpt2" or "llama".
 * LS_BAD_CONFIG names the value (model.n_head ...), LS_UNSUPPORTED what no model here does. */
ls_status ls_lm_resolve(const char *model, const ls_lm_config *c, ls_lm_config *out);
/* Parameters of such a model, by its formula; c is resolved.
 *   gpt2   V C + T C + L (12 C^2 + 13 C, or with d_ff = F: 4 C^2 + 2 C F + 9 C + F) + 2 C
 *   llama  V C + L (2 C^2 + 2 C C Hkv / H + 3 C F + 2 C) + C
 * and V C more where the head has a matrix of its own. */
int64_t ls_lm_count(const char *model, const ls_lm_config *c);

/* A named set of sizes: "gpt2-medium", "llama-15m". */
typedef struct ls_model_preset {
    const char *name;
    const char *model; /* ls_model_config.name */
    ls_lm_config lm;   /* resolved */
} ls_model_preset;
extern const ls_model_preset ls_model_presets[]; /* ends with a name of NULL */
const ls_model_preset *ls_model_preset_find(const char *name); /* NULL if unknown */

/* What a model is built from. */
typedef struct ls_model_config {
    const char *name;    /* "mlp", "gpt2" or "llama" */
    const int64_t *dims; /* mlp: [in, hidden..., classes], at least 2 */
    int ndims;
    const char *activation; /* mlp: "relu" (default, NULL) or "gelu" */
    ls_lm_config lm;        /* gpt2, llama */
    ls_init init;
    uint64_t seed;
} ls_model_config;

/* The x and the labels of a micro-batch. */
typedef struct ls_model_input {
    ls_dtype dtype;           /* of x: F32 features, or I64 token ids */
    int ndim;
    int64_t dim[LS_MAX_DIMS]; /* of x: [N, features] or [B, T] */
    int label_ndim;
    int64_t label_dim[LS_MAX_DIMS]; /* of the labels, I64: [N] or [B, T] */
} ls_model_input;

/* What a loss was made of. */
typedef struct ls_loss_sums {
    double sum;      /* of the losses of the counted labels */
    int64_t counted; /* labels; all but those to be ignored */
    int64_t correct; /* rows whose largest logit is at the label; -1: not looked at */
} ls_loss_sums;

/* A kind of model: one file, one of these, one line in ls_model_classes. */
typedef struct ls_model_class {
    const char *name;
    const char *summary;
    /* Registers parameters; no memory for values yet. */
    ls_status (*create)(const ls_model_config *c, ls_model *m);
    /* Sets initial values after binding. */
    ls_status (*init)(ls_model *m, const ls_model_config *c);
    /* What a micro-batch of `batch` samples, each of `tokens` tokens, looks like. A model
     * whose samples are not sequences ignores `tokens`. */
    void (*input)(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in);
    /* x -> logits [N, classes] or [B, T, V]: all of them. */
    ls_tensor *(*forward)(ls_model *m, ls_tape *t, ls_tensor *x);
    /* ls_model_loss, where that is not made from forward's result; else NULL. */
    ls_tensor *(*loss)(ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums);
    /* Language models: ids[B, T], which follow the kv->n tokens in kv (NULL: none, and none are kept) -> what the
     * head is applied to, [B, T, C]. Others: NULL. */
    ls_tensor *(*hidden)(ls_model *m, ls_tape *t, ls_tensor *ids, ls_kv *kv);
    void (*destroy)(ls_model *m);
} ls_model_class;
extern const ls_model_class *const ls_model_classes[]; /* NULL-ended */
const ls_model_class *ls_model_class_find(const char *name);

/* What dropout depends on. */
typedef struct ls_draw {
    uint64_t seed, step; /* of the run; the optimizer step */
    uint64_t sample;     /* the micro-batch's first sample: its place in the step, over all ranks */
} ls_draw;

struct ls_model {
    const ls_model_class *cls;
    ls_params params;
    void *state;  /* owned by the class */
    ls_arena *arena; /* owned: ls_model_destroy frees it; NULL: the values lie in arenas of the caller */
    ls_draw draw; /* set before each forward that has a gradient */
};

/* Registers the parameters; bind them (ls_params_bind), then ls_model_init.
 * LS_BAD_CONFIG names the value that is wrong. */
ls_status ls_model_create(const ls_model_config *c, ls_model **out);
ls_status ls_model_init(ls_model *m, const ls_model_config *c);
ls_tensor *ls_model_forward(ls_model *m, ls_tape *t, ls_tensor *x);
/* What backward starts from: the sum of -log softmax(logits)[label] over the counted labels, by
 * the number N of all labels of the micro-batch. A step over several micro-batches and ranks
 * starts each backward from N / (labels of the step that count), so any split gives the same.
 *
 * `sums` may be NULL. It must stay until backward is over: a language model never has all its
 * logits, makes them in backward, and only then knows sums->sum and the loss. */
ls_tensor *ls_model_loss(ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums);
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
