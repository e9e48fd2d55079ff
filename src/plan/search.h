/* search.h -- what the two files of the search share.
 *
 * Layouts that differ only in schedule, recomputation, ZeRO stage and the place of dp and pp are a node of the search:
 * they share the time of a layer, and a lower bound of time and memory. Nodes are visited in the order of their bounds,
 * in rounds of a fixed number: within a round each compares with what was known before it, so threads change nothing.
 */
#ifndef LS_PLAN_SEARCH_H
#define LS_PLAN_SEARCH_H
#include "plan/problem.h"
#include "plan/stage_memory.h"

enum {
    LS_SEARCH_ROUND = 128,
    LS_DIVISORS = 256,        /* a number up to LS_TOPO_MOST_DEVICES has at most 240, */
    LS_BATCH_DIVISORS = 2048, /* and one up to 2^31 at most 1536 */
};

typedef struct ls_search_layers {
    ls_layer_cost cost;
    ls_layer_memory memory;
} ls_search_layers;

typedef struct ls_search_node {
    ls_layout at;     /* t p c e d micro t_in c_in e_in */
    uint32_t layers;  /* index */
    double bound; /* of the objective */
    size_t order;
    bool too_large;   /* whatever the rest */
} ls_search_node;

/* Schedules of so many stages, with the stages that differ: of equal ones the first, which has most in flight. */
typedef struct ls_search_stages {
    int64_t p;
    int n;
    ls_schedule schedule[LS_SCHEDULES];
    struct ls_search_shapes { int n, rank[8]; ls_stage_shape shape[8]; } shapes[LS_SCHEDULES];
} ls_search_stages;

typedef struct ls_search_visit {
    int64_t evaluated, too_large;
    bool found;
    double value, second; /* of best */
    ls_layout_cost best;
} ls_search_visit;

typedef struct ls_search {
    ls_problem b;
    ls_search_node *nodes;
    size_t n, cap;
    int64_t divisor[LS_DIVISORS]; /* of the world */
    int ndivisors;
    int64_t micro[LS_BATCH_DIVISORS]; /* divisors of the batch */
    int nmicros;
    ls_search_layers *layer;
    size_t nlayers, caplayers;
    ls_search_stages *stage;
    int nstage;
    ls_search_visit round[LS_SEARCH_ROUND];
    size_t first; /* of the round */
    double limit[LS_SEARCH_ROUND];
} ls_search;

/* All legal layouts as nodes; counts of `out` that do not depend on visits. */
ls_status ls_search_nodes(ls_search *s, ls_layouts *out);
const ls_search_stages *ls_search_stages_find(const ls_search *s, int64_t p);
/* Ways to fill the rest of a node of the cluster with ranks of dp and pp. */
int64_t ls_search_places(const ls_search *s, const ls_layout *l);
/* Layouts of a node: places x schedules x recomputation x ZeRO stages. */
int64_t ls_search_leaves(const ls_search *s, const ls_layout *l, const ls_search_stages *st);

#endif
