/* op_linear_cross_entropy.c -- the head of a language model: linear, softmax and negative log likelihood in one op.
 *
 *   x       [..., C]   N rows in all
 *   w       [V, C]     often the token embedding itself
 *   labels  [N] in all (I64, in [0, V); LS_IGNORE_INDEX: the row does not count)
 *   loss    []         scale * sum over counted n of log(sum_v e^l[n, v]) - l[n, labels[n]],   l = x w^T
 *
 * The logits l [N, V] would be the largest tensor of the model, so they are made for some rows of x at a time, and for
 * these in blocks of the vocabulary. A block is still in the cache when its largest logit and its sum of exponentials
 * are taken; the blocks of a row are joined as in online softmax (Milakov and Gimelshein 2018):
 *
 *   per block j     m_j = max l,  s_j = sum e^(l - m_j),  e = e^(l - m_j) kept
 *   per row         m = max m_j,  lse = m + log(sum_j s_j e^(m_j - m))
 *   once more       dl = (e e^(m_j - lse) - [v = label]) scale g,   dx += dl w_j,   dw_j += dl^T x
 *
 * Where a gradient is wanted all of this is done in backward, when g is known: logits are computed once (three products
 * of 2 N V C flops in all; to compute them again in backward would be a fourth), gradients go straight to their places,
 * and nothing but x and the labels is kept between. So the loss has its value only then. Where none is wanted one block
 * of memory is enough.
 *
 * On a tape with ls_tape_logits_in_forward e and the loss are computed in forward already, and e is kept until
 * backward, if one slice holds all rows and no ranks share the vocabulary. Operations, order and bits are the same.
 *
 * On a tape whose weight halves may be put off (ls_tape_defer_weights) so may this one's, if one slice holds all rows:
 * backward of the input leaves every block of dl in the tape's own memory (4 N V bytes, of bfloat16 2 N V), and the
 * weight half is the product dl^T x alone. Otherwise both gradients come from one pass, as above, with the same bits.
 *
 * Where x is bfloat16, so is dx, and w is read from its bfloat16 copy. Logits are float all the same; dl is rounded for
 * the products, and dx when all blocks have added to it.
 *
 * Where ranks have parts of the vocabulary, w has the rows from F on, and the ranks put the rows at hand together
 * before the second pass (Shoeybi et al. 2019):
 *
 *   m = max over ranks of m,  s = sum over ranks of s e^(m_rank - m),  picked = sum over ranks of the label's logit
 *
 * Each rank has the sum of the losses, and a dx that lacks what the other ranks' rows add.
 *
 * memory in the slab, released at once unless it is kept from forward: LS_LOGITS_BYTES at most for the logits of the
 * rows at hand (or ROW_UNIT rows), and 32 bytes a row (40 where ranks share it); for bfloat16 also a block of dl and
 * the rows of dx. Sums over V and N are in double, in an order that depends on the shapes alone.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/collective.h"
#include "tensor/element.h"
#include "tensor/logits.h"
#include "tensor/tape.h"
#include "tensor/threads.h"
#include "tensor/vecmath.h"

#define ROW_UNIT 16
#define LANES 16
#define FLOPS_ELEMENT 18.0 /* exponential, maximum, sums and scaling */

/* One application: its shapes and how it is cut. */
typedef struct head {
    const ls_tensor *weight;
    int64_t N, C, V;
    int64_t rows;   /* of x at a time */
    int64_t first_rows; /* the first time: all of them where there are fewer */
    int64_t block;  /* of the vocabulary at a time; all but the last */
    int64_t blocks;
    ls_dtype dtype;
    const void *x, *w; /* of this dtype */
    const int64_t *labels;
    ls_vocab_part part;
} head;

/* What is known of the rows at hand. */
typedef struct rows {
    float *e;        /* [blocks][rows, block]; evaluation: one block only */
    float *top;      /* [blocks][rows]: m_j */
    double *sum;     /* sum of e^(l - largest) */
    double *largest;
    double *picked;  /* logit of the label; behind `sum`, n of each */
    double *largest_here; /* on this rank */
    uint16_t *dl;    /* [rows, block], rounded; bfloat16 only. Between halves [blocks][rows, block] */
    float *dx;       /* [rows, C]; bfloat16 only */
} rows;

/* What forward keeps for backward. */
typedef struct kept {
    double scale;
    double *sum_out; /* the caller's; may be NULL */
    ls_vocab_part part;
    bool in_forward; /* `logits` has been filled in forward */
    rows logits;     /* between halves: of dl in `dl`, or of float in `e` */
} kept;

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* n in equal parts of at most `most`: the size of one, a multiple of ROW_UNIT. */
static int64_t part_of(int64_t n, int64_t most)
{
    const int64_t parts = (n + most - 1) / most;
    return round_up((n + parts - 1) / parts, ROW_UNIT);
}

/* The most rows of the table that a rank has. */
static int64_t most_rows(const head *h)
{
    const int64_t ranks = h->part.size > 1 ? h->part.size : 1;
    return (h->part.of + ranks - 1) / ranks;
}

/* How many rows of x are taken at a time is the same on all ranks that share the table. */
static head cut(const ls_tensor *x, const ls_tensor *w, const ls_tensor *labels, const ls_vocab_part *part,
                bool gradient)
{
    head h = { .weight = w, .C = w->dim[1], .V = w->dim[0], .dtype = x->dtype, .x = x->data, .labels = labels->data,
               .part = *part };
    h.w = x->dtype == LS_BF16 ? w->bf16 : w->data;
    h.N = ls_tensor_count(x) / h.C;
    h.block = part_of(most_rows(&h), LS_LOGITS_BLOCK);
    h.blocks = (most_rows(&h) + h.block - 1) / h.block;
    int64_t most = LS_LOGITS_BYTES / (int64_t)sizeof(float) / (h.blocks * h.block) / ROW_UNIT * ROW_UNIT;
    if (!gradient) most = LS_LOGITS_EVAL_ROWS;
    h.rows = part_of(h.N, most < ROW_UNIT ? ROW_UNIT : most);
    h.first_rows = h.N < h.rows ? h.N : h.rows;
    h.blocks = (h.V + h.block - 1) / h.block;
    return h;
}

/* What is known of the rows at hand beside their logits, in so many blocks. */
static ls_status allocate_sums(ls_tape *t, const head *h, size_t kept_blocks, rows *r)
{
    const size_t n = (size_t)h->rows;
    r->top = ls_op_alloc(t, kept_blocks * n * sizeof *r->top);
    r->sum = ls_op_alloc(t, (h->part.size > 1 ? 4 : 3) * n * sizeof *r->sum);
    if (ls_tape_status(t) < 0 || ls_tape_dry(t)) return ls_tape_status(t);
    r->largest = r->sum + 2 * n;
    r->largest_here = h->part.size > 1 ? r->sum + 3 * n : NULL;
    return LS_OK;
}

static ls_status allocate(ls_tape *t, const head *h, bool gradient, rows *r)
{
    const size_t kept_blocks = gradient ? (size_t)h->blocks : 1;
    r->e = ls_op_alloc(t, kept_blocks * (size_t)h->rows * (size_t)h->block * sizeof *r->e);
    return allocate_sums(t, h, kept_blocks, r);
}

/* What gradients in bfloat16 take beside that. */
static ls_status allocate_rounded(ls_tape *t, const head *h, rows *r)
{
    if (h->dtype != LS_BF16) return LS_OK;
    r->dl = ls_op_alloc(t, (size_t)h->rows * (size_t)h->block * sizeof *r->dl);
    r->dx = ls_op_alloc(t, (size_t)h->rows * (size_t)h->C * sizeof *r->dx);
    return ls_tape_status(t);
}

/* The largest of n numbers; NaN if the first of its lane is. */
LS_KERNEL static float largest_of(const float *e, int64_t n)
{
    float lane[LANES];
    for (int k = 0; k < LANES; k++) lane[k] = e[k < n ? k : 0];
    int64_t v = 0;
    for (; v + LANES <= n; v += LANES)
        for (int k = 0; k < LANES; k++) lane[k] = e[v + k] > lane[k] ? e[v + k] : lane[k];
    for (; v < n; v++) lane[0] = e[v] > lane[0] ? e[v] : lane[0];
    float most = lane[0];
    for (int k = 1; k < LANES; k++) most = lane[k] > most ? lane[k] : most;
    return most;
}

LS_KERNEL static void exponentials(float *e, int64_t n, float most)
{
    for (int64_t v = 0; v < n; v++) e[v] = ls_expf(e[v] - most);
}

/* In double, in eight interleaved parts: the same bits however wide the vectors are. */
LS_KERNEL static double sum_of(const float *e, int64_t n)
{
    double part[8] = { 0 };
    int64_t v = 0;
    for (; v + 8 <= n; v += 8)
        for (int k = 0; k < 8; k++) part[k] += (double)e[v + k];
    for (; v < n; v++) part[v % 8] += (double)e[v];
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

LS_KERNEL static void scale_row(float *e, int64_t n, float by)
{
    for (int64_t v = 0; v < n; v++) e[v] *= by;
}

LS_KERNEL static void scale_and_round(uint16_t *restrict out, const float *restrict e, int64_t n, float by)
{
    for (int64_t v = 0; v < n; v++) out[v] = ls_to_bf16(e[v] * by);
}

LS_KERNEL static void round_or_add(uint16_t *restrict out, const float *restrict x, int64_t n, bool add)
{
    for (int64_t i = 0; i < n; i++) out[i] = ls_to_bf16(add ? ls_from_bf16(out[i]) + x[i] : x[i]);
}

/* The rows of block j: its first and its number. */
static int64_t first_of(const head *h, int64_t j) { return j * h->block; }
static int64_t rows_of(const head *h, int64_t j)
{
    const int64_t left = h->V - first_of(h, j);
    return left < h->block ? left : h->block;
}

/* The products of n rows of x with block j of w, without operands. */
static ls_gemm_call logits_product(const head *h, int64_t j, int64_t n)
{
    return (ls_gemm_call){ .m = n, .n = rows_of(h, j), .k = h->C, .trans_b = true, .in = h->dtype, .out = LS_F32 };
}

static ls_gemm_call slope_product(const head *h, int64_t j, int64_t n, bool add)
{
    return (ls_gemm_call){ .m = n, .n = h->C, .k = rows_of(h, j), .add = (add && h->dtype != LS_BF16) || j > 0,
                           .in = h->dtype, .out = LS_F32 };
}

/* Runs one of them. Where n is not that of all rows but the last, a copy of the weight would not be read often. */
static ls_status multiply(ls_tape *t, const head *h, int64_t j, int64_t n, ls_gemm_call *c)
{
    if (!ls_tape_dry(t)) c->b = ls_at_const(h->w, first_of(h, j) * h->C, h->dtype == LS_BF16);
    return ls_op_product(t, c, n == h->first_rows ? h->weight : NULL, first_of(h, j) * h->C);
}

/* Row i of block j: its logits become exponentials, and join those of the blocks before. */
static void take_in(int64_t label, int64_t v0, int64_t nv, float *row, float *top, const rows *r, int64_t i)
{
    if (label >= v0 && label < v0 + nv) r->picked[i] = (double)row[label - v0];
    *top = largest_of(row, nv);
    exponentials(row, nv, *top);
    const double sum = sum_of(row, nv), m = (double)*top;
    if (m > r->largest[i]) {
        r->sum[i] = r->sum[i] * exp(r->largest[i] - m) + sum;
        r->largest[i] = m;
    } else {
        r->sum[i] += sum * exp(m - r->largest[i]);
    }
}

/* A block of logits and the rows it is of. */
typedef struct block {
    const head *h;
    int64_t first, v0, nv;
    float *e, *top;
    rows *r;
    uint16_t *dl; /* gradients are rounded to it; NULL: they take the place of the logits */
    double scale;
} block;

static void take_in_row(void *arg, int64_t i)
{
    const block *b = arg;
    take_in(b->h->labels[b->first + i] - b->h->part.first, b->v0, b->nv, b->e + i * b->nv, b->top + i, b->r, i);
}

/* Logits of rows [first, first + n) block by block, with what their softmax needs. */
static ls_status logits(ls_tape *t, const head *h, int64_t first, int64_t n, bool keep, rows *r)
{
    r->picked = r->sum + n;
    for (int64_t i = 0; i < n; i++) {
        r->sum[i] = 0.0;
        r->largest[i] = -INFINITY;
        r->picked[i] = 0.0;
    }
    for (int64_t j = 0; j < h->blocks; j++) {
        const int64_t v0 = first_of(h, j), nv = rows_of(h, j);
        float *e = r->e + (keep ? j * h->rows * h->block : 0), *top = r->top + (keep ? j * h->rows : 0);
        ls_gemm_call l = logits_product(h, j, n);
        l.a = ls_at_const(h->x, first * h->C, h->dtype == LS_BF16);
        l.c = e;
        LS_TRY(multiply(t, h, j, n, &l));
        block b = { .h = h, .first = first, .v0 = v0, .nv = nv, .e = e, .top = top, .r = r };
        ls_threads_for(ls_threads_pay(n * nv * (int64_t)sizeof *e), n, take_in_row, &b);
    }
    return LS_OK;
}

/* What all ranks found of n rows: the largest logit, the sum of exponentials, and the label's logit, which one of them
 * has. */
static ls_status put_together(ls_tape *t, const head *h, int64_t n, rows *r)
{
    const bool dry = ls_tape_dry(t);
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F64, .op = LS_MAX, .out = r->largest, .count = (size_t)n,
                       .label = "largest logits" };
    if (h->part.size <= 1) return LS_OK;
    if (!dry) memcpy(r->largest_here, r->largest, (size_t)n * sizeof *r->largest);
    LS_TRY(ls_op_collective(t, h->part.ranks, &a, true));
    for (int64_t i = 0; i < n && !dry; i++) r->sum[i] *= exp(r->largest_here[i] - r->largest[i]);
    a.op = LS_SUM;
    a.out = r->sum;
    a.count = 2 * (size_t)n;
    a.label = "sums of exponentials";
    return ls_op_collective(t, h->part.ranks, &a, true);
}

/* The losses of the rows at hand; sum becomes lse. */
static double losses(const head *h, int64_t first, int64_t n, rows *r)
{
    double loss = 0.0;
    for (int64_t i = 0; i < n; i++) {
        r->sum[i] = r->largest[i] + log(r->sum[i]);
        if (h->labels[first + i] != LS_IGNORE_INDEX) loss += r->sum[i] - r->picked[i];
    }
    return loss;
}

/* Where the gradients go; a NULL one is not wanted. */
typedef struct slopes {
    void *dx;
    float *dw;
    bool wanted_x, add_x, add_w, all_dl; /* all_dl: that of each block stays */
    double scale;
} slopes;

/* Row i of block j becomes the gradient of its logits, in place or, rounded, in dl. */
static void turn(bool counts, int64_t label, int64_t v0, int64_t nv, float *row, uint16_t *dl, double share,
                 double scale)
{
    if (!counts) {
        memset(dl ? (void *)dl : row, 0, (size_t)nv * (dl ? sizeof *dl : sizeof *row));
        return;
    }
    const bool here = label >= v0 && label < v0 + nv;
    const double p = here ? (double)row[label - v0] * share : 0.0;
    const float slope = (float)((p - 1.0) * scale); /* p may be close to 1 */
    if (dl) scale_and_round(dl, row, nv, (float)(share * scale));
    else scale_row(row, nv, (float)(share * scale));
    if (here && dl) dl[label - v0] = ls_to_bf16(slope);
    else if (here) row[label - v0] = slope;
}

static void turn_row(void *arg, int64_t i)
{
    const block *b = arg;
    const int64_t label = b->h->labels[b->first + i];
    turn(label != LS_IGNORE_INDEX, label - b->h->part.first, b->v0, b->nv, b->e + i * b->nv,
         b->dl ? b->dl + i * b->nv : NULL, exp((double)b->top[i] - b->r->sum[i]), b->scale);
}

/* dw_j = dl_j^T x */
static ls_status multiply_weight(ls_tape *t, const head *h, int64_t j, int64_t first, int64_t n, const void *dl,
                                 const slopes *d)
{
    const ls_gemm_call dw = {
        .m = rows_of(h, j), .n = h->C, .k = n, .trans_a = true, .add = d->add_w || first > 0, .in = h->dtype,
        .out = LS_F32, .a = dl, .b = ls_at_const(h->x, first * h->C, h->dtype == LS_BF16),
        .c = d->dw + first_of(h, j) * h->C,
    };
    return ls_gemm_run(ls_tape_gemm(t), &dw);
}

/* Turns the kept blocks into gradients of the logits, and these into those of x and w. */
static ls_status gradients(ls_tape *t, const head *h, int64_t first, int64_t n, rows *r, const slopes *d)
{
    const bool bf16 = h->dtype == LS_BF16;
    for (int64_t j = 0; j < h->blocks; j++) {
        const int64_t v0 = first_of(h, j), nv = rows_of(h, j);
        float *e = r->e + j * h->rows * h->block;
        block b = { .h = h, .first = first, .v0 = v0, .nv = nv, .e = e, .top = r->top + j * h->rows, .r = r,
                    .dl = bf16 ? r->dl + (d->all_dl ? j * h->rows * h->block : 0) : NULL, .scale = d->scale };
        ls_threads_for(ls_threads_pay(n * nv * (int64_t)sizeof *e), n, turn_row, &b);
        const void *dl = bf16 ? (void *)b.dl : e;
        ls_gemm_call dx = slope_product(h, j, n, d->add_x);
        dx.a = dl;
        dx.c = bf16 ? r->dx : d->dx ? (float *)d->dx + first * h->C : NULL;
        if (d->dx) LS_TRY(multiply(t, h, j, n, &dx));
        if (d->dw) LS_TRY(multiply_weight(t, h, j, first, n, dl, d));
    }
    if (bf16 && d->dx) round_or_add((uint16_t *)d->dx + first * h->C, r->dx, n * h->C, d->add_x);
    return LS_OK;
}

/* What a dry tape does of them: the logits, and the gradient of x. */
static ls_status note_products(ls_tape *t, const head *h, bool of_logits, bool of_x, bool add)
{
    for (int64_t j = 0; j < h->blocks; j++) {
        ls_gemm_call c = logits_product(h, j, h->first_rows);
        if (of_logits) LS_TRY(multiply(t, h, j, h->first_rows, &c));
        c = slope_product(h, j, h->first_rows, add);
        if (of_x) LS_TRY(multiply(t, h, j, h->first_rows, &c));
    }
    return LS_OK;
}

/* In forward: logits and losses of all rows, which stay in k->logits. */
static ls_status run_forward(ls_tape *t, const head *h, kept *k, double *sum)
{
    LS_TRY(allocate(t, h, true, &k->logits));
    if (ls_tape_dry(t)) return note_products(t, h, true, false, false);
    LS_TRY(logits(t, h, 0, h->N, true, &k->logits));
    *sum = losses(h, 0, h->N, &k->logits);
    return LS_OK;
}

/* And what is left of backward. */
static ls_status run_backward(ls_tape *t, const head *h, const slopes *d, kept *k)
{
    const size_t mark = ls_op_mark(t);
    LS_TRY(allocate_rounded(t, h, &k->logits));
    LS_TRY(ls_tape_dry(t) ? note_products(t, h, false, d->wanted_x, d->add_x)
                          : gradients(t, h, 0, h->N, &k->logits, d));
    ls_op_release(t, mark);
    return LS_OK;
}

/* The sum of the losses and, where d is given, the gradients. */
static ls_status run(ls_tape *t, const head *h, const slopes *d, double *sum)
{
    const size_t mark = ls_op_mark(t);
    rows r = { 0 };
    *sum = 0.0;
    LS_TRY(allocate(t, h, d != NULL, &r));
    if (d) LS_TRY(allocate_rounded(t, h, &r));
    if (ls_tape_dry(t)) {
        LS_TRY(note_products(t, h, true, d && d->wanted_x, d && d->add_x));
        for (int64_t first = 0; first < h->N; first += h->rows)
            LS_TRY(put_together(t, h, h->N - first < h->rows ? h->N - first : h->rows, &r));
    }
    for (int64_t first = 0; first < h->N && !ls_tape_dry(t); first += h->rows) {
        const int64_t n = h->N - first < h->rows ? h->N - first : h->rows;
        LS_TRY(logits(t, h, first, n, d != NULL, &r));
        LS_TRY(put_together(t, h, n, &r));
        *sum += losses(h, first, n, &r);
        if (d) LS_TRY(gradients(t, h, first, n, &r, d));
    }
    ls_op_release(t, mark);
    return LS_OK;
}

static void tell(const ls_tensor *loss, double scale, double sum, double *sum_out)
{
    *(float *)loss->data = (float)(scale * sum);
    if (sum_out) *sum_out = sum;
}

/* Both gradients come from one pass over the logits. k->logits is of this node
 * alone, so it may be written: gradients take the place of logits. */
static ls_status backward(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0], *w = n->in[2];
    kept *k = (kept *)(uintptr_t)n->saved;
    const head h = cut(x, w, n->in[1], &k->part, true);
    slopes d = { .wanted_x = ls_grad_wanted(x) };
    double sum;
    void *dw = NULL, *dx = NULL;
    if (ls_grad_wanted(w)) LS_TRY(ls_grad_begin(t, w, &d.add_w, &dw));
    if (ls_grad_wanted(x)) LS_TRY(ls_grad_begin(t, x, &d.add_x, &dx));
    d.dw = dw;
    d.dx = dx;
    if (!ls_tape_dry(t)) d.scale = k->scale * (double)*(const float *)n->out->grad->data;
    if (k->in_forward) {
        LS_TRY(run_backward(t, &h, &d, k));
    } else {
        LS_TRY(run(t, &h, &d, &sum));
        if (!ls_tape_dry(t)) tell(n->out, k->scale, sum, k->sum_out);
    }
    if (ls_grad_wanted(w)) LS_TRY(ls_grad_end(t, w));
    return ls_grad_wanted(x) ? ls_grad_end(t, x) : LS_OK;
}

static const ls_tape_op linear_cross_entropy = {
    .name = "linear_cross_entropy", .napplied = 3, .backward_input = backward,
};

/* --- in halves ---------------------------------------------------------------------------------- */

/* Memory for dl of all blocks, which stays until the weight half. */
static ls_status keep_slopes(ls_tape *t, struct ls_node *n)
{
    kept *k = (kept *)(uintptr_t)n->saved;
    const head h = cut(n->in[0], n->in[2], n->in[1], &k->part, true);
    const size_t count = (size_t)(h.blocks * h.rows * h.block);
    if (h.dtype == LS_BF16) k->logits.dl = ls_op_alloc(t, count * sizeof *k->logits.dl);
    else if (!k->in_forward) k->logits.e = ls_op_alloc(t, count * sizeof *k->logits.e);
    return ls_tape_status(t);
}

/* What this half needs beside k->logits, and ends with it: sums, unless forward left them, and of bfloat16 logits, too,
 * and the rows of dx. */
static ls_status take_rows(ls_tape *t, const head *h, const kept *k, rows *r)
{
    const size_t n = (size_t)h->rows, logits = (size_t)h->blocks * n * (size_t)h->block;
    const bool bf16 = h->dtype == LS_BF16;
    if (!k->in_forward) {
        if (bf16) r->e = ls_op_alloc(t, logits * sizeof *r->e);
        LS_TRY(allocate_sums(t, h, (size_t)h->blocks, r));
    }
    if (bf16) r->dx = ls_op_alloc(t, n * (size_t)h->C * sizeof *r->dx);
    return ls_tape_status(t);
}

static ls_status run_input_half(ls_tape *t, const head *h, const slopes *d, kept *k, struct ls_node *n)
{
    const size_t mark = ls_op_mark(t);
    rows r = k->logits;
    LS_TRY(take_rows(t, h, k, &r));
    if (ls_tape_dry(t)) LS_TRY(note_products(t, h, !k->in_forward, true, d->add_x));
    if (!k->in_forward) {
        if (!ls_tape_dry(t)) LS_TRY(logits(t, h, 0, h->N, true, &r));
        LS_TRY(put_together(t, h, h->N, &r));
        if (!ls_tape_dry(t)) tell(n->out, k->scale, losses(h, 0, h->N, &r), k->sum_out);
    }
    if (!ls_tape_dry(t)) LS_TRY(gradients(t, h, 0, h->N, &r, d));
    ls_op_release(t, mark);
    return LS_OK;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    kept *k = (kept *)(uintptr_t)n->saved;
    const head h = cut(n->in[0], n->in[2], n->in[1], &k->part, true);
    slopes d = { .wanted_x = true, .all_dl = true };
    void *dx;
    LS_TRY(ls_grad_begin(t, n->in[0], &d.add_x, &dx));
    d.dx = dx;
    if (!ls_tape_dry(t)) d.scale = k->scale * (double)*(const float *)n->out->grad->data;
    LS_TRY(run_input_half(t, &h, &d, k, n));
    return ls_grad_end(t, n->in[0]);
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    ls_tensor *w = n->in[2];
    const kept *k = n->saved;
    const head h = cut(n->in[0], w, n->in[1], &k->part, true);
    slopes d = { 0 };
    void *dw;
    LS_TRY(ls_grad_begin(t, w, &d.add_w, &dw));
    d.dw = dw;
    const void *dl = h.dtype == LS_BF16 ? (const void *)k->logits.dl : k->logits.e;
    for (int64_t j = 0; j < h.blocks && !ls_tape_dry(t); j++)
        LS_TRY(multiply_weight(t, &h, j, 0, h.N, ls_at_const(dl, j * h.rows * h.block, h.dtype == LS_BF16), &d));
    return ls_grad_end(t, w);
}

/* Of a tape that may put off weight halves, where both gradients are wanted and one slice holds all rows. */
static const ls_tape_op in_halves = {
    .name = "linear_cross_entropy", .napplied = 2, .whole = &linear_cross_entropy, .backward_input = backward_input,
    .backward_weight = backward_weight, .keep = keep_slopes,
};

static ls_status check(const ls_tape *t, const ls_tensor *x, const ls_tensor *w, const ls_tensor *labels,
                       const ls_vocab_part *part, int64_t *counted)
{
    char xs[96], ws[96], ls[96];
    if (x->ndim < 1 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1] ||
        ls_tensor_count(labels) != ls_tensor_count(x) / w->dim[1])
        return ls_fail(LS_SHAPE, "linear_cross_entropy: input %s, weight %s, labels %s: expected [..., C], [V, C], [...]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws),
                       ls_tensor_shape(labels, ls, sizeof ls));
    if ((x->dtype != LS_F32 && x->dtype != LS_BF16) || w->dtype != LS_F32 || labels->dtype != LS_I64)
        return ls_fail(LS_UNSUPPORTED, "linear_cross_entropy: input is %s, weight %s, labels %s: expected float or "
                       "bfloat16, float and int64", ls_dtype_name(x->dtype), ls_dtype_name(w->dtype),
                       ls_dtype_name(labels->dtype));
    if (part->first < 0 || part->first > part->of || w->dim[0] > part->of - part->first)
        return ls_fail(LS_SHAPE, "linear_cross_entropy: weight %s as rows from %lld on of a vocabulary of %lld: they are not "
                       "in it", ls_tensor_shape(w, ws, sizeof ws), (long long)part->first, (long long)part->of);
    if (ls_tape_dry(t)) return LS_OK;
    if (x->dtype == LS_BF16 && !w->bf16)
        return ls_fail(LS_UNSUPPORTED, "linear_cross_entropy: the input is bfloat16, and the weight has no copy in "
                       "bfloat16");
    if (x->dtype == LS_F32 && !w->data)
        return ls_fail(LS_INVALID, "linear_cross_entropy: the weight has no memory yet; call ls_params_bind");
    const int64_t *label = labels->data, V = part->of;
    for (int64_t n = 0; n < ls_tensor_count(labels); n++) {
        if ((label[n] < 0 || label[n] >= V) && label[n] != LS_IGNORE_INDEX)
            return ls_fail(LS_INVALID, "linear_cross_entropy: label %lld of row %lld: expected 0 to %lld, the vocabulary "
                           "of %lld, or %d: not counted", (long long)label[n], (long long)n, (long long)V - 1,
                           (long long)V, LS_IGNORE_INDEX);
        *counted += label[n] != LS_IGNORE_INDEX;
    }
    return LS_OK;
}

ls_tensor *ls_linear_cross_entropy(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *labels, double scale,
                                   double *sum_out, int64_t *counted_out)
{
    return ls_linear_cross_entropy_part(t, x, w, labels, scale, sum_out, counted_out, NULL);
}

ls_tensor *ls_linear_cross_entropy_part(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *labels, double scale,
                                        double *sum_out, int64_t *counted_out, const ls_vocab_part *of)
{
    if (!ls_op_begin(t, linear_cross_entropy.name, x && w && labels)) return NULL;
    const ls_vocab_part part = of ? *of : (ls_vocab_part){ .of = w->dim[0] };
    int64_t counted = 0;
    ls_status st = check(t, x, w, labels, &part, &counted);
    if (st < 0) return ls_op_fail(t, st);
    if (counted_out) *counted_out = counted;

    const bool later = ls_tape_grad(t) && (ls_grad_wanted(x) || ls_grad_wanted(w));
    const head h = cut(x, w, labels, &part, later);
    ls_tensor *loss = ls_op_output(t, LS_F32, 0, NULL);
    kept *k = loss ? ls_tape_take_node(t, sizeof *k) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    *k = (kept){ .scale = scale, .sum_out = sum_out, .part = part };
    k->in_forward = later && ls_tape_has_logits_in_forward(t) && part.size <= 1 && h.N <= h.rows;
    if (later && !k->in_forward) {
        if (!ls_tape_dry(t)) tell(loss, scale, (double)NAN, sum_out);
    } else {
        double sum = 0.0;
        st = later ? run_forward(t, &h, k, &sum) : run(t, &h, NULL, &sum);
        if (st < 0) return ls_op_fail(t, st);
        if (!ls_tape_dry(t)) tell(loss, scale, sum, sum_out);
    }
    const double product = 2.0 * (double)h.N * (double)h.V * (double)h.C;
    const double whole = product + FLOPS_ELEMENT * (double)h.N * (double)h.V;
    const bool at_once = !later || k->in_forward;
    const bool halves = later && ls_tape_may_defer(t) && ls_grad_wanted(x) && ls_grad_wanted(w) && h.N <= h.rows;
    return ls_op_end(t, loss, &(struct ls_node){
        .op = halves ? &in_halves : &linear_cross_entropy, .in = { x, labels, w }, .saved = k,
        .label_a = (uint32_t)h.C, .label_b = (uint32_t)h.V,
        .flops = at_once ? whole : 0.0,
        .flops_weight = halves ? product : 0.0,
        .flops_input = (k->in_forward ? 0.0 : whole) + (ls_grad_wanted(x) ? product : 0.0) +
                       (ls_grad_wanted(w) && !halves ? product : 0.0),
    });
}
