/* trace.c -- a rank's black box: a ring of events and a table of strings. */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "lockstep/trace.h"

#define SLOTS 1024u /* of the lookup: four times the strings it can hold */
#define RECENT 64u  /* labels are mostly literals: their address is looked up first */

struct ls_tracer {
    ls_blackbox *box; /* borrowed: in the world page */
    uint32_t step;
    uint16_t micro_batch;
    uint16_t slot[SLOTS]; /* by hash of the text; 0: free */
    struct { const char *text; uint16_t index; } recent[RECENT];
};

ls_status ls_tracer_create(ls_blackbox *box, ls_tracer **out)
{
    *out = NULL;
    ls_tracer *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "a tracer");
    t->box = box;
    box->count = 0;
    box->nstrings = 1; /* index 0 is the empty label */
    box->string[0][0] = 0;
    *out = t;
    return LS_OK;
}

void ls_tracer_destroy(ls_tracer *t) { free(t); }

static uint16_t look_up(ls_tracer *t, const char *text)
{
    char cut[LS_BLACKBOX_STRING_BYTES] = { 0 };
    size_t n = strnlen(text, sizeof cut - 1);
    memcpy(cut, text, n);
    ls_blackbox *b = t->box;
    for (uint32_t i = (uint32_t)ls_hash64(cut, n, 0) % SLOTS;; i = (i + 1) % SLOTS) {
        if (t->slot[i] == 0) {
            if (b->nstrings == LS_BLACKBOX_STRINGS) return 0;
            memcpy(b->string[b->nstrings], cut, sizeof cut);
            t->slot[i] = (uint16_t)b->nstrings;
            return (uint16_t)b->nstrings++;
        }
        if (strcmp(b->string[t->slot[i]], cut) == 0) return t->slot[i];
    }
}

uint16_t ls_tracer_label(ls_tracer *t, const char *text)
{
    if (!t || !text || !*text) return 0;
    size_t at = ((uintptr_t)text >> 3) % RECENT;
    /* the same address may hold another text by now: its beginning and its entry are compared */
    if (t->recent[at].text == text && strncmp(t->box->string[t->recent[at].index], text, LS_BLACKBOX_STRING_BYTES - 1) == 0)
        return t->recent[at].index;
    uint16_t index = look_up(t, text);
    t->recent[at].text = text;
    t->recent[at].index = index;
    return index;
}

void ls_tracer_add(ls_tracer *t, const ls_event *ev)
{
    if (!t) return;
    ls_blackbox *b = t->box;
    ls_event *to = &b->ev[b->count % LS_BLACKBOX_EVENTS];
    *to = *ev;
    to->step = t->step;
    to->micro_batch = t->micro_batch;
    b->count++;
}

void ls_tracer_at(ls_tracer *t, uint32_t step, uint16_t micro_batch)
{
    if (!t) return;
    t->step = step;
    t->micro_batch = micro_batch;
}

uint64_t ls_tracer_now(const ls_tracer *t) { return t ? ls_env_get()->mono_ns() : 0; }
