/* nn.h -- named parameters and their initial values. */
#ifndef LS_NN_H
#define LS_NN_H
#include "lockstep/rng.h"
#include "lockstep/shard.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_NAME_BYTES 64

/* A parameter: a leaf tensor with a name as it stands in a checkpoint ("0.weight"). */
typedef struct ls_param {
    char name[LS_NAME_BYTES];
    ls_tensor t;    /* value; t.grad == &grad while gradients are wanted */
    ls_tensor grad; /* grad.data: the owner's memory, or a view into a DDP bucket */
    void *bf16;     /* t.bf16, for those who change the value; NULL: no copy */
    bool no_decay;  /* an optimizer's weight decay leaves it alone */
    bool whole;     /* never sharded: an op reads its float values where activations are bf16, too (ls_add_rows) */
    bool sharded;   /* this rank updates the elements `own` of the value, others the rest (ls_ddp_bind) */
    ls_range own;
    int rank, ranks;  /* of the DDP wrapper that averages the gradient; ranks 0: none does. With more than one rank an
                       * optimizer refuses a gradient that is not t.grad_reduced */
    bool turned;    /* a matrix [out, in] that stands as [in, out] in files and in the digest (GPT-2's "Conv1D") */
} ls_param;

/* A model's parameters, in registration order. */
typedef struct ls_params {
    ls_param *item; /* owned; addresses are fixed once registration is over */
    int n, cap;
} ls_params;

/* Registers; dims are checked to be positive. The data pointers stay NULL until ls_params_bind. */
ls_status ls_params_add(ls_params *ps, const char *name, int ndim, const int64_t *dim);
/* Allocates all values (kind param) and gradients (kind grad) from arenas. grads may be
 * NULL: evaluation only. */
ls_status ls_params_bind(ls_params *ps, ls_arena *values, ls_arena *grads);
/* Gives every matrix (two and more dimensions) a copy in bf16, 2 bytes an element more (kind param), which is what
 * activations in bf16 are multiplied with; values stay float, as PyTorch's autocast and Micikevicius et al. 2018 keep
 * their master weights. An optimizer's step writes both; whoever else writes values (first values, a checkpoint, a
 * broadcast) calls ls_params_round then. */
ls_status ls_params_bind_bf16(ls_params *ps, ls_arena *values);
/* Bytes of one parameter's copy; 0: it has none. */
size_t ls_param_bf16_nbytes(const ls_param *p);
/* Bytes that it will take, rounding up included. */
size_t ls_params_bf16_nbytes(const ls_params *ps);
/* Rewrites all copies, rounded to nearest even. Without copies: nothing. Of sharded parameters, after a step, only
 * after ls_ddp_gather_values: other ranks' values are out of date. */
void ls_params_round(ls_params *ps);
void ls_params_free(ls_params *ps);
ls_param *ls_params_find(const ls_params *ps, const char *name); /* NULL if absent */
int64_t ls_params_count(const ls_params *ps);                    /* elements in all */
size_t ls_params_nbytes(const ls_params *ps);
/* Marks every gradient as not yet written (torch's zero_grad(set_to_none)). */
void ls_params_zero_grad(ls_params *ps);
/* Weight decay for tensors of two and more dimensions only, not for biases and norms: nanoGPT's rule. */
void ls_params_decay_matrices(ls_params *ps);
/* XXH3-128 over names in byte order, each with a zero byte and its float32 values as a checkpoint has them:
 * equal digests mean equal models, and any program can compute it from the file. */
ls_status ls_params_digest(const ls_params *ps, char hex[33]);

typedef enum ls_init { LS_INIT_TORCH, LS_INIT_PHILOX } ls_init;

/* nn.Linear's default: weight then bias, both uniform in +-1/sqrt(fan_in).
 * LS_INIT_TORCH draws from `torch` in order; LS_INIT_PHILOX keys (seed, index
 * of the parameter) by global element index. bias may be NULL. */
ls_status ls_init_linear(ls_init how, ls_mt19937 *torch, uint64_t seed, int stream, ls_param *weight,
                         ls_param *bias);

#ifdef __cplusplus
}
#endif
#endif
