/* explain_roofline.c -- peaks, and the step that they bound. */
#include "cli/explain_roofline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/team.h"
#include "cli/planned.h"
#include "plan/roofline.h"
#include "plan/sheet.h"
#include "report/peak.h"

#define MEASURE_S 0.2
#define PEAKS_TEXT 640

/* --- peaks --------------------------------------------------------------------------------------------------- */

/* Ranks of one machine share its cores and its memory equally. All of its links are alike (topo_here.c). */
static ls_status local_peaks(const ls_explain_asked *a, ls_topo *t, ls_step_rates *r, char *from, size_t n)
{
    const int cpus = ls_env_get()->cpus(), each = cpus / a->size > 0 ? cpus / a->size : 1;
    const double crowded = fmin(1, (double)cpus / a->size);
    ls_peak peak = { .text = "--tflops" };
    if (r->flops_per_s <= 0) {
        LS_TRY(ls_peak_find(ls_train_dtype(&a->o.c), each, &peak));
        if (!(peak.gflops > 0))
            return ls_fail(LS_USAGE, "the peak of products is not known (%s): --tflops says it", peak.text);
        r->flops_per_s = 1e9 * peak.gflops * crowded;
    }
    const bool told = r->memory_bytes_per_s > 0;
    if (!told) {
        LS_TRY(ls_peak_memory(cpus, MEASURE_S, &r->memory_bytes_per_s));
        r->memory_bytes_per_s /= a->size;
    }
    t->level[0] = t->level[t->nlevels - 1];
    t->level[0].ports = 1;
    t->level[0].rails = false;
    t->nlevels = 1;
    snprintf(from, n, "%s; memory: %s; links: %s", peak.text, told ? "--memory-rate" : "measured now, shared by all ranks",
             t->source);
    return ls_topo_resize(t, a->size);
}

static ls_status cluster_peaks(const ls_explain_asked *a, const ls_topo *t, ls_step_rates *r, char *from, size_t n)
{
    const bool products = r->flops_per_s > 0, memory = r->memory_bytes_per_s > 0;
    if (!products) r->flops_per_s = t->device.flops_per_s;
    if (!memory) r->memory_bytes_per_s = ls_sheet_memory_rate(t->device.name);
    if (!(r->flops_per_s > 0))
        return ls_fail(LS_USAGE, "%s does not state the peak of its devices: --tflops says it", t->name);
    if (!(r->memory_bytes_per_s > 0))
        return ls_fail(LS_USAGE, "the memory rate of %s is not known: --memory-rate says it, in GB/s", t->device.name);
    const bool wide = !products && ls_train_dtype(&a->o.c) == LS_F32;
    snprintf(from, n, "products: %s%s; memory: %s; links: %s", products ? "--tflops" : t->device.name,
             products ? "" : wide ? ", 16 bits (train.dtype is f32, which is slower)" : ", 16 bits",
             memory ? "--memory-rate" : "its data sheet", t->source);
    return ls_topo_check_ranks(t, a->size);
}

/* --- the step ------------------------------------------------------------------------------------------------ */

static ls_status explain(const ls_explain_asked *a, const ls_topo *t, const ls_step_rates *rates, const char *from,
                         ls_text *out)
{
    const bool local = ls_cli_is_local(a->o.topology);
    ls_step_lists l = { 0 };
    ls_roofline r;
    ls_roofline_measured m = { .step_s = a->s.folder ? a->k.seconds : 0, .exposed_s = a->k.exposed_s,
                                     .hidden_s = a->k.hidden_s, .moved = (double)a->k.bytes };
    ls_status st = ls_step_lists_create(&a->o.c, a->size, local ? a->size : 1, rates, &l);
    if (st == LS_OK) st = ls_roofline_of(&l, rates, t, &r);
    if (st == LS_OK) st = ls_roofline_sensitivity(&a->o.c, &r);
    if (st == LS_OK && a->s.folder) st = ls_roofline_trace(&r, a->s.folder, &m);
    if (st == LS_OK) (a->o.json ? ls_roofline_json : ls_roofline_print)(&r, from, &m, out);
    free(m.op_s);
    ls_step_lists_free(&l);
    return st;
}

/* This machine says nothing about links between nodes. */
static ls_status check_nodes(const ls_explain_asked *a)
{
    for (int r = 1; a->node && r < a->size; r++)
        if (a->node[r] != a->node[0])
            return ls_fail(LS_USAGE, "%s was on several nodes, and local is one: --topology says how they are joined, a "
                           "preset or a file", a->s.folder);
    return LS_OK;
}

ls_status ls_explain_roofline(const ls_explain_asked *a, ls_text *out)
{
    ls_topo t;
    char from[PEAKS_TEXT] = "";
    ls_step_rates rates = { .flops_per_s = 1e12 * a->o.tflops, .memory_bytes_per_s = 1e9 * a->o.memory_rate };
    const bool local = ls_cli_is_local(a->o.topology);
    if (local) LS_TRY(check_nodes(a));
    LS_TRY(ls_cli_cluster(a->o.topology, 0, &t));
    LS_TRY(local ? local_peaks(a, &t, &rates, from, sizeof from)
                 : cluster_peaks(a, &t, &rates, from, sizeof from));
    return explain(a, &t, &rates, from, out);
}
