/* tape_impl.h -- the inside of a tape.
 *
 *   listen.c    who is told what                again.c      results that are dropped and made again
 *   tape.c      life, the slab, recording       backward.c   plays what is recorded
 *   packing.c   copies of weights               recompute.c  blocks: what of them stays
 *   room.c      memory of a tape, or of several defer.c      weight halves that are put off
 *   apply.c     ops of op.h                     prove.c      the first run of their kernels
 */
#ifndef LS_TENSOR_TAPE_IMPL_H
#define LS_TENSOR_TAPE_IMPL_H
#include "base/compiler.h"
#include "lockstep/op.h"
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

/* Events that somebody listens to. */
enum {
    LS_HEARS_UNIT = 1, LS_HEARS_GRAD_READY = 2, LS_HEARS_PROGRESS = 4, LS_HEARS_DONE = 8, LS_HEARS_OUTPUT = 16,
    LS_HEARS_OP = 32,
};

typedef struct ls_listener {
    bool here;
    ls_tape_events on;
    void *arg;
} ls_listener;

#define LS_DRY_NODE_BYTES ((size_t)16 << 20) /* nodes of a dry room: about 50,000 ops; untouched pages cost nothing */

/* Memory with a slab in it. */
typedef struct ls_room {
    ls_slab slab;
    char *base;             /* of a dry room owned, for nodes and tensors only */
    size_t dry_used;        /* of base, in a dry room */
    bool dry;
    const ls_device *device; /* borrowed */
    ls_arena *arena;        /* owned; NULL in a dry room, and where the device has memory of its own */
} ls_room;

/* What tapes have in common that are not played at the same time. */
struct ls_tape_scratch {
    ls_room room;           /* for backward; of a tape that has all for itself not used */
    ls_gemm *gemm;          /* owned; NULL where nothing is computed */
    struct ls_conv_library *convolutions; /* owned; NULL before the first */
    ls_packing packing;
};

/* A weight half that is put off (defer.c). What it reads and backward would reuse is copied. */
typedef struct ls_deferred {
    struct ls_node node;     /* of `out`, whose gradient is `dy` */
    ls_tensor out, dy;
    struct ls_deferred *next, *before;
    uint32_t replays;        /* of the tape */
    int ncopies;             /* of other tensors: */
    const ls_tensor *from[LS_OP_MOST_INPUTS + 1];
    ls_tensor *copy[LS_OP_MOST_INPUTS + 1];
} ls_deferred;

struct ls_tape {
    const ls_device *device; /* borrowed */
    ls_room own;            /* what stays until backward */
    ls_room *work;          /* what backward makes, and a block that is not kept: own, or that of a shared scratch */
    ls_room *room;          /* the one of both that is in use */
    ls_tape_scratch *scratch; /* borrowed, or owned: */
    bool owns_scratch;
    bool defer, logits_in_forward;
    ls_deferred *deferred, *newest; /* in the order in which backward came to them; in own */
    size_t before_used, before_dry, after_used; /* of own: before the first of them, after the newest */
    uint32_t replays;       /* blocks that backward has run again: what lies in `work` between two is other memory */
    bool dry, grad, amx, even;
    bool pending;           /* recorded since the reset or the last backward */
    ls_dtype dtype;         /* of activations */
    struct ls_node *last;   /* most recently recorded */
    uint32_t nops;          /* since the reset, recorded or not */
    double flops, flops_again;
    float loss_grad;        /* of the scalar that backward began with: it scales losses inside a layer, too */
    ls_recompute recompute;
    bool in_block;
    bool again;             /* what is computed now has been computed before */
    int64_t rows, rows_room;  /* of ls_tape_rows; 0: none vary */
    size_t out_at, out_bytes; /* of the newest ls_op_output_again or _transient */
    ls_tensor **leaves;     /* owned: room to collect a block's leaves in */
    int nleaves, leaves_cap;
    ls_status status;       /* first failure, and its sentence */
    char error[496];
    ls_listener listener[LS_TAPE_LISTENERS];
    unsigned heard;         /* LS_HEARS_...: by any of them */
    bool watched;           /* somebody wants to know of each op: a listener, or the tracer */
    const struct ls_unit *unit, *played_unit; /* of what is recorded, and of what is played back; NULL: none */
    ls_tracer *tracer;      /* borrowed, may be NULL */
    uint64_t op_t0_ns;
    struct op_label {       /* by index of op: the same in every step, so the text is made once */
        const char *name;
        uint32_t a, b;
        uint16_t label[2]; /* the second: done again; 0: none yet */
    } *labels;              /* owned */
    uint32_t nlabels;
    struct proved_op {
        const ls_op *op;
        unsigned shown;     /* bits of shown_by: what its kernels have filled as they should */
    } *proved;              /* owned */
    int nproved;
};

/* Where everything ended at some time. */
typedef struct ls_tape_mark {
    size_t used, dry_used;
} ls_tape_mark;

/* Rooms of a tape. */
ls_status ls_room_open(ls_room *r, const ls_device *d, size_t nbytes, ls_ledger *ledger);
ls_status ls_room_open_dry(ls_room *r);
void ls_room_close(ls_room *r);
/* Whether p, a node or a tensor's header, lies in it. */
bool ls_room_holds(const ls_room *r, const void *p);

static inline ls_tape_mark ls_tape_mark_now(const ls_tape *t)
{
    return (ls_tape_mark){ t->room->slab.used, t->room->dry_used };
}

static inline void ls_tape_release(ls_tape *t, ls_tape_mark mark)
{
    ls_slab_release(&t->room->slab, mark.used);
    t->room->dry_used = mark.dry_used;
}

/* Keeps st, and the message that is in place, as the tape's failure unless it has one; returns st. */
ls_status ls_tape_keep_failure(ls_tape *t, ls_status st);
/* Fails with what is in use of the slab. */
void ls_tape_no_room(ls_tape *t, size_t nbytes);
/* Memory at `at`, for n bytes of nodes or tensors: what a dry tape has, too. */
void *ls_tape_node_memory(ls_tape *t, size_t at, size_t nbytes);

/* Whether x is made by an op with this index or a later one. All that there is when first is 0. */
static inline bool ls_tape_made_since(const ls_tensor *x, uint32_t first)
{
    return x && (first == 0 || (x->node && x->node->index >= first));
}

/* One half of an op's backward, if any input of it wants a gradient. */
ls_status ls_tape_play_half(ls_tape *t, struct ls_node *n, bool weight);
/* Finds out which ops lead to `root`, and how often each tensor made since `first` is used by them. */
void ls_tape_count_uses(struct ls_node *root, uint32_t first);
/* Plays from root, whose gradient is `grad`, to the first node of its chain. */
ls_status ls_tape_play(ls_tape *t, ls_tensor *root, ls_tensor *grad, bool borrowed, uint32_t first);
/* Everything above the mark ends, but for the gradient of x: that moves below. */
ls_status ls_tape_end_above(ls_tape *t, ls_tape_mark mark, ls_tensor *x);

/* --- listen.c ------------------------------------------------------------------------ */

static inline bool ls_tape_heard(const ls_tape *t, unsigned event) { return LS_UNLIKELY((t->heard & event) != 0); }
ls_status ls_tape_tell_grad_ready(ls_tape *t, ls_tensor *x);
ls_status ls_tape_tell_progress(ls_tape *t);
ls_status ls_tape_tell_done(ls_tape *t);
void ls_tape_tell_end(ls_tape *t);
ls_status ls_tape_tell_unit(ls_tape *t, const struct ls_unit *unit, ls_unit_when when);
/* An op is over, or half of its backward: to the tracer and to listeners. `out` is its result. */
void ls_tape_tell_op(ls_tape *t, const struct ls_node *n, const ls_tensor *out, uint32_t index, ls_tape_phase phase);
/* What is played back next belongs to `unit`, or to none. */
ls_status ls_tape_play_unit(ls_tape *t, const struct ls_unit *unit);

/* --- defer.c ---------------------------------------------------------------------------- */

/* Whether the weight half of n is one to put off now. */
bool ls_tape_defers(const ls_tape *t, const struct ls_node *n);
/* Keeps what it needs. */
ls_status ls_tape_defer(ls_tape *t, const struct ls_node *n);
/* x, or a copy of it where x lies in memory that backward reuses. In `own`. */
ls_tensor *ls_tape_kept(ls_tape *t, ls_tensor *x);

/* --- prove.c ---------------------------------------------------------------------------- */

/* Runs a kernel of c->op, one half of backward or (NULL) forward. LS_SHAPE unless it fills what it should, and writes
 * nothing behind that. */
ls_status ls_op_prove(const ls_device *d, ls_kernel kernel, const char *half, const ls_op_call *c);

/* --- again.c ---------------------------------------------------------------------------- */

/* Sees to it that what n reads is in memory. */
ls_status ls_tape_make_inputs(ls_tape *t, struct ls_node *n);
/* Whether results of the block at hand may go before backward, one by one. */
static inline bool ls_tape_leaves_holes(const ls_tape *t)
{
    return t->in_block && t->grad && t->recompute != LS_RECOMPUTE_FULL;
}
/* The memory of n->out goes; op->again brings it back. */
void ls_tape_give_back(ls_tape *t, struct ls_node *n);

#endif
