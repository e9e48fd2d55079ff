/* tokenizer_open.c -- which tokenizer a name, a folder or a file stands for. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "data/sets.h"
#include "data/tokenizer.h"

static ls_status open_folder(const char *dir, ls_tokenizer **out)
{
    char json[LS_TOKENIZER_PATH];
    ls_file_info info;
    const int n = snprintf(json, sizeof json, "%s/tokenizer.json", dir);
    const bool there = n > 0 && (size_t)n < sizeof json && ls_env_get()->info(json, &info) == 0 &&
                       info.type != LS_FILE_NONE;
    return there ? ls_tokenizer_open_json(json, out) : ls_tokenizer_open_gpt2(dir, out);
}

/* GPT-2's, from the user's folder or from where data sets are. */
static ls_status open_published(ls_tokenizer **out)
{
    const ls_set *set = ls_set_of_tokenizer("gpt2");
    char found[LS_SET_PATH];
    if (!set) return ls_tokenizer_open_gpt2(ls_env_get()->getenv("LOCKSTEP_GPT2"), out);
    return ls_set_find(set, found) ? ls_tokenizer_open_gpt2(found, out) : ls_set_missing(set);
}

ls_status ls_tokenizer_open(const char *what, ls_tokenizer **out)
{
    const ls_env *env = ls_env_get();
    char none[1];
    *out = NULL;
    if (strcmp(what, "byte") == 0) return ls_tokenizer_open_bytes(out);
    if (strcmp(what, "char") == 0) return ls_tokenizer_open_ascii(out);
    if (strcmp(what, "gpt2") == 0) return open_published(out);
    int listed = env->list(what, none, 0);
    bool folder = listed != -ENOTDIR && listed != -ENOENT;
    return folder ? open_folder(what, out) : ls_tokenizer_open_json(what, out);
}
