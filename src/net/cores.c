/* cores.c -- how many CPUs the ranks of this host have together, and each of them. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/world.h"

#define MASK_WORDS 128 /* 8,192 CPUs */

typedef struct bound {
    uint64_t mask[MASK_WORDS];
} bound;

static int count(const bound *b)
{
    int n = 0;
    for (int i = 0; i < MASK_WORDS; i++) n += __builtin_popcountll(b->mask[i]);
    return n;
}

/* A launcher may bind every rank to CPUs of its own: together they have the union. */
static ls_status ask_all(ls_world *w, const bound *mine, bound *together)
{
    size_t n = (size_t)w->size;
    bound *all = calloc(n, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "CPUs of %d ranks", w->size);
    ls_status st = ls_world_exchange(w, "cpus", mine, sizeof *mine, all);
    for (int r = 0; r < w->size && st == LS_OK; r++)
        for (int i = 0; ls_world_is_local(w, r) && i < MASK_WORDS; i++) together->mask[i] |= all[r].mask[i];
    free(all);
    return st;
}

/* Left alone, the OpenMP of each rank starts a thread for every core, and they keep the cores busy waiting for one
 * another: a rank gets at most its share. `lockstep run` and users say how many by OMP_NUM_THREADS; that is for a
 * process, so ranks that are threads take their share of it all the same. */
static void share_openmp(const ls_world *w, int cpus)
{
    const ls_env *env = ls_env_get();
    int share = cpus / w->local_size, usable = env->cpus();
    if (share > usable) share = usable;
    if (share < 1) share = 1;
    void (*set_threads)(int) = NULL;
    int (*get_threads)(void) = NULL;
    void *set = env->symbol(NULL, "omp_set_num_threads"), *get = env->symbol(NULL, "omp_get_max_threads");
    if (!set || !get || (env->getenv("OMP_NUM_THREADS") && !w->threads)) return;
    memcpy(&set_threads, &set, sizeof set_threads); /* C has no cast for it */
    memcpy(&get_threads, &get, sizeof get_threads);
    if (get_threads() <= share) return;
    set_threads(share);
    ls_log(LS_LOG_INFO, "%d OpenMP thread%s for each of %d ranks on %d cores", share, share == 1 ? "" : "s",
           w->local_size, cpus);
}

ls_status ls_world_cores(ls_world *w, int *cpus)
{
    const ls_env *env = ls_env_get();
    *cpus = env->cpus();
    if (w->threads || w->local_size == 1) {
        share_openmp(w, *cpus);
        return LS_OK;
    }
    if (!w->by_hand) return ls_env_int("LOCKSTEP_CPUS", 1, 1 << 20, cpus); /* a bound rank sees only its own */
    bound mine, together = { { 0 } };
    if (env->cpu_mask(mine.mask, MASK_WORDS) < 0) memset(&mine, 0, sizeof mine);
    LS_TRY(ask_all(w, &mine, &together));
    bool limited = *cpus < count(&mine); /* by a control group, whose limit is everybody's */
    if (!limited && count(&together) > *cpus) *cpus = count(&together);
    share_openmp(w, *cpus);
    return LS_OK;
}
