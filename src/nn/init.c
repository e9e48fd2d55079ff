/* init.c -- initial values of parameters. */
#include <math.h>

#include "lockstep/nn.h"

ls_status ls_init_linear(ls_init how, ls_mt19937 *torch, uint64_t seed, int stream, ls_param *weight, ls_param *bias)
{
    if (weight->t.ndim != 2) return ls_fail(LS_SHAPE, "parameter '%s': %d dimensions, expected a weight [O, I]",
                                            weight->name, weight->t.ndim);
    if (!weight->t.data || (bias && !bias->t.data))
        return ls_fail(LS_INVALID, "parameter '%s' has no memory yet; call ls_params_bind first", weight->name);
    if (how == LS_INIT_TORCH && !torch) return ls_fail(LS_INVALID, "init torch: no generator given");

    /* 1 / sqrt(fan_in) both times, but PyTorch gets to the weight's as kaiming_uniform_(a = sqrt(5)):
     * its roundings are kept, so that no value differs in its last bit. */
    const double fan_in = (double)weight->t.dim[1], slope = sqrt(5.0);
    const double gain = sqrt(2.0 / (1.0 + slope * slope));
    const float bound[2] = { (float)(sqrt(3.0) * (gain / sqrt(fan_in))), (float)(1.0 / sqrt(fan_in)) };
    ls_param *const p[2] = { weight, bias };
    for (int i = 0; i < 2; i++) {
        if (!p[i]) continue;
        const size_t n = (size_t)ls_tensor_count(&p[i]->t);
        if (how == LS_INIT_TORCH) ls_mt19937_uniform(torch, -bound[i], bound[i], n, p[i]->t.data);
        else
            ls_philox_uniform(seed, ls_stream(LS_STREAM_VALUES, (uint64_t)(stream + i)), 0, n, -bound[i], bound[i],
                              p[i]->t.data);
    }
    return LS_OK;
}
