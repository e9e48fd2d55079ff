/* consumer.c -- somebody's program against an installed Lockstep, as C17 and as C++17: it names every public function
 * and object (all.inc is made of the list of exports), and two ranks sum what they have. */
#include <stdio.h>
#include <string.h>

#include "lockstep/lockstep.h"
#include "lockstep/plan.h"

#define NAME(name) (void *)&name,
static void *const all[] = {
#include "all.inc"
    NULL
};

static ls_status rank(ls_world *w, void *arg)
{
    float *sums = (float *)arg, mine = (float)(ls_world_rank(w) + 1);
    return ls_all_reduce(ls_world_group(w), &mine, &sums[ls_world_rank(w)], 1, LS_F32, LS_SUM);
}

int main(void)
{
    size_t n = 0;
    float sums[2] = { 0, 0 };
    while (n + 1 < sizeof all / sizeof *all && all[n]) n++;
    ls_status st = ls_world_threads(2, NULL, rank, sums);
    if (st < 0) fprintf(stderr, "consumer: %s\n", ls_last_error());
    printf("version %.5s of %s, %zu names, sums %g %g\n", ls_version(), LS_VERSION, n, (double)sums[0], (double)sums[1]);
    return ls_status_exit_code(st);
}
