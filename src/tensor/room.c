/* room.c -- memory of a tape, or of what tapes share. */
#include <stdlib.h>

#include "tensor/tape_impl.h"

ls_status ls_room_open(ls_room *r, const ls_device *d, size_t nbytes, ls_ledger *ledger)
{
    void *base = NULL;
    r->device = d;
    r->slab.size = (nbytes + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN;
    if (d->alloc) {
        LS_TRY(d->alloc(d, r->slab.size, &base));
    } else {
        LS_TRY(ls_arena_create(r->slab.size, false, ledger, &r->arena));
        LS_TRY(ls_arena_alloc(r->arena, r->slab.size, LS_MEM_ACT, &base));
    }
    r->base = base;
    return LS_OK;
}

ls_status ls_room_open_dry(ls_room *r)
{
    r->dry = true;
    r->slab.size = SIZE_MAX / 2;
    r->base = aligned_alloc(LS_SLAB_ALIGN, LS_DRY_NODE_BYTES);
    return r->base ? LS_OK : ls_fail(LS_NO_MEMORY, "nodes of a dry tape");
}

void ls_room_close(ls_room *r)
{
    if (r->dry) free(r->base);
    else if (r->base && r->device->release) r->device->release(r->device, r->base, r->slab.size);
    ls_arena_destroy(r->arena);
}

bool ls_room_holds(const ls_room *r, const void *p)
{
    const char *at = p;
    return r->base && at >= r->base && at < r->base + (r->dry ? LS_DRY_NODE_BYTES : r->slab.size);
}
