/* hw.c -- asking hwloc. */
#include "cli/hw.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

static const hwloc_obj_type_t type_of[LS_HW_KINDS] = {
    [LS_HW_CORE] = HWLOC_OBJ_CORE, [LS_HW_L3] = HWLOC_OBJ_L3CACHE, [LS_HW_NUMA] = HWLOC_OBJ_NUMANODE,
    [LS_HW_SOCKET] = HWLOC_OBJ_PACKAGE,
};

const char *ls_hw_name(ls_hw_kind k)
{
    static const char *const name[LS_HW_KINDS] = { "core", "l3", "numa", "socket" };
    return name[k];
}

static int threads_of(hwloc_topology_t t, hwloc_const_cpuset_t set)
{
    return hwloc_get_nbobjs_inside_cpuset_by_type(t, set, HWLOC_OBJ_PU);
}

/* Nodes of memory alone have no threads, and are no places for ranks. */
static void count(hwloc_topology_t t, ls_hw_kind k, ls_hw *out)
{
    int first = 0;
    out->part[k].even = true;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, type_of[k], o)) != NULL;) {
        const int threads = threads_of(t, o->cpuset);
        if (threads == 0) continue;
        if (out->part[k].n++ == 0) first = threads;
        out->part[k].even &= threads == first;
    }
    out->part[k].even &= out->part[k].n * first == out->threads; /* none is outside */
}

/* Leaves what this process may run on. */
static int restrict_to_own(hwloc_topology_t t)
{
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (!own) return -1;
    const int bound = hwloc_get_cpubind(t, own, HWLOC_CPUBIND_THREAD);
    const int failed = bound == 0 && !hwloc_bitmap_iszero(own) ? hwloc_topology_restrict(t, own, 0) : 0;
    hwloc_bitmap_free(own);
    return failed;
}

static void look(hwloc_topology_t t, ls_hw *out)
{
    static const hwloc_obj_type_t cache[] = { HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE };
    out->here = hwloc_topology_is_thissystem(t) != 0;
    if (out->here) (void)restrict_to_own(t);
    out->threads = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
    out->memory = hwloc_get_root_obj(t)->total_memory;
    for (int k = 0; k < LS_HW_KINDS; k++) count(t, (ls_hw_kind)k, out);
    for (int i = 0; i < 3; i++) {
        const hwloc_obj_t o = hwloc_get_next_obj_by_type(t, cache[i], NULL);
        out->cache[i] = o ? (int64_t)o->attr->cache.size : 0;
    }
}

/* What stands for the machine, in words. */
static const char *source(void)
{
    if (getenv("HWLOC_XMLFILE")) return "the file that HWLOC_XMLFILE names";
    return getenv("HWLOC_SYNTHETIC") ? "the description in HWLOC_SYNTHETIC" : "this machine";
}

/* hwloc takes this machine in place of a file or description that it cannot read. */
static bool is_replaced(void)
{
    return (getenv("HWLOC_XMLFILE") || getenv("HWLOC_SYNTHETIC")) && !getenv("HWLOC_THISSYSTEM");
}

ls_status ls_hw_look(ls_hw *out)
{
    hwloc_topology_t t;
    *out = (ls_hw){ 0 };
    if (hwloc_topology_init(&t) != 0) return ls_fail(LS_NO_MEMORY, "hwloc: the parts of this machine");
    const bool loaded = hwloc_topology_load(t) == 0;
    if (loaded) look(t, out);
    hwloc_topology_destroy(t);
    if (loaded && out->threads > 0 && (!out->here || !is_replaced())) return LS_OK;
    *out = (ls_hw){ 0 };
    return ls_fail(LS_IO, "hwloc finds no hardware threads in %s: expected a file that `lstopo FILE.xml` has saved, or a "
                   "description as \"package:2 l3:1 core:8 pu:2\"; or unset both variables", source());
}
