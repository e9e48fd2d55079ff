/* version.c -- what this build is made of. */
#include <jansson.h>
#include <sodium/version.h>
#include <xxhash.h>
#include <zlib.h>
#ifdef LOCKSTEP_GEMM_DNNL
#include <oneapi/dnnl/dnnl_version.h>
#endif

#include "lockstep/lockstep.h"

#define NUMBER(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
#define TEXT(x)         #x

#if defined(__clang__)
#define COMPILER "clang " NUMBER(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define COMPILER "gcc " NUMBER(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#endif

#ifdef LOCKSTEP_GEMM_DNNL
#define GEMM "oneDNN " NUMBER(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)
#else
#define GEMM "OpenBLAS"
#endif

const char *ls_version(void)
{
    return LS_VERSION " (commit " LOCKSTEP_COMMIT ", " COMPILER ", " GEMM ", jansson " JANSSON_VERSION
                      ", libsodium " SODIUM_VERSION_STRING ", zlib " ZLIB_VERSION
                      ", xxHash " NUMBER(XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE) ")";
}
