/* gemm_dnnl_cut.c -- into which pieces of C a product is cut.
 *
 * One thread runs the same pieces as sixteen do, so a piece must be about as fast, for its size, as the whole product.
 * Each piece brings what it reads into an order of oneDNN's own, so the more pieces share an operand, the oftener it is
 * brought into it; and small pieces get other kernels. The limits below were measured (bench_gemm gpt; oneDNN 2.6.3, a
 * Xeon with AMX, one thread; those of AVX2 on an EPYC of the third generation, two threads) and are all that is known
 * of the machine: the cut follows from shape, types and instruction set.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include "tensor/gemm_dnnl.h"

#define UNIT 32 /* pieces are of whole ones */

static bool has(dnnl_cpu_isa_t all, dnnl_cpu_isa_t isa) { return ((unsigned)all & (unsigned)isa) == (unsigned)isa; }

/* Powers of two, so that 2, 4 and 8 threads have as much to do: 2 pieces of at least twice `unit` rows or columns, 4 of
 * 4 times as many ...: with more pieces, more is packed again. */
static int pieces_of(int64_t n, int64_t unit)
{
    int pieces = 1;
    while (pieces < LS_DNNL_MOST_PIECES && n / (2 * pieces) >= 2 * pieces * unit) pieces *= 2;
    return pieces;
}

static ls_dnnl_cut in_pieces(const ls_gemm_call *c, int pieces, bool across)
{
    ls_dnnl_cut at = { .rows = c->m, .columns = c->n, .pieces = 1, .across = across };
    if (pieces == 1) return at;
    int64_t *side = across ? &at.columns : &at.rows;
    const int64_t whole = *side;
    *side = ((whole + pieces - 1) / pieces + UNIT - 1) / UNIT * UNIT;
    at.pieces = (int)((whole + *side - 1) / *side);
    return at;
}

/* --- sgemm ------------------------------------------------------------------------------ */

/* oneDNN's sgemm packs A and B where C is large, and that is up to 1.3 times as fast as reading them as they are (1.5
 * times with AVX2, where A is transposed). For AVX-512 it also packs where A is transposed and the rows of B begin a
 * multiple of 1024 elements apart, so that pieces that are small get the fast kernel, too, from a copy of B. */
#define PACKS_AVX512 0.00196
#define PACKS_AVX2   0.0038

static bool is_large(int64_t m, int64_t n, double limit) { return (double)(m + n) < limit * (double)m * (double)n; }
static bool is_packed(int64_t m, int64_t n) { return is_large(m, n, PACKS_AVX512); }

#define PACKED_ROW 1024
#define COPY_PAYS 1536   /* rows of C: the copy of B is then 4 % of the product or less */
#define FAST_ROWS 768    /* or columns, of a piece */
#define FEWEST_ROWS 192  /* of four pieces */

/* Not packed, and yet the rows of A lie such that the cache has room for few of them. */
static bool is_slow(const ls_gemm_call *c, dnnl_cpu_isa_t isa)
{
    return has(isa, dnnl_cpu_isa_avx512_core) && c->m % 256 == 0 && c->n >= 256;
}

/* The longer side of C is cut: each piece packs the operand of the other side once more. Columns only where the rows of
 * B are as they should be. */
static ls_dnnl_cut cut_packed(const ls_gemm_call *c)
{
    const bool as_they_are = c->n % PACKED_ROW == 0, across = as_they_are && c->n > c->m;
    const int64_t side = across ? c->n : c->m;
    int pieces = side / 4 >= FEWEST_ROWS ? 4 : side / 2 >= FEWEST_ROWS ? 2 : 1;
    while (pieces < LS_DNNL_MOST_PIECES && side / (2 * pieces) >= FAST_ROWS) pieces *= 2;
    ls_dnnl_cut at = in_pieces(c, pieces, across);
    if (at.pieces > 1 && !as_they_are && !is_packed(at.rows, c->n))
        at.b_row = (c->n + PACKED_ROW - 1) / PACKED_ROW * PACKED_ROW;
    return at;
}

static bool avx2_alone(dnnl_cpu_isa_t isa)
{
    return has(isa, dnnl_cpu_isa_avx2) && !has(isa, dnnl_cpu_isa_avx512_core);
}

#define SPLIT_K_FEWEST 128 /* terms of one of two parts: adding it then takes a tenth of the time that it saves */
#define SPLIT_K_MANY   512 /* of one of four */
#define SPLIT_K_PIECES 4   /* at most */

/* With AVX2, C is packed and its pieces are not: dw of small weights and many tokens. Each part is a whole C. */
static bool cut_split_k(const ls_gemm_call *c, const ls_dnnl_cut *pieces, dnnl_cpu_isa_t isa, ls_dnnl_cut *out)
{
    if (!avx2_alone(isa)) return false;
    if (!c->trans_a || c->trans_b || c->bias || c->k < 2 * SPLIT_K_FEWEST || pieces->pieces == 1) return false;
    if (!is_large(c->m, c->n, PACKS_AVX2) || is_large(pieces->rows, pieces->columns, PACKS_AVX2)) return false;
    const int64_t parts = c->k / SPLIT_K_MANY < SPLIT_K_PIECES ? 2 : SPLIT_K_PIECES;
    *out = (ls_dnnl_cut){ .rows = c->m, .columns = c->n };
    out->split_k = ((c->k + parts - 1) / parts + UNIT - 1) / UNIT * UNIT;
    out->pieces = (int)((c->k + out->split_k - 1) / out->split_k);
    return true;
}

#define DENSE_COLUMNS 192 /* a copy of B stays in the cache, with up to 768 terms */

/* With AVX2, sgemm packs A and B also where the rows of B begin a multiple of 1024 elements apart, and with few rows of
 * C it is then half as fast: dx of few tokens. Copies of columns of B have shorter rows. */
static bool cut_columns(const ls_gemm_call *c, const ls_dnnl_cut *pieces, dnnl_cpu_isa_t isa, ls_dnnl_cut *out)
{
    if (!avx2_alone(isa)) return false;
    if (c->trans_b || c->n % PACKED_ROW != 0 || is_large(pieces->rows, pieces->columns, PACKS_AVX2)) return false;
    const int64_t fewest = (c->n + LS_DNNL_MOST_PIECES - 1) / LS_DNNL_MOST_PIECES;
    *out = (ls_dnnl_cut){ .rows = c->m, .across = true, .dense_b = true };
    out->columns = fewest <= DENSE_COLUMNS ? DENSE_COLUMNS : (fewest + UNIT - 1) / UNIT * UNIT;
    out->pieces = (int)((c->n + out->columns - 1) / out->columns);
    return true;
}

#define SGEMM_PIECE 96

static ls_dnnl_cut cut_sgemm(const ls_gemm_call *c, dnnl_cpu_isa_t isa)
{
    const bool across = c->n > c->m, packed = has(isa, dnnl_cpu_isa_avx512_core) && is_packed(c->m, c->n);
    const bool pays = c->m >= COPY_PAYS ? packed || is_slow(c, isa) : packed && c->n % PACKED_ROW == 0;
    if (pays && c->trans_a && !c->trans_b) return cut_packed(c);
    const int most = pieces_of(across ? c->n : c->m, SGEMM_PIECE);
    for (int pieces = most; packed && pieces > 1; pieces /= 2) { /* the most that are packed, too */
        const ls_dnnl_cut at = in_pieces(c, pieces, across);
        if (is_packed(at.rows, at.columns)) return at;
    }
    const ls_dnnl_cut at = in_pieces(c, most, across);
    ls_dnnl_cut other;
    return cut_split_k(c, &at, isa, &other) || cut_columns(c, &at, isa, &other) ? other : at;
}

/* --- matmul ----------------------------------------------------------------------------- */

#define PIECE 64
#define ACROSS_PIECE 12 /* nothing is packed twice, and a small copy of C stays in the cache */
#define DENSE_PIECE 48
#define DENSE_K 512

/* Rows, because only dense matrices are fast. Across, where rows are few: C is copied. With AMX and a short sum over a
 * transposed A (dw of few tokens), the primitive for dense matrices is up to 1.8 times as fast as the one that reads A
 * as a part of a larger one: each piece copies its part. */
static ls_dnnl_cut cut_matmul(const ls_gemm_call *c, dnnl_cpu_isa_t isa)
{
    if (c->in == LS_BF16 && has(isa, dnnl_cpu_isa_avx512_core_amx) && c->trans_a && !c->trans_b && c->k <= DENSE_K) {
        ls_dnnl_cut at = in_pieces(c, pieces_of(c->m, DENSE_PIECE), false);
        at.dense_a = at.pieces > 1;
        return at;
    }
    const int down = pieces_of(c->m, PIECE), across = pieces_of(c->n, ACROSS_PIECE);
    const bool dense = c->trans_b && !c->trans_a && !c->add && !c->packed;
    if (dense && down < 4 && pieces_of(c->n, PIECE) > down) return in_pieces(c, across, true);
    return in_pieces(c, down, false);
}

ls_dnnl_cut ls_dnnl_cut_of(const ls_gemm_call *c, ls_dnnl_way by, dnnl_cpu_isa_t isa)
{
    return by == LS_DNNL_SGEMM ? cut_sgemm(c, isa) : cut_matmul(c, isa);
}
#else
typedef int ls_gemm_dnnl_cut_empty; /* gemm_blas.c is built instead */
#endif
