/* version.c -- what was built, from what, with what. */
#include "lockstep/lockstep.h"

#ifdef LOCKSTEP_GEMM_DNNL
#define GEMM "oneDNN"
#else
#define GEMM "OpenBLAS"
#endif

const char *ls_version(void)
{
    return LS_VERSION " (commit " LOCKSTEP_COMMIT ", compiler " __VERSION__ ", GEMM by " GEMM ")";
}
