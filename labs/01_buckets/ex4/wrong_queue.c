/* Wrong: every all_reduce starts when its bucket is ready, even if the one before it is still on its way. */
#include <stddef.h>

static double exposed(const size_t *nbytes, const double *ready_us, int n, double alpha_us, double us_per_byte,
                      size_t cap)
{
    size_t held = 0;
    double last = 0;
    for (int i = 0; i < n; i++) {
        held += nbytes[i];
        if (held < cap && i < n - 1) continue;
        const double end = ready_us[i] + alpha_us + (double)held * us_per_byte;
        if (end > last) last = end;
        held = 0;
    }
    return last - ready_us[n - 1];
}

size_t best_cap(const size_t *nbytes, const double *ready_us, int n, double alpha_us, double us_per_byte,
                const size_t *caps, int ncaps)
{
    int best = 0;
    double least = 0;
    for (int k = 0; k < ncaps; k++) {
        const double e = exposed(nbytes, ready_us, n, alpha_us, us_per_byte, caps[k]);
        if (k == 0 || e < least) best = k, least = e;
    }
    return caps[best];
}
