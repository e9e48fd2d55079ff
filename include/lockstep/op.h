/* op.h -- operations of your own on a tape, and the devices that they run on.
 *
 * An ls_op says once what an operation is: the shape of its result, its work, and the kernels that compute it.
 * ls_tape_apply does the rest: it checks inputs, takes memory, calls the kernel, records it for backward, counts
 * flops, tells listeners. The library's own mul, softmax, conv2d ... are such ops.
 *
 *     static ls_status shapes(const ls_op_call *c, ls_tensor *out) { return ls_op_like(out, c->in[0]); }
 *     static ls_status forward(const ls_op_call *c)  { ... fills c->out->data ... }
 *     static ls_status backward(const ls_op_call *c) { ... writes c->grad[0].data from c->dy ... }
 *     static const ls_op cube = { .name = "cube", .least = 1, .most = 1, .applied = 1, .shapes = shapes,
 *                                 .cpu = { .forward = forward, .backward_input = backward } };
 *
 *     y = ls_tape_apply(t, &cube, &x, 1, NULL);
 *
 * A kernel is called on one thread; ls_parallel_for divides a loop among the rank's threads. It allocates nothing.
 */
#ifndef LS_OP_H
#define LS_OP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/status.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_OP_MOST_INPUTS 8

typedef struct ls_op ls_op;

/* Where the gradient of an input goes: its shape, and its dtype. */
typedef struct ls_op_grad {
    void *data; /* NULL: not wanted */
    bool add;   /* add to what is there; false: write every element, what is there is undefined */
} ls_op_grad;

/* One call of one of an op's functions. What is not known yet is NULL: `out` in shapes, data everywhere but in kernels,
 * dy and grad in forward. */
typedef struct ls_op_call {
    const ls_op *op;
    int n;                                    /* inputs; missing optional ones are not counted */
    const ls_tensor *in[LS_OP_MOST_INPUTS];
    const void *attributes;
    const ls_tensor *out;
    const void *dy;                           /* the gradient of out; shape and dtype as out */
    ls_op_grad grad[LS_OP_MOST_INPUTS];       /* of in[] */
    void *saved;                              /* op->saved_bytes: what forward leaves for backward */
    void *scratch;                            /* op->scratch_bytes, undefined; for this call only */
    ls_tape *tape;                            /* for ls_product_run */
} ls_op_call;

typedef ls_status (*ls_kernel)(const ls_op_call *c);

/* What computes an op on a device. A half of backward may be NULL where no gradient can be wanted. */
typedef struct ls_kernels {
    ls_kernel forward;
    ls_kernel backward_weight; /* grad[op->applied ..): of parameters; called first */
    ls_kernel backward_input;  /* grad[0 .. op->applied) */
} ls_kernels;

typedef struct ls_op_work {
    double forward, backward_weight, backward_input; /* floating-point operations */
} ls_op_work;

struct ls_op {
    const char *name;       /* as traces, errors and devices call it */
    int least, most;        /* inputs, 1 to LS_OP_MOST_INPUTS */
    int applied;            /* the op is applied to in[0 .. applied); the inputs from there on are parameters */
    size_t attribute_bytes; /* of what `attributes` points to; it is copied */
    /* Checks the inputs' shapes and dtypes, and fills dtype, ndim and dim of out: float or bfloat16, at most 4
     * dimensions, each at least 1. LS_SHAPE or LS_UNSUPPORTED with the shapes in the message. */
    ls_status (*shapes)(const ls_op_call *c, ls_tensor *out);
    ls_op_work (*work)(const ls_op_call *c);                     /* NULL: one flop per element that is written */
    size_t (*saved_bytes)(const ls_op_call *c);                  /* NULL: 0 */
    size_t (*scratch_bytes)(const ls_op_call *c, bool backward); /* NULL: 0 */
    bool in_place;          /* one input, and element i of its gradient needs of dy only element i: may share memory */
    bool recompute;         /* forward is cheap for the bytes of its result, and backward does not read the result:
                             * LS_RECOMPUTE_SELECTIVE drops it and calls forward again */
    ls_kernels cpu;
};

/* The result of op on in[0 .. n), recorded where a gradient is wanted; NULL after a failure, which ls_tape_status has.
 * `attributes` may be NULL where the op has none. LS_UNSUPPORTED where an input, named if it is a parameter, wants a
 * gradient and the device has no kernel for it. The first time that a tape runs a kernel of an op (of each half of
 * backward: the first time that it fills a gradient, and the first time that it adds to it) the kernel writes to memory
 * on trial: LS_SHAPE unless it fills all that it should, and nothing after that. */
ls_tensor *ls_tape_apply(ls_tape *t, const ls_op *op, ls_tensor *const *in, int n, const void *attributes);

/* --- for shapes ------------------------------------------------------------------- */

/* out has the shape and dtype of x. */
ls_status ls_op_like(ls_tensor *out, const ls_tensor *x);
/* LS_UNSUPPORTED unless all inputs are float, or all are bfloat16 and the op takes that. */
ls_status ls_op_inputs_alike(const ls_op_call *c, bool bf16_too);

/* --- for kernels ------------------------------------------------------------------ */

/* Does [first, first + count) of the work that `call` describes. */
typedef void (*ls_loop)(const void *call, int64_t first, int64_t count);
/* Runs loop over [0, n), in parts cut at multiples of `unit`, on the rank's threads if the `bytes` that it reads and
 * writes pay for that. Each index must get the same bits wherever the cuts are: then no result depends on the number
 * of threads. */
void ls_parallel_for(ls_loop loop, const void *call, int64_t n, int64_t unit, int64_t bytes);

/* C[m, n] = op(A)[m, k] op(B)[k, n] (+ C, when add): dense, row-major; a transposed A is stored [k, m], a transposed B
 * [n, k]. A and B are `in`, float or bfloat16, C is `out`; sums are in float. */
typedef struct ls_product {
    int64_t m, n, k;
    bool trans_a, trans_b, add;
    ls_dtype in, out;
    const void *a, *b;
    void *c;
} ls_product;

/* On the rank's threads; the bits do not depend on their number. */
ls_status ls_product_run(const ls_op_call *c, const ls_product *p);

/* --- devices ------------------------------------------------------------------------ */

/* Where a tape's memory is and what computes there. The library has one, the CPU; a plugin of another device brings
 * an allocator and kernels, which it finds by the name of the op. The memory must be readable and writable by the CPU,
 * too: tapes keep their records in it, and ops that are not ls_ops (ls_linear, ls_attention ...) compute there. */
typedef struct ls_device {
    const char *name;
    void *state;
    ls_status (*alloc)(const struct ls_device *d, size_t nbytes, void **out); /* 64-byte aligned; NULL: an arena's */
    void (*release)(const struct ls_device *d, void *p, size_t nbytes);
    const ls_kernels *(*kernels)(const struct ls_device *d, const ls_op *op); /* by op->name; NULL: it has none */
} ls_device;

/* Its kernels are op->cpu. */
extern const ls_device ls_device_cpu;
/* ls_tape_create with memory and kernels of `d`, borrowed. */
ls_status ls_tape_create_on(const ls_device *d, size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer, ls_tape **out);
/* The scratch memory of several tapes that compute there (ls_tape_scratch_create). */
ls_status ls_tape_scratch_create_on(const ls_device *d, size_t nbytes, ls_ledger *ledger, ls_tape_scratch **out);

#ifdef __cplusplus
}
#endif
#endif
