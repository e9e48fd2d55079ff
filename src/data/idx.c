/* idx.c -- IDX files, the format of MNIST: a magic number, sizes, bytes.
 *
 *   byte 0, 1   zero
 *   byte 2      element type; 0x08: unsigned bytes
 *   byte 3      number of dimensions
 *   then        one big-endian u32 a dimension, then the elements
 *
 * All of it may be inside one gzip stream. The sizes come first and are
 * checked against limit and file before anything is allocated, and inflate
 * never gets room for more than they announce: a small file cannot ask for
 * much memory.
 */
#include "data/idx.h"

#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* zlib does not write to what it reads */
#include <zlib.h>

#include "base/file.h"
#include "base/limits.h"

#define TYPE_UNSIGNED_BYTE 0x08
#define GZIP_WINDOW_BITS   (16 + 15) /* 16: expect gzip's header and check its CRC; 15: any window */
#define PIECE              ((size_t)1 << 30) /* zlib counts in 32 bits */
#define DEFLATE_MAX_RATIO  1032      /* deflate cannot shrink bytes further */

/* Bytes in order, from the file itself or out of its gzip stream. */
typedef struct source {
    const char *name;
    const uint8_t *p;
    size_t n, at;  /* the file, and what was read of it (gzip: given to zlib) */
    size_t out;    /* bytes handed on */
    bool gzip, ended;
    z_stream z;
} source;

static const char *unpacked(const source *s) { return s->gzip ? " of the unpacked data" : ""; }

static ls_status ends_early(const source *s, const char *what)
{
    if (s->gzip && s->at == s->n && !s->ended)
        return ls_fail(LS_BAD_FILE, "%s: byte %zu: the gzip stream is cut off inside %s", s->name, s->n, what);
    return ls_fail(LS_BAD_FILE, "%s: byte %zu%s: the file ends inside %s", s->name, s->out, unpacked(s), what);
}

/* Inflates up to n bytes; *got may be less only at the end of the stream or of the file. */
static ls_status inflate_some(source *s, uint8_t *to, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n && !s->ended) {
        size_t in = s->n - s->at < PIECE ? s->n - s->at : PIECE, room = n - *got < PIECE ? n - *got : PIECE;
        s->z.next_in = (const Bytef *)s->p + s->at;
        s->z.avail_in = (uInt)in;
        s->z.next_out = to + *got;
        s->z.avail_out = (uInt)room;
        int r = inflate(&s->z, Z_NO_FLUSH);
        size_t made = room - s->z.avail_out, used = in - s->z.avail_in;
        s->at += used;
        *got += made;
        if (r == Z_STREAM_END) s->ended = true;
        else if (r == Z_MEM_ERROR) return ls_fail(LS_NO_MEMORY, "%s: to unpack it", s->name);
        else if (r != Z_OK && r != Z_BUF_ERROR)
            return ls_fail(LS_BAD_FILE, "%s: byte %zu: the gzip stream is damaged: %s", s->name, s->at,
                           s->z.msg ? s->z.msg : "it asks for a dictionary");
        else if (made == 0 && used == 0) return LS_OK; /* nothing left to read */
    }
    return LS_OK;
}

static ls_status pull(source *s, uint8_t *to, size_t n, const char *what)
{
    size_t got = 0;
    if (s->gzip) {
        LS_TRY(inflate_some(s, to, n, &got));
    } else {
        got = s->n - s->at < n ? s->n - s->at : n;
        if (got > 0) memcpy(to, s->p + s->at, got);
        s->at += got;
    }
    s->out += got;
    return got < n ? ends_early(s, what) : LS_OK;
}

/* Nothing may follow: neither elements nor, behind a gzip stream, other bytes. */
static ls_status expect_end(source *s)
{
    uint8_t extra;
    size_t more = s->n - s->at;
    if (!s->gzip)
        return more == 0 ? LS_OK : ls_fail(LS_BAD_FILE, "%s: byte %zu: %zu bytes more than its sizes say", s->name, s->at, more);
    LS_TRY(inflate_some(s, &extra, 1, &more));
    if (more > 0)
        return ls_fail(LS_BAD_FILE, "%s: byte %zu of the unpacked data: more bytes than its sizes say", s->name, s->out);
    if (!s->ended) return ends_early(s, "its checksum");
    if (s->at < s->n)
        return ls_fail(LS_BAD_FILE, "%s: byte %zu: %zu bytes after the gzip stream", s->name, s->at, s->n - s->at);
    return LS_OK;
}

static ls_status read_header(source *s, size_t limit, int *ndim, size_t dims[4], size_t *count)
{
    uint8_t magic[4], size[4];
    LS_TRY(pull(s, magic, sizeof magic, "the magic number"));
    if (magic[0] != 0 || magic[1] != 0)
        return ls_fail(LS_BAD_FILE, "%s: byte 0%s: magic number %02x%02x%02x%02x, expected 0000%02x and the number of dimensions",
                       s->name, unpacked(s), magic[0], magic[1], magic[2], magic[3], TYPE_UNSIGNED_BYTE);
    if (magic[2] != TYPE_UNSIGNED_BYTE)
        return ls_fail(LS_BAD_FILE, "%s: byte 2%s: element type 0x%02x, expected 0x%02x (unsigned bytes)", s->name, unpacked(s),
                       magic[2], TYPE_UNSIGNED_BYTE);
    if (magic[3] < 1 || magic[3] > LS_IDX_MAX_DIMS)
        return ls_fail(LS_BAD_FILE, "%s: byte 3%s: %d dimensions, expected 1 to %d", s->name, unpacked(s), magic[3],
                       LS_IDX_MAX_DIMS);
    *count = 1;
    for (int d = 0; d < magic[3]; d++) {
        LS_TRY(pull(s, size, sizeof size, "the sizes"));
        dims[d] = (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3];
        if (dims[d] == 0)
            return ls_fail(LS_BAD_FILE, "%s: byte %zu%s: size 0 of dimension %d, expected at least 1", s->name, s->out - 4,
                           unpacked(s), d);
        if (dims[d] > limit / *count)
            return ls_fail(LS_BAD_FILE, "%s: byte %zu%s: more elements than the %zu accepted", s->name, s->out - 4,
                           unpacked(s), limit);
        *count *= dims[d];
    }
    *ndim = magic[3];
    return LS_OK;
}

static ls_status read_all(source *s, size_t limit, int *ndim, size_t dims[4], uint8_t **data)
{
    size_t count = 0, left;
    LS_TRY(read_header(s, limit, ndim, dims, &count));
    left = s->n - s->at;
    if (!s->gzip && count > left)
        return ls_fail(LS_BAD_FILE, "%s: byte %zu: %zu bytes of elements, its sizes say %zu", s->name, s->at, left, count);
    if (s->gzip && count / DEFLATE_MAX_RATIO > s->n)
        return ls_fail(LS_BAD_FILE, "%s: byte 4 of the unpacked data: %zu elements cannot come out of a file of %zu bytes", s->name,
                       count, s->n);
    uint8_t *p = malloc(count);
    if (!p) return ls_fail(LS_NO_MEMORY, "%s: %zu elements", s->name, count);
    ls_status st = pull(s, p, count, "the elements");
    if (st == LS_OK) st = expect_end(s);
    if (st < 0) free(p);
    else *data = p;
    return st;
}

ls_status ls_idx_parse(const char *name, const uint8_t *file, size_t n, size_t limit, int *ndim, size_t dims[4],
                       uint8_t **data)
{
    source s = { .name = name, .p = file, .n = n };
    *data = NULL;
    *ndim = 0;
    s.gzip = n >= 2 && file[0] == 0x1f && file[1] == 0x8b;
    if (s.gzip && inflateInit2(&s.z, GZIP_WINDOW_BITS) != Z_OK) return ls_fail(LS_NO_MEMORY, "%s: to unpack it", name);
    ls_status st = read_all(&s, limit, ndim, dims, data);
    if (s.gzip) inflateEnd(&s.z);
    return st;
}

ls_status ls_idx_read(const char *path, size_t limit, int *ndim, size_t dims[4], uint8_t **data)
{
    char *file;
    size_t n;
    *data = NULL;
    *ndim = 0;
    /* gzip adds at most 5 bytes a 16 KiB block and its frame to what it cannot shrink */
    LS_TRY(ls_file_read(path, limit + limit / 1024 + 4096, &file, &n));
    ls_status st = ls_idx_parse(path, (const uint8_t *)file, n, limit, ndim, dims, data);
    free(file);
    return st;
}
