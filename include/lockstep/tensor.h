/* tensor.h -- tensors, the tape, and the ops on it.
 *
 * A tape records what one forward pass does and plays it backwards. It keeps
 * the first failure and turns later ops into no-ops, so that a model reads
 * like its formula; ask ls_tape_status() once.
 */
#ifndef LS_TENSOR_H
#define LS_TENSOR_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/mem.h"
#include "lockstep/status.h"
#include "lockstep/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 4
typedef struct ls_tensor ls_tensor;
struct ls_node; /* an op on the tape */

struct ls_tensor {
    ls_dtype dtype;
    int ndim;
    int64_t dim[LS_MAX_DIMS]; /* contiguous, row-major */
    const char *name;         /* a parameter's, borrowed from its owner; NULL: none */
    void *data;               /* borrowed from an arena or a tape */
    const void *bf16;         /* the same values rounded to bf16, kept by their owner beside data; NULL: none */
    ls_tensor *grad;          /* of the same dtype. NULL: none wanted (inputs, labels). A parameter's is set by its
                               * owner */
    struct ls_node *node;     /* producer on the tape; NULL for leaves */
    bool grad_ready;          /* something has been written to grad since the last zero: backward adds to it. Whether an
                               * optimizer has a gradient to use says ls_param_has_gradient */
    bool grad_at_once;        /* in this backward no part of grad is put off (ls_tape_defer_weights) */
    bool grad_reduced;        /* grad is the same on all ranks: whoever averages it says so (DDP does), and the next
                               * contribution to it clears this */
    int uses;                 /* contributions to grad that this backward has yet to add; of a gradient that the
                               * tape made: how many more tensors than one hold it */
    int64_t padded_rows;      /* its memory, and that of its gradient, has space for so many rows, dim[0] of them in
                               * use: rows of experts (moe.h), of which each step has another number. 0: for dim[0] */
};

int64_t ls_tensor_count(const ls_tensor *t);  /* elements */
size_t ls_tensor_nbytes(const ls_tensor *t);
bool ls_tensor_same_shape(const ls_tensor *a, const ls_tensor *b);
/* Whether no element is infinite or NaN; of F32, F64 and BF16, others are. */
bool ls_tensor_finite(const ls_tensor *t);
/* "[32, 10]" into buf; returns buf. */
const char *ls_tensor_shape(const ls_tensor *t, char *buf, size_t n);

typedef struct ls_tape ls_tape;

/* A tape with a private slab of slab_bytes for activations, their gradients
 * and nodes (ledger kind act). `ledger` and `tracer` are borrowed, may be NULL. */
ls_status ls_tape_create(size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer, ls_tape **out);
/* A tape that computes nothing and counts everything: forward and ls_backward on it, with inputs that may
 * be NULL, touch no data, and ls_tape_peak then is the slab that the same takes in earnest. Parameters are
 * marked as if they had gradients: ls_params_zero_grad before the first step. */
ls_status ls_tape_create_dry(ls_tape **out);
/* Operations are events of `tracer` (borrowed; NULL: of none) from now on, on a dry tape too. */
void ls_tape_set_tracer(ls_tape *t, ls_tracer *tracer);
void ls_tape_destroy(ls_tape *t);
/* Forgets everything recorded and gives the slab back. */
void ls_tape_reset(ls_tape *t);
/* With grad off, ops compute and record nothing (evaluation). Default on. */
void ls_tape_set_grad(ls_tape *t, bool on);
bool ls_tape_grad(const ls_tape *t);
/* What the ops that begin a chain of activations (ls_embedding) produce: LS_F32, the default, or LS_BF16. Every
 * other op gives what its input is, computes in float and rounds once, to nearest even, on the way to memory;
 * parameters and their gradients stay float, and where activations are bf16 matrices are read from `bf16`.
 * Stays over a reset. LS_UNSUPPORTED for other types. */
ls_status ls_tape_set_dtype(ls_tape *t, ls_dtype dtype);
ls_dtype ls_tape_dtype(const ls_tape *t);
ls_status ls_tape_status(const ls_tape *t);
/* Whether a forward has begun: an op that wants a gradient is recorded since the last reset or backward. */
bool ls_tape_pending(const ls_tape *t);
/* Floating-point operations since the last reset: forward and backward, each once. */
double ls_tape_flops(const ls_tape *t);
/* Those of forward that backward did again beside them (ls_tape_set_recompute). */
double ls_tape_flops_again(const ls_tape *t);
/* Most bytes of the slab ever in use. */
size_t ls_tape_peak(const ls_tape *t);
/* Bytes of the slab that are in use now: after forward what it keeps for backward. */
size_t ls_tape_in_use(const ls_tape *t);

/* --- several micro-batches alive ------------------------------------------------------
 *
 * A pipeline has several forwards whose backward is to come. Each has a tape that holds what is kept until then. What
 * backward makes is released when it returns, so that tapes which are not played at the same time may share the memory
 * for it, the state of matrix products, and packed weights: */
typedef struct ls_tape_scratch ls_tape_scratch;
/* With nbytes (ledger kind act) for the backward of any of its tapes, and for the forward of a block that is recomputed
 * or not recorded. It outlives its tapes. */
ls_status ls_tape_scratch_create(size_t nbytes, ls_ledger *ledger, ls_tape_scratch **out);
/* For dry tapes, which tell what the others need: ls_tape_peak of each, and ls_tape_scratch_peak. */
ls_status ls_tape_scratch_create_dry(ls_tape_scratch **out);
void ls_tape_scratch_destroy(ls_tape_scratch *s);
size_t ls_tape_scratch_peak(const ls_tape_scratch *s);
/* A tape with slab_bytes for what forward keeps, and for weight halves that are put off. Dry if s is. */
ls_status ls_tape_create_shared(ls_tape_scratch *s, size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer,
                                ls_tape **out);

/* With `on`, ls_backward computes gradients of activations only, and keeps what the gradients of parameters need until
 * ls_backward_weights: a schedule fills its idle time with them. Where a parameter also gets a gradient from a half
 * that cannot be put off (the head's matrix from linear_cross_entropy if its logits take more than 64 MiB, and so an
 * embedding that is tied to it), all of its gradient is computed at once. Then both together give the bits of a
 * backward in one, as long as the tapes are played in the same order in both halves. Listeners hear grad_ready and
 * `done` when the gradients are there; a unit is entered a second time for its weight halves. LS_INVALID unless
 * ls_tape_create_shared made the tape. Stays over a reset. */
ls_status ls_tape_defer_weights(ls_tape *t, bool on);
/* The weight halves that backwards on this tape have put off since the last call, in their order. Nothing is recorded
 * on the tape in between. Nothing happens if there are none. ls_tape_pending until then. */
ls_status ls_backward_weights(ls_tape *t);

/* From the next forward on, linear_cross_entropy computes its logits and the loss in forward, if they take at most
 * 64 MiB and no ranks share the vocabulary, and keeps them until backward, which computes the gradients alone.
 * Otherwise backward computes both and nothing is kept. The bits are the same. For a last stage that computes all
 * forwards before its first backward. Stays over a reset. Default: false. */
void ls_tape_logits_in_forward(ls_tape *t, bool on);

/* --- packed weights: memory for time ---------------------------------------------
 *
 * Between pack_begin and pack_end the caller changes no parameter, and products may read copies of weights in the
 * layout that oneDNN multiplies fastest. The first product that wants a copy makes it. Copies pay from about four
 * micro-batches on. Copies of an earlier pair, and outside of any, are never read. Results agree with those from the
 * weights themselves to rounding, and are the same bits in every run. */

/* Where copies go: nbytes at `memory` (64-byte aligned, borrowed until the tape's end or the next call; NULL: none, and
 * pack_begin does nothing). A weight whose copy does not fit is read as it is. LS_INVALID on a dry tape. */
ls_status ls_tape_pack_memory(ls_tape *t, void *memory, size_t nbytes);
void ls_tape_pack_begin(ls_tape *t);
void ls_tape_pack_end(ls_tape *t);
/* Of `memory`, taken so far. On a dry tape, after pack_begin, what the same would take: it follows from the shapes. */
size_t ls_tape_packed_bytes(const ls_tape *t);

/* A leaf over the caller's memory, which must outlive the next reset. No grad. */
ls_tensor *ls_tape_input(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim, void *data);

/* The same with a gradient, which backward writes to `grad` (of x's shape and dtype, the caller's until then): what
 * enters a stage of a pipeline. x->grad->data may be set as late as right before backward. */
ls_tensor *ls_tape_input_wanted(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim, void *data, void *grad);
/* By what the next backward scales losses inside layers (moe.h), if it begins with a gradient that is not a loss's: the
 * one with which the last stage begins. */
void ls_tape_scale_losses(ls_tape *t, float scale);

/* Plays the tape backwards from a scalar loss (its gradient is 1). A leaf's
 * gradient is written when grad_ready is false and added to otherwise. */
ls_status ls_backward(ls_tape *t, ls_tensor *loss);
/* The same from any tensor and a given gradient of its shape and dtype (a stage boundary). */
ls_status ls_backward_from(ls_tape *t, ls_tensor *out, const void *grad);

/* --- recompute: time for memory ------------------------------------------------
 *
 * A model that is a stack of blocks calls each by ls_block. What of a block's
 * activations stays until backward is the tape's choice; gradients, to the bit, and
 * the order in which they are ready are the same with every choice. */

typedef enum ls_recompute {
    LS_RECOMPUTE_NONE,      /* everything stays */
    LS_RECOMPUTE_SELECTIVE, /* what is cheap to make again for its bytes goes when its block is over: the results
                             * of norms, gelu, silu and swiglu. Products of matrices and attention stay; attention
                             * never keeps its scores, which Korthikanti et al. 2022 drop under this name */
    LS_RECOMPUTE_FULL,      /* a block's input stays, and its forward is recomputed: Chen et al. 2016 */
} ls_recompute;

/* Stays over a reset. Default: none. */
void ls_tape_set_recompute(ls_tape *t, ls_recompute how);
/* "none", "selective", "full"; LS_BAD_CONFIG otherwise. */
ls_status ls_recompute_find(const char *name, ls_recompute *out);
const char *ls_recompute_name(ls_recompute how);

/* A block: y from x. It gets the same results each time that it is called with the same x and
 * arg, and takes from outside only x, parameters and leaves without a gradient. */
typedef ls_tensor *(*ls_block_fn)(ls_tape *t, ls_tensor *x, const void *arg);
/* fn(t, x, arg) as one piece. The nbytes at arg are copied; what they point to must stay until backward is
 * over. Where no gradient is recorded, too, only the result stays. A block inside a block is part of it. */
ls_tensor *ls_block(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *arg, size_t nbytes);

/* --- units and listeners ---------------------------------------------------------
 *
 * A model is a row of units (embedding, blocks, head), each computed, gathered, recomputed and timed as one piece.
 * Between unit_begin and unit_end ops are recorded as parts of the unit; a block (ls_block) lies in a unit, or has
 * one. Backward enters a unit before the first of its ops that is played, and leaves it after the last one, its
 * block's second forward included. A unit that does not lead to the loss is not entered. */
struct ls_unit;
void ls_tape_unit_begin(ls_tape *t, const struct ls_unit *unit);
void ls_tape_unit_end(ls_tape *t);

typedef enum ls_unit_when {
    LS_UNIT_ENTER, LS_UNIT_LEAVE,                   /* in forward, recorded or not */
    LS_UNIT_ENTER_BACKWARD, LS_UNIT_LEAVE_BACKWARD,
} ls_unit_when;

typedef enum ls_tape_phase {
    LS_PHASE_FORWARD,
    LS_PHASE_AGAIN,           /* forward once more, in backward (ls_tape_set_recompute) */
    LS_PHASE_BACKWARD_WEIGHT, /* the gradients of parameters */
    LS_PHASE_BACKWARD_INPUT,  /* of what the op was applied to */
} ls_tape_phase;

/* An op in one of its phases. Its text is valid during the call. */
typedef struct ls_op_event {
    const char *name;           /* as traces name it: "linear 784x256" */
    ls_tape_phase phase;
    double flops;
    double bytes;               /* that the phase reads and writes: operands and results, each once */
    const struct ls_unit *unit; /* NULL: none */
    const ls_tensor *out;       /* the op's result in forward; a dry tape's has no data */
} ls_op_event;

/* What a tape tells its listeners. Any may be NULL, which costs nothing. A failure ends forward or backward. */
typedef struct ls_tape_events {
    ls_status (*unit)(void *arg, const struct ls_unit *unit, ls_unit_when when);
    /* The last contribution to a leaf's gradient in this backward is in place; bias before weight where one op
     * yields both. */
    ls_status (*grad_ready)(void *arg, ls_tensor *param);
    /* After each operation, of forward as well: where collectives in flight progress. */
    ls_status (*progress)(void *arg);
    /* The end of ls_backward: every gradient has been written. */
    ls_status (*done)(void *arg);
    /* Each result of forward, in order, of a tape that computes. */
    void (*output)(void *arg, const char *op, const ls_tensor *out);
    /* Each op, after each of its phases; on a dry tape, too. */
    void (*op)(void *arg, const ls_op_event *e);
    /* ls_tape_destroy begins: a listener that may end before its tape, and then unlistens, forgets the tape. */
    void (*end)(void *arg, ls_tape *t);
} ls_tape_events;

#define LS_TAPE_LISTENERS 6

/* `events` is copied; `arg`, which every call gets, names the listener: one with the same arg is replaced, so this may
 * be called before every forward. Listeners are called over resets, until ls_tape_unlisten or the tape's
 * end; arg stays valid that long. LS_INVALID for a fifth listener. */
ls_status ls_tape_listen(ls_tape *t, const ls_tape_events *events, void *arg);
/* Nothing happens if there is no such listener. */
void ls_tape_unlisten(ls_tape *t, const void *arg);

/* --- ops: all f32, all NULL-safe (NULL in, NULL out after a failure) -------- */

/* y[N, O] = x[N, I] w[O, I]^T + b[O]; b may be NULL. 2 N I O flops forward, twice that backward. */
ls_tensor *ls_linear(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b);
/* x with another shape of as many elements; both have the same memory. */
ls_tensor *ls_reshape(ls_tape *t, ls_tensor *x, int ndim, const int64_t *dim);
/* max(x, 0), any shape. */
ls_tensor *ls_relu(ls_tape *t, ls_tensor *x);
/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's. Hendrycks and Gimpel 2016. */
ls_tensor *ls_gelu(ls_tape *t, ls_tensor *x);
/* Which tokens of each sequence are here: one run of neighbours after another. */
#define LS_TOKEN_RUNS 2
typedef struct ls_places {
    int64_t of; /* tokens of a whole sequence */
    int n;      /* runs */
    int64_t first[LS_TOKEN_RUNS], count[LS_TOKEN_RUNS];
} ls_places;

/* Rotary positions as Hugging Face's Llama has them (Su et al. 2021): the pair (x[i], x[i + D/2]) of every
 * head of x[B, T, H, D] turned by theta^(-2i/D) (first_position + t), an angle made in double. D is even,
 * theta > 0, first_position >= 0. */
ls_tensor *ls_rope(ls_tape *t, ls_tensor *x, double theta, int64_t first_position);
/* The same for tokens at those places of their sequences; T of x is how many there are. */
ls_tensor *ls_rope_at(ls_tape *t, ls_tensor *x, double theta, const ls_places *tokens);
/* softmax(scale q k^T) v for each head: q[B, Tq, Hq, D], k and v[B, Tk, Hkv, D], result as q. Each
 * Hq / Hkv neighbouring heads of q share one of k and v (grouped queries). Causal: query i sees keys 0 to
 * Tk - Tq + i. In tiles (FlashAttention-2, Dao 2023): what is kept for backward is 4 bytes a row of scores,
 * and memory never grows with Tq * Tk. D is at most 256 (LS_UNSUPPORTED). 4 D flops for each query and key
 * that it sees; 2.5 times that backward, because scores are recomputed. */
ls_tensor *ls_attention(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal);
/* The same where one linear layer made all three, as GPT-2's does: qkv[B, T, 3 C] is q, k and v side by side,
 * each of `heads` heads; the result is [B, T, C]. Nothing is copied apart; same bits. */
ls_tensor *ls_attention_packed(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal);
/* Dropout of the probabilities of both (Srivastava et al. 2014), as torch's scaled_dot_product_attention has it: after
 * the softmax that of query i and key j is 0 with probability p and 1 / (1 - p) times itself otherwise. Element
 * (b, h, i, j) of [B, Hq, Tq, Tk] is dropped where ls_philox_uniform(seed, stream, first + its index) < p; no mask is
 * kept. With `first` the global index of element 0, a micro-batch drops what the whole batch would. Where the op has
 * heads [first_head, first_head + Hq) of a layer's `heads`, indices are those of [B, heads, Tq, Tk]. */
typedef struct ls_attention_dropout {
    float p; /* 0 <= p < 1 */
    uint64_t seed, stream, first;
    int64_t heads, first_head; /* 0: all heads are here */
} ls_attention_dropout;
/* dropout NULL, or p = 0: ls_attention and ls_attention_packed, to the bit. */
ls_tensor *ls_attention_dropped(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal,
                                const ls_attention_dropout *dropout);
ls_tensor *ls_attention_packed_dropped(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal,
                                       const ls_attention_dropout *dropout);
/* The keys and values of a sequence so far, of every layer: what generation keeps, so that a token is computed once.
 * A head's tokens lie together: token t of head h, sequence b, layer l is at (((l B + b) Hkv + h) capacity + t) D. */
typedef struct ls_kv {
    int64_t layers, B, Hkv, D;
    int64_t capacity; /* tokens that fit */
    int64_t n;    /* tokens that are in it; who feeds the layers counts, once all of them have the new ones */
    float *k, *v; /* [layers, B, Hkv, capacity, D], borrowed; NULL is fine on a dry tape */
} ls_kv;

/* ls_attention, causal, of tokens that follow the kv->n before them: their k and v[B, T, Hkv, D] are written into
 * layer `layer` of kv, and q[B, T, Hq, D] sees those of all n + T. LS_SHAPE where kv has another shape or less capacity
 * than T more. No gradient goes through it: LS_UNSUPPORTED where one is recorded. Up to 4 tokens at a time take as
 * long as reading the keys and values. */
ls_tensor *ls_attention_cached(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, ls_kv *kv,
                               int64_t layer);
/* The same from qkv[B, T, 3 C], q, k and v side by side, as in ls_attention_packed; the result is [B, T, C]. */
ls_tensor *ls_attention_packed_cached(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, ls_kv *kv,
                                      int64_t layer);
/* x sigmoid(x), any shape. Also called swish. */
ls_tensor *ls_silu(ls_tape *t, ls_tensor *x);
/* silu(gate) up, equal shapes: the middle of Llama's feed-forward layer. Shazeer 2020. */
ls_tensor *ls_swiglu(ls_tape *t, ls_tensor *gate, ls_tensor *up);
/* a + b, equal shapes: a residual connection. In backward both hold the gradient of the sum
 * itself; it is copied only when one of them gets more while the other is still needed. */
ls_tensor *ls_add(ls_tape *t, ls_tensor *a, ls_tensor *b);
/* x[.., T, C] + w[0 .. T) of w[P, C]: learned positions. LS_SHAPE when T > P. */
ls_tensor *ls_add_rows(ls_tape *t, ls_tensor *x, ls_tensor *w);
/* The same for tokens at those places of their sequences; T of x is how many there are. LS_SHAPE unless w has their
 * rows. */
ls_tensor *ls_add_rows_at(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_places *tokens);
/* x[.., O] + b[O], in the memory of x, which nothing else may read. b is float. */
ls_tensor *ls_add_bias(ls_tape *t, ls_tensor *x, ls_tensor *b);
/* Rows of w[V, C] by their number: ids[..] (I64, at most 3 dimensions) to [.., C]. The first id
 * outside [0, V) is LS_INVALID, with its place. */
ls_tensor *ls_embedding(ls_tape *t, ls_tensor *ids, ls_tensor *w);
/* Rows [first, first + w->dim[0]) of a table of `of` rows, which ranks divide among them. */
typedef struct ls_vocab_part {
    struct ls_group *ranks; /* borrowed: those that have the other rows, too */
    int size;               /* so many; 0, 1: w is the whole table */
    int64_t first, of;
} ls_vocab_part;
/* The rows that are here: [.., C] with zeros where an id is of another rank's row. The sum over the ranks is
 * ls_embedding's. `part` NULL: ls_embedding. */
ls_tensor *ls_embedding_part(ls_tape *t, ls_tensor *ids, ls_tensor *w, const ls_vocab_part *part);
/* (x - mean) / sqrt(variance + eps) w + b over the last dimension of x[.., C]; w[C], b[C]; eps > 0.
 * Ba, Kiros and Hinton 2016. */
ls_tensor *ls_layernorm(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, float eps);
/* x / sqrt(mean of x^2 + eps) w over the last dimension of x[.., C]; w[C]; eps > 0. Zhang and Sennrich 2019. */
ls_tensor *ls_rmsnorm(ls_tape *t, ls_tensor *x, ls_tensor *w, float eps);
/* Each element is 0 with probability p, 0 <= p < 1, and x / (1 - p) otherwise; p = 0 gives x itself
 * (evaluation). Element i is dropped where ls_philox_uniform(seed, stream, first + i) < p: with
 * `first` the global index of element 0, a shard drops what the whole would. The mask is not kept.
 * ls_stream(LS_STREAM_DROPOUT, a number for each step and call) shares nothing with other uses of the seed.
 * Srivastava et al. 2014. */
ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p, uint64_t seed, uint64_t stream, uint64_t first);
/* The same where x [B, T, ..] has tokens of longer sequences: elements count as in the whole [B, tokens->of, ..]. */
ls_tensor *ls_dropout_at(ls_tape *t, ls_tensor *x, float p, uint64_t seed, uint64_t stream, uint64_t first,
                         const ls_places *tokens);

/* --- the basic set, each an ls_op (op.h); f32, and bf16 unless it says otherwise ---- */

/* a b, and a - b, element by element; equal shapes. */
ls_tensor *ls_mul(ls_tape *t, ls_tensor *a, ls_tensor *b);
ls_tensor *ls_sub(ls_tape *t, ls_tensor *a, ls_tensor *b);
/* factor x, any shape. */
ls_tensor *ls_scale(ls_tape *t, ls_tensor *x, float factor);
ls_tensor *ls_tanh(ls_tape *t, ls_tensor *x);
ls_tensor *ls_sigmoid(ls_tape *t, ls_tensor *x);
/* Over the last dimension of x[.., C]. */
ls_tensor *ls_softmax(ls_tape *t, ls_tensor *x);
/* a[.., M, K] b[.., K, N], with equal dimensions in front: a product of two activations. */
ls_tensor *ls_matmul(ls_tape *t, ls_tensor *a, ls_tensor *b);
#define LS_ALL_DIMS (-1)
/* Over one dimension, which x loses, or over all: a result []. f32. */
ls_tensor *ls_sum(ls_tape *t, ls_tensor *x, int dim);
ls_tensor *ls_mean(ls_tape *t, ls_tensor *x, int dim);
/* x with two dimensions exchanged; a copy. */
ls_tensor *ls_transpose(ls_tape *t, ls_tensor *x, int dim0, int dim1);
/* [first, first + count) of dimension dim; a copy. */
ls_tensor *ls_slice_of(ls_tape *t, ls_tensor *x, int dim, int64_t first, int64_t count);
/* x[0 .. n), at most 8, one after the other along dim; all other dimensions are equal. */
ls_tensor *ls_concat(ls_tape *t, ls_tensor *const *x, int n, int dim);
/* torch.nn.functional.conv2d: x[N, C, H, W] with w[O, C, k, k], b[O] or NULL; 0 <= padding < k. f32. */
ls_tensor *ls_conv2d(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, int64_t stride, int64_t padding);
/* The largest of each kernel x kernel window of x[N, C, H, W], windows `stride` apart; ties go to the first. f32. */
ls_tensor *ls_max_pool2d(ls_tape *t, ls_tensor *x, int64_t kernel, int64_t stride);
/* Mean of (x - target)^2 over all elements; equal shapes. f32. */
ls_tensor *ls_mse_loss(ls_tape *t, ls_tensor *x, ls_tensor *target);
/* Mean of -(target log p + (1 - target) log(1 - p)), logarithms at least -100; p in [0, 1], else LS_INVALID. f32. */
ls_tensor *ls_bce_loss(ls_tape *t, ls_tensor *p, ls_tensor *target);

/* --- losses and heads --------------------------------------------------------------- */

/* Mean over N of -log softmax(logits[N, C])[label[N]]; labels are I64 in [0, C),
 * else LS_INVALID. sum_out (may be NULL) gets the sum of the N losses in double,
 * correct_out (may be NULL) how many rows have their largest logit at the label. */
ls_tensor *ls_softmax_cross_entropy(ls_tape *t, ls_tensor *logits, ls_tensor *labels, double *sum_out,
                                    int64_t *correct_out);

#define LS_IGNORE_INDEX (-100) /* a label that does not count, as in PyTorch */

/* The head of a language model: scale * sum over the counted rows of
 * -log softmax(x w^T)[label], with x [..., C], w [V, C] and a label (I64) for each
 * of the N rows: in [0, V), or LS_IGNORE_INDEX, else LS_INVALID. With scale =
 * 1 / (counted tokens of the whole step) the losses and gradients of any split
 * of a batch over ranks and micro-batches add up to the same. The logits [N, V]
 * are never whole: at most 64 MiB of them (or 16 rows) are at a time.
 *
 * sum_out (may be NULL) gets the sum, not scaled, in double; counted_out (may be
 * NULL) the counted rows, at once. Where a gradient is wanted the logits are
 * computed in ls_backward, once: until then the loss and *sum_out are NaN, and
 * sum_out, x, w and labels must stay. A dw (also of a tied w) and dx may be
 * added to what is there. 6 N V C flops; 2 N V C without gradients. */
ls_tensor *ls_linear_cross_entropy(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *labels, double scale,
                                   double *sum_out, int64_t *counted_out);
/* The same where w has the rows of `part`, and labels are of the whole table: the ranks put together what softmax needs
 * (two all_reduces for each piece of the rows of x, of one and of two doubles a row), and each has the loss. Its dw is
 * of its rows; the sum of dx over the ranks is ls_linear_cross_entropy's. `part` NULL: ls_linear_cross_entropy. */
ls_tensor *ls_linear_cross_entropy_part(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *labels, double scale,
                                        double *sum_out, int64_t *counted_out, const ls_vocab_part *part);
/* y[B, V] = x[:, T - 1, :] w^T of x [B, T, C] (or [T, C]): the logits of the next
 * token. Without gradient: LS_UNSUPPORTED where one is recorded. */
ls_tensor *ls_last_logits(ls_tape *t, ls_tensor *x, ls_tensor *w);

#ifdef __cplusplus
}
#endif
#endif
