/* guard.c -- runs a test, and ends every process that the test leaves behind, however the test ends.
 *
 *   guard [-t SECONDS] COMMAND ARGUMENTS...
 *
 * Three processes: the guard that was started, which passes SIGINT, SIGTERM and SIGHUP on; the keeper, which adopts
 * every orphan below it (PR_SET_CHILD_SUBREAPER); and the test. The kernel tells the keeper when the guard is gone,
 * so that even SIGKILL to the guard ends the test and everything that the test has started. The keeper has a session
 * of its own: a signal to the guard's process group reaches the keeper once, by the guard.
 *
 * The test finds an empty folder in LOCKSTEP_TEST_TMP, which is in TMPDIR or /tmp; the keeper removes it at the end.
 * After SECONDS the test is stopped. Exit status: the test's own, 128 + the signal's number when a signal ended it, 124
 * after SECONDS, 125 when the guard itself failed. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LATE = 124, BROKEN = 125, MOST = 65536 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Field 4 of /proc/PID/stat, behind a name that may contain anything; -1 when the process is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

/* Kills every process below this one except `spared`. */
static void kill_below(pid_t spared)
{
    static pid_t pid[MOST], parent[MOST];
    static bool below[MOST];
    int n = 0;
    DIR *proc = opendir("/proc");
    if (!proc) return;
    for (struct dirent *e; n < MOST && (e = readdir(proc));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        pid[n] = (pid_t)atoi(e->d_name);
        parent[n] = parent_of(pid[n]);
        below[n] = false;
        n++;
    }
    closedir(proc);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            bool found = parent[i] == getpid();
            for (int j = 0; !found && j < n; j++) found = below[j] && pid[j] == parent[i];
            if (!found || below[i]) continue;
            below[i] = more = true;
        }
    }
    for (int i = 0; i < n; i++)
        if (below[i] && pid[i] != spared) kill(pid[i], SIGKILL);
}

/* Orphans of what is killed come to this process: it is alone when it has no child left. */
static void end_everything(void)
{
    do {
        kill_below(0);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    } while (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD);
}

static void remove_folder(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(BROKEN);
    }
    if (pid > 0) waitpid(pid, NULL, 0);
}

/* Waits for the test; when told to stop it, gives it some seconds to clean up. */
static int wait_for(pid_t test, const sigset_t *signals, double limit)
{
    double deadline = limit > 0 ? now() + limit : 0;
    bool late = false;
    int asked = 0; /* how often the test was told to stop */
    for (;;) {
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            if (pid == test) return late ? LATE : exit_code(status);
        int s = sigtimedwait(signals, NULL, &(struct timespec){ .tv_nsec = 200000000 });
        bool over = deadline > 0 && now() > deadline;
        if (s == SIGCHLD || (s <= 0 && !over)) continue;
        if (asked == 0 && s <= 0) late = true;
        /* A shell acts on a signal when its foreground command ends, so that is killed first. */
        kill_below(asked < 2 ? test : 0);
        if (asked == 0) kill(test, s > 0 ? s : SIGTERM);
        deadline = now() + ++asked;
    }
}

static int keep(char **command, const sigset_t *signals, const sigset_t *before, double limit)
{
    const char *in = getenv("TMPDIR");
    char folder[200];
    snprintf(folder, sizeof folder, "%.150s/lockstep-test-XXXXXX", in && *in ? in : "/tmp");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || !mkdtemp(folder) || setenv("LOCKSTEP_TEST_TMP", folder, 1) != 0) {
        perror("guard");
        return BROKEN;
    }
    pid_t test = fork();
    if (test == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, before, NULL);
        execvp(command[0], command);
        perror(command[0]);
        _exit(BROKEN);
    }
    int code = test > 0 ? wait_for(test, signals, limit) : BROKEN;
    end_everything();
    remove_folder(folder);
    return code;
}

int main(int argc, char **argv)
{
    double limit = 0;
    sigset_t signals, before;
    char **command = argv + 1;
    if (argc > 3 && strcmp(argv[1], "-t") == 0) {
        limit = strtod(argv[2], NULL);
        command = argv + 3;
    }
    if (!*command) {
        fprintf(stderr, "usage: guard [-t SECONDS] COMMAND ARGUMENTS...\n");
        return BROKEN;
    }
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t guard = getpid(), keeper = fork();
    if (keeper < 0) {
        perror("guard");
        return BROKEN;
    }
    if (keeper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != guard) return BROKEN;
        setsid();
        return keep(command, &signals, &before, limit);
    }
    for (;;) {
        int status, s = sigwaitinfo(&signals, NULL);
        if (s == SIGCHLD && waitpid(keeper, &status, WNOHANG) == keeper) return exit_code(status);
        if (s > 0 && s != SIGCHLD) kill(keeper, s);
    }
}
