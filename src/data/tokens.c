/* tokens.c -- files of token ids, mapped, and batches of windows from them.
 *
 * The order of an epoch is a permutation of W windows that needs no memory: a
 * Feistel network over the next even number of bits above log2 W, keyed by
 * (seed, epoch) through Philox, walked until it lands below W (Black and Rogaway
 * 2002). Any place of it can be computed alone, so a run may begin anywhere.
 */
#include "data/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/rng.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian; a big-endian machine would have to swap bytes here"
#endif

#define MAGIC16   20240520
#define VERSION16 1
#define MAGIC32   20240801
#define VERSION32 7
#define ROUNDS    6
#define PIECE     ((size_t)1 << 20) /* of a file that is written, in memory */
#define SAY_SO    "say so (--format nanogpt; in training data.format)"
#define RESIDENT  16 /* a file of at most one part in so many of the available memory is read whole */

/* --- files ---------------------------------------------------------------------------- */

static ls_status parse_llmc(const char *name, const void *p, size_t n, ls_tokens *out)
{
    int32_t header[3];
    if (n < LS_LLMC_HEADER)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, but the header of a token file has %d; nanoGPT's format has none: " SAY_SO,
                       name, n, LS_LLMC_HEADER);
    memcpy(header, p, sizeof header);
    bool wide = header[0] == MAGIC32;
    if (!wide && header[0] != MAGIC16)
        return ls_fail(LS_BAD_FILE, "%s: byte 0: magic number %d, expected %d or %d; nanoGPT's format has none: " SAY_SO, name,
                       header[0], MAGIC16, MAGIC32);
    if (header[1] != (wide ? VERSION32 : VERSION16))
        return ls_fail(LS_BAD_FILE, "%s: byte 4: version %d, expected %d", name, header[1], wide ? VERSION32 : VERSION16);
    size_t each = wide ? sizeof *out->u32 : sizeof *out->u16, bytes = n - LS_LLMC_HEADER;
    if (header[2] < 0 || (size_t)header[2] != bytes / each || bytes % each != 0)
        return ls_fail(LS_BAD_FILE, "%s: byte 8: the header says %d tokens, but %zu bytes of %zu each follow it", name,
                       header[2], bytes, each);
    const uint8_t *tokens = (const uint8_t *)p + LS_LLMC_HEADER;
    out->n = (size_t)header[2];
    if (wide) out->u32 = (const uint32_t *)tokens;
    else out->u16 = (const uint16_t *)tokens;
    return LS_OK;
}

static ls_status parse_nanogpt(const char *name, const void *p, size_t n, ls_tokens *out)
{
    int32_t first = 0;
    if (n >= LS_LLMC_HEADER) memcpy(&first, p, sizeof first);
    if (first == MAGIC16 || first == MAGIC32)
        return ls_fail(LS_BAD_FILE, "%s: byte 0: this is llm.c's header, not nanoGPT's format", name);
    if (n == 0 || n % sizeof *out->u16 != 0)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, expected tokens of 2 bytes each", name, n);
    out->n = n / sizeof *out->u16;
    out->u16 = p;
    return LS_OK;
}

ls_status ls_tokens_parse(const char *name, const void *p, size_t n, ls_token_format format, ls_tokens *out)
{
    *out = (ls_tokens){ 0 };
    return format == LS_TOKENS_LLMC ? parse_llmc(name, p, n, out) : parse_nanogpt(name, p, n, out);
}

/* Whoever cannot be read ahead is read when it is touched, but for what is not there any more. */
static ls_status read_ahead(const ls_tokens *t, const char *path, const void *p, size_t n, bool now)
{
    if (!t->map || ls_env_get()->read_ahead(p, n, now) != -EFAULT) return LS_OK;
    return ls_fail(LS_IO, "%s: %zu bytes from %zu on cannot be read", path, n,
                   (size_t)((const uint8_t *)p - (const uint8_t *)t->map));
}

ls_status ls_tokens_open(const char *path, ls_token_format format, ls_tokens *out)
{
    const ls_env *env = ls_env_get();
    const void *map = NULL;
    ls_status st = LS_OK;
    *out = (ls_tokens){ 0 };
    int fd = env->open_read(path);
    if (fd < 0) return ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-fd));
    int64_t size = env->fd_size(fd);
    if (size > 0) map = env->map_read(fd, (size_t)size);
    env->close_fd(fd);
    if (size < 0 || (size > 0 && !map)) return ls_fail(LS_IO, "%s: cannot be mapped", path);

    st = ls_tokens_parse(path, map, (size_t)size, format, out);
    out->map = map;
    out->map_bytes = (size_t)size;
    if (st == LS_OK && !(out->path = strdup(path))) st = ls_fail(LS_NO_MEMORY, "%s: its name", path);
    out->resident = (uint64_t)size <= env->mem_available() / RESIDENT;
    if (st == LS_OK && out->resident) st = read_ahead(out, path, map, (size_t)size, true);
    if (st < 0) ls_tokens_close(out);
    return st;
}

void ls_tokens_close(ls_tokens *t)
{
    if (t->map) ls_env_get()->unmap((void *)(uintptr_t)t->map, t->map_bytes);
    free(t->path);
    *t = (ls_tokens){ 0 };
}

static ls_status too_large(const ls_tokens *t, size_t i, uint32_t vocab)
{
    size_t each = t->u16 ? 2 : 4, header = t->map_bytes > t->n * each ? LS_LLMC_HEADER : 0;
    return ls_fail(LS_BAD_FILE, "%s: byte %zu: token %zu is %u, but the vocabulary has %u: made with another tokenizer, or "
                   "model.vocab_size is too small%s", t->path ? t->path : "tokens", header + i * each, i,
                   t->u16 ? t->u16[i] : t->u32[i], vocab,
                   t->path && !header ? "; the file has no header of llm.c's, so it was read as nanoGPT's uint16 tokens" : "");
}

ls_status ls_tokens_read(const ls_tokens *t, size_t first, size_t n, uint32_t vocab, int64_t *out)
{
    if (first > t->n || n > t->n - first)
        return ls_fail(LS_INVALID, "tokens %zu to %zu of %zu", first, first + n, t->n);
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = t->u16 ? t->u16[first + i] : t->u32[first + i];
        most = id > most ? id : most;
        out[i] = id;
    }
    if (most < vocab) return LS_OK;
    for (size_t i = 0;; i++)
        if (out[i] >= vocab) return too_large(t, first + i, vocab);
}

size_t ls_tokens_find(const ls_tokens *t, uint32_t id, size_t first, size_t n, size_t *at, size_t cap)
{
    size_t count = 0, end = first < t->n && n > t->n - first ? t->n : first + n;
    for (size_t i = first; i < end && i < t->n; i++) {
        if ((t->u16 ? t->u16[i] : t->u32[i]) != id) continue;
        if (count < cap) at[count] = i;
        count++;
    }
    return count;
}

/* --- writing ---------------------------------------------------------------------------- */

ls_status ls_token_writer_open(ls_token_writer *w, const char *path, ls_token_format format, uint32_t vocab)
{
    *w = (ls_token_writer){ .format = format, .wide = vocab > UINT16_MAX + 1u };
    if (format == LS_TOKENS_NANOGPT && w->wide)
        return ls_fail(LS_UNSUPPORTED, "nanoGPT's format has 16 bits a token, the vocabulary %u tokens; llmc has 32", vocab);
    ls_status st = ls_commit_create(path, &w->file);
    if (st == LS_OK && !(w->p = calloc(1, PIECE))) st = ls_fail(LS_NO_MEMORY, "%s: %zu bytes of it", path, PIECE);
    if (st == LS_OK && format == LS_TOKENS_LLMC) w->n = LS_LLMC_HEADER; /* zeros, until the tokens are counted */
    if (st < 0) ls_token_writer_close(w);
    return st;
}

static ls_status write_piece(ls_token_writer *w)
{
    const size_t n = w->n;
    w->n = 0;
    return ls_commit_write(w->file, w->p, n);
}

ls_status ls_token_writer_add(ls_token_writer *w, const uint32_t *id, size_t n)
{
    const size_t each = w->wide ? sizeof(uint32_t) : sizeof(uint16_t);
    for (size_t i = 0; i < n; i++) {
        const uint16_t narrow = (uint16_t)id[i];
        if (PIECE - w->n < each) LS_TRY(write_piece(w));
        memcpy(w->p + w->n, w->wide ? (const void *)&id[i] : &narrow, each);
        w->n += each;
    }
    w->tokens += n;
    return LS_OK;
}

ls_status ls_token_writer_finish(ls_token_writer *w)
{
    if (w->format == LS_TOKENS_LLMC && w->tokens > LS_LLMC_MAX)
        return ls_fail(LS_INVALID, "%zu tokens, a header of llm.c's can count to %d: write several files", w->tokens,
                       LS_LLMC_MAX);
    const int32_t header[3] = { w->wide ? MAGIC32 : MAGIC16, w->wide ? VERSION32 : VERSION16, (int32_t)w->tokens };
    LS_TRY(write_piece(w));
    if (w->format == LS_TOKENS_LLMC) LS_TRY(ls_commit_rewrite(w->file, 0, header, sizeof header));
    return ls_commit_finish(w->file);
}

void ls_token_writer_close(ls_token_writer *w)
{
    ls_commit_destroy(w->file);
    free(w->p);
    *w = (ls_token_writer){ 0 };
}

/* --- batches ------------------------------------------------------------------------------ */

ls_status ls_token_loader_create(const ls_tokens *t, const ls_token_loader_opts *o, ls_token_loader **out)
{
    *out = NULL;
    if (o->batch == 0 || o->T == 0)
        return ls_fail(LS_INVALID, "batches of %zu windows of %zu tokens: expected at least 1 of each", o->batch, o->T);
    if (o->dp_size < 1 || o->dp_rank < 0 || o->dp_rank >= o->dp_size)
        return ls_fail(LS_INVALID, "rank %d of %d", o->dp_rank, o->dp_size);
    if (o->inner > 0 && (o->dp_size % o->inner != 0 || (o->grain && o->batch % o->grain != 0)))
        return ls_fail(LS_INVALID, "%d ranks, %zu windows each, in turns of %d and grains of %zu: expected numbers that divide each other",
                       o->dp_size, o->batch, o->inner, o->grain);
    if (t->n < 2 || o->T > t->n - 1)
        return ls_fail(LS_INVALID, "%s: %zu tokens, a window needs %zu and the one that follows", t->path ? t->path : "tokens",
                       t->n, o->T);
    ls_token_loader *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "a loader of tokens");
    *l = (ls_token_loader){ .data = t, .batch = o->batch, .T = o->T, .windows = (t->n - 1) / o->T,
                            .dp_rank = o->dp_rank, .dp_size = o->dp_size, .seed = o->seed, .shuffle = o->shuffle,
                            .vocab = o->vocab,
                            .deal = { o->batch, o->grain ? o->grain : 1, o->inner ? o->inner : 1 } };
    size_t each = sizeof *l->x;
    if (o->batch <= SIZE_MAX / 4 / each / (o->T + 1)) {
        l->x = malloc((o->batch * o->T + 1) * each); /* a window comes with the token behind it */
        l->y = malloc(o->batch * o->T * each);
        l->first = calloc(o->batch, sizeof *l->first);
    }
    if (!l->x || !l->y || !l->first) {
        ls_token_loader_destroy(l);
        return ls_fail(LS_NO_MEMORY, "a batch of %zu windows of %zu tokens", o->batch, o->T);
    }
    *out = l;
    return LS_OK;
}

void ls_token_loader_destroy(ls_token_loader *l)
{
    if (!l) return;
    free(l->x);
    free(l->y);
    free(l->first);
    free(l);
}

/* A permutation of [0, 2^(2 half)): each round xors a keyed mix of one half into the other. */
static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned half, uint64_t v)
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = v >> half, right = v & mask;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t word[4];
        ls_philox_block(seed, ls_stream(LS_STREAM_ORDER, epoch), right * ROUNDS + round, word);
        uint64_t mixed = left ^ ((word[0] | (uint64_t)word[1] << 32) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

size_t ls_token_loader_window(const ls_token_loader *l, uint64_t g)
{
    uint64_t at = g % l->windows, epoch = g / l->windows;
    if (!l->shuffle || l->windows == 1) return (size_t)at;
    unsigned bits = 64u - (unsigned)__builtin_clzll(l->windows - 1), half = (bits + 1) / 2;
    do at = feistel(l->seed, epoch, half, at);
    while (at >= l->windows);
    return (size_t)at;
}

/* This rank's windows of samples [from, to), whole batches. */
static ls_status read_windows(const ls_token_loader *l, uint64_t from, uint64_t to, bool now)
{
    const ls_tokens *t = l->data;
    size_t each = t->u16 ? sizeof *t->u16 : sizeof *t->u32;
    const uint8_t *tokens = t->u16 ? (const uint8_t *)t->u16 : (const uint8_t *)t->u32;
    for (uint64_t g = from; g < to; g += (uint64_t)l->dp_size * l->batch)
        for (size_t b = 0; b < l->batch; b++) {
            size_t first = ls_token_loader_window(l, g + ls_deal_place(&l->deal, l->dp_rank, b)) * l->T;
            LS_TRY(read_ahead(t, t->path, tokens + first * each, (l->T + 1) * each, now));
        }
    return LS_OK;
}

/* At most every LS_TOKENS_AHEAD batches there is something to do. */
static ls_status look_ahead(ls_token_loader *l)
{
    uint64_t ahead = (uint64_t)LS_TOKENS_AHEAD * (uint64_t)l->dp_size * l->batch, at = l->position;
    if (!l->data->map || l->data->resident || (at >= l->mapped[0] && at < l->mapped[1])) return LS_OK;
    uint64_t asked = at == l->mapped[1] ? l->asked : at; /* somebody may have set position */
    LS_TRY(read_windows(l, at, at + ahead, true));
    LS_TRY(read_windows(l, asked > at + ahead ? asked : at + ahead, at + 2 * ahead, false));
    l->mapped[0] = at;
    l->mapped[1] = at + ahead;
    l->asked = at + 2 * ahead;
    return LS_OK;
}

ls_status ls_token_loader_next(ls_token_loader *l)
{
    LS_TRY(look_ahead(l));
    for (size_t b = 0; b < l->batch; b++) {
        int64_t *x = l->x + b * l->T;
        l->first[b] = ls_token_loader_window(l, l->position + ls_deal_place(&l->deal, l->dp_rank, b)) * l->T;
        LS_TRY(ls_tokens_read(l->data, l->first[b], l->T + 1, l->vocab, x));
        memcpy(l->y + b * l->T, x + 1, l->T * sizeof *x);
    }
    l->position += (uint64_t)l->dp_size * l->batch;
    return LS_OK;
}
