/* format.c -- reading a safetensors header. Every length is checked before it
 * is used; what is accepted is bounded by base/limits.h. */
#include "ckpt/format.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "ckpt/bytes.h"
#include "ckpt/json.h"

/* The format's element types. Lockstep lists and checks all of them. */
static const struct dtype_row {
    const char *name;
    unsigned nbytes;
    ls_dtype dtype;
} dtypes[] = {
    { "F32", 4, LS_F32 },          { "F64", 8, LS_F64 },          { "BF16", 2, LS_BF16 },
    { "F16", 2, LS_F16 },          { "I32", 4, LS_I32 },          { "I64", 8, LS_I64 },
    { "U8", 1, LS_U8 },            { "I8", 1, LS_DTYPES },        { "I16", 2, LS_DTYPES },
    { "U16", 2, LS_DTYPES },       { "U32", 4, LS_DTYPES },       { "U64", 8, LS_DTYPES },
    { "BOOL", 1, LS_DTYPES },      { "F8_E4M3", 1, LS_DTYPES },   { "F8_E5M2", 1, LS_DTYPES },
};

const char *ls_ckpt_dtype_name(ls_dtype d)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == d && d != LS_DTYPES) return dtypes[i].name;
    return NULL;
}

/* What a parse knows. */
typedef struct parser {
    const char *what; /* the file's name */
    const char *text; /* prefix and header */
    size_t n;
    ls_ckpt_header *h;
    size_t tensor_cap, meta_cap;
    size_t header_digest_at; /* first of the 16 digits of lockstep.header; 0: absent */
} parser;

static ls_status bad(const parser *p, size_t at, const char *rule)
{
    return ls_fail(LS_BAD_FILE, "%s: byte %zu of the safetensors header: %s", p->what, at, rule);
}

static ls_status bad_at(const parser *p, ls_json_span s, const char *rule) { return bad(p, (size_t)(s.p - p->text),
                                                                                        rule); }

static ls_status no_memory(const parser *p)
{
    return ls_fail(LS_NO_MEMORY, "%s: its header of %zu bytes does not fit in memory", p->what, p->n);
}

/* Room for one more item in a list that doubles. */
static void *grown(void *list, size_t n, size_t *cap, size_t item)
{
    if (n < *cap) return list;
    size_t more = *cap ? 2 * *cap : 16;
    void *p = realloc(list, more * item);
    if (p) *cap = more;
    return p;
}

static ls_status decode(const parser *p, ls_json_span s, size_t limit, char **out)
{
    const char *rule;
    *out = ls_json_decode(s, limit, &rule);
    if (*out) return LS_OK;
    return rule ? bad_at(p, s, rule) : no_memory(p);
}

/* Printable in a terminal and a log: no control characters, C0, DEL or C1. */
static bool has_controls(const char *s)
{
    for (const unsigned char *c = (const unsigned char *)s; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)) return true;
    return false;
}

/* --- one tensor ------------------------------------------------------------ */

static ls_status read_shape(const parser *p, ls_json_span s, const json_t *shape, unsigned element, ls_ckpt_tensor *t)
{
    if (!json_is_array(shape)) return bad_at(p, s, "\"shape\" is not a list");
    if (json_array_size(shape) > LS_CKPT_MAX_DIMS) return bad_at(p, s, "\"shape\" has more than 8 dimensions");
    t->ndim = (int)json_array_size(shape);
    uint64_t nbytes = element;
    for (int d = 0; d < t->ndim; d++) {
        const json_t *v = json_array_get(shape, (size_t)d);
        if (!json_is_integer(v) || json_integer_value(v) < 0) return bad_at(p, s, "a dimension is not a whole number");
        t->dim[d] = json_integer_value(v);
        if (__builtin_mul_overflow(nbytes, (uint64_t)t->dim[d], &nbytes))
            return bad_at(p, s, "\"shape\" has more bytes than 64 bits can count");
    }
    return nbytes == t->end - t->begin ? LS_OK : bad_at(p, s, "\"shape\" and \"data_offsets\" disagree about the size");
}

static ls_status read_tensor(const parser *p, ls_json_span s, const json_t *j, ls_ckpt_tensor *t)
{
    const json_t *dtype = json_object_get(j, "dtype"), *offsets = json_object_get(j, "data_offsets");
    const json_t *shape = json_object_get(j, "shape");
    if (!dtype || !offsets || !shape || json_object_size(j) != 3)
        return bad_at(p, s, "a tensor has \"dtype\", \"shape\" and \"data_offsets\", each once and nothing else");

    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return bad_at(p, s, "\"data_offsets\" is not a list of two");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin))
        return bad_at(p, s, "\"data_offsets\" are not two ascending whole numbers");
    t->begin = (uint64_t)json_integer_value(begin);
    t->end = (uint64_t)json_integer_value(end);

    for (size_t i = 0; json_is_string(dtype) && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(json_string_value(dtype), dtypes[i].name) == 0) {
            t->dtype = dtypes[i].dtype;
            t->dtype_name = dtypes[i].name;
            return read_shape(p, s, shape, dtypes[i].nbytes, t);
        }
    return bad_at(p, s, "\"dtype\" is not one of the format's");
}

static ls_status add_tensor(parser *p, ls_json_span key, ls_json_span value)
{
    ls_ckpt_header *h = p->h;
    if (h->ntensors == LS_CKPT_MAX_TENSORS) return bad_at(p, key, "more tensors than are accepted");
    if (value.n > LS_CKPT_MAX_ENTRY) return bad_at(p, value, "a tensor's description is too long");
    void *list = grown(h->tensor, h->ntensors, &p->tensor_cap, sizeof *h->tensor);
    if (!list) return no_memory(p);
    h->tensor = list;

    ls_ckpt_tensor *t = &h->tensor[h->ntensors];
    *t = (ls_ckpt_tensor){ 0 };
    LS_TRY(decode(p, key, LS_CKPT_MAX_NAME, &t->name));
    h->ntensors++; /* from here on the header owns the name */
    if (!*t->name) return bad_at(p, key, "a tensor without a name");
    if (strcmp(t->name, "__metadata__") == 0) return bad_at(p, key, "__metadata__ is written with escapes");
    if (has_controls(t->name)) return bad_at(p, key, "a tensor's name has control characters");

    json_error_t e;
    json_t *j = json_loadb(value.p, value.n, JSON_REJECT_DUPLICATES, &e);
    if (!j && json_error_code(&e) == json_error_out_of_memory) return no_memory(p);
    ls_status st = json_is_object(j) ? read_tensor(p, value, j, t)
                                     : bad_at(p, value, "a tensor's description is not a JSON object with its keys once");
    json_decref(j);
    return st;
}

/* --- metadata -------------------------------------------------------------- */

static ls_status add_meta(parser *p, ls_json_span key, ls_json_span value)
{
    ls_ckpt_header *h = p->h;
    if (h->nmeta == LS_CKPT_MAX_TENSORS) return bad_at(p, key, "more metadata than is accepted");
    void *list = grown(h->meta, h->nmeta, &p->meta_cap, sizeof *h->meta);
    if (!list) return no_memory(p);
    h->meta = list;

    ls_ckpt_meta_pair *m = &h->meta[h->nmeta];
    *m = (ls_ckpt_meta_pair){ 0 };
    LS_TRY(decode(p, key, LS_JSON_MAX_STRING, &m->key));
    h->nmeta++;
    LS_TRY(decode(p, value, LS_CKPT_MAX_HEADER, &m->value)); /* DCP_SHARDING_INFO grows with the model */
    if (strcmp(m->key, "lockstep.header") == 0 && value.n == 18) p->header_digest_at = (size_t)(value.p + 1 - p->text);
    return LS_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const ls_ckpt_meta_pair *)a)->key, ((const ls_ckpt_meta_pair *)b)->key);
}

static ls_status read_metadata(parser *p, ls_json_span object)
{
    size_t start = (size_t)(object.p - p->text);
    ls_json_walk w = { .text = p->text, .n = start + object.n, .at = start };
    ls_json_span key, value;
    int more;
    while ((more = ls_json_next(&w, &key, &value)) > 0) LS_TRY(add_meta(p, key, value));
    if (more < 0) return bad(p, w.at, w.rule);
    if (p->h->nmeta == 0) return LS_OK;

    qsort(p->h->meta, p->h->nmeta, sizeof *p->h->meta, by_key);
    for (size_t i = 1; i < p->h->nmeta; i++)
        if (by_key(&p->h->meta[i - 1], &p->h->meta[i]) == 0) return bad_at(p, object, "a metadata key stands twice");
    return LS_OK;
}

const char *ls_ckpt_header_meta(const ls_ckpt_header *h, const char *key)
{
    ls_ckpt_meta_pair want = { .key = (char *)key };
    const ls_ckpt_meta_pair *m = h->nmeta ? bsearch(&want, h->meta, h->nmeta, sizeof want, by_key) : NULL;
    return m ? m->value : NULL;
}

/* --- all tensors together ---------------------------------------------------- */

typedef struct place {
    const ls_ckpt_tensor *t;
    uint32_t index;
} place;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const place *)a)->t->name, ((const place *)b)->t->name);
}

static int by_offset(const void *a, const void *b)
{
    const ls_ckpt_tensor *x = ((const place *)a)->t, *y = ((const place *)b)->t;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Names are unique; the tensors tile the data section, which is the rest of the file. */
static ls_status check_tensors(const parser *p, uint64_t file_size)
{
    ls_ckpt_header *h = p->h;
    size_t n = h->ntensors;
    ls_status st = LS_OK;
    uint64_t at = 0;
    place *order = malloc((n + 1) * sizeof *order);
    h->by_name = malloc((n + 1) * sizeof *h->by_name);
    if (!order || !h->by_name) {
        st = no_memory(p);
        goto done;
    }
    for (size_t i = 0; i < n; i++) order[i] = (place){ &h->tensor[i], (uint32_t)i };
    qsort(order, n, sizeof *order, by_name);
    for (size_t i = 0; i < n; i++) {
        h->by_name[i] = order[i].index;
        if (i > 0 && by_name(&order[i - 1], &order[i]) == 0) {
            st = ls_fail(LS_BAD_FILE, "%s: tensor '%s' stands twice in the header", p->what, order[i].t->name);
            goto done;
        }
    }

    qsort(order, n, sizeof *order, by_offset);
    for (size_t i = 0; i < n; at = order[i++].t->end) {
        const ls_ckpt_tensor *t = order[i].t;
        if (t->begin == at) continue;
        st = ls_fail(LS_BAD_FILE, "%s: tensor '%s' begins at byte %llu of the data, expected %llu: tensors follow one "
                     "another without holes or overlaps", p->what, t->name, (unsigned long long)t->begin,
                     (unsigned long long)at);
        goto done;
    }
    if (at != file_size - h->data_at)
        st = ls_fail(LS_CKPT_CORRUPT, "%s: has %llu bytes of data, its header describes %llu: the file %s", p->what,
                     (unsigned long long)(file_size - h->data_at), (unsigned long long)at,
                     at > file_size - h->data_at ? "is cut short" : "has something after its end");
done:
    free(order);
    return st;
}

const ls_ckpt_tensor *ls_ckpt_header_find(const ls_ckpt_header *h, const char *name)
{
    size_t low = 0, high = h->ntensors;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const ls_ckpt_tensor *t = &h->tensor[h->by_name[mid]];
        int c = strcmp(name, t->name);
        if (c == 0) return t;
        if (c < 0) high = mid;
        else low = mid + 1;
    }
    return NULL;
}

/* --- digests ----------------------------------------------------------------- */

/* Exactly 16 lower-case hex digits. */
static bool read_hex(const char *s, uint64_t *out) { return ls_ckpt_read_hex(s, out) && s[16] == 0; }

static ls_status check_header_digest(const parser *p)
{
    uint64_t stored, found;
    const char *hex = ls_ckpt_header_meta(p->h, "lockstep.header");
    if (!hex || !p->header_digest_at || !read_hex(hex, &stored))
        return ls_fail(LS_CKPT_CORRUPT, "%s: its metadata has lockstep.* keys but no digest of the header (lockstep.header): "
                       "damaged, or written by another program that copied them", p->what);
    ls_digest *d = ls_digest_create();
    if (!d) return no_memory(p);
    ls_digest_add(d, p->text, p->header_digest_at);
    ls_digest_add(d, "0000000000000000", 16);
    ls_digest_add(d, p->text + p->header_digest_at + 16, p->n - p->header_digest_at - 16);
    found = ls_digest_u64(d);
    ls_digest_destroy(d);
    if (found == stored) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: the header's digest is %016llx, expected %016llx: damaged, or changed by another "
                   "program that kept Lockstep's metadata", p->what, (unsigned long long)found, (unsigned long long)stored);
}

/* A file with one of our keys has all of them. */
static ls_status check_digests(parser *p)
{
    ls_ckpt_header *h = p->h;
    size_t mine = 0, tensors = 0;
    for (size_t i = 0; i < h->nmeta; i++) {
        mine += strncmp(h->meta[i].key, "lockstep.", 9) == 0;
        tensors += strncmp(h->meta[i].key, "lockstep.xxh3.", 14) == 0;
    }
    if (mine == 0) return LS_OK;
    LS_TRY(check_header_digest(p));

    const char *version = ls_ckpt_header_meta(h, "lockstep.version");
    if (!version || strcmp(version, "1") != 0)
        return ls_fail(LS_UNSUPPORTED, "%s: has version '%s' of Lockstep's metadata, this build reads version 1", p->what,
                       version ? version : "");
    if (tensors != h->ntensors)
        return ls_fail(LS_CKPT_CORRUPT, "%s: has digests of %zu tensors, but %zu tensors", p->what, tensors, h->ntensors);
    for (size_t i = 0; i < h->ntensors; i++) {
        ls_ckpt_tensor *t = &h->tensor[i];
        char key[14 + LS_CKPT_MAX_NAME + 1] = "lockstep.xxh3.";
        memcpy(key + 14, t->name, strlen(t->name) + 1);
        const char *hex = ls_ckpt_header_meta(h, key);
        if (!hex || !read_hex(hex, &t->checksum))
            return ls_fail(LS_CKPT_CORRUPT, "%s: tensor '%s' has no digest", p->what, t->name);
        t->has_checksum = true;
    }
    h->ours = true;
    return LS_OK;
}

/* --- the file ------------------------------------------------------------------ */

ls_status ls_ckpt_header_size(const char *what, const void *bytes, size_t n, uint64_t file_size, size_t *size)
{
    const unsigned char *b = bytes;
    uint64_t header = 0;
    *size = 0;
    for (size_t i = 0; i < LS_CKPT_PREFIX && i < n; i++) header |= (uint64_t)b[i] << (8 * i);

    if (n > LS_CKPT_PREFIX && header <= LS_CKPT_MAX_HEADER && b[LS_CKPT_PREFIX] == '{') {
        if (header > file_size - LS_CKPT_PREFIX)
            return ls_fail(LS_CKPT_CORRUPT, "%s: has %llu bytes, its header alone should have %llu: the file is cut short",
                           what, (unsigned long long)file_size, (unsigned long long)header);
        *size = LS_CKPT_PREFIX + (size_t)header;
        return LS_OK;
    }
    if ((n >= 2 && b[0] == 0x80 && b[1] >= 1 && b[1] <= 5) || (n >= 4 && memcmp(b, "PK\3\4", 4) == 0))
        return ls_fail(LS_BAD_FILE, "%s: this is a pickle (a .pt file of torch.save, or an archive): reading it could run "
                       "code. Convert it where you trust it, with safetensors.torch.save_file", what);
    if (n > LS_CKPT_PREFIX && b[LS_CKPT_PREFIX] == '{')
        return ls_fail(LS_BAD_FILE, "%s: byte 0: a safetensors header of %llu bytes, at most %u are accepted", what,
                       (unsigned long long)header, LS_CKPT_MAX_HEADER);
    return ls_fail(LS_BAD_FILE, "%s: byte 8: not a safetensors file: expected an 8-byte size and a header that begins with '{'",
                   what);
}

ls_status ls_ckpt_header_parse(const char *what, const void *bytes, size_t n, uint64_t file_size, ls_ckpt_header *out)
{
    size_t size;
    *out = (ls_ckpt_header){ 0 };
    LS_TRY(ls_ckpt_header_size(what, bytes, n, file_size, &size));
    if (size > n) return ls_fail(LS_INVALID, "%s: %zu of the %zu header bytes were given", what, n, size);

    parser p = { .what = what, .text = bytes, .n = size, .h = out };
    ls_json_walk w = { .text = bytes, .n = size, .at = LS_CKPT_PREFIX };
    ls_json_span key, value;
    ls_status st = LS_OK;
    bool metadata = false;
    int more = 0;
    out->data_at = size;

    while (st == LS_OK && (more = ls_json_next(&w, &key, &value)) > 0) {
        if (key.n != 14 || memcmp(key.p, "\"__metadata__\"", 14) != 0) {
            st = add_tensor(&p, key, value);
        } else if (metadata) {
            st = bad_at(&p, key, "__metadata__ stands twice");
        } else {
            metadata = true;
            st = read_metadata(&p, value);
        }
    }
    if (st == LS_OK && more < 0) st = bad(&p, w.at, w.rule);
    while (st == LS_OK && w.at < size && p.text[w.at] == ' ') w.at++;
    if (st == LS_OK && w.at < size) st = bad(&p, w.at, "only blanks may follow the JSON object");
    if (st == LS_OK) st = check_digests(&p);
    if (st == LS_OK) st = check_tensors(&p, file_size);
    if (st != LS_OK) ls_ckpt_header_free(out);
    return st;
}

void ls_ckpt_header_free(ls_ckpt_header *h)
{
    for (size_t i = 0; i < h->ntensors; i++) free(h->tensor[i].name);
    for (size_t i = 0; i < h->nmeta; i++) {
        free(h->meta[i].key);
        free(h->meta[i].value);
    }
    free(h->tensor);
    free(h->by_name);
    free(h->meta);
    *h = (ls_ckpt_header){ 0 };
}
