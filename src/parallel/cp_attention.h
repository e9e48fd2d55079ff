/* cp_attention.h -- attention over sequences that several ranks have parts of: what its three ways share.
 *
 *   cp_attention.c  the op on the tape
 *   cp_pieces.c     pieces of attention, and rows that travel
 *   cp_gather.c     every rank gathers all keys and values
 *   cp_ring.c       keys and values go round in a ring
 *   cp_ulysses.c    ranks exchange tokens for heads, and back; between, attention of all tokens, or a ring's
 */
#ifndef LS_PARALLEL_CP_ATTENTION_H
#define LS_PARALLEL_CP_ATTENTION_H
#include "lockstep/place.h"
#include "tensor/attention.h"
#include "tensor/collective.h"

#define LS_CP_ATTENTION "cp_attention" /* names of its operations begin with it */

/* One application, forward or backward. Everything is borrowed; on a dry tape data are NULL. */
typedef struct ls_cp_call {
    ls_tape *t;
    ls_place place;
    int64_t B, T, Tl, Hq, Hkv, D; /* sequences, tokens of a whole one and those that are here, heads */
    float scale;
    bool causal;
    ls_dtype dtype;
    ls_attention_drop drop;
    ls_strides q_by, k_by, v_by, out_by;
    const void *q, *k, *v;
    void *out;
    bool keeps; /* a backward will come: */
    void *kept; /* way->kept_bytes that forward leaves for it */
    double met; /* forward counts here: pairs of a query and a key that it sees, of each head and sequence */
    /* backward */
    const void *dout;
    void *dq, *dk, *dv; /* NULL: not wanted */
    bool add_q, add_k, add_v;
} ls_cp_call;

typedef struct ls_cp_way {
    ls_status (*check)(const ls_cp_call *c); /* NULL: everything can be done */
    size_t (*kept_bytes)(const ls_cp_call *c);
    ls_status (*forward)(ls_cp_call *c);
    ls_status (*backward)(ls_cp_call *c);
} ls_cp_way;

extern const ls_cp_way ls_cp_ring, ls_cp_gather, ls_cp_ulysses, ls_cp_ulysses_ring;

/* Which tokens rank `rank` of cp has, of a sequence that can be divided. */
void ls_cp_tokens_of(const ls_place *p, int rank, int64_t T, ls_places *out);

static inline size_t ls_cp_size(const ls_cp_call *c) { return ls_dtype_size(c->dtype); }
/* Element n of x; NULL stays NULL. */
static inline void *ls_cp_at(const ls_cp_call *c, const void *x, int64_t n)
{
    return x ? (char *)(uintptr_t)x + (size_t)n * ls_cp_size(c) : NULL;
}

/* Elements of a token's row of keys and values, side by side. */
static inline int64_t ls_cp_row(const ls_cp_call *c) { return 2 * c->Hkv * c->D; }
/* Bytes of lse: of each run of queries [B, Hq, count], one after the other. */
static inline size_t ls_cp_lse_bytes(const ls_cp_call *c) { return (size_t)(c->B * c->Hq * c->Tl) * sizeof(float); }

/* Copies this rank's keys and values to rows of ls_cp_row: token t of sequence b to row b * rows + at[t]. */
void ls_cp_pack(const ls_cp_call *c, void *to, int64_t rows, const ls_places *at);
/* Gradients of this rank's keys and values from such rows [B, Tl, ls_cp_row]. */
void ls_cp_unpack(const ls_cp_call *c, const void *from);

/* Attention of some of this rank's queries and some keys. */
typedef struct ls_cp_pair {
    int64_t query;                 /* the first of them, among the tokens here, */
    int64_t queries;               /* and how many they are */
    int64_t first_query;           /* its place in the sequence */
    const void *kv;                /* rows of ls_cp_row, of the first key of sequence 0 */
    int64_t rows, keys, first_key; /* from sequence to sequence; how many; place of the first */
    bool causal;                   /* query i sees the keys 0 to keys - queries + i */
} ls_cp_pair;
/* Adds to c->met what one piece has. */
void ls_cp_count(ls_cp_call *c, int64_t heads, int64_t queries, int64_t keys, bool causal);
/* Writes out as out_by says, and lse [B, Hq, queries]. */
ls_status ls_cp_forward(ls_cp_call *c, const ls_cp_pair *p, void *out, ls_strides out_by, float *lse);
/* Adds to rows of gradients dkv, which lie as p->kv does, and writes dq, or with `add` adds to it. */
ls_status ls_cp_backward(ls_cp_call *c, const ls_cp_pair *p, const float *lse, void *dkv, bool add);

#endif
