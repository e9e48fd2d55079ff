/* page.c -- formatting, reading and aborting through the world page. */
#include "meet/page.h"

#include <stdio.h>
#include <string.h>

#include "base/env.h"

#define CAUSE_NS 100000000u

size_t ls_page_bytes(int nranks)
{
    return ls_page_sent_end((uint32_t)nranks) + (size_t)nranks * LS_BLACKBOX_MOST * sizeof(ls_event);
}

static ls_status no_page(int nranks, size_t nbytes)
{
    return ls_fail(LS_NO_MEMORY, "no shared memory for the world page of %d ranks (%zu KiB)", nranks, nbytes >> 10);
}

/* Whose rows of ls_page_sent() are used is not known yet: n^2 of them would be much memory for nothing. */
ls_status ls_page_create(int nranks, uint32_t generation, ls_world_page **out, int *fd)
{
    const ls_env *env = ls_env_get();
    const size_t n = ls_page_bytes(nranks), slots = ls_page_slots_end((uint32_t)nranks);
    *fd = env->memfd_sparse("lockstep-page", n, slots);
    *out = *fd >= 0 ? env->map_shared(*fd, n, false) : NULL;
    if (*out && env->reserve(*out, slots) < 0) {
        env->unmap(*out, n);
        *out = NULL;
    }
    if (*out) {
        ls_page_format(*out, nranks, generation);
        return LS_OK;
    }
    if (*fd >= 0) env->close_fd(*fd);
    *fd = -1;
    return no_page(nranks, slots);
}

ls_status ls_page_create_dry(int nranks, int rank, uint32_t generation, ls_world_page **out)
{
    const ls_env *env = ls_env_get();
    const size_t n = ls_page_bytes(nranks);
    const int fd = env->memfd_sparse("lockstep-page", n, 0);
    ls_world_page *p = fd >= 0 ? env->map_shared(fd, n, false) : NULL;
    if (fd >= 0) env->close_fd(fd);
    *out = NULL;
    if (p && (env->reserve(p, sizeof *p) < 0 || env->reserve(&p->rank[rank], sizeof p->rank[rank]) < 0)) {
        env->unmap(p, n);
        p = NULL;
    }
    if (!p) return no_page(nranks, sizeof *p + sizeof p->rank[rank]);
    ls_page_format(p, nranks, generation);
    *out = p;
    return LS_OK;
}

ls_status ls_page_map(int fd, int nranks, ls_world_page **out)
{
    const ls_env *env = ls_env_get();
    const size_t n = ls_page_bytes(nranks), slots = ls_page_slots_end((uint32_t)nranks);
    const int64_t there = env->fd_size(fd);
    *out = NULL;
    if (there < (int64_t)n)
        return ls_fail(LS_PROTOCOL, "the world page has %lld bytes, expected %zu for %d ranks", (long long)there, n, nranks);
    ls_world_page *p = env->map_shared(fd, n, false);
    if (!p) return no_page(nranks, slots);
    ls_status st = env->reserve(p, slots) < 0 ? no_page(nranks, slots) : ls_page_check(p, n, nranks);
    if (st < 0) env->unmap(p, n);
    else *out = p;
    return st;
}

ls_status ls_page_reserve_sent(ls_world_page *p, int rank, uint32_t block)
{
    const size_t n = ls_page_sent_bytes(p->nranks);
    if (ls_env_get()->reserve(ls_page_sent(p, rank, block, 0), n) == 0) return LS_OK;
    return ls_fail(LS_NO_MEMORY, "no shared memory for what rank %d says of its messages (%zu bytes)", rank, n);
}

ls_status ls_page_reserve_events(ls_world_page *p, int rank, uint32_t n)
{
    if (ls_env_get()->reserve(ls_page_events(p, rank), n * sizeof(ls_event)) == 0) return LS_OK;
    return ls_fail(LS_NO_MEMORY, "no shared memory for %u events of rank %d", n, rank);
}

void ls_page_format(ls_world_page *p, int nranks, uint32_t generation)
{
    p->layout = LS_PAGE_LAYOUT;
    p->generation = generation;
    p->nranks = (uint32_t)nranks;
    ls_env_get()->random(p->host, sizeof p->host);
    p->magic = LS_PAGE_MAGIC;
}

ls_status ls_page_check(const ls_world_page *p, size_t nbytes, int nranks)
{
    if (nbytes < ls_page_bytes(nranks))
        return ls_fail(LS_PROTOCOL, "world page of %zu bytes, expected %zu for %d ranks", nbytes, ls_page_bytes(nranks),
                       nranks);
    if (p->magic != LS_PAGE_MAGIC || p->layout != LS_PAGE_LAYOUT || p->nranks != (uint32_t)nranks)
        return ls_fail(LS_PROTOCOL,
                       "world page of layout %u for %u ranks, expected layout %u for %d: do all ranks run "
                       "the same build?",
                       p->layout, p->nranks, LS_PAGE_LAYOUT, nranks);
    return LS_OK;
}

bool ls_page_abort(ls_world_page *p, uint32_t by, ls_status s, const char *text)
{
    return ls_page_blame(p, by, by == LS_ABORT_BY_LAUNCHER ? -1 : (int)by - 1, s, text);
}

bool ls_page_blame(ls_world_page *p, uint32_t by, int about, ls_status s, const char *text)
{
    uint32_t nobody = 0;
    /* acq_rel: only the winner writes status and text, and it owns them from here */
    bool won =
        atomic_compare_exchange_strong_explicit(&p->abort_by, &nobody, by, memory_order_acq_rel, memory_order_acquire);
    /* Whoever fails takes its buffers back and writes to them; a peer that has read such bytes must see the abort when
     * it looks behind its own fence (ls_unless_aborted). The exchange alone does not order its store before later
     * stores: on arm64 these may pass a store-release. This fence does (dmb ish); on x86 the exchange is one. */
    LS_FENCE_RELEASE();
    if (!won) return false;
    p->abort_status = (int32_t)s;
    p->abort_about = about;
    snprintf(p->abort_text, sizeof p->abort_text, "%s", text);
    atomic_store_explicit(&p->abort_ready, 1, memory_order_release); /* status and text are visible before it */
    for (uint32_t r = 0; r < p->nranks; r++) {
        atomic_store_explicit(&p->rank[r].parked, 0, memory_order_relaxed);
        ls_env_get()->wake((const uint32_t *)(const void *)&p->rank[r].parked);
    }
    return true;
}

void ls_page_died(ls_world_page *p, int rank, int pid)
{
    char where[256], text[LS_ERROR_BYTES];
    snprintf(text, sizeof text, "rank %d (pid %d) ended unexpectedly %s", rank, pid,
             ls_page_where(p, rank, where, sizeof where));
    atomic_store_explicit(&p->rank[rank].state, LS_RANK_DEAD, memory_order_relaxed);
    ls_page_abort(p, 1 + (uint32_t)rank, LS_RANK_DIED, text);
}

bool ls_page_cause(const ls_world_page *p, int *rank, ls_status *s, char *text, size_t n)
{
    uint32_t by = atomic_load_explicit(&p->abort_by, memory_order_acquire);
    if (by == 0) return false;
    *rank = by == LS_ABORT_BY_LAUNCHER ? -1 : (int)by - 1;
    /* the winner may have lost its time slice between winning and writing */
    const ls_env *env = ls_env_get();
    for (uint64_t end = env->mono_ns() + CAUSE_NS;
         !atomic_load_explicit(&p->abort_ready, memory_order_acquire) && env->mono_ns() < end;)
        env->yield();
    if (atomic_load_explicit(&p->abort_ready, memory_order_acquire)) {
        *rank = p->abort_about;
        *s = (ls_status)p->abort_status;
        snprintf(text, n, "%s", p->abort_text);
    } else { /* it was killed there */
        *s = LS_ABORTED;
        snprintf(text, n, "the cause was not recorded");
    }
    return true;
}

/* What the rank calls that group; it may have made another one in its place since. */
static const char *group_text(const ls_coll_desc *d, const ls_rank_slot *slot, char buf[LS_GROUP_TEXT_BYTES])
{
    const ls_flow *f = &slot->flow[d->block % LS_PAGE_GROUPS];
    if (d->group == LS_GROUP_OTHER || !f->name[0]) return "another group";
    if (atomic_load_explicit(&f->named, memory_order_acquire) != d->group) return "another group";
    snprintf(buf, LS_GROUP_TEXT_BYTES, "%.*s", LS_GROUP_TEXT_BYTES - 1, f->name);
    return buf;
}

const char *ls_desc_text(const ls_coll_desc *d, const ls_rank_slot *slot, char *buf, size_t n)
{
    char label[LS_BLACKBOX_STRING_BYTES + 4] = "", op[32] = "", root[24] = "", name[LS_GROUP_TEXT_BYTES];
    const char *group = group_text(d, slot, name);
    ls_coll coll = (ls_coll)d->coll;
    if (d->label > 0 && d->label < LS_BLACKBOX_STRINGS)
        snprintf(label, sizeof label, " (%.*s)", LS_BLACKBOX_STRING_BYTES - 1, slot->box.string[d->label]);
    if (coll == LS_ALL_REDUCE || coll == LS_REDUCE_SCATTER || coll == LS_REDUCE)
        snprintf(op, sizeof op, " %s", ls_redop_name((ls_redop)d->op));
    if (coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER)
        snprintf(root, sizeof root, " root %d", (int)d->root);
    if (coll == LS_SENDRECV)
        snprintf(buf, n, "%s #%u%s of %s: %llu %s %s rank %d", d->op ? "recv" : "send", d->seq, label, group,
                 (unsigned long long)d->count, ls_dtype_name((ls_dtype)d->dtype), d->op ? "from" : "to", (int)d->root);
    else if (coll == LS_BARRIER)
        snprintf(buf, n, "barrier #%u%s of %s", d->seq, label, group);
    else
        snprintf(buf, n, "%s #%u%s of %s: %llu %s%s%s", ls_coll_name(coll), d->seq, label, group,
                 (unsigned long long)d->count, ls_dtype_name((ls_dtype)d->dtype), op, root);
    return buf;
}

void ls_page_enter_message(ls_rank_slot *slot, const ls_coll_desc *d)
{
    uint64_t word[4];
    ls_desc_pack(d, word);
    ls_desc_write(&slot->message, word);
}

/* TORN: the rank lost its time slice, or its life, while it wrote. */
typedef enum desc_state { ABSENT, TORN, WHOLE } desc_state;

static desc_state read_desc(const struct ls_desc_slot *ds, ls_coll_desc *out)
{
    for (int turn = 0; turn < 1000; turn++) {
        uint32_t before = atomic_load_explicit(&ds->version, memory_order_acquire);
        if (before == 0) return ABSENT;
        uint64_t word[4];
        for (int k = 0; k < 4; k++) word[k] = atomic_load_explicit(&ds->word[k], memory_order_relaxed);
        ls_desc_unpack(word, out);
        LS_FENCE_ACQUIRE(); /* the copy is done before version is read again */
        if ((before & 1u) == 0 && atomic_load_explicit(&ds->version, memory_order_relaxed) == before) return WHOLE;
    }
    return TORN;
}

/* What stands where `mine` would. */
static bool read_like(const ls_world_page *p, int rank, const ls_coll_desc *mine, ls_coll_desc *out)
{
    return read_desc(&p->rank[rank].desc[ls_desc_index(mine->block, mine->seq)], out) == WHOLE &&
           out->group == mine->group;
}

bool ls_page_find_coll(const ls_world_page *p, int rank, const ls_coll_desc *mine, ls_coll_desc *out)
{
    return read_like(p, rank, mine, out) && out->seq == mine->seq;
}

bool ls_page_entered(const ls_world_page *p, int rank, const ls_coll_desc *mine)
{
    ls_coll_desc d;
    return read_like(p, rank, mine, &d) && (int32_t)(d.seq - mine->seq) >= 0;
}

static desc_state read_last(const ls_world_page *p, int rank, ls_coll_desc *out)
{
    if (rank < 0 || (uint32_t)rank >= p->nranks) return ABSENT;
    const ls_rank_slot *slot = &p->rank[rank];
    uint32_t i = atomic_load_explicit(&slot->newest, memory_order_acquire);
    return read_desc(&slot->desc[i % (LS_PAGE_GROUPS * LS_PAGE_HISTORY)], out);
}

bool ls_page_last_coll(const ls_world_page *p, int rank, ls_coll_desc *out) { return read_last(p, rank, out) == WHOLE; }
bool ls_page_last_words(const ls_world_page *p, int rank, ls_coll_desc *out)
{
    return read_last(p, rank, out) != ABSENT;
}

bool ls_page_awaited(const ls_world_page *p, int rank, ls_coll_desc *out)
{
    const ls_rank_slot *slot = &p->rank[rank];
    uint32_t in = atomic_load_explicit(&slot->in_coll, memory_order_acquire);
    return in == LS_IN_MESSAGE && read_desc(&slot->message, out) == WHOLE;
}

int ls_page_message_peer(const ls_world_page *p, int rank)
{
    ls_coll_desc d;
    return ls_page_awaited(p, rank, &d) && (uint32_t)d.root < p->nranks ? d.root : -1;
}

const char *ls_page_where(const ls_world_page *p, int rank, char *buf, size_t n)
{
    const ls_rank_slot *slot = &p->rank[rank];
    unsigned step = atomic_load_explicit(&slot->step, memory_order_relaxed);
    ls_coll_desc d;
    ls_task task;
    char what[LS_TASK_FILE_BYTES + 96];
    if (ls_task_read(&slot->task, &task))
        snprintf(buf, n, "in step %u, %s", step, ls_task_text(&task, ls_env_get()->mono_ns(), what, sizeof what));
    else if (ls_page_awaited(p, rank, &d))
        snprintf(buf, n, "in step %u, in %s", step, ls_desc_text(&d, slot, what, sizeof what));
    else if (!ls_page_last_words(p, rank, &d))
        snprintf(buf, n, "in step %u, before its first collective", step);
    else if (atomic_load_explicit(&slot->in_coll, memory_order_relaxed))
        snprintf(buf, n, "in step %u, in %s", step, ls_desc_text(&d, slot, what, sizeof what));
    else
        snprintf(buf, n, "in step %u, computing after %s", step, ls_desc_text(&d, slot, what, sizeof what));
    return buf;
}
