/* bpe.c -- byte pair encoding of one word (Sennrich, Haddow and Birch 2016; on bytes: Radford et al. 2019).
 *
 * A word starts as its bytes. Short words are searched again for their strongest
 * pair after each merge, which is quadratic and, for some bytes, the fastest.
 * Long ones (text without blanks, or somebody's attempt to stop us) keep the
 * pairs in a heap: n log n. Most words have been seen before, and are looked up.
 */
#include "data/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/hash.h"

#define SHORT_WORD 64u               /* bytes */
#define WORD_SLOTS (1u << 17)
#define WORD_MAX   (WORD_SLOTS / 2)  /* words kept */
#define WORD_ROOM  ((size_t)4 << 20) /* bytes of words and their ids */

typedef struct ls_word_slot {
    uint32_t hash;        /* the high half: the low one chose the slot */
    uint32_t at;          /* in room, a multiple of 4: the ids, then the word */
    uint16_t bytes, nids; /* bytes 0: empty */
} ls_word_slot;

ls_status ls_ids_reserve(ls_ids *ids, size_t n)
{
    if (LS_LIKELY(ids->cap - ids->n >= n)) return LS_OK;
    size_t cap = ids->cap ? ids->cap : 256;
    while (cap - ids->n < n && cap < SIZE_MAX / 16) cap *= 2;
    uint32_t *p = cap - ids->n < n ? NULL : realloc(ids->p, cap * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "%zu token ids", cap);
    ids->p = p;
    ids->cap = cap;
    return LS_OK;
}

void ls_ids_free(ls_ids *ids)
{
    free(ids->p);
    *ids = (ls_ids){ 0 };
}

/* --- the merges ---------------------------------------------------------------- */

static ls_pair_slot *pair_slot(const ls_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    for (uint32_t i = (uint32_t)(key >> 32) & b->mask;; i = (i + 1) & b->mask) {
        ls_pair_slot *s = &b->pair[i];
        if (s->rank == LS_NO_TOKEN || (s->left == left && s->right == right)) return s;
    }
}

ls_status ls_bpe_add(ls_bpe *b, uint32_t left, uint32_t right, uint32_t made)
{
    if (b->nmerges == b->cap) {
        uint32_t cap = b->cap ? 2 * b->cap : 1024;
        ls_merge *m = realloc(b->merge, cap * sizeof *m);
        if (!m) return ls_fail(LS_NO_MEMORY, "%u merges", cap);
        b->merge = m;
        b->cap = cap;
    }
    b->merge[b->nmerges++] = (ls_merge){ left, right, made };
    return LS_OK;
}

ls_status ls_bpe_finish(ls_bpe *b)
{
    uint32_t slots = 16;
    while (slots < 2 * b->nmerges) slots *= 2;
    b->mask = slots - 1;
    b->pair = malloc(slots * sizeof *b->pair);
    b->cache.slot = calloc(WORD_SLOTS, sizeof *b->cache.slot);
    b->cache.room = malloc(WORD_ROOM);
    if (!b->pair || !b->cache.slot || !b->cache.room) return ls_fail(LS_NO_MEMORY, "%u merges", b->nmerges);
    memset(b->pair, 0xff, slots * sizeof *b->pair);
    for (uint32_t rank = 0; rank < b->nmerges; rank++) {
        const ls_merge *m = &b->merge[rank];
        ls_pair_slot *s = pair_slot(b, m->left, m->right);
        if (s->rank != LS_NO_TOKEN) return ls_fail(LS_INVALID, "merges %u and %u are the same", s->rank, rank);
        *s = (ls_pair_slot){ m->left, m->right, rank, m->made };
    }
    return LS_OK;
}

void ls_bpe_free(ls_bpe *b)
{
    free(b->merge);
    free(b->pair);
    free(b->cache.slot);
    free(b->cache.room);
    free(b->scratch);
    *b = (ls_bpe){ 0 };
}

/* --- short words ------------------------------------------------------------------ */

static void merge_short(const ls_bpe *b, const uint8_t *word, uint32_t n, ls_ids *out)
{
    uint32_t id[SHORT_WORD], rank[SHORT_WORD], made[SHORT_WORD]; /* rank, made: of the pair that begins here */
    for (uint32_t i = 0; i < n; i++) id[i] = b->of_byte[word[i]];
    for (uint32_t i = 0; i + 1 < n; i++) {
        const ls_pair_slot *s = pair_slot(b, id[i], id[i + 1]);
        rank[i] = s->rank;
        made[i] = s->made;
    }
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == LS_NO_TOKEN) break;
        id[best] = made[best];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        memmove(rank + best, rank + best + 1, (n - best) * sizeof *rank); /* the last one is not used again */
        memmove(made + best, made + best + 1, (n - best) * sizeof *made);
        for (uint32_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const ls_pair_slot *s = pair_slot(b, id[i], id[i + 1]);
            rank[i] = s->rank;
            made[i] = s->made;
        }
    }
    memcpy(out->p + out->n, id, n * sizeof *id);
    out->n += n;
}

/* --- long words -------------------------------------------------------------------- */

typedef struct node {
    size_t prev, next; /* neighbours; n: none */
    uint32_t id;       /* LS_NO_TOKEN: merged into the one before */
} node;

/* A pair that may have been broken up since. */
typedef struct candidate {
    size_t at;
    uint32_t rank, left, right;
} candidate;

typedef struct heap {
    candidate *p;
    size_t n;
} heap;

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(heap *h, candidate c)
{
    size_t i = h->n++;
    for (; i > 0 && before(&c, &h->p[(i - 1) / 2]); i = (i - 1) / 2) h->p[i] = h->p[(i - 1) / 2];
    h->p[i] = c;
}

static candidate pop(heap *h)
{
    candidate top = h->p[0], last = h->p[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n) break;
        if (child + 1 < h->n && before(&h->p[child + 1], &h->p[child])) child++;
        if (!before(&h->p[child], &last)) break;
        h->p[i] = h->p[child];
        i = child;
    }
    h->p[i] = last;
    return top;
}

static void offer(const ls_bpe *b, heap *h, const node *list, size_t n, size_t at)
{
    if (at == n || list[at].next == n) return;
    uint32_t left = list[at].id, right = list[list[at].next].id;
    const ls_pair_slot *s = pair_slot(b, left, right);
    if (s->rank != LS_NO_TOKEN) push(h, (candidate){ at, s->rank, left, right });
}

static ls_status merge_long(ls_bpe *b, const uint8_t *word, size_t n, ls_ids *out)
{
    /* every merge takes one candidate out and adds two at most */
    size_t want = n * (sizeof(node) + 3 * sizeof(candidate));
    if (n > SIZE_MAX / 2 / (sizeof(node) + 3 * sizeof(candidate))) want = SIZE_MAX;
    if (b->scratch_bytes < want) {
        void *p = want == SIZE_MAX ? NULL : realloc(b->scratch, want);
        if (!p) return ls_fail(LS_NO_MEMORY, "a word of %zu bytes", n);
        b->scratch = p;
        b->scratch_bytes = want;
    }
    heap h = { .p = b->scratch };
    node *list = (node *)(h.p + 3 * n);
    for (size_t i = 0; i < n; i++)
        list[i] = (node){ .prev = i > 0 ? i - 1 : n, .next = i + 1, .id = b->of_byte[word[i]] };
    for (size_t i = 0; i < n; i++) offer(b, &h, list, n, i);
    while (h.n > 0) {
        candidate c = pop(&h);
        node *left = &list[c.at];
        if (left->id != c.left || left->next == n || list[left->next].id != c.right) continue;
        node *right = &list[left->next];
        left->id = pair_slot(b, c.left, c.right)->made;
        left->next = right->next;
        if (right->next < n) list[right->next].prev = c.at;
        right->id = LS_NO_TOKEN;
        offer(b, &h, list, n, left->prev);
        offer(b, &h, list, n, c.at);
    }
    for (size_t i = 0; i < n; i = list[i].next) out->p[out->n++] = list[i].id;
    return LS_OK;
}

ls_status ls_bpe_merge(ls_bpe *b, const char *word, size_t n, ls_ids *out)
{
    const uint8_t *p = (const uint8_t *)word;
    LS_TRY(ls_ids_reserve(out, n));
    uint32_t id = b->whole ? ls_vocab_find(b->whole, word, n) : LS_NO_TOKEN;
    if (id != LS_NO_TOKEN) {
        out->p[out->n++] = id;
    } else if (b->nmerges == 0) {
        for (size_t i = 0; i < n; i++) out->p[out->n++] = b->of_byte[p[i]];
    } else if (n <= SHORT_WORD) {
        merge_short(b, p, (uint32_t)n, out);
    } else {
        return merge_long(b, p, n, out);
    }
    return LS_OK;
}

/* --- words seen before ----------------------------------------------------------------- */

static void forget(ls_word_cache *c)
{
    memset(c->slot, 0, WORD_SLOTS * sizeof *c->slot);
    c->used = c->words = 0;
}

static void keep(ls_word_cache *c, ls_word_slot *s, uint64_t hash, const char *word, size_t n, const uint32_t *id,
                 size_t nids)
{
    size_t bytes = (nids * sizeof *id + n + 3) / 4 * 4;
    if (c->words == WORD_MAX || bytes > WORD_ROOM - c->used) {
        forget(c);
        s = &c->slot[hash % WORD_SLOTS];
    }
    *s = (ls_word_slot){ (uint32_t)(hash >> 32), (uint32_t)c->used, (uint16_t)n, (uint16_t)nids };
    memcpy(c->room + c->used, id, nids * sizeof *id);
    memcpy(c->room + c->used + nids * sizeof *id, word, n);
    c->used += bytes;
    c->words++;
}

ls_status ls_bpe_word(ls_bpe *b, const char *word, size_t n, ls_ids *out)
{
    if (n > SHORT_WORD || b->nmerges == 0) return ls_bpe_merge(b, word, n, out);
    ls_word_cache *c = &b->cache;
    uint64_t hash = ls_hash64(word, n, 0);
    ls_word_slot *s = &c->slot[hash % WORD_SLOTS];
    for (; s->bytes > 0; s = s == &c->slot[WORD_SLOTS - 1] ? c->slot : s + 1) {
        if (s->hash != (uint32_t)(hash >> 32) || s->bytes != n) continue;
        const uint8_t *ids = c->room + s->at;
        if (memcmp(ids + s->nids * sizeof *out->p, word, n) != 0) continue;
        LS_TRY(ls_ids_reserve(out, SHORT_WORD));
        memcpy(out->p + out->n, ids, s->nids * sizeof *out->p);
        out->n += s->nids;
        return LS_OK;
    }
    size_t first = out->n;
    LS_TRY(ls_bpe_merge(b, word, n, out));
    keep(c, s, hash, word, n, out->p + first, out->n - first);
    return LS_OK;
}
