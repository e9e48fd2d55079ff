/* rank_set.c -- sets of ranks. */
#include "base/rank_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_status ls_rank_set_create(int size, ls_rank_set *out)
{
    *out = (ls_rank_set){ NULL, 0 };
    if (size < 0) return ls_fail(LS_INVALID, "a set of %d ranks: expected 0 or more", size);
    if (size == 0) return LS_OK;
    out->word = calloc(ls_rank_set_words(size), sizeof *out->word);
    if (!out->word) return ls_fail(LS_NO_MEMORY, "a set of %d ranks", size);
    out->size = size;
    return LS_OK;
}

void ls_rank_set_free(ls_rank_set *s)
{
    free(s->word);
    *s = (ls_rank_set){ NULL, 0 };
}

void ls_rank_set_clear(ls_rank_set *s)
{
    if (s->size > 0) memset(s->word, 0, ls_rank_set_words(s->size) * sizeof *s->word);
}

void ls_rank_set_add_all(ls_rank_set *s)
{
    for (int r = 0; r < s->size; r += 64) s->word[r / 64] = s->size - r < 64 ? (1ull << (s->size - r)) - 1 : UINT64_MAX;
}

int ls_rank_set_count(const ls_rank_set *s)
{
    int n = 0;
    for (size_t i = 0; i < ls_rank_set_words(s->size); i++) n += __builtin_popcountll(s->word[i]);
    return n;
}

bool ls_rank_set_is_empty(const ls_rank_set *s) { return ls_rank_set_next(s, 0) < 0; }

int ls_rank_set_next(const ls_rank_set *s, int from)
{
    if (from < 0) from = 0;
    if (from >= s->size) return -1;
    size_t i = (size_t)from / 64;
    uint64_t word = s->word[i] >> (from % 64) << (from % 64);
    while (word == 0)
        if (++i == ls_rank_set_words(s->size)) return -1;
        else word = s->word[i];
    return (int)(64 * i) + __builtin_ctzll(word);
}

const char *ls_rank_set_text(const ls_rank_set *s, char *buf, size_t n)
{
    size_t at = 0;
    if (n > 0) buf[0] = 0;
    for (int first = ls_rank_set_next(s, 0), last; first >= 0; first = ls_rank_set_next(s, last + 1)) {
        char one[32];
        for (last = first; ls_rank_set_has(s, last + 1);) last++;
        if (last == first + 1) last = first; /* "0, 1": two neighbours are no range */
        const char *comma = at > 0 ? ", " : "";
        int k = last == first ? snprintf(one, sizeof one, "%s%d", comma, first)
                              : snprintf(one, sizeof one, "%s%d-%d", comma, first, last);
        const bool more = ls_rank_set_next(s, last + 1) >= 0;
        if (at + (size_t)k + (more ? sizeof ", ..." : 1) > n) {
            snprintf(buf + at, n - at, "%s...", comma);
            break;
        }
        memcpy(buf + at, one, (size_t)k + 1);
        at += (size_t)k;
    }
    return buf;
}
