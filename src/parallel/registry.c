/* registry.c -- the data parallel strategies, and which one a configuration means. */
#include "parallel/strategy.h"

#define ADDRESS(file) &ls_dp_##file,
static const ls_dp_strategy *const strategies[] = { LS_DP_STRATEGIES(ADDRESS) };
#define NSTRATEGIES ((int)(sizeof strategies / sizeof *strategies))

int ls_ddp_most_stage(void) { return strategies[NSTRATEGIES - 1]->last_stage; }

bool ls_ddp_shards(const ls_ddp_config *c)
{
    const ls_dp_strategy *s;
    return ls_dp_strategy_find(c, &s) == LS_OK && s->shards;
}

ls_status ls_dp_strategy_find(const ls_ddp_config *c, const ls_dp_strategy **out)
{
    const int stage = c ? c->zero_stage : 0;
    *out = NULL;
    for (int i = 0; i < NSTRATEGIES; i++)
        if (stage >= strategies[i]->first_stage && stage <= strategies[i]->last_stage) *out = strategies[i];
    if (*out) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "ZeRO stage %d is not implemented, only 0%s%d", stage,
                   ls_ddp_most_stage() == 1 ? " and " : " to ", ls_ddp_most_stage());
}
