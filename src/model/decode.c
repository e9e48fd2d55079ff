/* decode.c -- a language model, read a few tokens at a time; and generation, which reads what it makes.
 *
 * The formula is the model's own units, on a tape without gradients. A prompt goes through in pieces
 * of PIECE tokens, so that its activations have a bound; then a token at a time, which takes as long as reading all
 * weights once. All memory is taken at the start.
 */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/decode.h"
#include "tensor/tape.h"

#define PIECE 256

struct ls_decoder {
    ls_model *m;      /* borrowed */
    ls_arena *arena;  /* owned: all below */
    ls_tape *t;       /* owned; no gradients */
    ls_kv kv;
    int64_t *id;      /* [capacity]: the tokens that are in kv */
    uint32_t *again;  /* [capacity]: those that are recomputed when it is full */
    uint64_t *weight; /* [V]: for ls_sample */
    size_t V;
};

/* --- memory ---------------------------------------------------------------------------- */

/* x through the units [0, units), after the tokens that are in kv. */
static ls_tensor *forward(const ls_model *m, int units, ls_tape *t, ls_tensor *x, ls_kv *kv)
{
    ls_pass pass = ls_model_pass(m);
    pass.kv = kv;
    pass.at.first = kv->n;
    pass.output = LS_OUTPUT_LAST_LOGITS;
    return ls_units_forward(&m->units, 0, units, t, x, &pass);
}

/* Bytes of slab that n tokens take. */
static ls_status slab_of(const ls_model *m, const ls_kv *kv, int64_t n, size_t *bytes)
{
    ls_tape *t;
    ls_kv dry = *kv;
    const int64_t dim[2] = { 1, n };
    LS_TRY(ls_tape_create_dry(&t));
    ls_tape_set_grad(t, false);
    forward(m, m->units.n, t, ls_tape_input(t, LS_I64, 2, dim, NULL), &dry);
    const ls_status st = ls_tape_status(t);
    *bytes = ls_tape_peak(t);
    ls_tape_destroy(t);
    return st;
}

enum { PARTS = 5 };
typedef struct part {
    void **p;
    size_t nbytes;
} part;

/* What a decoder has in its arena. */
static void parts_of(ls_decoder *d, part out[PARTS])
{
    const size_t capacity = (size_t)d->kv.capacity;
    const size_t cache = (size_t)(d->kv.layers * d->kv.Hkv * d->kv.D) * capacity * sizeof(float);
    const part parts[PARTS] = {
        { (void **)&d->kv.k, cache }, { (void **)&d->kv.v, cache }, { (void **)&d->id, capacity * sizeof *d->id },
        { (void **)&d->again, capacity * sizeof *d->again }, { (void **)&d->weight, d->V * sizeof *d->weight },
    };
    memcpy(out, parts, sizeof parts);
}

static int64_t piece_of(const ls_kv *kv) { return kv->capacity < PIECE ? kv->capacity : PIECE; }

static ls_status take_memory(ls_decoder *d, ls_ledger *ledger, bool dry)
{
    part parts[PARTS];
    size_t all = 0, slab;
    void *p;
    parts_of(d, parts);
    LS_TRY(slab_of(d->m, &d->kv, piece_of(&d->kv), &slab));
    LS_TRY(dry ? ls_tape_create_dry(&d->t) : ls_tape_create(slab, ledger, NULL, &d->t));
    ls_tape_set_grad(d->t, false);
    for (int i = 0; i < PARTS; i++) all += parts[i].nbytes + 64;
    LS_TRY(dry ? ls_arena_create_dry(ledger, &d->arena) : ls_arena_create(all, false, ledger, &d->arena));
    if (dry) LS_TRY(ls_arena_alloc(d->arena, slab, LS_MEM_ACT, &p)); /* which else the tape counts */
    for (int i = 0; i < PARTS; i++) LS_TRY(ls_arena_alloc(d->arena, parts[i].nbytes, LS_MEM_ACT, parts[i].p));
    return LS_OK;
}

static ls_kv cache_of(const ls_lm_config *c)
{
    return (ls_kv){
        .layers = c->n_layer, .B = 1, .Hkv = c->n_kv_head, .D = c->d_model / c->n_head, .capacity = c->seq_len,
    };
}

static ls_status is_of_language(const ls_model *m)
{
    char names[128];
    if (m->cls->lm) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "a model '%s' is not one of language: %s are", m->cls->name,
                   ls_model_names(LS_LM_KEY, names, sizeof names));
}

static ls_status create(ls_model *m, ls_ledger *ledger, bool dry, ls_decoder **out)
{
    *out = NULL;
    LS_TRY(is_of_language(m));
    const ls_lm_config *c = &m->lm;
    ls_decoder *d = calloc(1, sizeof *d);
    if (!d) return ls_fail(LS_NO_MEMORY, "a decoder");
    d->m = m;
    d->V = (size_t)c->vocab_size;
    d->kv = cache_of(c);
    const ls_status st = take_memory(d, ledger, dry);
    if (st < 0) {
        ls_decoder_destroy(d);
        return ls_while(st, "allocating the decoder");
    }
    *out = d;
    return LS_OK;
}

ls_status ls_decoder_create(ls_model *m, ls_ledger *ledger, ls_decoder **out) { return create(m, ledger, false, out); }
ls_status ls_decoder_create_dry(ls_model *m, ls_ledger *ledger, ls_decoder **out)
{
    return create(m, ledger, true, out);
}

void ls_decoder_destroy(ls_decoder *d)
{
    if (!d) return;
    ls_tape_destroy(d->t);
    ls_arena_destroy(d->arena);
    free(d);
}

size_t ls_decoder_count(const ls_decoder *d) { return (size_t)d->kv.n; }
size_t ls_decoder_capacity(const ls_decoder *d) { return (size_t)d->kv.capacity; }
size_t ls_decoder_vocab(const ls_decoder *d) { return d->V; }

/* --- reading ---------------------------------------------------------------------------- */

/* The n tokens at d->id + kv.n; logits NULL: nobody asks for them. */
static ls_status read_piece(ls_decoder *d, int64_t n, const float **logits)
{
    const int64_t dim[2] = { 1, n };
    ls_tape_reset(d->t);
    ls_tensor *x = ls_tape_input(d->t, LS_I64, 2, dim, d->id + d->kv.n);
    const int units = d->m->units.n - (logits ? 0 : 1); /* the head is for logits alone */
    const ls_tensor *y = forward(d->m, units, d->t, x, &d->kv);
    LS_TRY(ls_tape_status(d->t));
    if (logits) *logits = y->data;
    d->kv.n += n;
    return LS_OK;
}

ls_status ls_decoder_feed(ls_decoder *d, const uint32_t *id, size_t n, const float **logits)
{
    const int64_t before = d->kv.n;
    if (n < 1) return ls_fail(LS_INVALID, "no token to read");
    if (n > (size_t)(d->kv.capacity - before))
        return ls_fail(LS_SHAPE, "%zu more tokens after %lld: the model's longest sequence is %lld", n, (long long)before,
                       (long long)d->kv.capacity);
    for (size_t i = 0; i < n; i++) {
        if (id[i] >= d->V)
            return ls_fail(LS_INVALID, "token %zu is %u; the model's vocabulary is 0 to %zu: is the tokenizer that of another "
                           "model?", i, id[i], d->V - 1);
        d->id[before + (int64_t)i] = id[i];
    }
    for (int64_t left = (int64_t)n; left > 0;) {
        const int64_t piece = left < PIECE ? left : PIECE;
        left -= piece;
        LS_TRY(read_piece(d, piece, left == 0 ? logits : NULL));
    }
    return LS_OK;
}

ls_status ls_decoder_rewind(ls_decoder *d, size_t n)
{
    if (n > (size_t)d->kv.n)
        return ls_fail(LS_INVALID, "back to %zu tokens: there are %lld", n, (long long)d->kv.n);
    d->kv.n = (int64_t)n;
    return LS_OK;
}

/* --- generation ------------------------------------------------------------------------------- */

/* Full: what fits in half of the capacity is recomputed, the newest token being the last of it. */
static ls_status slide(ls_decoder *d, uint32_t newest, const float **logits)
{
    const size_t capacity = (size_t)d->kv.capacity, keep = capacity / 2 > 1 ? capacity / 2 : 1;
    for (size_t i = 0; i + 1 < keep; i++) d->again[i] = (uint32_t)d->id[capacity - keep + 1 + i];
    d->again[keep - 1] = newest;
    d->kv.n = 0;
    return ls_decoder_feed(d, d->again, keep, logits);
}

ls_status ls_generate(ls_decoder *d, const uint32_t *prompt, size_t n, const ls_generate_opts *o, ls_token_fn fn,
                      void *arg, ls_generated *out)
{
    const ls_env *env = ls_env_get();
    const uint64_t start = env->mono_ns();
    const float *logits;
    ls_generated made = { .prompt = (int64_t)n };
    LS_TRY(ls_sample_check(&o->sample));
    if (n < 1) return ls_fail(LS_INVALID, "an empty prompt: a model needs a token to begin with");
    if (n > (size_t)d->kv.capacity)
        return ls_fail(LS_INVALID, "the prompt has %zu tokens, the model's longest sequence is %lld: shorten it", n,
                       (long long)d->kv.capacity);
    d->kv.n = 0;
    LS_TRY(ls_decoder_feed(d, prompt, n, &logits));
    made.prompt_ns = env->mono_ns() - start;
    while (made.made < o->tokens) {
        uint32_t id;
        LS_TRY(ls_sample(&o->sample, logits, d->V, n + (uint64_t)made.made, d->weight, &id));
        made.stopped = o->stop >= 0 && id == o->stop;
        if (made.stopped) break;
        made.made++;
        if (fn) LS_TRY(fn(arg, id));
        if (made.made == o->tokens) break;
        if (d->kv.n == d->kv.capacity) {
            made.slides++;
            LS_TRY(slide(d, id, &logits));
        } else {
            LS_TRY(ls_decoder_feed(d, &id, 1, &logits));
        }
    }
    made.ns = env->mono_ns() - start - made.prompt_ns;
    if (out) *out = made;
    return LS_OK;
}
