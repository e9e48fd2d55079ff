/* probe_ranks.c -- ranks that are processes, and ranks that are threads. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static ls_status choose_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t n = sizeof a;
    char text[16];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0;
    if (found) found = getsockname(fd, (struct sockaddr *)&a, &n) == 0;
    if (fd >= 0) close(fd);
    if (!found) return ls_fail(LS_SYSTEM, "no port of 127.0.0.1 is free");
    snprintf(text, sizeof text, "%d", ntohs(a.sin_port));
    setenv("MASTER_PORT", text, 1);
    return LS_OK;
}

ls_status fork_ranks(const task *t, rank_fn fn)
{
    pid_t pid[MOST_RANKS];
    int n = 0;
    LS_TRY(choose_port());
    fflush(NULL);
    for (int r = 0; r < t->size; r++, n++) {
        t->f[r].status = LS_RANK_DIED;
        pid[r] = fork();
        if (pid[r] < 0) break;
        if (pid[r] > 0) continue;
        t->f[r].status = fn(r, t, &t->f[r]);
        snprintf(t->f[r].text, sizeof t->f[r].text, "%s", ls_last_error());
        fflush(NULL);
        _exit(0);
    }
    for (int r = 0; r < n; r++) (void)waitpid(pid[r], NULL, 0);
    if (n < t->size) return ls_fail(LS_SYSTEM, "only %d of %d processes can be started", n, t->size);
    for (int r = 0; r < n; r++)
        if (t->f[r].status < 0) return ls_fail(t->f[r].status, "rank %d of %d: %s", r, n, t->f[r].text);
    return LS_OK;
}

/* --- ranks that are threads ---------------------------------------------------------------------------------- */

ls_status starts(ls_world *w, void *arg)
{
    const task *t = arg;
    const int rank = ls_world_rank(w);
    const bool bare = strcmp(t->word, "bare") == 0;
    ls_model_config own = *t->model;
    ls_model *m = NULL;
    ls_arena *arena = NULL;
    ls_ddp *ddp = NULL;
    own.seed = (uint64_t)rank;
    ls_status st = ls_model_create(&own, &m);
    if (st == LS_OK) st = ls_arena_create(4 * ls_params_nbytes(&m->params) + 65536, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&m->params, arena, bare ? arena : NULL);
    if (st == LS_OK) st = ls_model_init(m, &own);
    if (st == LS_OK && !bare) st = ls_ddp_create(ls_world_group(w), &m->params, NULL, &ddp);
    if (st == LS_OK) st = ls_params_digest(&m->params, t->f[rank].digest);
    ls_ddp_destroy(ddp);
    ls_model_destroy(m);
    ls_arena_destroy(arena);
    return st;
}

ls_status moves(ls_world *w, void *arg)
{
    const task *t = arg;
    ls_comm_stats before, now;
    float *v = calloc(VECTOR, sizeof *v);
    if (!v) return ls_fail(LS_NO_MEMORY, "a vector");
    ls_comm_stats_read(w, &before);
    const ls_status st = ls_all_reduce(ls_world_group(w), NULL, v, VECTOR, LS_F32, LS_SUM);
    ls_comm_stats_read(w, &now);
    t->f[ls_world_rank(w)].bytes = now.bytes - before.bytes;
    free(v);
    return st;
}
