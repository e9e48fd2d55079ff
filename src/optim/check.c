/* check.c -- the rules that settings of optimizers follow. */
#include "optim/optim.h"

#include <math.h>

ls_status ls_optim_check(const char *name, const ls_optim_rule *rule, int n)
{
    for (int i = 0; i < n; i++) {
        const double v = rule[i].value, below = rule[i].below;
        if (v >= 0.0 && isfinite(v) && (!(below > 0.0) || v < below)) continue;
        return ls_fail(LS_BAD_CONFIG, "%s: %s is %g, expected %s", name, rule[i].what, v,
                       below > 0.0 ? "in [0, 1)" : ">= 0");
    }
    return LS_OK;
}
