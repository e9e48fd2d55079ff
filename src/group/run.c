/* run.c -- collectives carried out by reading a schedule over the transport.
 *
 * A group runs one schedule at a time, so schedules, their runs and scratch
 * memory are kept per group and reused: a repeated collective allocates nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "group/impl.h"
#include "lockstep/shard.h"

#define TURN_BYTES ((size_t)256 << 10) /* of one turn: a poke must not take long */
#define PIPELINED_BYTES ((size_t)1 << 20)

typedef struct entry {
    const ls_algo *algo;
    ls_shape shape;
    ls_sched sched;
    ls_run run;
    struct entry *next;
} entry;

struct ls_sched_cache {
    entry *first;          /* owned list: a handful */
    char *tmp, *out;       /* owned scratch */
    size_t ntmp, nout;
};

void ls_sched_cache_free(struct ls_sched_cache *c)
{
    if (!c) return;
    while (c->first) {
        entry *e = c->first;
        c->first = e->next;
        ls_run_free(&e->run);
        ls_sched_free(&e->sched);
        free(e);
    }
    free(c->tmp);
    free(c->out);
    free(c);
}

static ls_status find(ls_group *g, const ls_work *k, entry **out)
{
    const ls_algo *algo = ls_select_schedule(k);
    int parts = k->nbytes >= PIPELINED_BYTES ? LS_GROUP_LANES : 1;
    bool rooted = k->a.coll == LS_BROADCAST;
    ls_shape shape = { .coll = k->a.coll,
                       .rank = g->rank,
                       .size = g->size,
                       .root = rooted ? k->a.root : 0,
                       .segments = parts,
                       .nlanes = parts,
                       .node = g->node };
    *out = NULL;
    if (!g->cache && !(g->cache = calloc(1, sizeof *g->cache)))
        return ls_fail(LS_NO_MEMORY, "schedules of group %u", g->id);
    for (entry *e = g->cache->first; e; e = e->next)
        if (e->algo == algo && e->shape.coll == shape.coll && e->shape.root == shape.root &&
            e->shape.segments == parts) {
            *out = e;
            return LS_OK;
        }
    entry *e = calloc(1, sizeof *e);
    if (!e) return ls_fail(LS_NO_MEMORY, "a schedule");
    e->algo = algo;
    e->shape = shape;
    ls_status st = ls_sched_emit(algo, &shape, &e->sched);
    if (st == LS_OK && (st = ls_run_bind(&e->run, &e->sched)) < 0) ls_sched_free(&e->sched);
    if (st < 0) {
        free(e);
        return st;
    }
    e->next = g->cache->first;
    g->cache->first = e;
    *out = e;
    return LS_OK;
}

static ls_status grow(char **p, size_t *have, size_t want)
{
    if (want <= *have) return LS_OK;
    free(*p);
    *p = malloc(want);
    *have = *p ? want : 0;
    return *p ? LS_OK : ls_fail(LS_NO_MEMORY, "%zu bytes of scratch for a collective", want);
}

/* A reduce_scatter out of place works on a copy of the whole vector. */
static bool needs_copy(const ls_work *k) { return k->a.coll == LS_REDUCE_SCATTER && k->a.in && k->a.in != k->a.out; }

static ls_status start(ls_group *g, ls_work *k, entry *e)
{
    ls_run *r = &e->run;
    size_t elem = ls_dtype_size(k->a.dtype);
    LS_TRY(grow(&g->cache->tmp, &g->cache->ntmp, ls_sched_tmp_bytes(&e->sched, k->a.count, elem)));
    if (needs_copy(k)) LS_TRY(grow(&g->cache->out, &g->cache->nout, k->a.count * elem));
    r->ops = g->w->tops;
    r->tp = g->w->tp;
    r->world_rank = g->world_rank;
    r->channel = g->channel;
    r->sig = k->sig;
    r->red = (ls_reduction){ .dtype = k->a.dtype, .op = k->a.op };
    r->count = k->a.count;
    r->in = k->a.in;
    r->buf[LS_BUF_OUT] = needs_copy(k) ? g->cache->out : k->a.out;
    r->buf[LS_BUF_TMP] = g->cache->tmp;
    r->budget = TURN_BYTES;
    r->received = r->sent = 0;
    k->pos = 0;
    return ls_run_start(r);
}

ls_status ls_schedule_turn(ls_work *k)
{
    ls_group *g = k->g;
    entry *e;
    ls_status st = find(g, k, &e);
    if (st < 0) return st;
    if (k->phase == 0) {
        LS_TRY(start(g, k, e));
        k->phase = 1;
    }
    ls_run *r = &e->run;
    st = ls_run_progress(r);
    k->pos = (size_t)(r->received + r->sent); /* shows whether something moved */
    if (st == LS_COLL_MISMATCH && r->mismatch_peer >= 0) return ls_blame_mismatch(g, k, r->mismatch_peer);
    if (st != LS_OK) return st;
    if (needs_copy(k)) {
        ls_range own;
        size_t elem = ls_dtype_size(k->a.dtype);
        LS_TRY(ls_shard_range(k->a.count, g->rank, g->size, &own));
        if (own.count > 0) memcpy(k->a.out, g->cache->out + own.first * elem, own.count * elem);
    }
    /* through shared memory a payload byte is read by its receiver; on a wire its sender sends it */
    ls_count_bytes(g, g->mapped ? r->received : r->sent);
    return LS_OK;
}
