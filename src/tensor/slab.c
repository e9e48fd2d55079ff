/* slab.c -- a stack with holes. */
#include "tensor/slab.h"

#include <stdbool.h>
#include <string.h>

static size_t round_up(size_t n) { return (n + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN; }

size_t ls_slab_push(ls_slab *s, size_t n)
{
    const size_t need = round_up(n), at = s->used;
    if (need < n || need > s->size - s->used) return LS_SLAB_FULL;
    s->used += need;
    if (s->used > s->peak) s->peak = s->used;
    return at;
}

static void remove_hole(ls_slab *s, int i)
{
    s->nholes--;
    memmove(s->hole + i, s->hole + i + 1, (size_t)(s->nholes - i) * sizeof *s->hole);
}

size_t ls_slab_take(ls_slab *s, size_t n)
{
    const size_t need = round_up(n);
    int best = -1;
    for (int i = 0; i < s->nholes && need >= n; i++)
        if (s->hole[i].n >= need && (best < 0 || s->hole[i].n < s->hole[best].n)) best = i;
    if (best < 0 || need == 0) return ls_slab_push(s, n);
    const size_t at = s->hole[best].at;
    s->hole[best].at += need;
    s->hole[best].n -= need;
    if (s->hole[best].n == 0) remove_hole(s, best);
    return at;
}

/* A hole at the end is none. */
static void sink(ls_slab *s)
{
    if (s->nholes == 0) return;
    const ls_slab_hole last = s->hole[s->nholes - 1];
    if (last.at + last.n != s->used || last.at < s->floor) return;
    s->used = last.at;
    s->nholes--;
}

void ls_slab_give(ls_slab *s, size_t at, size_t n)
{
    const size_t need = round_up(n);
    int i = 0; /* the first hole behind it */
    if (need == 0) return;
    while (i < s->nholes && s->hole[i].at < at) i++;
    const bool joins_before = i > 0 && s->hole[i - 1].at + s->hole[i - 1].n == at;
    const bool joins_after = i < s->nholes && at + need == s->hole[i].at;
    if (joins_before && joins_after) {
        s->hole[i - 1].n += need + s->hole[i].n;
        remove_hole(s, i);
    } else if (joins_before) {
        s->hole[i - 1].n += need;
    } else if (joins_after) {
        s->hole[i].at = at;
        s->hole[i].n += need;
    } else if (s->nholes < LS_SLAB_HOLES) {
        memmove(s->hole + i + 1, s->hole + i, (size_t)(s->nholes - i) * sizeof *s->hole);
        s->hole[i] = (ls_slab_hole){ at, need };
        s->nholes++;
    } else if (at + need == s->used && at >= s->floor) {
        s->used = at;
    }
    sink(s);
}

void ls_slab_release(ls_slab *s, size_t mark)
{
    while (s->nholes > 0 && s->hole[s->nholes - 1].at >= mark) s->nholes--;
    if (s->nholes > 0) {
        ls_slab_hole *last = &s->hole[s->nholes - 1];
        if (last->at + last->n > mark) last->n = mark - last->at;
    }
    s->used = mark;
    sink(s);
}

size_t ls_slab_live(const ls_slab *s)
{
    size_t n = s->used;
    for (int i = 0; i < s->nholes; i++) n -= s->hole[i].n;
    return n;
}
