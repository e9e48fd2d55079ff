/* des_links.h -- links as the event engine uses them: which ones a message takes, when they are free, what they carry.
 *
 * A layer has the ports of a level, one per unit of the level below, or with rails one per device; with rails and
 * oversubscription a second layer has what all ports of a unit carry together. A message between two places that meet
 * at level 0 takes the layers of level 0, one that meets at level m those of levels 1 to m, out and in.
 */
#ifndef LS_SIM_DES_LINKS_H
#define LS_SIM_DES_LINKS_H
#include "sim/des.h"

#define LS_DES_LAYERS (2 * LS_TOPO_MOST_LEVELS)

typedef struct ls_des_layer {
    int level;
    uint32_t each;      /* places that share a port */
    uint32_t unit_each; /* places of the unit whose failure this port has */
    uint32_t ports;
    double s_per_byte;  /* of a port, */
    double *slow;       /* owned, [ports]: where they differ; NULL */
    double *free;       /* owned, [2][ports]: from when on a port is free, out then in; NULL with LS_DES_FREE */
} ls_des_layer;

/* A message that shares links (des_fair.c). */
typedef struct ls_des_flow {
    double left, rate, ends; /* bytes, bytes per second; when the last byte leaves, if nothing changes */
    double latency;
    uint64_t key;
    uint32_t from, to, receiver, order;
} ls_des_flow;

typedef struct ls_des_links {
    ls_des_net net;
    uint32_t places;
    ls_des_layer layer[LS_DES_LAYERS];
    int nlayers;
    double latency_s[LS_TOPO_MOST_LEVELS];
    uint32_t devices[LS_TOPO_MOST_LEVELS]; /* places in a unit that level l makes */
    int nlevels;
    /* LS_DES_FAIR: */
    ls_des_flow *flow;  /* owned */
    uint32_t nflows, cap, order;
    double now;         /* for which `left` is */
    bool changed;       /* rates are to be computed anew */
    double *capacity;   /* owned, [ports of all layers, out and in]: scratch */
    uint32_t *users;    /* owned: likewise */
    bool *fixed;        /* owned, [cap] */
} ls_des_links;

/* LS_BAD_CONFIG: places that the topology does not have, a failure of a link that is not there; LS_INVALID: a rate or
 * latency out of range; LS_NO_MEMORY. */
ls_status ls_des_links_create(const ls_des_net *net, uint32_t places, ls_des_links *out);
void ls_des_links_free(ls_des_links *l);

/* Whether a message between two places that meet at this level takes links of the layer. */
bool ls_des_layer_taken(const ls_des_layer *a, int meet);
/* The level at which two places meet; they are not one. */
int ls_des_links_meet(const ls_des_links *l, uint32_t a, uint32_t b);
/* Seconds per byte of two places without other messages. */
double ls_des_links_pace(const ls_des_links *l, uint32_t a, uint32_t b, int meet);
/* LS_DES_FREE: a message of so many bytes from a to b, offered at t, whose times are multiplied by `factor`: when it
 * arrives. *port is when the sender's port is free. */
double ls_des_links_free_send(const ls_des_links *l, uint32_t a, uint32_t b, double t, double bytes, double factor,
                              double *port);
/* LS_DES_FIFO: the same; INFINITY: a link has failed for good. */
double ls_des_links_send(ls_des_links *l, uint32_t a, uint32_t b, double t, double bytes, double factor);

/* --- des_fair.c: LS_DES_FAIR ----------------------------------------------------------------------- */

/* A flow begins at t, no earlier than what was called before. LS_NO_MEMORY. */
ls_status ls_des_fair_begin(ls_des_links *l, const ls_des_flow *flow, double t, double bytes);
/* When the first flow ends if none begins before; INFINITY: there is none. */
double ls_des_fair_next(ls_des_links *l);
/* That flow, taken out. */
ls_des_flow ls_des_fair_end(ls_des_links *l);

#endif
