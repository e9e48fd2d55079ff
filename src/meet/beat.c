/* beat.c -- writing and reading beats. */
#include "meet/beat.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define UNKNOWN_GROUP UINT32_MAX
#define LABEL 1u /* the string of a mirrored slot that holds its newest collective's label */

static uint32_t load(const _Atomic uint32_t *p) { return atomic_load_explicit(p, memory_order_relaxed); }
static void store(_Atomic uint32_t *p, uint32_t v) { atomic_store_explicit(p, v, memory_order_relaxed); }

size_t ls_beat_most_bytes(uint32_t nranks)
{
    return sizeof(ls_beat_head) + LS_ERROR_BYTES + LS_SAVED_PATH_BYTES +
           nranks * (sizeof(ls_beat_rank) + LS_BEAT_PEERS * sizeof(ls_beat_peer));
}

/* The rank's messages, in at most *room entries at `to`, which become fewer. Returns how many; without room the group
 * is unknown, so that nobody takes what is not told for a message that was not sent. */
static uint32_t write_flow(const ls_world_page *p, int rank, uint32_t block, ls_beat_flow *b, char *to, size_t *room)
{
    const ls_flow *f = &p->rank[rank].flow[block];
    uint32_t n = 0;
    *b = (ls_beat_flow){ .block = block, .seq = atomic_load_explicit(&f->seq, memory_order_acquire) };
    b->group = load(&f->group);
    b->done = load(&f->done);
    b->named = atomic_load_explicit(&f->named, memory_order_acquire);
    memcpy(b->name, f->name, sizeof b->name - 1);
    for (int l = 0; l < LS_PAGE_LANES; l++) b->waits[l] = atomic_load_explicit(&f->waits[l], memory_order_relaxed);
    for (uint32_t r = 0; r < p->nranks; r++) {
        ls_beat_peer x = { .rank = r };
        bool any = false;
        for (int l = 0; l <= LS_PAGE_LANES; l++) {
            x.sent[l] = load(&ls_page_sent(p, rank, block, l)[r]);
            any = any || x.sent[l] != 0;
        }
        if (!any) continue;
        if (n == *room) {
            b->group = UNKNOWN_GROUP;
            return 0;
        }
        memcpy(to + n++ * sizeof x, &x, sizeof x);
    }
    *room -= n;
    return n;
}

static void take_flow(ls_world_page *p, int rank, const ls_beat_flow *b, const char *peers, uint32_t npeers)
{
    ls_flow *f = &p->rank[rank].flow[b->block];
    const bool known = b->group != UNKNOWN_GROUP && ls_page_reserve_sent(p, rank, b->block) == LS_OK;
    for (uint32_t r = 0, i = 0; r < p->nranks && known; r++) {
        ls_beat_peer x = { .rank = UINT32_MAX };
        if (i < npeers) memcpy(&x, peers + i * sizeof x, sizeof x);
        const bool its = x.rank == r;
        for (int l = 0; l <= LS_PAGE_LANES; l++) store(&ls_page_sent(p, rank, b->block, l)[r], its ? x.sent[l] : 0);
        i += its;
    }
    for (int l = 0; l < LS_PAGE_LANES; l++) atomic_store_explicit(&f->waits[l], b->waits[l], memory_order_relaxed);
    store(&f->group, known ? b->group : UNKNOWN_GROUP);
    store(&f->done, b->done);
    memcpy(f->name, b->name, sizeof f->name - 1); /* torn, at worst, for who reads it now */
    ls_text_printable(f->name);
    atomic_store_explicit(&f->named, b->named, memory_order_release);
    atomic_store_explicit(&f->seq, b->seq, memory_order_release);
}

static void write_task(const ls_rank_slot *slot, uint64_t now_ns, ls_beat_rank *b)
{
    ls_task t;
    (void)ls_task_read(&slot->task, &t);
    b->task = t.kind;
    b->task_ns = !t.since_ns ? UINT64_MAX : now_ns > t.since_ns ? now_ns - t.since_ns : 0;
    b->limit_ns = t.limit_ns;
    const size_t n = strlen(t.file), room = sizeof b->file - 1;
    if (n <= room) snprintf(b->file, sizeof b->file, "%.*s", (int)room, t.file);
    else snprintf(b->file, sizeof b->file, "...%s", t.file + n - (room - 3));
}

/* Returns what follows it at `to`: bytes of its peers. */
static size_t write_rank(const ls_world_page *p, uint32_t rank, uint64_t now_ns, ls_beat_rank *b, char *to,
                         size_t *room)
{
    const ls_rank_slot *slot = &p->rank[rank];
    uint64_t beat = atomic_load_explicit(&slot->beat_ns, memory_order_relaxed);
    *b = (ls_beat_rank){ .rank = rank,
                         .pid = atomic_load_explicit(&slot->pid, memory_order_relaxed),
                         .state = atomic_load_explicit(&slot->state, memory_order_acquire),
                         .step = load(&slot->step),
                         .micro_batch = load(&slot->micro_batch),
                         .in_coll = load(&slot->in_coll),
                         .waits_for = atomic_load_explicit(&slot->waits_for, memory_order_acquire),
                         .still_ns = beat < now_ns ? now_ns - beat : 0 };
    b->has_message = ls_page_awaited(p, (int)rank, &b->message);
    b->has_desc = ls_page_last_coll(p, (int)rank, &b->desc);
    const uint32_t block = (uint32_t)(b->has_message ? b->message.block : b->has_desc ? b->desc.block : 0);
    if (b->has_message || b->has_desc)
        b->npeers = write_flow(p, (int)rank, block % LS_PAGE_GROUPS, &b->flow, to, room);
    else b->flow.group = UNKNOWN_GROUP;
    if (b->has_desc && b->desc.label < LS_BLACKBOX_STRINGS)
        memcpy(b->label, slot->box.string[b->desc.label], sizeof b->label - 1);
    write_task(slot, now_ns, b);
    return b->npeers * sizeof(ls_beat_peer);
}

static void take_task(ls_rank_slot *slot, const ls_beat_rank *b, uint64_t now_ns)
{
    ls_task t = { .kind = b->task, .since_ns = b->task_ns < now_ns ? now_ns - b->task_ns : 0,
                  .limit_ns = b->limit_ns };
    memcpy(t.file, b->file, sizeof b->file - 1);
    ls_text_printable(t.file);
    ls_task_write(&slot->task, &t);
}

size_t ls_beat_write(const ls_world_page *p, ls_beat_of of, uint64_t now_ns, void *out)
{
    char *to = (char *)out + sizeof(ls_beat_head);
    ls_beat_head h = { .nranks = p->nranks };
    char text[LS_ERROR_BYTES];
    ls_status s;
    int about;
    h.abort_by = atomic_load_explicit(&p->abort_by, memory_order_acquire);
    if (h.abort_by && ls_page_cause(p, &about, &s, text, sizeof text)) {
        h.abort_status = s;
        h.abort_about = about;
        h.text = (uint32_t)strlen(text);
        memcpy(to, text, h.text);
        to += h.text;
    }
    ls_saved saved, snapshot;
    ls_saved_read(&p->saved, &saved);
    ls_saved_read(&p->snapshot, &snapshot);
    h.snapshot = snapshot.state == LS_SAVED_ONE ? snapshot.step : -1;
    h.saved = saved.state;
    h.saved_step = saved.step;
    h.path = saved.state == LS_SAVED_ONE ? (uint32_t)strlen(saved.path) : 0;
    memcpy(to, saved.path, h.path);
    to += h.path;
    size_t room = (size_t)p->nranks * LS_BEAT_PEERS;
    for (uint32_t r = 0; r < p->nranks; r++) {
        ls_beat_rank b;
        if (!ls_beat_is_of(of, (int)r) || load(&p->rank[r].state) == LS_RANK_STARTING) continue;
        const size_t peers = write_rank(p, r, now_ns, &b, to + sizeof b, &room);
        memcpy(to, &b, sizeof b);
        to += sizeof b + peers;
        h.count++;
    }
    memcpy(out, &h, sizeof h);
    return (size_t)(to - (char *)out);
}

/* Everything that is later used as an index or shown. */
static bool fits(const ls_world_page *p, const ls_beat_rank *b)
{
    return b->rank < p->nranks && b->state <= LS_RANK_STOPPED && b->in_coll <= LS_IN_MESSAGE &&
           b->desc.block < LS_PAGE_GROUPS && b->flow.block < LS_PAGE_GROUPS && b->task < LS_TASK_KINDS;
}

/* The next rank of a beat and its peers, which are in ascending order; NULL: these bytes have none. */
static const char *next_rank(const ls_world_page *p, const char *at, const char *end, ls_beat_rank *b,
                             const char **peers)
{
    if ((size_t)(end - at) < sizeof *b) return NULL;
    memcpy(b, at, sizeof *b);
    *peers = at + sizeof *b;
    if (!fits(p, b) || (size_t)(end - *peers) / sizeof(ls_beat_peer) < b->npeers) return NULL;
    for (uint32_t i = 0, from = 0; i < b->npeers; i++) {
        ls_beat_peer x;
        memcpy(&x, *peers + i * sizeof x, sizeof x);
        if (x.rank < from || x.rank >= p->nranks) return NULL;
        from = x.rank + 1;
    }
    return *peers + b->npeers * sizeof(ls_beat_peer);
}

static void take_rank(ls_world_page *p, const ls_beat_rank *b, const char *peers, uint64_t now_ns)
{
    ls_rank_slot *slot = &p->rank[b->rank];
    store(&slot->step, b->step);
    take_flow(p, (int)b->rank, &b->flow, peers, b->npeers);
    store(&slot->micro_batch, b->micro_batch);
    atomic_store_explicit(&slot->pid, b->pid, memory_order_relaxed);
    atomic_store_explicit(&slot->beat_ns, b->still_ns < now_ns ? now_ns - b->still_ns : 0, memory_order_relaxed);
    take_task(slot, b, now_ns);
    if (b->has_desc) {
        ls_coll_desc d = b->desc, last;
        d.label = LABEL;
        if (!ls_page_last_coll(p, (int)b->rank, &last) || memcmp(&last, &d, sizeof d) != 0) {
            memcpy(slot->box.string[LABEL], b->label, sizeof b->label - 1);
            ls_text_printable(slot->box.string[LABEL]);
            ls_page_enter(slot, &d);
        }
    }
    if (b->has_message) {
        ls_coll_desc d = b->message;
        d.label = 0;
        ls_page_enter_message(slot, &d);
    }
    atomic_store_explicit(&slot->in_coll, b->in_coll, memory_order_release); /* described */
    atomic_store_explicit(&slot->waits_for, b->waits_for, memory_order_release);
    atomic_store_explicit(&slot->state, b->state, memory_order_release);
}

static void take_saved(ls_world_page *p, const ls_beat_head *h, const char *path)
{
    char text[LS_SAVED_PATH_BYTES];
    if (h->saved == LS_SAVED_UNKNOWN) return;
    memcpy(text, path, h->path);
    text[h->path] = 0;
    ls_text_printable(text);
    ls_saved_write(&p->saved, h->saved == LS_SAVED_ONE ? text : NULL, h->saved_step);
    ls_saved_write(&p->snapshot, h->snapshot < 0 ? NULL : "", h->snapshot);
}

bool ls_beat_read(ls_world_page *p, ls_beat_of of, const void *in, size_t n, uint64_t now_ns, ls_rank_set *told)
{
    const char *at = in, *end = at + n, *peers;
    ls_beat_head h;
    ls_beat_rank b;
    if (told) ls_rank_set_clear(told);
    if (n < sizeof h) return false;
    memcpy(&h, at, sizeof h);
    if (h.nranks != p->nranks || h.count > p->nranks || h.text >= LS_ERROR_BYTES) return false;
    if (h.saved >= LS_SAVED_STATES || h.path >= LS_SAVED_PATH_BYTES) return false;
    if (n < sizeof h + h.text + h.path) return false;
    const char *text = at + sizeof h, *path = text + h.text, *ranks = path + h.path;
    at = ranks;
    for (uint32_t i = 0; i < h.count; i++) {
        if (!(at = next_rank(p, at, end, &b, &peers))) return false;
        if (told) ls_rank_set_add(told, (int)b.rank);
    }
    if (at != end) return false;
    if (h.abort_by && !load(&p->abort_by)) {
        char line[LS_ERROR_BYTES];
        memcpy(line, text, h.text);
        line[h.text] = 0;
        ls_text_printable(line);
        bool rank = h.abort_by <= p->nranks, about = h.abort_about >= 0 && h.abort_about < (int32_t)p->nranks;
        ls_page_blame(p, rank ? h.abort_by : LS_ABORT_BY_LAUNCHER, about ? h.abort_about : -1,
                      h.abort_status < 0 ? (ls_status)h.abort_status : LS_ABORTED, line);
    }
    if (ls_beat_is_of(of, 0)) take_saved(p, &h, path);
    at = ranks;
    for (uint32_t i = 0; i < h.count; i++) {
        at = next_rank(p, at, end, &b, &peers);
        if (ls_beat_is_of(of, (int)b.rank)) take_rank(p, &b, peers, now_ns);
    }
    return true;
}
