/* manifest.c -- writing, parsing and reading a checkpoint's manifest. */
#include "ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"
#include "ckpt/bytes.h"
#include "ckpt/json.h"

#define TAIL_KEY "\"digest\":\""
#define TAIL_END "\"}\n"
#define TAIL_BYTES (sizeof TAIL_KEY - 1 + 32 + sizeof TAIL_END - 1)

/* --- names --------------------------------------------------------------------- */

static bool is_plain(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    return n > 0 && n <= LS_MANIFEST_MAX_NAME && *name != '.' && strspn(name, letters) == n;
}

/* Plain, or in sharded/; the manifest does not list itself. */
static bool is_allowed(const char *name)
{
    const size_t k = sizeof LS_SHARDED_NAME; /* with the slash */
    if (strncmp(name, LS_SHARDED_NAME "/", k) == 0) return is_plain(name + k);
    return is_plain(name) && strcmp(name, LS_MANIFEST_NAME) != 0;
}

/* Where `name` is, or belongs: *found says which. */
static size_t place_of(const ls_manifest *m, const char *name, bool *found)
{
    size_t low = 0, high = m->nfiles;
    *found = false;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int c = strcmp(name, m->file[mid].name);
        if (c == 0) *found = true;
        if (c <= 0) high = mid;
        else low = mid + 1;
    }
    return low;
}

const ls_manifest_file *ls_manifest_find(const ls_manifest *m, const char *name)
{
    bool found;
    const size_t at = place_of(m, name, &found);
    return found ? &m->file[at] : NULL;
}

ls_status ls_manifest_add(ls_manifest *m, const char *name, ls_ckpt_sums *sums)
{
    bool found;
    const size_t at = place_of(m, name, &found), n = strlen(name) + 1;
    char *copy = malloc(n);
    ls_manifest_file *list = realloc(m->file, (m->nfiles + 1) * sizeof *list);
    if (list) m->file = list;
    if (!copy || !list || found) {
        free(copy);
        ls_ckpt_sums_free(sums);
        return found ? ls_fail(LS_INVALID, "manifest: file '%s' stands twice", name)
                     : ls_fail(LS_NO_MEMORY, "manifest: %zu files", m->nfiles + 1);
    }
    memcpy(copy, name, n);
    memmove(list + at + 1, list + at, (m->nfiles - at) * sizeof *list);
    list[at] = (ls_manifest_file){ copy, *sums };
    *sums = (ls_ckpt_sums){ 0 };
    m->nfiles++;
    return LS_OK;
}

void ls_manifest_free(ls_manifest *m)
{
    for (size_t i = 0; i < m->nfiles; i++) {
        free(m->file[i].name);
        ls_ckpt_sums_free(&m->file[i].sums);
    }
    free(m->file);
    *m = (ls_manifest){ 0 };
}

/* --- writing --------------------------------------------------------------------- */

static void digest_hex(const void *p, size_t n, ls_digest *d, char hex[33])
{
    ls_digest_reset(d);
    ls_digest_add(d, p, n);
    ls_digest_hex(d, hex);
}

static void add_file(ls_text *out, const ls_manifest_file *f)
{
    const ls_ckpt_sums *s = &f->sums;
    ls_json_string(out, f->name);
    ls_text_add(out, ":{\"bytes\":%" PRIu64 ",\"header_bytes\":%" PRIu64 ",\"header\":\"%016" PRIx64 "\",\"blocks\":\"",
                s->bytes, s->header_bytes, s->header);
    for (size_t i = 0; i < s->nblocks; i++) ls_text_add(out, "%016" PRIx64, s->block[i]);
    ls_text_add(out, "\"}");
}

ls_status ls_manifest_text(const ls_manifest *m, ls_text *out)
{
    char hex[33];
    ls_text_add(out, "{\"lockstep_manifest\":1,\n\"save\":\"%s\",\n\"step\":%" PRId64 ",\n\"generation\":%" PRId64
                ",\n\"world_size\":%d,\n\"files\":{", m->save, m->step, m->generation, m->world_size);
    for (size_t i = 0; i < m->nfiles; i++) {
        if (!is_allowed(m->file[i].name))
            return ls_fail(LS_INVALID, "manifest: '%s' is not a name that a checkpoint's file may have", m->file[i].name);
        ls_text_add(out, "%s\n ", i ? "," : "");
        add_file(out, &m->file[i]);
    }
    ls_text_add(out, "},\n");
    LS_TRY(ls_text_status(out));
    ls_digest *d = ls_digest_create();
    if (!d) return ls_fail(LS_NO_MEMORY, "a digest of the manifest");
    digest_hex(out->p, out->n, d, hex);
    ls_digest_destroy(d);
    ls_text_add(out, TAIL_KEY "%s" TAIL_END, hex);
    return ls_text_status(out);
}

/* --- parsing ----------------------------------------------------------------------- */

/* What a parse knows. */
typedef struct parser {
    const char *what; /* the file's name */
    const char *text;
    size_t n;
    ls_manifest *m;
    unsigned seen;    /* keys, a bit each */
} parser;

static ls_status bad(const parser *p, ls_json_span at, const char *rule)
{
    return ls_fail(LS_BAD_FILE, "%s: byte %zu: %s", p->what, (size_t)(at.p - p->text), rule);
}

static ls_status check_digest(const parser *p)
{
    char hex[33];
    const char *tail = p->text + p->n - TAIL_BYTES;
    if (p->n < TAIL_BYTES || memcmp(tail, TAIL_KEY, sizeof TAIL_KEY - 1) != 0 ||
        memcmp(p->text + p->n - (sizeof TAIL_END - 1), TAIL_END, sizeof TAIL_END - 1) != 0)
        return ls_fail(LS_CKPT_CORRUPT, "%s: does not end with its digest: it is cut short, or not a manifest", p->what);
    ls_digest *d = ls_digest_create();
    if (!d) return ls_fail(LS_NO_MEMORY, "%s: a digest", p->what);
    digest_hex(p->text, p->n - TAIL_BYTES, d, hex);
    ls_digest_destroy(d);
    if (memcmp(tail + sizeof TAIL_KEY - 1, hex, 32) == 0) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: its digest is %s, expected %.32s: it was changed after it was written", p->what, hex,
                   tail + sizeof TAIL_KEY - 1);
}

static bool read_blocks(const char *s, size_t n, ls_ckpt_sums *out)
{
    if (n % 16 != 0 || !(out->block = malloc(n / 16 * sizeof *out->block + 1))) return false;
    for (out->nblocks = 0; out->nblocks < n / 16; out->nblocks++)
        if (!ls_ckpt_read_hex(s + 16 * out->nblocks, &out->block[out->nblocks])) return false;
    return true;
}

static const char *read_sums(const json_t *j, ls_ckpt_sums *out)
{
    const json_t *bytes = json_object_get(j, "bytes"), *header_bytes = json_object_get(j, "header_bytes");
    const json_t *header = json_object_get(j, "header"), *blocks = json_object_get(j, "blocks");
    if (json_object_size(j) != 4 || !json_is_integer(bytes) || !json_is_integer(header_bytes) ||
        !json_is_string(header) ||
        !json_is_string(blocks))
        return "a file has \"bytes\", \"header_bytes\", \"header\" and \"blocks\", each once and nothing else";
    if (json_integer_value(header_bytes) < 0 || json_integer_value(bytes) < json_integer_value(header_bytes))
        return "a file has fewer bytes than its header";
    out->bytes = (uint64_t)json_integer_value(bytes);
    out->header_bytes = (uint64_t)json_integer_value(header_bytes);
    if (json_string_length(header) != 16 || !ls_ckpt_read_hex(json_string_value(header), &out->header))
        return "\"header\" is not 16 hex digits";
    if (!read_blocks(json_string_value(blocks), json_string_length(blocks), out)) return "\"blocks\" are not hex digits, 16 each";
    const uint64_t data = out->bytes - out->header_bytes;
    if (out->nblocks != data / LS_CKPT_BLOCK + (data % LS_CKPT_BLOCK != 0)) return "\"blocks\" and \"bytes\" disagree about the size";
    return NULL;
}

static ls_status read_file_entry(parser *p, ls_json_span key, ls_json_span value)
{
    const char *rule = NULL;
    ls_ckpt_sums sums = { 0 };
    json_error_t e;
    if (p->m->nfiles == LS_MANIFEST_MAX_FILES) return bad(p, key, "more files than are accepted");
    if (value.n > LS_MANIFEST_MAX_ENTRY) return bad(p, value, "a file has more blocks than are accepted");
    char *name = ls_json_decode(key, LS_MANIFEST_MAX_NAME + sizeof LS_SHARDED_NAME, &rule);
    if (!name) return rule ? bad(p, key, rule) : ls_fail(LS_NO_MEMORY, "%s: a file's name", p->what);
    ls_status st = LS_OK;
    json_t *j = json_loadb(value.p, value.n, JSON_REJECT_DUPLICATES, &e);
    if (!is_allowed(name)) st = bad(p, key, "a file's name is not plain: letters, digits, '.', '_' and '-'");
    else if (!j && json_error_code(&e) == json_error_out_of_memory) st = ls_fail(LS_NO_MEMORY, "%s: a file", p->what);
    else if (!json_is_object(j)) st = bad(p, value, "a file's description is not a JSON object with its keys once");
    else if ((rule = read_sums(j, &sums))) st = bad(p, value, rule);
    json_decref(j);
    if (st == LS_OK) {
        st = ls_manifest_add(p->m, name, &sums);
        if (st == LS_INVALID) st = bad(p, key, "a file stands twice");
    }
    ls_ckpt_sums_free(&sums);
    free(name);
    return st;
}

static ls_status read_files(parser *p, ls_json_span object)
{
    const size_t start = (size_t)(object.p - p->text);
    ls_json_walk w = { .text = p->text, .n = start + object.n, .at = start };
    ls_json_span key, value;
    int more;
    if (object.n == 0 || *object.p != '{') return bad(p, object, "\"files\" is not an object");
    while ((more = ls_json_next(&w, &key, &value)) > 0) LS_TRY(read_file_entry(p, key, value));
    return more < 0 ? bad(p, (ls_json_span){ p->text + w.at, 0 }, w.rule) : LS_OK;
}

/* A whole number from 0 to `most`. */
static bool read_number(ls_json_span s, int64_t most, int64_t *out)
{
    int64_t v = 0;
    if (s.n == 0 || s.n > 18) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        v = 10 * v + (s.p[i] - '0');
    }
    *out = v;
    return v <= most;
}

enum { VERSION, SAVE, STEP, GENERATION, WORLD_SIZE, FILES, DIGEST, KEYS };

static ls_status read_pair(parser *p, ls_json_span key, ls_json_span value)
{
    static const char *const keys[KEYS] = { "\"lockstep_manifest\"", "\"save\"", "\"step\"", "\"generation\"",
                                            "\"world_size\"", "\"files\"", "\"digest\"" };
    int k = 0;
    int64_t number = 0;
    while (k < KEYS && (key.n != strlen(keys[k]) || memcmp(key.p, keys[k], key.n) != 0)) k++;
    if (k == KEYS) return bad(p, key, "an unknown key");
    if (p->seen >> k & 1u) return bad(p, key, "a key stands twice");
    p->seen |= 1u << k;
    switch (k) {
    case VERSION:
        if (value.n == 1 && *value.p == '1') return LS_OK;
        return ls_fail(LS_UNSUPPORTED, "%s: version %.*s of a manifest, this build reads version 1", p->what,
                       (int)(value.n < 20 ? value.n : 20), value.p);
    case SAVE:
        if (value.n != 34 || *value.p != '"') return bad(p, value, "\"save\" is not 32 hex digits");
        memcpy(p->m->save, value.p + 1, 32);
        p->m->save[32] = 0;
        return strspn(p->m->save, "0123456789abcdef") == 32 ? LS_OK : bad(p, value, "\"save\" is not 32 hex digits");
    case STEP:
        return read_number(value, INT64_MAX, &p->m->step) ? LS_OK : bad(p, value, "\"step\" is not a number of steps");
    case GENERATION:
        return read_number(value, INT64_MAX, &p->m->generation) ? LS_OK : bad(p, value, "\"generation\" is not a number");
    case WORLD_SIZE:
        if (!read_number(value, LS_MANIFEST_MAX_RANKS, &number) || number < 1)
            return bad(p, value, "\"world_size\" is not a number of ranks");
        p->m->world_size = (int)number;
        return LS_OK;
    case FILES:
        return read_files(p, value);
    default: /* the digest, which was checked */
        return LS_OK;
    }
}

static ls_status parse(parser *p)
{
    LS_TRY(check_digest(p));
    ls_json_walk w = { .text = p->text, .n = p->n };
    ls_json_span key = { p->text, 0 }, value;
    int more;
    while ((more = ls_json_next(&w, &key, &value)) > 0) LS_TRY(read_pair(p, key, value));
    if (more < 0) return bad(p, (ls_json_span){ p->text + w.at, 0 }, w.rule);
    if (w.at != p->n - 1) return bad(p, (ls_json_span){ p->text + w.at, 0 }, "something follows the JSON object");
    return p->seen == (1u << KEYS) - 1 ? LS_OK : bad(p, (ls_json_span){ p->text, 0 }, "a key is missing");
}

ls_status ls_manifest_parse(const char *what, const void *text, size_t n, ls_manifest *out)
{
    *out = (ls_manifest){ 0 };
    if (n > LS_MANIFEST_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, at most %u are accepted", what, n, LS_MANIFEST_MAX_BYTES);
    parser p = { .what = what, .text = text, .n = n, .m = out };
    const ls_status st = parse(&p);
    if (st < 0) ls_manifest_free(out);
    return st;
}

ls_status ls_manifest_read(const char *folder, ls_manifest *out)
{
    ls_text path = { 0 };
    ls_file_info info;
    char *text = NULL;
    size_t n = 0;
    *out = (ls_manifest){ 0 };
    ls_text_add(&path, "%s/" LS_MANIFEST_NAME, folder);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK && ls_env_get()->info(path.p, &info) == 0 && info.type == LS_FILE_NONE)
        st = ls_fail(LS_BAD_FILE, "%s: has no " LS_MANIFEST_NAME ": it is not a checkpoint, or one that was not finished", folder);
    if (st == LS_OK) st = ls_file_read(path.p, LS_MANIFEST_MAX_BYTES, &text, &n);
    if (st == LS_OK) st = ls_manifest_parse(path.p, text, n, out);
    free(text);
    ls_text_free(&path);
    return st;
}

/* --- checksums of a small file ----------------------------------------------------------- */

ls_status ls_manifest_sum_file(const char *path, ls_ckpt_sums *out)
{
    char *text;
    size_t n;
    *out = (ls_ckpt_sums){ 0 };
    LS_TRY(ls_file_read(path, LS_MANIFEST_MAX_COMPANION, &text, &n));
    *out = (ls_ckpt_sums){ .bytes = n, .header = ls_hash64("", 0, 0), .nblocks = (n + LS_CKPT_BLOCK - 1) / LS_CKPT_BLOCK
    };
    out->block = malloc(out->nblocks * sizeof *out->block + 1);
    for (size_t i = 0; out->block && i < out->nblocks; i++) {
        const size_t at = i * LS_CKPT_BLOCK;
        out->block[i] = ls_hash64(text + at, n - at < LS_CKPT_BLOCK ? n - at : LS_CKPT_BLOCK, 0);
    }
    free(text);
    if (out->block) return LS_OK;
    *out = (ls_ckpt_sums){ 0 };
    return ls_fail(LS_NO_MEMORY, "%s: checksums of %zu bytes", path, n);
}
