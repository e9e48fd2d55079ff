/* lr.c -- the learning rate as a pure function of the step: the formulas stand at ls_lr in optim.h. */
#include <math.h>
#include <string.h>

#include "lockstep/optim.h"

#define PI 3.14159265358979323846

static const char *const names[] = { "constant", "linear", "cosine", "wsd" };

ls_status ls_lr_find(const char *name, ls_lr_kind *out)
{
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (name && strcmp(name, names[k]) == 0) {
            *out = (ls_lr_kind)k;
            return LS_OK;
        }
    return ls_fail(LS_BAD_CONFIG, "no learning rate schedule is named '%s': expected constant, linear, cosine or wsd",
                   name ? name : "");
}

ls_status ls_lr_scale(const char *how, int ranks, double *out)
{
    *out = 1.0;
    if (ranks < 1) return ls_fail(LS_INVALID, "a learning rate for %d ranks: expected at least 1", ranks);
    if (how && strcmp(how, "linear") == 0) *out = ranks;
    else if (how && strcmp(how, "sqrt") == 0) *out = sqrt((double)ranks);
    else if (!how || strcmp(how, "none") != 0)
        return ls_fail(LS_BAD_CONFIG, "no scaling of the learning rate is named '%s': expected none, linear or sqrt", how ? how : "");
    return LS_OK;
}

/* How far step s is between `first` and `end`. */
static double progress(int64_t s, int64_t first, int64_t end)
{
    if (s >= end) return 1.0;
    return s <= first ? 0.0 : (double)(s - first) / (double)(end - first);
}

double ls_lr_at(const ls_lr *c, int64_t s)
{
    if (s < c->warmup) return c->peak * (double)(s + 1) / (double)c->warmup;
    const double low = c->min_ratio * c->peak;
    const int64_t stable_end = c->steps - c->decay > c->warmup ? c->steps - c->decay : c->warmup;
    switch (c->kind) {
    case LS_LR_CONSTANT: break;
    case LS_LR_LINEAR: return c->peak + progress(s, c->warmup, c->steps) * (low - c->peak);
    case LS_LR_COSINE: return low + 0.5 * (1.0 + cos(PI * progress(s, c->warmup, c->steps))) * (c->peak - low);
    case LS_LR_WSD: return c->peak + progress(s, stable_end, c->steps) * (low - c->peak);
    }
    return c->peak;
}
