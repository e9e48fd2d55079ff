/* task.c -- telling of long work, and reading what others tell. */
#include "meet/task.h"

#include <stdio.h>

#include "base/env.h"
#include "meet/words.h"

void ls_task_write(ls_task_slot *slot, const ls_task *t)
{
    ls_words_write(&slot->version, slot->word, t, LS_TASK_WORDS);
}

bool ls_task_read(const ls_task_slot *slot, ls_task *out)
{
    if (!ls_words_read(&slot->version, slot->word, out, LS_TASK_WORDS)) *out = (ls_task){ 0 };
    out->file[sizeof out->file - 1] = 0; /* shared memory: anything may stand there */
    if (out->kind >= LS_TASK_KINDS) out->kind = LS_TASK_NONE;
    return out->kind != LS_TASK_NONE;
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
