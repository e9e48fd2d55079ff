/* gemm_dnnl.c -- large matrix products by oneDNN's C interface.
 *
 * Preparing a product costs oneDNN 5 to 500 us, running it 0.3 us: so each
 * shape is prepared once and its memory objects are pointed at the operands
 * of the call. oneDNN has several primitives for the same product, which differ
 * by up to 1.5x: choose() knows which is the fast one.
 *
 * With more threads oneDNN cuts the sums over K otherwise, or into other blocks
 * (an AMX instruction adds up 32 terms before it adds them to C), so other bits
 * come out. Therefore it never sees more than one thread: a product is cut into
 * pieces of C, whose number and sizes follow from the shape alone, and threads
 * share the pieces.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/gemm.h"
#include "tensor/threads.h"

/* MATMUL can do everything; SGEMM float. */
typedef enum way { MATMUL, SGEMM, WAYS } way;
static const char *const way_names[WAYS] = { "matmul", "sgemm" };

enum { A, B, BIAS, C, SCRATCH, OPERANDS };
static const int argument[OPERANDS] = {
    DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
};

#define MOST_PIECES 16
/* 2 pieces of twice as many rows or columns, 4 of 4 times ...: with more, more is packed again. */
#define PIECE 64
#define SGEMM_PIECE 96 /* as much; it packs A and B */
#define UNIT 32  /* pieces are of whole ones */

/* C in pieces of equally many rows, or columns; the last one has what is left. */
typedef struct cut {
    int64_t rows, columns; /* of a piece */
    int pieces;
    bool across;           /* side by side */
} cut;

/* A primitive for pieces of one size, and what it is pointed at: each thread's own. */
typedef struct prepared {
    dnnl_primitive_t run;
    dnnl_memory_t (*memory)[OPERANDS]; /* owned; [threads]; NULL where the product has none */
} prepared;

/* One shape, ready to run with so many threads. */
typedef struct product {
    ls_gemm_call key; /* of its pointers only bias and packed count: with or without */
    int threads;
    cut cut;
    prepared whole, last;         /* pieces of the cut's size; the last piece, where it is smaller */
    size_t scratch_bytes;         /* per thread: of the primitives, then copy_bytes */
    size_t copy_bytes;            /* of a piece of columns: oneDNN's fast primitives write dense matrices */
    /* of packed weights */
    dnnl_primitive_t pack;        /* plain B to packed */
    dnnl_memory_t plain, packed, pack_scratch;
    size_t packed_bytes;          /* 0: the library likes B as it is */
} product;

struct ls_gemm_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    product *item; /* owned */
    int n, cap;
    char *scratch; /* owned, shared by all products: they run one after the other */
    size_t scratch_bytes;
    int forced;    /* way; -1: choose */
};

const char *ls_gemm_library_name(void) { return "oneDNN"; }

static bool has(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

bool ls_gemm_library_has_bf16(void) { return has(dnnl_cpu_isa_avx512_core_bf16); }

/* The best of what both versions of oneDNN name. */
void ls_gemm_library_describe(char *out, size_t n)
{
    static const struct { dnnl_cpu_isa_t isa; const char *name; } known[] = {
        { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },   { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
        { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" }, { dnnl_cpu_isa_avx512_core, "avx512_core" },
        { dnnl_cpu_isa_avx2, "avx2" },                         { dnnl_cpu_isa_avx, "avx" },
        { dnnl_cpu_isa_sse41, "sse41" },
    };
    const dnnl_version_t *v = dnnl_version();
    const char *best = "no vectors";
    for (size_t i = sizeof known / sizeof *known; i-- > 0;)
        if (has(known[i].isa)) best = known[i].name;
    snprintf(out, n, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch, best);
}

const char *ls_gemm_library_way(int i) { return i >= 0 && i < WAYS ? way_names[i] : NULL; }
void ls_gemm_library_force(ls_gemm_library *l, int i) { l->forced = i; }

static LS_COLD ls_status refused(dnnl_status_t got, const char *doing)
{
    const ls_status code = got == dnnl_out_of_memory ? LS_NO_MEMORY : LS_INTERNAL;
    return ls_fail(code, "oneDNN: %s failed with status %d", doing, (int)got);
}

ls_status ls_gemm_library_open(ls_gemm_library **out)
{
    *out = NULL;
    ls_gemm_library *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "oneDNN's context");
    l->forced = -1;
    dnnl_status_t got = dnnl_engine_create(&l->engine, dnnl_cpu, 0);
    if (got == dnnl_success) got = dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags);
    if (got != dnnl_success) {
        ls_gemm_library_close(l);
        return refused(got, "creating an engine");
    }
    *out = l;
    return LS_OK;
}

static void release_prepared(prepared *p, int threads)
{
    for (int t = 0; p->memory && t < threads; t++)
        for (int i = 0; i < OPERANDS; i++)
            if (p->memory[t][i]) dnnl_memory_destroy(p->memory[t][i]);
    free(p->memory);
    if (p->run) dnnl_primitive_destroy(p->run);
}

static void release(product *p)
{
    release_prepared(&p->whole, p->threads);
    release_prepared(&p->last, p->threads);
    if (p->packed) dnnl_memory_destroy(p->packed);
    if (p->plain) dnnl_memory_destroy(p->plain);
    if (p->pack_scratch) dnnl_memory_destroy(p->pack_scratch);
    if (p->pack) dnnl_primitive_destroy(p->pack);
}

void ls_gemm_library_close(ls_gemm_library *l)
{
    if (!l) return;
    for (int i = 0; i < l->n; i++) release(&l->item[i]);
    if (l->stream) dnnl_stream_destroy(l->stream);
    if (l->engine) dnnl_engine_destroy(l->engine);
    free(l->scratch);
    free(l->item);
    free(l);
}

/* --- oneDNN 2 and 3 describe matrices in different words ------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t description;

static dnnl_status_t describe_strided(description *out, dnnl_data_type_t type, const dnnl_dims_t dims,
                                      const dnnl_dims_t strides)
{
    dnnl_memory_desc_t md = NULL;
    const dnnl_status_t got = dnnl_memory_desc_create_with_strides(&md, 2, dims, type, strides);
    *out = md;
    return got;
}

static dnnl_status_t describe_any(description *out, dnnl_data_type_t type, const dnnl_dims_t dims)
{
    dnnl_memory_desc_t md = NULL;
    const dnnl_status_t got = dnnl_memory_desc_create_with_tag(&md, 2, dims, type, dnnl_format_tag_any);
    *out = md;
    return got;
}

static dnnl_status_t describe_as(description *out, dnnl_memory_t memory)
{
    const_dnnl_memory_desc_t from;
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t got = dnnl_memory_get_memory_desc(memory, &from);
    if (got == dnnl_success) got = dnnl_memory_desc_clone(&md, from);
    *out = md;
    return got;
}

static void forget(description d)
{
    if (d) dnnl_memory_desc_destroy((dnnl_memory_desc_t)d);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                     dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[A], d[B], d[BIAS], d[C], attr);
}
#else
typedef const dnnl_memory_desc_t *description;

static dnnl_status_t describe_strided(description *out, dnnl_data_type_t type, const dnnl_dims_t dims,
                                      const dnnl_dims_t strides)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    *out = md;
    return md ? dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides) : dnnl_out_of_memory;
}

static dnnl_status_t describe_any(description *out, dnnl_data_type_t type, const dnnl_dims_t dims)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    *out = md;
    return md ? dnnl_memory_desc_init_by_tag(md, 2, dims, type, dnnl_format_tag_any) : dnnl_out_of_memory;
}

static dnnl_status_t describe_as(description *out, dnnl_memory_t memory)
{
    const dnnl_memory_desc_t *from;
    const dnnl_status_t got = dnnl_memory_get_memory_desc(memory, &from);
    if (got != dnnl_success) return got;
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    if (md) *md = *from;
    *out = md;
    return md ? dnnl_success : dnnl_out_of_memory;
}

static void forget(description d) { free((dnnl_memory_desc_t *)d); }

static dnnl_status_t append_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1.0f); }

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                     dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    const dnnl_status_t got = dnnl_matmul_desc_init(&matmul, d[A], d[B], d[BIAS], d[C]);
    return got == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : got;
}
#endif

/* --- preparing a shape ------------------------------------------------------------- */

/* --- pieces ------------------------------------------------------------------------- */

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }

/* Powers of two, so that 2, 4 and 8 threads have as much to do. */
static int pieces_of(int64_t n, int64_t unit)
{
    int pieces = 1;
    while (pieces < MOST_PIECES && n / (2 * pieces) >= 2 * pieces * unit) pieces *= 2;
    return pieces;
}

/* The longer side, of SGEMM; rows of others, because only dense matrices are fast. Across, where rows are few, C is
 * copied. */
static cut cut_of(const ls_gemm_call *c, way by)
{
    const int64_t unit = by == SGEMM ? SGEMM_PIECE : PIECE;
    const int down = pieces_of(c->m, unit), across = pieces_of(c->n, unit);
    const bool dense = c->trans_b && !c->trans_a && !c->add && !c->packed;
    cut at = { .rows = c->m, .columns = c->n, .pieces = 1 };
    at.across = by == SGEMM ? c->n > c->m : dense && down < 4 && across > down;
    int64_t *side = at.across ? &at.columns : &at.rows;
    const int64_t whole = *side, parts = at.across ? across : down;
    if (parts == 1) return at;
    *side = ((whole + parts - 1) / parts + UNIT - 1) / UNIT * UNIT;
    at.pieces = (int)((whole + *side - 1) / *side);
    return at;
}

static bool can(way w, const ls_gemm_call *c) { return w == MATMUL || c->in == LS_F32; }
bool ls_gemm_library_can(int i, const ls_gemm_call *c) { return can((way)i, c); }

/* SGEMM is 1.0 to 1.2 times as fast as a matmul of floats where B is not transposed (bench_gemm), and has no bias. */
static way choose(const ls_gemm_library *l, const ls_gemm_call *c)
{
    if (c->packed) return MATMUL;
    if (l->forced >= 0 && can((way)l->forced, c)) return (way)l->forced;
    if (c->in == LS_BF16) return MATMUL;
    return c->bias || c->trans_b ? MATMUL : SGEMM;
}

/* A matrix [rows, columns], of whose stored rows each begins `row` elements after the last; stored transposed when
 * `transposed`. */
static dnnl_status_t describe(description *out, ls_dtype dtype, int64_t rows, int64_t columns, int64_t row,
                              bool transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : row, transposed ? row : 1 };
    return describe_strided(out, dtype == LS_BF16 ? dnnl_bf16 : dnnl_f32, dims, strides);
}

static dnnl_status_t describe_packed(description *out, const ls_gemm_call *c, dnnl_memory_t as)
{
    if (as) return describe_as(out, as);
    return describe_any(out, c->in == LS_BF16 ? dnnl_bf16 : dnnl_f32, (const dnnl_dims_t){ c->k, c->n });
}

/* Of a piece [m, n]. `packed`: how packed weights lie, NULL where this piece is the one to choose. */
static dnnl_status_t describe_operands(const product *p, int64_t m, int64_t n, dnnl_memory_t packed,
                                       description d[OPERANDS])
{
    const ls_gemm_call *c = &p->key;
    dnnl_status_t got = describe(&d[A], c->in, m, c->k, c->trans_a ? c->m : c->k, c->trans_a);
    if (got == dnnl_success && !c->packed) got = describe(&d[B], c->in, c->k, n, c->trans_b ? c->k : n, c->trans_b);
    if (got == dnnl_success && c->packed) got = describe_packed(&d[B], c, packed);
    if (got == dnnl_success && c->bias) got = describe(&d[BIAS], LS_F32, 1, n, n, false);
    if (got == dnnl_success) got = describe(&d[C], c->out, m, n, n, false);
    return got;
}

/* B as the product wants it, and the way from B as it is. */
static dnnl_status_t prepare_packing(ls_gemm_library *l, product *out, dnnl_primitive_desc_t product_desc)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    description plain = NULL;
    const ls_gemm_call *c = &out->key;
    const int threads = ls_threads_limit(out->threads); /* a copy has the same bits whoever makes it */
    const description packed = dnnl_primitive_desc_query_md(product_desc, dnnl_query_weights_md, 0);
    dnnl_status_t got = dnnl_memory_create(&out->packed, packed, l->engine, DNNL_MEMORY_NONE);
    if (got == dnnl_success) got = describe(&plain, c->in, c->k, c->n, c->trans_b ? c->k : c->n, c->trans_b);
    if (got == dnnl_success) got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && !dnnl_memory_desc_equal(plain, packed)) {
        out->packed_bytes = dnnl_memory_desc_get_size(packed);
        got = dnnl_reorder_primitive_desc_create(&desc, plain, l->engine, packed, l->engine, attr);
        if (got == dnnl_success) got = dnnl_primitive_create(&out->pack, desc);
        if (got == dnnl_success) got = dnnl_memory_create(&out->plain, plain, l->engine, DNNL_MEMORY_NONE);
        if (got == dnnl_success) {
            const description scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
            const size_t bytes = dnnl_memory_desc_get_size(scratch);
            if (bytes > out->scratch_bytes) out->scratch_bytes = bytes;
            got = dnnl_memory_create(&out->pack_scratch, scratch, l->engine, DNNL_MEMORY_NONE);
        }
    }
    forget(plain);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    ls_threads_limit(threads);
    return got;
}

/* Memory objects of one piece, for each thread. */
static dnnl_status_t prepare_memory(ls_gemm_library *l, product *p, prepared *to, const description d[OPERANDS])
{
    to->memory = calloc((size_t)p->threads, sizeof *to->memory);
    if (!to->memory) return dnnl_out_of_memory;
    for (int t = 0; t < p->threads; t++)
        for (int i = 0; i < OPERANDS; i++) {
            const dnnl_status_t got =
                d[i] ? dnnl_memory_create(&to->memory[t][i], d[i], l->engine, DNNL_MEMORY_NONE) : dnnl_success;
            if (got != dnnl_success) return got;
        }
    return dnnl_success;
}

/* Pieces [m, n]. */
static dnnl_status_t prepare_piece(ls_gemm_library *l, product *p, prepared *to, int64_t m, int64_t n)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t desc = NULL;
    description d[OPERANDS] = { NULL };
    const ls_gemm_call *c = &p->key;

    dnnl_status_t got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && c->add) {
        got = dnnl_post_ops_create(&post);
        if (got == dnnl_success) got = append_sum(post);
        if (got == dnnl_success) got = dnnl_primitive_attr_set_post_ops(attr, post);
    }
    if (got == dnnl_success) got = describe_operands(p, m, n, p->packed, d);
    if (got == dnnl_success) got = describe_matmul(&desc, l->engine, d, attr);
    if (got == dnnl_success) got = dnnl_primitive_create(&to->run, desc);
    if (got == dnnl_success) {
        description used[OPERANDS];
        memcpy(used, d, sizeof used);
        if (c->packed) used[B] = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
        used[SCRATCH] = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        const size_t bytes = dnnl_memory_desc_get_size(used[SCRATCH]);
        if (bytes > p->scratch_bytes) p->scratch_bytes = bytes;
        got = prepare_memory(l, p, to, used);
    }
    if (got == dnnl_success && c->packed && !p->packed) got = prepare_packing(l, p, desc);

    for (int i = 0; i < OPERANDS; i++) forget(d[i]);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return got;
}

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes of scratch memory for all threads. */
static size_t scratch_of_all(const product *p)
{
    return (size_t)p->threads * (whole_lines(p->scratch_bytes) + p->copy_bytes);
}

static size_t element_bytes(ls_dtype dtype) { return dtype == LS_BF16 ? sizeof(uint16_t) : sizeof(float); }

static dnnl_status_t prepare(ls_gemm_library *l, product *out)
{
    const ls_gemm_call *c = &out->key;
    const cut at = out->cut = cut_of(c, MATMUL);
    const int64_t last = at.across ? c->n - (at.pieces - 1) * at.columns : c->m - (at.pieces - 1) * at.rows;
    const int threads = ls_threads_limit(1);
    dnnl_status_t got = prepare_piece(l, out, &out->whole, at.rows, at.columns);
    if (got == dnnl_success && last < (at.across ? at.columns : at.rows))
        got = prepare_piece(l, out, &out->last, at.across ? c->m : last, at.across ? last : c->n);
    ls_threads_limit(threads);
    if (at.pieces > 1 && at.across) out->copy_bytes = whole_lines((size_t)(c->m * at.columns) * element_bytes(c->out));
    return got;
}

static LS_COLD ls_status add_product(ls_gemm_library *l, const product *what, product **out)
{
    product p = *what;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        product *more = realloc(l->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "oneDNN: list of %d products", cap);
        l->item = more;
        l->cap = cap;
    }
    dnnl_status_t got = prepare(l, &p);
    const size_t scratch = scratch_of_all(&p);
    if (got == dnnl_success && scratch > l->scratch_bytes) {
        free(l->scratch);
        l->scratch = aligned_alloc(64, scratch);
        l->scratch_bytes = l->scratch ? scratch : 0;
        if (!l->scratch) got = dnnl_out_of_memory;
    }
    if (got != dnnl_success) {
        release(&p);
        return refused(got, "preparing a matrix product");
    }
    l->item[l->n] = p;
    *out = &l->item[l->n++];
    return LS_OK;
}

static bool same(const product *x, const product *y)
{
    const ls_gemm_call *a = &x->key, *b = &y->key;
    return a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->add == b->add && a->in == b->in && a->out == b->out && !a->bias == !b->bias && !a->packed == !b->packed &&
           x->threads == y->threads;
}

/* --- running it ------------------------------------------------------------------------ */

/* A product that is being run; pieces leave how they ended. */
typedef struct running {
    ls_gemm_library *l;
    const ls_gemm_call *call;
    const product *product; /* NULL: SGEMM */
    cut cut;
    dnnl_status_t got[MOST_PIECES];
} running;

LS_KERNEL static void add_row(float *restrict to, const float *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) to[j] += x[j];
}

static void run_sgemm(running *r, int i)
{
    const ls_gemm_call *c = r->call;
    const int64_t row = r->cut.across ? 0 : i * r->cut.rows, column = r->cut.across ? i * r->cut.columns : 0;
    const int64_t m = less(r->cut.rows, c->m - row), n = less(r->cut.columns, c->n - column);
    const float *a = (const float *)c->a + row * (c->trans_a ? 1 : c->k);
    const float *b = (const float *)c->b + column * (c->trans_b ? c->k : 1);
    float *to = (float *)c->c + row * c->n + column;
    for (int64_t j = 0; c->bias && j < m; j++) /* it knows no bias: C begins with it */
        if (c->add) add_row(to + j * c->n, c->bias + column, n);
        else memcpy(to + j * c->n, c->bias + column, (size_t)n * sizeof *to);
    r->got[i] = dnnl_sgemm(c->trans_a ? 'T' : 'N', c->trans_b ? 'T' : 'N', m, n, c->k, 1.0f, a,
                           c->trans_a ? c->m : c->k, b, c->trans_b ? c->k : c->n, c->add || c->bias ? 1.0f : 0.0f, to,
                           c->n);
}

static void copy_rows(char *to, size_t to_row, const char *from, size_t from_row, int64_t rows, size_t bytes)
{
    for (int64_t i = 0; i < rows; i++) memcpy(to + (size_t)i * to_row, from + (size_t)i * from_row, bytes);
}

static void run_primitive(running *r, int i)
{
    const ls_gemm_call *c = r->call;
    const product *p = r->product;
    const size_t in = element_bytes(c->in), out = element_bytes(c->out);
    const int64_t row = r->cut.across ? 0 : i * r->cut.rows, column = r->cut.across ? i * r->cut.columns : 0;
    const int64_t m = less(r->cut.rows, c->m - row), n = less(r->cut.columns, c->n - column);
    const prepared *by = m < r->cut.rows || n < r->cut.columns ? &p->last : &p->whole;
    const int me = ls_thread_index();
    char *scratch = r->l->scratch + (size_t)me * (whole_lines(p->scratch_bytes) + p->copy_bytes);
    char *copy = scratch + whole_lines(p->scratch_bytes), *to = (char *)c->c + (size_t)(row * c->n + column) * out;
    const char *a = (const char *)c->a + (size_t)(row * (c->trans_a ? 1 : c->k)) * in;
    const char *b = c->packed ? c->packed : (const char *)c->b + (size_t)(column * c->k) * in;
    const float *bias = c->bias ? c->bias + column : NULL;

    /* oneDNN's handles are not const; it writes to C and the scratchpad only. */
    void *operand[OPERANDS] = { [C] = n < c->n ? copy : to, [SCRATCH] = scratch };
    memcpy(&operand[A], &a, sizeof a);
    memcpy(&operand[B], &b, sizeof b);
    memcpy(&operand[BIAS], &bias, sizeof bias);
    dnnl_exec_arg_t args[OPERANDS];
    int nargs = 0;
    for (int o = 0; o < OPERANDS; o++) {
        const dnnl_memory_t memory = by->memory[me][o];
        if (!memory) continue;
        r->got[i] = dnnl_memory_set_data_handle(memory, operand[o]);
        if (r->got[i] != dnnl_success) return;
        args[nargs++] = (dnnl_exec_arg_t){ argument[o], memory };
    }
    r->got[i] = dnnl_primitive_execute(by->run, r->l->stream, nargs, args);
    if (n < c->n) copy_rows(to, (size_t)c->n * out, copy, (size_t)n * out, m, (size_t)n * out);
}

static void run_piece(running *r, int i)
{
    if (r->product) run_primitive(r, i);
    else run_sgemm(r, i);
}

/* oneDNN, too, finds one thread: within a team by itself, else because that is the limit. */
static ls_status run_pieces(running *r)
{
    const int pieces = r->cut.pieces;
    if (pieces > 1 && ls_thread_count() > 1) {
        LS_THREADS_FOR(true, for (int i = 0; i < pieces; i++) run_piece(r, i););
    } else {
        const int threads = ls_threads_limit(1);
        for (int i = 0; i < pieces; i++) run_piece(r, i);
        ls_threads_limit(threads);
    }
    for (int i = 0; i < pieces; i++)
        if (r->got[i] != dnnl_success) return refused(r->got[i], "a matrix product");
    return LS_OK;
}

static ls_status find_product(ls_gemm_library *l, const ls_gemm_call *c, product **out)
{
    const product wanted = { .key = *c, .threads = ls_thread_count() };
    for (int i = 0; i < l->n; i++)
        if (same(&l->item[i], &wanted)) {
            *out = &l->item[i];
            return LS_OK;
        }
    return add_product(l, &wanted, out);
}

/* What the packed layout gains, and where: docs/performance.md. */
bool ls_gemm_library_packs(const ls_gemm_call *c)
{
    return c->in == LS_BF16 || c->bias || c->trans_b;
}

ls_status ls_gemm_library_pack(ls_gemm_library *l, const ls_gemm_call *c, void *to, size_t room, bool *done)
{
    ls_gemm_call packed = *c;
    product *p;
    packed.packed = to;
    LS_TRY(find_product(l, &packed, &p));
    *done = p->packed_bytes > 0 && p->packed_bytes <= room;
    if (!*done) return LS_OK;
    void *from; /* oneDNN's handles are not const */
    memcpy(&from, &c->b, sizeof from);
    dnnl_status_t got = dnnl_memory_set_data_handle(p->plain, from);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->packed, to);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->pack_scratch, l->scratch);
    if (got != dnnl_success) return refused(got, "naming an operand");
    const dnnl_exec_arg_t args[] = {
        { DNNL_ARG_FROM, p->plain }, { DNNL_ARG_TO, p->packed }, { DNNL_ARG_SCRATCHPAD, p->pack_scratch },
    };
    got = dnnl_primitive_execute(p->pack, l->stream, 3, args);
    return got == dnnl_success ? LS_OK : refused(got, "packing a weight");
}

ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *c)
{
    const way by = choose(l, c);
    product *p = NULL;
    if (by != SGEMM) LS_TRY(find_product(l, c, &p));
    running r = { .l = l, .call = c, .product = p, .cut = p ? p->cut : cut_of(c, SGEMM) };
    return run_pieces(&r);
}
#else
typedef int ls_gemm_dnnl_empty; /* gemm_blas.c is built instead */
#endif
