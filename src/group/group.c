/* group.c -- who communicates together. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "group/impl.h"

int ls_group_rank(const ls_group *g) { return g->rank; }
int ls_group_size(const ls_group *g) { return g->size; }
ls_world *ls_group_world(ls_group *g) { return g->w; }
int ls_group_world_rank(const ls_group *g, int rank) { return rank >= 0 && rank < g->size ? g->world_rank[rank] : -1; }

/* Only transports whose ranks map each other's arenas. */
static bool is_mapped(const ls_world *w) { return strcmp(w->tops->name, "shm") == 0; }

static ls_status new_area(ls_world *w, ls_area **out)
{
    ls_engine *e = w->engine;
    void *p;
    if (e->nspare > 0) {
        *out = e->spare[--e->nspare];
    } else {
        LS_TRY(ls_arena_alloc(w->arena, sizeof(ls_area), LS_MEM_COMM, &p));
        *out = p;
    }
    memset(*out, 0, sizeof **out);
    return LS_OK;
}

static ls_status create(ls_world *w, int rank, int size, const int *world_rank, uint32_t id, int block, ls_area *mine,
                        const uint64_t *area_offset, ls_group **out)
{
    *out = NULL;
    ls_group *g = calloc(1, sizeof *g);
    if (!g) return ls_fail(LS_NO_MEMORY, "a group");
    g->w = w;
    g->id = id;
    g->rank = rank;
    g->size = size;
    g->e = w->engine;
    g->slot = &w->page->rank[w->local_rank];
    g->generation = w->generation;
    g->spins = w->waiter.may_spin;
    g->channel = block * LS_GROUP_CHANNELS;
    g->mapped = is_mapped(w);
    for (g->nspare = 0; g->nspare < LS_WORKS; g->nspare++) g->spare[g->nspare] = (uint8_t)g->nspare;
    ls_status st = ls_select_init(g);
    if (st < 0) {
        free(g);
        return st;
    }
    for (int r = 0; r < size; r++) {
        g->world_rank[r] = world_rank[r];
        char *p = r == rank ? (char *)mine : ls_world_peer(w, world_rank[r], area_offset[r], sizeof(ls_area));
        if (!p || (uintptr_t)p % 64 != 0) {
            free(g);
            return ls_fail(LS_PROTOCOL, "rank %d offers a group area outside its arena", world_rank[r]);
        }
        g->member[r] = (ls_member){ .area = (ls_area *)(void *)p,
                                    .base = w->peer_base[world_rank[r]],
                                    .bytes = w->peer_bytes[world_rank[r]],
                                    .parked = &w->page->rank[world_rank[r]].parked };
    }
    ls_log(LS_LOG_INFO, "group %u: rank %d of %d, transport %s, %s, algorithm %s", id, rank, size, w->tops->name,
           g->mapped ? "registered memory is reduced in place" : "messages are copied",
           g->forced ? g->forced->name : "by size");
    atomic_store_explicit(&w->engine->group[block], g, memory_order_release);
    *out = g;
    return LS_OK;
}

ls_status ls_group_create_world(ls_world *w)
{
    LS_TRY(ls_engine_create(w));
    ls_area *mine;
    LS_TRY(new_area(w, &mine));
    uint64_t offset = (uint64_t)((char *)mine - w->peer_base[w->rank]), all[LS_MAX_RANKS];
    LS_TRY(ls_world_exchange(w, "area", &offset, sizeof offset, all));
    int identity[LS_MAX_RANKS];
    for (int r = 0; r < w->size; r++) identity[r] = r;
    LS_TRY(create(w, w->rank, w->size, identity, 0, 0, mine, all, &w->group));
    w->engine->next_id = 1;
    return LS_OK;
}

/* What every rank of the parent says at a split. */
typedef struct offer {
    int64_t color, next_id, used_blocks, area_offset;
} offer;

static int64_t used_blocks(ls_engine *e)
{
    int64_t used = 0;
    for (int i = 0; i < LS_MAX_GROUPS; i++)
        if (atomic_load_explicit(&e->group[i], memory_order_relaxed)) used |= (int64_t)1 << i;
    return used;
}

ls_status ls_group_split(ls_group *parent, int color, ls_group **out)
{
    ls_world *w = parent->w;
    ls_engine *e = w->engine;
    *out = NULL;
    ls_area *mine;
    LS_TRY(new_area(w, &mine));

    offer all[LS_MAX_RANKS];
    all[parent->rank] = (offer){ color, e->next_id, used_blocks(e), (char *)mine - w->peer_base[w->rank] };
    ls_status st = ls_all_gather(parent, NULL, all, (size_t)parent->size * (sizeof(offer) / sizeof(int64_t)), LS_I64);
    if (st < 0) return ls_while(st, "splitting group %u", parent->id);

    int64_t used = 0, next_id = 0, id = 0;
    int size = 0, rank = 0, world_rank[LS_MAX_RANKS];
    uint64_t offset[LS_MAX_RANKS];
    for (int r = 0; r < parent->size; r++) {
        used |= all[r].used_blocks;
        if (all[r].next_id > next_id) next_id = all[r].next_id;
    }
    for (int64_t c = 0; c < color; c++) { /* ids go up with the colors that occur */
        bool occurs = false;
        for (int r = 0; r < parent->size; r++) occurs |= all[r].color == c;
        id += occurs;
    }
    for (int r = 0; r < parent->size; r++) {
        if (all[r].color != color) continue;
        if (r == parent->rank) rank = size;
        offset[size] = (uint64_t)all[r].area_offset;
        world_rank[size++] = parent->world_rank[r];
    }
    e->next_id = (uint32_t)(next_id + parent->size); /* never reused by a live group */
    int block = 0;
    while (block < LS_MAX_GROUPS && (used >> block & 1)) block++;
    if (color < 0 || block == LS_MAX_GROUPS) {
        e->spare[e->nspare++] = mine;
        return color < 0 ? LS_OK : ls_fail(LS_INVALID, "more than %d groups at once: destroy one first", LS_MAX_GROUPS);
    }
    return create(w, rank, size, world_rank, (uint32_t)(next_id + id), block, mine, offset, out);
}

void ls_group_free(ls_group *g)
{
    if (!g) return;
    ls_engine *e = g->w->engine;
    int block = g->channel / LS_GROUP_CHANNELS;
    atomic_store_explicit(&e->group[block], NULL, memory_order_release);
    if (ls_engine_threaded(e)) { /* the thread may be looking at g: two of its turns later it is not */
        uint32_t turn = atomic_load_explicit(&e->turns, memory_order_acquire);
        while (atomic_load_explicit(&e->turns, memory_order_acquire) - turn < 2) {
            ls_world_wake(g->w, g->w->rank);
            ls_env_get()->yield();
        }
    }
    if (e->nspare < LS_MAX_GROUPS && g->failed >= 0) e->spare[e->nspare++] = g->member[g->rank].area;
    ls_sched_cache_free(g->cache);
    free(g);
}

void ls_group_destroy(ls_group *g)
{
    if (!g) return;
    /* nobody writes to an area that its owner may reuse */
    if (g->failed >= 0 && !g->w->failed) (void)ls_barrier(g);
    ls_group_free(g);
}
