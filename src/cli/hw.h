/* hw.h -- the parts of a machine as hwloc finds them: sockets, NUMA nodes, caches, cores and their threads.
 *
 * hwloc knows where each system keeps this, and it also reads machines that are not this one: its own variables
 * HWLOC_XMLFILE (what `lstopo FILE.xml` saved there) and HWLOC_SYNTHETIC ("package:2 l3:1 core:8 pu:2") name one.
 */
#ifndef LS_CLI_HW_H
#define LS_CLI_HW_H
#include <stdbool.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef enum ls_hw_kind {
    LS_HW_CORE, LS_HW_L3, LS_HW_NUMA, LS_HW_SOCKET, LS_HW_KINDS
} ls_hw_kind;
const char *ls_hw_name(ls_hw_kind k); /* "numa" */

typedef struct ls_hw {
    bool here;           /* this machine, as far as this process may use it; false: one that a variable names */
    int threads;         /* hardware threads: what a system counts as CPUs */
    struct {
        int n;           /* parts of this kind that have threads; 0: unknown */
        bool even;       /* each has equally many threads */
    } part[LS_HW_KINDS];
    int64_t cache[3];    /* bytes of one L1d, L2, L3; 0: unknown */
    uint64_t memory;     /* bytes of all NUMA nodes; 0: unknown */
} ls_hw;

/* LS_IO: hwloc cannot read the machine, or the file or description that a variable names. */
ls_status ls_hw_look(ls_hw *out);

#endif
