/* attention.c -- attention in tiles of 64 queries and 64 keys: no T x T matrix
 * is ever kept. FlashAttention-2 (Dao 2023), for CPUs.
 *
 * Scores of a tile are kept transposed, a row for each key: then the maximum
 * and the sum of softmax run over rows, a vector being neighbouring queries, and
 * every product of the tile is one that the matrix tiles (gemm_tile.h) do
 * as it is. Only queries (and dout) are packed, once for all their keys:
 *
 *   forward      S^T = K Q^T            [keys, queries]
 *                out = e^(S - max) V, rescaled when the running maximum grows, over the running sum
 *   backward     S^T = K Q^T, P = e^(S - lse);  dP^T = V dO^T;  dS = scale P (dP - rowsum(dO O))
 *                dV += P^T dO;  dK += dS^T Q;  dQ += dS K
 *
 * Tiles that a causal mask hides are not visited. On the diagonal, products are
 * cut to the rows and columns that are needed: to blocks of a few rows and 16
 * columns of a score tile, and in their sums exactly.
 *
 * Each (sequence, head of keys) is one piece of work, independent of the others,
 * in ascending order within: the bits do not depend on which thread does which.
 *
 * Keys and values of a head are copied first, to lie side by side, and its dk and dv are added up
 * in float memory of the thread's own. Of bfloat16 results are rounded when their sum is complete. Where
 * the CPU multiplies pairs of bfloat16 faster than floats (gemm_tile.h), and heads consist of whole ones,
 * all products are of such:
 *
 *   S^T, dP^T    pairs along D: rows as they lie in memory; the scale comes after the sum
 *   out, dQ      pairs of keys: P, dS and the rows of V and K, two keys interleaved
 *   dV, dK       pairs of queries: rows of P and dS; the rows of dO and Q, two queries interleaved
 *
 * So P and dS, and nothing else, are rounded to bfloat16 for their products, as
 * FlashAttention does; softmax, its sums, delta and dS itself are float. Elsewhere
 * the rows of a tile are copied as floats first, a small part of its work.
 *
 * Where the CPU has AMX, bfloat16 goes by its tiles (attention_amx.h): the same
 * order of work, with everything packed as those are, and P and dS rounded alike.
 */
#include "tensor/attention.h"
#include "tensor/attention_impl.h"
#include "tensor/threads.h"

#define FEW 4 /* up to so many queries go one by one: their columns would leave most of a vector empty */

ls_strides ls_strides_dense(int64_t T, int64_t H, int64_t D)
{
    return (ls_strides){ .batch = T * H * D, .token = H * D, .head = D };
}

static bool is_few(const ls_attention_call *c)
{
    return c->Tq <= FEW && !c->lse && c->dtype != LS_BF16 && c->drop.least == 0;
}

static bool by_amx(const ls_attention_call *c) { return c->amx && c->dtype == LS_BF16; }

/* Copies of k and v, and backward sums for dk and dv. */
static int64_t scratch_of_thread(const ls_attention_call *c, bool backward)
{
    if (by_amx(c)) return (backward ? 7 : 2) * ((c->Tk + 31) / 32 * 32 * ((c->D + 31) / 32 * 32)) / 2;
    return (backward ? 4 : 2) * ls_attention_copy_count(c);
}

int64_t ls_attention_scratch(const ls_attention_call *c, bool backward)
{
    return ls_team_size() * scratch_of_thread(c, backward);
}

/* Pieces are independent: threads share them. What backward follows goes by tiles: it makes the same scores again, to
 * the bit, however large they are. */
static void forward_piece(void *call, int64_t piece)
{
    const ls_attention_call *c = *(const ls_attention_call *const *)call;
    float *scratch = c->scratch ? c->scratch + ls_team_index() * scratch_of_thread(c, false) : NULL;
    if (is_few(c)) ls_attention_forward_few(c, piece / c->Hq, piece % c->Hq);
    else if (by_amx(c)) ls_attention_amx_forward(c, piece / c->Hq, piece % c->Hq, scratch);
    else ls_attention_forward_tiles(c, piece / c->Hq, piece % c->Hq, scratch);
}

void ls_attention_forward(const ls_attention_call *c)
{
    const bool pay = ls_threads_pay((int64_t)(ls_attention_flops(c) / 4.0));
    ls_threads_for(pay, c->B * c->Hq, forward_piece, &c);
}

/* The same, a piece being a head of keys with all its heads of queries. */
static void backward_piece(void *call, int64_t piece)
{
    const ls_attention_call *c = *(const ls_attention_call *const *)call;
    float *scratch = c->scratch + ls_team_index() * scratch_of_thread(c, true);
    if (by_amx(c)) ls_attention_amx_backward(c, piece / c->Hkv, piece % c->Hkv, scratch);
    else ls_attention_backward_head(c, piece / c->Hkv, piece % c->Hkv, scratch);
}

void ls_attention_backward(const ls_attention_call *c)
{
    const bool pay = ls_threads_pay((int64_t)(2.5 * ls_attention_flops(c) / 4.0));
    ls_threads_for(pay, c->B * c->Hkv, backward_piece, &c);
}

double ls_attention_flops(const ls_attention_call *c)
{
    const double Tq = (double)c->Tq, Tk = (double)c->Tk;
    const double pairs = c->causal ? Tq * (Tk - Tq) + Tq * (Tq + 1.0) / 2.0 : Tq * Tk;
    return 4.0 * (double)c->D * pairs * (double)(c->B * c->Hq);
}
