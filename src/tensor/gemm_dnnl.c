/* gemm_dnnl.c -- large matrix products by oneDNN's C interface.
 *
 * Preparing a product costs oneDNN 5 to 500 us, running it 0.3 us: so each
 * shape is prepared once and its memory objects are pointed at the operands
 * of the call. oneDNN has several primitives for the same product, which differ
 * by up to 1.5x: choose() knows which is the fast one.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/gemm.h"
#include "tensor/threads.h"

/* MATMUL can do everything; SGEMM float without bias; INNER what a linear layer's gradient of its weight is. */
typedef enum way { MATMUL, SGEMM, INNER, WAYS } way;
static const char *const way_names[WAYS] = { "matmul", "sgemm", "inner_product" };

enum { A, B, BIAS, C, SCRATCH, OPERANDS };
static const int argument[WAYS][OPERANDS] = {
    [MATMUL] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD },
    [INNER] = { DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, 0, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_SCRATCHPAD },
};

/* One shape, ready to run with so many threads. */
typedef struct product {
    ls_gemm_call key; /* of its pointers only bias and packed count: with or without */
    way way;
    int threads;
    dnnl_primitive_t run;
    dnnl_memory_t memory[OPERANDS]; /* NULL where the product has none */
    size_t scratch_bytes;
    /* of packed weights */
    dnnl_primitive_t pack;     /* plain B to memory[B] */
    dnnl_memory_t plain, pack_scratch;
    size_t packed_bytes;       /* of memory[B]; 0: the library likes B as it is */
} product;

struct ls_gemm_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    product *item; /* owned */
    int n, cap;
    void *scratch; /* owned, shared by all products: they run one after the other */
    size_t scratch_bytes;
    int forced;    /* way; -1: choose */
};

const char *ls_gemm_library_name(void) { return "oneDNN"; }

bool ls_gemm_library_has_bf16(void)
{
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa(), wanted = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return (has & wanted) == wanted;
}

/* The best of what both versions of oneDNN name. */
void ls_gemm_library_describe(char *out, size_t n)
{
    static const struct { dnnl_cpu_isa_t isa; const char *name; } known[] = {
        { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },   { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
        { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" }, { dnnl_cpu_isa_avx512_core, "avx512_core" },
        { dnnl_cpu_isa_avx2, "avx2" },                         { dnnl_cpu_isa_avx, "avx" },
        { dnnl_cpu_isa_sse41, "sse41" },
    };
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa();
    const dnnl_version_t *v = dnnl_version();
    const char *best = "no vectors";
    for (size_t i = sizeof known / sizeof *known; i-- > 0;)
        if ((has & (unsigned)known[i].isa) == (unsigned)known[i].isa) best = known[i].name;
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

static void release(product *p)
{
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i]) dnnl_memory_destroy(p->memory[i]);
    if (p->run) dnnl_primitive_destroy(p->run);
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

/* `weights`: C as the forward pass would have it, its type that of A and B. */
static dnnl_status_t describe_inner(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                    description weights, dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t got = dnnl_inner_product_forward_primitive_desc_create(&hint, engine, dnnl_forward_training, d[B],
                                                                         weights, NULL, d[A], attr);
    if (got == dnnl_success)
        got = dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, d[B], d[C], NULL, d[A], hint,
                                                                        attr);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return got;
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

static void forget(description d) { free((dnnl_memory_desc_t *)d); }

static dnnl_status_t append_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1.0f); }

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                     dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    const dnnl_status_t got = dnnl_matmul_desc_init(&matmul, d[A], d[B], d[BIAS], d[C]);
    return got == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : got;
}

/* `weights`: C as the forward pass would have it, its type that of A and B. */
static dnnl_status_t describe_inner(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                    description weights, dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t forward, backward;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t got =
        dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, d[B], weights, NULL, d[A]);
    if (got == dnnl_success) got = dnnl_primitive_desc_create(&hint, &forward, attr, engine, NULL);
    if (got == dnnl_success) got = dnnl_inner_product_backward_weights_desc_init(&backward, d[B], d[C], NULL, d[A]);
    if (got == dnnl_success) got = dnnl_primitive_desc_create(out, &backward, attr, engine, hint);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return got;
}
#endif

/* --- preparing a shape ------------------------------------------------------------- */

/* A weight of one row it would sum in parts, one for each thread. */
static bool can(way w, const ls_gemm_call *c)
{
    switch (w) {
    case SGEMM: return c->in == LS_F32 && !c->bias;
    case INNER: return c->trans_a && !c->trans_b && !c->add && !c->bias && c->out == LS_F32 && c->m > 1;
    default: return true;
    }
}

bool ls_gemm_library_can(int i, const ls_gemm_call *c) { return can((way)i, c); }

/* Best of 9, GFLOP/s of one thread (GPT-2 124M, 256 tokens; bench_gemm gpt; peak 117 float, 234 bfloat16):
 *
 *                  float: matmul  sgemm  inner_product     bfloat16: matmul  inner_product
 *   forward  qkv             100      -              -                  197              -
 *            fc2             104      -              -                  210              -
 *   dx       qkv             100    106              -                  196              -
 *            fc2              98    100              -                  194              -
 *            head             85    107              -                  195              -
 *   dw       qkv              92     98             82                  179            210
 *            fc1              98    101            102                  193            212
 *            head            100    104            102                  194            202
 *   dw, add  qkv              86     97              -                  163              -
 *
 * Measured for 256 tokens; of 1024 only the first shapes were, in the same order but for dw of floats, where
 * inner_product was 1 to 3 ahead. bench_gemm measures any shape by each way. */
static way choose(const ls_gemm_library *l, const ls_gemm_call *c)
{
    if (c->packed) return MATMUL;
    if (l->forced >= 0 && can((way)l->forced, c)) return (way)l->forced;
    if (c->in == LS_BF16) return can(INNER, c) ? INNER : MATMUL;
    return c->bias || c->trans_b ? MATMUL : SGEMM;
}

/* A dense [rows, columns] matrix; stored transposed when `transposed`. */
static dnnl_status_t describe(description *out, ls_dtype dtype, int64_t rows, int64_t columns, bool transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : columns, transposed ? rows : 1 };
    return describe_strided(out, dtype == LS_BF16 ? dnnl_bf16 : dnnl_f32, dims, strides);
}

static dnnl_status_t describe_operands(const product *p, description d[OPERANDS])
{
    const ls_gemm_call *c = &p->key;
    dnnl_status_t got;
    if (p->way == INNER) { /* A is [N, O], B is [N, I] for it, and C [O, I] */
        got = describe(&d[A], c->in, c->k, c->m, false);
        if (got == dnnl_success) got = describe(&d[B], c->in, c->k, c->n, false);
    } else {
        got = describe(&d[A], c->in, c->m, c->k, c->trans_a);
        if (got == dnnl_success && !c->packed) got = describe(&d[B], c->in, c->k, c->n, c->trans_b);
        if (got == dnnl_success && c->packed)
            got = describe_any(&d[B], c->in == LS_BF16 ? dnnl_bf16 : dnnl_f32, (const dnnl_dims_t){ c->k, c->n });
    }
    if (got == dnnl_success && c->bias) got = describe(&d[BIAS], LS_F32, 1, c->n, false);
    if (got == dnnl_success) got = describe(&d[C], c->out, c->m, c->n, false);
    return got;
}

/* B as the product wants it, and the way from B as it is. */
static dnnl_status_t prepare_packing(ls_gemm_library *l, product *out, dnnl_primitive_desc_t product_desc)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    description plain = NULL;
    const ls_gemm_call *c = &out->key;
    const description packed = dnnl_primitive_desc_query_md(product_desc, dnnl_query_weights_md, 0);
    dnnl_status_t got = dnnl_memory_create(&out->memory[B], packed, l->engine, DNNL_MEMORY_NONE);
    if (got == dnnl_success) got = describe(&plain, c->in, c->k, c->n, c->trans_b);
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
    return got;
}

static dnnl_status_t prepare(ls_gemm_library *l, product *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t desc = NULL;
    description d[OPERANDS] = { NULL }, weights = NULL;
    const ls_gemm_call *c = &out->key;

    dnnl_status_t got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && c->add) {
        got = dnnl_post_ops_create(&post);
        if (got == dnnl_success) got = append_sum(post);
        if (got == dnnl_success) got = dnnl_primitive_attr_set_post_ops(attr, post);
    }
    if (got == dnnl_success) got = describe_operands(out, d);
    if (got == dnnl_success && out->way == INNER) got = describe(&weights, c->in, c->m, c->n, false);
    if (got == dnnl_success)
        got = out->way == INNER ? describe_inner(&desc, l->engine, d, weights, attr)
                                : describe_matmul(&desc, l->engine, d, attr);
    if (got == dnnl_success) got = dnnl_primitive_create(&out->run, desc);
    for (int i = 0; i < SCRATCH && got == dnnl_success; i++)
        if (d[i] && !(i == B && c->packed))
            got = dnnl_memory_create(&out->memory[i], d[i], l->engine, DNNL_MEMORY_NONE);
    if (got == dnnl_success) {
        const description scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        out->scratch_bytes = dnnl_memory_desc_get_size(scratch);
        got = dnnl_memory_create(&out->memory[SCRATCH], scratch, l->engine, DNNL_MEMORY_NONE);
    }
    if (got == dnnl_success && c->packed) got = prepare_packing(l, out, desc);

    for (int i = 0; i < OPERANDS; i++) forget(d[i]);
    forget(weights);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
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
    if (got == dnnl_success && p.scratch_bytes > l->scratch_bytes) {
        free(l->scratch);
        l->scratch = aligned_alloc(64, (p.scratch_bytes + 63) / 64 * 64);
        l->scratch_bytes = l->scratch ? p.scratch_bytes : 0;
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
           x->way == y->way && x->threads == y->threads;
}

/* --- running it ------------------------------------------------------------------------ */

static ls_status run_sgemm(const ls_gemm_call *c)
{
    const dnnl_status_t got = dnnl_sgemm(c->trans_a ? 'T' : 'N', c->trans_b ? 'T' : 'N', c->m, c->n, c->k, 1.0f, c->a,
                                         c->trans_a ? c->m : c->k, c->b, c->trans_b ? c->k : c->n, c->add ? 1.0f : 0.0f,
                                         c->c, c->n);
    return got == dnnl_success ? LS_OK : refused(got, "a matrix product");
}

static ls_status find_product(ls_gemm_library *l, const ls_gemm_call *c, way by, product **out)
{
    const product wanted = { .key = *c, .way = by, .threads = ls_thread_count() };
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
    LS_TRY(find_product(l, &packed, MATMUL, &p));
    *done = p->packed_bytes > 0 && p->packed_bytes <= room;
    if (!*done) return LS_OK;
    void *from; /* oneDNN's handles are not const */
    memcpy(&from, &c->b, sizeof from);
    dnnl_status_t got = dnnl_memory_set_data_handle(p->plain, from);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->memory[B], to);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->pack_scratch, l->scratch);
    if (got != dnnl_success) return refused(got, "naming an operand");
    const dnnl_exec_arg_t args[] = {
        { DNNL_ARG_FROM, p->plain }, { DNNL_ARG_TO, p->memory[B] }, { DNNL_ARG_SCRATCHPAD, p->pack_scratch },
    };
    got = dnnl_primitive_execute(p->pack, l->stream, 3, args);
    return got == dnnl_success ? LS_OK : refused(got, "packing a weight");
}

ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *c)
{
    const way by = choose(l, c);
    if (by == SGEMM) return run_sgemm(c);
    product *p;
    LS_TRY(find_product(l, c, by, &p));

    /* oneDNN's handles are not const; it writes to C and the scratchpad only. */
    void *operand[OPERANDS] = { [C] = c->c, [SCRATCH] = l->scratch };
    memcpy(&operand[A], &c->a, sizeof c->a);
    memcpy(&operand[B], c->packed ? &c->packed : &c->b, sizeof c->b);
    memcpy(&operand[BIAS], &c->bias, sizeof c->bias);
    dnnl_exec_arg_t args[OPERANDS];
    int nargs = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!p->memory[i]) continue;
        dnnl_status_t got = dnnl_memory_set_data_handle(p->memory[i], operand[i]);
        if (got != dnnl_success) return refused(got, "naming an operand");
        args[nargs++] = (dnnl_exec_arg_t){ argument[p->way][i], p->memory[i] };
    }
    dnnl_status_t got = dnnl_primitive_execute(p->run, l->stream, nargs, args);
    return got == dnnl_success ? LS_OK : refused(got, "a matrix product");
}
#else
typedef int ls_gemm_dnnl_empty; /* gemm_blas.c is built instead */
#endif
