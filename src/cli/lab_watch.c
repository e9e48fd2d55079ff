/* lab_watch.c -- lockstep lab 1 watch: a task is checked each time that its file changes. */
#include <stdio.h>

#include "base/env.h"
#include "cli/lab.h"

#define LOOK_NS 200000000u /* between two looks at the file */

/* A file that is not there, as while an editor replaces it, is as it was. */
static bool has_changed(const char *path, ls_file_info *was)
{
    ls_file_info now = { 0 };
    if (ls_env_get()->info(path, &now) < 0 || now.type != LS_FILE_REGULAR) return false;
    const bool changed = now.changed_ns != was->changed_ns || now.size != was->size;
    *was = now;
    return changed;
}

ls_status ls_cli_lab_watch(const ls_lab_task *t)
{
    const ls_env *env = ls_env_get();
    ls_text path = { 0 };
    ls_file_info was = { 0 };
    ls_status st = ls_cli_lab_task_path(t, &path);
    if (st == LS_OK && !has_changed(path.p, &was))
        st = ls_fail(LS_IO, "%s: No such file; `lockstep lab start` copies the tasks that are missing", path.p);
    while (st == LS_OK && !ls_stop_seen(t->stop)) {
        bool green;
        st = ls_cli_lab_exercise(t, "check", &green);
        if (st == LS_OK) printf("Watching %s; Ctrl-C ends it.\n", path.p);
        fflush(stdout);
        while (st == LS_OK && !ls_stop_seen(t->stop) && !has_changed(path.p, &was))
            env->wait(NULL, 0, NULL, 0, env->mono_ns() + LOOK_NS);
    }
    ls_text_free(&path);
    return ls_stop_seen(t->stop) ? LS_OK : st;
}
