/* registry.c -- the list of algorithms.
 *
 * The prover's test, the executor's test and `lockstep coll --list` walk this
 * list, so a line here is all that a new algorithm needs beside its file.
 */
#include <string.h>

#include "base/limits.h"
#include "coll/algos.h"

/* The algorithms: a line each, in the order in which `lockstep coll --list` names them. */
#define ALGORITHMS(algo)     \
    algo(ring)               \
    algo(ring_gloo)          \
    algo(direct)             \
    algo(oneshot)            \
    algo(fold)               \
    algo(recursive_doubling) \
    algo(halving_doubling)   \
    algo(tree)               \
    algo(double_tree)        \
    algo(chain)              \
    algo(hierarchical)       \
    algo(dissemination)      \
    algo(linear)             \
    algo(pairwise)           \
    algo(bruck)              \
    algo(master)

#define DECLARED(name) extern const ls_algo ls_algo_##name;
#define LISTED(name) &ls_algo_##name,

ALGORITHMS(DECLARED)
const ls_algo *const ls_algos[] = { ALGORITHMS(LISTED) NULL };

const ls_algo *ls_algo_find(const char *name)
{
    for (size_t i = 0; ls_algos[i]; i++)
        if (strcmp(ls_algos[i]->name, name) == 0) return ls_algos[i];
    return NULL;
}

static ls_status add(const char *coll_name, const char *name, const ls_algo **by)
{
    const ls_algo *algo = ls_algo_find(name);
    ls_coll coll = coll_name ? ls_coll_find(coll_name) : LS_COLLS;
    if (!algo) return ls_fail(LS_BAD_CONFIG, "no algorithm named '%s': `lockstep coll --list` names them", name);
    if (coll_name && coll == LS_COLLS)
        return ls_fail(LS_BAD_CONFIG, "no collective named '%s', for algorithm %s", coll_name, name);
    if (coll_name && !(algo->colls & 1u << coll))
        return ls_fail(LS_BAD_CONFIG, "algorithm '%s' does not do %s: `lockstep coll --list` shows which do", name,
                       coll_name);
    for (int c = 0; c < LS_COLLS; c++)
        if (coll_name ? c == (int)coll : (algo->colls >> c & 1u) != 0) by[c] = algo;
    return LS_OK;
}

ls_status ls_algo_parse(const char *text, const ls_algo **by)
{
    char copy[LS_ALGO_MAX_TEXT + 1];
    size_t n = strlen(text);
    for (int c = 0; c < LS_COLLS; c++) by[c] = NULL;
    if (n > LS_ALGO_MAX_TEXT)
        return ls_fail(LS_BAD_CONFIG, "names of algorithms: %zu bytes, at most %d", n, LS_ALGO_MAX_TEXT);
    memcpy(copy, text, n + 1);
    for (char *at = copy, *end; at && *at; at = end) {
        if ((end = strchr(at, ','))) *end++ = 0;
        char *name = strchr(at, '=');
        if (name) *name++ = 0;
        LS_TRY(add(name ? at : NULL, name ? name : at, by));
    }
    return LS_OK;
}
