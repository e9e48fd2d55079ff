/* fuzz_plan_config.c -- config.json as sizes, on arbitrary bytes: an error, or a model whose costs are finite. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "plan/llm_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_llm m;
    const ls_status st = ls_llm_config_parse("fuzz", (const char *)p, n, &m);
    if (st == LS_BAD_FILE || st == LS_UNSUPPORTED || st == LS_BAD_CONFIG || st == LS_NO_MEMORY) return 0;
    if (st != LS_OK || ls_llm_check(&m) != LS_OK) abort();
    const int64_t all = ls_llm_params(&m), active = ls_llm_active_params(&m);
    if (all <= 0 || active > all) abort();
    for (int f = LS_FLOPS_FULL; f <= LS_FLOPS_SELECTIVE; f++)
        if (!(ls_llm_flops(&m, (ls_flops)f) > 0) || !isfinite(ls_llm_flops(&m, (ls_flops)f))) abort();
    return 0;
}
