/* gemm_dnnl.c -- large matrix products by oneDNN's C interface.
 *
 * Preparing a product costs oneDNN 5 to 500 us, running it 0.3 us: so each
 * shape is prepared once and its memory objects are pointed at the operands
 * of the call.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/gemm.h"

enum { A, B, BIAS, C, SCRATCH, OPERANDS };
static const int argument[OPERANDS] = {
    DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
};

/* One shape, ready to run. */
typedef struct product {
    ls_gemm_call key; /* pointers NULL, but for bias: any other value means "with bias" */
    dnnl_primitive_t run;
    dnnl_memory_t memory[OPERANDS]; /* NULL where the product has none */
    size_t scratch_bytes;
} product;

struct ls_gemm_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    product *item; /* owned */
    int n, cap;
    void *scratch; /* owned, shared by all products: they run one after the other */
    size_t scratch_bytes;
};

const char *ls_gemm_library_name(void) { return "oneDNN"; }

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

static dnnl_status_t describe_strided(description *out, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t md = NULL;
    const dnnl_status_t got = dnnl_memory_desc_create_with_strides(&md, 2, dims, dnnl_f32, strides);
    *out = md;
    return got;
}

static void forget(description d)
{
    if (d) dnnl_memory_desc_destroy((dnnl_memory_desc_t)d);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_f32); }

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const description d[OPERANDS],
                                     dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[A], d[B], d[BIAS], d[C], attr);
}
#else
typedef const dnnl_memory_desc_t *description;

static dnnl_status_t describe_strided(description *out, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    *out = md;
    return md ? dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_f32, strides) : dnnl_out_of_memory;
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

/* A dense [rows, columns] matrix; stored transposed when `transposed`. */
static dnnl_status_t describe(description *out, int64_t rows, int64_t columns, bool transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : columns, transposed ? rows : 1 };
    return describe_strided(out, dims, strides);
}

static dnnl_status_t prepare(ls_gemm_library *l, const ls_gemm_call *c, product *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t desc = NULL;
    description d[OPERANDS] = { NULL };

    dnnl_status_t got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && c->add) {
        got = dnnl_post_ops_create(&post);
        if (got == dnnl_success) got = append_sum(post);
        if (got == dnnl_success) got = dnnl_primitive_attr_set_post_ops(attr, post);
    }
    if (got == dnnl_success) got = describe(&d[A], c->m, c->k, c->trans_a);
    if (got == dnnl_success) got = describe(&d[B], c->k, c->n, c->trans_b);
    if (got == dnnl_success && c->bias) got = describe(&d[BIAS], 1, c->n, false);
    if (got == dnnl_success) got = describe(&d[C], c->m, c->n, false);
    if (got == dnnl_success) got = describe_matmul(&desc, l->engine, d, attr);
    if (got == dnnl_success) got = dnnl_primitive_create(&out->run, desc);
    for (int i = 0; i < SCRATCH && got == dnnl_success; i++)
        if (d[i]) got = dnnl_memory_create(&out->memory[i], d[i], l->engine, DNNL_MEMORY_NONE);
    if (got == dnnl_success) {
        const description scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        out->scratch_bytes = dnnl_memory_desc_get_size(scratch);
        got = dnnl_memory_create(&out->memory[SCRATCH], scratch, l->engine, DNNL_MEMORY_NONE);
    }

    for (int i = 0; i < OPERANDS; i++) forget(d[i]);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return got;
}

static LS_COLD ls_status add_product(ls_gemm_library *l, const ls_gemm_call *c, product **out)
{
    product p = { .key = *c };
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        product *more = realloc(l->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "oneDNN: list of %d products", cap);
        l->item = more;
        l->cap = cap;
    }
    dnnl_status_t got = prepare(l, c, &p);
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

static bool same(const ls_gemm_call *x, const ls_gemm_call *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->trans_a == y->trans_a && x->trans_b == y->trans_b &&
           x->add == y->add && !x->bias == !y->bias;
}

/* --- running it ------------------------------------------------------------------------ */

ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *c)
{
    product *p = NULL;
    for (int i = 0; i < l->n && !p; i++)
        if (same(&l->item[i].key, c)) p = &l->item[i];
    if (!p) LS_TRY(add_product(l, c, &p));

    /* oneDNN's handles are not const; it writes to C and the scratchpad only. */
    void *operand[OPERANDS] = { [C] = c->c, [SCRATCH] = l->scratch };
    memcpy(&operand[A], &c->a, sizeof c->a);
    memcpy(&operand[B], &c->b, sizeof c->b);
    memcpy(&operand[BIAS], &c->bias, sizeof c->bias);
    dnnl_exec_arg_t args[OPERANDS];
    int nargs = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!p->memory[i]) continue;
        dnnl_status_t got = dnnl_memory_set_data_handle(p->memory[i], operand[i]);
        if (got != dnnl_success) return refused(got, "naming an operand");
        args[nargs++] = (dnnl_exec_arg_t){ argument[i], p->memory[i] };
    }
    dnnl_status_t got = dnnl_primitive_execute(p->run, l->stream, nargs, args);
    return got == dnnl_success ? LS_OK : refused(got, "a matrix product");
}
#else
typedef int ls_gemm_dnnl_empty; /* gemm_blas.c is built instead */
#endif
