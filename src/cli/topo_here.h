/* topo_here.h -- this machine as a topology. */
#ifndef LS_CLI_TOPO_HERE_H
#define LS_CLI_TOPO_HERE_H
#include "lockstep/topo.h"

/* Usable cores are the devices; NUMA nodes join them if there are several. What a core sends another, and its latency,
 * are those that `lockstep calibrate` has measured, or the cost model's preset; LS_BAD_FILE as ls_cost_load. */
ls_status ls_topo_here(ls_topo *out);

#endif
