/* topo.h -- a cluster as data: its devices, the levels of links that join them, and what each link carries.
 *
 * Devices are joined to nodes, nodes to racks, and so on: a tree of units. Level 0 joins devices, level 1 joins what
 * level 0 has made. At each level a unit of the level below has ports, which lead to a switch without limits of its
 * own, or whose limits `oversubscription` states. Two devices that meet at level 0 use the links of level 0 alone. Two
 * that meet higher up, at level m, use the links of levels 1 to m: network adapters stand beside the links within a
 * node, not after them.
 *
 * A bandwidth is that of one direction, in bytes (10^9 are a GB) per second. Data sheets give NVLink's as the sum of
 * both directions: a file says which of the two it states.
 */
#ifndef LS_TOPO_H
#define LS_TOPO_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_TOPO_NAME_BYTES  48
#define LS_TOPO_MOST_LEVELS 8
#define LS_TOPO_MOST_SLOW   64
#define LS_TOPO_MOST_DEVICES (1 << 20)

typedef struct ls_topo_level {
    char name[LS_TOPO_NAME_BYTES]; /* of a unit of this level: "node" */
    int count;                     /* units of the level below in each */
    char link[LS_TOPO_NAME_BYTES]; /* "NVLink 4" */
    double bytes_per_s;            /* of a port, one direction */
    bool summed;                   /* the file states both directions summed: twice that */
    double latency_s;              /* of a message between two devices that meet at this level */
    int ports;                     /* of each unit of the level below */
    bool rails;                    /* ports are divided among the devices of a unit; else each device may use all */
    double oversubscription;       /* all ports of a unit together carry ports x bytes_per_s / this; 1 and more */
} ls_topo_level;

/* One unit whose ports are slower than those of the others. */
typedef struct ls_topo_slow {
    int level;          /* at which its ports are */
    int64_t unit;       /* counted over the cluster, from 0 */
    double bytes_per_s; /* of a port, one direction: at most the level's */
} ls_topo_slow;

typedef struct ls_topo {
    char name[LS_TOPO_NAME_BYTES];
    char source[256]; /* where its numbers are from; "" */
    struct {
        char name[LS_TOPO_NAME_BYTES]; /* "H100 SXM" */
        double flops_per_s;            /* peak of dense 16-bit products; 0: unknown */
        double memory_bytes;           /* 0: unknown */
    } device;
    int nlevels, nslow;
    ls_topo_level level[LS_TOPO_MOST_LEVELS]; /* level[0] joins devices */
    ls_topo_slow slow[LS_TOPO_MOST_SLOW];
} ls_topo;

/* --- reading (docs/planner.md describes the file) ----------------------------------------------------------- */

/* A topology from YAML. `name` stands for the file in messages. LS_BAD_FILE names file, line and key: not YAML, a
 * quantity without a unit or of 0, a level that contains itself, a link that is not there, and what is above the
 * limits here. */
ls_status ls_topo_read(const char *name, const char *text, size_t n, ls_topo *out);
/* A file, or the preset of that name ("h100-8": recipes/clusters/h100-8.yaml). LS_IO: neither, with the presets. */
ls_status ls_topo_load(const char *name, ls_topo *out);
/* The same rules on a struct that a program has filled in. LS_INVALID. */
ls_status ls_topo_check(const ls_topo *t);
/* The highest level joins `count` units from now on. LS_BAD_CONFIG: below 1, or too many devices. */
ls_status ls_topo_resize(ls_topo *t, int64_t count);

/* --- queries ------------------------------------------------------------------------------------------------- */

/* Units that level `level` joins, in the whole cluster: devices at level 0. */
int64_t ls_topo_units(const ls_topo *t, int level);
int64_t ls_topo_devices(const ls_topo *t);
/* Devices in one of them: 1 at level 0. */
int64_t ls_topo_unit_devices(const ls_topo *t, int level);
/* The level at which two devices meet; -1: they are one. */
int ls_topo_meet(const ls_topo *t, int64_t a, int64_t b);
/* All ports of a unit at a level together, one direction, in bytes per second. */
double ls_topo_uplink(const ls_topo *t, int level, int64_t unit);
/* What one device of that unit gets of them if no other sends. */
double ls_topo_port(const ls_topo *t, int level, int64_t unit);
/* A pair of devices without other traffic; of a device with itself 0 s, at an infinite rate. */
void ls_topo_pair(const ls_topo *t, int64_t a, int64_t b, double *bytes_per_s, double *latency_s);
/* Bisection bandwidth of unit `unit` of level `level`: the least that one half of its units can send to the other, one
 * direction; of an odd number of units the smaller half is one unit smaller. In a fat tree of N devices with ports of
 * B bytes per second and oversubscription r, N B / (2 r). */
double ls_topo_bisection(const ls_topo *t, int level, int64_t unit);
/* LS_BAD_CONFIG: so many ranks, one on each device, do not fit; names what is there. */
ls_status ls_topo_check_ranks(const ls_topo *t, int64_t ranks);

#ifdef __cplusplus
}
#endif
#endif
