/* cmd_lab.c -- lockstep lab: claims about distributed training, tested on this machine. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/stop.h"
#include "cli/cli.h"
#include "cli/lab.h"

typedef struct options {
    const char *claim;
    bool yes, json, commands, control, help;
} options;

static const ls_opt table[] = {
    { .name = "claim", .type = LS_OPT_STRING, .offset = offsetof(options, claim), .def = "",
      .help = "only these claims, as 5 or 5,6" },
    { .name = "yes", .type = LS_OPT_BOOL, .offset = offsetof(options, yes), .def = "false",
      .help = "ask for no predictions; without a terminal none are asked for" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print one JSON object" },
    { .name = "commands", .type = LS_OPT_BOOL, .offset = offsetof(options, commands), .def = "false",
      .help = "print the commands of the claims, and run none" },
    { .name = "control", .type = LS_OPT_BOOL, .offset = offsetof(options, control), .def = "false",
      .help = "also the control of each claim: a run in which its comparison has to fail" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static ls_status list(const ls_lab_shelf *shelf)
{
    ls_text t = { 0 };
    ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < shelf->n; i++) {
        ls_lab lab;
        st = ls_lab_load(ls_text_str(&shelf->entry[i].claims), &lab);
        if (st == LS_OK) {
            ls_text title = { 0 };
            ls_text_add(&title, "%s (%zu claims, %zu min)", lab.title, lab.n, lab.minutes);
            ls_text_add(&t, "%-4s", lab.number);
            ls_text_wrap(&t, ls_text_str(&title), 4, (size_t)ls_help_width());
            ls_text_free(&title);
        }
        ls_lab_free(&lab);
    }
    ls_text_add(&t, "Next: lockstep lab %d\n", shelf->n > 0 ? (shelf->entry[0].name[0] - '0') * 10 + shelf->entry[0].name[1] - '0' : 0);
    if (st == LS_OK) st = ls_text_status(&t);
    if (st == LS_OK) fputs(ls_text_str(&t), stdout);
    ls_text_free(&t);
    return st;
}

/* The last line: how many claims hold, and how many controls fail as they have to. */
static void print_sums(const ls_lab_sums *s)
{
    printf("%d of %d claims hold", s->hold, s->claims);
    if (s->shown) printf(", %d shown", s->shown);
    if (s->controls) printf(", %d of %d controls fail as they have to", s->red, s->controls);
    if (s->asked) printf(", %d of %d predictions right", s->right, s->asked);
    printf(".\n");
}

static ls_status test_labs(const ls_lab_shelf *shelf, const char *which, const ls_lab_way *way, bool *red)
{
    const ls_lab_entry *only = NULL;
    const bool all = strcmp(which, "all") == 0;
    ls_lab_sums sums = { 0 };
    ls_text json = { 0 };
    ls_status st = LS_OK;
    if (all && *way->claims) return ls_fail(LS_USAGE, "--claim belongs to one lab: name it in place of 'all'");
    if (!all) LS_TRY(ls_lab_shelf_find(shelf, which, &only));
    ls_text_add(&json, "{\"lockstep_lab\": 1, \"labs\": [");
    for (int i = 0; st == LS_OK && i < shelf->n; i++) {
        const ls_lab_entry *e = &shelf->entry[i];
        if (only && e != only) continue;
        if (all && i > 0 && way->json) ls_text_add(&json, ", ");
        st = way->commands ? ls_cli_lab_commands(e, way) : ls_cli_lab_claims(e, way, &sums, &json);
    }
    ls_text_add(&json, "], \"claims\": %d, \"hold\": %d, \"shown\": %d, \"controls\": %d, \"controls_red\": %d}\n", sums.claims,
                sums.hold, sums.shown, sums.controls, sums.red);
    if (st == LS_OK) st = ls_text_status(&json);
    if (st == LS_OK && way->json && !way->commands) fputs(ls_text_str(&json), stdout);
    if (st == LS_OK && !way->json && !way->commands) print_sums(&sums);
    ls_text_free(&json);
    *red = sums.hold < sums.claims || sums.red < sums.controls;
    return st;
}

static ls_status lab(const options *o, const ls_opts *opts, bool *red)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    const ls_env *env = ls_env_get();
    const int n = ls_opts_npositional(opts);
    ls_lab_shelf shelf;
    ls_stop *stop = NULL;
    if (n > 1) return ls_fail(LS_USAGE, "unexpected '%s': expected the number or name of one lab, or all", ls_opts_positional(opts, 1));
    if (n == 0 && (*o->claim || o->yes || o->json || o->commands || o->control))
        return ls_fail(LS_USAGE, "which lab? `lockstep lab` lists them; an option belongs to one, as in `lockstep lab 1 --claim 5`");
    if (o->json && o->commands) return ls_fail(LS_USAGE, "--json and --commands: expected one of them");
    ls_status st = ls_lab_shelf_open(&shelf);
    if (st == LS_OK && n == 0) st = list(&shelf);
    if (st == LS_OK && n == 1) {
        const bool terminal = env->isatty(0) && env->isatty(1);
        ls_lab_way way = { .claims = o->claim, .ask = terminal && !o->yes && !o->json && !o->commands, .json = o->json,
                           .commands = o->commands, .control = o->control };
        if (!way.ask) st = ls_stop_watch(sigs, 2, &stop); /* a question is left by Ctrl-C at once */
        way.stop = stop;
        if (st == LS_OK) st = test_labs(&shelf, ls_opts_positional(opts, 0), &way, red);
        ls_stop_end(stop);
    }
    ls_lab_shelf_free(&shelf);
    return st;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest, code = 0;
    bool red = false;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_lab);
    else if (st == LS_OK) st = lab(&o, opts, &red);
    if (st < 0) code = ls_cli_fail("lab", st);
    else if (red) code = 1;
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_lab = {
    .name = "lab",
    .summary = "test claims about distributed training on this machine",
    .usage = "lockstep lab [NUMBER|NAME|all] [options]",
    .example = "lockstep lab 1 --claim 5",
    LS_CMD_OPTS(table),
    .run = run,
};
