/* gemm_dnnl_prepare.c -- oneDNN's primitives for one shape of product.
 *
 * Each piece of C is a matmul of its own (gemm_dnnl_cut.c), prepared for one thread; each of our threads has memory
 * objects and scratch memory of its own to run it with.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <stdlib.h>
#include <string.h>

#include "tensor/gemm_dnnl.h"
#include "tensor/threads.h"

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static void release_prepared(ls_dnnl_prepared *p, int threads)
{
    for (int t = 0; p->memory && t < threads; t++)
        for (int i = 0; i < LS_DNNL_OPERANDS; i++)
            if (p->memory[t][i]) dnnl_memory_destroy(p->memory[t][i]);
    free(p->memory);
    if (p->run) dnnl_primitive_destroy(p->run);
}

void ls_dnnl_release(ls_dnnl_product *p)
{
    release_prepared(&p->whole, p->threads);
    release_prepared(&p->last, p->threads);
    if (p->packed) dnnl_memory_destroy(p->packed);
    if (p->plain) dnnl_memory_destroy(p->plain);
    if (p->pack_scratch) dnnl_memory_destroy(p->pack_scratch);
    if (p->pack) dnnl_primitive_destroy(p->pack);
}

/* A matrix [rows, columns], of whose stored rows each begins `row` elements after the last; stored transposed when
 * `transposed`. */
static dnnl_status_t describe(ls_dnnl_description *out, ls_dtype dtype, int64_t rows, int64_t columns, int64_t row,
                              bool transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : row, transposed ? row : 1 };
    return ls_dnnl_describe_strided(out, dtype == LS_BF16 ? dnnl_bf16 : dnnl_f32, 2, dims, strides);
}

static dnnl_status_t describe_packed(ls_dnnl_description *out, const ls_gemm_call *c, dnnl_memory_t as)
{
    if (as) return ls_dnnl_describe_as(out, as);
    return ls_dnnl_describe_any(out, c->in == LS_BF16 ? dnnl_bf16 : dnnl_f32, (const dnnl_dims_t){ c->k, c->n });
}

/* Of a piece [m, n]. `packed`: how packed weights lie, NULL where this piece is the one to choose. */
static dnnl_status_t describe_operands(const ls_dnnl_product *p, int64_t m, int64_t n, dnnl_memory_t packed,
                                       ls_dnnl_description d[LS_DNNL_OPERANDS])
{
    const ls_gemm_call *c = &p->key;
    const int64_t a_row = !c->trans_a ? c->k : p->cut.dense_a ? m : c->m;
    dnnl_status_t got = describe(&d[LS_DNNL_A], c->in, m, c->k, a_row, c->trans_a);
    if (got == dnnl_success && !c->packed)
        got = describe(&d[LS_DNNL_B], c->in, c->k, n, c->trans_b ? c->k : n, c->trans_b);
    if (got == dnnl_success && c->packed) got = describe_packed(&d[LS_DNNL_B], c, packed);
    if (got == dnnl_success && c->bias) got = describe(&d[LS_DNNL_BIAS], LS_F32, 1, n, n, false);
    if (got == dnnl_success) got = describe(&d[LS_DNNL_C], c->out, m, n, n, false);
    return got;
}

/* B as the product wants it, and the way from B as it is. */
static dnnl_status_t prepare_packing(dnnl_engine_t engine, ls_dnnl_product *out, dnnl_primitive_desc_t product_desc)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    ls_dnnl_description plain = NULL;
    const ls_gemm_call *c = &out->key;
    const ls_dnnl_description packed = dnnl_primitive_desc_query_md(product_desc, dnnl_query_weights_md, 0);
    dnnl_status_t got = dnnl_memory_create(&out->packed, packed, engine, DNNL_MEMORY_NONE);
    if (got == dnnl_success) got = describe(&plain, c->in, c->k, c->n, c->trans_b ? c->k : c->n, c->trans_b);
    if (got == dnnl_success) got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && !dnnl_memory_desc_equal(plain, packed)) {
        out->packed_bytes = dnnl_memory_desc_get_size(packed);
        got = dnnl_reorder_primitive_desc_create(&desc, plain, engine, packed, engine, attr);
        if (got == dnnl_success) got = dnnl_primitive_create(&out->pack, desc);
        if (got == dnnl_success) got = dnnl_memory_create(&out->plain, plain, engine, DNNL_MEMORY_NONE);
        if (got == dnnl_success) {
            const ls_dnnl_description scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
            const size_t bytes = dnnl_memory_desc_get_size(scratch);
            if (bytes > out->scratch_bytes) out->scratch_bytes = bytes;
            got = dnnl_memory_create(&out->pack_scratch, scratch, engine, DNNL_MEMORY_NONE);
        }
    }
    ls_dnnl_forget(plain);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return got;
}

/* Memory objects of one piece, for each thread. */
static dnnl_status_t prepare_memory(dnnl_engine_t engine, ls_dnnl_product *p, ls_dnnl_prepared *to,
                                    const ls_dnnl_description d[LS_DNNL_OPERANDS])
{
    to->memory = calloc((size_t)p->threads, sizeof *to->memory);
    if (!to->memory) return dnnl_out_of_memory;
    for (int t = 0; t < p->threads; t++)
        for (int i = 0; i < LS_DNNL_OPERANDS; i++) {
            const dnnl_status_t got =
                d[i] ? dnnl_memory_create(&to->memory[t][i], d[i], engine, DNNL_MEMORY_NONE) : dnnl_success;
            if (got != dnnl_success) return got;
        }
    return dnnl_success;
}

/* Pieces [m, n]. */
static dnnl_status_t prepare_piece(dnnl_engine_t engine, ls_dnnl_product *p, ls_dnnl_prepared *to, int64_t m, int64_t n)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t desc = NULL;
    ls_dnnl_description d[LS_DNNL_OPERANDS] = { NULL };
    const ls_gemm_call *c = &p->key;

    dnnl_status_t got = dnnl_primitive_attr_create(&attr);
    if (got == dnnl_success) got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && c->add) {
        got = dnnl_post_ops_create(&post);
        if (got == dnnl_success) got = ls_dnnl_append_sum(post);
        if (got == dnnl_success) got = dnnl_primitive_attr_set_post_ops(attr, post);
    }
    if (got == dnnl_success) got = describe_operands(p, m, n, p->packed, d);
    if (got == dnnl_success) got = ls_dnnl_describe_matmul(&desc, engine, d, attr);
    if (got == dnnl_success) got = dnnl_primitive_create(&to->run, desc);
    if (got == dnnl_success) {
        ls_dnnl_description used[LS_DNNL_OPERANDS];
        memcpy(used, d, sizeof used);
        if (c->packed) used[LS_DNNL_B] = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
        used[LS_DNNL_SCRATCH] = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        const size_t bytes = dnnl_memory_desc_get_size(used[LS_DNNL_SCRATCH]);
        if (bytes > p->scratch_bytes) p->scratch_bytes = bytes;
        got = prepare_memory(engine, p, to, used);
    }
    if (got == dnnl_success && c->packed && !p->packed) got = prepare_packing(engine, p, desc);

    for (int i = 0; i < LS_DNNL_OPERANDS; i++) ls_dnnl_forget(d[i]);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return got;
}

dnnl_status_t ls_dnnl_prepare(dnnl_engine_t engine, ls_dnnl_product *p)
{
    const ls_gemm_call *c = &p->key;
    const ls_dnnl_cut at = p->cut;
    const int64_t last = at.across ? c->n - (at.pieces - 1) * at.columns : c->m - (at.pieces - 1) * at.rows;
    dnnl_status_t got = prepare_piece(engine, p, &p->whole, at.rows, at.columns);
    if (got == dnnl_success && last < (at.across ? at.columns : at.rows))
        got = prepare_piece(engine, p, &p->last, at.across ? c->m : last, at.across ? last : c->n);
    p->scratch_bytes = whole_lines(p->scratch_bytes);
    if (at.dense_a) p->copy_bytes = whole_lines((size_t)(c->k * at.rows) * ls_dnnl_element_bytes(c->in));
    if (at.pieces > 1 && at.across)
        p->copy_bytes = whole_lines((size_t)(c->m * at.columns) * ls_dnnl_element_bytes(c->out));
    return got;
}
#else
typedef int ls_gemm_dnnl_prepare_empty; /* gemm_blas.c is built instead */
#endif
