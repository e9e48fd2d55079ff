/* registry.c -- the list of algorithms.
 *
 * The prover's test, the executor's test and `lockstep coll --list` walk this
 * list, so a line here is all that a new algorithm needs.
 */
#include <string.h>

#include "coll/algos.h"

const ls_algo *const ls_algos[] = {
    &ls_algo_ring,
    &ls_algo_ring_gloo,
    &ls_algo_direct,
    &ls_algo_oneshot,
    &ls_algo_fold,
    &ls_algo_recursive_doubling,
    &ls_algo_halving_doubling,
    &ls_algo_tree,
    &ls_algo_double_tree,
    &ls_algo_chain,
    &ls_algo_hierarchical,
    &ls_algo_dissemination,
    &ls_algo_linear,
    &ls_algo_pairwise,
    &ls_algo_bruck,
    &ls_algo_master,
    NULL,
};

const ls_algo *ls_algo_find(const char *name)
{
    for (size_t i = 0; ls_algos[i]; i++)
        if (strcmp(ls_algos[i]->name, name) == 0) return ls_algos[i];
    return NULL;
}
