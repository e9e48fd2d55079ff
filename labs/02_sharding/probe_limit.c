/* probe_limit.c -- a training with as much memory as it needs, or some bytes more or less. */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, MOST_WORDS = 40, MOST_TEXT = 1 << 20 };

/* The program `lockstep` beside build/labs, or beside a prefix's libexec/lockstep/labs. */
static ls_status find_lockstep(char *path, size_t n)
{
    static const char *const from[] = { "../lockstep", "../../../bin/lockstep" };
    char self[4096] = "";
    struct stat info;
    const ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = got > 0 ? strrchr(self, '/') : NULL;
    if (!slash) return ls_fail(LS_SYSTEM, "the path of this program is unknown");
    *slash = 0;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        snprintf(path, n, "%s/%s", self, from[i]);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) return LS_OK;
    }
    return ls_fail(LS_IO, "%s is not there", path);
}

/* What a program prints, on both streams, in `most` bytes, and its exit status. */
static ls_status run(char *const *argv, char *said, size_t most, int *code)
{
    int pipes[2], end = 0;
    size_t at = 0;
    ssize_t got;
    if (pipe(pipes) != 0) return ls_fail(LS_SYSTEM, "a pipe");
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], 1);
        dup2(pipes[1], 2);
        close(pipes[0]);
        close(pipes[1]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(pipes[1]);
    while (at < most - 1 && (got = read(pipes[0], said + at, most - 1 - at)) > 0) at += (size_t)got;
    close(pipes[0]);
    said[at] = 0;
    if (pid < 0 || waitpid(pid, &end, 0) != pid || !WIFEXITED(end)) return ls_fail(LS_SYSTEM, "%s did not run", argv[0]);
    *code = WEXITSTATUS(end);
    return LS_OK;
}

/* The number after the first `key` that comes after `section`; -1: there is none. */
static long long number_after(const char *said, const char *section, const char *key)
{
    const char *at = strstr(said, section);
    at = at ? strstr(at, key) : NULL;
    return at ? atoll(at + strlen(key)) : -1;
}

ls_status make_folder(char *dir, size_t n)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, n, "%.1000s/lockstep-limit-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? LS_OK : ls_fail(LS_IO, "making %s: set TMPDIR to a folder that you may write in", dir);
}

ls_status remove_folder(char *dir)
{
    char rm[] = "/bin/rm", all[] = "-r", text[200];
    char *const remove[] = { rm, all, dir, NULL };
    int removed = 1;
    LS_TRY(run(remove, text, sizeof text, &removed));
    return removed ? ls_fail(LS_IO, "%s cannot be removed: %s", dir, text) : LS_OK;
}

/* `argv` has n words. Leaves what was said in `said`. */
static ls_status train(char **argv, int n, long long most, char *said, int *code)
{
    char dir[1024], folder[1100], tokens[1100], bytes[32];
    LS_TRY(make_folder(dir, sizeof dir));
    snprintf(folder, sizeof folder, "%s/run", dir);
    snprintf(tokens, sizeof tokens, "%s/tokens", dir);
    snprintf(bytes, sizeof bytes, "%lld", most);
    argv[n++] = "--run.dir", argv[n++] = folder;
    argv[n++] = "--data.path", argv[n++] = tokens;
    argv[n++] = "--memory.limit", argv[n++] = bytes;
    argv[n] = NULL;
    const ls_status st = run(argv, said, MOST_TEXT, code);
    const ls_status removed = remove_folder(dir);
    return st < 0 ? st : removed;
}

ls_status limit(const char *recipe, const char *text, const char *stage, long long more_bytes, char **more, int n)
{
    char path[4200], *argv[MOST_WORDS + 10] = { 0 };
    int words = 0, code = 0;
    LS_TRY(find_lockstep(path, sizeof path));
    if (n > MOST_WORDS - 16) return ls_fail(LS_USAGE, "at most %d more words are accepted", MOST_WORDS - 16);
    char *said = malloc(MOST_TEXT);
    if (!said) return ls_fail(LS_NO_MEMORY, "what a program prints");
    const char *const first[] = { path, "train", recipe, "--data.name", text, "-n", "4", "--ranks-as", "threads", "--json",
                                  "--train.steps", "1", "--zero.stage", stage };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) argv[words++] = (char *)(size_t)first[i];
    for (int i = 0; i < n; i++) argv[words++] = more[i];
    ls_status st = train(argv, words, 0, said, &code);
    const char *memory = strstr(said, "\"memory\""); /* rank 0 needs the most, and all must fit */
    const long long needs = memory ? RANKS * number_after(memory, "\"ranks\"", "\"total\": ") : 0;
    if (st == LS_OK && (code != 0 || needs <= 0)) st = ls_fail(LS_INTERNAL, "a run without a limit ended with %d: %s", code, said);
    if (st == LS_OK) st = train(argv, words, needs + more_bytes, said, &code);
    if (st == LS_OK)
        printf("{\"needs\": %lld, \"limit\": %lld, \"ended\": %d, \"stage\": %lld, \"model_parallel\": %d, \"recompute\": %d}\n",
               needs, needs + more_bytes, code, number_after(said, "MiB; ", "zero.stage "),
               strstr(said, "use model parallelism") != NULL, strstr(said, "MiB; train.recompute ") != NULL);
    free(said);
    return st;
}
