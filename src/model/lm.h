/* lm.h -- what a language model says of itself, and what the language models share.
 *
 * A language model here is an embedding, L equal blocks and a head. Its file has a table of parameters for each of the
 * three, the forward of each, and the keys of its config.json; creating it, its initial values, decoding and
 * Hugging Face's files follow from the tables.
 */
#ifndef LS_MODEL_LM_H
#define LS_MODEL_LM_H
#include "lockstep/model.h"

/* --- the tables ---------------------------------------------------------------------------- */

/* The length of a dimension. */
typedef enum ls_lm_dim {
    LS_LM_NONE, /* there is no such dimension */
    LS_LM_V,    /* vocab_size */
    LS_LM_T,    /* seq_len */
    LS_LM_C,    /* d_model */
    LS_LM_3C,   /* queries, keys and values side by side */
    LS_LM_KV,   /* n_kv_head heads */
    LS_LM_F,    /* d_ff */
    LS_LM_E,    /* n_experts */
    LS_LM_EF,   /* n_experts matrices of d_expert rows, one below another */
    LS_LM_S,    /* shared_expert */
    LS_LM_1,    /* one */
} ls_lm_dim;

/* How a parameter begins. */
typedef enum ls_lm_init {
    LS_LM_NORMAL,   /* normal with standard deviation 0.02 */
    LS_LM_RESIDUAL, /* the same by sqrt(2 L), because 2 L of them add up in the residual stream (Radford et al. 2019) */
    LS_LM_ZERO,     /* a bias */
    LS_LM_ONE,      /* the weight of a norm */
} ls_lm_init;

/* How the ranks of tp divide a parameter: each has as many elements of a dimension, or of a vocabulary rows as
 * ls_shard_range says. */
typedef enum ls_lm_cut {
    LS_LM_WHOLE,   /* each has all of it */
    LS_LM_COLUMNS, /* rows of the matrix, which are columns of the product; a bias's elements. Of heads of keys that are
                    * fewer than the ranks, each has one */
    LS_LM_ROWS,    /* columns of the matrix: each rank's product is a part of a sum */
    LS_LM_EXPERTS, /* rows of each expert's matrix, and the ranks of ep have some of the experts */
} ls_lm_cut;

/* A parameter of a unit, at this place in the unit's table. */
typedef struct ls_lm_param {
    const char *name; /* in checkpoints and in Hugging Face's files; "%d" becomes the layer */
    ls_lm_dim dim[2]; /* [out, in], or a vector's */
    ls_lm_init init;
    ls_lm_cut cut;
    bool transposed;  /* Hugging Face's file has [in, out] ("Conv1D") */
    bool head;        /* of the embedding and of the head: one matrix where c->tied */
    bool f32;         /* ls_param.f32: ls_add_rows reads it */
    bool mlp;         /* of a layer: the mlp reads it, not the attention */
} ls_lm_param;

/* One of the three kinds of unit. */
typedef struct ls_lm_unit {
    const ls_lm_param *param; /* [cls.nparams] */
    ls_unit_class cls;
    ls_unit_class half[2];    /* of a layer: attention and mlp as units of their own, whose forwards have the same
                               * positions, and skip those of the other one */
} ls_lm_unit;

/* A layer with n parameters: all of it, its attention, its mlp. */
#define LS_LM_LAYER(params, n, all, attention, mlp)                                                                \
    {                                                                                                              \
        .param = (params), .cls = { (all), (n), true }, .half = { { (attention), (n), true }, { (mlp), (n), true } } \
    }

/* A key of config.json. */
typedef enum ls_hf_kind {
    LS_HF_SIZE,  /* int64_t; null counts as absent */
    LS_HF_COUNT, /* the same from 0 on, and not written where it is as absent */
    LS_HF_REAL,  /* double */
    LS_HF_FLAG,  /* bool */
    LS_HF_ONLY,  /* `absent` (or `alias`) is the only value supported, and is not kept: any other is another formula */
    LS_HF_CHECK, /* the same, and not written */
} ls_hf_kind;

typedef struct ls_hf_key {
    const char *key;
    ls_hf_kind kind;
    size_t at;          /* in ls_lm_config */
    const char *absent; /* transformers' value where the key is absent, as JSON; NULL: must be there */
    const char *alias;  /* LS_HF_ONLY, LS_HF_CHECK: a second name of the same value; NULL: none */
} ls_hf_key;

typedef struct ls_lm_class {
    ls_lm_unit embedding, block, head;
    const ls_lm_unit *(*block_at)(const ls_lm_config *c, int layer); /* where not all blocks are alike; NULL: `block` */
    /* Hugging Face's files: */
    const char *architecture;      /* "GPT2LMHeadModel" */
    const char *model_type;        /* NULL: the class's name */
    const struct ls_lm_class *second; /* another form of their files, which some sizes have; NULL: none */
    bool (*is_second)(const ls_lm_config *c);
    const char *prefix;            /* of the names, which files may lack: "transformer." */
    const ls_hf_key *keys;         /* ends with a key of NULL; in the order in which they are written */
    const char *const *buffers;    /* ends of names that older files have and that are no parameters; NULL-ended */
    bool rotary;                   /* rope_theta counts, and transformers' keys for it are read, which may also have
                                    * those of LS_HF_CHECK */
} ls_lm_class;

/* --- ls_model_class of a language model -------------------------------------------------------- */

/* The keys that all of them read, for ls_model_class.keys. */
#define LS_LM_KEYS                                                                                                       \
    LS_LM_KEY, "model.seq_len", "model.n_layer", "model.n_head", "model.d_model", "model.d_ff", "model.norm_eps",        \
        "model.tied", "data.tokenizer", "data.ignore_token", "train.seq_len", "train.recompute", "train.pack_weights",   \
        "train.sample_every"

/* Defaults, and what must hold for each of them: a class's resolve calls it, then checks what it is alone with. */
ls_status ls_lm_resolve(const ls_model_config *c, ls_model_config *out);
/* Units and parameters by m->cls->lm; a tied matrix is the root's. */
ls_status ls_lm_create(const ls_model_config *c, ls_model *m);
/* Initial values by the tables (ls_init_part). LS_UNSUPPORTED for LS_INIT_TORCH. */
ls_status ls_lm_init_values(ls_model *m, const ls_model_config *c);
/* ids and labels, both [batch, tokens]; tokens 0: seq_len. */
void ls_lm_input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in);

/* Whether units i and i - 1 are halves of a layer. */
bool ls_lm_is_second_half(const ls_model *m, int i);
/* The unit that computes a layer, or of one whose halves are units the mlp. */
ls_unit *ls_lm_last_of(const ls_model *m, int layer);
/* The table entry of the matrix that is one where a model ties them: of the embedding, of the head. */
const ls_lm_param *ls_lm_tied(const ls_lm_unit *u);

/* --- pieces of forward ------------------------------------------------------------------------------ */

/* Sizes of the model that the unit is of. */
static inline const ls_lm_config *ls_lm_sizes(const ls_unit *u) { return &((const ls_model *)u->arg)->lm; }

/* So many of n heads are here. */
static inline int64_t ls_lm_heads(const ls_pass *pass, int64_t n)
{
    return n < pass->place->tp.size ? 1 : ls_part_of(&pass->place->tp, n);
}

/* Rows of the embedding w for ids [B, T], which several ranks may divide: what the ranks add up, or with sequence
 * parallelism this rank's [B, T / tp, C] of it. */
ls_tensor *ls_lm_embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, ls_tensor *w, const ls_pass *pass);
/* Which tokens an activation [B, T, ..] has here: inside a half of a layer, or `between` two, where sequence
 * parallelism divides them, too. */
ls_status ls_lm_tokens(const ls_pass *pass, int64_t T, bool between, ls_places *out);
/* ls_rope_at of x [B, T, H, D], inside a half. */
ls_tensor *ls_lm_rope(ls_tape *t, ls_tensor *x, double theta, const ls_pass *pass);
/* ids, unless they are not I64 [B, T], or T and what came before is more than seq_len: LS_SHAPE. */
ls_tensor *ls_lm_ids(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass);
/* x + the rows of w, a matrix, for the places of its tokens: learned positions. */
ls_tensor *ls_lm_positions(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_pass *pass);
/* Dropout with probability p at place `site` of the formula, by pass->draw and the element's index in
 * the whole step; x itself where no gradient is recorded. */
ls_tensor *ls_lm_dropout(const ls_pass *pass, ls_tape *t, ls_tensor *x, double p, int64_t site);
/* The same for the probabilities of an attention of `heads` heads, on all ranks, over T tokens; p = 0 where no gradient
 * is recorded. */
ls_attention_dropout ls_lm_attention_dropout(const ls_pass *pass, const ls_tape *t, double p, int64_t site,
                                             int64_t heads, int64_t T);
/* What pass->output asks for, of the last norm's h [B, T, C] and the head's matrix w [V, C]. */
ls_tensor *ls_lm_output(const ls_unit *u, ls_tape *t, ls_tensor *h, ls_tensor *w, const ls_pass *pass);

#endif
