/* attention.h -- attention and rotary positions on plain memory: what the ops
 * on the tape (op_attention.c, op_rope.c) and generation share.
 *
 *   s[i, j] = scale q[i] . k[j]     p = softmax over j of s     out[i] = sum over j of p[i, j] v[j]
 *
 * for every sequence of the batch and every head. Hq heads of queries share
 * Hkv heads of keys and values: head h uses h / (Hq / Hkv) (grouped queries,
 * Ainslie et al. 2023). Causal: query i is the (Tk - Tq + i)-th token and sees
 * the keys up to its own, so a cache of Tk keys serves the newest Tq queries.
 */
#ifndef LS_TENSOR_ATTENTION_H
#define LS_TENSOR_ATTENTION_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/dtype.h"

#define LS_ATTENTION_AMX_KEYS 16 /* from so many keys on AMX is faster */
#define LS_ATTENTION_MOST_D 256 /* longest head: what the tiles on the stack are cut for */

struct ls_gemm_tile; /* gemm_tile.h */

/* Element [b, t, h, d] is at b * batch + t * token + h * head + d. */
typedef struct ls_strides {
    int64_t batch, token, head;
} ls_strides;

/* Probabilities that are dropped: that of query i and key j, of head h of sequence b, is 0 in the sum over values where
 * 24 bits of Philox's word first + ((b heads + first_head + h) T + first_query + i) T + first_key + j (rng.h) are below
 * `least`, and `scale` times itself otherwise. The softmax is that of all keys. */
typedef struct ls_attention_drop {
    uint64_t seed, stream, first;
    uint32_t least; /* 0: nothing is dropped */
    float scale;
    int64_t heads, first_head; /* of the whole layer, and of them the first that is here; heads 0: all are here */
    int64_t T;                 /* tokens of a whole sequence; 0: Tq queries and Tk keys are all */
    int64_t first_query, first_key; /* of it, that are here */
} ls_attention_drop;

/* Everything is borrowed. Outputs overlap neither inputs nor each other, but where
 * dq, dk and dv are parts of one packed tensor, as q, k and v may be. */
typedef struct ls_attention_call {
    int64_t B, Tq, Tk, Hq, Hkv, D; /* Hq a multiple of Hkv; D at most LS_ATTENTION_MOST_D; Tq <= Tk when causal */
    float scale;
    bool causal;
    ls_dtype dtype;                /* of q, k, v, out and gradients: LS_F32, also where not named, or LS_BF16. Sums and
                                    * softmax are in float either way. With a tile of pairs P and dS are rounded to
                                    * bfloat16 for their products (FlashAttention and PyTorch do so), else not */
    const void *q;                 /* [B, Tq, Hq, D] */
    const void *k, *v;             /* [B, Tk, Hkv, D] */
    void *out;                     /* [B, Tq, Hq, D] */
    float *lse;                    /* [B, Hq, Tq], log of the sum of e^s of a row; NULL when no backward follows */
    ls_strides q_by, k_by, v_by, out_by;
    float *scratch;                /* on 64 bytes, ls_attention_scratch floats. Forward of floats can do without:
                                    * then it reads k and v as they lie, to the same bits */
    ls_attention_drop drop;
    bool amx;                      /* only where ls_amx_ready (amx.h) says yes. Of bfloat16, then, all products are of
                                    * its tiles, P and dS rounded as with pairs; every D, stride and address fits */
    /* backward only; strides as those of q, k, v and out */
    const void *dout;
    void *dq, *dk, *dv;            /* NULL: not wanted */
    bool add_q, add_k, add_v;      /* add to what is there */
    const struct ls_gemm_tile *tile; /* inner kernel without amx; NULL: the best that the running CPU supports. One of
                                      * pairs gives way to floats where dtype is not LS_BF16, D or a stride is odd, or
                                      * q, k, v or dout does not lie on 4 bytes */
} ls_attention_call;

/* [B, T, H, D] without gaps. */
ls_strides ls_strides_dense(int64_t T, int64_t H, int64_t D);

/* Writes out, and lse if it is there. Uses about 250 KB of stack. Up to 4 float queries without lse (a step of
 * generation) read keys and values once, at the speed of memory where a head's tokens lie together, as in a cache
 * [B, Hkv, T, D]; from [B, T, Hkv, D] it is a third of that. */
void ls_attention_forward(const ls_attention_call *c);
/* Needs out and lse as forward left them. Uses about 480 KB of stack. The heads are divided among the team's threads;
 * the bits do not depend on their number. */
void ls_attention_backward(const ls_attention_call *c);
/* For each thread, copies of k and v of one head, and backward float sums for dk and dv: 2 or 4 times Tk D floats; with
 * amx 1 or 3.5 times, both rounded up to 32. Reads Tk, D, dtype and amx. */
int64_t ls_attention_scratch(const ls_attention_call *c, bool backward);
/* 4 D for each pair of a query and a key that it sees; backward does 10 D. */
double ls_attention_flops(const ls_attention_call *c);

/* Turns pairs (x[i], x[i + D/2]) of every head of x [B, T, H, D] by the angle
 * theta^(-2i/D) (first_position + t): Llama's form of rotary positions (Su et al.
 * 2021). D is even. `inverse` turns back; `add` adds to y. y may be x. */
typedef struct ls_rope_call {
    int64_t B, T, H, D;   /* T tokens of each sequence, */
    int64_t from, count;  /* of which [from, from + count) are turned (count 0: all); the first of them stands at */
    int64_t first_position;
    double theta;
    bool inverse, add;
    ls_dtype dtype; /* LS_F32 or LS_BF16 */
    const void *x;
    void *y;
} ls_rope_call;
void ls_rope_turn(const ls_rope_call *c);

#endif
