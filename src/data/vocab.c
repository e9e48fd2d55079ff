/* vocab.c -- the tokens of a tokenizer: bytes by id, and ids by bytes. */
#include "data/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"

/* The slot of these bytes, or the empty one where they would go. */
static uint32_t *slot_of(const ls_vocab *v, const char *p, size_t n)
{
    uint32_t i = (uint32_t)ls_hash64(p, n, 0) & v->mask;
    for (;; i = (i + 1) & v->mask) {
        uint32_t id = v->slot[i];
        if (id == 0 || (v->len[id - 1] == n && memcmp(v->bytes + v->at[id - 1], p, n) == 0)) return &v->slot[i];
    }
}

uint32_t ls_vocab_find(const ls_vocab *v, const char *p, size_t n)
{
    return v->slot ? *slot_of(v, p, n) - 1 : LS_NO_TOKEN;
}

/* Twice as many slots; half of them stay empty. */
static bool grow_slots(ls_vocab *v)
{
    ls_vocab more = *v;
    more.mask = v->slot ? 2 * v->mask + 1 : 1023;
    more.slot = calloc((size_t)more.mask + 1, sizeof *more.slot);
    if (!more.slot) return false;
    for (uint32_t id = 0; id < v->n; id++)
        if (v->len[id] > 0) *slot_of(&more, v->bytes + v->at[id], v->len[id]) = id + 1;
    free(v->slot);
    *v = more;
    return true;
}

static bool grow_ids(ls_vocab *v, uint32_t id)
{
    if (id >= v->cap) {
        uint32_t cap = v->cap ? v->cap : 512;
        while (cap <= id) cap *= 2;
        uint32_t *at = realloc(v->at, cap * sizeof *at);
        if (at) v->at = at;
        uint32_t *len = at ? realloc(v->len, cap * sizeof *len) : NULL;
        if (!len) return false;
        v->len = len;
        v->cap = cap;
    }
    for (; v->n <= id; v->n++) v->at[v->n] = v->len[v->n] = 0;
    return true;
}

static bool grow_bytes(ls_vocab *v, size_t n)
{
    if (v->nbytes + n <= v->room) return true;
    size_t room = v->room ? v->room : 4096;
    while (room < v->nbytes + n) room *= 2;
    char *bytes = realloc(v->bytes, room);
    if (!bytes) return false;
    v->bytes = bytes;
    v->room = room;
    return true;
}

ls_status ls_vocab_add(ls_vocab *v, uint32_t id, const char *p, size_t n)
{
    if (id >= LS_TOKENIZER_MAX_TOKENS)
        return ls_fail(LS_INVALID, "token id %u; at most %u tokens are accepted", id, LS_TOKENIZER_MAX_TOKENS);
    if (n == 0) return ls_fail(LS_INVALID, "token %u is empty", id);
    if (n > LS_TOKENIZER_MAX_TOKEN)
        return ls_fail(LS_INVALID, "token %u has %zu bytes; at most %u are accepted", id, n, LS_TOKENIZER_MAX_TOKEN);
    if (id < v->n && v->len[id] > 0) return ls_fail(LS_INVALID, "two tokens have the id %u", id);
    uint32_t old = ls_vocab_find(v, p, n);
    if (old != LS_NO_TOKEN) return ls_fail(LS_INVALID, "tokens %u and %u are the same bytes", old, id);
    if (!grow_ids(v, id) || !grow_bytes(v, n) || ((!v->slot || 2 * (v->used + 1) > v->mask) && !grow_slots(v)))
        return ls_fail(LS_NO_MEMORY, "a vocabulary of %u tokens", id + 1);
    memcpy(v->bytes + v->nbytes, p, n);
    v->at[id] = (uint32_t)v->nbytes;
    v->len[id] = (uint32_t)n;
    v->nbytes += n;
    v->used++;
    *slot_of(v, p, n) = id + 1;
    return LS_OK;
}

void ls_vocab_free(ls_vocab *v)
{
    free(v->at);
    free(v->len);
    free(v->bytes);
    free(v->slot);
    *v = (ls_vocab){ 0 };
}

static bool printable(unsigned b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xff && b != 0xad); }

/* The bytes that are not printable, in order. */
static unsigned nth_hidden(unsigned n) { return n < 33 ? n : n < 67 ? n - 33 + 0x7f : 0xad; }

unsigned ls_byte_to_char(uint8_t b)
{
    if (printable(b)) return b;
    return 0x100u + (b < 33 ? b : b == 0xad ? 67u : b - 0x7fu + 33u);
}

size_t ls_chars_to_bytes(const char *p, size_t n, char *out)
{
    const uint8_t *in = (const uint8_t *)p;
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        unsigned c = in[i];
        if (c >= 0xc2 && c <= 0xc5 && i + 1 < n && (in[i + 1] & 0xc0) == 0x80) {
            c = (c & 0x1fu) << 6 | (in[i + 1] & 0x3fu);
            i += 2;
        } else {
            i++;
            if (c >= 0x80) return SIZE_MAX;
        }
        if (c >= 0x100 && c < 0x100 + 68) out[count] = (char)nth_hidden(c - 0x100);
        else if (printable(c) && c <= 0xff) out[count] = (char)c;
        else return SIZE_MAX;
    }
    return count;
}
