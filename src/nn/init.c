/* init.c -- first values of parameters. */
#include <math.h>
#include <stdlib.h>

#include "lockstep/nn.h"

/* --- where they go ------------------------------------------------------------------------- */

ls_status ls_param_open(ls_param *p, float **out)
{
    *out = p->t.data;
    if (p->sink) return p->sink->open(p->sink, p, out);
    if (*out) return LS_OK;
    return ls_fail(LS_INVALID, "parameter '%s' has no memory for first values; call ls_params_bind or ls_ddp_bind first", p->name);
}

ls_status ls_param_close(ls_param *p) { return p->sink ? p->sink->close(p->sink, p) : LS_OK; }

/* --- what they are ------------------------------------------------------------------------- */

static void draw(const ls_param *p, uint64_t seed, ls_dist from, float *v)
{
    const uint64_t stream = ls_stream(LS_STREAM_VALUES, p->id);
    const int64_t count = ls_tensor_count(&p->t);
    for (int64_t i = 0, next; i < count; i = next) {
        const uint64_t at = (uint64_t)ls_part_index(&p->part, &p->t, i, &next);
        const size_t n = (size_t)(next - i);
        switch (from.kind) {
        case LS_DIST_UNIFORM: ls_philox_uniform(seed, stream, at, n, from.a, from.b, v + i); break;
        case LS_DIST_NORMAL: ls_philox_normal(seed, stream, at, n, from.a, v + i); break;
        case LS_DIST_CONSTANT:
            for (size_t k = 0; k < n; k++) v[(size_t)i + k] = from.a;
            break;
        }
    }
}

ls_status ls_init_part(ls_param *p, uint64_t seed, ls_dist from)
{
    float *v;
    if (p->elsewhere) return LS_OK;
    LS_TRY(ls_part_check(p->name, &p->part, &p->t));
    LS_TRY(ls_param_open(p, &v));
    if (v) draw(p, seed, from, v);
    return ls_param_close(p);
}

/* PyTorch's generator knows no places: all of the global tensor is drawn, and what is here is kept. */
static ls_status draw_torch(const ls_param *p, ls_mt19937 *torch, float lo, float hi, float *v)
{
    const size_t here = (size_t)ls_tensor_count(&p->t);
    const size_t all = ls_part_is_all(&p->part) ? here : here / (size_t)p->part.count * (size_t)p->part.of;
    float *drawn = all == here ? v : malloc(all * sizeof *drawn);
    if (!drawn) return ls_fail(LS_NO_MEMORY, "parameter '%s': %zu elements to draw", p->name, all);
    ls_mt19937_uniform(torch, lo, hi, all, drawn);
    if (drawn == v) return LS_OK;
    for (size_t i = 0; i < here; i++) v[i] = drawn[ls_part_index(&p->part, &p->t, (int64_t)i, NULL)];
    free(drawn);
    return LS_OK;
}

/* The generator draws what other ranks have, too: what comes after it depends on how much was drawn. */
static ls_status pass_over(const ls_param *p, ls_mt19937 *torch)
{
    const size_t n = (size_t)ls_tensor_count(&p->t);
    float *drawn = malloc(n * sizeof *drawn);
    if (!drawn) return ls_fail(LS_NO_MEMORY, "parameter '%s': %zu elements to draw", p->name, n);
    ls_mt19937_uniform(torch, 0.0f, 1.0f, n, drawn);
    free(drawn);
    return LS_OK;
}

static ls_status init_torch(ls_param *p, ls_mt19937 *torch, float bound)
{
    float *v;
    if (p->elsewhere) return pass_over(p, torch);
    LS_TRY(ls_part_check(p->name, &p->part, &p->t));
    LS_TRY(ls_param_open(p, &v));
    if (v) LS_TRY(draw_torch(p, torch, -bound, bound, v));
    return ls_param_close(p);
}

ls_status ls_init_linear(ls_init how, ls_mt19937 *torch, uint64_t seed, ls_param *weight, ls_param *bias)
{
    if (weight->t.ndim < 2) return ls_fail(LS_SHAPE, "parameter '%s': %d dimensions, expected a weight [O, I, ..]",
                                           weight->name, weight->t.ndim);
    if (!weight->elsewhere && (!ls_param_takes_values(weight) || (bias && !ls_param_takes_values(bias))))
        return ls_fail(LS_INVALID, "parameter '%s' has no memory yet; call ls_params_bind first", weight->name);
    if (how == LS_INIT_TORCH && !torch) return ls_fail(LS_INVALID, "init torch: no generator given");

    /* 1 / sqrt(fan_in) both times, but PyTorch gets to the weight's as kaiming_uniform_(a = sqrt(5)):
     * its roundings are kept, so that no value differs in its last bit. */
    int64_t shape[LS_MAX_DIMS];
    ls_part_shape(&weight->part, &weight->t, shape);
    double fan_in = 1.0; /* of a convolution [O, C, k, k]: C k^2 */
    for (int i = 1; i < weight->t.ndim; i++) fan_in *= (double)shape[i];
    const double slope = sqrt(5.0);
    const double gain = sqrt(2.0 / (1.0 + slope * slope));
    const float bound[2] = { (float)(sqrt(3.0) * (gain / sqrt(fan_in))), (float)(1.0 / sqrt(fan_in)) };
    ls_param *const p[2] = { weight, bias };
    for (int i = 0; i < 2; i++) {
        if (!p[i]) continue;
        if (how == LS_INIT_TORCH) LS_TRY(init_torch(p[i], torch, bound[i]));
        else LS_TRY(ls_init_part(p[i], seed, (ls_dist){ LS_DIST_UNIFORM, -bound[i], bound[i] }));
    }
    return LS_OK;
}
