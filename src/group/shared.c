/* shared.c -- memory that all ranks of a group share. */
#include "group/group.h"
#include "group/memory/memory.h"
#include "mem/ledger.h"

/* In place of rank 0's memory, in a world where rank 0 does not exist: addresses, or memory of this rank's own. */
static ls_status somewhere(ls_world *w, size_t nbytes, ls_mem_kind kind, void **out)
{
    if (!w->elsewhere) {
        LS_TRY(w->dry ? ls_arena_create_dry(NULL, &w->elsewhere) : ls_arena_create(nbytes, false, NULL, &w->elsewhere));
        if (!w->dry) ls_arena_may_grow(w->elsewhere, NULL, NULL);
    }
    return ls_arena_alloc(w->elsewhere, nbytes, kind, out);
}

bool ls_group_is_mapped(const ls_group *g) { return g->mapped || g->size == 1; }

ls_status ls_group_alloc_shared(ls_group *g, size_t nbytes, ls_mem_kind kind, void **out)
{
    int64_t place = -1;
    *out = NULL;
    if (!ls_group_is_mapped(g))
        return ls_fail(LS_UNSUPPORTED, "%zu bytes for all of %s at once: these ranks do not map each other's memory", nbytes,
                       ls_group_text(g));
    if (g->rank == 0) {
        const ls_status st = ls_arena_alloc_uncounted(g->w->arena, nbytes, kind, out);
        if (st < 0) return ls_while(st, "allocating memory of %s", ls_group_text(g));
        place = (int64_t)ls_world_offset(g->w, *out, nbytes);
    }
    LS_TRY(ls_broadcast(g, &place, 1, LS_I64, 0));
    if (g->rank == 0) return LS_OK;
    if (g->w->alone) return somewhere(g->w, nbytes, kind, out);
    *out = ls_at_member(g, 0, (uint64_t)place, nbytes);
    return *out ? LS_OK : ls_fail(LS_PROTOCOL, "rank 0 of %s has no %zu bytes at %lld", ls_group_text(g), nbytes, (long long)place);
}

void ls_count_shared(ls_world *w, ls_mem_kind kind, int unit, size_t nbytes)
{
    ls_ledger *l = &w->ledger;
    ls_ledger_add(l, kind, nbytes);
    if (l->row) ls_ledger_assign(l, kind, l->first + 1 + unit, nbytes);
}
