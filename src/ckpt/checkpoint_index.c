/* checkpoint_index.c -- which tensors a checkpoint has, and which box of each is in which file. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "ckpt/json.h"
#include "ckpt/checkpoint.h"

#define INFO_KEY "DCP_SHARDING_INFO" /* metadata: {"name": {"saved_offsets": [...]}, ...} of all tensors of a file */

/* --- where a file's boxes begin ------------------------------------------------------- */

static ls_status bad_info(const ls_checkpoint_file *f, const char *name, const char *rule)
{
    return ls_fail(LS_BAD_FILE, "%s: " INFO_KEY "%s%s: %s", f->path, *name ? " of " : "", name, rule);
}

static ls_status read_offsets(const ls_checkpoint_file *f, const char *name, const json_t *j, ls_checkpoint_chunk *c)
{
    const json_t *list = json_object_get(j, "saved_offsets");
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->in->ndim)
        return bad_info(f, name, "\"saved_offsets\" is not a list of one number per dimension");
    for (int d = 0; d < c->in->ndim; d++) {
        const json_t *v = json_array_get(list, (size_t)d);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT64_MAX / 2 ||
            c->in->dim[d] > INT64_MAX / 2)
            return bad_info(f, name, "an offset is not a whole number");
        c->first[d] = json_integer_value(v);
    }
    return LS_OK;
}

/* The chunk of a tensor among those of its file. */
static ls_checkpoint_chunk *chunk_of(const ls_checkpoint_file *f, ls_checkpoint_chunk *mine, const char *name)
{
    const ls_ckpt_tensor *t = ls_ckpt_header_find(&f->header, name);
    return t ? &mine[t - f->header.tensor] : NULL;
}

static ls_status read_pair(const ls_checkpoint_file *f, ls_json_span key, ls_json_span value, ls_checkpoint_chunk *mine,
                           size_t *known)
{
    const char *rule;
    json_error_t e;
    char *name = ls_json_decode(key, LS_CKPT_MAX_NAME, &rule);
    if (!name) return rule ? bad_info(f, "", rule) : ls_fail(LS_NO_MEMORY, "%s: a tensor's name", f->path);
    ls_checkpoint_chunk *c = chunk_of(f, mine, name);
    json_t *j = value.n <= LS_CKPT_MAX_ENTRY ? json_loadb(value.p, value.n, JSON_REJECT_DUPLICATES, &e) : NULL;
    ls_status st;
    if (!c) st = bad_info(f, name, "the file has no such tensor");
    else if (!json_is_object(j)) st = bad_info(f, name, "not a JSON object");
    else st = read_offsets(f, name, j, c);
    json_decref(j);
    free(name);
    *known += st == LS_OK;
    return st;
}

/* Without that key a file has whole tensors. */
static ls_status read_info(const ls_checkpoint_file *f, ls_checkpoint_chunk *mine)
{
    const char *text = ls_ckpt_header_meta(&f->header, INFO_KEY);
    if (!text) return LS_OK;
    ls_json_walk w = { .text = text, .n = strlen(text) };
    ls_json_span key, value;
    size_t known = 0;
    int more;
    while ((more = ls_json_next(&w, &key, &value)) > 0) LS_TRY(read_pair(f, key, value, mine, &known));
    if (more < 0) return bad_info(f, "", w.rule);
    return known == f->header.ntensors ? LS_OK : bad_info(f, "", "not every tensor of the file stands in it once");
}

/* --- by tensor --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const ls_checkpoint_chunk *x = a, *y = b;
    const int c = strcmp(x->in->name, y->in->name);
    return c ? c : (x->file > y->file) - (x->file < y->file);
}

static bool overlap(const ls_checkpoint_chunk *a, const ls_checkpoint_chunk *b)
{
    for (int d = 0; d < a->in->ndim; d++)
        if (a->first[d] >= b->first[d] + b->in->dim[d] || b->first[d] >= a->first[d] + a->in->dim[d]) return false;
    return true;
}

static ls_status no_fit(const ls_checkpoint *s, const ls_checkpoint_chunk *a, const ls_checkpoint_chunk *b,
                        const char *what)
{
    return ls_fail(LS_BAD_FILE, "%s: tensor '%s' %s in %s and %s", s->folder, a->in->name, what, s->file[a->file].path,
                   s->file[b->file].path);
}

/* Boxes that do not overlap and together have as many elements as the tensor are all of it. */
static ls_status check_tensor(const ls_checkpoint *s, const ls_checkpoint_tensor *t)
{
    const ls_checkpoint_chunk *c = s->chunk + t->first_chunk;
    uint64_t all = 1, here = 0;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(all, (uint64_t)t->dim[d], &all))
            return ls_fail(LS_BAD_FILE, "%s: tensor '%s' has more elements than 64 bits can count", s->folder, t->name);
    for (int i = 0; i < t->nchunks; i++) {
        uint64_t n = 1;
        for (int d = 0; d < t->ndim; d++) n *= (uint64_t)c[i].in->dim[d];
        here += n;
        for (int k = 0; k < i && n > 0; k++)
            if (overlap(&c[k], &c[i])) return no_fit(s, &c[k], &c[i], "has the same elements");
    }
    if (here == all) return LS_OK;
    return ls_fail(LS_BAD_FILE, "%s: tensor '%s' has %" PRIu64 " elements, the files have %" PRIu64 " of them: a "
                   "rank's file is missing", s->folder, t->name, all, here);
}

static ls_status add_tensor(ls_checkpoint *s, size_t first, size_t end)
{
    const ls_checkpoint_chunk *c = s->chunk;
    const ls_ckpt_tensor *in = c[first].in;
    ls_checkpoint_tensor *t = &s->tensor[s->ntensors++];
    *t = (ls_checkpoint_tensor){ .name = in->name, .dtype_name = in->dtype_name, .dtype = in->dtype, .ndim = in->ndim,
                            .first_chunk = (int)first, .nchunks = (int)(end - first) };
    for (size_t i = first; i < end; i++) {
        if (c[i].in->ndim != t->ndim || strcmp(c[i].in->dtype_name, t->dtype_name) != 0)
            return no_fit(s, &c[first], &c[i], "has different types or numbers of dimensions");
        for (int d = 0; d < t->ndim; d++)
            if (c[i].first[d] + c[i].in->dim[d] > t->dim[d]) t->dim[d] = c[i].first[d] + c[i].in->dim[d];
    }
    return check_tensor(s, t);
}

ls_status ls_checkpoint_index(ls_checkpoint *s)
{
    size_t n = 0, at = 0;
    for (int i = 0; i < s->nfiles; i++) n += s->file[i].header.ntensors;
    s->chunk = calloc(n + 1, sizeof *s->chunk);
    s->tensor = calloc(n + 1, sizeof *s->tensor);
    if (!s->chunk || !s->tensor || n > INT32_MAX) return ls_fail(LS_NO_MEMORY, "%s: a list of %zu tensors", s->folder,
                                                                 n);
    s->nchunks = n;
    for (int i = 0; i < s->nfiles; i++) {
        ls_checkpoint_chunk *mine = s->chunk + at;
        const ls_ckpt_header *h = &s->file[i].header;
        for (size_t k = 0; k < h->ntensors; k++) mine[k] = (ls_checkpoint_chunk){ .in = &h->tensor[k], .file = i };
        LS_TRY(read_info(&s->file[i], mine));
        at += h->ntensors;
    }
    if (ls_checkpoint_is_foreign(s)) ls_checkpoint_translate(s);
    if (n > 0) qsort(s->chunk, n, sizeof *s->chunk, by_name);
    for (size_t first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && strcmp(s->chunk[first].in->name, s->chunk[end].in->name) == 0) end++;
        LS_TRY(add_tensor(s, first, end));
    }
    return LS_OK;
}
