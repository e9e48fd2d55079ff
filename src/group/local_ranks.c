/* local_ranks.c -- ranks that this process starts: threads, or copies of it. */
#include "group/local_ranks.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/team.h"
#include "group/engine.h"
#include "net/open.h"

#define POLL_NS  20000000u     /* between two polls of processes */
#define AFTER_NS 5000000000u   /* for which those that are left may go on when the job has failed */
#define MOST_NS  120000000000u /* for which processes may run */
#define MOMENT_NS 20000000u    /* longer than a slice of time, in which a core that is shared does nothing else */
#define MOMENTS  100

typedef struct local_rank {
    ls_thread_host *host;
    const ls_world_opts *opts;
    ls_rank_fn fn;
    void *arg;
    int rank;
    void *thread;
    int pid; /* of a process that has not ended; else 0 */
    atomic_bool returned; /* fn, and what follows it */
    const ls_env *env;
    int log_level;
    ls_status status;
    char error[LS_ERROR_BYTES];
} local_rank;

static void run_rank(void *arg)
{
    local_rank *t = arg;
    ls_context c = { .env = t->env, .rank = t->rank, .log_level = t->log_level };
    ls_context_swap(&c);
    ls_world *opened = NULL, *w = NULL;
    ls_status st = ls_world_open_thread(t->host, t->rank, t->opts, &opened);
    if (st == LS_OK) st = ls_world_complete(opened, &w);
    if (st == LS_OK) {
        st = t->fn(w, t->arg);
        if (st < 0) (void)ls_world_abort(w, st);
    } else {
        ls_page_abort(t->host->page, 1 + (uint32_t)t->rank, st, ls_last_error());
    }
    t->status = st;
    memcpy(t->error, ls_last_error(), sizeof t->error);
    ls_world_leave(w);
    ls_context_swap(NULL);
    atomic_store_explicit(&t->returned, true, memory_order_release);
}

static void random_name(char *out, size_t n)
{
    uint64_t r[2];
    ls_env_get()->random(r, sizeof r);
    snprintf(out, n, "lockstep-%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
}

/* The failure to report: the cause of the job's end if a rank recorded one, else that of the lowest rank. */
static ls_status verdict(const local_rank *t, int size, const ls_world_page *page)
{
    char text[LS_ERROR_BYTES];
    ls_status s;
    int by;
    if (ls_page_cause(page, &by, &s, text, sizeof text)) return ls_fail(s, "%s", text);
    for (int r = 0; r < size; r++)
        if (t[r].status < 0) return ls_fail(t[r].status, "rank %d: %s", r, t[r].error);
    return LS_OK;
}

/* --- threads ---------------------------------------------------------------------------------------------------- */

static ls_status start_threads(local_rank *t, int size, int *started)
{
    for (; *started < size; ++*started)
        if (t->env->thread_start(run_rank, &t[*started], &t[*started].thread) < 0)
            return ls_fail(LS_SYSTEM, "thread for rank %d of %d could not be started", *started, size);
    return LS_OK;
}

static void join_threads(local_rank *t, int started)
{
    for (int r = 0; r < started; r++) t->env->thread_join(t[r].thread);
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

ls_status ls_local_alloc(size_t nbytes, size_t used, void **out)
{
    const ls_env *env = ls_env_get();
    const int fd = env->memfd_sparse("lockstep-ranks", nbytes, 0);
    *out = fd >= 0 ? env->map_shared(fd, nbytes, false) : NULL;
    if (fd >= 0) env->close_fd(fd);
    if (!*out) return ls_fail(LS_NO_MEMORY, "%zu bytes that ranks of this process share", nbytes);
    const ls_status st = ls_local_use(*out, used);
    if (st == LS_OK) return LS_OK;
    ls_local_free(*out, nbytes);
    *out = NULL;
    return st;
}

ls_status ls_local_use(void *p, size_t nbytes)
{
    if (nbytes == 0 || ls_env_get()->reserve(p, nbytes) == 0) return LS_OK;
    return ls_fail(LS_NO_MEMORY, "%zu bytes that ranks of this process share", nbytes);
}

void ls_local_free(void *p, size_t nbytes)
{
    if (p) ls_env_get()->unmap(p, nbytes);
}

bool ls_local_is_bound(int ranks, double cores)
{
    uint64_t mask[LS_CPU_WORDS];
    int first, count;
    if (!(cores >= 1) || cores != floor(cores)) return false;
    ls_team_cores(0, ranks, (int)cores, &first, &count);
    return count > 0 && (cores >= ranks || ls_env_get()->cpu_mask(mask, LS_CPU_WORDS) <= cores);
}

int ls_local_core(int rank, int ranks, double cores)
{
    int first, count;
    ls_team_cores(rank, ranks, (int)cores, &first, &count);
    return first;
}

/* A launcher has bound this process to the CPUs of one rank of its job; those of the others are beside them. */
static void take_all(int cores)
{
    const ls_env *env = ls_env_get();
    uint64_t mask[LS_CPU_WORDS];
    const int n = env->cpu_mask(mask, LS_CPU_WORDS);
    if (n <= 0 || n >= cores) return;
    int first = 0;
    while (!(mask[first / 64] >> first % 64 & 1u)) first++;
    for (int cpu = first; cpu < first + cores && cpu < 64 * LS_CPU_WORDS; cpu++) mask[cpu / 64] |= 1ull << cpu % 64;
    (void)env->bind_cpus(mask, LS_CPU_WORDS);
}

void ls_local_place(int rank, int ranks, double cores)
{
    int first, count;
    if (!(cores >= 1) || ranks < 2) return;
    take_all((int)cores);
    ls_team_cores(rank, ranks, (int)cores, &first, &count);
    if (count > 0 && ls_local_is_bound(ranks, cores)) (void)ls_cores_stay_on(first, count);
}

/* Whether this thread's core does nothing else for a moment. */
static bool is_alone(void)
{
    const ls_env *env = ls_env_get();
    const uint64_t from = env->mono_ns(), cpu = env->thread_cpu_ns();
    while (env->mono_ns() - from < MOMENT_NS) continue;
    return (double)(env->thread_cpu_ns() - cpu) > 0.9 * MOMENT_NS;
}

ls_status ls_local_await_cores(ls_world *w, int ranks, double cores)
{
    int32_t alone = cores < ranks;
    for (int i = 0; i < MOMENTS && !alone; i++) {
        const int32_t mine = is_alone();
        LS_TRY(ls_all_reduce(ls_world_group(w), &mine, &alone, 1, LS_I32, LS_MIN));
    }
    return LS_OK;
}

static ls_status start_processes(local_rank *t, int size, int *started)
{
    for (; *started < size; ++*started) {
        const int pid = t->env->fork(run_rank, &t[*started]);
        if (pid < 0) return ls_fail(LS_SYSTEM, "process for rank %d of %d could not be started: %s", *started, size,
                                    strerror(-pid));
        t[*started].pid = pid;
    }
    return LS_OK;
}

static void give_up(local_rank *t, ls_status st)
{
    ls_page_abort(t->host->page, LS_ABORT_BY_LAUNCHER, st, ls_last_error());
}

/* Whether it has ended. If it did not get to the end of run_rank, nothing says so but this. */
static bool has_ended(local_rank *t)
{
    int code;
    if (!t->pid) return true;
    const ls_child_state s = t->env->child_poll(t->pid, &code);
    if (s != LS_CHILD_EXITED && s != LS_CHILD_SIGNALED) return false;
    if (!atomic_load_explicit(&t->returned, memory_order_acquire))
        give_up(t, ls_fail(LS_RANK_DIED, "the process of rank %d ended by %s %d", t->rank,
                           s == LS_CHILD_SIGNALED ? "signal" : "exit status", code));
    t->pid = 0;
    return true;
}

/* Once the job has failed, or takes too long, those that are left are killed after a while. */
static void join_processes(local_rank *t, int started)
{
    const ls_env *env = t->env;
    const uint64_t begin = env->mono_ns();
    uint64_t until = 0;
    for (bool running = started > 0; running;) {
        running = false;
        for (int r = 0; r < started; r++)
            if (!has_ended(&t[r])) running = true;
        const uint64_t now = env->mono_ns();
        if (running && until == 0 && now - begin > MOST_NS)
            give_up(t, ls_fail(LS_RANK_HUNG, "processes that measure have not ended after %llu s",
                               (unsigned long long)(MOST_NS / 1000000000u)));
        const bool failed = atomic_load_explicit(&t->host->page->abort_by, memory_order_acquire) != 0;
        if (failed && until == 0) until = now + AFTER_NS;
        for (int r = 0; failed && now > until && r < started; r++)
            if (t[r].pid) (void)env->kill(t[r].pid, SIGKILL);
        if (running) env->wait(NULL, 0, NULL, 0, now + POLL_NS);
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

ls_status ls_local_run(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg, bool threads)
{
    const ls_env *env = ls_env_get();
    if (size < 1 || size > LS_HOST_MOST_RANKS)
        return ls_fail(LS_INVALID, "%d ranks: expected 1 to %d, since each looks at the memory of all others", size,
                       LS_HOST_MOST_RANKS);
    if (opts && (opts->size || opts->bind))
        return ls_fail(LS_INVALID, "size and bind of ls_world_opts are for ls_world_join: leave them out, since these "
                                   "ranks are numbered here");
    ls_status st = LS_OK;
    struct ls_store_server *server = NULL;
    void *ranks = NULL;
    const size_t nbytes = (size_t)size * sizeof(local_rank);
    if (!threads) LS_TRY(ls_local_alloc(nbytes, nbytes, &ranks));
    local_rank *t = threads ? calloc(1, nbytes) : ranks;
    ls_thread_host *host = calloc(1, sizeof *host);
    if (host) host->arena = calloc((size_t)size, sizeof(ls_arena *));
    size_t arena = opts && opts->arena_bytes ? opts->arena_bytes : LS_WORLD_ARENA_BYTES;
    int started = 0, fd = -1;
    char name[64];
    if (!t || !host || !host->arena) {
        st = ls_fail(LS_NO_MEMORY, "%d ranks", size);
        goto done;
    }
    host->size = size;
    host->processes = !threads;
    if ((st = ls_page_create(size, LS_STORE_GENERATION, &host->page, &fd)) < 0) goto done;
    for (int r = 0; r < size; r++) {
        const size_t own = opts && opts->arena_of ? opts->arena_of[r] : arena;
        if ((st = ls_arena_create(own, true, NULL, &host->arena[r])) < 0) goto done;
    }

    random_name(name, sizeof name);
    host->store_name = name;
    env->random(host->secret, sizeof host->secret);
    ls_store_config c = { .unix_name = name, .nranks = size, .page_fd = -1, .page = host->page };
    memcpy(c.secret, host->secret, sizeof c.secret);
    if (size > 1 && (st = ls_store_serve(&c, NULL, NULL, &server)) < 0) goto done;

    for (int r = 0; r < size; r++)
        t[r] = (local_rank){ .host = host, .opts = opts, .fn = fn, .arg = arg, .rank = r, .env = env,
                             .log_level = ls_context_get()->log_level };
    st = threads ? start_threads(t, size, &started) : start_processes(t, size, &started);
    if (st < 0) ls_page_abort(host->page, LS_ABORT_BY_LAUNCHER, st, ls_last_error());
    if (threads) join_threads(t, started);
    else join_processes(t, started);
    if (st == LS_OK) st = verdict(t, size, host->page);
done:
    ls_store_serve_stop(server);
    if (host) {
        for (int r = 0; host->arena && r < size; r++) ls_arena_destroy(host->arena[r]);
        free(host->arena);
        if (host->page) env->unmap(host->page, ls_page_bytes(size));
    }
    if (fd >= 0) env->close_fd(fd);
    free(host);
    if (threads) free(t);
    else ls_local_free(ranks, nbytes);
    return st;
}

ls_status ls_world_threads(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    return ls_local_run(size, opts, fn, arg, true);
}
