/* task.c -- telling of long work, and reading what others tell. */
#include "net/task.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"

#define TURNS 1000 /* to read a task while it is written */

void ls_task_write(ls_task_slot *slot, const ls_task *t)
{
    uint64_t word[LS_TASK_WORDS];
    memcpy(word, t, sizeof word);
    const uint32_t v = atomic_load_explicit(&slot->version, memory_order_relaxed) | 1u;
    atomic_store_explicit(&slot->version, v, memory_order_relaxed);
    LS_FENCE_RELEASE(); /* readers that see a new word see the odd version */
    for (int k = 0; k < LS_TASK_WORDS; k++) atomic_store_explicit(&slot->word[k], word[k], memory_order_relaxed);
    atomic_store_explicit(&slot->version, v + 1, memory_order_release); /* the task is whole */
}

bool ls_task_read(const ls_task_slot *slot, ls_task *out)
{
    uint64_t word[LS_TASK_WORDS];
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t before = atomic_load_explicit(&slot->version, memory_order_acquire);
        for (int k = 0; k < LS_TASK_WORDS; k++) word[k] = atomic_load_explicit(&slot->word[k], memory_order_relaxed);
        LS_FENCE_ACQUIRE(); /* the copy is done before version is read again */
        if (before & 1u || atomic_load_explicit(&slot->version, memory_order_relaxed) != before) {
            if (turn > 0) ls_env_get()->yield(); /* who writes may have lost its time slice */
            continue;
        }
        memcpy(out, word, sizeof *out);
        out->file[sizeof out->file - 1] = 0; /* shared memory: anything may stand there */
        if (out->kind >= LS_TASK_KINDS) out->kind = LS_TASK_NONE;
        return out->kind != LS_TASK_NONE;
    }
    *out = (ls_task){ 0 };
    return false;
}

void ls_task_begin(ls_task_slot *slot, ls_task_kind kind, uint64_t limit_ns, const char *file)
{
    ls_task t = { .kind = kind, .since_ns = ls_env_get()->mono_ns(), .limit_ns = limit_ns };
    snprintf(t.file, sizeof t.file, "%s", file);
    ls_task_write(slot, &t);
}

void ls_task_end(ls_task_slot *slot)
{
    const ls_task none = { .since_ns = ls_env_get()->mono_ns() };
    ls_task_write(slot, &none);
}

uint64_t ls_task_left_ns(const ls_task *t, uint64_t now_ns)
{
    const uint64_t took = now_ns > t->since_ns ? now_ns - t->since_ns : 0;
    return took < t->limit_ns ? t->limit_ns - took : 0;
}

const char *ls_task_text(const ls_task *t, uint64_t now_ns, char *buf, size_t n)
{
    static const char *const what[LS_TASK_KINDS] = { "computing", "saving", "writing", "reading" };
    char over[64] = "";
    if (ls_task_left_ns(t, now_ns) == 0)
        snprintf(over, sizeof over, "; " LS_TASK_KEY " allows %.1f s", (double)t->limit_ns * 1e-9);
    snprintf(buf, n, "%s %s for %.1f s%s", what[t->kind < LS_TASK_KINDS ? t->kind : 0], t->file,
             (double)(now_ns > t->since_ns ? now_ns - t->since_ns : 0) * 1e-9, over);
    return buf;
}
