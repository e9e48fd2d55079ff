/* op_dropout.c -- y = x k / (1 - p) with k = 0 with probability p and 1 otherwise. Srivastava et al. 2014.
 *
 * Whether an element is kept says the word of Philox (rng.h) with its index in the whole tensor, so neither a shard nor
 * a layout changes it, and backward asks again instead of keeping a mask.
 *
 * forward          y  = x k / (1 - p)      1 flop, a load and a store an element, and 10 integer
 * backward, input  dx = dy k / (1 - p)     multiplications for 2 elements; each way
 *
 * A NaN stays a NaN, so that a broken input is seen in the loss.
 */
#include <math.h>

#include "base/compiler.h"
#include "lockstep/rng.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

#define CHUNK 1024 /* elements whose random words are made at once */
#define BYTES 20   /* that would take as long as an element does */

typedef struct mask {
    uint64_t seed, stream;
    uint64_t first;
    ls_places tokens; /* of 0: x is in one piece */
    int64_t row, here; /* elements of a token, and of the tokens of a sequence that are here */
    uint32_t least; /* of the 24 bits of a uniform number, to be kept */
    float scale;
} mask;

typedef struct job {
    ls_dtype dtype;
    bool add;
    const mask *k;
    void *y;       /* may be x, when not adding */
    const void *x;
} job;

static LS_ALWAYS_INLINE void loop(const job *j, const uint32_t *restrict word, int64_t first, int64_t n, bool bf16)
{
    const uint32_t least = j->k->least;
    const float scale = j->k->scale;
    void *const y = j->y;
    const void *const x = j->x;
    if (j->add)
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            const float v = ls_get(x, first + i, bf16) * (word[i] >> 8 >= least ? scale : 0.0f);
            ls_put(y, first + i, ls_get(y, first + i, bf16) + v, bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            ls_put(y, first + i, ls_get(x, first + i, bf16) * (word[i] >> 8 >= least ? scale : 0.0f), bf16);
}

/* word[0] is that of element `first`. */
LS_KERNEL static void drop(const job *j, const uint32_t *restrict word, int64_t first, int64_t n)
{
    LS_BY_DTYPE(j->dtype, loop, j, word, first, n);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The index of element i in the whole tensor; as many as *in_a_row follow it there as here. */
static int64_t index_of(const mask *k, int64_t i, int64_t *in_a_row)
{
    const ls_places *s = &k->tokens;
    *in_a_row = INT64_MAX;
    if (s->of == 0) return i;
    int64_t at = i % k->here;
    int run = 0;
    for (; run + 1 < s->n && at >= s->count[run] * k->row; run++) at -= s->count[run] * k->row;
    *in_a_row = s->count[run] * k->row - at;
    return (i / k->here * s->of + s->first[run]) * k->row + at;
}

static void apply(const void *call, int64_t first, int64_t count)
{
    const job *j = call;
    uint32_t word[CHUNK + 8]; /* Philox makes four at a time: up to three more on both sides */
    for (int64_t i = first, n; i < first + count; i += n) {
        int64_t in_a_row;
        const uint64_t at = j->k->first + (uint64_t)index_of(j->k, i, &in_a_row);
        const int64_t before = (int64_t)(at % 4);
        n = least(least(first + count - i, CHUNK), in_a_row);
        ls_philox_blocks(j->k->seed, j->k->stream, at / 4, (size_t)(before + n + 3) / 4, word);
        drop(j, word + before, i, n);
    }
}

static void run(const ls_tensor *x, const job *j)
{
    const int64_t n = ls_tensor_count(x);
    ls_parallel_for(apply, j, n, CHUNK, n * BYTES);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) run(x, &(job){ x->dtype, add, n->saved, dx, n->out->grad->data });
    return ls_grad_end(t, x);
}

static const ls_tape_op dropout = { .name = "dropout", .napplied = 1, .backward_input = backward_input };

ls_tensor *ls_dropout(ls_tape *t, ls_tensor *x, float p, uint64_t seed, uint64_t stream, uint64_t first)
{
    return ls_dropout_at(t, x, p, seed, stream, first, &(ls_places){ 0 });
}

ls_tensor *ls_dropout_at(ls_tape *t, ls_tensor *x, float p, uint64_t seed, uint64_t stream, uint64_t first,
                         const ls_places *tokens)
{
    if (!ls_op_begin(t, dropout.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check_activation(t, dropout.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    if (!(p >= 0.0f && p < 1.0f))
        return ls_op_fail(t, ls_fail(LS_INVALID, "dropout: p is %g, expected 0 or more and less than 1", (double)p));
    if (p == 0.0f) return x;

    ls_tensor *y = ls_op_output(t, x->dtype, x->ndim, x->dim);
    mask *k = y ? ls_op_alloc(t, sizeof *k) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) {
        const int64_t samples = tokens->of ? x->dim[0] : 1, here = tokens->of ? n / samples : 0;
        *k = (mask){
            .seed = seed, .stream = stream, .first = first, .tokens = *tokens, .row = here ? here / x->dim[1] : 0,
            .here = here,
            .least = (uint32_t)ceil((double)p * 0x1p24),
            .scale = (float)(1.0 / (1.0 - (double)p)),
        };
        run(x, &(job){ x->dtype, false, k, y->data, x->data });
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &dropout, .in = { x }, .saved = k, .flops = (double)n, .flops_input = (double)n, .label_a = (uint32_t)n,
    });
}
