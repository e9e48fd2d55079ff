/* tape.h -- what an op may use of the tape. For src/tensor/op_*.c only.
 *
 * An op is written as: ls_op_begin, check shapes, ls_op_output, compute,
 * ls_op_end. On a dry tape everything happens but the computing, so that the
 * memory and the work of a model can be known without its data.
 */
#ifndef LS_TENSOR_TAPE_H
#define LS_TENSOR_TAPE_H
#include "lockstep/shard.h"
#include "lockstep/tensor.h"
#include "tensor/gemm.h"

#define LS_OP_INPUTS 3

/* A kind of op. Each half of backward adds to the gradients of its inputs, and is
 * called only when one of them is wanted; a tape plays both halves unless a
 * schedule splits them. Either may be NULL. */
typedef struct ls_tape_op {
    const char *name;
    int napplied; /* the op is applied to in[0 .. napplied); the inputs from there on are parameters */
    ls_status (*backward_weight)(ls_tape *t, struct ls_node *n); /* to parameters */
    ls_status (*backward_input)(ls_tape *t, struct ls_node *n);  /* to what the op was applied to */
    /* What it is where its weight half is not put off: an op whose backward_input computes all gradients, in one pass.
     * NULL: one half follows the other. */
    const struct ls_tape_op *whole;
    /* Fills n->out->data once more, to the bit, from in[] and `saved`: for ops that are cheap for the bytes of
     * their result and do not read it in backward. It was made by ls_op_output_again, or has the memory of in[0].
     * On a dry tape it takes and releases the memory that it needs.
     * NULL: the result stays. */
    ls_status (*again)(ls_tape *t, struct ls_node *n);
    /* With `again`: in a block the result goes after forward even where nothing else is recomputed. It was made by
     * ls_op_output_transient. */
    bool transient;
    /* In place of both halves: of a node that is a whole block. */
    ls_status (*play)(ls_tape *t, struct ls_node *n);
    /* For an op whose `saved` points to more: makes n, a copy of a node, independent of memory that backward reuses
     * (ls_tape_kept). Its weight half may read the result, too. */
    ls_status (*keep)(ls_tape *t, struct ls_node *n);
    /* What a phase reads and writes, for listeners. NULL: all inputs and results, once. */
    double (*bytes)(const struct ls_node *n, const ls_tensor *out, ls_tape_phase phase);
    /* Optional: takes the gradient of its result in pieces, each as soon as it is complete. How many pieces, of rows:
     * ls_shard_of all dimensions but the last; 1: none. And one of them, of n->out->grad. They come in order, all or
     * none before backward_input, from an op that hands_on. */
    int (*pieces)(const struct ls_node *n);
    ls_status (*piece)(ls_tape *t, struct ls_node *n, ls_range rows);
    /* After a failure, before n->out->grad is given back: waits for what `piece` has started. */
    void (*settle)(const struct ls_node *n);
    /* It computes the gradient of in[0], where it makes the last contribution to that, in the pieces that the op before
     * it takes. */
    bool hands_on;
    /* Of an op with other inputs than n->in: how many, and which. Of a block only those that want a gradient. */
    int (*inputs)(const struct ls_node *n, ls_tensor *const **in);
} ls_tape_op;

/* One application of an op. */
struct ls_node {
    const ls_tape_op *op;
    ls_tensor *in[LS_OP_INPUTS]; /* NULL where an optional input is missing */
    const void *saved;           /* what forward keeps for backward; in the slab */
    double flops, flops_weight, flops_input; /* of forward and of the halves of backward */
    uint32_t label_a, label_b;   /* 784 and 256 of "linear 784x256"; 0: not shown */
    /* filled in by the tape */
    const struct ls_unit *unit;  /* it is a part of; NULL: of none */
    struct ls_node *prev;        /* recorded before this one */
    ls_tensor *out;
    uint32_t index;              /* of the op since the reset */
    uint32_t saved_bytes;        /* of an op with parameters whose backward reads `saved` */
    bool live;                   /* contributes to what is being played backwards */
    bool borrowed;               /* out->grad belongs to the caller: read only */
    bool given_back;             /* out has no memory: ls_tape_op.again before it is read */
    bool made_again;             /* out has memory until this node has been played */
    size_t out_at, out_bytes;    /* of ls_op_output_again and _transient: where in the slab */
};

/* Notes the time; false when the tape has failed already or an input is NULL. */
bool ls_op_begin(ls_tape *t, const char *name, bool inputs_given);
/* A new tensor in the slab, not initialised; NULL when it does not fit. */
ls_tensor *ls_op_output(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim);
/* The same for the one result of an op that has `again`. */
ls_tensor *ls_op_output_again(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim);
/* The same for a result that does not stay until backward: of a `transient` op, or one that ls_tape_drop ends. */
ls_tensor *ls_op_output_transient(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim);
/* In a block: x, made by ls_op_output_transient, is read no more, neither in forward nor in backward. */
void ls_tape_drop(ls_tape *t, ls_tensor *x);
/* x w^T [.., O], transient: of ranks that add up such products and go on with a part of the sum. */
ls_tensor *ls_linear_transient(ls_tape *t, ls_tensor *x, ls_tensor *w);
/* Who takes the rows of a product in pieces, while the next ones are computed: how many pieces, one of them, which is
 * complete in y, and the end, before which y is not read elsewhere. After a failure `end` is called, too. */
typedef struct ls_row_pieces {
    int n;
    ls_status (*piece)(void *arg, ls_tape *t, ls_tensor *y, ls_range rows);
    ls_status (*end)(void *arg);
    void *arg;
} ls_row_pieces;
/* x w^T [.., O], in pieces. */
ls_tensor *ls_linear_in_pieces(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_row_pieces *to);
/* From here on, and until 0, 0, results of two dimensions with `rows` rows get room for `most`, which a dry tape counts
 * with: so memory is laid out in every step as it was planned, whatever holes it leaves. */
void ls_tape_rows(ls_tape *t, int64_t rows, int64_t most);
/* From here on a dry tape's experts get as many rows as with an even load, to tell how long they take; else as many as
 * there can be, to tell how much memory they need. */
void ls_tape_assume_even(ls_tape *t);
/* Bytes of x's memory: ls_tensor_nbytes, or more (ls_tensor.padded_rows). */
size_t ls_tensor_room(const ls_tensor *x);
/* nbytes of the slab, 64-byte aligned, for `saved`. */
void *ls_op_alloc(ls_tape *t, size_t nbytes);
/* The same that a dry tape has, too: what backward reads there, a tensor's header. NULL after a failure. */
void *ls_tape_take_node(ls_tape *t, size_t nbytes);
/* Gives back what was taken from the slab since the mark, before anything else is recorded. */
size_t ls_op_mark(const ls_tape *t);
void ls_op_release(ls_tape *t, size_t mark);
/* Records a copy of `what` when a gradient is wanted; returns `out`, or NULL after a failure. */
ls_tensor *ls_op_end(ls_tape *t, ls_tensor *out, const struct ls_node *what);
/* LS_UNSUPPORTED unless x, the op's `what`, is float; LS_INVALID while it has no memory. */
ls_status ls_op_check(const ls_tape *t, const char *op, const char *what, const ls_tensor *x);
/* The same for an activation: float or bfloat16. */
ls_status ls_op_check_activation(const ls_tape *t, const char *op, const char *what, const ls_tensor *x);
/* LS_UNSUPPORTED unless both inputs have the same dtype. */
ls_status ls_op_check_alike(const char *op, const ls_tensor *a, const ls_tensor *b);
/* Keeps st, whose sentence is in place, as the tape's failure; returns NULL. */
ls_tensor *ls_op_fail(ls_tape *t, ls_status st);

bool ls_tape_dry(const ls_tape *t); /* shapes only: do not touch data */
bool ls_tape_has_logits_in_forward(const ls_tape *t); /* ls_tape_logits_in_forward, and not in a block */
bool ls_tape_is_even(const ls_tape *t); /* ls_tape_assume_even */
bool ls_tape_may_defer(const ls_tape *t); /* ls_tape_defer_weights is possible, and the tape is not in a block */
bool ls_tape_amx(const ls_tape *t); /* ls_amx_ready (amx.h) when the tape was created */
ls_gemm *ls_tape_gemm(const ls_tape *t);
struct ls_conv_library **ls_tape_convolutions(const ls_tape *t); /* prepared ones; NULL before the first */
/* ls_gemm_run of a product whose B is w from element `first` on: by a packed copy of it where the tape has them
 * (ls_tape_pack_begin) and w is a parameter. w NULL: never. A dry tape takes only note of the room for the copy. */
ls_status ls_op_product(ls_tape *t, const ls_gemm_call *call, const ls_tensor *w, int64_t first);

/* How many inputs n has, and which; NULL among them: one that is missing. */
static inline int ls_tape_inputs(const struct ls_node *n, ls_tensor *const **in)
{
    if (n->op->inputs) return n->op->inputs(n, in);
    *in = n->in;
    return LS_OP_INPUTS;
}

/* Whether anybody wants the gradient of x. */
static inline bool ls_grad_wanted(const ls_tensor *x) { return x && (x->node || x->grad); }
/* In how many pieces the next contribution to x's gradient is taken: it is the last one, and the op that made x takes
 * them. Else 1. */
static inline int ls_grad_pieces(const ls_tensor *x)
{
    return x && x->node && x->uses == 1 && x->node->op->pieces ? x->node->op->pieces(x->node) : 1;
}
/* Where a contribution to x's gradient goes, in x's dtype: write it, or add to what is
 * there when *add. In the slab for what the tape made. Ended by ls_grad_end. */
ls_status ls_grad_begin(ls_tape *t, ls_tensor *x, bool *add, void **out);
/* The same for ops that can turn the gradient of n->out into x's in place: *out may be
 * n->out's own, whose value is not needed afterwards. */
ls_status ls_grad_begin_in_place(ls_tape *t, struct ls_node *n, ls_tensor *x, bool *add, void **out);
/* For ops that hand the gradient of n->out on to x as it is: begin, write or add, and end.
 * Where nothing has been written yet, x holds the same memory. */
ls_status ls_grad_pass(ls_tape *t, struct ls_node *n, ls_tensor *x);
ls_status ls_grad_end(ls_tape *t, ls_tensor *x);
/* to[i] += from[i], n elements of a dtype, float or bfloat16, apart from each other. The sum is in
 * float and rounded once. */
void ls_grad_add(ls_dtype dtype, void *restrict to, const void *restrict from, int64_t n);

#endif
