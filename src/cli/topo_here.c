/* topo_here.c -- this machine as a topology. */
#include "cli/topo_here.h"

#include <stdio.h>

#include "base/env.h"
#include "cli/doctor.h"
#include "cli/hw.h"
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

static void add_level(ls_topo *t, const char *name, int below, int units, int each, const ls_topo_level *like)
{
    ls_topo_level *v = &t->level[t->nlevels++];
    *v = *like;
    v->count = below / units;
    v->ports = each;
    v->rails = t->nlevels > 1;
    snprintf(v->name, sizeof v->name, "%s", name);
}

/* From the smallest parts to the machine: those that divide it evenly, and of parts that are the same threads the
 * largest. */
static void add_levels(ls_topo *t, const ls_hw *h, const ls_topo_level *like)
{
    int below = h->threads;
    for (int k = 0; k < LS_HW_KINDS; k++) {
        const int n = h->part[k].n;
        bool largest = n > 1 && n < below && below % n == 0 && h->part[k].even;
        for (int m = k + 1; m < LS_HW_KINDS; m++) largest &= h->part[m].n != n || !h->part[m].even;
        if (!largest) continue;
        add_level(t, ls_hw_name((ls_hw_kind)k), below, n, h->threads / below, like);
        below = n;
    }
    add_level(t, "machine", below, 1, h->threads / below, like);
}

ls_status ls_topo_here(ls_topo *out)
{
    const ls_env *env = ls_env_get();
    ls_hw h;
    ls_cost cost;
    char host[32] = "this machine", from[120] = "";
    LS_TRY(ls_cost_load(&cost, from, sizeof from));
    LS_TRY(ls_hw_look(&h));
    (void)env->hostname(host, sizeof host);
    if (h.here && env->cpus() < h.threads) { /* a cgroup's share of time says nothing about places */
        h = (ls_hw){ .here = true, .threads = env->cpus() };
    }
    const ls_link_cost *link = &cost.link[LS_LEVEL_MEMORY];
    const ls_topo_level like = { .link = "memory", .bytes_per_s = 1e9 / (link->beta_ns > 0 ? link->beta_ns : 1),
                                 .latency_s = 1e-9 * link->alpha_ns, .oversubscription = 1 };
    const int cores = h.part[LS_HW_CORE].n;
    const bool shared = cores > 0 && cores < h.threads; /* threads of a core share its units */
    *out = (ls_topo){ 0 };
    snprintf(out->name, sizeof out->name, "%s", h.here ? host : "hwloc's machine");
    snprintf(out->source, sizeof out->source, "sockets, NUMA nodes, caches and cores by hwloc; rates and latencies: %.120s",
             from);
    snprintf(out->device.name, sizeof out->device.name, "%s", shared ? "thread" : "core");
    out->device.flops_per_s = peak() * (shared ? (double)cores / h.threads : 1);
    out->device.memory_bytes = (double)(h.here ? env->mem_available() : h.memory) / h.threads;
    add_levels(out, &h, &like);
    return ls_topo_check(out);
}
