/* lab_exercise.c -- exercises of a lab: tasks copied, checked, hinted at, solved, begun again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "cli/lab.h"

ls_status ls_cli_lab_start(const ls_lab_shelf *s, const char *folder)
{
    int copied;
    LS_TRY(ls_lab_start(s, folder, &copied));
    const ls_lab_entry *first = NULL;
    for (int i = s->n - 1; i >= 0; i--)
        if (ls_lab_exercises(&s->entry[i]) > 0) first = &s->entry[i];
    printf("%s: %d new file%s; those that were there are as they were\n", folder, copied, copied == 1 ? "" : "s");
    const bool found = strcmp(folder, LS_LAB_TASKS) == 0 || strcmp(folder, ".") == 0; /* by a check that starts here */
    if (first && found) printf("Next: edit %s/%s/ex1.c, then `lockstep lab %.2s check 1`\n", folder, first->name, first->name);
    if (first && !found) printf("Next: `cd %s`, edit %s/ex1.c, then `lockstep lab %.2s check 1`\n", folder, first->name, first->name);
    return LS_OK;
}

/* --- verbs -------------------------------------------------------------------------------------------------- */

ls_status ls_cli_lab_task_path(const ls_lab_task *t, ls_text *out)
{
    LS_TRY(ls_lab_tasks(out));
    ls_text_add(out, "/%s/ex%d.c", t->lab->name, t->n);
    return ls_text_status(out);
}

static void note(const ls_lab_task *t, ls_lab_event event)
{
    char item[64];
    ls_cli_lab_item(t->lab, t->n, item, sizeof item);
    ls_cli_lab_note(item, event);
}

uint64_t ls_cli_lab_seed(int64_t given)
{
    uint64_t seed = (uint64_t)given;
    if (seed) return seed;
    ls_env_get()->random(&seed, sizeof seed);
    return seed % 999999 + 1;
}

static ls_status print_json(const ls_lab_task *t, const char *path, uint64_t seed, bool green, const char *said)
{
    ls_text x = { 0 };
    ls_text_add(&x, "{\"lockstep_lab_check\": 1, \"exercise\": \"%.2s.ex%d\", \"file\": ", t->lab->name, t->n);
    ls_json_string(&x, path);
    ls_text_add(&x, ", \"seed\": %llu, \"green\": %s, \"said\": ", (unsigned long long)seed, green ? "true" : "false");
    ls_json_string(&x, said);
    ls_text_add(&x, "}\n");
    const ls_status st = ls_text_status(&x);
    if (st == LS_OK) fputs(ls_text_str(&x), stdout);
    ls_text_free(&x);
    return st;
}

static ls_status check(const ls_lab_task *t, const char *path, bool *green)
{
    ls_text said = { 0 };
    const uint64_t seed = ls_cli_lab_seed(t->seed);
    ls_status st = ls_lab_check(t->lab, t->n, path, seed, t->stop, green, &said);
    if (st == LS_OK && t->json) st = print_json(t, path, seed, *green, ls_text_str(&said));
    if (st == LS_OK && !t->json) printf("%s  %.2s.ex%d  %s, seed %llu\n%s", *green ? "  ok" : " RED", t->lab->name, t->n, path,
                            (unsigned long long)seed, ls_text_str(&said));
    if (st == LS_OK && !*green && !t->json) printf("Next: `lockstep lab %.2s hint %d`, or the same shapes again: --seed %llu\n", t->lab->name, t->n,
                                       (unsigned long long)seed);
    fflush(stdout);
    ls_text_free(&said);
    if (st == LS_OK) note(t, *green ? LS_LAB_WAS_GREEN : LS_LAB_WAS_RED);
    return st;
}

/* The next hint that the reader has not had. */
static ls_status hint(const ls_lab_task *t)
{
    ls_text path = { 0 };
    ls_lab_item item = { .tries = 0 };
    char name[64], *text = NULL;
    const char *words;
    size_t nbytes;
    ls_cli_lab_item(t->lab, t->n, name, sizeof name);
    ls_status st = ls_cli_lab_progress_path(&path);
    if (st == LS_OK) st = ls_lab_progress_read(path.p, name, &item);
    if (st == LS_OK) st = ls_lab_exercise_file(t->lab, t->n, "hints.md", &text, &nbytes);
    if (st == LS_OK) st = ls_lab_hint(text, item.hints + 1, &words, &nbytes);
    if (st == LS_OK) printf("Hint %d: %.*s", item.hints + 1, (int)nbytes, words);
    if (st == LS_OK) note(t, LS_LAB_WAS_HINTED);
    free(text);
    ls_text_free(&path);
    return st;
}

/* A yes on a terminal, or --yes. */
static ls_status sure(const ls_lab_task *t, const char *question)
{
    char line[64];
    if (t->yes) return LS_OK;
    if (!ls_env_get()->isatty(0)) return ls_fail(LS_USAGE, "%s add --yes if you are sure", question);
    printf("%s [y/N] ", question);
    fflush(stdout);
    LS_TRY(ls_cli_lab_line(t->stop, line, sizeof line));
    return *line == 'y' ? LS_OK : ls_fail(LS_USAGE, "nothing was done");
}

static ls_status solution(const ls_lab_task *t)
{
    char *text;
    size_t n;
    LS_TRY(ls_lab_exercise_file(t->lab, t->n, "solution.c", &text, &n));
    const ls_status st = sure(t, "This shows the solution, and your progress will say so.");
    if (st == LS_OK) {
        fputs(text, stdout);
        note(t, LS_LAB_WAS_TOLD);
    }
    free(text);
    return st;
}

/* The reader's file stays, under another name. */
static ls_status reset(const ls_lab_task *t, const char *path)
{
    const ls_env *env = ls_env_get();
    ls_file_info info = { 0 };
    ls_text old = { 0 };
    ls_text_add(&old, "%s.old", path);
    ls_status st = ls_text_status(&old);
    char *text = NULL;
    size_t n;
    if (st == LS_OK) st = ls_lab_exercise_file(t->lab, t->n, "task.c", &text, &n);
    if (st == LS_OK) st = sure(t, "This puts the task back as it was; your file becomes .old.");
    const bool there = st == LS_OK && env->info(path, &info) == 0 && info.type == LS_FILE_REGULAR;
    const int r = there ? env->rename(path, old.p) : 0;
    if (st == LS_OK && r < 0) st = ls_fail(LS_IO, "renaming %s: %s", path, strerror(-r));
    if (st == LS_OK) st = ls_file_write(path, text, n);
    if (st < 0 && there && r == 0) (void)env->rename(old.p, path); /* yours stays where it was */
    if (st == LS_OK) printf("%s is as at the beginning%s%s\n", path, there ? "; yours is now " : "", there ? old.p : "");
    if (st == LS_OK) note(t, LS_LAB_WAS_BEGUN);
    free(text);
    ls_text_free(&old);
    return st;
}

ls_status ls_cli_lab_exercise(const ls_lab_task *t, const char *verb, bool *green)
{
    ls_text path = { 0 };
    char *text;
    size_t n;
    *green = true;
    LS_TRY(ls_lab_exercise_file(t->lab, t->n, "task.c", &text, &n)); /* there is such an exercise */
    free(text);
    ls_status st = ls_cli_lab_task_path(t, &path);
    if (st < 0) goto done;
    if (strcmp(verb, "check") == 0) st = check(t, path.p, green);
    else if (strcmp(verb, "hint") == 0) st = hint(t);
    else if (strcmp(verb, "solution") == 0) st = solution(t);
    else if (strcmp(verb, "reset") == 0) st = reset(t, path.p);
    else st = ls_fail(LS_USAGE, "'%s': expected check, hint, solution or reset", verb);
done:
    ls_text_free(&path);
    return st;
}
