/* secret.c -- secret files. */
#include "meet/secret.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/env.h"

#define DIGITS (2 * LS_SECRET_BYTES)

void ls_secret_wipe(void *p, size_t n) { sodium_memzero(p, n); }

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* 64 hex digits, and a line's end if there is one. */
static bool parse(const char *text, size_t n, uint8_t secret[LS_SECRET_BYTES])
{
    int wrong = n < DIGITS || n > DIGITS + 2;
    for (size_t i = DIGITS; i < n; i++) wrong |= text[i] != '\n' && text[i] != '\r';
    for (size_t i = 0; i < LS_SECRET_BYTES && !wrong; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        wrong |= high < 0 || low < 0;
        secret[i] = (uint8_t)((high & 15) << 4 | (low & 15));
    }
    return !wrong;
}

/* Whether the open file is ours alone: looked at after opening, so that nobody can swap it in between. */
static ls_status check(const char *path, int fd)
{
    ls_file_info info;
    int r = ls_env_get()->fd_info(fd, &info);
    if (r < 0) return ls_fail(LS_IO, "the secret file %s: %s", path, strerror(-r));
    if (info.type != LS_FILE_REGULAR)
        return ls_fail(LS_UNSAFE_PATH, "the secret file %s is no regular file", path);
    if (!info.owned) return ls_fail(LS_UNSAFE_MODE, "the secret file %s belongs to another user: make your own with "
                                                    "`lockstep secret new FILE`", path);
    if (info.mode & 077u)
        return ls_fail(LS_UNSAFE_MODE, "the secret file %s has mode %04o, so others can read it: chmod 600 %s, and think "
                                       "of the old one as known", path, info.mode, path);
    return LS_OK;
}

ls_status ls_secret_read(const char *path, uint8_t secret[LS_SECRET_BYTES])
{
    const ls_env *env = ls_env_get();
    char text[DIGITS + 3];
    size_t n = 0;
    ssize_t k = 0;
    memset(secret, 0, LS_SECRET_BYTES);
    int fd = env->open_read(path);
    if (fd == -ELOOP || fd == -EISDIR || fd == -EINVAL)
        return ls_fail(LS_UNSAFE_PATH, "the secret file %s is no regular file, or a link to one", path);
    if (fd < 0) return ls_fail(LS_IO, "the secret file %s cannot be opened: %s", path, strerror(-fd));
    ls_status st = check(path, fd);
    while (st == LS_OK && n < sizeof text && (k = env->read(fd, text + n, sizeof text - n)) > 0) n += (size_t)k;
    if (st == LS_OK && k < 0) st = ls_fail(LS_IO, "reading the secret file %s: %s", path, strerror((int)-k));
    if (st == LS_OK && !parse(text, n, secret))
        st = ls_fail(LS_BAD_FILE, "the secret file %s does not have %d hex digits: make one with `lockstep secret new FILE`",
                     path, DIGITS);
    env->close_fd(fd);
    ls_secret_wipe(text, sizeof text);
    if (st < 0) ls_secret_wipe(secret, LS_SECRET_BYTES);
    return st;
}

ls_status ls_secret_read_fd(int fd, uint8_t secret[LS_SECRET_BYTES])
{
    if (ls_env_get()->pread(fd, secret, LS_SECRET_BYTES, 0) != LS_SECRET_BYTES)
        return ls_fail(LS_AUTH_FAILED, "the launcher's secret cannot be read from descriptor %d: was it closed?", fd);
    return LS_OK;
}

ls_status ls_secret_new(const char *path)
{
    const ls_env *env = ls_env_get();
    uint8_t secret[LS_SECRET_BYTES];
    char text[DIGITS + 1];
    int fd = env->create_secret(path);
    if (fd == -EEXIST) return ls_fail(LS_IO, "%s exists already: it is left as it is", path);
    if (fd < 0) return ls_fail(LS_IO, "making %s: %s", path, strerror(-fd));
    env->random(secret, sizeof secret);
    for (size_t i = 0; i < DIGITS; i++) text[i] = "0123456789abcdef"[secret[i / 2] >> (i % 2 ? 0 : 4) & 15];
    text[DIGITS] = '\n';
    ls_status st = LS_OK;
    if (env->write(fd, text, sizeof text) != (ssize_t)sizeof text || env->fsync(fd) < 0)
        st = ls_fail(LS_IO, "writing %s", path);
    env->close_fd(fd);
    if (st < 0) env->unlink(path);
    ls_secret_wipe(secret, sizeof secret);
    ls_secret_wipe(text, sizeof text);
    return st;
}
