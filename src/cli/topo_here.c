/* topo_here.c -- this machine as a topology. */
#include "cli/topo_here.h"

#include <stdio.h>

#include "base/env.h"
#include "cli/doctor.h"
#include "coll/cost.h"

static double peak(void)
{
    char path[4096];
    ls_peaks p;
    double best = 0;
    if (ls_doctor_peaks(path, sizeof path, &p) != LS_OK) return 0;
    for (int i = 0; i < p.n; i++)
        if (p.row[i].threads == 1 && p.row[i].gflops > best) best = p.row[i].gflops;
    return best * 1e9;
}

ls_status ls_topo_here(ls_topo *out)
{
    ls_doctor d;
    ls_cost cost;
    char host[32] = "this machine", from[120] = "";
    LS_TRY(ls_cost_load(&cost, from, sizeof from));
    ls_doctor_look(&d);
    (void)ls_env_get()->hostname(host, sizeof host);
    const ls_link_cost *link = &cost.link[LS_LEVEL_MEMORY];
    const int cores = d.cores_usable > 0 ? d.cores_usable : 1;
    const int numa = d.numa_nodes > 1 && cores % d.numa_nodes == 0 ? d.numa_nodes : 1;
    const double rate = 1e9 / (link->beta_ns > 0 ? link->beta_ns : 1);
    *out = (ls_topo){ .nlevels = numa > 1 ? 2 : 1 };
    snprintf(out->name, sizeof out->name, "%s", host);
    snprintf(out->source, sizeof out->source, "usable cores and NUMA nodes of this system; rates and latencies: %.120s", from);
    snprintf(out->device.name, sizeof out->device.name, "core");
    out->device.flops_per_s = peak();
    out->device.memory_bytes = (double)d.available_bytes / cores;
    for (int l = 0; l < out->nlevels; l++) {
        ls_topo_level *v = &out->level[l];
        *v = (ls_topo_level){ .count = l == 0 ? cores / numa : numa, .bytes_per_s = rate,
                              .latency_s = 1e-9 * link->alpha_ns, .ports = l == 0 ? 1 : cores / numa, .rails = l > 0,
                              .oversubscription = 1 };
        snprintf(v->name, sizeof v->name, "%s", l == out->nlevels - 1 ? "machine" : "numa");
        snprintf(v->link, sizeof v->link, "memory");
    }
    return ls_topo_check(out);
}
