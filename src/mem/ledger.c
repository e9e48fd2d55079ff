/* ledger.c -- bytes by kind. */
#include "mem/ledger.h"

static const char *const names[LS_MEM_KINDS] = {
    [LS_MEM_PARAM] = "param", [LS_MEM_GRAD] = "grad", [LS_MEM_OPTIM] = "optim",
    [LS_MEM_ACT] = "act",     [LS_MEM_COMM] = "comm", [LS_MEM_DATA] = "data",
};

const char *ls_mem_kind_name(ls_mem_kind k) { return (unsigned)k < LS_MEM_KINDS ? names[k] : "?"; }

void ls_ledger_add(ls_ledger *l, ls_mem_kind k, size_t nbytes)
{
    if (!l) return;
    l->now[k] += nbytes;
    if (l->now[k] > l->peak[k]) l->peak[k] = l->now[k];
}

void ls_ledger_sub(ls_ledger *l, ls_mem_kind k, size_t nbytes)
{
    if (l) l->now[k] -= nbytes;
}
