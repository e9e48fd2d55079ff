/* bytes.c -- opening and reading the files of checkpoints, and digits in them. */
#include "ckpt/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/env.h"

ls_status ls_ckpt_open_read(const char *path, int *fd)
{
    *fd = ls_env_get()->open_read(path);
    if (*fd >= 0) return LS_OK;
    switch (*fd) {
    case -ELOOP:
        return ls_fail(LS_UNSAFE_PATH, "%s: is a symbolic link; name the file that it leads to", path);
    case -EISDIR:
        return ls_fail(LS_INVALID, "%s: is a folder; name a .safetensors file in it", path);
    case -EINVAL:
    case -ENXIO:
        return ls_fail(LS_UNSAFE_PATH, "%s: is not a regular file", path);
    default:
        return ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-*fd));
    }
}

ls_status ls_ckpt_read_at(const char *path, int fd, void *dst, size_t n, uint64_t offset)
{
    char *at = dst;
    while (n > 0) {
        ssize_t k = ls_env_get()->pread(fd, at, n, offset);
        if (k == -EINTR) continue;
        if (k < 0) return ls_fail(LS_IO, "%s: byte %" PRIu64 " cannot be read: %s", path, offset, strerror((int)-k));
        if (k == 0) return ls_fail(LS_CKPT_CORRUPT, "%s: ends at byte %" PRIu64 ": it was cut while it was read", path, offset);
        at += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return LS_OK;
}

bool ls_ckpt_read_hex(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    for (int i = 0; i < 16; i++) {
        const char *digit = s[i] ? strchr("0123456789abcdef", s[i]) : NULL;
        if (!digit) return false;
        v = v << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    *out = v;
    return true;
}
