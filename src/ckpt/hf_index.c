/* hf_index.c -- model.safetensors.index.json: which tensor is in which shard. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "ckpt/hf.h"
#include "ckpt/json.h"

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

ls_status ls_hf_refuse_pickle(const char *what, const char *name)
{
    static const char *const pickles[] = { ".bin", ".pt", ".pth", ".pkl", ".ckpt" };
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
        if (ends_with(name, pickles[i]))
            return ls_fail(LS_BAD_FILE, "%s: this is a pickle, and is not opened: reading it could run code. Convert it where "
                           "you trust it: load the model with transformers and save_pretrained(DIR), which writes "
                           "safetensors", what);
    return LS_OK;
}

/* What an index parse knows. */
typedef struct parser {
    const char *what, *text;
    size_t n, cap;
    ls_hf_index *ix;
} parser;

static ls_status bad(const parser *p, const char *at, const char *rule)
{
    return ls_fail(LS_BAD_FILE, "%s: byte %zu: %s", p->what, (size_t)(at - p->text), rule);
}

static ls_status no_memory(const parser *p) { return ls_fail(LS_NO_MEMORY, "%s: %zu bytes", p->what, p->n); }

static ls_status decode(const parser *p, ls_json_span s, size_t limit, char **out)
{
    const char *rule;
    *out = ls_json_decode(s, limit, &rule);
    if (*out) return LS_OK;
    return rule ? bad(p, s.p, rule) : no_memory(p);
}

static bool is_plain(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return *name != '.' && name[strspn(name, letters)] == 0 && ends_with(name, ".safetensors");
}

/* The shard's number; a new one takes over the name, which is NULL afterwards. */
static ls_status number_of(parser *p, ls_json_span at, char **name, int *out)
{
    ls_hf_index *ix = p->ix;
    for (*out = ix->nshards - 1; *out >= 0; --*out) /* the newest first: neighbours in the map share a shard */
        if (strcmp(ix->shard[*out], *name) == 0) return LS_OK;
    LS_TRY(ls_hf_refuse_pickle(p->what, *name));
    if (!is_plain(*name))
        return bad(p, at.p, "a shard's name that is not plain: expected letters, digits, '.', '_' and '-', no dot in front "
                            "and .safetensors at the end");
    if (ix->nshards == LS_HF_MAX_SHARDS) return bad(p, at.p, "more shards than are accepted");
    char **more = realloc(ix->shard, (size_t)(ix->nshards + 1) * sizeof *more);
    if (!more) return no_memory(p);
    ix->shard = more;
    *out = ix->nshards;
    ix->shard[ix->nshards++] = *name;
    *name = NULL;
    return LS_OK;
}

static ls_status add_place(parser *p, ls_json_span key, ls_json_span value)
{
    ls_hf_index *ix = p->ix;
    if (ix->nplaces == LS_CKPT_MAX_TENSORS) return bad(p, key.p, "more tensors than are accepted");
    if (ix->nplaces == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        void *more = realloc(ix->place, cap * sizeof *ix->place);
        if (!more) return no_memory(p);
        ix->place = more;
        p->cap = cap;
    }
    char *shard = NULL;
    struct ls_hf_place *place = &ix->place[ix->nplaces];
    LS_TRY(decode(p, key, LS_CKPT_MAX_NAME, &place->name));
    ix->nplaces++; /* from here on the index owns the name */
    LS_TRY(decode(p, value, LS_HF_MAX_SHARD_NAME, &shard));
    const ls_status st = number_of(p, value, &shard, &place->shard);
    free(shard);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ls_hf_place *)a)->name, ((const struct ls_hf_place *)b)->name);
}

const struct ls_hf_place *ls_hf_index_find(const ls_hf_index *ix, const char *name)
{
    const struct ls_hf_place want = { .name = (char *)name };
    return ix->nplaces ? bsearch(&want, ix->place, ix->nplaces, sizeof want, by_name) : NULL;
}

static ls_status read_map(parser *p, ls_json_span object)
{
    const size_t start = (size_t)(object.p - p->text);
    ls_json_walk w = { .text = p->text, .n = start + object.n, .at = start };
    ls_json_span key, value;
    int more;
    while ((more = ls_json_next(&w, &key, &value)) > 0) LS_TRY(add_place(p, key, value));
    if (more < 0) return bad(p, p->text + w.at, w.rule);
    if (p->ix->nplaces == 0) return bad(p, object.p, "\"weight_map\" names no tensor");
    qsort(p->ix->place, p->ix->nplaces, sizeof *p->ix->place, by_name);
    for (size_t i = 1; i < p->ix->nplaces; i++)
        if (by_name(&p->ix->place[i - 1], &p->ix->place[i]) == 0)
            return ls_fail(LS_BAD_FILE, "%s: tensor '%s' stands twice", p->what, p->ix->place[i].name);
    return LS_OK;
}

/* {"total_size": bytes, ...}: what is in it decides nothing, since files on the hub count tied tensors twice. */
static ls_status read_metadata(const parser *p, ls_json_span object)
{
    json_error_t e;
    json_t *j = object.n <= LS_JSON_MAX_STRING ? json_loadb(object.p, object.n, JSON_REJECT_DUPLICATES, &e) : NULL;
    const json_t *total = json_object_get(j, "total_size");
    const bool good = json_is_object(j) && (!total || (json_is_number(total) && json_number_value(total) >= 0));
    json_decref(j);
    return good ? LS_OK : bad(p, object.p, "\"metadata\" is not an object whose \"total_size\" is a number of bytes");
}

static ls_status parse(parser *p)
{
    ls_json_walk w = { .text = p->text, .n = p->n };
    ls_json_span key, value;
    int more;
    bool map = false, metadata = false;
    while (w.at < p->n && memchr(" \t\r\n", p->text[w.at], 4)) w.at++;
    while ((more = ls_json_next(&w, &key, &value)) > 0) {
        const bool is_map = key.n == 12 && memcmp(key.p, "\"weight_map\"", 12) == 0;
        const bool is_metadata = key.n == 10 && memcmp(key.p, "\"metadata\"", 10) == 0;
        if ((is_map && map) || (is_metadata && metadata)) return bad(p, key.p, "a key that stands twice");
        if (is_map) LS_TRY(read_map(p, value));
        else if (is_metadata) LS_TRY(read_metadata(p, value));
        else return bad(p, key.p, "a key that is neither \"metadata\" nor \"weight_map\"");
        map |= is_map;
        metadata |= is_metadata;
    }
    if (more < 0) return bad(p, p->text + w.at, w.rule);
    while (w.at < p->n && memchr(" \t\r\n", p->text[w.at], 4)) w.at++;
    if (w.at < p->n) return bad(p, p->text + w.at, "something follows the JSON object");
    return map ? LS_OK : bad(p, p->text, "no \"weight_map\"");
}

ls_status ls_hf_index_parse(const char *what, const void *text, size_t n, ls_hf_index *out)
{
    *out = (ls_hf_index){ 0 };
    if (n > LS_HF_MAX_INDEX) return ls_fail(LS_BAD_FILE, "%s: %zu bytes, at most %u are accepted", what, n, LS_HF_MAX_INDEX);
    parser p = { .what = what, .text = text, .n = n, .ix = out };
    const ls_status st = parse(&p);
    if (st < 0) ls_hf_index_free(out);
    return st;
}

void ls_hf_index_free(ls_hf_index *ix)
{
    for (int i = 0; i < ix->nshards; i++) free(ix->shard[i]);
    for (size_t i = 0; i < ix->nplaces; i++) free(ix->place[i].name);
    free(ix->shard);
    free(ix->place);
    *ix = (ls_hf_index){ 0 };
}
