/* topo_here.h -- this machine as a topology. */
#ifndef LS_CLI_TOPO_HERE_H
#define LS_CLI_TOPO_HERE_H
#include "lockstep/topo.h"

/* Devices are the hardware threads that this process may use: cores, where a core has one. hwloc (cli/hw.h) says what
 * joins them: cores, L3 caches, NUMA nodes and sockets are levels where there are several, each with as many threads.
 * What a core sends another, and its latency, are those that `lockstep calibrate` has measured, or the cost model's
 * preset. The failures of ls_cost_load and ls_hw_look. */
ls_status ls_topo_here(ls_topo *out);

#endif
