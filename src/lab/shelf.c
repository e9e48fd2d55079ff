/* shelf.c -- the labs that are there. */
#include "lab/shelf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/install.h"

#define NAMES_BYTES 65536 /* of one folder's entries */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* "01_buckets". */
static bool is_lab(const char *name)
{
    return is_digit(name[0]) && is_digit(name[1]) && name[2] == '_' && name[3];
}

/* Beside the program, as in build/, or in its prefix. */
static void find_programs(const char *name, ls_text *out)
{
    static const char *const folders[] = { "/labs/", "/../" LOCKSTEP_LIBEXECDIR "/lockstep/labs/" };
    const ls_env *env = ls_env_get();
    char self[4096];
    if (env->self_path(self, sizeof self) < 0) return;
    char *slash = strrchr(self, '/');
    if (!slash) return;
    *slash = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        ls_file_info info = { 0 };
        out->n = 0;
        ls_text_add(out, "%s%s%s", self, folders[i], name);
        if (!out->failed && env->info(out->p, &info) == 0 && info.type == LS_FILE_REGULAR) return;
    }
    out->n = 0;
    if (out->p) *out->p = 0;
}

static ls_status add(ls_lab_shelf *s, const char *home, const char *name)
{
    ls_lab_entry *e = &s->entry[s->n];
    ls_file_info info = { 0 };
    if (strlen(name) >= sizeof e->name) return LS_OK;
    *e = (ls_lab_entry){ .name = "" };
    s->n++; /* what it owns is freed from here on */
    snprintf(e->name, sizeof e->name, "%s", name);
    ls_text_add(&e->folder, "%s/%s", home, name);
    ls_text_add(&e->claims, "%s/%s/claims.yaml", home, name);
    find_programs(name, &e->programs);
    LS_TRY(ls_text_status(&e->folder));
    LS_TRY(ls_text_status(&e->claims));
    LS_TRY(ls_text_status(&e->programs));
    if (ls_env_get()->info(e->claims.p, &info) == 0 && info.type == LS_FILE_REGULAR) return LS_OK;
    s->n--; /* a folder without claims is no lab */
    ls_text_free(&e->folder);
    ls_text_free(&e->claims);
    ls_text_free(&e->programs);
    return LS_OK;
}

ls_status ls_lab_shelf_open(ls_lab_shelf *out)
{
    ls_text home = { 0 };
    *out = (ls_lab_shelf){ .n = 0 };
    char *names = malloc(NAMES_BYTES);
    if (!names) return ls_fail(LS_NO_MEMORY, "the list of labs");
    ls_status st = LS_OK;
    const int n = ls_install_find("labs", &home) ? ls_env_get()->list(home.p, names, NAMES_BYTES) : 0;
    const char *name = names;
    for (int i = 0; st == LS_OK && i < n && out->n < LS_LAB_MOST; i++, name += strlen(name) + 1)
        if (is_lab(name)) st = add(out, home.p, name);
    if (st == LS_OK && out->n == 0)
        st = ls_fail(LS_IO, "there are no labs here: expected a folder labs in share/lockstep of this program's prefix, or in the "
                     "checkout that it was built in");
    ls_text_free(&home);
    free(names);
    return st;
}

void ls_lab_shelf_free(ls_lab_shelf *s)
{
    for (int i = 0; i < s->n; i++) {
        ls_text_free(&s->entry[i].folder);
        ls_text_free(&s->entry[i].claims);
        ls_text_free(&s->entry[i].programs);
    }
    s->n = 0;
}

static bool is_called(const char *name, const char *which)
{
    const bool one_digit = name[0] == '0' && which[0] == name[1] && !which[1];
    const bool two_digits = strlen(which) == 2 && strncmp(name, which, 2) == 0;
    return one_digit || two_digits || strcmp(name, which) == 0 || strcmp(name + 3, which) == 0;
}

ls_status ls_lab_shelf_find(const ls_lab_shelf *s, const char *which, const ls_lab_entry **out)
{
    ls_text names = { 0 };
    for (int i = 0; i < s->n; i++) {
        if (is_called(s->entry[i].name, which)) {
            *out = &s->entry[i];
            ls_text_free(&names);
            return LS_OK;
        }
        ls_text_add(&names, "%s%s", i ? ", " : "", s->entry[i].name);
    }
    const ls_status st = ls_fail(LS_USAGE, "there is no lab '%s': expected one of %s, by its number or name", which, ls_text_str(&names));
    ls_text_free(&names);
    return st;
}
