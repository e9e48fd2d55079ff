/* explain_layout_print.c -- a plan, rank by rank, as text and as JSON. */
#include <stdio.h>
#include <string.h>

#include "train/explain_layout.h"
#include "train/memory_units.h"

#define DEVICES_PER_LINE 8

typedef unsigned long long num; /* for printf */

/* --- text: axes and ranks ------------------------------------------------------------------------------------ */

static bool wide(const ls_explain_layout *l, int axis) { return l->plan.size[axis] > 1; }

static int naxes(const ls_explain_layout *l)
{
    int n = 0;
    for (int a = 0; a < LS_AXES; a++) n += wide(l, a);
    return n;
}

static int stride_of(const ls_explain_layout *l, int axis)
{
    int stride[LS_AXES];
    ls_mesh_strides(l->plan.size, l->plan.order, stride);
    return stride[axis];
}

/* The ranks that differ from `rank` along one axis alone: the first, the second, and the last. */
static const char *line_of(const ls_explain_layout *l, int rank, int axis, char *buf, size_t n)
{
    const int stride = stride_of(l, axis);
    const int size = l->plan.size[axis], first = rank - l->rank[rank].coord[axis] * stride;
    if (size == 2) snprintf(buf, n, "%d, %d", first, first + stride);
    else if (size == 3) snprintf(buf, n, "%d, %d, %d", first, first + stride, first + 2 * stride);
    else snprintf(buf, n, "%d, %d, .. %d", first, first + stride, first + (size - 1) * stride);
    return buf;
}

int ls_explain_crosses(const ls_explain_layout *l, int rank, ls_axis axis)
{
    const int stride = stride_of(l, (int)axis);
    int nodes = 0;
    const int first = rank - l->rank[rank].coord[axis] * stride;
    for (int i = 0; i < l->plan.size[axis]; i++) {
        int before = 0;
        while (before < i && l->node[first + before * stride] != l->node[first + i * stride]) before++;
        nodes += before == i;
    }
    return nodes;
}

static void add_axes(const ls_explain_layout *l, int rank, ls_text *out)
{
    char line[64], inputs[96], state[96];
    if (naxes(l) == 0) return;
    ls_text_add(out, "\naxes, the slowest first: inputs and model state that ranks along each divide\n");
    ls_text_add(out, "  %-4s %5s  %-14s %-50s %s\n", "axis", "size", "such ranks", "inputs", "model state");
    for (int i = 0; i < LS_AXES; i++) {
        const int a = (int)ls_mesh_axis(l->plan.order, i);
        if (!wide(l, a)) continue;
        (void)ls_explain_divides(l, (ls_axis)a, true, inputs, sizeof inputs);
        (void)ls_explain_divides(l, (ls_axis)a, false, state, sizeof state);
        ls_text_add(out, "  %-4s %5d  %-14s %-50s %s\n", ls_axis_name((ls_axis)a), l->plan.size[a],
                    line_of(l, rank, a, line, sizeof line), inputs, state);
    }
    for (int s = 0; s < l->stages; s++)
        ls_text_add(out, "%s%g%s", s ? ", " : "  layers of each stage of pp: ", l->layers[s], s + 1 < l->stages ? "" : "\n");
    const int nodes = ls_explain_crosses(l, rank, LS_AXIS_TP);
    if (nodes > 1)
        ls_text_add(out, "  warning: tp divides layers over %d nodes: collectives inside each layer cross the network. Put tp inside a node: "
                    "fewer nodes, or a smaller parallel.tp\n", nodes);
}

static void add_place(const ls_explain_layout *l, int rank, ls_text *out)
{
    ls_text_add(out, "%4d", rank);
    for (int a = 0; a < LS_AXES; a++)
        if (wide(l, a)) ls_text_add(out, " %s%d", ls_axis_name((ls_axis)a), l->rank[rank].coord[a]);
}

static void add_ranks(const ls_explain_layout *l, ls_text *out)
{
    ls_text_add(out, "\nranks: a node per line, its devices across\n");
    for (int node = 0; node < l->nnodes; node++) {
        int n = 0;
        for (int r = 0; r < l->size; r++) {
            if (l->node[r] != node) continue;
            if (n % DEVICES_PER_LINE == 0) {
                if (n > 0) ls_text_add(out, "\n           ");
                else ls_text_add(out, "  node %-4d", node);
            } else {
                ls_text_add(out, "  |");
            }
            add_place(l, r, out);
            n++;
        }
        ls_text_add(out, "\n");
    }
}

/* --- text: groups and what they call ------------------------------------------------------------------------- */

static void add_groups(const ls_explain_rank *r, int rank, ls_text *out)
{
    ls_text_add(out, "\ngroups of rank %d\n", rank);
    for (int k = 0; k < r->ngroups; k++) {
        const ls_explain_group *g = &r->group[k];
        if (g->size < 2 && r->ngroups > 1) continue;
        ls_text_add(out, "  %-24s %4d rank%s on %d node%s  %s\n", g->text, g->size, g->size == 1 ? " " : "s", g->nodes,
                    g->nodes == 1 ? " " : "s", g->role);
    }
}

static void add_calls(const ls_explain_layout *l, int rank, ls_text *out)
{
    const ls_explain_rank *r = &l->rank[rank];
    num calls = 0, moved = 0;
    ls_text_add(out, "\ncollectives of rank %d per step\n  %-20s %-14s %-30s %6s %14s %14s  when\n", rank, "group", "collective",
                "of", "calls", "vectors, bytes", "moved, bytes");
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        ls_text_add(out, "  %-20s %-14s %-30s %6llu %14llu %14llu%s  %s\n", r->group[k->group].text, ls_coll_name(k->coll),
                    k->what, (num)k->calls, (num)k->bytes, (num)k->moved, ls_explain_varies(l, k->coll) ? " at most" : "",
                    ls_explain_when(l, r, k));
        calls += k->calls;
        moved += k->moved;
    }
    ls_text_add(out, "  %-66s %6llu %14s %14llu\n", "total", calls, "", moved);
}

/* What a run has counted, and what the plan has: of every rank they are equal, or the command has failed. */
static void add_counted(const ls_explain_layout *l, int rank, ls_text *out)
{
    const ls_explain_rank *r = &l->rank[rank];
    if (l->step == 0) return;
    ls_text_add(out, "\ncounted by rank %d in step %lld             %6s %14s    by the plan: %6s %14s\n", rank, (long long)l->step,
                "calls", "bytes", "calls", "bytes");
    for (int k = 0; k < r->ngroups; k++)
        for (ls_coll c = 0; c < LS_COLLS; c++) {
            const ls_explain_group *g = &r->group[k];
            if (g->dry[c].calls == 0) continue;
            ls_text_add(out, "  %-20s %-20s %6llu %14llu  %s %6llu %14llu\n", g->text, ls_coll_name(c), (num)g->real[c].calls,
                        (num)g->real[c].moved, ls_explain_varies(l, c) ? "      at most:" : "              ", (num)g->dry[c].calls,
                        (num)g->dry[c].moved);
        }
    ls_text_add(out, "  the counters of all %d ranks are equal to the plan, group by group\n", l->size);
}

/* --- text: memory ------------------------------------------------------------------------------------------------ */

static bool same_memory(const ls_explain_rank *a, const ls_explain_rank *b)
{
    return memcmp(a->plan.bytes, b->plan.bytes, sizeof a->plan.bytes) == 0;
}

static void add_memory(const ls_explain_layout *l, ls_text *out)
{
    char who[32];
    size_t any[LS_MEM_KINDS] = { 0 };
    for (int r = 0; r < l->size; r++)
        for (int k = 0; k < LS_MEM_KINDS; k++) any[k] |= l->rank[r].plan.bytes[k];
    ls_text_add(out, "\nmemory per rank, bytes\n  %-12s", "");
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (any[k]) ls_text_add(out, " %14s", ls_memory_kind_name(k));
    ls_text_add(out, " %14s\n", "total");
    for (int r = 0, end; r < l->size; r = end) {
        for (end = r + 1; end < l->size && same_memory(&l->rank[r], &l->rank[end]); end++) {}
        if (end - r == 1) snprintf(who, sizeof who, "rank %d", r);
        else snprintf(who, sizeof who, "ranks %d-%d", r, end - 1);
        ls_text_add(out, "  %-12s", who);
        for (int k = 0; k < LS_MEM_KINDS; k++)
            if (any[k]) ls_text_add(out, " %14zu", l->rank[r].plan.bytes[k]);
        ls_text_add(out, " %14zu\n", l->rank[r].plan.total);
    }
}

void ls_explain_layout_text(const ls_explain_layout *l, int rank, ls_text *out)
{
    add_axes(l, rank, out);
    add_ranks(l, out);
    add_groups(&l->rank[rank], rank, out);
    add_calls(l, rank, out);
    add_counted(l, rank, out);
    add_memory(l, out);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void json_axes(const ls_explain_layout *l, ls_text *out)
{
    char words[96];
    const char *comma = "";
    ls_text_add(out, "\"axes\": [");
    for (int a = 0; a < LS_AXES; a++) {
        if (!wide(l, a)) continue;
        ls_text_add(out, "%s\n  {\"axis\": \"%s\", \"size\": %d, \"nodes\": %d, \"inputs\": ", comma, ls_axis_name((ls_axis)a),
                    l->plan.size[a], ls_explain_crosses(l, 0, (ls_axis)a));
        ls_json_string(out, ls_explain_divides(l, (ls_axis)a, true, words, sizeof words));
        ls_text_add(out, ", \"state\": ");
        ls_json_string(out, ls_explain_divides(l, (ls_axis)a, false, words, sizeof words));
        ls_text_add(out, "}");
        comma = ",";
    }
    ls_text_add(out, "]");
}

static void json_calls(const ls_explain_layout *l, const ls_explain_rank *r, int group, ls_text *out)
{
    const char *comma = "";
    ls_text_add(out, "\"calls\": [");
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        if (k->group != group) continue;
        ls_text_add(out, "%s\n      {\"coll\": \"%s\", \"of\": ", comma, ls_coll_name(k->coll));
        ls_json_string(out, k->what);
        ls_text_add(out, ", \"calls\": %llu, \"bytes\": %llu, \"moved\": %llu, \"at_most\": %s, \"when\": ", (num)k->calls,
                    (num)k->bytes, (num)k->moved, ls_explain_varies(l, k->coll) ? "true" : "false");
        ls_json_string(out, ls_explain_when(l, r, k));
        ls_text_add(out, ", \"exposed\": %s}", r->group[k->group].size > 1 && ls_explain_is_exposed(l, r, k) ? "true" : "false");
        comma = ",";
    }
    ls_text_add(out, "]");
}

static void json_counted(const ls_explain_layout *l, const ls_explain_group *g, ls_text *out)
{
    const char *comma = "";
    ls_text_add(out, ", \"counted\": ");
    if (l->step == 0) {
        ls_text_add(out, "null");
        return;
    }
    ls_text_add(out, "{");
    for (ls_coll c = 0; c < LS_COLLS; c++) {
        if (g->real[c].calls == 0) continue;
        ls_text_add(out, "%s\"%s\": {\"calls\": %llu, \"bytes\": %llu}", comma, ls_coll_name(c), (num)g->real[c].calls,
                    (num)g->real[c].moved);
        comma = ", ";
    }
    ls_text_add(out, "}");
}

static void json_elements(const char *name, const ls_explain_elements *e, ls_text *out)
{
    ls_text_add(out, "\"%s\": {\"model\": %llu, \"here\": %llu, \"updated_here\": %llu}", name, (num)e->whole, (num)e->here,
                (num)e->own);
}

static void json_rank(const ls_explain_layout *l, int rank, ls_text *out)
{
    const ls_explain_rank *r = &l->rank[rank];
    ls_text_add(out, "\n  {\"rank\": %d, \"node\": %d, \"place\": {", rank, l->node[rank]);
    for (int a = 0; a < LS_AXES; a++) ls_text_add(out, "%s\"%s\": %d", a ? ", " : "", ls_axis_name((ls_axis)a), r->coord[a]);
    ls_text_add(out, "},\n   ");
    json_elements("elements", &r->dense, out);
    ls_text_add(out, ", ");
    json_elements("expert_elements", &r->experts, out);
    ls_text_add(out, ",\n   \"memory\": {");
    for (int k = 0; k < LS_MEM_KINDS; k++)
        ls_text_add(out, "\"%s\": %zu, ", ls_mem_kind_name((ls_mem_kind)k), r->plan.bytes[k]);
    ls_text_add(out, "\"total\": %zu},\n   \"groups\": [", r->plan.total);
    for (int k = 0; k < r->ngroups; k++) {
        ls_text_add(out, "%s\n    {\"group\": ", k ? "," : "");
        ls_json_string(out, r->group[k].text);
        ls_text_add(out, ", \"role\": ");
        ls_json_string(out, r->group[k].role);
        ls_text_add(out, ", \"size\": %d, \"nodes\": %d, ", r->group[k].size, r->group[k].nodes);
        json_calls(l, r, k, out);
        json_counted(l, &r->group[k], out);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}");
}

void ls_explain_layout_json(const ls_explain_layout *l, ls_text *out)
{
    json_axes(l, out);
    ls_text_add(out, ",\n \"stage_layers\": [");
    for (int s = 0; s < l->stages; s++) ls_text_add(out, "%s%g", s ? ", " : "", l->layers[s]);
    ls_text_add(out, "],\n ");
    ls_explain_path_json(l, out);
    ls_text_add(out, ",\n \"nodes\": %d, \"counted_step\": ", l->nnodes);
    if (l->step) ls_text_add(out, "%lld", (long long)l->step);
    else ls_text_add(out, "null");
    ls_text_add(out, ", \"ranks\": [");
    for (int r = 0; r < l->size; r++) {
        if (r > 0) ls_text_add(out, ",");
        json_rank(l, r, out);
    }
    ls_text_add(out, "]");
}
