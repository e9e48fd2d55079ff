/* decode.h -- a language model, a token at a time: reading, drawing the next one, generating.
 *
 * A decoder holds what a model has read, as keys and values (a KV cache), so that each new token costs one pass over
 * the weights. ls_sample draws the next token from the logits; ls_generate does both in turn. Text is generate.h's.
 */
#ifndef LS_DECODE_H
#define LS_DECODE_H
#include "lockstep/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the decoder ----------------------------------------------------------------- */

typedef struct ls_decoder ls_decoder;

/* A decoder for up to the model's longest sequence. `m` (borrowed) is bound; its values may change between calls,
 * then ls_decoder_rewind(d, 0) makes the decoder recompute. All memory is taken here (kind act; `ledger` may be NULL):
 * 2 L Hkv D seq_len floats of cache, and the activations of one block for 256 tokens.
 * LS_UNSUPPORTED: the model is not one of language. LS_NO_MEMORY. */
ls_status ls_decoder_create(ls_model *m, ls_ledger *ledger, ls_decoder **out);
/* The same with addresses in place of memory, only to be destroyed: the ledger says what one takes. m need not be
 * bound. */
ls_status ls_decoder_create_dry(ls_model *m, ls_ledger *ledger, ls_decoder **out);
void ls_decoder_destroy(ls_decoder *d); /* NULL is fine */

/* Reads n >= 1 tokens that follow those it has. *logits (NULL is fine) gets the V logits of the token that follows, in
 * memory of the decoder, until its next call. The same tokens in other pieces give the same logits to rounding. On
 * failure it has what it had.
 * LS_INVALID: an id is outside the vocabulary. LS_SHAPE: more tokens than fit. */
ls_status ls_decoder_feed(ls_decoder *d, const uint32_t *id, size_t n, const float **logits);
/* Forgets all but the first n tokens. LS_INVALID: it has not as many. */
ls_status ls_decoder_rewind(ls_decoder *d, size_t n);
size_t ls_decoder_count(const ls_decoder *d); /* tokens that it has */
size_t ls_decoder_capacity(const ls_decoder *d);  /* tokens that fit: the model's longest sequence */
size_t ls_decoder_vocab(const ls_decoder *d); /* V */

/* --- sampling ----------------------------------------------------------------------- */

/* How the next token is drawn. Tokens are in order of their logits, those with equal logits in order of their ids. */
typedef struct ls_sample_opts {
    double temperature; /* logits are divided by it; 0: the first token of the order (greedy) */
    int64_t top_k;      /* the first k of the order alone; 0: all */
    double top_p;       /* of those, the fewest from the front whose probabilities sum to p or more, 0 < p <= 1 */
    uint64_t seed;
    int64_t vocab;      /* ids from here on are never drawn (a table padded to a round size); 0: all may be */
} ls_sample_opts;

/* LS_INVALID: temperature below 0 or not finite, top_k or vocab below 0, or top_p outside (0, 1]. */
ls_status ls_sample_check(const ls_sample_opts *o);
/* The token at place `position` of a sequence, from its logits[V]: with equal logits and options it depends on (seed,
 * position) alone. `weight` is [V], for the work. LS_NAN: a logit is NaN or +infinity, or all are -infinity. */
ls_status ls_sample(const ls_sample_opts *o, const float *logits, size_t V, uint64_t position, uint64_t *weight,
                    uint32_t *id);

/* --- generation ----------------------------------------------------------------------- */

typedef struct ls_generate_opts {
    ls_sample_opts sample;
    int64_t tokens; /* to make, at most */
    int64_t stop;   /* the token that ends it, and is not part of the result; -1: none */
} ls_generate_opts;

typedef struct ls_generated {
    int64_t prompt, made;    /* tokens */
    bool stopped;            /* by opts.stop */
    int64_t slides;          /* times that the context was full */
    uint64_t prompt_ns, ns;  /* until the prompt was read; from then on */
} ls_generated;

/* Gets every token as it is made. A negative status ends generation, which returns it. */
typedef ls_status (*ls_token_fn)(void *arg, uint32_t id);

/* Continues the prompt of n >= 1 tokens. Token i of the result is drawn at position n + i. When the context is full,
 * its last half is recomputed and generation goes on after it. `out` may be NULL.
 * LS_INVALID: the prompt is empty, has an id outside the vocabulary or more tokens than the model's longest sequence,
 * or an option is out of range. LS_NAN: the model is of no use. */
ls_status ls_generate(ls_decoder *d, const uint32_t *prompt, size_t n, const ls_generate_opts *o, ls_token_fn fn,
                      void *arg, ls_generated *out);

#ifdef __cplusplus
}
#endif
#endif
