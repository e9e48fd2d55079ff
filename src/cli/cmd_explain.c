/* cmd_explain.c -- lockstep explain: what a configuration divides, stores and moves, by plan, by formula and as a run
 * counts it; and topics.
 */
#include <stdio.h>
#include <string.h>

#include "cli/explain_roofline.h"
#include "cli/explain_side.h"
#include "train/explain_compare.h"

/* --- the stages of ZeRO  ------------------------------------------------------------------------------------ */

static ls_status explain_one(const ls_explain_asked *a, int size, bool first, bool last, ls_text *out)
{
    const ls_explain_options *o = &a->o;
    bool stages[LS_ZERO_STAGES] = { false };
    int wanted = 0;
    ls_zero_costs z;
    for (int i = 0; i < o->stages.n; i++) stages[o->stages.v[i]] = true;
    for (int k = 0; k < LS_ZERO_STAGES; k++) wanted += stages[k];
    const ls_status st = ls_zero_costs_make(&o->c, &a->mc, size, stages, wanted < LS_ZERO_STAGES, &z);
    if (st == LS_OK && !first) ls_text_add(out, o->json ? ",\n" : "\n");
    if (st == LS_OK && o->json) ls_zero_costs_json(&z, out);
    if (st == LS_OK && !o->json && first) ls_zero_costs_words(&o->c, &z, out);
    if (st == LS_OK && !o->json) ls_zero_costs_table(&z, out);
    if (st == LS_OK && !o->json && last) ls_topic_zero(&z, out);
    ls_zero_costs_free(&z);
    return st;
}

static ls_status explain_zero(ls_explain_asked *a, ls_text *out)
{
    const ls_explain_options *o = &a->o;
    if (o->ranks.n == 0 || o->stages.n == 0)
        return ls_fail(LS_USAGE, "--%s is empty: expected numbers, as %s", o->ranks.n == 0 ? "ranks" : "stages",
                       o->ranks.n == 0 ? "1,2,4" : "0,1,2,3");
    for (int i = 0; i < o->ranks.n; i++) LS_TRY(ls_zero_costs_check(&o->c, (int)o->ranks.v[i]));
    LS_TRY(ls_explain_look(a));
    ls_status st = LS_OK;
    if (o->json) ls_text_add(out, "{\"worlds\": [");
    for (int i = 0; st == LS_OK && i < o->ranks.n; i++) st = explain_one(a, (int)o->ranks.v[i], i == 0,
                                                                         i == o->ranks.n - 1, out);
    if (o->json) ls_text_add(out, "]}\n");
    return st;
}

/* --- a configuration, or a run; two of them; a topic  ------------------------------------------------------- */

/* What the run has counted; NULL: it is a configuration, or the run failed in its first steps. */
static const ls_run_counters *counted(const ls_explain_asked *a)
{
    return a->s.folder && a->k.steps > 0 ? &a->k : NULL;
}

static ls_explained explained_of(const ls_explain_asked *a)
{
    return (ls_explained){ .c = &a->o.c, .mc = &a->mc, .folder = a->s.folder, .k = counted(a),
                           .failure = a->s.folder ? &a->failure : NULL, .size = a->size,
                           .nodes = (int)a->o.nodes, .node = a->node, .rank = (int)a->o.rank };
}

static ls_status plan_of(ls_explain_asked *a, ls_explain_layout *l)
{
    bool memory;
    LS_TRY(ls_explain_layout_make(&a->o.c, &a->mc, a->size, (int)a->o.nodes, a->node, l));
    return counted(a) ? ls_explain_check(a->s.folder, &a->k, l, &memory) : LS_OK;
}

static ls_status explain_both(ls_explain_asked *a, int argc, char **argv, ls_text *out)
{
    ls_explain_asked other;
    ls_explain_layout l = { 0 }, m = { 0 };
    ls_status st = ls_explain_ask(argc, argv, a->o.compare, &other);
    if (st == LS_OK) st = ls_explain_look(&other);
    if (st == LS_OK) st = plan_of(a, &l);
    if (st == LS_OK) st = plan_of(&other, &m);
    const ls_explain_side left = { a->s.name, a->opts, &l, counted(a) };
    const ls_explain_side right = { other.s.name, other.opts, &m, counted(&other) };
    if (st == LS_OK) st = ls_explain_compare(&left, &right, a->o.json, out);
    ls_explain_layout_free(&m);
    ls_explain_layout_free(&l);
    ls_explain_forget(&other);
    return st;
}

static ls_status explain_topic(const ls_explain_asked *a, ls_text *out)
{
    if (a->adjusted && a->s.name) ls_text_add(out, "the configuration does not have this axis: shown with %s\n\n",
                                              a->adjusted);
    return ls_topic_print(a->s.topic, &a->o.c, &a->mc, a->size, out);
}

static ls_status explain(ls_explain_asked *a, int argc, char **argv, ls_text *out)
{
    LS_TRY(ls_explain_ask(argc, argv, NULL, a));
    if (a->s.zero) return explain_zero(a, out);
    LS_TRY(ls_explain_look(a));
    if (a->s.topic) return explain_topic(a, out);
    if (a->s.roofline) return ls_explain_roofline(a, out);
    if (*a->o.compare) return explain_both(a, argc, argv, out);
    const ls_explained e = explained_of(a);
    return ls_explain_run(&e, a->o.json, out);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static int run(int argc, char **argv)
{
    if (asks_for_help(argc, argv)) return ls_cli_help(&ls_cmd_explain);
    ls_text out = { 0 };
    ls_explain_asked a;
    ls_status st = explain(&a, argc, argv, &out);
    if (st == LS_OK) st = ls_text_status(&out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    const int code = st < 0 ? ls_cli_fail("explain", st) : 0;
    ls_text_free(&out);
    ls_explain_forget(&a);
    return code;
}

const ls_cmd ls_cmd_explain = {
    .name = "explain",
    .summary = "print what ranks divide, store, move and wait for, of a configuration, a run or a topic",
    .usage = "lockstep explain [zero|dp|tp|sp|cp|ep|pp|3d|roofline] CONFIG.yaml|RECIPE|RUN-FOLDER [--section.key value]...",
    .example = "lockstep explain zero gpt2-tiny -n 1,2,4 --train.dtype bf16\n"
               "  lockstep explain gpt2-tiny -n 8 --parallel.tp 2 --nodes 2\n"
               "  lockstep explain tp\n"
               "  lockstep explain roofline gpt2-124m -n 4 --topology h100-8\n"
               "  lockstep explain runs/gpt2-tiny --json",
    .opts = ls_explain_opts,
    .nopts = &ls_explain_nopts,
    .run = run,
};
