/* bench_join.c -- how long ranks that are threads take to join a world and to leave it, and what they hold meanwhile.
 *
 *   build/bench/bench_join [ranks]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/lockstep.h"
#include "median.h"

#define REPS 5

typedef struct times {
    uint64_t joined_ns, summed_ns; /* when the last rank had joined, and had its first sum */
    double resident;               /* then */
} times;

/* Resident bytes of this process. */
static double resident(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return (double)pages * 4096.0;
}

static ls_status rank(ls_world *w, void *arg)
{
    times *t = arg;
    const ls_env *env = ls_env_get();
    float x = 1;
    if (ls_world_rank(w) == 0) t->joined_ns = env->mono_ns();
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &x, 1, LS_F32, LS_SUM));
    if (x != (float)ls_world_size(w)) return ls_fail(LS_INTERNAL, "%g ranks, not %d", (double)x, ls_world_size(w));
    if (ls_world_rank(w) == 0) t->summed_ns = env->mono_ns(), t->resident = resident();
    return LS_OK;
}

int main(int argc, char **argv)
{
    const int only = argc > 1 ? atoi(argv[1]) : 0;
    printf("# median of %d, ms: until rank 0 has joined; its first all_reduce of 4 bytes; all ranks have left\n"
           "# KiB: resident, per rank\n", REPS);
    printf("%6s %10s %10s %10s %10s\n", "ranks", "join", "sum", "leave", "KiB");
    for (int n = only ? only : 2; n <= (only ? only : LS_HOST_MOST_RANKS); n *= 2) {
        double join[REPS], sum[REPS], leave[REPS], kib[REPS];
        for (int i = 0; i < REPS; i++) {
            times t = { 0 };
            const double before = resident();
            const uint64_t t0 = ls_env_get()->mono_ns();
            if (ls_world_threads(n, NULL, rank, &t) < 0) {
                fprintf(stderr, "bench_join: %s\n", ls_last_error());
                return 1;
            }
            const uint64_t t1 = ls_env_get()->mono_ns();
            join[i] = (double)(t.joined_ns - t0) * 1e-6;
            sum[i] = (double)(t.summed_ns - t.joined_ns) * 1e-6;
            kib[i] = (t.resident - before) / 1024.0 / n;
            leave[i] = (double)(t1 - t.summed_ns) * 1e-6;
        }
        printf("%6d %10.1f %10.1f %10.1f %10.0f\n", n, median(join, REPS), median(sum, REPS), median(leave, REPS),
               median(kib, REPS));
    }
    return 0;
}
