# harness_disk.sh -- a disk that is slow, held, full or forbidden, for the tests that save: slow.so, to be preloaded. A suite without a
# compiler, or with a sanitizer, ends here.
# fsync of a model's file takes SLOW seconds, or, HELD, as long as the file that it names is there.
cat >slow.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    char link[64], path[512];
    const char *slow = getenv("SLOW"), *held = getenv("HELD"), *what = getenv("WHAT");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    char *name = strrchr(path, '/');
    name = name ? name + 2 : path; /* ".NAME.<16 digits>.tmp" */
    if (strlen(name) > 21) name[strlen(name) - 21] = 0;
    if (strstr(what ? what : "model.safetensors", name)) {
        if (slow) usleep((useconds_t)(1e6 * atof(slow)));
        if (held) close(open("held", O_CREAT | O_WRONLY, 0600));
        while (held && access(held, F_OK) == 0) usleep(10000);
    }
    return real(fd);
}
int mkdir(const char *path, mode_t mode) /* FORBIDDEN: no folder of this name can be made */
{
    int (*real)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    const char *name = strrchr(path, '/'), *forbidden = getenv("FORBIDDEN");
    if (!name || !forbidden || strcmp(name + 1, forbidden) != 0) return real(path, mode);
    errno = EACCES;
    return -1;
}
ssize_t write(int fd, const void *p, size_t n) /* FULL: no room for a file that fits *NAME*; AFTER: so many writes. STUCK: 3 s */
{
    static int writes;
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t k = getenv("FULL") ? readlink(link, path, sizeof path - 1) : 0;
    path[k > 0 ? k : 0] = 0;
    char pattern[128];
    snprintf(pattern, sizeof pattern, "*%s*", getenv("FULL") ? getenv("FULL") : "");
    if (k <= 0 || fnmatch(pattern, path, 0) != 0) return real(fd, p, n);
    if (getenv("AFTER") && writes++ < atoi(getenv("AFTER"))) return real(fd, p, n);
    if (getenv("STUCK")) {
        usleep(3000000);
        return real(fd, p, n);
    }
    errno = ENOSPC;
    return -1;
}
C
if nm "$lockstep" | grep -q __asan_init || ! "${CC:-cc}" -shared -fPIC -o slow.so slow.c -ldl; then
    echo 'skipped: a sanitizer, or no compiler, so no slow disk'
    finish
fi
slow() { LD_PRELOAD=$tmp/slow.so SLOW=$1 train "${@:2}"; }
nothing_temporary() { # in a folder
    local left
    left=$(find "$1" -name '.*.tmp')
    [ -z "$left" ] || { echo "$left"; return 1; }
}
