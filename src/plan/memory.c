/* memory.c -- the ledger of a published row: states by owner, activations in flight, and logits. */
#include <math.h>
#include <string.h>

#include "plan/megatron.h"
#include "plan/memory.h"
#include "plan/row_run.h"

/* The stage with the most states and activations; its inputs alone stay where all is recomputed. DeepSpeed's optimizer
 * copies 16-bit gradients of the parameters that a rank updates to 32 bits (`single_grad_partition` in
 * deepspeed/runtime/zero/stage_1_and_2.py; without ZeRO those are all of the rank's). */
static double fullest_stage(const ls_row *r, const ls_run *o)
{
    const ls_llm *m = &r->m;
    const double L = (double)m->layers, h = (double)m->hidden, t = (double)o->t, d = (double)o->d;
    const double one = (double)m->seq * (double)o->micro * h / (double)o->c, per =
        (L + o->embedding_layers) / (double)o->p;
    const bool deepspeed = strncmp(r->family, "bloom", 5) == 0;
    const double copied = deepspeed && o->grad_bytes == 2 ? 4 / (o->zero > 0 ? d : 1) : 0;
    const double grad = o->grad_bytes, V = (double)m->vocab * h / t;
    const int64_t in_step = o->batch > 0 ? o->batch / (o->micro * o->d) : 1 << 20;
    double most = 0;
    for (int i = 0; i < o->p; i++) {
        const bool end = i == 0 || i == o->p - 1;
        const double layers = end ? per - o->embedding_layers / 2 : per;
        const double params = layers * 12 * h * h / t + (end ? V : 0);
        const double states = params * ls_state_bytes(o->zero > 0 ? 1 : 0, grad, 12, o->zero > 0 ? (int64_t)d : 1);
        const double kept = ls_activation_bytes(m, o->micro, o->t, o->sequence_parallel, o->kept) / (double)o->c;
        const double in_flight = ls_pipe_in_flight(o->form, (int)o->p, (int)o->v, in_step, i);
        double bytes = states + copied * params + layers * kept * in_flight;
        if (o->kept == LS_KEEP_INPUTS) bytes += ls_activation_bytes(m, o->micro, o->t, o->sequence_parallel,
                                                                    LS_KEEP_ALL);
        if (i == o->p - 1) bytes += 8 * one / h * (double)m->vocab / t;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Korthikanti et al. 2022: the first stage, with what an interleaved schedule has more of; dropout before it, norm and
 * logits where it is the last, too. */
static double korthikanti(const ls_row *r)
{
    const double h = (double)r->m.hidden, L = (double)r->m.layers, t = (double)r->t, p = (double)r->p, v = r->v > 1 ?
        (double)r->v : 1;
    const bool plain = ls_row_notes(r, "TP baseline");
    if (strcmp(r->metric, "param_grad_opt_gib") == 0) return 18 * (12 * L * h * h / p) / t;
    const ls_recompute_kind kept = plain ? LS_KEEP_ALL : LS_KEEP_SELECTIVE;
    const double interleaved = v > 1 ? 1 + (p - 1) / (p * v) : 1;
    return L * interleaved * ls_activation_bytes(&r->m, r->micro, r->t, !plain, kept);
}

ls_status ls_row_memory(const ls_row *r, double *value)
{
    ls_run o;
    const bool ci_allocated = strcmp(r->metric, "mem_allocated_bytes") == 0;
    if (strcmp(r->metric, "model_state_gb") == 0) {
        if (r->params <= 0 || r->d < 1 || r->zero < 0) return ls_fail(LS_UNSUPPORTED,
                                                                      "params, dp or zero_stage is not stated");
        *value = 1e-9 * r->params * ls_state_bytes((int)r->zero, 2, 12, r->d);
        return LS_OK;
    }
    if (strcmp(r->metric, "param_grad_opt_gib") == 0 || strcmp(r->metric, "activation_gib") == 0) {
        if (!r->m.layers || !r->m.hidden || !r->t || !r->p || !r->micro) return ls_fail(LS_UNSUPPORTED,
                "the layout is not stated");
        *value = korthikanti(r) / (1 << 30);
        return LS_OK;
    }
    if (ci_allocated || strcmp(r->metric, "mem_max_allocated_bytes") == 0) {
        ls_megatron_memory m;
        if (strncmp(r->family, "megatron", 8) != 0) return ls_fail(LS_UNSUPPORTED,
                                                                   "flags of Megatron-LM are not stated");
        LS_TRY(ls_row_run(r, &o));
        ls_megatron_memory_of(r, &o, &m);
        *value = m.states + m.workspaces + m.between + (ci_allocated ? 0 : m.kept + m.logits - m.freed);
        return LS_OK;
    }
    const bool fits = strcmp(r->metric, "fits_80gb") == 0, bloom = strcmp(r->family, "bloom") == 0;
    if (fits || (strcmp(r->metric, "peak_memory_gb") == 0 && (bloom || strncmp(r->family, "zb", 2) == 0))) {
        ls_row all = *r;
        if (!all.batch) all.batch = all.micro << 20; /* as many micro-batches as there is memory for */
        LS_TRY(ls_row_run(&all, &o));
        if (strcmp(r->schedule, "zb-2p") == 0) o.form = LS_PIPE_ZB_H2;
        if (bloom && o.grad_bytes == 4) o.grad_bytes = 6; /* in 16 bits, and added up in 32 */
        /* Bloom's numbers are of the device, with CUDA's context, NCCL's buffers and what the allocator has not given
         * out. */
        const double bytes = bloom ? 1.19 * fullest_stage(r, &o) + 2e9 : fullest_stage(r, &o);
        *value = fits ? bytes <= 80e9 : 1e-9 * bytes;
        return LS_OK;
    }
    return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
}
