/* layout.c -- one layout: whether it is legal, what it costs, and how sure that is. */
#include <math.h>
#include <string.h>

#include "plan/predict.h"
#include "plan/problem.h"
#include "plan/row_run.h"
#include "plan/stage_memory.h"

static bool divides(int64_t part, int64_t whole) { return part > 0 && whole % part == 0; }

static ls_refusal refused(const ls_problem *b, const ls_layout *l)
{
    const ls_refusal degrees = ls_degrees_refused(b, l);
    ls_schedule s[LS_SCHEDULES];
    if (degrees != LS_REFUSE_NONE) return degrees;
    const bool filled = divides(l->t_in, l->t) && divides(l->p_in, l->p) && divides(l->c_in, l->c) && divides(l->e_in,
        l->e) &&
        divides(l->d_in, l->d / l->e) && l->t_in * l->p_in * l->c_in * l->e_in * l->d_in == b->node;
    if (!filled) return LS_REFUSE_NODE;
    if (l->micro < 1 || b->q->batch % (l->micro * l->d) != 0) return LS_REFUSE_MICRO;
    const int64_t m = b->q->batch / (l->micro * l->d);
    const int n = ls_schedules_of(b, l->p, s);
    int i = 0;
    while (i < n && !(s[i].form == l->form && s[i].v == l->v && s[i].fewer == l->fewer)) i++;
    if (i == n) return LS_REFUSE_LAYERS;
    if (ls_schedule_refused(&s[i], l->p, m) != LS_REFUSE_NONE) return LS_REFUSE_MICRO;
    return l->zero < 0 || l->zero > 3 ? LS_REFUSE_ZERO : ls_zero_refused(l->zero, l->d * l->c, m);
}

ls_status ls_layout_evaluate(const ls_layout_query *q, const ls_layout *l, ls_layout_cost *out, ls_refusal *why)
{
    ls_problem b;
    ls_run r;
    LS_TRY(ls_problem_of(q, &b));
    const ls_refusal refusal = refused(&b, l);
    if (why) *why = refusal;
    if (refusal != LS_REFUSE_NONE) return ls_fail(LS_BAD_CONFIG, "%s", ls_refusal_text(refusal));
    ls_layout_run(&b, l, &r);
    *out = (ls_layout_cost){ .layout = *l, .bytes = ls_fullest_stage(&r, NULL) };
    ls_step_cost_of(&r, b.k, &out->cost);
    return LS_OK;
}

/* Nothing says which of the families that share the constants a new run is like, so all of their rows count. */
void ls_layout_interval(const ls_layout_query *q, double *low, double *high)
{
    ls_problem b;
    *low = 0, *high = (double)INFINITY; /* nothing is known */
    if (ls_problem_of(q, &b) != LS_OK) return;
    *low = ls_stack_intervals[b.stack].low, *high = ls_stack_intervals[b.stack].high;
}

double ls_layout_mfu(const ls_layout_query *q, double seconds, ls_flops convention)
{
    ls_problem b;
    if (ls_problem_of(q, &b) != LS_OK) return 0;
    const double tokens = (double)q->batch * (double)q->model.seq;
    /* Of the devices that there are, also where a question supposes faster ones. */
    const double scale = q->scale[LS_RES_FLOPS] > 0 ? q->scale[LS_RES_FLOPS] : 1;
    return tokens * ls_llm_flops(&q->model, convention) / seconds / (b.device.peak16 / scale * (double)q->world);
}
