/* probe_nodes.c -- a job on several nodes, all of which are this machine, and what its ranks know of themselves. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

enum { NODES = 4 };

#define WORDS 16 /* of 32 cores each */

typedef struct seat {
    int32_t local_rank, local_size;
    uint32_t cores[WORDS]; /* that this rank may use, a bit each */
} seat;

/* "Cpus_allowed: 3,ffffffff": words of 32 cores, the highest first. */
static ls_status read_cores(uint32_t *cores)
{
    char line[1024], *words[64];
    int n = 0;
    FILE *f = fopen("/proc/thread-self/status", "r");
    if (!f) return ls_fail(LS_SYSTEM, "/proc/thread-self/status: %s", strerror(errno));
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "Cpus_allowed:", 13) == 0) {
            for (char *p = strtok(line + 13, ", \t\n"); p && n < 64; p = strtok(NULL, ", \t\n")) words[n++] = p;
            break;
        }
    fclose(f);
    for (int i = 0; i < n && i < WORDS; i++) cores[i] = (uint32_t)strtoul(words[n - 1 - i], NULL, 16);
    return LS_OK;
}

static int in_both(const seat *a, const seat *b)
{
    int n = 0;
    for (int i = 0; i < WORDS; i++) n += __builtin_popcount(a->cores[i] & b->cores[i]);
    return n;
}

/* On each rank of the job; rank 0 prints. */
ls_status report(ls_world *w, void *arg)
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    seat *all = calloc((size_t)size, sizeof *all);
    (void)arg;
    ls_status st = all ? LS_OK : ls_fail(LS_NO_MEMORY, "a report");
    if (st == LS_OK) all[rank] = (seat){ .local_rank = ls_world_local_rank(w), .local_size = ls_world_local_size(w) };
    if (st == LS_OK) st = read_cores(all[rank].cores);
    if (st == LS_OK)
        st = ls_all_gather(ls_world_group(w), NULL, all, (size_t)size * sizeof *all / sizeof(int32_t), LS_I32);
    if (st == LS_OK && rank == 0) {
        printf("{\"ranks\": %d, \"local_ranks\": [", size);
        for (int r = 0; r < size; r++) printf("%s%d", r ? ", " : "", (int)all[r].local_rank);
        printf("], \"cores_of_rank_0\": %d, \"shared_with_rank_1\": %d}\n", in_both(&all[0], &all[0]), in_both(&all[0], &all[1]));
    }
    free(all);
    return st;
}

/* A port that was free just now; -1: there is none. */
static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    const bool ok = s >= 0 && bind(s, (struct sockaddr *)&a, n) == 0 && getsockname(s, (struct sockaddr *)&a, &n) == 0;
    if (s >= 0) close(s);
    return ok ? ntohs(a.sin_port) : -1;
}

/* One launcher per node, each a process of its own. */
ls_status nodes(job *j)
{
    const int n = atoi(j->more), ranks = atoi(j->more2);
    char self[PATH] = "", secret[PATH + 16];
    if (n < 1 || n > NODES || ranks < 2 || ranks > 8)
        return ls_fail(LS_USAGE, "nodes: expected 1 to %d nodes with 2 to 8 ranks each, as in `nodes 2 2`", NODES);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return ls_fail(LS_SYSTEM, "/proc/self/exe: %s", strerror(errno));
    snprintf(secret, sizeof secret, "%s/secret", j->folder);
    const int fd = open(secret, O_WRONLY | O_CREAT | O_EXCL, 0600);
    for (int i = 0; fd >= 0 && i < 64; i++)
        if (write(fd, &"0123456789abcdef"[i % 16], 1) != 1) return ls_fail(LS_IO, "%s: %s", secret, strerror(errno));
    if (fd < 0 || close(fd) != 0) return ls_fail(LS_IO, "%s: %s", secret, strerror(errno));
    const int port = free_port();
    if (port < 0) return ls_fail(LS_SYSTEM, "there is no free port");
    pid_t pid[NODES];
    for (int i = 0; i < n; i++) {
        if ((pid[i] = fork()) != 0) continue;
        const char *const argv[] = { self, "report", NULL };
        const ls_launch_opts o = { .argv = argv, .nproc = ranks, .nnodes = n, .node_rank = i, .master_addr = "127.0.0.1",
                                   .secret_file = n > 1 ? secret : NULL, .port = n > 1 ? port : 0, .prefix_rank = -1 };
        ls_launch_result result;
        const ls_status st = ls_launch(&o, &result);
        if (st < 0) fprintf(stderr, "%s\n", ls_last_error());
        _exit(st < 0 ? ls_status_exit_code(st) : result.status < 0 ? result.exit_code : 0);
    }
    int failed = 0;
    for (int i = 0; i < n; i++) {
        int how = 0;
        if (pid[i] < 0 || waitpid(pid[i], &how, 0) < 0 || how != 0) failed++;
    }
    return failed ? ls_fail(LS_SYSTEM, "%d of %d launchers failed", failed, n) : LS_OK;
}
