/* op_dropout.c -- y = x k / (1 - p) with k = 0 with probability p and 1 otherwise. Srivastava et al. 2014.
 *
 * Whether element i is kept says word first + i of Philox (rng.h), so neither a shard nor
 * a layout changes it, and backward asks again instead of keeping a mask.
 *
 * forward          y  = x k / (1 - p)      1 flop and 8 bytes an element, and 10 integer
 * backward, input  dx = dy k / (1 - p)     multiplications for 2 elements; each way
 *
 * A NaN stays a NaN, so that a broken input is seen in the loss.
 */
#include <math.h>

#include "base/compiler.h"
#include "lockstep/rng.h"
#include "tensor/tape.h"

#define CHUNK 1024 /* elements whose random words are made at once */

typedef struct mask {
    uint64_t seed, stream, first;
    uint32_t least; /* of the 24 bits of a uniform number, to be kept */
    float scale;
} mask;

/* y may be x, when not adding. */
LS_KERNEL static void drop(float *y, const float *x, const uint32_t *restrict word, uint32_t least, float scale,
                           int64_t n, bool add)
{
    if (add)
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) y[i] += x[i] * (word[i] >> 8 >= least ? scale : 0.0f);
    else
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * (word[i] >> 8 >= least ? scale : 0.0f);
}

static void apply(float *y, const float *x, const mask *k, int64_t n, bool add)
{
    uint32_t word[CHUNK + 8]; /* Philox makes four at a time: up to three more on both sides */
    for (int64_t i = 0; i < n; i += CHUNK) {
        const uint64_t at = k->first + (uint64_t)i;
        const int64_t m = n - i < CHUNK ? n - i : CHUNK, before = (int64_t)(at % 4);
        ls_philox_blocks(k->seed, k->stream, at / 4, (size_t)(before + m + 3) / 4, word);
        drop(y + i, x + i, word + before, k->least, k->scale, m, add);
    }
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) apply(dx, n->out->grad->data, n->saved, ls_tensor_count(x), add);
    return ls_grad_end(t, x);
}

static const ls_op dropout = { .name = "dropout", .napplied = 1, .backward_input = backward_input };

ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p, uint64_t seed, uint64_t stream, uint64_t first)
{
    if (!ls_op_begin(t, dropout.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check(t, dropout.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    if (!(p >= 0.0f && p < 1.0f))
        return ls_op_fail(t, ls_fail(LS_INVALID, "dropout: p is %g, expected 0 or more and less than 1", (double)p));
    if (p == 0.0f) return x;

    ls_tensor *y = ls_op_output(t, LS_F32, x->ndim, x->dim);
    mask *k = y ? ls_op_alloc(t, sizeof *k) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) {
        *k = (mask){
            .seed = seed, .stream = stream, .first = first,
            .least = (uint32_t)ceil((double)p * 0x1p24), .scale = (float)(1.0 / (1.0 - (double)p)),
        };
        apply(y->data, x->data, k, n, false);
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &dropout, .in = { x }, .saved = k, .flops = (double)n, .flops_input = (double)n, .label_a = (uint32_t)n,
    });
}
