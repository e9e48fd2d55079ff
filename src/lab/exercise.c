/* exercise.c -- the exercises of a lab. */
#include "lab/exercise.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/file.h"
#include "base/install.h"
#include "base/limits.h"
#include "lab/process.h"

#define MOST 9 /* exercises of a lab */
#define MOST_BYTES 1000000 /* bytes */
#define COMPILE_NS 60000000000ull
#define CHECK_S 10
#ifdef LS_SANITIZED
#define MEMORY 0 /* the address space of a sanitizer is far larger */
#else
#define MEMORY (1ull << 30)
#endif

static bool is_file(const char *path)
{
    ls_file_info info = { 0 };
    return ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_REGULAR;
}

static ls_status path_of(const ls_lab_entry *e, int n, const char *name, ls_text *out)
{
    ls_text_add(out, "%s/ex%d/%s", ls_text_str(&e->folder), n, name);
    return ls_text_status(out);
}

int ls_lab_exercises(const ls_lab_entry *e)
{
    int n = 0;
    for (bool there = true; there && n < MOST; n += there) {
        ls_text path = { 0 };
        there = path_of(e, n + 1, "task.c", &path) == LS_OK && is_file(path.p);
        ls_text_free(&path);
    }
    return n;
}

ls_status ls_lab_exercise_file(const ls_lab_entry *e, int n, const char *name, char **text, size_t *nbytes)
{
    const int most = ls_lab_exercises(e);
    ls_text path = { 0 };
    *text = NULL;
    if (most == 0) return ls_fail(LS_USAGE, "lab %s has no exercises", e->name);
    if (n < 1 || n > most) return ls_fail(LS_USAGE, "lab %s has no exercise %d: expected 1 to %d", e->name, n, most);
    ls_status st = path_of(e, n, name, &path);
    if (st == LS_OK) st = ls_file_read(path.p, MOST_BYTES, text, nbytes);
    ls_text_free(&path);
    return st;
}

/* --- the folder of tasks ------------------------------------------------------------------------------------ */

static const char makefile[] =
    "# Compiles the tasks of a lab by itself; `lockstep lab 1 check 1` compiles and checks one.\n"
    "CFLAGS = -std=c17 -O1 -Wall -Wextra -Werror=implicit-function-declaration\n"
    "all: $(patsubst %.c,%.o,$(wildcard */*.c))\n"
    "clean:\n"
    "\trm -f */*.o\n";

/* A file that is not there yet. */
static ls_status copy_new(const char *path, const char *text, size_t n, int *copied)
{
    ls_file_info info = { 0 };
    if (ls_env_get()->info(path, &info) == 0 && info.type != LS_FILE_NONE) return LS_OK;
    LS_TRY(ls_file_write(path, text, n));
    ++*copied;
    return LS_OK;
}

static ls_status copy_task(const ls_lab_entry *e, int n, const char *folder, int *copied)
{
    ls_text path = { 0 };
    char *text;
    size_t nbytes;
    LS_TRY(ls_lab_exercise_file(e, n, "task.c", &text, &nbytes));
    ls_text_add(&path, "%s/%s", folder, e->name);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_mkdirs(path.p);
    ls_text_add(&path, "/ex%d.c", n);
    if (st == LS_OK) st = ls_text_status(&path);
    if (st == LS_OK) st = copy_new(path.p, text, nbytes, copied);
    ls_text_free(&path);
    free(text);
    return st;
}

ls_status ls_lab_start(const ls_lab_shelf *s, const char *folder, int *copied)
{
    ls_text path = { 0 }, text = { 0 }, include = { 0 };
    *copied = 0;
    LS_TRY(ls_mkdirs(folder));
    ls_text_add(&path, "%s/Makefile", folder);
    ls_text_add(&text, "%s", makefile);
    if (ls_install_find("include", &include)) ls_text_add(&text, "CPPFLAGS = -I'%s'\n", ls_text_str(&include));
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_text_status(&text);
    if (st == LS_OK) st = copy_new(path.p, text.p, text.n, copied);
    ls_text_free(&path);
    ls_text_free(&text);
    ls_text_free(&include);
    for (int i = 0; st == LS_OK && i < s->n; i++)
        for (int n = 1; st == LS_OK && n <= ls_lab_exercises(&s->entry[i]); n++)
            st = copy_task(&s->entry[i], n, folder, copied);
    return st;
}

/* It has a Makefile that begins as ours does. */
static bool is_tasks(const char *folder)
{
    ls_text path = { 0 };
    char *text = NULL;
    size_t n;
    ls_text_add(&path, "%s/Makefile", folder);
    const bool there = !path.failed && is_file(path.p) && ls_file_read(path.p, MOST_BYTES, &text, &n) == LS_OK;
    const bool ours = there && strncmp(text, makefile, strcspn(makefile, "\n")) == 0;
    ls_text_free(&path);
    free(text);
    return ours;
}

ls_status ls_lab_tasks(ls_text *out)
{
    const char *const where[] = { LS_LAB_TASKS, "." };
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        if (!is_tasks(where[i])) continue;
        ls_text_add(out, "%s", where[i]);
        return ls_text_status(out);
    }
    return ls_fail(LS_USAGE, "there are no tasks in this folder: `lockstep lab start` copies them into " LS_LAB_TASKS);
}

/* --- checking ------------------------------------------------------------------------------------------------ */

/* The folders of liblockstep.so and of the public headers, as in build/ or in a prefix. */
static ls_status find_library(ls_text *lib, ls_text *include)
{
    static const char *const folders[] = { "", "/../" LOCKSTEP_LIBDIR };
    char self[4096], *slash;
    if (ls_env_get()->self_path(self, sizeof self) < 0 || !(slash = strrchr(self, '/')))
        return ls_fail(LS_SYSTEM, "the path of this program is unknown");
    *slash = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        ls_text path = { 0 };
        ls_text_add(&path, "%s%s/liblockstep.so", self, folders[i]);
        ls_file_info info = { 0 };
        const bool there = !path.failed && ls_env_get()->info(path.p, &info) == 0 && info.type != LS_FILE_NONE;
        ls_text_free(&path);
        if (!there) continue;
        ls_text_add(lib, "%s%s", self, folders[i]);
        if (!ls_install_find("include", include))
            return ls_fail(LS_IO, "the headers of Lockstep are not installed: an exercise needs them");
        return ls_text_status(lib);
    }
    return ls_fail(LS_IO, "liblockstep.so is not installed: an exercise is linked with it");
}

static ls_status compile(const char *const argv[], const char *folder, const ls_stop *stop, bool *compiled,
                         ls_text *said)
{
    ls_text out = { 0 }, tmp = { 0 };
    ls_lab_ended ended;
    ls_text_add(&tmp, "TMPDIR=%s", folder); /* what a compiler that is killed leaves is removed with the folder */
    ls_status st = ls_text_status(&tmp);
    const ls_child c = { .argv = argv, .env_set = (const char *const[]){ ls_text_str(&tmp), NULL } };
    if (st == LS_OK) st = ls_lab_process(&c, COMPILE_NS, stop, &out, said, &ended);
    *compiled = st == LS_OK && ended.how == LS_LAB_ENDED_EXIT && ended.code == 0;
    if (st == LS_SYSTEM)
        st = ls_fail(LS_SYSTEM, "the C compiler '%s' cannot be started: install one (gcc), or set CC", argv[0]);
    if (st == LS_OK && !*compiled && strstr(ls_text_str(said), strerror(ENOSPC)))
        st = ls_fail(LS_IO, "there is no space to compile in: set TMPDIR to a folder on another disk");
    if (st == LS_OK && !*compiled) ls_text_add(said, "it does not compile\n");
    ls_text_free(&out);
    ls_text_free(&tmp);
    return st;
}

static bool ends_with(const ls_text *t, const char *end)
{
    const size_t n = strlen(end);
    return t->n >= n && strcmp(t->p + t->n - n, end) == 0;
}

/* The verdict of a check, "shape 3 of 200" or "200 of 200 shapes", begins a line of its own, whatever a task has printed. */
static ls_status own_line(ls_text *said)
{
    const char *at = NULL;
    ls_text t = { 0 };
    for (const char *p = ls_text_str(said); (p = strstr(p, "shape")); p++)
        if (strncmp(p, "shape ", 6) == 0 || strcmp(p, "shapes are right\n") == 0) at = p;
    if (at && at[5] == 's')
        while (at > said->p && strchr("0123456789 of", at[-1])) at--;
    if (!at || at == said->p || at[-1] == '\n') return LS_OK;
    ls_text_addn(&t, said->p, (size_t)(at - said->p));
    ls_text_add(&t, "\n%s", at);
    const ls_status st = ls_text_status(&t);
    ls_text_free(said);
    *said = t;
    return st;
}

static ls_status run(const char *program, uint64_t seed, const ls_stop *stop, bool *green, ls_text *said)
{
    char number[32];
    ls_text err = { 0 };
    ls_lab_ended ended;
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    const char *const argv[] = { program, number, NULL };
    static const ls_child_limits limits = { .memory = MEMORY, .file = 64 << 20, .cpu_s = 2 * CHECK_S,
                                            .processes = 4096 };
    const ls_child c = { .argv = argv, .limits = &limits };
    said->n = 0; /* warnings of the compiler of what compiles */
    ls_status st = ls_lab_process(&c, CHECK_S * 1000000000ull, stop, said, &err, &ended);
    *green = st == LS_OK && ended.how == LS_LAB_ENDED_EXIT && ended.code == 0;
    if (*green && !ends_with(said, " shapes are right\n")) { /* the last words of a check (labs/check.h) */
        *green = false;
        ls_text_add(said, "it ended before all shapes were checked: does it call exit?\n");
    }
    if (st == LS_OK && ended.how == LS_LAB_ENDED_LATE)
        ls_text_add(said, "it took longer than %d s and was stopped: does a loop not end?\n", CHECK_S);
    if (st == LS_OK && ended.how == LS_LAB_ENDED_LOUD) {
        said->n = 0;
        ls_text_add(said, "it printed more than %u bytes and was stopped\n", LS_LAB_MAX_OUTPUT);
    }
    if (st == LS_OK && ended.how == LS_LAB_ENDED_SIGNAL)
        ls_text_add(said, "it was ended by signal %d%s\n", ended.code,
                    ended.code == 11 ? ", a segmentation fault: is an index out of range?" : "");
    ls_text_free(&err);
    return st == LS_OK && ended.how == LS_LAB_ENDED_EXIT ? own_line(said) : st;
}

/* A folder for the program that is checked. */
static ls_status make_folder(ls_text *out)
{
    const ls_env *env = ls_env_get();
    const char *tmp = env->getenv("TMPDIR");
    uint64_t name;
    env->random(&name, sizeof name);
    ls_text_add(out, "%s/lockstep-check-%016llx", tmp && *tmp == '/' ? tmp : "/tmp", (unsigned long long)name);
    LS_TRY(ls_text_status(out));
    const int r = env->mkdir_secret(out->p);
    return r < 0 ? ls_fail(LS_IO, "making %s, a folder to compile in: %s", out->p, strerror(-r)) : LS_OK;
}

ls_status ls_lab_check(const ls_lab_entry *e, int n, const char *path, uint64_t seed, const ls_stop *stop, bool *green,
                       ls_text *said)
{
    const char *cc = ls_env_get()->getenv("CC");
    ls_text check = { 0 }, lib = { 0 }, include = { 0 }, labs = { 0 }, folder = { 0 }, program = { 0 }, rpath = { 0 };
    bool compiled = false;
    *green = false;
    if (!is_file(path)) return ls_fail(LS_IO, "%s: No such file; `lockstep lab start` copies the tasks that are missing", path);
    ls_status st = path_of(e, n, "check.c", &check);
    ls_text_add(&labs, "-I%s/..", ls_text_str(&e->folder));
    if (st == LS_OK) st = find_library(&lib, &include);
    if (st == LS_OK) st = make_folder(&folder);
    ls_text_add(&program, "%s/check", ls_text_str(&folder));
    ls_text_add(&rpath, "-Wl,-rpath,%s", ls_text_str(&lib));
    if (st == LS_OK && (labs.failed || program.failed || rpath.failed)) st = ls_fail(LS_NO_MEMORY, "a check");
    if (st == LS_OK) {
        const char *const argv[] = { cc && *cc ? cc : "cc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra",
                                     "-Werror=implicit-function-declaration", "-I", include.p, labs.p, path, check.p,
                                     "-o", program.p, "-L", lib.p, "-llockstep", rpath.p, "-lm",
                                     NULL };
        st = compile(argv, folder.p, stop, &compiled, said);
    }
    if (st == LS_OK && compiled) st = run(program.p, seed, stop, green, said);
    if (folder.n) ls_remove_folder(folder.p);
    ls_text *const all[] = { &check, &lib, &include, &labs, &folder, &program, &rpath };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ls_text_free(all[i]);
    return st < 0 ? st : ls_text_status(said);
}

ls_status ls_lab_hint(const char *hints, int which, const char **hint, size_t *nbytes)
{
    char head[16];
    snprintf(head, sizeof head, "## %d\n", which);
    const char *at = strncmp(hints, head, strlen(head)) == 0 ? hints : NULL;
    for (const char *p = strstr(hints, "\n## "); !at && p; p = strstr(p + 1, "\n## "))
        if (strncmp(p + 1, head, strlen(head)) == 0) at = p + 1;
    if (!at) return ls_fail(LS_USAGE, "there is no hint %d: all have been shown", which);
    *hint = at + strlen(head);
    const char *end = strstr(*hint, "\n## ");
    *nbytes = end ? (size_t)(end + 1 - *hint) : strlen(*hint);
    return LS_OK;
}
