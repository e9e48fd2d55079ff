/* place.c -- which ranks share a node, chosen by what a step sends. */
#include "cli/place.h"

#include <stdlib.h>
#include <string.h>

#include "lockstep/topo.h"
#include "plan/placement.h"

/* Two levels, the network 25 times as slow as a node: one cluster stands for all, so that all ranks choose alike. */
static ls_status nodes_of(int ranks, int nodes, ls_topo *out)
{
    LS_TRY(ls_topo_load("ethernet-2", out));
    out->level[0].count = ranks / nodes;
    return ls_topo_resize(out, nodes);
}

static ls_status choose(const ls_train_config *c, int ranks, int nodes, char *order, size_t n)
{
    ls_topo t;
    ls_step_traffic x;
    int found = 0, best = 0;
    ls_train_config in_order = *c;
    in_order.parallel.placement = "order";
    LS_TRY(nodes_of(ranks, nodes, &t));
    LS_TRY(ls_step_traffic_of(&in_order, ranks, &x));
    ls_placement *all = calloc(LS_PLACEMENT_ORDERS, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "%d orders", LS_PLACEMENT_ORDERS);
    const ls_status st = ls_placement_search(&t, &x, all, &found, &best);
    if (st == LS_OK && all[best].n) ls_placement_order_text(&all[best], order, n);
    free(all);
    return st;
}

ls_status ls_cli_place(ls_opts *o, const ls_train_config *c, int ranks, int nodes)
{
    char order[64] = "pp-dp-ep-cp-tp";
    if (strcmp(c->parallel.placement, "auto") != 0) return LS_OK;
    if (ls_opts_is_set(o, "parallel.order"))
        return ls_fail(LS_BAD_CONFIG, "parallel.placement auto chooses the order of the axes, and parallel.order %s is given (by %s): "
                       "leave one of them out", c->parallel.order, ls_opts_origin(o, "parallel.order"));
    if (nodes == 0)
        return ls_fail(LS_BAD_CONFIG, "parallel.placement auto: the launcher does not say how many ranks are on each node, or they "
                       "are not equally many: give parallel.order in its place");
    if (nodes > 1 && ranks % nodes != 0)
        return ls_fail(LS_BAD_CONFIG, "parallel.placement auto: %d ranks on %d nodes: expected equally many on each; give "
                       "parallel.order in its place", ranks, nodes);
    if (nodes > 1) LS_TRY(choose(c, ranks, nodes, order, sizeof order));
    LS_TRY(ls_opts_set(o, "parallel.order", order, "parallel.placement auto"));
    return ls_opts_set(o, "parallel.placement", "order", "parallel.placement auto");
}
