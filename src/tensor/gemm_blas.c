/* gemm_blas.c -- large matrix products by a BLAS, where oneDNN is missing. */
#if !defined(LOCKSTEP_GEMM_DNNL)
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/gemm.h"

struct ls_gemm_library {
    int unused;
};

const char *ls_gemm_library_name(void) { return "BLAS"; }
bool ls_gemm_library_has_bf16(void) { return false; }
void ls_gemm_library_describe(char *out, size_t n) { snprintf(out, n, "BLAS"); }
const char *ls_gemm_library_way(int way) { return way == 0 ? "sgemm" : NULL; }

bool ls_gemm_library_can(int way, const ls_gemm_call *call) { return way == 0 && call->in == LS_F32; }

void ls_gemm_library_force(ls_gemm_library *l, int way)
{
    (void)l;
    (void)way;
}

ls_status ls_gemm_library_open(ls_gemm_library **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? LS_OK : ls_fail(LS_NO_MEMORY, "BLAS context");
}

void ls_gemm_library_close(ls_gemm_library *l) { free(l); }

bool ls_gemm_library_prepares(const ls_gemm_call *call)
{
    (void)call;
    return false;
}

bool ls_gemm_library_packs(const ls_gemm_call *call)
{
    (void)call;
    return false;
}

ls_status ls_gemm_library_pack(ls_gemm_library *l, const ls_gemm_call *call, void *to, size_t room, bool *done)
{
    (void)l;
    (void)call;
    (void)to;
    (void)room;
    *done = false;
    return LS_OK;
}

ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *c)
{
    (void)l;
    float *out = c->c;
    const int m = (int)c->m, n = (int)c->n, k = (int)c->k;
    if (m != c->m || n != c->n || k != c->k)
        return ls_fail(LS_UNSUPPORTED, "matrix product of %lld x %lld x %lld: BLAS counts with 32 bits",
                       (long long)c->m, (long long)c->n, (long long)c->k);
    /* BLAS knows no bias: it is what C starts from. */
    if (c->bias)
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < c->n; j++) out[i * c->n + j] = c->bias[j] + (c->add ? out[i * c->n + j] : 0.0f);
    cblas_sgemm(CblasRowMajor, c->trans_a ? CblasTrans : CblasNoTrans, c->trans_b ? CblasTrans : CblasNoTrans, m, n, k,
                1.0f, c->a, c->trans_a ? m : k, c->b, c->trans_b ? k : n, c->add || c->bias ? 1.0f : 0.0f, out, n);
    return LS_OK;
}
#else
typedef int ls_gemm_blas_empty; /* gemm_dnnl.c is built instead */
#endif
