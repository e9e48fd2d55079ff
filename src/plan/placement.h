/* placement.h -- which axis of the mesh goes on which links.
 *
 * Ranks fill the devices of a cluster in order; an order of the axes says which one varies fastest, and so is on the
 * innermost links. There are at most 120 orders: all are evaluated.
 *
 * Bytes are those of collectives that cross a link as seldom as they can (hierarchical ones: within a unit first, then
 * one part per unit between units). With K units that have members, a unit sends, of a vector of S bytes,
 *
 *   all_reduce 2 (K-1)/K S      reduce_scatter, all_gather, gather, scatter (K-1)/K S      broadcast, reduce S
 *   all_to_all g S (n-g)/n      of g members in the unit, n in the group
 *   messages   what members send to a partner in another unit
 *
 * and within a node a device sends the same with K = the members in its node. Where adapters are divided among devices
 * (rails) a member sends its g-th part by its own. So `bound_s`, the time of the busiest link or of the products,
 * whichever is longer, is a time that no schedule of this placement's calls goes below while they have to cross links
 * like that; `serial_s` adds all up: nothing overlaps, and each call takes the latency of ceil(log2 n) steps besides.
 */
#ifndef LS_PLAN_PLACEMENT_H
#define LS_PLAN_PLACEMENT_H
#include "base/text.h"
#include "lockstep/topo.h"
#include "plan/step_traffic.h"

#define LS_PLACEMENT_ORDERS 120

/* Of one kind of collective. */
typedef struct ls_placed_row {
    int level;                           /* the highest that it crosses */
    double bytes[LS_TOPO_MOST_LEVELS];   /* per step that the busiest unit sends through its ports at a level, */
    double seconds[LS_TOPO_MOST_LEVELS]; /* and how long that takes, or that of the busiest adapter */
    double latency_s;
    double rate;                         /* of a pair at `level`, bytes per second */
    double serial_s;                     /* all of `seconds`, and the latency */
} ls_placed_row;

typedef struct ls_placement {
    int order[LS_AXES], n; /* axes with several ranks, the fastest first */
    ls_placed_row row[LS_STEP_ROWS];
    double bytes[LS_TOPO_MOST_LEVELS], seconds[LS_TOPO_MOST_LEVELS]; /* the same of all rows together */
    double total[LS_TOPO_MOST_LEVELS]; /* bytes that all units together send at a level */
    double compute_s; /* products of a step at the device's peak; 0 if that is unknown */
    double bound_s, serial_s;
} ls_placement;

/* The configuration's order (parallel.order), of the axes that have several ranks. */
void ls_placement_usual(const ls_step_traffic *x, ls_placement *out);
/* "pp-dp-tp", the slowest first, as parallel.order has it; axes with one rank may be left out. LS_USAGE says what is wrong. */
ls_status ls_placement_order(const ls_step_traffic *x, const char *text, ls_placement *out);
/* The other way round. Returns buf. */
const char *ls_placement_order_text(const ls_placement *p, char *buf, size_t n);

/* The device of a rank with these coordinates; how many ranks apart two neighbours along each axis are. */
void ls_placement_strides(const ls_step_traffic *x, const ls_placement *p, int64_t stride[LS_AXES]);

/* The highest level at which two ranks that differ along this axis alone meet. */
int ls_placement_reach(const ls_topo *t, const ls_step_traffic *x, const ls_placement *p, ls_axis axis);

/* Fills in the rest of p, whose order is set. LS_BAD_CONFIG: the ranks do not fit. */
ls_status ls_placement_evaluate(const ls_topo *t, const ls_step_traffic *x, ls_placement *p);
/* All orders, the usual one first: of equal serial times the one with the lower bound, then the first. `all` gets them,
 * up to LS_PLACEMENT_ORDERS; *n how many there are, *best which is best. */
ls_status ls_placement_search(const ls_topo *t, const ls_step_traffic *x, ls_placement *all, int *n, int *best);

/* All calls of groups that span the same axes. */
typedef struct ls_placed_axes {
    unsigned axes;
    double calls, bytes; /* of ls_step_row */
    int level;           /* as in ls_placed_row */
    double rate;
} ls_placed_axes;

/* Groups that call more often and send more bytes than others cross slower links than those; and in a faster order they
 * do not. */
typedef struct ls_placement_warning {
    ls_placed_axes often, seldom;
    const ls_placement *better; /* of `all`: the fastest such order */
} ls_placement_warning;
#define LS_PLACEMENT_WARNINGS (LS_STEP_ROWS * LS_STEP_ROWS)
/* Into out[LS_PLACEMENT_WARNINGS], or only counted (NULL); `all` and n are from ls_placement_search. */
int ls_placement_warnings(const ls_step_traffic *x, const ls_placement *p, const ls_placement *all, int n,
                          ls_placement_warning *out);

/* --- placement_print.c -------------------------------------------------------------------------------------------- */

typedef struct ls_placement_report {
    const ls_topo *t;
    const ls_step_traffic *x;
    const ls_placement *judged, *best, *naive, *all;
    int n;
    bool asked; /* `judged` was asked for; else it is the runtime's */
} ls_placement_report;
void ls_placement_print(const ls_placement_report *r, ls_text *out);
void ls_placement_json(const ls_placement_report *r, ls_text *out);

#endif
