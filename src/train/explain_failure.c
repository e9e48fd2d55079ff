/* explain_failure.c -- how a run ended that failed, and what to do about it. */
#include "train/explain_failure.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MOST ((size_t)1 << 22) /* bytes of failure.json */

/* --- the report ------------------------------------------------------------------------------------------------ */

static void copy(const json_t *j, const char *key, char *out, size_t n)
{
    const char *s = json_string_value(json_object_get(j, key));
    snprintf(out, n, "%s", s ? s : "");
}

static int64_t number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    return n >= 0 && n <= INT32_MAX ? n : -1;
}

ls_status ls_run_failure_read(const char *folder, ls_run_failure *out)
{
    char path[600], *text = NULL;
    size_t n = 0;
    json_error_t e;
    *out = (ls_run_failure){ 0 };
    snprintf(path, sizeof path, "%.500s/failure.json", folder);
    if (ls_file_read(path, MOST, &text, &n) < 0) return LS_OK;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    if (!j) return ls_fail(LS_BAD_FILE, "%s: line %d: %s", path, e.line, e.text);
    out->any = true;
    copy(j, "code_word", out->word, sizeof out->word);
    copy(j, "message", out->message, sizeof out->message);
    copy(j, "signal", out->signal, sizeof out->signal);
    out->world_size = (int)number(j, "world_size");
    out->rank = (int)number(j, "rank");
    out->step = number(j, "step");
    json_decref(j);
    return *out->word && *out->message ? LS_OK : ls_fail(LS_BAD_FILE, "%s: expected code_word and message", path);
}

/* --- what to do ------------------------------------------------------------------------------------------------ */

static bool is(const ls_run_failure *f, const char *word) { return strcmp(f->word, word) == 0; }

static void advise(const ls_run_failure *f, const ls_explain_layout *l, char *out, size_t n)
{
    const int rank = f->rank >= 0 && f->rank < l->size ? f->rank : 0;
    int beside = 0;
    for (int r = 0; r < l->size; r++) beside += l->node[r] == l->node[rank];
    const double mib = (double)l->rank[rank].plan.total / (1 << 20);
    if (is(f, "no-memory"))
        snprintf(out, n, "the plan needs %.1f MiB on rank %d; `lockstep explain zero` has the bytes of each stage, and "
                         "`lockstep train --dry-run` the cheapest change that fits", mib, rank);
    else if (is(f, "rank-died") && strcmp(f->signal, "SIGKILL") == 0)
        snprintf(out, n, "SIGKILL without a message is mostly the kernel's, when memory is short: the plan needs %.1f MiB on rank %d, "
                         "and %d ranks were on its node; `lockstep explain zero` has the bytes of each stage", mib, rank, beside);
    else if (is(f, "peer-reset") || is(f, "peer-silent") || is(f, "frame-crc") || is(f, "protocol"))
        snprintf(out, n, "look at the link between the two ranks of the message: `lockstep topo links` measures each pair; the other "
                         "ranks only followed");
    else if (is(f, "rank-hung"))
        snprintf(out, n, "look at the rank that did not answer, and at its link: `lockstep topo links` measures each pair; raise "
                         "comm.timeout only if its work takes that long");
    else if (is(f, "nan"))
        snprintf(out, n, "no weight has changed: lower optim.lr, or set optim.clip, and look at the data of the rank of the message");
    else snprintf(out, n, "docs/failures.md says what %s means and what to do", f->word);
}

void ls_run_failure_text(const ls_run_failure *f, const ls_explain_layout *l, ls_text *out)
{
    char what[400];
    if (!f->any) return;
    advise(f, l, what, sizeof what);
    ls_text_add(out, "cause: failed: %s: %s\n  recommendation: %s\n", f->word, f->message, what);
}

void ls_run_failure_json(const ls_run_failure *f, const ls_explain_layout *l, ls_text *out)
{
    const struct { const char *key; int64_t value; } of[] = { { "rank", f->rank }, { "step", f->step } };
    char what[400];
    if (!f->any) {
        ls_text_add(out, "null");
        return;
    }
    advise(f, l, what, sizeof what);
    ls_text_add(out, "{\"code_word\": ");
    ls_json_string(out, f->word);
    ls_text_add(out, ", \"message\": ");
    ls_json_string(out, f->message);
    for (size_t i = 0; i < 2; i++) {
        ls_text_add(out, ", \"%s\": ", of[i].key);
        if (of[i].value >= 0) ls_text_add(out, "%lld", (long long)of[i].value);
        else ls_text_add(out, "null");
    }
    ls_text_add(out, ", \"recommendation\": ");
    ls_json_string(out, what);
    ls_text_add(out, "}");
}
