/* debug.h -- what `lockstep bench` sees of a group, beside the public calls: how a collective was carried out, and how
 * one would be.
 */
#ifndef LS_GROUP_DEBUG_H
#define LS_GROUP_DEBUG_H
#include "coll/choose.h"
#include "coll/traffic.h"
#include "lockstep/group.h"

typedef struct ls_debug_group {
    const char *ran;       /* what carried out the last collective: an algorithm of the registry, or a form; "none" */
    int segments;          /* of its schedule: pieces of a share; 0: it was no schedule */
    bool alone;            /* it had nothing to do: a group of one */
    bool mapped;           /* every member's arena is mapped here */
    const int *node;       /* [size] which host each member is on, of */
    int nnodes;            /* so many, */
    const int *cores;      /* [nnodes] with so many cores for the group */
    size_t packed;         /* bytes of the arena to pack vectors of spans in; 0: nothing is packed */
    const char *transport;
    const char *cost_from; /* where the costs of the model are from */
    const char *asked;     /* LOCKSTEP_ALGO or comm.algo, "": none */
} ls_debug_group;

/* All that it points to is the group's. */
ls_debug_group ls_debug_look(const ls_group *g);

/* What this rank moves for a call that is carried out as the last collective was (LS_SENDRECV: as messages, of which
 * `in` is sent and `out` received). LS_UNSUPPORTED: nothing is known of that. */
ls_status ls_debug_traffic(ls_group *g, const ls_coll_args *a, ls_traffic *out);

/* How a call would be carried out: for people; by a schedule, all that could be chosen for it, fastest first:
 * out[LS_MAX_CHOICES], else *n is 0. */
ls_status ls_debug_explain(ls_group *g, const ls_coll_args *a, const char **about, ls_choice *out, int *n);

/* A form in memory that could carry out a call. */
typedef struct ls_debug_form {
    const char *name;
    bool chosen;         /* it would, where vectors are registered */
    bool private_memory; /* it is for vectors of which one is private; others are for registered ones */
    ls_traffic moved;    /* by this rank */
    double ns;           /* what that takes by the cost model, whose costs the group has */
} ls_debug_form;

/* All of them, in the same order on every rank: out[LS_DEBUG_FORMS]. *n is 0 where not all memory is mapped, for a
 * group of one and for LS_SENDRECV. */
#define LS_DEBUG_FORMS 6
ls_status ls_debug_forms(ls_group *g, const ls_coll_args *a, ls_debug_form *out, int *n);

#endif
