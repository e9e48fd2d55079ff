/* op_embedding.c -- rows of a table by their number.
 *
 *   id  [..]      I64 in [0, V), N in all
 *   w   [R, C]   rows [F, F + R) of the table [V, C], mostly all of them; float and, where the tape's activations are
 *                bf16, also in bf16
 *   y   [.., C]  of the tape's dtype
 *
 * forward           y[n]          = w[id[n] - F]   no flop; a load and a store an element of y; 0 for rows of others
 * backward, weight  dw[id[n] - F] += dy[n]         1 flop, 2 loads and a store an element, in ascending n;
 *                                                  dw is 0 elsewhere: R C 4 bytes when nothing was there,
 *                                                  which the gradient of a tied head saves
 */
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

typedef struct lookup {
    ls_dtype dtype;
    int64_t N, C, first, rows; /* of the table: those that are here */
    const int64_t *id;
    void *y;
    const void *w;  /* of y's dtype */
    const void *dy;
    float *dw;
} lookup;

/* Rows of y. */
static void gather(const void *call, int64_t first, int64_t count)
{
    const lookup *l = call;
    const size_t row = (size_t)l->C * ls_dtype_size(l->dtype);
    for (int64_t n = first; n < first + count; n++) {
        const uint64_t at = (uint64_t)(l->id[n] - l->first);
        if (at < (uint64_t)l->rows) memcpy((char *)l->y + (size_t)n * row, (const char *)l->w + at * row, row);
        else memset((char *)l->y + (size_t)n * row, 0, row);
    }
}

static LS_ALWAYS_INLINE void loop(const lookup *l, int64_t first, int64_t end, bool bf16)
{
    const void *const dy = l->dy;
    for (int64_t n = 0; n < l->N; n++) {
        const uint64_t of = (uint64_t)(l->id[n] - l->first);
        if (of >= (uint64_t)l->rows) continue;
        float *const row = l->dw + (int64_t)of * l->C;
        const int64_t at = n * l->C;
        LS_INDEPENDENT
        for (int64_t c = first; c < end; c++) row[c] += ls_get(dy, at + c, bf16);
    }
}

/* Columns of dw: a row may be that of many n. */
LS_KERNEL static void scatter(const void *call, int64_t first, int64_t count)
{
    const lookup *l = call;
    LS_BY_DTYPE(l->dtype, loop, l, first, first + count);
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const ls_tensor *ids = n->in[0];
    ls_tensor *w = n->in[1];
    bool add;
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &add, &dw));
    if (!ls_tape_dry(t)) {
        const ls_tensor *dy = n->out->grad;
        if (!add) ls_clear(dw, ls_tensor_count(w));
        const lookup l = { .dtype = dy->dtype, .N = ls_tensor_count(ids), .C = w->dim[1], .rows = w->dim[0],
                           .first = n->saved ? *(const int64_t *)n->saved : 0, .id = ids->data, .dy = dy->data,
                           .dw = dw };
        ls_parallel_for(scatter, &l, w->dim[1], LS_SHARE_COLUMNS, 3 * (int64_t)ls_tensor_nbytes(dy));
    }
    return ls_grad_end(t, w);
}

/* Rows are read and written, or in backward read and added to; never the whole table. */
static double bytes(const struct ls_node *n, const ls_tensor *out, ls_tape_phase phase)
{
    const double rows = (double)ls_tensor_nbytes(out), sums = 2.0 * (double)ls_tensor_count(out) * sizeof(float);
    return (double)ls_tensor_nbytes(n->in[0]) + rows + (phase == LS_PHASE_BACKWARD_WEIGHT ? sums : rows);
}

static const ls_tape_op embedding = {
    .name = "embedding", .napplied = 1, .backward_weight = backward_weight, .bytes = bytes,
};

/* The sentence about id i; its place as an index: "[1, 3]". */
static LS_COLD ls_status outside(const ls_tensor *ids, int64_t i, int64_t V)
{
    char place[96];
    ls_tensor at = { .ndim = ids->ndim };
    const int64_t id = ((const int64_t *)ids->data)[i];
    for (int d = ids->ndim - 1; d >= 0; d--) {
        at.dim[d] = i % ids->dim[d];
        i /= ids->dim[d];
    }
    return ls_fail(LS_INVALID, "embedding: id %lld at %s: expected 0 to %lld, the table has %lld rows", (long long)id,
                   ls_tensor_shape(&at, place, sizeof place), (long long)V - 1, (long long)V);
}

static ls_status check_part(const ls_tensor *w, const ls_vocab_part *p)
{
    char ws[96];
    if (p->first >= 0 && p->first <= p->of && w->dim[0] <= p->of - p->first) return LS_OK;
    return ls_fail(LS_SHAPE, "embedding: table %s as rows from %lld on of a table of %lld: they are not in it",
                   ls_tensor_shape(w, ws, sizeof ws), (long long)p->first, (long long)p->of);
}

static ls_status check(const ls_tape *t, const ls_tensor *ids, const ls_tensor *w, const ls_vocab_part *p)
{
    char is[96], ws[96];
    if (ids->ndim >= LS_MAX_DIMS || w->ndim != 2)
        return ls_fail(LS_SHAPE, "embedding: ids %s and table %s: expected at most %d dimensions and [V, C]",
                       ls_tensor_shape(ids, is, sizeof is), ls_tensor_shape(w, ws, sizeof ws), LS_MAX_DIMS - 1);
    if (ids->dtype != LS_I64)
        return ls_fail(LS_UNSUPPORTED, "embedding: ids are %s, expected int64", ls_dtype_name(ids->dtype));
    LS_TRY(check_part(w, p));
    if (ls_tape_dtype(t) != LS_BF16 || !w->bf16) LS_TRY(ls_op_check(t, "embedding", "table", w));
    if (ls_tape_dry(t)) return LS_OK;
    if (ls_tape_dtype(t) == LS_BF16 && !w->bf16)
        return ls_fail(LS_UNSUPPORTED, "embedding: activations are bfloat16 and the table has no copy in it; call "
                       "ls_params_bind_bf16");
    const int64_t *id = ids->data, V = p->of, N = ls_tensor_count(ids);
    for (int64_t i = 0; i < N; i++)
        if (LS_UNLIKELY(id[i] < 0 || id[i] >= V)) return outside(ids, i, V);
    return LS_OK;
}

ls_tensor *ls_embedding(ls_tape *t, ls_tensor *ids, ls_tensor *w) { return ls_embedding_part(t, ids, w, NULL); }

ls_tensor *ls_embedding_part(ls_tape *t, ls_tensor *ids, ls_tensor *w, const ls_vocab_part *part)
{
    if (!ls_op_begin(t, embedding.name, ids && w)) return NULL;
    const ls_vocab_part p = part ? *part : (ls_vocab_part){ .of = w->dim[0] };
    const ls_status st = check(t, ids, w, &p);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t N = ls_tensor_count(ids), C = w->dim[1];
    int64_t dim[LS_MAX_DIMS];
    memcpy(dim, ids->dim, sizeof dim);
    dim[ids->ndim] = C;
    ls_tensor *y = ls_op_output(t, ls_tape_dtype(t), ids->ndim + 1, dim);
    int64_t *first = y && p.first > 0 ? ls_op_alloc(t, sizeof *first) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (first) *first = p.first;
    if (!ls_tape_dry(t)) {
        const lookup l = { .dtype = y->dtype, .C = C, .first = p.first, .rows = w->dim[0], .id = ids->data,
                           .y = y->data, .w = y->dtype == LS_BF16 ? w->bf16 : w->data };
        ls_parallel_for(gather, &l, N, 1, 2 * (int64_t)ls_tensor_nbytes(y));
    }
    return ls_op_end(t, y, &(struct ls_node){
        .op = &embedding, .in = { ids, w }, .saved = first, .saved_bytes = p.first > 0 ? sizeof *first : 0,
        .flops_weight = (double)(N * C), .label_a = (uint32_t)w->dim[0], .label_b = (uint32_t)C,
    });
}
