/* env_real_files.c -- the real env's files, folders and descriptors. */
#include "base/env_real.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Keeps fd when it is a regular file. O_NONBLOCK at the opening keeps a FIFO
 * from blocking us before we have seen what it is; it means nothing afterwards. */
static int regular_only(int fd)
{
    if (fd < 0) return -errno;
    struct stat s;
    int r = ls_real_result(fstat(fd, &s));
    if (r == 0 && !S_ISREG(s.st_mode)) r = S_ISDIR(s.st_mode) ? -EISDIR : -EINVAL;
    if (r == 0) return fd;
    close(fd);
    return r;
}

int ls_real_open_read(const char *path)
{
    return regular_only(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

int ls_real_create(const char *path)
{
    return ls_real_result(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
}

int ls_real_create_secret(const char *path)
{
    return ls_real_result(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
}

int ls_real_append(const char *path)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    return regular_only(open(path, flags, 0666));
}

int ls_real_discard(int fd)
{
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) return -errno;
    if (null == fd) return 0;
    const int err = dup2(null, fd) < 0 ? -errno : 0;
    close(null);
    return err;
}

ssize_t ls_real_read(int fd, void *p, size_t n)
{
    ssize_t k;
    do k = read(fd, p, n);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_pread(int fd, void *p, size_t n, uint64_t offset)
{
    if (offset > INT64_MAX) return -EINVAL;
    ssize_t k;
    do k = pread(fd, p, n, (off_t)offset);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_pwrite(int fd, const void *p, size_t n, uint64_t offset)
{
    if (offset > INT64_MAX) return -EINVAL;
    ssize_t k;
    do k = pwrite(fd, p, n, (off_t)offset);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_write(int fd, const void *p, size_t n)
{
    ssize_t k;
    do k = write(fd, p, n);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

int ls_real_write_behind(int fd, uint64_t offset, size_t n)
{
    return ls_real_result(sync_file_range(fd, (off64_t)offset, (off64_t)n, SYNC_FILE_RANGE_WRITE));
}

int ls_real_uncached(int fd, bool on)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    return ls_real_result(fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT));
}

int ls_real_fsync(int fd) { return ls_real_result(fsync(fd)); }

int ls_real_fsync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    int r = ls_real_result(fsync(fd));
    close(fd);
    return r == -EINVAL ? 0 : r; /* a file system without durable folders: nothing to do */
}

int ls_real_rename(const char *from, const char *to) { return ls_real_result(rename(from, to)); }
int ls_real_exchange(const char *a, const char *b)
{
    return ls_real_result(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
}

int ls_real_unlink(const char *path) { return ls_real_result(unlink(path)); }
int ls_real_mkdir(const char *path) { return ls_real_result(mkdir(path, 0777)); }
int ls_real_mkdir_secret(const char *path) { return ls_real_result(mkdir(path, 0700)); }
int ls_real_rmdir(const char *path) { return ls_real_result(rmdir(path)); }

int ls_real_real_path(const char *path, char *buf, size_t n)
{
    char *real = realpath(path, NULL);
    if (!real) return -errno;
    const size_t length = strlen(real);
    if (length < n) memcpy(buf, real, length + 1);
    free(real);
    return length < n ? 0 : -ERANGE;
}

int ls_real_lock(int fd)
{
    const int r = ls_real_result(flock(fd, LOCK_EX | LOCK_NB));
    return r == -EWOULDBLOCK ? -EAGAIN : r;
}

static ls_file_info info_of(const struct stat *s)
{
    return (ls_file_info){ .type = S_ISREG(s->st_mode)   ? LS_FILE_REGULAR
                                   : S_ISDIR(s->st_mode) ? LS_FILE_DIR
                                                         : LS_FILE_OTHER,
                           .size = (uint64_t)s->st_size,
                           .owned = s->st_uid == geteuid(),
                           .mode = s->st_mode & 07777u,
                           .changed_ns = (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec };
}

int ls_real_info(const char *path, ls_file_info *out)
{
    struct stat s;
    *out = (ls_file_info){ .type = LS_FILE_NONE };
    if (lstat(path, &s) < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    *out = info_of(&s);
    return 0;
}

int ls_real_fd_info(int fd, ls_file_info *out)
{
    struct stat s;
    *out = (ls_file_info){ .type = LS_FILE_NONE };
    if (fstat(fd, &s) < 0) return -errno;
    *out = info_of(&s);
    return 0;
}

static int not_dots(const struct dirent *e) { return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0; }

/* Bytes, not the locale, order names: every rank and machine sees the same list. */
static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int ls_real_list(const char *path, char *names, size_t n)
{
    struct dirent **entry = NULL;
    int count = scandir(path, &entry, not_dots, by_bytes), r = count;
    if (count < 0) return -errno;
    for (int i = 0; i < count; i++) {
        size_t k = strlen(entry[i]->d_name) + 1;
        if (r >= 0 && k <= n) {
            memcpy(names, entry[i]->d_name, k);
            names += k;
            n -= k;
        } else {
            r = -ENOBUFS;
        }
        free(entry[i]);
    }
    free(entry);
    return r;
}

bool ls_real_isatty(int fd) { return isatty(fd) == 1; }

int ls_real_columns(int fd)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? (int)w.ws_col : 80;
}

void ls_real_close_fd(int fd)
{
    if (fd >= 0) close(fd);
}

int ls_real_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) < 0) return -errno;
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0) return 0;
    int r = -errno;
    close(fds[0]);
    close(fds[1]);
    return r;
}

int ls_real_set_cloexec(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0) return -errno;
    return ls_real_result(fcntl(fd, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC));
}
