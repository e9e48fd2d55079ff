/* conv_dnnl.c -- convolutions by oneDNN's primitives, on tensors as they lie: [N, C, H, W].
 *
 * As in gemm_dnnl.c, oneDNN sees one thread: images are cut into pieces, whose number follows from the shape, and
 * threads share the pieces. Each piece has its own sum of the gradients of weights, and these are added up in
 * ascending order. A gradient that is added to what is there is computed apart first.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/conv.h"
#include "tensor/gemm_dnnl.h"
#include "tensor/share.h"
#include "tensor/threads.h"

#define PIECE_FLOPS ((int64_t)1 << 22) /* of a piece: 100 us; fewer are not worth a primitive of their own */

/* One shape and half, ready to run with so many threads. */
typedef struct prepared {
    ls_conv v;
    ls_conv_half half;
    bool bias;
    int threads, pieces;
    int64_t images;               /* of a piece; the last one has what is left */
    ls_dnnl_prepared whole, last;
    size_t scratch_bytes;         /* of the primitives, per thread */
} prepared;

struct ls_conv_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    ls_dnnl_openmp openmp;
    prepared *item;               /* owned */
    int n, cap;
    char *scratch;                /* owned: that of each thread, then sums and gradients of pieces */
    size_t scratch_bytes;
};

static const int argument[][LS_DNNL_OPERANDS] = {
    [LS_CONV_FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD },
    [LS_CONV_WEIGHT] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST,
                         DNNL_ARG_SCRATCHPAD },
    [LS_CONV_INPUT] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD },
};

static const ls_dnnl_conv_half half_of[] = {
    [LS_CONV_FORWARD] = LS_DNNL_FORWARD, [LS_CONV_WEIGHT] = LS_DNNL_BACKWARD_WEIGHT,
    [LS_CONV_INPUT] = LS_DNNL_BACKWARD_INPUT,
};

/* ThreadSanitizer sees nothing of what a library does inside and reports its locks as races. */
bool ls_conv_library_has(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    return true;
#endif
}

/* --- preparing ----------------------------------------------------------------------------- */

static void release_prepared(ls_dnnl_prepared *p, int threads)
{
    for (int t = 0; p->memory && t < threads; t++)
        for (int i = 0; i < LS_DNNL_OPERANDS; i++)
            if (p->memory[t][i]) dnnl_memory_destroy(p->memory[t][i]);
    free(p->memory);
    if (p->run) dnnl_primitive_destroy(p->run);
}

static void release(prepared *p)
{
    release_prepared(&p->whole, p->threads);
    release_prepared(&p->last, p->threads);
}

void ls_conv_library_close(ls_conv_library *l)
{
    if (!l) return;
    for (int i = 0; i < l->n; i++) release(&l->item[i]);
    if (l->stream) dnnl_stream_destroy(l->stream);
    if (l->engine) dnnl_engine_destroy(l->engine);
    free(l->scratch);
    free(l->item);
    free(l);
}

static ls_status open_library(ls_conv_library **out)
{
    ls_conv_library *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "oneDNN's context");
    l->openmp = ls_dnnl_find_openmp();
    dnnl_status_t got = dnnl_engine_create(&l->engine, dnnl_cpu, 0);
    if (got == dnnl_success) got = dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags);
    if (got == dnnl_success) *out = l;
    else ls_conv_library_close(l);
    return got == dnnl_success ? LS_OK : ls_dnnl_refused(got, "creating an engine");
}

/* A dense tensor. */
static dnnl_status_t describe(ls_dnnl_description *out, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const dnnl_dims_t dims = { a, b, c, d }, strides = { b * c * d, c * d, d, 1 };
    return ls_dnnl_describe_strided(out, dnnl_f32, 4, dims, strides);
}

static dnnl_status_t describe_operands(const prepared *p, int64_t images, ls_dnnl_description d[LS_DNNL_OPERANDS])
{
    const ls_conv *v = &p->v;
    const dnnl_dims_t channels = { v->O }, one = { 1 };
    dnnl_status_t got = describe(&d[LS_DNNL_A], images, v->C, v->H, v->W);
    if (got == dnnl_success) got = describe(&d[LS_DNNL_B], v->O, v->C, v->kernel, v->kernel);
    if (got == dnnl_success) got = describe(&d[LS_DNNL_C], images, v->O, v->Ho, v->Wo);
    if (got == dnnl_success && p->bias) got = ls_dnnl_describe_strided(&d[LS_DNNL_BIAS], dnnl_f32, 1, channels, one);
    return got;
}

static dnnl_status_t prepare_memory(ls_conv_library *l, prepared *p, ls_dnnl_prepared *to,
                                    const ls_dnnl_description d[LS_DNNL_OPERANDS])
{
    to->memory = calloc((size_t)p->threads, sizeof *to->memory);
    if (!to->memory) return dnnl_out_of_memory;
    for (int t = 0; t < p->threads; t++)
        for (int i = 0; i < LS_DNNL_OPERANDS; i++) {
            const dnnl_status_t got =
                d[i] ? dnnl_memory_create(&to->memory[t][i], d[i], l->engine, DNNL_MEMORY_NONE) : dnnl_success;
            if (got != dnnl_success) return got;
        }
    return dnnl_success;
}

/* For pieces of so many images. */
static dnnl_status_t prepare_piece(ls_conv_library *l, prepared *p, ls_dnnl_prepared *to, int64_t images)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL, hint = NULL;
    ls_dnnl_description d[LS_DNNL_OPERANDS] = { NULL };
    const ls_conv *v = &p->v;

    dnnl_status_t got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success) got = describe_operands(p, images, d);
    if (got == dnnl_success && p->half != LS_CONV_FORWARD)
        got = ls_dnnl_describe_conv(&hint, l->engine, LS_DNNL_FORWARD, d, v->stride, v->padding, attr, NULL);
    if (got == dnnl_success)
        got = ls_dnnl_describe_conv(&desc, l->engine, half_of[p->half], d, v->stride, v->padding, attr, hint);
    if (got == dnnl_success) got = dnnl_primitive_create(&to->run, desc);
    if (got == dnnl_success) {
        ls_dnnl_description used[LS_DNNL_OPERANDS];
        memcpy(used, d, sizeof used);
        if (p->half == LS_CONV_INPUT) used[LS_DNNL_BIAS] = NULL;
        used[LS_DNNL_SCRATCH] = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        const size_t bytes = (dnnl_memory_desc_get_size(used[LS_DNNL_SCRATCH]) + 63) / 64 * 64;
        if (bytes > p->scratch_bytes) p->scratch_bytes = bytes;
        got = prepare_memory(l, p, to, used);
    }
    for (int i = 0; i < LS_DNNL_OPERANDS; i++) ls_dnnl_forget(d[i]);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return got;
}

static void cut(prepared *p)
{
    const ls_conv *v = &p->v;
    const int64_t flops = 2 * v->O * v->Ho * v->Wo * v->C * v->kernel * v->kernel; /* of an image */
    int64_t pieces = v->N * flops / PIECE_FLOPS;
    if (pieces > LS_DNNL_MOST_PIECES) pieces = LS_DNNL_MOST_PIECES;
    if (pieces > v->N) pieces = v->N;
    if (pieces < 1) pieces = 1;
    p->images = (v->N + pieces - 1) / pieces;
    p->pieces = (int)((v->N + p->images - 1) / p->images);
}

static LS_COLD ls_status add_prepared(ls_conv_library *l, const prepared *what, prepared **out)
{
    prepared p = *what;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        prepared *more = realloc(l->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "oneDNN: list of %d convolutions", cap);
        l->item = more;
        l->cap = cap;
    }
    cut(&p);
    const int threads = ls_dnnl_limit_threads(&l->openmp, 1);
    const int64_t rest = p.v.N - (p.pieces - 1) * p.images;
    dnnl_status_t got = prepare_piece(l, &p, &p.whole, p.images);
    if (got == dnnl_success && rest < p.images) got = prepare_piece(l, &p, &p.last, rest);
    ls_dnnl_limit_threads(&l->openmp, threads);
    if (got != dnnl_success) {
        release(&p);
        return ls_dnnl_refused(got, "preparing a convolution");
    }
    l->item[l->n] = p;
    *out = &l->item[l->n++];
    return LS_OK;
}

static bool same(const prepared *a, const prepared *b)
{
    return memcmp(&a->v, &b->v, sizeof a->v) == 0 && a->half == b->half && a->bias == b->bias &&
           a->threads == b->threads;
}

static ls_status find(ls_conv_library *l, const prepared *wanted, prepared **out)
{
    for (int i = 0; i < l->n; i++)
        if (same(&l->item[i], wanted)) {
            *out = &l->item[i];
            return LS_OK;
        }
    return add_prepared(l, wanted, out);
}

/* --- running it ------------------------------------------------------------------------------- */

typedef struct running {
    ls_conv_library *l;
    const prepared *p;
    const ls_op_call *c;
    float *apart;        /* sums of weights of each piece, or dx that is yet to be added; NULL: none */
    int64_t apart_count; /* floats of a piece's sums */
    dnnl_status_t got[LS_DNNL_MOST_PIECES];
} running;

static int64_t weights_of(const ls_conv *v) { return v->O * v->C * v->kernel * v->kernel; }

/* Where the operands of piece i lie. oneDNN's handles are not const; it writes to results and scratch memory only. */
static void point(const running *r, int i, void *operand[LS_DNNL_OPERANDS])
{
    const ls_op_call *c = r->c;
    const ls_conv *v = &r->p->v;
    const int64_t first = i * r->p->images, in = first * v->C * v->H * v->W, out = first * v->O * v->Ho * v->Wo;
    const float *x = (const float *)c->in[0]->data + in, *dy = c->dy ? (const float *)c->dy + out : NULL;
    operand[LS_DNNL_SCRATCH] = r->l->scratch + (size_t)ls_team_index() * r->p->scratch_bytes;
    switch (r->p->half) {
    case LS_CONV_FORWARD:
        memcpy(&operand[LS_DNNL_A], &x, sizeof x);
        operand[LS_DNNL_B] = c->in[1]->data;
        operand[LS_DNNL_BIAS] = c->n > 2 ? c->in[2]->data : NULL;
        operand[LS_DNNL_C] = (float *)c->out->data + out;
        break;
    case LS_CONV_WEIGHT:
        memcpy(&operand[LS_DNNL_A], &x, sizeof x);
        memcpy(&operand[LS_DNNL_C], &dy, sizeof dy);
        operand[LS_DNNL_B] = r->apart + i * r->apart_count;
        operand[LS_DNNL_BIAS] = r->apart + i * r->apart_count + weights_of(v);
        break;
    default:
        operand[LS_DNNL_A] = (r->apart ? r->apart : (float *)c->grad[0].data) + in;
        operand[LS_DNNL_B] = c->in[1]->data;
        memcpy(&operand[LS_DNNL_C], &dy, sizeof dy);
        break;
    }
}

static dnnl_status_t run_primitive(const running *r, int i)
{
    const bool rest = (i + 1) * r->p->images > r->p->v.N;
    const ls_dnnl_prepared *by = rest ? &r->p->last : &r->p->whole;
    void *operand[LS_DNNL_OPERANDS] = { NULL };
    dnnl_exec_arg_t args[LS_DNNL_OPERANDS];
    int nargs = 0;
    point(r, i, operand);
    for (int o = 0; o < LS_DNNL_OPERANDS; o++) {
        const dnnl_memory_t memory = by->memory[ls_team_index()][o];
        if (!memory) continue;
        const dnnl_status_t got = dnnl_memory_set_data_handle(memory, operand[o]);
        if (got != dnnl_success) return got;
        args[nargs++] = (dnnl_exec_arg_t){ argument[r->p->half][o], memory };
    }
    return dnnl_primitive_execute(by->run, r->l->stream, nargs, args);
}

static void run_piece(void *arg, int64_t i)
{
    running *r = arg;
    const int threads = ls_dnnl_limit_threads(&r->l->openmp, 1);
    r->got[i] = run_primitive(r, (int)i);
    ls_dnnl_limit_threads(&r->l->openmp, threads);
}

/* A gradient from the sums of pieces: grad (+)= sum of apart[at + k each], in ascending k. */
typedef struct total {
    float *grad;
    bool add;
    const float *apart;
    int64_t each;
    int pieces;
} total;

LS_KERNEL static void add_up(const void *call, int64_t first, int64_t count)
{
    const total *s = call;
    for (int k = 0; k < s->pieces; k++) {
        const float *from = s->apart + k * s->each;
        if (k == 0 && !s->add) memcpy(s->grad + first, from + first, (size_t)count * sizeof *from);
        else
            for (int64_t i = first; i < first + count; i++) s->grad[i] += from[i];
    }
}

static void add_pieces(const running *r, const ls_op_grad *g, const float *apart, int64_t n, int pieces)
{
    const total s = { g->data, g->add, apart, r->apart_count, pieces };
    if (g->data) ls_parallel_for(add_up, &s, n, LS_SHARE_LINE, (pieces + 1) * n * (int64_t)sizeof(float));
}

static LS_COLD ls_status grow_scratch(ls_conv_library *l, size_t bytes)
{
    free(l->scratch);
    l->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    l->scratch_bytes = l->scratch ? bytes : 0;
    return l->scratch ? LS_OK : ls_fail(LS_NO_MEMORY, "oneDNN: %zu bytes of scratch memory", bytes);
}

ls_status ls_conv_library_run(ls_conv_library **library, ls_conv_half half, const ls_conv *v, const ls_op_call *c)
{
    if (!*library) LS_TRY(open_library(library));
    const prepared wanted = { .v = *v, .half = half, .threads = ls_team_size(),
                              .bias = half == LS_CONV_WEIGHT ? c->n > 2 && c->grad[2].data
                                                             : half == LS_CONV_FORWARD && c->n > 2 };
    prepared *p;
    LS_TRY(find(*library, &wanted, &p));
    running r = { .l = *library, .p = p, .c = c };
    const bool weight = half == LS_CONV_WEIGHT, aside = half == LS_CONV_INPUT && c->grad[0].add;
    const int64_t pixels = v->N * v->C * v->H * v->W;
    r.apart_count = weight ? (weights_of(v) + v->O + 15) / 16 * 16 : aside ? pixels : 0;
    const size_t before = (size_t)p->threads * p->scratch_bytes;
    const size_t bytes = before + (size_t)(weight ? p->pieces * r.apart_count : r.apart_count) * sizeof(float);
    if (bytes > r.l->scratch_bytes) LS_TRY(grow_scratch(r.l, bytes));
    if (weight || aside) r.apart = (float *)(void *)(r.l->scratch + before);

    ls_team_run(run_piece, &r, p->pieces);
    for (int i = 0; i < p->pieces; i++)
        if (r.got[i] != dnnl_success) return ls_dnnl_refused(r.got[i], "a convolution");
    if (weight) {
        add_pieces(&r, &c->grad[1], r.apart, weights_of(v), p->pieces);
        if (c->n > 2) add_pieces(&r, &c->grad[2], r.apart + weights_of(v), v->O, p->pieces);
    }
    if (aside) add_pieces(&r, &c->grad[0], r.apart, pixels, 1);
    return LS_OK;
}
#else
#include "tensor/conv.h"

bool ls_conv_library_has(void) { return false; }
void ls_conv_library_close(ls_conv_library *l) { (void)l; }

ls_status ls_conv_library_run(ls_conv_library **library, ls_conv_half half, const ls_conv *v, const ls_op_call *c)
{
    (void)library;
    (void)half;
    (void)v;
    return ls_fail(LS_INTERNAL, "%s: there is no oneDNN", c->op->name);
}
#endif
