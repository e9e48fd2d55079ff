/* arena.c -- one big span, handed out from the bottom up; and further ones where it may grow.
 *
 * A mark counts the bytes handed out, over all segments. What is left of a segment when the next one is begun is
 * nobody's until a reset comes back to it.
 */
#include "lockstep/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/context.h"
#include "base/env.h"
#include "mem/ledger.h"

#define ALIGN 64u
#define PAGE 4096u
#define PLACE ((UINT64_C(1) << LS_ARENA_PLACE_BITS) - 1)

/* Spans handed out one after the other with the same kind count as one, so that a
 * reset can tell the ledger what it takes back. What is assigned to a unit is a span of its own. */
typedef struct span {
    size_t end;
    ls_mem_kind kind;
    int row; /* of the ledger; LS_LEDGER_NO_ROW, LS_LEDGER_UNCOUNTED */
} span;

typedef struct segment {
    char *base;
    size_t size, used;
    size_t start;      /* bytes handed out of those before it */
} segment;

struct ls_arena {
    segment seg[LS_ARENA_SEGMENTS];
    _Atomic int nsegs; /* release: the segment is there for who sees its number */
    int at;            /* that is handed out now; what follows is empty */
    _Atomic size_t size; /* of all */
    bool shared, grows, dry;
    int fd;            /* of the first segment; -1: private */
    ls_arena_added_fn added;
    void *arg;
    ls_ledger *ledger; /* borrowed; may be NULL */
    span *span;        /* owned */
    int nspans, cap;
    atomic_flag busy;  /* somebody allocates: a rank's own thread, or the one that moves its messages */
};

#define FIRST_GROWTH ((size_t)1 << 20)
#define MOST_GROWTH ((size_t)256 << 20)
/* Addresses cost nothing: segments double without end. The first one has room for the vectors of an op's collective,
 * which a dry tape puts there, as it is registered; where the limit of addresses is below, a small one. */
#define DRY_FIRST   ((size_t)4 << 30)
#define DRY_LEAST   ((size_t)1 << 20)

static double mib(uint64_t nbytes) { return (double)nbytes / 1048576.0; }

static LS_COLD ls_status too_little(size_t nbytes, uint64_t available)
{
    return ls_fail(LS_NO_MEMORY,
                   "an arena of %.1f MiB does not fit: %.1f MiB of memory are available; use fewer ranks, a smaller model "
                   "or batch, or raise the memory limit",
                   mib(nbytes), mib(available));
}

static LS_COLD ls_status refused(size_t nbytes, const char *why)
{
    return ls_fail(LS_NO_MEMORY, "an arena of %.1f MiB was refused: %s; use a smaller one, or raise the limit (ulimit -v)",
                   mib(nbytes), why);
}

/* Memory for nbytes (rounded up to pages) as the next segment, which nobody sees yet. */
static ls_status map_segment(ls_arena *a, size_t nbytes, segment *out, int *fd)
{
    const ls_env *env = ls_env_get();
    /* asked before anything is reserved: later it would be a kill */
    const uint64_t available = a->dry ? 0 : env->mem_available();
    *fd = -1;
    if (nbytes > SIZE_MAX - PAGE || (nbytes > available && !a->dry)) return too_little(nbytes, available);
    *out = (segment){ .size = nbytes > 0 ? (nbytes + PAGE - 1) / PAGE * PAGE : PAGE };
    if (a->dry) {
        out->base = env->map_nothing(out->size);
    } else if (a->shared) {
        *fd = env->memfd("lockstep-arena", out->size);
        if (*fd < 0) return refused(nbytes, strerror(-*fd));
        out->base = env->map_shared(*fd, out->size, true);
    } else {
        out->base = env->map_private(out->size);
    }
    if (out->base) return LS_OK;
    if (*fd >= 0) env->close_fd(*fd);
    *fd = -1;
    return refused(nbytes, "it cannot be mapped");
}

static int count(const ls_arena *a) { return atomic_load_explicit(&a->nsegs, memory_order_acquire); }

static void keep_segment(ls_arena *a, const segment *s)
{
    const int n = count(a);
    a->seg[n] = *s;
    atomic_store_explicit(&a->size, ls_arena_size(a) + s->size, memory_order_relaxed); /* one thread writes at a time */
    atomic_store_explicit(&a->nsegs, n + 1, memory_order_release);
}

static ls_status create(size_t nbytes, bool shared, bool dry, ls_ledger *ledger, ls_arena **out)
{
    segment first;
    *out = NULL;
    ls_arena *a = calloc(1, sizeof *a);
    if (!a) return ls_fail(LS_NO_MEMORY, "an arena");
    a->shared = shared;
    a->dry = a->grows = dry;
    a->ledger = ledger;
    atomic_flag_clear(&a->busy);
    ls_status st = map_segment(a, nbytes, &first, &a->fd);
    if (st < 0 && dry) st = map_segment(a, DRY_LEAST, &first, &a->fd);
    if (st < 0) {
        free(a);
        return st;
    }
    keep_segment(a, &first);
    *out = a;
    return LS_OK;
}

ls_status ls_arena_create(size_t nbytes, bool shared, ls_ledger *ledger, ls_arena **out)
{
    return create(nbytes, shared, false, ledger, out);
}

ls_status ls_arena_create_dry(ls_ledger *ledger, ls_arena **out) { return create(DRY_FIRST, false, true, ledger, out); }
bool ls_arena_is_dry(const ls_arena *a) { return a->dry; }

void ls_arena_destroy(ls_arena *a)
{
    if (!a) return;
    ls_arena_reset(a, 0);
    for (int i = 0; i < count(a); i++) ls_env_get()->unmap(a->seg[i].base, a->seg[i].size);
    if (a->fd >= 0) ls_env_get()->close_fd(a->fd);
    free(a->span);
    free(a);
}

void ls_arena_may_grow(ls_arena *a, ls_arena_added_fn added, void *arg)
{
    a->grows = true;
    a->added = added;
    a->arg = arg;
}

/* A further segment, for `need` bytes. */
static ls_status grow(ls_arena *a, size_t need)
{
    const int n = count(a);
    /* doubles from one to the next, whatever large vectors have got of their own: small things share few segments */
    size_t wish = a->dry ? ls_arena_size(a) : FIRST_GROWTH;
    for (int i = 1; i < n && wish < MOST_GROWTH && !a->dry; i++) wish *= 2;
    segment s;
    int fd;
    if (n == LS_ARENA_SEGMENTS)
        return ls_fail(LS_NO_MEMORY, "the arena has %d segments, which is all that it can have: ask for a larger one to "
                                     "begin with (arena_bytes of ls_world_opts)", n);
    ls_status st = map_segment(a, need > wish ? need : wish, &s, &fd);
    if (st < 0 && need < wish) st = map_segment(a, need, &s, &fd);
    LS_TRY(st);
    if (a->added) st = a->added(a->arg, n, fd);
    if (fd >= 0) ls_env_get()->close_fd(fd);
    if (st < 0) {
        ls_env_get()->unmap(s.base, s.size);
        return st;
    }
    keep_segment(a, &s);
    return LS_OK;
}

static size_t used(const ls_arena *a) { return a->seg[a->at].start + a->seg[a->at].used; }

/* The first segment from the current one on that has room for `need` bytes; NULL: none. */
static segment *roomy(ls_arena *a, size_t need)
{
    const size_t start = used(a);
    for (int i = a->at; i < count(a); i++) {
        segment *s = &a->seg[i];
        if (need > s->size - s->used) continue;
        for (int k = a->at + 1; k <= i; k++) a->seg[k].start = start;
        a->at = i;
        return s;
    }
    return NULL;
}

static size_t room_left(const ls_arena *a)
{
    size_t room = 0;
    for (int i = a->at; i < count(a); i++) room += a->seg[i].size - a->seg[i].used;
    return room;
}

static LS_COLD ls_status does_not_fit(const ls_arena *a, size_t nbytes, ls_mem_kind kind)
{
    if (!a->grows)
        return ls_fail(LS_NO_MEMORY, "%zu bytes (%s) do not fit into the arena: %zu of %zu are free; ask for a larger one",
                       nbytes, ls_mem_kind_name(kind), room_left(a), ls_arena_size(a));
    char why[LS_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", ls_last_error());
    return ls_fail(LS_NO_MEMORY, "the arena of %.1f MiB cannot grow by %.1f MiB (%s): %s", mib(ls_arena_size(a)), mib(nbytes),
                   ls_mem_kind_name(kind), why);
}

/* Room for n more spans. */
static ls_status spans_fit(ls_arena *a, int n)
{
    if (a->nspans + n <= a->cap) return LS_OK;
    const int cap = a->cap ? 2 * a->cap : 16;
    span *p = realloc(a->span, (size_t)cap * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "the arena's list of spans");
    a->span = p;
    a->cap = cap;
    return LS_OK;
}

/* `row`: LS_LEDGER_NO_ROW or LS_LEDGER_UNCOUNTED. */
static ls_status take(ls_arena *a, size_t nbytes, ls_mem_kind kind, int row, void **out)
{
    const size_t need = nbytes <= SIZE_MAX - ALIGN ? (nbytes + ALIGN - 1) / ALIGN * ALIGN : SIZE_MAX;
    segment *s = roomy(a, need);
    if (LS_UNLIKELY(!s)) {
        const ls_status st = a->grows ? grow(a, need) : LS_NO_MEMORY;
        if (st == LS_ABORTED) return st; /* its cause is elsewhere */
        if (st < 0) return does_not_fit(a, nbytes, kind);
        s = roomy(a, need);
    }
    const span *newest = a->nspans > 0 ? &a->span[a->nspans - 1] : NULL;
    if (!newest || newest->kind != kind || newest->row != row) {
        LS_TRY(spans_fit(a, 1));
        a->span[a->nspans++] = (span){ .kind = kind, .row = row };
    }
    *out = s->base + s->used;
    s->used += need;
    a->span[a->nspans - 1].end = used(a);
    if (row != LS_LEDGER_UNCOUNTED) ls_ledger_add(a->ledger, kind, need);
    return LS_OK;
}

static void lock(ls_arena *a)
{
    while (atomic_flag_test_and_set_explicit(&a->busy, memory_order_acquire)) ls_env_get()->yield();
}

static void unlock(ls_arena *a) { atomic_flag_clear_explicit(&a->busy, memory_order_release); }

static ls_status take_alone(ls_arena *a, size_t nbytes, ls_mem_kind kind, int row, void **out)
{
    *out = NULL;
    lock(a);
    const ls_status st = take(a, nbytes, kind, row, out);
    unlock(a);
    return st;
}

ls_status ls_arena_alloc(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out)
{
    return take_alone(a, nbytes, kind, LS_LEDGER_NO_ROW, out);
}

ls_status ls_arena_alloc_uncounted(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out)
{
    return take_alone(a, nbytes, kind, LS_LEDGER_UNCOUNTED, out);
}

/* Cuts the span that has the bytes [begin, end) of all that is handed out: they become one of their own. */
static ls_status assign(ls_arena *a, size_t begin, size_t end, int row)
{
    int i = a->nspans - 1; /* mostly what was handed out last */
    while (i > 0 && a->span[i - 1].end > begin) i--;
    const span all = i >= 0 ? a->span[i] : (span){ 0 };
    const size_t start = i > 0 ? a->span[i - 1].end : 0;
    if (all.end < end || all.row != LS_LEDGER_NO_ROW)
        return ls_fail(LS_INVALID, "%zu bytes that are assigned to a unit are not free of one allocation", end - begin);
    const span cut[3] = { { begin, all.kind, LS_LEDGER_NO_ROW }, { end, all.kind, row }, all };
    const int before = begin > start, n = 1 + before + (all.end > end);
    LS_TRY(spans_fit(a, n - 1));
    memmove(a->span + i + n, a->span + i + 1, (size_t)(a->nspans - i - 1) * sizeof *a->span);
    memcpy(a->span + i, cut + 1 - before, (size_t)n * sizeof *a->span);
    a->nspans += n - 1;
    ls_ledger_assign(a->ledger, all.kind, row, end - begin);
    return LS_OK;
}

ls_status ls_arena_assign(ls_arena *a, const void *p, size_t nbytes, int unit)
{
    uint64_t offset;
    if (nbytes == 0 || !a->ledger || !a->ledger->row) return LS_OK;
    if (!ls_arena_offset(a, p, nbytes, &offset))
        return ls_fail(LS_INVALID, "%zu bytes that are assigned to a unit are not the arena's", nbytes);
    lock(a);
    const size_t begin = a->seg[offset >> LS_ARENA_PLACE_BITS].start + (size_t)(offset & PLACE);
    const ls_status st = assign(a, begin, begin + nbytes, a->ledger->first + 1 + unit);
    unlock(a);
    return st;
}

void ls_arena_charge(ls_arena *a, ls_ledger *ledger)
{
    for (int i = 0; i < a->nspans; i++) {
        const size_t n = a->span[i].end - (i > 0 ? a->span[i - 1].end : 0);
        if (a->span[i].row == LS_LEDGER_UNCOUNTED) continue;
        ls_ledger_release(a->ledger, a->span[i].kind, a->span[i].row, n);
        ls_ledger_sub(a->ledger, a->span[i].kind, n);
        ls_ledger_add(ledger, a->span[i].kind, n);
        a->span[i].row = LS_LEDGER_NO_ROW; /* the other one knows nothing of these units */
    }
    a->ledger = ledger;
}

size_t ls_arena_mark(const ls_arena *a) { return used(a); }

void ls_arena_reset(ls_arena *a, size_t mark)
{
    size_t have = used(a);
    while (have > mark) { /* the newest span, whole or its end */
        span *s = &a->span[a->nspans - 1];
        size_t start = a->nspans > 1 ? a->span[a->nspans - 2].end : 0;
        size_t to = start > mark ? start : mark;
        ls_ledger_release(a->ledger, s->kind, s->row, have - to);
        if (s->row != LS_LEDGER_UNCOUNTED) ls_ledger_sub(a->ledger, s->kind, have - to);
        have = s->end = to;
        if (to == start) a->nspans--;
    }
    while (a->at > 0 && a->seg[a->at].start >= have) a->seg[a->at--].used = 0;
    if (have - a->seg[a->at].start < a->seg[a->at].used) a->seg[a->at].used = have - a->seg[a->at].start;
}

void *ls_arena_base(const ls_arena *a) { return a->seg[0].base; }
size_t ls_arena_size(const ls_arena *a) { return atomic_load_explicit(&a->size, memory_order_relaxed); }
int ls_arena_fd(const ls_arena *a) { return a->fd; }

size_t ls_arena_room(ls_arena *a, size_t *size)
{
    lock(a);
    const size_t room = room_left(a);
    if (size) *size = ls_arena_size(a);
    unlock(a);
    return room;
}

ls_segment ls_arena_segment(const ls_arena *a, int i)
{
    return i >= 0 && i < count(a) ? (ls_segment){ a->seg[i].base, a->seg[i].size } : (ls_segment){ NULL, 0 };
}

bool ls_arena_offset(const ls_arena *a, const void *p, size_t nbytes, uint64_t *offset)
{
    for (int i = 0, n = count(a); i < n; i++) {
        const uintptr_t at = (uintptr_t)p, first = (uintptr_t)a->seg[i].base;
        const size_t size = a->seg[i].size;
        if (at < first || nbytes > size || at - first > size - nbytes) continue;
        *offset = (uint64_t)i << LS_ARENA_PLACE_BITS | (uint64_t)(at - first);
        return true;
    }
    return false;
}

bool ls_arena_holds(const ls_arena *a, const void *p, size_t nbytes)
{
    uint64_t offset;
    return ls_arena_offset(a, p, nbytes, &offset);
}
