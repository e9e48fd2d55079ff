/* cores.c -- how many CPUs the ranks of this host have together, and each of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/team.h"
#include "net/world.h"

typedef struct bound {
    uint64_t mask[LS_CPU_WORDS];
} bound;

static int count(const bound *b)
{
    int n = 0;
    for (int i = 0; i < LS_CPU_WORDS; i++) n += __builtin_popcountll(b->mask[i]);
    return n;
}

/* A launcher may bind every rank to CPUs of its own: together they have the union. *same: each may use all of it. */
static ls_status ask_all(ls_world *w, const bound *mine, bound *together, bool *same)
{
    size_t n = (size_t)w->size;
    bound *all = calloc(n, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "CPUs of %d ranks", w->size);
    ls_status st = ls_world_exchange(w, "cpus", mine, sizeof *mine, all);
    for (int r = 0; r < w->size && st == LS_OK; r++)
        for (int i = 0; ls_world_is_local(w, r) && i < LS_CPU_WORDS; i++) together->mask[i] |= all[r].mask[i];
    *same = true;
    for (int r = 0; r < w->size && st == LS_OK; r++)
        if (ls_world_is_local(w, r) && memcmp(&all[r], together, sizeof *together) != 0) *same = false;
    free(all);
    return st;
}

int ls_cores_stay_on(int first, int count)
{
    const ls_env *env = ls_env_get();
    bound b, part = { { 0 } };
    int nth = 0, n = env->cpu_mask(b.mask, LS_CPU_WORDS);
    if (n < 0) return n;
    if (first < 0 || count < 1 || first + count > n) return -EINVAL;
    for (int cpu = 0; cpu < 64 * LS_CPU_WORDS; cpu++) {
        if (!(b.mask[cpu / 64] >> cpu % 64 & 1u)) continue;
        if (nth >= first && nth < first + count) part.mask[cpu / 64] |= 1ull << cpu % 64;
        nth++;
    }
    return env->bind_cpus(part.mask, LS_CPU_WORDS);
}

/* The local_rank-th of equal parts, as a launcher gives it where there are as many cores as ranks. If that fails, being
 * unbound is only slower. */
static ls_status bind_rank(ls_world *w, const bound *before, int cpus)
{
    const int each = cpus / w->local_size;
    if (each < 1 || ls_cores_stay_on(w->local_rank * each, each) < 0) return LS_OK;
    w->unbound = malloc(sizeof before->mask);
    if (!w->unbound) {
        (void)ls_env_get()->bind_cpus(before->mask, LS_CPU_WORDS);
        return ls_fail(LS_NO_MEMORY, "the CPUs of rank %d", w->rank);
    }
    memcpy(w->unbound, before->mask, sizeof before->mask);
    ls_team_end(); /* threads have the CPUs of the one that starts them */
    return LS_OK;
}

void ls_world_unbind(ls_world *w)
{
    if (w->unbound) {
        ls_team_end();
        (void)ls_env_get()->bind_cpus(w->unbound, LS_CPU_WORDS);
    }
    free(w->unbound);
    w->unbound = NULL;
}

/* "0-3,8" */
static void log_cpus(const ls_world *w)
{
    bound b;
    char text[200] = "";
    size_t at = 0;
    if (ls_context_get()->log_level < LS_LOG_INFO || ls_env_get()->cpu_mask(b.mask, LS_CPU_WORDS) < 0) return;
    for (int cpu = 0, first = -1; cpu <= 64 * LS_CPU_WORDS && at < sizeof text; cpu++) {
        const bool set = cpu < 64 * LS_CPU_WORDS && b.mask[cpu / 64] >> cpu % 64 & 1u;
        if (set && first < 0) first = cpu;
        if (set || first < 0) continue;
        const char *comma = at ? "," : "";
        if (first == cpu - 1) at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", comma, first);
        else at += (size_t)snprintf(text + at, sizeof text - at, "%s%d-%d", comma, first, cpu - 1);
        first = -1;
    }
    ls_log(LS_LOG_INFO, "device: CPUs %s; local rank %d of %d", text, w->local_rank, w->local_size);
}

/* Left alone, each rank would compute with a thread for every core: a rank gets at most cores / local ranks of them.
 * `lockstep run` and users say how many by OMP_NUM_THREADS; that is for a process, so ranks that are threads get the
 * same limit all the same. */
static void limit_threads(const ls_world *w, int cpus)
{
    const int usable = ls_team_share(ls_env_get()->cpus(), 1), equal = ls_team_share(cpus, w->local_size);
    const int share = equal < usable ? equal : usable;
    if (ls_team_told() && !w->threads) return;
    if (ls_team_resize(ls_team_size()) <= share) return; /* a process that was forked begins a team of its own */
    ls_team_resize(share);
    ls_log(LS_LOG_INFO, "%d thread%s for each of %d ranks on %d cores", share, share == 1 ? "" : "s", w->local_size, cpus);
}

/* Without a launcher. */
static ls_status cores_of_all(ls_world *w, int *cpus)
{
    const ls_env *env = ls_env_get();
    bound mine, together = { { 0 } };
    bool same = false;
    if (env->cpu_mask(mine.mask, LS_CPU_WORDS) < 0) memset(&mine, 0, sizeof mine);
    LS_TRY(ask_all(w, &mine, &together, &same));
    bool limited = *cpus < count(&mine); /* by a control group, whose limit is everybody's */
    if (!limited && count(&together) > *cpus) *cpus = count(&together);
    if (w->opts.bind && same) LS_TRY(bind_rank(w, &mine, *cpus));
    limit_threads(w, *cpus);
    return LS_OK;
}

int ls_world_cpus_here(void)
{
    const char *told = ls_env_get()->getenv("LOCKSTEP_CPUS");
    const long n = told ? strtol(told, NULL, 10) : 0;
    return n > 0 && n <= 1 << 20 ? (int)n : ls_env_get()->cpus();
}

ls_status ls_world_cores(ls_world *w, int *cpus)
{
    ls_status st = LS_OK;
    *cpus = ls_env_get()->cpus();
    if (w->threads || w->local_size == 1) limit_threads(w, *cpus);
    else if (w->by_hand) st = cores_of_all(w, cpus);
    else st = ls_env_int("LOCKSTEP_CPUS", 1, 1 << 20, cpus); /* a bound rank sees only its own */
    if (st == LS_OK) log_cpus(w);
    return st;
}
