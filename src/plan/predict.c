/* predict.c -- rows become runs, and the seconds of a step become what a row measures. */
#include <math.h>
#include <string.h>

#include "plan/memory.h"
#include "plan/predict.h"
#include "plan/row_run.h"

const ls_stack ls_stacks[] = {
    { "megatron-a100-vtrain", "vtrain-multi", "", ANY, "" },
    { "megatron-a100-node", "vtrain-single", "", ANY, "" },
    { "megascale-a100", "megascale megascale-ablation", "A100", ANY, "MegaScale" },
    { "megatron-a100", "ptdp ptdp-text mlm-jan2021 mlm2020 korth megascale megascale-ablation megatron-ci-mem",
        "A100", ANY, "" },
    { "deepspeed-a100", "bloom mtnlg", "A100", ANY, "" },
    { "deepspeed-a100-zero3", "ptdp-zero3", "A100", ANY, "" },
    { "fsdp-a100", "mosaic misc", "A100", ANY, "" },
    { "fsdp-h100", "mosaic", "H", ANY, "" },
    { "torchtitan-h100", "torchtitan", "H", ANY, "" },
    { "megatron-h100", "nemo-fp8 nemo-longseq mcore-h100 llama3 megatron-ci-mem", "H", DENSE, "" },
    { "megatron-h100-2025", "bridge", "H", DENSE, "" },
    { "megatron-h100-moe", "mcore-h100 moezoo deepseek bridge", "H", MOE, "" },
    { "megatron-b200", "bridge nemo-longseq megatron-ci-mem", "", DENSE, "" },
    { "megatron-b200-moe", "bridge", "", MOE, "" },
    { "megatron-a100-pipeline", "zb zb-v zb-small zb-optsync zb-timings zb-bubble", "A100", ANY, "" },
    { "megatron-v100", "mlm2020", "V100", ANY, "" },
    { "llmc-a100", "llmc", "A100", ANY, "" },
    { NULL, NULL, NULL, ANY, NULL },
};

int ls_stack_of(const ls_row *r)
{
    for (int i = 0; i < LS_STACKS; i++) {
        const ls_stack *s = &ls_stacks[i];
        if (!ls_among(s->families, r->family) || strncmp(r->gpu, s->gpu, strlen(s->gpu)) != 0) continue;
        if (s->model != ANY && (s->model == MOE) != (r->m.experts > 0)) continue;
        if (*s->note && (!ls_row_notes(r, s->note) || ls_row_notes(r, "Megatron-LM baseline"))) continue;
        return i;
    }
    const ls_device_sheet *d = ls_device_sheet_find(r->gpu);
    return d ? ls_stack_of_device(d, r->m.experts > 0) : -1;
}

int ls_stack_of_device(const ls_device_sheet *d, bool experts)
{
    const char *name = d->name[0] == 'A' ? "megatron-a100" : d->name[0] == 'V' ? "megatron-v100"
                       : d->name[0] == 'H' ? (experts ? "megatron-h100-moe" : "megatron-h100")
                       : experts ? "megatron-b200-moe" : "megatron-b200";
    int i = 0;
    while (strcmp(ls_stacks[i].name, name) != 0) i++;
    return i;
}

/* --- what is measured -------------------------------------------------------------------------------------------- */

typedef enum measure { NONE, SECONDS, PER_DEVICE_TOKENS, PER_DEVICE_SAMPLES, TOKENS, SAMPLES, RATE, TOTAL_RATE, PART,
    DAYS } measure;

static measure measure_of(const char *metric, double *scale)
{
    static const struct { const char *metric; measure what; double scale; } all[] = {
        { "step_time_s", SECONDS, 1 }, { "step_time_ms", SECONDS, 1e3 }, { "tokens_per_s_per_gpu", PER_DEVICE_TOKENS,
            1 },
        { "samples_per_s_per_gpu", PER_DEVICE_SAMPLES, 1 }, { "tokens_per_s", TOKENS, 1e-3 },
        { "samples_per_s_total", SAMPLES, 1 }, { "tflops_per_gpu", RATE, 1e-12 }, { "aggregate_pflops", TOTAL_RATE,
            1e-15 },
        { "mfu", PART, 100 }, { "pct_of_peak", PART, 100 }, { "hfu", PART, 100 }, { "train_days_300B_tokens", DAYS, 1 },
        { "tokens_per_day_billion", TOKENS, 86400e-9 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(metric, all[i].metric) == 0) {
            *scale = all[i].scale;
            return all[i].what;
        }
    return NONE;
}

bool ls_metric_of_step(const char *metric)
{
    double scale;
    return measure_of(metric, &scale) != NONE;
}

static double step_flops(const ls_row *r, const ls_run *o)
{
    static const char recomputed[] = "ptdp ptdp-zero3 ptdp-text mlm-jan2021 mlm2020 mtnlg bloom";
    static const char causal[] = "bridge moezoo";
    ls_flops how = ls_among(recomputed, r->family) ? LS_FLOPS_RECOMPUTED : ls_among(causal, r->family) ?
        LS_FLOPS_CAUSAL : LS_FLOPS_FULL;
    if (ls_row_notes(r, "causal count") && !ls_row_notes(r, "non-causal count")) how = LS_FLOPS_CAUSAL;
    const double tokens = (double)o->batch * (double)o->m.seq;
    double flops = tokens * ls_llm_flops(&o->m, how);
    if (strcmp(r->metric, "hfu") == 0 && o->kept == LS_KEEP_INPUTS) flops =
        tokens * ls_llm_flops(&o->m, LS_FLOPS_RECOMPUTED);
    else if (strcmp(r->metric, "hfu") == 0 && o->kept == LS_KEEP_SELECTIVE)
        flops += tokens * (double)o->m.layers * 4 * (double)o->m.hidden * (double)o->m.seq;
    return ls_row_notes(r, "older estimate, about 3% low") ? .963 * flops : flops;
}

ls_status ls_row_from_seconds(const ls_row *r, const ls_run *o, double s, double *value)
{
    double scale = 1;
    const double n = (double)o->n, batch = (double)o->batch, tokens = batch * (double)o->m.seq;
    switch (measure_of(r->metric, &scale)) {
    case SECONDS: *value = scale * s; return LS_OK;
    case PER_DEVICE_TOKENS: *value = scale * tokens / s / n; return LS_OK;
    case PER_DEVICE_SAMPLES: *value = scale * batch / s / n; return LS_OK;
    case TOKENS: *value = scale * tokens / s; return LS_OK;
    case SAMPLES: *value = scale * batch / s; return LS_OK;
    case RATE: *value = scale * step_flops(r, o) / s / n; return LS_OK;
    case TOTAL_RATE: *value = scale * step_flops(r, o) / s; return LS_OK;
    case PART: *value = scale * step_flops(r, o) / s / n / o->device->peak16; return LS_OK;
    case DAYS: *value = 300e9 / tokens * s / 86400; return LS_OK;
    case NONE: break;
    }
    return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
}

/* The stage's time in milliseconds that another row of the same step states; 0: none does. */
static double stage_ms(const ls_row *r, const ls_rows *rows, const char *metric)
{
    double any = 0;
    for (int i = 0; i < rows->n; i++) {
        const ls_row *o = &rows->row[i];
        if (strcmp(o->metric, metric) != 0 || o->m.layers != r->m.layers || o->m.hidden != r->m.hidden || o->p !=
            r->p) continue;
        if (o->batch == r->batch) return o->value;
        any = o->value;
    }
    return any;
}

/* A bubble follows from stage times alone: those of the paper's table, where the file has them, else predicted ones. */
static ls_status bubble(const ls_row *r, const ls_rows *rows, double *value)
{
    ls_run run;
    ls_step_cost cost;
    LS_TRY(ls_row_run(r, &run));
    if (strcmp(r->schedule, "zb-2p") == 0)
        return ls_fail(LS_UNSUPPORTED, "the automatic schedule ZB-2p has no closed form");
    ls_pipe_costs c = { stage_ms(r, rows, "stage_fwd_ms"), stage_ms(r, rows, "stage_bwd_input_ms"),
        stage_ms(r, rows, "stage_bwd_weight_ms"),
                        stage_ms(r, rows, "stage_p2p_ms"), (int)run.p, (int)run.v, run.batch / (run.micro * run.d) };
    if (c.forward <= 0 || c.input <= 0 || c.weight <= 0) {
        ls_step_cost_of(&run, ls_constants[ls_stack_of(r)], &cost);
        c.forward = cost.forward, c.input = cost.input, c.weight = cost.weight, c.hop = cost.hop;
    }
    *value = ls_pipe_bubble_rate(run.form, &c);
    return LS_OK;
}

/* Milliseconds of a micro-batch on a stage, or in one layer. */
static ls_status stage_time(const ls_row *r, double *value)
{
    ls_run run;
    ls_step_cost c;
    LS_TRY(ls_row_run(r, &run));
    ls_step_cost_of(&run, ls_constants[ls_stack_of(r)], &c);
    const double backward = c.input + c.weight + c.again;
    const struct { const char *metric; double seconds; } all[] = {
        { "stage_fwd_ms", c.forward }, { "stage_bwd_input_ms", c.input }, { "stage_bwd_weight_ms", c.weight },
            { "stage_p2p_ms", c.hop },
        { "layer_fwd_ms", c.forward / c.stage_layers }, { "layer_bwd_ms", backward / c.stage_layers },
        { "layer_fwd_bwd_ms", (c.forward + backward) / c.stage_layers },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(r->metric, all[i].metric) == 0) {
            *value = 1e3 * all[i].seconds;
            return LS_OK;
        }
    return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
}

ls_status ls_row_predict(const ls_row *r, const ls_rows *rows, double *value)
{
    ls_run run;
    ls_coll_run coll;
    ls_step_cost cost;
    if (strcmp(r->metric, "bubble_rate") == 0) return bubble(r, rows, value);
    if (strncmp(r->metric, "stage_", 6) == 0 || (strncmp(r->metric, "layer_", 6) == 0 &&
                                                 strstr(r->metric, "_ms"))) return stage_time(r, value);
    if (ls_row_coll(r, &coll) == LS_OK) {
        *value = ls_coll_value(r, &coll, ls_coll_cost(&coll, ls_coll_constants[coll.class]));
        return LS_OK;
    }
    if (!ls_metric_of_step(r->metric)) return ls_row_memory(r, value);
    LS_TRY(ls_row_run(r, &run));
    ls_step_cost_of(&run, ls_constants[ls_stack_of(r)], &cost);
    return ls_row_from_seconds(r, &run, cost.total, value);
}

/* Closed forms, with the digits that a paper prints. */
static bool exact(const char *metric)
{
    static const char forms[] = "bubble_rate model_state_gb param_grad_opt_gib activation_gib";
    return ls_among(forms, metric);
}

void ls_row_interval(const ls_row *r, double value, double *low, double *high)
{
    ls_run run;
    ls_coll_run coll;
    double below = .8, above = 1.25, one, two; /* of what no row was held out of */
    const bool step = ls_metric_of_step(r->metric), collective = ls_row_coll(r, &coll) == LS_OK;
    const char what = step ? 's' : collective ? 'c' : 'm';
    const int stack = ls_stack_of(r);
    if (step && stack >= 0) below = ls_stack_intervals[stack].low, above = ls_stack_intervals[stack].high;
    for (const ls_interval *i = ls_intervals; i->family; i++)
        if (strcmp(i->family, r->family) == 0 && i->what == what) below = i->low, above = i->high;
    if (exact(r->metric)) below = .995, above = 1.005;
    /* Percentiles are of times; what falls with time has them the other way round. */
    const bool falls = (collective && strstr(r->metric, "busbw")) ||
                       (step && ls_row_run(r, &run) == LS_OK && ls_row_from_seconds(r, &run, 1, &one) == LS_OK &&
                        ls_row_from_seconds(r, &run, 2, &two) == LS_OK && two < one);
    *low = falls ? value / above : value * below;
    *high = falls ? value / below : value * above;
}
