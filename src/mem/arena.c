/* arena.c -- one big span, handed out from the bottom up. */
#include "lockstep/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "mem/ledger.h"

#define ALIGN 64u
#define PAGE 4096u

/* Spans handed out one after the other with the same kind count as one, so that a
 * reset can tell the ledger what it takes back. */
typedef struct span {
    size_t end;
    ls_mem_kind kind;
} span;

struct ls_arena {
    char *base;
    size_t size, used;
    int fd;            /* -1: private */
    ls_ledger *ledger; /* borrowed; may be NULL */
    span *span;        /* owned */
    int nspans, cap;
    atomic_flag busy;  /* somebody allocates: a rank's own thread, or the one that moves its messages */
};

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

ls_status ls_arena_create(size_t nbytes, bool shared, ls_ledger *ledger, ls_arena **out)
{
    const ls_env *env = ls_env_get();
    ls_status st = LS_OK;
    *out = NULL;
    uint64_t available = env->mem_available(); /* asked before anything is reserved: later it would be a kill */
    if (nbytes > SIZE_MAX - PAGE || nbytes > available) return too_little(nbytes, available);
    ls_arena *a = calloc(1, sizeof *a);
    if (!a) return ls_fail(LS_NO_MEMORY, "an arena");
    a->size = (nbytes + PAGE - 1) / PAGE * PAGE;
    if (a->size == 0) a->size = PAGE;
    a->ledger = ledger;
    a->fd = -1;
    atomic_flag_clear(&a->busy);
    if (shared) {
        a->fd = env->memfd("lockstep-arena", a->size);
        if (a->fd < 0) {
            st = refused(nbytes, strerror(-a->fd));
            goto done;
        }
        a->base = env->map_shared(a->fd, a->size, true);
    } else {
        a->base = env->map_private(a->size);
    }
    if (!a->base) {
        st = refused(nbytes, "it cannot be mapped");
        goto done;
    }
    *out = a; /* the caller owns it now */
    a = NULL;
done:
    ls_arena_destroy(a);
    return st;
}

void ls_arena_destroy(ls_arena *a)
{
    if (!a) return;
    ls_arena_reset(a, 0);
    if (a->base) ls_env_get()->unmap(a->base, a->size);
    if (a->fd >= 0) ls_env_get()->close_fd(a->fd);
    free(a->span);
    free(a);
}

static ls_status take(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out)
{
    const size_t room = a->size - a->used;
    const size_t need = nbytes <= SIZE_MAX - ALIGN ? (nbytes + ALIGN - 1) / ALIGN * ALIGN : SIZE_MAX;
    if (need > room)
        return ls_fail(LS_NO_MEMORY, "%zu bytes (%s) do not fit into the arena: %zu of %zu are free; ask for a larger one",
                       nbytes, ls_mem_kind_name(kind), room, a->size);
    if (a->nspans == 0 || a->span[a->nspans - 1].kind != kind) {
        if (a->nspans == a->cap) {
            int cap = a->cap ? 2 * a->cap : 16;
            span *p = realloc(a->span, (size_t)cap * sizeof *p);
            if (!p) return ls_fail(LS_NO_MEMORY, "the arena's list of spans");
            a->span = p;
            a->cap = cap;
        }
        a->span[a->nspans++].kind = kind;
    }
    *out = a->base + a->used;
    a->used += need;
    a->span[a->nspans - 1].end = a->used;
    ls_ledger_add(a->ledger, kind, need);
    return LS_OK;
}

ls_status ls_arena_alloc(ls_arena *a, size_t nbytes, ls_mem_kind kind, void **out)
{
    *out = NULL;
    while (atomic_flag_test_and_set_explicit(&a->busy, memory_order_acquire)) ls_env_get()->yield();
    ls_status st = take(a, nbytes, kind, out);
    atomic_flag_clear_explicit(&a->busy, memory_order_release);
    return st;
}

size_t ls_arena_mark(const ls_arena *a) { return a->used; }

void ls_arena_reset(ls_arena *a, size_t mark)
{
    while (a->used > mark) { /* the newest span, whole or its end */
        span *s = &a->span[a->nspans - 1];
        size_t start = a->nspans > 1 ? a->span[a->nspans - 2].end : 0;
        size_t to = start > mark ? start : mark;
        ls_ledger_sub(a->ledger, s->kind, a->used - to);
        a->used = s->end = to;
        if (to == start) a->nspans--;
    }
}

void *ls_arena_base(const ls_arena *a) { return a->base; }
size_t ls_arena_size(const ls_arena *a) { return a->size; }
size_t ls_arena_room(const ls_arena *a) { return a->size - a->used; }
int ls_arena_fd(const ls_arena *a) { return a->fd; }

bool ls_arena_holds(const ls_arena *a, const void *p, size_t nbytes)
{
    uintptr_t at = (uintptr_t)p, first = (uintptr_t)a->base;
    return at >= first && nbytes <= a->size && at - first <= a->size - nbytes;
}
