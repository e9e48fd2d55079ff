/* plan_names.c -- layouts and parts of a step in words. */
#include <stdio.h>
#include <string.h>

#include "plan/plan_report.h"

const ls_step_part ls_step_parts[] = {
    { "compute", "compute", offsetof(ls_step_cost, compute) },
    { "recomputation", "recompute", offsetof(ls_step_cost, recompute) },
    { "collectives of tp and cp", "tensor", offsetof(ls_step_cost, tensor) },
    { "exchange between experts", "exchange", offsetof(ls_step_cost, exchange) },
    { "pipeline bubble", "bubble", offsetof(ls_step_cost, bubble) },
    { "messages between stages", "hops", offsetof(ls_step_cost, hops) },
    { "dp, not overlapped", "data", offsetof(ls_step_cost, data) },
    { "optimizer", "update", offsetof(ls_step_cost, update) },
    { "per micro-batch and step", "overhead", offsetof(ls_step_cost, overhead) },
    { NULL, NULL, 0 },
};

double ls_step_part_of(const ls_step_cost *c, const ls_step_part *p)
{
    double v;
    memcpy(&v, (const char *)c + p->at, sizeof v);
    return v;
}

const char *ls_pipe_form_name(ls_pipe_form f)
{
    static const char *const name[] = { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe" };
    return name[f];
}

const char *ls_kept_name(ls_recompute_kind k)
{
    static const char *const name[] = { "none", "selective", "full" };
    return name[k];
}

const char *ls_layout_node_text(const ls_layout *l, char *buf, size_t n)
{
    const struct { const char *name; int64_t in; } axis[] = {
        { "tp", l->t_in }, { "cp", l->c_in }, { "ep", l->e_in }, { "dp", l->d_in }, { "pp", l->p_in },
    };
    size_t at = 0;
    snprintf(buf, n, "one rank");
    for (size_t i = 0; i < 5 && at < n; i++)
        if (axis[i].in > 1) at += (size_t)snprintf(buf + at, n - at, "%s%s %lld", at ? " x " : "", axis[i].name,
                                                   (long long)axis[i].in);
    return buf;
}

const char *ls_layout_text(const ls_layout *l, char *buf, size_t n)
{
    char schedule[32] = "no pipeline";
    if (l->p > 1) snprintf(schedule, sizeof schedule, "%s%s", ls_pipe_form_name(l->form), l->fewer ?
        ", ends a layer less" : "");
    snprintf(buf, n, "tp %lld pp %lld cp %lld ep %lld dp %lld, micro-batch %lld, %s, %lld chunk%s, ZeRO %d, recompute "
        "%s",
             (long long)l->t, (long long)l->p, (long long)l->c, (long long)l->e, (long long)l->d, (long long)l->micro,
             schedule, (long long)l->v, l->v == 1 ? "" : "s", l->zero, ls_kept_name(l->kept));
    return buf;
}
