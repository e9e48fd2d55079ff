/* tape_impl.h -- the inside of a tape, for tape.c and recompute.c. */
#ifndef LS_TENSOR_TAPE_IMPL_H
#define LS_TENSOR_TAPE_IMPL_H
#include "tensor/slab.h"
#include "tensor/tape.h"

/* Copies of weights in the order that products like best (packing.c). */
typedef struct ls_packing {
    bool on;              /* weights do not change until it is off */
    uint64_t round;       /* how often it was turned on: copies of an earlier round count for nothing */
    char *base;           /* borrowed; NULL on a dry tape */
    size_t size, used;    /* of base */
    struct packed_weight *item; /* owned */
    int n, cap;
} ls_packing;

struct ls_tape {
    ls_arena *arena;        /* owned; NULL on a dry tape */
    char *base;             /* the slab: in the arena; on a dry tape owned, for nodes and tensors only */
    ls_slab slab;           /* of base */
    size_t dry_used;        /* of base, on a dry tape */
    bool dry, grad, amx;
    bool pending;           /* recorded since the reset or the last backward */
    ls_dtype dtype;         /* of activations */
    struct ls_node *last;   /* most recently recorded */
    uint32_t nops;          /* since the reset, recorded or not */
    double flops, flops_again;
    ls_recompute recompute;
    bool in_block;          /* of a tape that recomputes */
    bool again;             /* what is computed now has been computed before */
    size_t out_at, out_bytes; /* of the newest ls_op_output_again */
    ls_tensor **leaves;     /* owned: room to collect a block's leaves in */
    int nleaves, leaves_cap;
    ls_gemm *gemm;          /* owned */
    ls_packing packing;
    ls_status status;       /* first failure, and its sentence */
    char error[496];
    ls_grad_ready_fn ready; /* both NULL: nobody asked */
    ls_progress_fn progress;
    ls_done_fn done;
    ls_output_fn output;
    void *ready_arg, *progress_arg, *done_arg, *output_arg;
    ls_tracer *tracer;      /* borrowed, may be NULL */
    uint64_t op_t0_ns;
    struct op_label {       /* by index of op: the same in every step, so the text is made once */
        const char *name;
        uint32_t a, b;
        uint16_t label[2]; /* the second: done again; 0: none yet */
    } *labels;              /* owned */
    uint32_t nlabels;
};

/* Where everything ended at some time. */
typedef struct ls_tape_mark {
    size_t used, dry_used;
} ls_tape_mark;

static inline ls_tape_mark ls_tape_mark_now(const ls_tape *t) { return (ls_tape_mark){ t->slab.used, t->dry_used }; }

static inline void ls_tape_release(ls_tape *t, ls_tape_mark mark)
{
    ls_slab_release(&t->slab, mark.used);
    t->dry_used = mark.dry_used;
}

/* nbytes on top of the slab that a dry tape has, too: a node, a tensor. NULL after a failure. */
void *ls_tape_take_node(ls_tape *t, size_t nbytes);
void ls_tape_trace(ls_tape *t, const struct ls_node *n, uint32_t index, double flops, bool backward);

/* Whether x is made by an op with this index or a later one. All that there is when first is 0. */
static inline bool ls_tape_made_since(const ls_tensor *x, uint32_t first)
{
    return x && (first == 0 || (x->node && x->node->index >= first));
}

/* Finds out which ops lead to `root`, and how often each tensor made since `first` is used by them. */
void ls_tape_count_uses(struct ls_node *root, uint32_t first);
/* Plays from root, whose gradient is `grad`, to the first node of its chain. */
ls_status ls_tape_play(ls_tape *t, ls_tensor *root, ls_tensor *grad, bool borrowed, uint32_t first);
/* Everything above the mark ends, but for the gradient of x: that moves below. */
ls_status ls_tape_end_above(ls_tape *t, ls_tape_mark mark, ls_tensor *x);

/* --- recompute.c -------------------------------------------------------------------- */

extern const ls_op ls_block_op; /* of a node that is a whole block */
int ls_block_leaves(const struct ls_node *n, ls_tensor *const **leaf);
ls_status ls_block_play(ls_tape *t, struct ls_node *n);
/* Sees to it that what n reads is in memory. */
ls_status ls_tape_make_inputs(ls_tape *t, struct ls_node *n);
/* The memory of n->out goes; op->again brings it back. */
void ls_tape_give_back(ls_tape *t, struct ls_node *n);

#endif
