/* lab_progress.c -- what a reader does in a lab becomes lines of the file of progress, in the folder of tasks. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "cli/lab.h"

void ls_cli_lab_item(const ls_lab_entry *e, int n, char *out, size_t bytes)
{
    if (n) snprintf(out, bytes, "%.2s.ex%d", e->name, n);
    else snprintf(out, bytes, "%.2s.claims", e->name);
}

ls_status ls_cli_lab_progress_path(ls_text *out)
{
    LS_TRY(ls_lab_tasks(out));
    ls_text_add(out, "/" LS_LAB_PROGRESS);
    return ls_text_status(out);
}

/* A file that cannot be written ends nothing: it is said. */
static void change(const ls_lab_change *c, size_t n)
{
    ls_text path = { 0 };
    ls_status st = ls_cli_lab_progress_path(&path);
    if (st == LS_OK) st = ls_lab_progress_change(path.p, c, n, (long long)ls_env_get()->wall_ns());
    if (st < 0) ls_log(LS_LOG_WARN, "progress is not written: %s", ls_last_error());
    ls_text_free(&path);
}

static bool has_tasks(void)
{
    ls_text path = { 0 };
    const bool has = ls_lab_tasks(&path) == LS_OK;
    ls_text_free(&path);
    return has;
}

static void happen(ls_lab_item *item, const void *arg)
{
    static const char *const states[] = {
        [LS_LAB_WAS_GREEN] = "green", [LS_LAB_WAS_RED] = "red",       [LS_LAB_WAS_BEGUN] = "begun", [LS_LAB_WAS_SEEN] = "seen",
        [LS_LAB_WAS_RIGHT] = "right", [LS_LAB_WAS_MISSED] = "missed", [LS_LAB_WAS_TOLD] = "begun",  [LS_LAB_WAS_HINTED] = "begun",
    };
    const ls_lab_event event = *(const ls_lab_event *)arg;
    const bool keeps = event == LS_LAB_WAS_TOLD || event == LS_LAB_WAS_HINTED; /* the state that there is */
    if (!keeps || !*item->state) snprintf(item->state, sizeof item->state, "%s", states[event]);
    const bool marked = event == LS_LAB_WAS_RIGHT || event == LS_LAB_WAS_MISSED;
    item->tries += marked || event == LS_LAB_WAS_GREEN || event == LS_LAB_WAS_RED;
    item->hints += event == LS_LAB_WAS_HINTED;
    item->told |= event == LS_LAB_WAS_TOLD;
}

void ls_cli_lab_note(const char *item, ls_lab_event event)
{
    change(&(ls_lab_change){ .item = item, .make = happen, .arg = &event }, 1);
}

void ls_cli_lab_answered(const char *id, bool right)
{
    if (has_tasks()) ls_cli_lab_note(id, right ? LS_LAB_WAS_RIGHT : LS_LAB_WAS_MISSED);
}

bool ls_cli_lab_was_missed(const char *id)
{
    ls_text path = { 0 };
    ls_lab_item item = { .tries = 0 };
    const bool known = ls_cli_lab_progress_path(&path) == LS_OK && ls_lab_progress_read(path.p, id, &item) == LS_OK;
    ls_text_free(&path);
    return known && strcmp(item.state, "missed") == 0;
}

/* --- claims ------------------------------------------------------------------------------------------------- */

static void tell(ls_lab_item *item, const void *arg)
{
    const ls_lab_seen *s = arg;
    snprintf(item->state, sizeof item->state, "%s", !s->holds ? "red" : s->asserted ? "holds" : "shown");
    snprintf(item->values, sizeof item->values, "%s", ls_text_str(&s->values));
    ls_text_printable(item->values);
}

void ls_cli_lab_seen(const ls_lab_entry *e, const ls_lab_seen *s, size_t n, bool all)
{
    static const ls_lab_event seen = LS_LAB_WAS_SEEN;
    ls_lab_change c[LS_LAB_MAX_CLAIMS + 1];
    char item[64];
    if (!has_tasks()) return;
    for (size_t i = 0; i < n; i++) c[i] = (ls_lab_change){ .item = s[i].id, .make = tell, .arg = &s[i] };
    ls_cli_lab_item(e, 0, item, sizeof item);
    if (all) c[n++] = (ls_lab_change){ .item = item, .make = happen, .arg = &seen };
    change(c, n);
}

void ls_cli_lab_progress(const ls_lab_entry *e, ls_text *out)
{
    ls_text path = { 0 };
    int green = 0;
    const int n = ls_lab_exercises(e);
    if (ls_cli_lab_progress_path(&path) == LS_OK) {
        ls_lab_item item;
        char name[64];
        for (int i = 0; i <= n; i++) {
            ls_cli_lab_item(e, i, name, sizeof name);
            if (ls_lab_progress_read(path.p, name, &item) < 0) break;
            if (i == 0 && strcmp(item.state, "seen") == 0) ls_text_add(out, ", claims seen");
            green += i > 0 && strcmp(item.state, "green") == 0;
        }
        if (n > 0) ls_text_add(out, ", %d of %d exercises green", green, n);
    }
    ls_text_free(&path);
}
