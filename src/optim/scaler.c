/* scaler.c -- dynamic loss scaling for gradients in f16, as torch.cuda.amp.GradScaler does it.
 *
 *   a gradient is not finite   scale = scale backoff, the step is skipped, the count starts again
 *   `interval` steps without   scale = scale growth, unless that is more than a float holds
 *
 * Micikevicius et al. 2018, Mixed Precision Training. Every rank must be told of the same steps.
 */
#include <math.h>

#include "lockstep/optim.h"

void ls_grad_scaler_init(ls_grad_scaler *s)
{
    *s = (ls_grad_scaler){ .scale = 65536.0f, .growth = 2.0, .backoff = 0.5, .interval = 2000 };
}

static bool within(const ls_grad_scaler *s)
{
    return s->scale > 0.0f && isfinite(s->scale) && s->growth > 1.0 && isfinite(s->growth) && s->backoff > 0.0 &&
           s->backoff < 1.0 && s->interval >= 1 && s->clean >= 0 && s->clean < s->interval;
}

ls_status ls_grad_scaler_restore(ls_grad_scaler *s, const ls_grad_scaler *saved)
{
    if (!within(saved))
        return ls_fail(LS_BAD_FILE, "loss scaler: scale %g, growth %g, backoff %g, %lld of %lld clean steps: expected a "
                       "finite scale above 0, growth above 1, backoff in (0, 1), fewer clean steps than the interval",
                       (double)saved->scale, saved->growth, saved->backoff, (long long)saved->clean,
                       (long long)saved->interval);
    *s = *saved;
    return LS_OK;
}

bool ls_grad_scaler_update(ls_grad_scaler *s, double grad_norm)
{
    if (!isfinite(grad_norm)) {
        s->scale = (float)((double)s->scale * s->backoff);
        s->clean = 0;
        return false;
    }
    if (++s->clean == s->interval) {
        const float more = (float)((double)s->scale * s->growth);
        if (isfinite(more)) s->scale = more;
        s->clean = 0;
    }
    return true;
}
