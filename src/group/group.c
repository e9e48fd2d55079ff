/* group.c -- who communicates together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "group/backend.h"
#include "group/args.h"
#include "group/choice.h"
#include "group/engine.h"
#include "group/message.h"
#include "group/p2p.h"
#include "group/run.h"
#include "group/sign.h"
#include "net/attach.h"
#include "net/open.h"

int ls_group_rank(const ls_group *g) { return g->rank; }
int ls_group_size(const ls_group *g) { return g->size; }
ls_world *ls_group_world(ls_group *g) { return g->w; }
const char *ls_group_text(const ls_group *g) { return g->text; }
int ls_group_world_rank(const ls_group *g, int rank) { return rank >= 0 && rank < g->size ? g->world_rank[rank] : -1; }
int ls_group_nodes(const ls_group *g) { return g->nnodes; }
int ls_group_node(const ls_group *g, int rank) { return rank >= 0 && rank < g->size ? g->node[rank] : -1; }

/* Whether every member's arena is mapped here, and ours there. */
static bool all_mapped(const ls_world *w, int size, const int *world_rank)
{
    bool all = w->tops->is_mapped != NULL;
    for (int r = 0; r < size && all; r++) all = w->tops->is_mapped(w->tp, world_rank[r]);
    return all;
}

/* Whether every member can read every other one's private memory. */
static bool all_read(const ls_world *w, int size, const int *world_rank)
{
    bool all = true;
    for (int r = 0; r < size && all; r++)
        for (int q = 0; q < size && all; q++) all = ls_attach_reads(w, world_rank[r], world_rank[q]);
    return all;
}

size_t ls_group_bytes(int size) { return size > 0 ? sizeof(ls_area) : 0; }

static ls_status take_area(ls_world *w, ls_holding *out)
{
    ls_engine *e = w->engine;
    void *p;
    if (e->nspare > 0) {
        *out = e->spare[--e->nspare];
        if (w->dry) return LS_OK; /* an address alone */
        ls_area *used = out->area;
        uint64_t offset = used->stage_offset, whole = used->whole_offset;
        uint32_t nbytes = used->stage_bytes;
        memset(used, 0, sizeof *used);
        used->stage_offset = offset; /* an arena takes nothing back */
        used->whole_offset = whole;
        used->stage_bytes = nbytes;
        return LS_OK;
    }
    LS_TRY(ls_arena_alloc(w->arena, sizeof(ls_area), LS_MEM_COMM, &p));
    if (!w->dry) memset(p, 0, sizeof(ls_area));
    *out = (ls_holding){ .area = p };
    return LS_OK;
}

/* Hosts of the members, renumbered: where the world's group has them, which asked first. */
static void place_members(ls_group *g)
{
    const ls_world *w = g->w;
    const int *node = w->group ? w->group->node : w->opts.node ? w->opts.node : w->node;
    for (int r = 0; r < g->size; r++) {
        int q = r > 0 && node[g->world_rank[r - 1]] == node[g->world_rank[r]] ? r - 1 : 0; /* mostly */
        while (node[g->world_rank[q]] != node[g->world_rank[r]]) q++;
        g->node[r] = q == r ? g->nnodes++ : g->node[q];
        if (q < r) continue;
        int members = 0, ranks = 0;
        for (int m = 0; m < g->size; m++) members += node[g->world_rank[m]] == node[g->world_rank[r]];
        for (int m = 0; m < w->size; m++) ranks += node[m] == node[g->world_rank[r]];
        int cores = g->e->tuning.cpus[g->world_rank[r]] * members / ranks; /* the others are as busy */
        g->cores[g->node[r]] = cores > 0 ? cores : 1;
    }
}

/* What a rank says of its area: where it is, and in the lowest bit whether it shares its core with other ranks. */
#define SHARES_CORE 1u

static uint64_t area_word(const ls_world *w, const ls_area *mine)
{
    uint64_t offset = ls_world_offset(w, mine, sizeof *mine);
    return offset | (w->waiter.may_spin ? 0 : SHARES_CORE);
}

/* What it has one of for each member stands behind the struct. The newest of those destroyed that is large enough
 * serves again. NULL: no memory. */
static ls_group *new_group(ls_engine *e, int size)
{
    const size_t n = (size_t)size, room = n * (sizeof(ls_member) + sizeof(uint32_t[2]) + 3 * sizeof(int));
    ls_group **at = &e->gone, *g;
    while (*at && (*at)->room < room) at = &(*at)->next_gone;
    const size_t has = *at ? (*at)->room : room;
    if ((g = *at)) *at = g->next_gone;
    else g = malloc(sizeof *g + room);
    if (!g) return NULL;
    memset(g, 0, sizeof *g + room);
    g->room = has;
    g->member = (ls_member *)(void *)(g + 1);
    g->p2p_seq = (uint32_t (*)[2])(void *)(g->member + n);
    g->world_rank = (int *)(void *)(g->p2p_seq + n);
    g->node = g->world_rank + n;
    g->cores = g->node + n;
    return g;
}

/* "tp 0-3": what it is called, and its ranks in the world. */
static ls_status name_group(ls_group *g, const char *name)
{
    ls_rank_set members;
    if (g->id == 0) {
        snprintf(g->text, sizeof g->text, "world");
        return LS_OK;
    }
    LS_TRY(ls_rank_set_create(g->w->size, &members));
    for (int r = 0; r < g->size; r++) ls_rank_set_add(&members, g->world_rank[r]);
    const size_t n = (size_t)snprintf(g->text, sizeof g->text, "%s ", name ? name : g->size > 1 ? "ranks" : "rank");
    ls_rank_set_text(&members, g->text + n, sizeof g->text - n);
    ls_rank_set_free(&members);
    return LS_OK;
}

/* Its other members, for traces. */
static ls_status name_peers(ls_group *g)
{
    ls_rank_set peers;
    char text[LS_BLACKBOX_STRING_BYTES];
    LS_TRY(ls_rank_set_create(g->w->size, &peers));
    for (int r = 0; r < g->size; r++)
        if (r != g->rank) ls_rank_set_add(&peers, g->world_rank[r]);
    g->trace_peers = ls_tracer_label(g->w->tracer, ls_rank_set_text(&peers, text, sizeof text));
    ls_rank_set_free(&peers);
    return LS_OK;
}

static ls_status create(ls_world *w, const char *name, int rank, int size, const int *world_rank, uint32_t id,
                        int block, const ls_holding *mine, const uint64_t *area, ls_group **out)
{
    *out = NULL;
    ls_group *g = new_group(w->engine, size);
    if (!g) return ls_fail(LS_NO_MEMORY, "a group of %d ranks", size);
    g->w = w;
    g->id = id;
    g->rank = rank;
    g->size = size;
    g->e = w->engine;
    g->has = *mine;
    g->slot = &w->page->rank[w->rank];
    g->flow = &g->slot->flow[block];
    g->messages = ls_page_sent(w->page, w->rank, (uint32_t)block, LS_PAGE_MESSAGES);
    g->generation = w->generation;
    g->p2p_sign = ls_message_sign(g);
    g->spins = w->waiter.may_spin && !w->alone; /* what spins does not become a work, and would not be noted */
    g->channel = block * LS_GROUP_CHANNELS;
    ls_coll_describes(g);
    g->mapped = all_mapped(w, size, world_rank);
    g->attached = g->mapped && all_read(w, size, world_rank);
    for (g->nspare = 0; g->nspare < LS_WORKS; g->nspare++) g->spare[g->nspare] = (uint8_t)g->nspare;
    ls_status st = ls_page_reserve_sent(w->page, w->rank, (uint32_t)block);
    if (st == LS_OK) st = ls_choice_init(g);
    if (st == LS_OK && w->opts.wire_bf16 && !g->mapped) st = ls_rank_set_create(size, &g->narrow);
    if (st < 0) {
        free(g);
        return st;
    }
    for (int r = 0; r < size; r++) {
        g->world_rank[r] = world_rank[r];
        char *p = r == rank ? (char *)mine->area : NULL;
        g->crowded |= (area[r] & SHARES_CORE) != 0;
        if (r != rank && g->mapped && !w->alone)
            p = ls_world_peer(w, world_rank[r], area[r] & ~(uint64_t)SHARES_CORE, sizeof(ls_area));
        if ((r == rank || (g->mapped && !w->alone)) && (!p || (uintptr_t)p % 64 != 0)) {
            ls_rank_set_free(&g->narrow);
            free(g);
            return ls_fail(LS_PROTOCOL, "rank %d offers a group area outside its arena", world_rank[r]);
        }
        g->member[r] = (ls_member){ .area = (ls_area *)(void *)p,
                                    .base = w->peer_base[world_rank[r]],
                                    .bytes = w->peer_bytes[world_rank[r]],
                                    .parked = &w->page->rank[world_rank[r]].parked };
    }
    for (int r = 0; r < size && g->narrow.size > 0; r++)
        if (r != rank && !(w->tops->is_mapped && w->tops->is_mapped(w->tp, world_rank[r])))
            ls_rank_set_add(&g->narrow, r);
    if ((st = name_group(g, name)) < 0) {
        ls_rank_set_free(&g->narrow);
        free(g);
        return st;
    }
    g->trace_name = ls_tracer_label(w->tracer, g->text);
    if ((st = name_peers(g)) < 0) {
        ls_rank_set_free(&g->narrow);
        free(g);
        return st;
    }
    atomic_store_explicit(&g->counts_so_far.slow_rank, -1, memory_order_relaxed);
    place_members(g);
    atomic_store_explicit(&g->flow->named, LS_GROUP_OTHER, memory_order_release); /* until the name is whole */
    memcpy(g->flow->name, g->text, sizeof g->text);
    atomic_store_explicit(&g->flow->named, id, memory_order_release);
    for (int r = 0; r < w->size; r++) atomic_store_explicit(&g->messages[r], 0, memory_order_relaxed);
    atomic_store_explicit(&g->flow->done, 1, memory_order_relaxed);
    atomic_store_explicit(&g->flow->seq, UINT32_MAX, memory_order_relaxed); /* before the first */
    atomic_store_explicit(&g->flow->group, id, memory_order_release);
    if (!w->alone)
        ls_log(LS_LOG_INFO, "group %s: rank %d of %d, transport %s, %s, algorithm %s", g->text, rank, size, w->tops->name,
               g->mapped ? "registered memory is reduced in place" : "messages are copied",
               *g->e->tuning.algo ? g->e->tuning.algo : "by size");
    atomic_store_explicit(&w->engine->group[block], g, memory_order_release);
    *out = g;
    return LS_OK;
}

/* From now on another library carries out its collectives, if there is one. */
static void hand_over(ls_group *g, ls_backend_group *b)
{
    g->backend = b;
    if (b || ls_backend_is_planned(g->w)) g->mapped = false;
}

/* What every rank says before the world has a group. */
typedef struct greeting {
    uint64_t area; /* area_word() */
    int64_t cpus;
    ls_cost cost; /* of rank 0, as what follows */
    char cost_from[256], algo[LS_ALGO_MAX_TEXT + 1];
} greeting;

/* Rank 0's calibration and wishes count, so that all ranks choose the same algorithms whatever is on their hosts. */
static ls_status agree(ls_world *w, const ls_area *mine, uint64_t *area)
{
    ls_tuning *t = &w->engine->tuning;
    const char *asked = ls_env_get()->getenv("LOCKSTEP_ALGO");
    greeting me = { .area = area_word(w, mine), .cpus = w->cpus };
    if (!asked || !*asked) asked = w->opts.algo ? w->opts.algo : "";
    const ls_algo *by[LS_COLLS];
    LS_TRY(ls_algo_parse(asked, by));
    strcpy(me.algo, asked);
    if (w->rank == 0) LS_TRY(ls_cost_load(&me.cost, me.cost_from, sizeof me.cost_from));
    else if (w->alone && ls_cost_load(&me.cost, me.cost_from, sizeof me.cost_from) < 0) me.cost = ls_cost_preset;
    greeting *all = calloc((size_t)w->size, sizeof *all);
    if (all) t->cpus = calloc((size_t)w->size, sizeof *t->cpus);
    if (all && !t->cpus) {
        free(all);
        all = NULL;
    }
    if (!all) return ls_fail(LS_NO_MEMORY, "%d greetings", w->size);
    ls_status st = ls_world_exchange(w, "area", &me, sizeof me, all);
    for (int r = 0; r < w->size && st == LS_OK; r++) {
        area[r] = all[r].area;
        t->cpus[r] = (int)all[r].cpus;
    }
    t->cost = all[0].cost;
    w->bounce_past_cache = t->cost.in_memory.stage_past_cache <= LS_STAGE_BYTES;
    memcpy(t->algo, all[0].algo, sizeof t->algo);
    memcpy(t->cost_from, all[0].cost_from, sizeof t->cost_from);
    free(all);
    return st;
}

ls_status ls_group_create_world(ls_world *w)
{
    LS_TRY(ls_engine_create(w));
    ls_holding mine;
    LS_TRY(take_area(w, &mine));
    uint64_t *area = calloc((size_t)w->size, sizeof *area);
    int *identity = calloc((size_t)w->size, sizeof *identity);
    ls_status st = area && identity ? LS_OK : ls_fail(LS_NO_MEMORY, "a group of %d ranks", w->size);
    if (st == LS_OK) st = agree(w, mine.area, area);
    if (st == LS_OK && !w->alone) st = ls_attach_meet(w); /* all have offered: they have an area */
    for (int r = 0; r < w->size && st == LS_OK; r++) identity[r] = r;
    if (st == LS_OK) st = create(w, NULL, w->rank, w->size, identity, 0, 0, &mine, area, &w->group);
    free(identity);
    free(area);
    LS_TRY(st);
    w->engine->next_id = 1;
    if (!w->alone) LS_TRY(ls_backend_open(w->engine));
    hand_over(w->group, ls_backend_world(w->engine));
    return LS_OK;
}

/* What every rank of the parent says at a split. */
typedef struct offer {
    int64_t color, next_id, used_blocks, area;
} offer;

static int64_t used_blocks(ls_engine *e)
{
    int64_t used = 0;
    for (int i = 0; i < LS_MAX_GROUPS; i++)
        if (atomic_load_explicit(&e->group[i], memory_order_relaxed)) used |= (int64_t)1 << i;
    return used;
}

/* How the ranks of a group divide. */
typedef struct division {
    ls_color_fn color;
    const void *arg;
    const char *name; /* for people; NULL: none */
} division;

/* Of every rank, what it says; where no other rank is there, what it would. */
static ls_status all_offers(ls_group *parent, const division *by, const ls_area *mine, offer *all)
{
    ls_engine *e = parent->e;
    const int64_t area = (int64_t)area_word(parent->w, mine);
    const offer here = { by->color(by->arg, parent->rank), e->next_id, used_blocks(e), area };
    all[parent->rank] = here;
    LS_TRY(ls_all_gather(parent, NULL, all, (size_t)parent->size * (sizeof(offer) / sizeof(int64_t)), LS_I64));
    for (int r = 0; parent->w->alone && r < parent->size; r++) {
        all[r] = here;
        all[r].color = by->color(by->arg, r);
    }
    return LS_OK;
}

/* With room for what all members say, and for the members of the new group. */
static ls_status split(ls_group *parent, const division *by, offer *all, int *world_rank, uint64_t *area,
                       ls_group **out)
{
    ls_world *w = parent->w;
    ls_engine *e = w->engine;
    ls_holding mine;
    LS_TRY(take_area(w, &mine));

    ls_status st = all_offers(parent, by, mine.area, all);
    /* Some members may have our offer, and have made a group with that area: it must not serve another one. The group
     * has failed, so no split follows that would miss it. */
    if (st < 0) return ls_while(st, "splitting group %s", parent->text);

    const int64_t color = all[parent->rank].color;
    int64_t used = 0, next_id = 0, id = 0;
    int size = 0, rank = 0;
    for (int r = 0; r < parent->size; r++) {
        used |= all[r].used_blocks;
        if (all[r].next_id > next_id) next_id = all[r].next_id;
    }
    for (int r = 0; r < parent->size; r++) { /* ids go up with the colors that occur */
        bool first = all[r].color >= 0 && all[r].color < color;
        for (int q = 0; q < r && first; q++) first = all[q].color != all[r].color;
        id += first;
    }
    for (int r = 0; r < parent->size; r++) {
        if (all[r].color != color) continue;
        if (r == parent->rank) rank = size;
        area[size] = (uint64_t)all[r].area;
        world_rank[size++] = parent->world_rank[r];
    }
    e->next_id = (uint32_t)(next_id + parent->size); /* never reused by a live group */
    int block = 0;
    while (block < LS_MAX_GROUPS && (used >> block & 1)) block++;
    ls_backend_group *b = NULL;
    if (block == LS_MAX_GROUPS)
        st = ls_fail(LS_INVALID, "more than %d groups at once: destroy one first", LS_MAX_GROUPS);
    else if (color >= 0)
        st = create(w, by->name, rank, size, world_rank, (uint32_t)(next_id + id), block, &mine, area, out);
    if (color < 0 || block == LS_MAX_GROUPS) e->spare[e->nspare++] = mine; /* on all members alike */
    /* (where we alone could not make the group, the others have: its area stays theirs until the world ends) */
    if (st < 0) return color < 0 ? LS_OK : st;
    st = ls_backend_split(parent, (int)color, &b);
    if (st < 0) *out = NULL; /* the engine frees it with the world */
    else if (*out) hand_over(*out, b);
    return st;
}

static bool is_name(const char *name)
{
    size_t n = 0;
    for (; name[n]; n++)
        if (name[n] <= ' ' || name[n] > '~') return false;
    return n > 0 && n < 16;
}

static int given_color(const void *arg, int rank)
{
    (void)rank;
    return *(const int *)arg;
}

ls_status ls_group_split(ls_group *parent, int color, ls_group **out)
{
    return ls_group_split_named(parent, color, NULL, out);
}

ls_status ls_group_split_named(ls_group *parent, int color, const char *name, ls_group **out)
{
    *out = NULL;
    if (parent && parent->w->alone)
        return ls_fail(LS_UNSUPPORTED, "splitting group %s in %s needs the colors that the other ranks give, which do not exist: call "
                                       "ls_group_split_by", parent->text, ls_world_alone_name(parent->w->dry));
    return ls_group_split_by(parent, given_color, &color, name, out);
}

ls_status ls_group_split_by(ls_group *parent, ls_color_fn color, const void *arg, const char *name, ls_group **out)
{
    *out = NULL;
    if (!parent) return ls_no_group();
    if (name && !is_name(name))
        return ls_fail(LS_INVALID, "a group's name is '%.40s': expected 1 to 15 printable characters without blanks", name);
    if (parent->failed < 0)
        return ls_fail(LS_INVALID, "group %s cannot be used any more: %s", parent->text, parent->error);
    const size_t n = (size_t)parent->size;
    offer *all = calloc(n, sizeof *all);
    int *world_rank = calloc(n, sizeof *world_rank);
    uint64_t *area = calloc(n, sizeof *area);
    const division by = { color, arg, name };
    ls_status st = all && world_rank && area ? split(parent, &by, all, world_rank, area, out)
                                             : ls_fail(LS_NO_MEMORY, "splitting a group of %d ranks", parent->size);
    free(area);
    free(world_rank);
    free(all);
    return st;
}

static int all_of_them(const void *arg, int rank)
{
    (void)arg, (void)rank;
    return 0;
}

ls_status ls_group_second(ls_group *g, const char *name, ls_group **out)
{
    *out = NULL;
    if (!g) return ls_no_group();
    if (g->mapped || g->size == 1 || g->backend || ls_backend_is_planned(g->w)) return LS_OK;
    return ls_group_split_by(g, all_of_them, NULL, name, out);
}

typedef struct parting {
    ls_group *g;
    _Atomic uint32_t *left;
} parting;

static ls_status everyone_left(void *arg)
{
    const parting *p = arg;
    if (!ls_engine_threaded(p->g->e)) (void)ls_engine_turn(p->g->e);
    /* acquire: pairs with part(); the peers' last looks at our area are over */
    return atomic_load_explicit(p->left, memory_order_acquire) == (uint32_t)p->g->size - 1 ? LS_OK : LS_AGAIN;
}

/* After a barrier a peer may still be on its way out of it, reading our line. The area may serve
 * another group once every peer has said, here, that it is out. */
static ls_status part(ls_group *g)
{
    for (int r = 0; r < g->size; r++)
        if (r != g->rank) atomic_fetch_add_explicit(&g->member[r].area->left, 1, memory_order_release);
    ls_wake_members(g);
    parting p = { g, &g->member[g->rank].area->left };
    ls_waiter waiter = g->w->waiter;
    if (ls_engine_threaded(g->e)) {
        waiter.parked = &g->e->main_parked;
        waiter.fds = NULL;
    }
    return ls_wait(&waiter, everyone_left, &p, ls_env_get()->mono_ns() + g->w->opts.coll_timeout_ns);
}

/* `clean`: what it has of the arena may be used again. */
static void release(ls_group *g, bool clean)
{
    ls_engine *e = g->w->engine;
    int block = g->channel / LS_GROUP_CHANNELS;
    atomic_store_explicit(&e->group[block], NULL, memory_order_release);
    ls_engine_settle(e); /* the thread may be looking at g */
    if (clean && e->nspare < LS_MAX_GROUPS) e->spare[e->nspare++] = g->has;
    ls_counters_add(&e->past, &g->counts_so_far);
    ls_sched_cache_free(g->cache);
    free(g->choices);
    ls_messages_free(atomic_load_explicit(&g->p2p, memory_order_relaxed));
    free(g->counts);
    free(g->copy);
    ls_rank_set_free(&g->narrow);
    /* its memory stays until the world goes, so that a call on it can say so */
    g->cache = NULL;
    g->counts = NULL;
    g->copy = NULL;
    g->ncopy = 0;
    atomic_store_explicit(&g->p2p, NULL, memory_order_relaxed);
    for (int i = 0; i < LS_WORKS; i++) g->work[i].live = false;
    g->destroyed = true;
    g->failed = LS_INVALID;
    atomic_store_explicit(&g->frozen, 1, memory_order_relaxed);
    snprintf(g->error, sizeof g->error, "it was destroyed");
    g->next_gone = e->gone;
    e->gone = g;
}

void ls_group_free(ls_group *g)
{
    if (g) release(g, false);
}

void ls_group_destroy(ls_group *g)
{
    if (!g || g->destroyed || g == g->w->group) return; /* the world's own goes with the world */
    char said[LS_ERROR_BYTES]; /* why the caller may be giving up */
    memcpy(said, ls_last_error(), sizeof said);
    bool clean = g->failed >= 0 && !g->w->failed && ls_p2p_drain(g) == LS_OK && ls_barrier(g) == LS_OK;
    memcpy(ls_context_get()->error, said, sizeof said);
    if (clean && g->mapped && !g->w->alone) clean = part(g) == LS_OK;
    if (clean) ls_backend_destroy(g->e, g->backend);
    release(g, clean);
}
