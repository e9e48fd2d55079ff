/* checkpoint.c -- opening a checkpoint's folder. */
#include "ckpt/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/limits.h"
#include "ckpt/bytes.h"

#define SUFFIX ".safetensors"
#define SHARD  "shard-" /* begins the names of files of ranks */
#define NAMES_BYTES ((size_t)1 << 22) /* of the files in sharded/ */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static char *joined(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static ls_status no_memory(const char *folder) { return ls_fail(LS_NO_MEMORY, "%s: no memory to open it", folder); }

static ls_status add_file(ls_checkpoint *s, const char *name, const ls_ckpt_sums *sums)
{
    if (s->nfiles == (int)LS_MANIFEST_MAX_FILES)
        return ls_fail(LS_BAD_FILE, "%s: more than %u files", s->folder, LS_MANIFEST_MAX_FILES);
    ls_checkpoint_file *list = realloc(s->file, (size_t)(s->nfiles + 1) * sizeof *list);
    if (!list) return no_memory(s->folder);
    s->file = list;
    list[s->nfiles] = (ls_checkpoint_file){ .path = joined(s->folder, name), .sums = sums };
    if (!list[s->nfiles].path) return no_memory(s->folder);
    s->nfiles++;
    return LS_OK;
}

/* --- which files ----------------------------------------------------------------- */

/* Calls fn for every safetensors file in the folder `dir`; names are sorted. */
static ls_status each_file(const char *dir, ls_status (*fn)(void *arg, const char *name), void *arg)
{
    char *names = malloc(NAMES_BYTES);
    if (!names) return no_memory(dir);
    int count = ls_env_get()->list(dir, names, NAMES_BYTES);
    ls_status st = LS_OK;
    if (count < 0) st = ls_fail(count == -ENOENT || count == -ENOTDIR ? LS_BAD_FILE : LS_IO,
                                "%s: cannot be listed: %s", dir,
                                strerror(-count));
    for (const char *name = names; st == LS_OK && count-- > 0; name += strlen(name) + 1)
        if (ends_with(name, SUFFIX) && name[0] != '.') st = fn(arg, name);
    free(names);
    return st;
}

static ls_status add_listed(void *arg, const char *name)
{
    ls_checkpoint *s = arg;
    if (s->flat) return strncmp(name, SHARD, sizeof SHARD - 1) == 0 ? add_file(s, name, NULL) : LS_OK;
    char *inside = joined(LS_SHARDED_NAME, name);
    const ls_status st = inside ? add_file(s, inside, NULL) : no_memory(s->folder);
    free(inside);
    return st;
}

static ls_status check_listed(void *arg, const char *name)
{
    const ls_checkpoint *s = arg;
    char *inside = joined(LS_SHARDED_NAME, name);
    if (!inside) return no_memory(s->folder);
    const bool known = ls_manifest_find(&s->manifest, inside) != NULL;
    free(inside);
    return known ? LS_OK
                 : ls_fail(LS_CKPT_CORRUPT, "%s/" LS_SHARDED_NAME "/%s: is not in the manifest: it is of another "
                           "checkpoint; move it away", s->folder, name);
}

/* The files that the manifest names and no others; without one, those that are there. */
static ls_status find_files(ls_checkpoint *s)
{
    char *dir = joined(s->folder, s->flat ? "." : LS_SHARDED_NAME);
    if (!dir) return no_memory(s->folder);
    ls_status st = each_file(dir, s->has_manifest ? check_listed : add_listed, s);
    for (size_t i = 0; st == LS_OK && i < s->manifest.nfiles; i++) {
        const ls_manifest_file *f = &s->manifest.file[i];
        if (strncmp(f->name, LS_SHARDED_NAME "/", sizeof LS_SHARDED_NAME) == 0) st = add_file(s, f->name, &f->sums);
    }
    if (st == LS_OK && s->nfiles == 0) st = ls_fail(LS_BAD_FILE, "%s: has no " SUFFIX " file", dir);
    free(dir);
    return st;
}

/* --- headers ---------------------------------------------------------------------- */

static ls_status check_sums(const ls_checkpoint *s, const ls_checkpoint_file *f, const void *header, size_t n)
{
    if (!f->sums) return LS_OK;
    if (f->bytes != f->sums->bytes)
        return ls_fail(LS_CKPT_CORRUPT, "%s: has %" PRIu64 " bytes, the manifest says %" PRIu64, f->path, f->bytes,
                       f->sums->bytes);
    if (n == f->sums->header_bytes && ls_hash64(header, n, 0) == f->sums->header) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: its header is not the one that the manifest of step %" PRId64 " has a "
                   "checksum of: it was changed, or the file is of another save or rank", f->path, s->manifest.step);
}

static ls_status read_header(ls_checkpoint *s, int i)
{
    ls_checkpoint_file *f = &s->file[i];
    unsigned char first[LS_CKPT_PREFIX + 1];
    LS_TRY(ls_checkpoint_use(s, i));
    const int64_t bytes = ls_env_get()->fd_size(s->fd);
    if (bytes < 0) return ls_fail(LS_IO, "%s: its size cannot be read: %s", f->path, strerror((int)-bytes));
    f->bytes = (uint64_t)bytes;
    if (f->sums && f->bytes != f->sums->bytes) return check_sums(s, f, NULL, 0);
    const size_t n = f->bytes < sizeof first ? (size_t)f->bytes : sizeof first;
    size_t size;
    LS_TRY(ls_ckpt_read_at(f->path, s->fd, first, n, 0));
    ls_status st = ls_ckpt_header_size(f->path, first, n, f->bytes, &size);
    if (st < 0) return f->sums ? ls_fail(LS_CKPT_CORRUPT, "%s", ls_last_error()) : st;
    char *text = malloc(size);
    if (!text) return ls_fail(LS_NO_MEMORY, "%s: its header of %zu bytes does not fit in memory", f->path, size);
    st = ls_ckpt_read_at(f->path, s->fd, text, size, 0);
    if (st == LS_OK) st = check_sums(s, f, text, size);
    if (st == LS_OK) st = ls_ckpt_header_parse(f->path, text, size, f->bytes, &f->header);
    free(text);
    return st;
}

/* Beside the ranks' files there may be others, such as config.json: small, or a model's, whose bytes
 * ls_checkpoint_verify checks. They must be there. */
static ls_status check_companions(const ls_checkpoint *s)
{
    ls_status st = LS_OK;
    for (size_t i = 0; st == LS_OK && i < s->manifest.nfiles; i++) {
        const ls_manifest_file *f = &s->manifest.file[i];
        ls_file_info info = { 0 };
        char *path = joined(s->folder, f->name);
        if (!path) return no_memory(s->folder);
        const int err = ls_env_get()->info(path, &info);
        if (err < 0) st = ls_fail(LS_IO, "%s: %s", path, strerror(-err));
        else if (info.type == LS_FILE_NONE) st = ls_fail(LS_CKPT_CORRUPT, "%s: is missing, and the manifest names it",
                                                         path);
        else if (info.type != LS_FILE_REGULAR) st = ls_fail(LS_UNSAFE_PATH, "%s: is not a regular file", path);
        else if (info.size != f->sums.bytes)
            st = ls_fail(LS_CKPT_CORRUPT, "%s: has %" PRIu64 " bytes, the manifest says %" PRIu64, path, info.size,
                         f->sums.bytes);
        free(path);
    }
    return st;
}

/* --- all of it ---------------------------------------------------------------------- */

static ls_file_type type_of(const char *folder, const char *name)
{
    ls_file_info info = { 0 };
    char path[4096]; /* no path that can be opened is longer */
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    const bool there = n > 0 && (size_t)n < sizeof path && ls_env_get()->info(path, &info) == 0;
    return there ? info.type : LS_FILE_NONE;
}

static ls_status see_shard(void *arg, const char *name)
{
    if (strncmp(name, SHARD, sizeof SHARD - 1) == 0) *(bool *)arg = true;
    return LS_OK;
}

/* Files of ranks without a folder of their own, as HuggingFaceStorageWriter writes them without consolidation. */
static bool is_flat(const char *folder)
{
    bool any = false;
    char names[4096]; /* most folders' */
    if (type_of(folder, LS_SHARDED_NAME) != LS_FILE_NONE) return false;
    const int count = ls_env_get()->list(folder, names, sizeof names);
    if (count == -ENOBUFS) return each_file(folder, see_shard, &any) == LS_OK && any;
    const char *name = names;
    for (int i = 0; i < count; i++, name += strlen(name) + 1) (void)see_shard(&any, name);
    return any;
}

bool ls_checkpoint_is_folder(const char *path)
{
    ls_file_info info = { 0 };
    if (ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_REGULAR) return false;
    return type_of(path, LS_MANIFEST_NAME) == LS_FILE_REGULAR || type_of(path, LS_SHARDED_NAME) == LS_FILE_DIR ||
           is_flat(path);
}

static ls_status read_manifest(ls_checkpoint *s)
{
    s->has_manifest = type_of(s->folder, LS_MANIFEST_NAME) != LS_FILE_NONE;
    if (!s->has_manifest && type_of(s->folder, LS_SHARDED_NAME) == LS_FILE_DIR) return LS_OK;
    s->flat = !s->has_manifest && is_flat(s->folder);
    return s->flat ? LS_OK : ls_manifest_read(s->folder, &s->manifest);
}

static ls_status open_all(ls_checkpoint *s)
{
    LS_TRY(read_manifest(s));
    LS_TRY(check_companions(s));
    LS_TRY(find_files(s));
    for (int i = 0; i < s->nfiles; i++) LS_TRY(read_header(s, i));
    return ls_checkpoint_index(s);
}

ls_status ls_checkpoint_open(const char *folder, ls_checkpoint **out)
{
    const size_t n = strlen(folder) + 1;
    *out = NULL;
    ls_checkpoint *s = calloc(1, sizeof *s);
    if (!s) return no_memory(folder);
    s->fd = s->open_file = -1;
    s->folder = malloc(n);
    s->buffer = malloc(LS_CKPT_BLOCK);
    if (s->folder) memcpy(s->folder, folder, n);
    const ls_status st = s->folder && s->buffer ? open_all(s) : no_memory(folder);
    if (st < 0) ls_checkpoint_close(s);
    else *out = s;
    return st;
}

void ls_checkpoint_close(ls_checkpoint *s)
{
    if (!s) return;
    if (s->fd >= 0) ls_env_get()->close_fd(s->fd);
    for (int i = 0; i < s->nfiles; i++) {
        ls_ckpt_header_free(&s->file[i].header);
        free(s->file[i].path);
    }
    ls_manifest_free(&s->manifest);
    free(s->file);
    free(s->chunk);
    free(s->tensor);
    free(s->buffer);
    free(s->blocks);
    free(s->folder);
    free(s);
}

const char *ls_checkpoint_folder(const ls_checkpoint *s) { return s->folder; }
int64_t ls_checkpoint_step(const ls_checkpoint *s) { return s->manifest.step; }
int ls_checkpoint_world_size(const ls_checkpoint *s) { return s->manifest.world_size; }
int64_t ls_checkpoint_generation(const ls_checkpoint *s) { return s->manifest.generation; }

int ls_checkpoint_nbeside(const ls_checkpoint *s)
{
    int n = 0;
    while (ls_checkpoint_beside(s, n)) n++;
    return n;
}

const char *ls_checkpoint_beside(const ls_checkpoint *s, int i)
{
    for (size_t k = 0; k < s->manifest.nfiles; k++)
        if (!strchr(s->manifest.file[k].name, '/') && i-- == 0) return s->manifest.file[k].name;
    return NULL;
}

int ls_checkpoint_nfiles(const ls_checkpoint *s) { return s->nfiles; }
bool ls_checkpoint_has_manifest(const ls_checkpoint *s) { return s->has_manifest; }
const char *ls_checkpoint_meta(const ls_checkpoint *s, const char *key)
{
    return ls_ckpt_header_meta(&s->file[0].header, key);
}

int ls_checkpoint_count(const ls_checkpoint *s) { return s->ntensors; }
const ls_checkpoint_tensor *ls_checkpoint_at(const ls_checkpoint *s, int i) { return &s->tensor[i]; }

uint64_t ls_checkpoint_nbytes(const ls_checkpoint *s, const ls_checkpoint_tensor *t)
{
    const ls_checkpoint_chunk *c = s->chunk + t->first_chunk;
    uint64_t n = 0;
    for (int i = 0; i < t->nchunks; i++) n += c[i].in->end - c[i].in->begin;
    return n;
}

const ls_checkpoint_tensor *ls_checkpoint_find(const ls_checkpoint *s, const char *name)
{
    int low = 0, high = s->ntensors;
    while (low < high) {
        const int mid = low + (high - low) / 2, c = strcmp(name, s->tensor[mid].name);
        if (c == 0) return &s->tensor[mid];
        if (c < 0) high = mid;
        else low = mid + 1;
    }
    return NULL;
}
