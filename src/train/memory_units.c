/* memory_units.c -- memory by unit: copied from a ledger, as a table, as JSON. */
#include "train/memory_units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[LS_MEM_KINDS] = {
    [LS_MEM_PARAM] = "parameters", [LS_MEM_GRAD] = "gradients",     [LS_MEM_OPTIM] = "optimizer",
    [LS_MEM_ACT] = "activations",  [LS_MEM_COMM] = "communication", [LS_MEM_DATA] = "data",
    [LS_MEM_CKPT] = "checkpoint copy",
};

const char *ls_memory_kind_name(int k) { return names[k]; }

ls_status ls_memory_units_copy(const ls_ledger *l, ls_memory_units *out)
{
    *out = (ls_memory_units){ 0 };
    if (l->nrows == 0) return LS_OK;
    const size_t nbytes = (size_t)l->nrows * sizeof *l->row;
    if (!(out->row = malloc(nbytes))) return ls_fail(LS_NO_MEMORY, "the memory of %d units", l->nrows);
    memcpy(out->row, l->row, nbytes);
    out->n = l->nrows;
    return LS_OK;
}

void ls_memory_units_free(ls_memory_units *u)
{
    free(u->row);
    *u = (ls_memory_units){ 0 };
}

size_t ls_memory_no_unit(const ls_memory_units *u, ls_mem_kind k, size_t total)
{
    for (int i = 0; i < u->n; i++) total -= u->row[i].peak[k];
    return total;
}

/* --- a table ----------------------------------------------------------------------------------- */

static void add_line(const ls_memory_plan *p, const char *name, const size_t bytes[LS_MEM_KINDS], ls_text *out)
{
    size_t total = 0;
    for (int k = 0; k < LS_MEM_KINDS; k++) total += bytes[k];
    if (total == 0) return; /* a root without parameters */
    ls_text_add(out, "%-22s", name);
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (p->bytes[k]) ls_text_add(out, "%15zu", bytes[k]);
    ls_text_add(out, "%15zu\n", total);
}

/* The first row after i that differs from it. */
static int next_other(const ls_memory_units *u, int i)
{
    int end = i + 1;
    while (end < u->n && memcmp(u->row[end].peak, u->row[i].peak, sizeof u->row[i].peak) == 0) end++;
    return end;
}

void ls_memory_units_table(const ls_memory_plan *p, const ls_memory_units *u, ls_text *out)
{
    size_t rest[LS_MEM_KINDS];
    ls_text_add(out, "memory per unit, bytes:\n%-22s", "");
    for (int k = 0; k < LS_MEM_KINDS; k++) {
        rest[k] = ls_memory_no_unit(u, (ls_mem_kind)k, p->bytes[k]);
        if (p->bytes[k]) ls_text_add(out, "%15s", ls_memory_kind_name(k));
    }
    ls_text_add(out, "%15s\n", "total");
    for (int i = 0, end; i < u->n; i = end) {
        char name[2 * LS_LEDGER_ROW_NAME + 16];
        end = next_other(u, i);
        if (end - i == 1) snprintf(name, sizeof name, "%s", u->row[i].name);
        else snprintf(name, sizeof name, "%s - %s, each", u->row[i].name, u->row[end - 1].name);
        add_line(p, name, u->row[i].peak, out);
    }
    add_line(p, "no unit", rest, out);
    add_line(p, "total", p->bytes, out);
}

/* --- JSON -------------------------------------------------------------------------------------- */

void ls_memory_units_json(const ls_memory_units *planned, size_t planned_total, const ls_memory_units *peak,
                          size_t peak_total, ls_mem_kind k, ls_text *out)
{
    ls_text_add(out, "{");
    for (int i = 0; i < planned->n; i++) {
        ls_json_string(out, planned->row[i].name);
        ls_text_add(out, ": [%zu, %zu], ", planned->row[i].peak[k], peak->row[i].peak[k]);
    }
    ls_text_add(out, "\"\": [%zu, %zu]}", ls_memory_no_unit(planned, k, planned_total),
                ls_memory_no_unit(peak, k, peak_total));
}
