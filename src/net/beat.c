/* beat.c -- writing and reading beats. */
#include "net/beat.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define LABEL 1u /* the string of a mirrored slot that holds its newest collective's label */

static uint32_t load(const _Atomic uint32_t *p) { return atomic_load_explicit(p, memory_order_relaxed); }
static void store(_Atomic uint32_t *p, uint32_t v) { atomic_store_explicit(p, v, memory_order_relaxed); }

static void write_flow(const ls_rank_slot *slot, uint32_t block, ls_beat_flow *b)
{
    const ls_flow *f = &slot->flow[block];
    *b = (ls_beat_flow){ .block = block, .seq = atomic_load_explicit(&f->seq, memory_order_acquire) };
    b->group = load(&f->group);
    b->done = load(&f->done);
    for (int r = 0; r < LS_MAX_RANKS; r++) b->message[r] = load(&f->message[r]);
    for (int l = 0; l < LS_PAGE_LANES; l++) {
        b->waits[l] = atomic_load_explicit(&f->lane[l].waits, memory_order_relaxed);
        for (int r = 0; r < LS_MAX_RANKS; r++) b->sent[l][r] = load(&f->lane[l].sent[r]);
    }
}

static void take_flow(ls_rank_slot *slot, const ls_beat_flow *b)
{
    ls_flow *f = &slot->flow[b->block];
    for (int r = 0; r < LS_MAX_RANKS; r++) store(&f->message[r], b->message[r]);
    for (int l = 0; l < LS_PAGE_LANES; l++) {
        atomic_store_explicit(&f->lane[l].waits, b->waits[l], memory_order_relaxed);
        for (int r = 0; r < LS_MAX_RANKS; r++) store(&f->lane[l].sent[r], b->sent[l][r]);
    }
    store(&f->group, b->group);
    store(&f->done, b->done);
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

static void write_rank(const ls_world_page *p, uint32_t rank, uint64_t now_ns, ls_beat_rank *b)
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
    write_flow(slot, block % LS_PAGE_GROUPS, &b->flow);
    if (b->has_desc && b->desc.label < LS_BLACKBOX_STRINGS)
        memcpy(b->label, slot->box.string[b->desc.label], sizeof b->label - 1);
    write_task(slot, now_ns, b);
}

static void take_task(ls_rank_slot *slot, const ls_beat_rank *b, uint64_t now_ns)
{
    ls_task t = { .kind = b->task, .since_ns = b->task_ns < now_ns ? now_ns - b->task_ns : 0,
                  .limit_ns = b->limit_ns };
    memcpy(t.file, b->file, sizeof b->file - 1);
    ls_text_printable(t.file);
    ls_task_write(&slot->task, &t);
}

size_t ls_beat_write(const ls_world_page *p, uint64_t mask, uint64_t now_ns, void *out)
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
    ls_saved saved;
    ls_saved_read(&p->saved, &saved);
    h.saved = saved.state;
    h.saved_step = saved.step;
    h.path = saved.state == LS_SAVED_ONE ? (uint32_t)strlen(saved.path) : 0;
    memcpy(to, saved.path, h.path);
    to += h.path;
    for (uint32_t r = 0; r < p->nranks; r++) {
        ls_beat_rank b;
        if (!(mask >> r & 1u) || load(&p->rank[r].state) == LS_RANK_STARTING) continue;
        write_rank(p, r, now_ns, &b);
        memcpy(to, &b, sizeof b);
        to += sizeof b;
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

static void take_rank(ls_world_page *p, const ls_beat_rank *b, uint64_t now_ns)
{
    ls_rank_slot *slot = &p->rank[b->rank];
    store(&slot->step, b->step);
    take_flow(slot, &b->flow);
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
}

bool ls_beat_read(ls_world_page *p, uint64_t mask, const void *in, size_t n, uint64_t now_ns, uint64_t *told)
{
    const char *at = in;
    ls_beat_head h;
    ls_beat_rank b;
    *told = 0;
    if (n < sizeof h) return false;
    memcpy(&h, at, sizeof h);
    if (h.nranks != p->nranks || h.count > p->nranks || h.text >= LS_ERROR_BYTES) return false;
    if (h.saved >= LS_SAVED_STATES || h.path >= LS_SAVED_PATH_BYTES) return false;
    if (n != sizeof h + h.text + h.path + h.count * sizeof b) return false;
    const char *text = at + sizeof h, *path = text + h.text, *ranks = path + h.path;
    for (uint32_t i = 0; i < h.count; i++) {
        memcpy(&b, ranks + i * sizeof b, sizeof b);
        if (!fits(p, &b)) return false;
        *told |= 1ull << b.rank;
    }
    if (h.abort_by && !load(&p->abort_by)) {
        char line[LS_ERROR_BYTES];
        memcpy(line, text, h.text);
        line[h.text] = 0;
        ls_text_printable(line);
        bool rank = h.abort_by <= p->nranks, about = h.abort_about >= 0 && h.abort_about < (int32_t)p->nranks;
        ls_page_blame(p, rank ? h.abort_by : LS_ABORT_BY_LAUNCHER, about ? h.abort_about : -1,
                      h.abort_status < 0 ? (ls_status)h.abort_status : LS_ABORTED, line);
    }
    if (mask & 1u) take_saved(p, &h, path);
    for (uint32_t i = 0; i < h.count; i++) {
        memcpy(&b, ranks + i * sizeof b, sizeof b);
        if (mask >> b.rank & 1u) take_rank(p, &b, now_ns);
    }
    return true;
}
