/* op_add_rows.c -- y[t] = x[t] + w[place of t] for every sequence: learned positions.
 *
 *   x, y  [.., T, C]   B sequences in all
 *   w     [P, C]       float, also where x is bf16
 *
 * Token t stands at place t, or where runs (ls_places) say; no two tokens of a sequence stand at one place.
 *
 * forward           y  = x + w[places]       1 flop, a load and a store an element
 * backward, weight  dw[places] = sum of dy   1 flop and a load; over sequences, ascending
 *                   dw = 0 elsewhere
 * backward, input   dx = dy                      no flop, and mostly no byte (ls_grad_pass)
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

#define CHUNK 1024 /* elements of a row of dw that stay in the first-level cache while sequences are added */

typedef struct rows {
    ls_dtype dtype;
    bool add;
    int64_t B, TC;
    void *y;
    const void *x; /* or dy */
    const float *w;
    float *dw;
} rows;

static LS_ALWAYS_INLINE void loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    const float *restrict w = r->w;
    for (int64_t b = 0; b < r->B; b++) {
        void *const y = r->y;
        const void *const x = r->x;
        const int64_t at = b * r->TC;
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) ls_put(y, at + i, ls_get(x, at + i, bf16) + w[i], bf16);
    }
}

/* Elements [first, first + count) of every sequence. */
LS_KERNEL static void forward(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    LS_BY_DTYPE(r->dtype, loop, r, first, first + count);
}

static LS_ALWAYS_INLINE void sum_loop(const rows *r, int64_t first, int64_t end, bool bf16)
{
    float *restrict dw = r->dw;
    for (int64_t b = 0; b < r->B; b++) {
        const void *const dy = r->x;
        const int64_t at = b * r->TC;
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) dw[i] += ls_get(dy, at + i, bf16);
    }
}

LS_KERNEL static void add_chunk(const rows *r, int64_t first, int64_t end)
{
    LS_BY_DTYPE(r->dtype, sum_loop, r, first, end);
}

static void add_weight(const void *call, int64_t first, int64_t count)
{
    const rows *r = call;
    for (int64_t i = first, n; i < first + count; i += n) {
        n = first + count - i < CHUNK ? first + count - i : CHUNK;
        if (!r->add) memset(r->dw + i, 0, (size_t)n * sizeof *r->dw);
        add_chunk(r, i, i + n);
    }
}

/* Elements of one sequence, and their number. */
static int64_t sequence(const ls_tensor *x, int64_t *B)
{
    const int64_t T = x->dim[x->ndim - 2], C = x->dim[x->ndim - 1];
    *B = 1;
    for (int i = 0; i < x->ndim - 2; i++) *B *= x->dim[i];
    return T * C;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *w = n->in[1];
    int64_t B;
    const int64_t TC = sequence(n->in[0], &B), C = w->dim[1];
    bool add;
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &add, &dw));
    if (!ls_tape_dry(t)) {
        const ls_tensor *dy = n->out->grad;
        const ls_places whole = { .of = TC / C, .n = 1, .count = { TC / C } }, *s = n->saved ? n->saved : &whole;
        int64_t end = 0; /* of the rows that are written; runs ascend */
        const void *from = dy->data;
        for (int k = 0; k < s->n; k++) {
            const int64_t some = s->count[k] * C;
            float *const to = (float *)dw + s->first[k] * C;
            const rows r = { .dtype = dy->dtype, .add = add, .B = B, .TC = TC, .x = from, .dw = to };
            ls_parallel_for(add_weight, &r, some, LS_SHARE_LINE, (int64_t)ls_tensor_nbytes(dy));
            if (!add) ls_clear((float *)dw + end, s->first[k] * C - end);
            end = s->first[k] * C + some;
            from = ls_at_const(from, some, dy->dtype == LS_BF16);
        }
        if (!add) ls_clear((float *)dw + end, ls_tensor_count(w) - end);
    }
    return ls_grad_end(t, w);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n) { return ls_grad_pass(t, n, n->in[0]); }

static const ls_tape_op add_rows = {
    .name = "add_rows", .napplied = 1, .backward_weight = backward_weight, .backward_input = backward_input,
};

/* Whether the runs are as many tokens as x has, each after the one before, and w has their rows. */
static bool have_rows(const ls_places *s, int64_t T, int64_t P)
{
    int64_t end = 0;
    for (int k = 0; k < s->n; k++) {
        if (s->first[k] < end || s->count[k] < 0 || s->count[k] > P - s->first[k]) return false;
        end = s->first[k] + s->count[k];
        T -= s->count[k];
    }
    return T == 0;
}

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, const ls_places *s)
{
    char xs[96], ws[96];
    if (x->ndim < 2 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return ls_fail(LS_SHAPE, "add_rows: input %s and rows %s: expected [.., T, C] and [P, C]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    if (!have_rows(s, x->dim[x->ndim - 2], w->dim[0])) {
        char from[48] = "";
        if (s->first[0] > 0) snprintf(from, sizeof from, ", from place %lld on,", (long long)s->first[0]);
        return ls_fail(LS_SHAPE, "add_rows: T = %lld of input %s%s is more than P = %lld of rows %s",
                       (long long)x->dim[x->ndim - 2], ls_tensor_shape(x, xs, sizeof xs), from, (long long)w->dim[0],
                       ls_tensor_shape(w, ws, sizeof ws));
    }
    if (!w->data && w->bf16)
        return ls_fail(LS_UNSUPPORTED, "add_rows reads rows %s in float, but they are sharded and stand here in bf16 alone: "
                       "set `f32` of that parameter", ls_tensor_shape(w, ws, sizeof ws));
    LS_TRY(ls_op_check_activation(t, "add_rows", "input", x));
    return ls_op_check(t, "add_rows", "rows", w);
}

ls_tensor *ls_add_rows(ls_tape *t, ls_tensor *x, ls_tensor *w)
{
    const int64_t T = x && x->ndim >= 2 ? x->dim[x->ndim - 2] : 0;
    return ls_add_rows_at(t, x, w, &(ls_places){ .of = T, .n = 1, .count = { T } });
}

static bool from_the_start(const ls_places *s) { return s->n == 1 && s->first[0] == 0; }

ls_tensor *ls_add_rows_at(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_places *tokens)
{
    if (!ls_op_begin(t, add_rows.name, x && w)) return NULL;
    const ls_status st = check(t, x, w, tokens);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, x->dtype, x->ndim, x->dim);
    const bool starts = from_the_start(tokens) || !ls_tape_grad(t);
    ls_places *kept = y && !starts ? ls_op_alloc(t, sizeof *kept) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (kept) *kept = *tokens;
    int64_t B, at = 0;
    const int64_t TC = sequence(x, &B), C = w->dim[1];
    const bool bf16 = x->dtype == LS_BF16;
    for (int k = 0; k < tokens->n && !ls_tape_dry(t); at += tokens->count[k++] * C) {
        const float *const rows_of_w = (const float *)w->data + tokens->first[k] * C;
        const rows r = { .dtype = x->dtype,
                         .B = B,
                         .TC = TC,
                         .y = ls_at(y->data, at, bf16),
                         .x = ls_at_const(x->data, at, bf16),
                         .w = rows_of_w };
        ls_parallel_for(forward, &r, tokens->count[k] * C, LS_SHARE_LINE, 2 * (int64_t)ls_tensor_nbytes(x));
    }
    return ls_op_end(t, y,
                     &(struct ls_node){
                         .op = &add_rows,
                         .in = { x, w },
                         .saved = kept,
                         .saved_bytes = starts ? 0 : sizeof *kept,
                         .flops = (double)(B * TC),
                         .flops_weight = (double)(B * TC),
                         .label_a = (uint32_t)x->dim[x->ndim - 2],
                         .label_b = (uint32_t)C,
                     });
}
