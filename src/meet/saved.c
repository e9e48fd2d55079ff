/* saved.c -- telling which checkpoint is the newest, and reading it. */
#include "meet/saved.h"

#include <stdio.h>

#include "meet/words.h"

void ls_saved_write(ls_saved_slot *slot, const char *path, int64_t step)
{
    ls_saved s = { .state = path ? LS_SAVED_ONE : LS_SAVED_NONE, .step = path ? step : 0 };
    snprintf(s.path, sizeof s.path, "%s", path ? path : "");
    ls_words_write(&slot->version, slot->word, &s, LS_SAVED_WORDS);
}

void ls_saved_read(const ls_saved_slot *slot, ls_saved *out)
{
    if (!ls_words_read(&slot->version, slot->word, out, LS_SAVED_WORDS)) *out = (ls_saved){ 0 };
    out->path[sizeof out->path - 1] = 0; /* shared memory: anything may stand there */
    if (out->state >= LS_SAVED_STATES) out->state = LS_SAVED_UNKNOWN;
}

void ls_run_dir_write(ls_run_dir_slot *slot, const char *path)
{
    char text[LS_RUN_DIR_BYTES] = "";
    snprintf(text, sizeof text, "%s", path);
    ls_words_write(&slot->version, slot->word, text, LS_RUN_DIR_WORDS);
}

void ls_run_dir_read(const ls_run_dir_slot *slot, char out[LS_RUN_DIR_BYTES])
{
    if (!ls_words_read(&slot->version, slot->word, out, LS_RUN_DIR_WORDS)) *out = 0;
    out[LS_RUN_DIR_BYTES - 1] = 0; /* shared memory: anything may stand there */
}

const char *ls_saved_text(const ls_saved *s, char *buf, size_t n)
{
    if (s->state == LS_SAVED_ONE)
        snprintf(buf, n, "the newest checkpoint of this run is %s (step %lld)", s->path, (long long)s->step);
    else
        snprintf(buf, n, "%s", s->state == LS_SAVED_NONE ? "no checkpoint was saved" : "");
    return buf;
}
