/* gemm_dnnl.h -- what the files of oneDNN's side of gemm.h share; nobody else includes it.
 *
 *   gemm_dnnl.c           the library side of gemm.h: chooses, finds the prepared product, runs its pieces
 *   gemm_dnnl_cut.c       into which pieces a product is cut
 *   gemm_dnnl_prepare.c   primitives and memory objects of one shape
 *   gemm_dnnl_words.c     the differences between oneDNN 2 and 3; its threads and failures
 *   conv_dnnl.c           convolutions
 */
#ifndef LS_TENSOR_GEMM_DNNL_H
#define LS_TENSOR_GEMM_DNNL_H
#if defined(LOCKSTEP_GEMM_DNNL)
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/gemm.h"

/* MATMUL can do everything; SGEMM float. */
typedef enum ls_dnnl_way { LS_DNNL_MATMUL, LS_DNNL_SGEMM, LS_DNNL_WAYS } ls_dnnl_way;

enum { LS_DNNL_A, LS_DNNL_B, LS_DNNL_BIAS, LS_DNNL_C, LS_DNNL_SCRATCH, LS_DNNL_OPERANDS };

#define LS_DNNL_MOST_PIECES 16

/* C in pieces of equally many rows or columns, or the sum over K (split-K); the last piece has what is left. */
typedef struct ls_dnnl_cut {
    int64_t rows, columns; /* of a piece */
    int pieces;
    bool across;           /* side by side */
    bool dense_a;          /* each piece first copies its columns of a transposed A */
    bool dense_b;          /* each piece first copies its columns of B */
    int64_t split_k;       /* terms of K in a piece, which is a whole C; the pieces are added up. 0: all of K */
    int64_t b_row;         /* the product copies B first, rows that many elements apart; 0: B is read as it is */
} ls_dnnl_cut;

/* Follows from shape, types and instruction set, never from the number of threads. */
ls_dnnl_cut ls_dnnl_cut_of(const ls_gemm_call *c, ls_dnnl_way by, dnnl_cpu_isa_t isa);

/* A primitive for pieces of one size, and the operands that it is pointed at: each thread has its own. */
typedef struct ls_dnnl_prepared {
    dnnl_primitive_t run;
    dnnl_memory_t (*memory)[LS_DNNL_OPERANDS]; /* owned; [threads]; NULL where the product has none */
} ls_dnnl_prepared;

/* One shape, ready to run with so many threads. */
typedef struct ls_dnnl_product {
    ls_gemm_call key; /* of its pointers only bias and packed count: with or without */
    int threads;
    ls_dnnl_cut cut;
    ls_dnnl_prepared whole, last; /* pieces of the cut's size; the last piece, where it is smaller */
    size_t scratch_bytes;         /* per thread: of the primitives, in whole cache lines; then copy_bytes */
    size_t copy_bytes;            /* a piece's part of C or A: oneDNN's fast primitives want dense matrices */
    /* of packed weights */
    dnnl_primitive_t pack;        /* plain B to packed */
    dnnl_memory_t plain, packed, pack_scratch;
    size_t packed_bytes;          /* 0: the library likes B as it is */
} ls_dnnl_product;

/* Makes primitives and memory objects for p->key, p->threads and p->cut. The caller releases p after a failure, too. */
dnnl_status_t ls_dnnl_prepare(dnnl_engine_t engine, ls_dnnl_product *p);
void ls_dnnl_release(ls_dnnl_product *p);

static inline size_t ls_dnnl_element_bytes(ls_dtype dtype)
{
    return dtype == LS_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* --- one thread ------------------------------------------------------------------- */

/* The OpenMP that oneDNN brings has its number of threads per calling thread. */
typedef struct ls_dnnl_openmp {
    int (*get)(void); /* NULL: it brings none */
    void (*set)(int n);
} ls_dnnl_openmp;

ls_dnnl_openmp ls_dnnl_find_openmp(void);
/* oneDNN's calls of this thread find n threads from now on; returns how many before. */
int ls_dnnl_limit_threads(const ls_dnnl_openmp *o, int n);

/* A failure, with what failed. */
ls_status ls_dnnl_refused(dnnl_status_t got, const char *doing);

/* --- oneDNN 2 and 3 describe matrices in different words ------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t ls_dnnl_description;
#else
typedef const dnnl_memory_desc_t *ls_dnnl_description;
#endif

/* The caller forgets what it described, whether it succeeded or not. */
dnnl_status_t ls_dnnl_describe_strided(ls_dnnl_description *out, dnnl_data_type_t type, int ndims,
                                       const dnnl_dims_t dims, const dnnl_dims_t strides);
dnnl_status_t ls_dnnl_describe_any(ls_dnnl_description *out, dnnl_data_type_t type, const dnnl_dims_t dims);
dnnl_status_t ls_dnnl_describe_as(ls_dnnl_description *out, dnnl_memory_t memory);
void ls_dnnl_forget(ls_dnnl_description d); /* NULL is fine */
dnnl_status_t ls_dnnl_append_sum(dnnl_post_ops_t post);
/* The three halves of a convolution: src, weights, bias and dst, or their gradients, in the order of operands. `hint`
 * is the forward's description, for the other two. */
typedef enum ls_dnnl_conv_half { LS_DNNL_FORWARD, LS_DNNL_BACKWARD_WEIGHT, LS_DNNL_BACKWARD_INPUT } ls_dnnl_conv_half;
dnnl_status_t ls_dnnl_describe_conv(dnnl_primitive_desc_t *out, dnnl_engine_t engine, ls_dnnl_conv_half half,
                                    const ls_dnnl_description d[LS_DNNL_OPERANDS], int64_t stride, int64_t padding,
                                    dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint);
dnnl_status_t ls_dnnl_describe_matmul(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                      const ls_dnnl_description d[LS_DNNL_OPERANDS], dnnl_primitive_attr_t attr);
#endif
#endif
