/* pipe_registry.c -- the pipeline schedules, by name. */
#include <string.h>

#include "base/text.h"
#include "parallel/pipe_list.h"

/* The schedules: a line each, in the order in which messages and --help name them. */
#define SCHEDULES(schedule)                   \
    schedule(gpipe, "gpipe", "")              \
    schedule(1f1b, "1f1b", "|")               \
    schedule(interleaved, "interleaved", "|") \
    schedule(zb_h1, "zb-h1", "|")             \
    schedule(zb_h2, "zb-h2", "|")             \
    schedule(zb_v, "zb-v", "|")               \
    schedule(dualpipe_v, "dualpipe-v", "|")

#define DECLARED(file, name, bar) extern const ls_pipe_schedule ls_pipe_##file;
#define LISTED(file, name, bar) &ls_pipe_##file,
#define CHOICE(file, name, bar) bar name

SCHEDULES(DECLARED)
const ls_pipe_schedule *const ls_pipe_schedules[] = { SCHEDULES(LISTED) NULL };
const char ls_pipe_choices[] = SCHEDULES(CHOICE);

ls_status ls_pipe_schedule_find(const char *name, const ls_pipe_schedule **out)
{
    ls_text names = { 0 };
    *out = NULL;
    for (int i = 0; ls_pipe_schedules[i]; i++) {
        if (strcmp(ls_pipe_schedules[i]->name, name ? name : "1f1b") == 0) *out = ls_pipe_schedules[i];
        ls_text_add(&names, "%s%s", i ? ", " : "", ls_pipe_schedules[i]->name);
    }
    const ls_status st = *out ? LS_OK
                              : ls_fail(LS_BAD_CONFIG, "no pipeline schedule '%s': expected one of %s", name, ls_text_str(&names));
    ls_text_free(&names);
    return st;
}
