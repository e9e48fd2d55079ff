/* trace.c -- writing a rank's black box: a ring of events and a table of strings. */
#include "lockstep/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/shared.h"

#define SLOTS 1024u /* of the lookup: four times the strings it can hold */
#define RECENT 64u  /* labels are mostly literals: their address is looked up first */

_Static_assert(sizeof(ls_event) == 64, "an event is a cache line");
_Static_assert(offsetof(ls_blackbox, ev) % 64 == 0, "and starts on one");

struct ls_tracer {
    ls_blackbox *box;     /* borrowed: in the world page, where others read it at any time */
    ls_event *ring;       /* borrowed: [room] */
    uint32_t room, at;    /* at: count % room */
    uint64_t count;       /* our copy of box->count */
    uint64_t kinds[LS_EV_KINDS];
    uint32_t nstrings;    /* and of box->nstrings */
    uint32_t step;
    uint16_t micro_batch;
    uint16_t slot[SLOTS]; /* index of a string, by the hash of its text; 0: free */
    struct { const char *text; uint16_t index; } recent[RECENT];
};

ls_status ls_tracer_create(ls_blackbox *box, ls_tracer **out)
{
    *out = NULL;
    ls_tracer *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "a tracer of %zu bytes", sizeof *t);
    t->box = box;
    t->ring = box->ev;
    t->room = LS_BLACKBOX_EVENTS;
    t->nstrings = 1; /* index 0 is the empty label */
    ls_shared_publish(&box->count, 0);
    ls_shared_publish32(&box->capacity, t->room);
    box->string[0][0] = 0;
    ls_shared_publish32(&box->nstrings, 1);
    *out = t;
    return LS_OK;
}

ls_status ls_tracer_set_capacity(ls_tracer *t, ls_event *more, uint32_t room)
{
    if (!t) return LS_OK;
    if (room <= LS_BLACKBOX_EVENTS || room > LS_BLACKBOX_MOST)
        return ls_fail(LS_INVALID, "a ring of %u events: expected %d to %d", room, LS_BLACKBOX_EVENTS + 1, LS_BLACKBOX_MOST);
    t->ring = more;
    t->room = room;
    t->at = 0;
    t->count = 0;
    ls_shared_publish(&t->box->count, 0);
    ls_shared_publish32(&t->box->capacity, room);
    return LS_OK;
}

uint64_t ls_tracer_count(const ls_tracer *t, ls_ev_kind kind) { return t ? t->kinds[kind] : 0; }

void ls_tracer_destroy(ls_tracer *t) { free(t); }

static uint16_t look_up(ls_tracer *t, const char *text)
{
    char cut[LS_BLACKBOX_STRING_BYTES] = { 0 };
    size_t n = strnlen(text, sizeof cut - 1);
    memcpy(cut, text, n);
    ls_blackbox *b = t->box;
    for (uint32_t i = (uint32_t)ls_hash64(cut, n, 0) % SLOTS;; i = (i + 1) % SLOTS) {
        if (t->slot[i] == 0) {
            if (t->nstrings == LS_BLACKBOX_STRINGS) return 0;
            memcpy(b->string[t->nstrings], cut, sizeof cut);
            t->slot[i] = (uint16_t)t->nstrings;
            ls_shared_publish32(&b->nstrings, ++t->nstrings);
            return t->slot[i];
        }
        if (strcmp(b->string[t->slot[i]], cut) == 0) return t->slot[i];
    }
}

uint16_t ls_tracer_label(ls_tracer *t, const char *text)
{
    if (!t || !text || !*text) return 0;
    size_t at = (((uintptr_t)text >> 3) ^ ((uintptr_t)text >> 12)) % RECENT;
    /* The same address may hold another text by now (a buffer on the stack), so the text is compared too. */
    if (t->recent[at].text == text &&
        strncmp(t->box->string[t->recent[at].index], text, LS_BLACKBOX_STRING_BYTES - 1) == 0)
        return t->recent[at].index;
    uint16_t index = look_up(t, text);
    t->recent[at].text = text;
    t->recent[at].index = index;
    return index;
}

void ls_tracer_add(ls_tracer *t, const ls_event *ev)
{
    if (!t) return;
    ls_event e = *ev;
    e.step = t->step;
    e.micro_batch = t->micro_batch;
    ls_shared_store(&t->ring[t->at], &e, sizeof e);
    if (++t->at == t->room) t->at = 0;
    if (e.kind < LS_EV_KINDS) t->kinds[e.kind]++;
    ls_shared_publish(&t->box->count, ++t->count);
}

void ls_tracer_mark(ls_tracer *t, const char *label, uint16_t bucket)
{
    if (!t) return;
    const uint64_t now = ls_tracer_now(t);
    ls_tracer_add(t, &(ls_event){ .kind = LS_EV_MARK, .label = ls_tracer_label(t, label), .bucket = bucket, .peer = -1,
                                  .t0_ns = now, .t1_ns = now });
}

void ls_tracer_at(ls_tracer *t, uint32_t step, uint16_t micro_batch)
{
    if (!t) return;
    t->step = step;
    t->micro_batch = micro_batch;
}

uint64_t ls_tracer_now(const ls_tracer *t) { return t ? ls_env_get()->mono_ns() : 0; }
