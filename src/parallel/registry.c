/* registry.c -- the data parallel strategies, by name and by stage. */
#include <string.h>

#include "base/text.h"
#include "parallel/strategy.h"

#define ADDRESS(file) &ls_dp_##file,
#define CHOICE(file) "|" #file
static const ls_dp_strategy *const strategies[] = { LS_DP_STRATEGIES(ADDRESS) NULL };
const char ls_dp_choices[] = "auto" LS_DP_STRATEGIES(CHOICE);
#define NSTRATEGIES ((int)(sizeof strategies / sizeof *strategies) - 1)

int ls_ddp_most_stage(void) { return strategies[NSTRATEGIES - 1]->last_stage; }

ls_status ls_dp_strategy_of(int stage, const ls_dp_strategy **out)
{
    *out = NULL;
    for (int i = 0; i < NSTRATEGIES && !*out; i++)
        if (ls_dp_strategy_has(strategies[i], stage)) *out = strategies[i];
    if (*out) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "ZeRO stage %d is not implemented, only 0%s%d", stage,
                   ls_ddp_most_stage() == 1 ? " and " : " to ", ls_ddp_most_stage());
}

static const ls_dp_strategy *find(const ls_dp_strategy *const *list, const char *name)
{
    while (list && *list && strcmp((*list)->name, name) != 0) list++;
    return list ? *list : NULL;
}

static void add_names(ls_text *out, const ls_dp_strategy *const *list)
{
    for (; list && *list; list++) ls_text_add(out, "%s%s", out->n ? ", " : "", (*list)->name);
}

ls_status ls_dp_strategy_find(const char *name, const ls_dp_strategy *const *own, const ls_dp_strategy **out)
{
    ls_text names = { 0 };
    *out = find(own, name);
    if (!*out) *out = find(strategies, name);
    if (*out) return LS_OK;
    add_names(&names, strategies);
    add_names(&names, own);
    const ls_status st = ls_fail(LS_BAD_CONFIG, "no data parallel strategy '%s': expected one of %s", name,
                                 ls_text_str(&names));
    ls_text_free(&names);
    return st;
}
