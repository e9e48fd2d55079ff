/* gemm_dnnl_words.c -- oneDNN 2 and 3 describe matrices in different words; here both are one set of functions. */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "tensor/gemm_dnnl.h"

LS_COLD ls_status ls_dnnl_refused(dnnl_status_t got, const char *doing)
{
    const ls_status code = got == dnnl_out_of_memory ? LS_NO_MEMORY : LS_INTERNAL;
    return ls_fail(code, "oneDNN: %s failed with status %d", doing, (int)got);
}

/* Found at run time: a linker that does not see the library which oneDNN needs would resolve a weak symbol to
 * nothing. */
ls_dnnl_openmp ls_dnnl_find_openmp(void)
{
    ls_dnnl_openmp o;
    void *get = ls_env_get()->symbol(NULL, "omp_get_max_threads"), *set = ls_env_get()->symbol(NULL, "omp_set_num_threads");
    memcpy(&o.get, &get, sizeof get); /* C has no cast for it */
    memcpy(&o.set, &set, sizeof set);
    return o;
}

int ls_dnnl_limit_threads(const ls_dnnl_openmp *o, int n)
{
    if (!o->get || !o->set) return 1; /* built without OpenMP */
    const int before = o->get();
    if (n != before) o->set(n);
    return before;
}

#if DNNL_VERSION_MAJOR >= 3
dnnl_status_t ls_dnnl_describe_strided(ls_dnnl_description *out, dnnl_data_type_t type, int ndims,
                                       const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t md = NULL;
    const dnnl_status_t got = dnnl_memory_desc_create_with_strides(&md, ndims, dims, type, strides);
    *out = md;
    return got;
}

dnnl_status_t ls_dnnl_describe_any(ls_dnnl_description *out, dnnl_data_type_t type, const dnnl_dims_t dims)
{
    dnnl_memory_desc_t md = NULL;
    const dnnl_status_t got = dnnl_memory_desc_create_with_tag(&md, 2, dims, type, dnnl_format_tag_any);
    *out = md;
    return got;
}

dnnl_status_t ls_dnnl_describe_as(ls_dnnl_description *out, dnnl_memory_t memory)
{
    const_dnnl_memory_desc_t from;
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t got = dnnl_memory_get_memory_desc(memory, &from);
    if (got == dnnl_success) got = dnnl_memory_desc_clone(&md, from);
    *out = md;
    return got;
}

void ls_dnnl_forget(ls_dnnl_description d)
{
    if (d) dnnl_memory_desc_destroy((dnnl_memory_desc_t)d);
}

dnnl_status_t ls_dnnl_append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t ls_dnnl_describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                      const ls_dnnl_description d[LS_DNNL_OPERANDS], dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[LS_DNNL_A], d[LS_DNNL_B], d[LS_DNNL_BIAS], d[LS_DNNL_C],
                                             attr);
}

dnnl_status_t ls_dnnl_describe_conv(dnnl_primitive_desc_t *out, dnnl_engine_t engine, ls_dnnl_conv_half half,
                                    const ls_dnnl_description d[LS_DNNL_OPERANDS], int64_t stride, int64_t padding,
                                    dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint)
{
    const dnnl_dims_t strides = { stride, stride }, around = { padding, padding }, dense = { 0, 0 };
    const dnnl_alg_kind_t by = dnnl_convolution_direct;
    switch (half) {
    case LS_DNNL_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, by, d[LS_DNNL_A],
                                                              d[LS_DNNL_B], d[LS_DNNL_BIAS], d[LS_DNNL_C], strides,
                                                              dense, around, around, attr);
    case LS_DNNL_BACKWARD_WEIGHT:
        return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, by, d[LS_DNNL_A], d[LS_DNNL_B],
                                                                       d[LS_DNNL_BIAS], d[LS_DNNL_C], strides, dense,
                                                                       around, around, hint, attr);
    default:
        return dnnl_convolution_backward_data_primitive_desc_create(out, engine, by, d[LS_DNNL_A], d[LS_DNNL_B],
                                                                    d[LS_DNNL_C], strides, dense, around, around, hint,
                                                                    attr);
    }
}
#else
dnnl_status_t ls_dnnl_describe_strided(ls_dnnl_description *out, dnnl_data_type_t type, int ndims,
                                       const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    *out = md;
    return md ? dnnl_memory_desc_init_by_strides(md, ndims, dims, type, strides) : dnnl_out_of_memory;
}

dnnl_status_t ls_dnnl_describe_any(ls_dnnl_description *out, dnnl_data_type_t type, const dnnl_dims_t dims)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    *out = md;
    return md ? dnnl_memory_desc_init_by_tag(md, 2, dims, type, dnnl_format_tag_any) : dnnl_out_of_memory;
}

dnnl_status_t ls_dnnl_describe_as(ls_dnnl_description *out, dnnl_memory_t memory)
{
    const dnnl_memory_desc_t *from;
    const dnnl_status_t got = dnnl_memory_get_memory_desc(memory, &from);
    if (got != dnnl_success) return got;
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    if (md) *md = *from;
    *out = md;
    return md ? dnnl_success : dnnl_out_of_memory;
}

void ls_dnnl_forget(ls_dnnl_description d) { free((dnnl_memory_desc_t *)d); }

dnnl_status_t ls_dnnl_append_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1.0f); }

dnnl_status_t ls_dnnl_describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                      const ls_dnnl_description d[LS_DNNL_OPERANDS], dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    const dnnl_status_t got =
        dnnl_matmul_desc_init(&matmul, d[LS_DNNL_A], d[LS_DNNL_B], d[LS_DNNL_BIAS], d[LS_DNNL_C]);
    return got == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : got;
}

dnnl_status_t ls_dnnl_describe_conv(dnnl_primitive_desc_t *out, dnnl_engine_t engine, ls_dnnl_conv_half half,
                                    const ls_dnnl_description d[LS_DNNL_OPERANDS], int64_t stride, int64_t padding,
                                    dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint)
{
    const dnnl_dims_t strides = { stride, stride }, around = { padding, padding };
    const dnnl_alg_kind_t by = dnnl_convolution_direct;
    dnnl_convolution_desc_t conv;
    dnnl_status_t got;
    switch (half) {
    case LS_DNNL_FORWARD:
        got = dnnl_convolution_forward_desc_init(&conv, dnnl_forward_training, by, d[LS_DNNL_A], d[LS_DNNL_B],
                                                 d[LS_DNNL_BIAS], d[LS_DNNL_C], strides, around, around);
        break;
    case LS_DNNL_BACKWARD_WEIGHT:
        got = dnnl_convolution_backward_weights_desc_init(&conv, by, d[LS_DNNL_A], d[LS_DNNL_B], d[LS_DNNL_BIAS],
                                                          d[LS_DNNL_C], strides, around, around);
        break;
    default:
        got = dnnl_convolution_backward_data_desc_init(&conv, by, d[LS_DNNL_A], d[LS_DNNL_B], d[LS_DNNL_C], strides,
                                                       around, around);
        break;
    }
    return got == dnnl_success ? dnnl_primitive_desc_create(out, &conv, attr, engine, hint) : got;
}
#endif
#else
typedef int ls_gemm_dnnl_words_empty; /* gemm_blas.c is built instead */
#endif
