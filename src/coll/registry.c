/* registry.c -- the list of algorithms, and the collectives' names.
 *
 * The prover's test, the executor's test and `lockstep coll --list` walk this
 * list, so a line here is all that a new algorithm needs.
 */
#include <string.h>

#include "coll/algos.h"

const ls_algo *const ls_algos[] = {
    &ls_algo_ring, &ls_algo_direct, &ls_algo_oneshot, &ls_algo_fold, &ls_algo_tree, &ls_algo_dissemination, NULL,
};

const ls_algo *ls_algo_find(const char *name)
{
    for (size_t i = 0; ls_algos[i]; i++)
        if (strcmp(ls_algos[i]->name, name) == 0) return ls_algos[i];
    return NULL;
}

static const char *const coll_names[LS_COLLS] = {
    [LS_ALL_REDUCE] = "all_reduce", [LS_REDUCE_SCATTER] = "reduce_scatter",
    [LS_ALL_GATHER] = "all_gather", [LS_BROADCAST] = "broadcast",
    [LS_REDUCE] = "reduce",         [LS_GATHER] = "gather",
    [LS_SCATTER] = "scatter",       [LS_ALL_TO_ALL] = "all_to_all",
    [LS_BARRIER] = "barrier",       [LS_SENDRECV] = "sendrecv",
};

const char *ls_coll_name(ls_coll c) { return (unsigned)c < LS_COLLS ? coll_names[c] : "?"; }

ls_coll ls_coll_find(const char *name)
{
    for (int c = 0; c < LS_COLLS; c++)
        if (strcmp(coll_names[c], name) == 0) return (ls_coll)c;
    return LS_COLLS;
}
