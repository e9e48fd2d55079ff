/* gunzip.c -- a whole gzip file, unpacked in memory. The size that a gzip file states is not trusted: the memory grows
 * with what really comes out, up to the limit. */
#include "data/gunzip.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* zlib does not write to what it reads */
#include <zlib.h>

#define WINDOW_BITS (16 + 15)         /* 16: expect gzip's header and check its CRC; 15: any window */
#define PIECE       ((size_t)1 << 30) /* zlib counts in 32 bits */
#define LEAST       ((size_t)64 << 10)

typedef struct unpacked {
    char *p;
    size_t n, cap, limit;
} unpacked;

/* Room for one more byte than the limit, so that a file of exactly that size passes and a longer one is noticed. */
static ls_status grow(unpacked *u, const char *name)
{
    if (u->n > u->limit) return ls_fail(LS_BAD_FILE, "%s: it unpacks to more than the %zu bytes that are accepted", name, u->limit);
    size_t cap = u->cap ? 2 * u->cap : LEAST;
    if (cap > u->limit + 1) cap = u->limit + 1;
    char *p = realloc(u->p, cap + 1); /* and a zero byte */
    if (!p) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes to unpack it", name, cap);
    u->p = p;
    u->cap = cap;
    return LS_OK;
}

static bool has_magic(const uint8_t *p, size_t n) { return n >= 2 && p[0] == 0x1f && p[1] == 0x8b; }

/* Some more bytes; *ended: the member is complete. */
static ls_status unpack_some(unpacked *u, z_stream *z, const char *name, const uint8_t *file, size_t n, size_t *at,
                             bool *ended)
{
    const size_t in = n - *at < PIECE ? n - *at : PIECE, room = u->cap - u->n < PIECE ? u->cap - u->n : PIECE;
    z->next_in = file + *at;
    z->avail_in = (uInt)in;
    z->next_out = (Bytef *)u->p + u->n;
    z->avail_out = (uInt)room;
    const int r = inflate(z, Z_NO_FLUSH);
    *at += in - z->avail_in;
    u->n += room - z->avail_out;
    *ended = r == Z_STREAM_END;
    if (*ended) return LS_OK;
    if (r == Z_MEM_ERROR) return ls_fail(LS_NO_MEMORY, "%s: to unpack it", name);
    if (r != Z_OK && r != Z_BUF_ERROR)
        return ls_fail(LS_BAD_FILE, "%s: byte %zu: the gzip stream is damaged: %s", name, *at, z->msg ? z->msg : "it asks for a dictionary");
    if (*at == n && z->avail_out > 0) return ls_fail(LS_BAD_FILE, "%s: byte %zu: the gzip stream is cut off", name, n);
    return LS_OK;
}

static ls_status unpack_all(unpacked *u, z_stream *z, const char *name, const uint8_t *file, size_t n)
{
    bool ended = true; /* a member may begin */
    for (size_t at = 0; !ended || at < n || at == 0;) {
        if (ended && !has_magic(file + at, n - at)) {
            if (at == 0) return ls_fail(LS_BAD_FILE, "%s: byte 0: not a gzip file, as its name says", name);
            return ls_fail(LS_BAD_FILE, "%s: byte %zu: %zu bytes after the gzip stream", name, at, n - at);
        }
        if (ended) inflateReset(z);
        if (u->n == u->cap) LS_TRY(grow(u, name));
        LS_TRY(unpack_some(u, z, name, file, n, &at, &ended));
    }
    if (u->n > u->limit) return grow(u, name); /* says so */
    return LS_OK;
}

ls_status ls_gunzip(const char *name, const void *file, size_t n, size_t limit, char **out, size_t *nout)
{
    unpacked u = { .limit = limit };
    z_stream z = { 0 };
    *out = NULL;
    *nout = 0;
    if (inflateInit2(&z, WINDOW_BITS) != Z_OK) return ls_fail(LS_NO_MEMORY, "%s: to unpack it", name);
    ls_status st = unpack_all(&u, &z, name, file, n);
    inflateEnd(&z);
    if (st < 0) {
        free(u.p);
        return st;
    }
    u.p[u.n] = 0;
    *out = u.p;
    *nout = u.n;
    return LS_OK;
}
