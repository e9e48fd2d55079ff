/* nn.h -- named parameters, which part of a model they are, and their first values. */
#ifndef LS_NN_H
#define LS_NN_H
#include "lockstep/rng.h"
#include "lockstep/shard.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_NAME_BYTES 64

/* --- parts ------------------------------------------------------------------------- */

/* Which part of a global tensor a rank's tensor is. Dimension `dim` of the global tensor is `runs` runs of `of`
 * elements each; here are [first, first + count) of every run, one after another.
 *
 *   all of it                                 { 0, 1, dim[0], 0, dim[0] }
 *   rows 8 to 15 of [32, 5]                   { 0, 1, 32, 8, 8 }, here [8, 5]
 *   columns 2 and 3 of [32, 5]                { 1, 1, 5, 2, 2 }, here [32, 2]
 *   the second half of the heads of a packed  { 0, 3, C, C / 2, C / 2 }, here [3 C / 2, C]
 *   q k v matrix [3 C, C]
 *
 * Where only some of the runs are here, `of_runs` says how many there are, and first_run which is the first one:
 *
 *   experts 4 to 7 of 8, each [F, C], one       { 0, 4, F, 0, F, 4, 8 }, here [4 F, C]
 *   below another */
typedef struct ls_part {
    int dim, runs;
    int64_t of, first, count;
    int first_run, of_runs; /* of_runs 0: all are here */
} ls_part;

/* Elements [first[d], first[d] + count[d]) of every dimension d of a tensor. */
typedef struct ls_box {
    int64_t first[LS_MAX_DIMS], count[LS_MAX_DIMS];
} ls_box;

/* The part that is all of t; one of all zeros, which a program leaves that knows nothing of parts, is that, too. */
ls_part ls_part_all(const ls_tensor *t);
bool ls_part_is_all(const ls_part *p);
/* LS_SHAPE, naming the tensor, unless `here` can be this part of a tensor. */
ls_status ls_part_check(const char *name, const ls_part *p, const ls_tensor *here);
/* The shape of the global tensor: here->ndim sizes. */
void ls_part_shape(const ls_part *p, const ls_tensor *here, int64_t dim[LS_MAX_DIMS]);
/* The index in the global tensor of element i of `here`, both row-major. *next (NULL: not wanted): the first element
 * after i whose index is not simply one more than that of the element before it, or the end. */
int64_t ls_part_index(const ls_part *p, const ls_tensor *here, int64_t i, int64_t *next);
/* The boxes of the global tensor that rows (of dimension 0) [first, first + count) of `here` are, in their order here;
 * out[p->runs]. Returns how many there are. */
int ls_part_boxes(const ls_part *p, const ls_tensor *here, ls_range rows, ls_box *out);

/* --- parameters ---------------------------------------------------------------------- */

struct ls_group;
struct ls_param;

/* Receives the initial values of parameters for which a rank has no memory to store all of them (ls_ddp_bind).
 * `open` sets *out to memory for all values of one parameter, or to NULL if this rank's values are not used.
 * `close` distributes them; it is a collective call, so all ranks initialize the same parameters in the same
 * order. */
typedef struct ls_sink {
    ls_status (*open)(struct ls_sink *s, struct ls_param *p, float **out);
    ls_status (*close)(struct ls_sink *s, struct ls_param *p);
    void (*destroy)(struct ls_sink *s);
} ls_sink;

/* A parameter: a leaf tensor with a name as it stands in a checkpoint ("0.weight"). */
typedef struct ls_param {
    char name[LS_NAME_BYTES];
    uint32_t id;     /* its place in the whole model, not in this rank's part of it: keys its first values */
    int unit;        /* index in ls_units of the unit that alone uses it (ls_units_add); -1: several units may (the
                      * root's), or nothing is known of units */
    ls_part part;    /* which part of the global tensor `t` is */
    ls_tensor t;     /* what ops read; t.grad == &grad while gradients are wanted. t.data may be NULL where ops read the
                      * copy in bf16 alone (ls_ddp_create) */
    ls_tensor grad;  /* what ops write. grad.data: the owner's memory, or a view into a DDP bucket */
    ls_range own;    /* elements of t that this rank's optimizer updates: all of them, or its shard */
    ls_range keeps;  /* of these the ones that it alone counts in the norm of all gradients: every element of a model is
                      * kept by one rank */
    float *master;   /* values of `own`; NULL: they stand in t.data. Read it by ls_param_values */
    float *dmaster;  /* gradients of `own`, where a strategy keeps them apart from grad.data, which then has memory
                      * during backward only. NULL: they stand in grad.data. Read it by ls_param_gradients */
    bool dmaster_ready; /* dmaster has sums since the last zero (ls_param_has_gradient) */
    void *bf16;      /* t.bf16, for those who change the value; NULL: no copy */
    ls_sink *sink;   /* borrowed from ls_params: receives the initial values, which are still missing. NULL: they are
                      * written to t.data, or were distributed already */
    bool settled;    /* the initial values are the same on all ranks already */
    struct ls_group *replicas; /* borrowed: the ranks over which its gradient is averaged (ls_ddp_create); NULL: none.
                      * If there are several an optimizer refuses a gradient that is not t.grad_reduced */
    int tp_copies;   /* so many neighbours of tp have the same part, and each a part of its gradient (ls_part_copies);
                      * 0, 1: this rank alone */
    bool no_decay;   /* an optimizer's weight decay leaves it alone */
    bool f32;        /* ops read its float values where activations are bf16, too (ls_add_rows): it gets no copy */
    bool elsewhere;  /* only other ranks have it (ls_params.elsewhere) */
    bool transposed; /* a matrix [out, in] that stands as [in, out] in files and in the digest (GPT-2's "Conv1D") */
} ls_param;

/* Values and gradients of p->own; NULL: no memory yet. */
static inline float *ls_param_values(const ls_param *p)
{
    return p->master ? p->master : p->t.data ? (float *)p->t.data + p->own.first : NULL;
}
static inline float *ls_param_gradients(const ls_param *p)
{
    return p->dmaster ? p->dmaster : p->grad.data ? (float *)p->grad.data + p->own.first : NULL;
}

/* Whether an optimizer has a gradient to use: something was written where ls_param_gradients points, since the last
 * zero. (t.grad_ready says the same of grad.data, to which backward then adds. Without dmaster the two are one.) */
static inline bool ls_param_has_gradient(const ls_param *p) { return p->dmaster ? p->dmaster_ready : p->t.grad_ready; }

/* A model's parameters, in registration order. */
typedef struct ls_params {
    ls_param *item; /* owned; addresses are fixed once registration is over */
    int n, cap;
    int before;     /* of a list that is a part of another one: so many come before it */
    int experts;    /* those from here on are experts that ranks divide: they have other replicas; 0: there are none */
    const struct ls_ddp *wrapper; /* borrowed: whose memory the gradients lie in (ls_ddp_create); NULL: no wrapper's */
    int layout;     /* how a strategy that shards has bound them; 0: all values and gradients are here */
    ls_dtype bound; /* dtype of the activations that the parameters were bound for (ls_ddp_bind) */
    ls_sink *sink;  /* owned: receives initial values between ls_ddp_bind and ls_ddp_create; NULL: none */
    struct ls_params *elsewhere; /* owned: parameters of the model that only other ranks have (ls_units_keep): names,
                                  * shapes and ids, without memory; NULL: there are none */
    ls_param **whole; /* owned: [n + elsewhere->n] all of both, in the order of the whole model; NULL: that of item */
} ls_params;

/* Parameters of the whole model, in an order that is the same on all ranks: for those who ask all ranks for one after
 * another. */
static inline int ls_params_total(const ls_params *ps) { return ps->n + (ps->elsewhere ? ps->elsewhere->n : 0); }
static inline ls_param *ls_params_at(const ls_params *ps, int i) { return ps->whole ? ps->whole[i] : &ps->item[i]; }

/* Registers; dims are checked to be positive. The data pointers stay NULL until ls_params_bind. */
ls_status ls_params_add(ls_params *ps, const char *name, int ndim, const int64_t *dim);
/* Allocates all values (kind param) and gradients (kind grad) from arenas. grads may be
 * NULL: evaluation only. */
ls_status ls_params_bind(ls_params *ps, ls_arena *values, ls_arena *grads);
/* Gives every matrix (two and more dimensions), unless it says `f32`, a copy in bf16, 2 bytes more per element (kind
 * param), which is what activations in bf16 are multiplied with; values stay float, as PyTorch's autocast and
 * Micikevicius et al. 2018 have master weights. An optimizer's step writes both; whoever else writes values (first
 * values, a checkpoint, a broadcast) calls ls_params_round then. */
ls_status ls_params_bind_bf16(ls_params *ps, ls_arena *values);
/* Bytes of one parameter's copy; 0: it has none. */
size_t ls_param_bf16_nbytes(const ls_param *p);
/* Rewrites all copies from the values in t.data, rounded to nearest even. Nothing happens without copies, or values. */
void ls_params_round(ls_params *ps);
void ls_param_round(const ls_param *p); /* the copy of one parameter */
void ls_params_free(ls_params *ps);
ls_param *ls_params_find(const ls_params *ps, const char *name); /* NULL if absent */
ls_param *ls_params_find_any(const ls_params *ps, const char *name); /* of those that other ranks have, too */
const ls_param *ls_params_largest(const ls_params *ps);          /* of most elements here; NULL: there are none */
int64_t ls_params_count(const ls_params *ps);                    /* elements in all */
int64_t ls_params_count_whole(const ls_params *ps);              /* of the global tensors, on whatever rank */
size_t ls_params_nbytes(const ls_params *ps);
/* Marks every gradient as not yet written (torch's zero_grad(set_to_none)). */
void ls_params_zero_grad(ls_params *ps);
/* Weight decay for tensors of two and more dimensions only, not for biases and norms: nanoGPT's rule. */
void ls_params_decay_matrices(ls_params *ps);
/* Where those who go through a model parameter by parameter (a digest, a checkpoint) find the values of each: t.data,
 * or what ranks put together (ls_ddp_values). `whole` sets *out to all elements of the global tensor. */
typedef struct ls_values {
    ls_status (*whole)(void *arg, const ls_param *p, const float **out);
    void *arg;
} ls_values;
/* XXH3-128 over names in byte order, each with a zero byte and its float32 values as a checkpoint has them:
 * equal digests mean equal models, and any program can compute it from the file. */
ls_status ls_params_digest(const ls_params *ps, char hex[33]);
/* The same of values that are elsewhere; NULL: in t.data. */
ls_status ls_params_digest_of(const ls_params *ps, const ls_values *values, char hex[33]);

/* --- first values -------------------------------------------------------------------------- */

typedef enum ls_init { LS_INIT_TORCH, LS_INIT_PHILOX } ls_init;

typedef enum ls_dist_kind { LS_DIST_CONSTANT, LS_DIST_UNIFORM, LS_DIST_NORMAL } ls_dist_kind;
/* What a parameter's first values are drawn from. */
typedef struct ls_dist {
    ls_dist_kind kind;
    float a, b; /* constant: a; uniform: in [a, b); normal: with mean 0 and standard deviation a */
} ls_dist;

/* Transfers ownership of `sink` (NULL: none) to the parameters; the sink they had before is destroyed. No
 * parameter uses the new one until the caller sets its ls_param.sink. */
void ls_params_take_sink(ls_params *ps, ls_sink *sink);
/* To write initial values: call ls_param_open, write all values of this rank's tensor to *out unless it is NULL,
 * then call ls_param_close. LS_INVALID: the parameter has no memory yet, or its values were distributed already. */
ls_status ls_param_open(ls_param *p, float **out);
ls_status ls_param_close(ls_param *p);
/* True if ls_param_open would find memory. */
static inline bool ls_param_takes_values(const ls_param *p) { return p->t.data || p->sink; }

/* Draws what is here of a parameter. Each value depends on seed, p->id and the element's index in the global tensor
 * alone, so a model has the same first values in every layout. */
ls_status ls_init_part(ls_param *p, uint64_t seed, ls_dist from);

/* nn.Linear's default, and nn.Conv2d's: weight [O, I, ..], then bias, both uniform in +-1/sqrt(fan_in).
 * LS_INIT_TORCH draws from `torch` in order; LS_INIT_PHILOX draws as ls_init_part. bias may be NULL. */
ls_status ls_init_linear(ls_init how, ls_mt19937 *torch, uint64_t seed, ls_param *weight, ls_param *bias);

#ifdef __cplusplus
}
#endif
#endif
