/* probe_demo.c -- the demo of examples/, whose program this is, and then what it has computed. */
#include <stdlib.h>

#include "probe.h"

int demo_main(void);
#define main demo_main
#include "../../examples/demo_ddp_concepts.c"
#undef main

static ls_status adds(ls_world *w, void *arg)
{
    replicas *x = arg;
    const int rank = ls_world_rank(w);
    return ls_all_reduce(ls_world_group(w), x->grad[rank], x->mean[rank], GRADS, LS_F32, LS_SUM);
}

ls_status demo(const char *word)
{
    replicas x = { 0 };
    double mean[GRADS], by_hand[GRADS] = { 0 };
    LS_TRY(show_sampler());
    LS_TRY(show_all_reduce(&x));
    if (strcmp(word, "sum") == 0) LS_TRY(ls_world_threads(RANKS, NULL, adds, &x));
    LS_TRY(show_sync(&x));
    for (int i = 0; i < GRADS; i++) {
        mean[i] = (double)x.mean[RANKS - 1][i];
        for (int r = 0; r < RANKS; r++) by_hand[i] += (double)x.grad[r][i] / RANKS;
    }
    printf("{");
    print_list("mean", mean, GRADS);
    printf(", ");
    print_list("by_hand", by_hand, GRADS);
    for (int r = 0; r < RANKS; r++) printf("%s\"%s\"", r ? ", " : ", \"digests\": [", x.digest[r]);
    printf("]}\n");
    return LS_OK;
}
