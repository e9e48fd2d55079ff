/* cmd_lab.c -- lockstep lab: claims about distributed training, tested on this machine. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/stop.h"
#include "cli/cli.h"
#include "cli/lab.h"

typedef struct options {
    const char *claim;
    int64_t seed;
    bool yes, json, commands, control, rows, sheet, help;
} options;

static const ls_opt table[] = {
    { .name = "claim", .type = LS_OPT_STRING, .offset = offsetof(options, claim), .def = "",
      .help = "only these claims, as 5 or 5,6" },
    { .name = "yes", .type = LS_OPT_BOOL, .offset = offsetof(options, yes), .def = "false",
      .help = "ask for no predictions; without a terminal none are asked for" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print one JSON object (quiz: after its last line)" },
    { .name = "commands", .type = LS_OPT_BOOL, .offset = offsetof(options, commands), .def = "false",
      .help = "print the commands of the claims, and run none" },
    { .name = "control", .type = LS_OPT_BOOL, .offset = offsetof(options, control), .def = "false",
      .help = "also the control of each claim: a run in which its comparison has to fail" },
    { .name = "rows", .type = LS_OPT_BOOL, .offset = offsetof(options, rows), .def = "false",
      .help = "also the requirements that each claim tests, as [R21]" },
    { .name = "sheet", .type = LS_OPT_BOOL, .offset = offsetof(options, sheet), .def = "false",
      .help = "of page: what the lab asks, to be printed, without an answer" },
    { .name = "seed", .type = LS_OPT_INT, .offset = offsetof(options, seed), .def = "0", .range = "0..",
      .help = "of the shapes that check and watch try, and of a quiz's order of options; 0: another one each time" },
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
            ls_text_add(&title, "%s (%zu claims, %zu min", lab.title, lab.n, lab.minutes);
            ls_cli_lab_progress(&shelf->entry[i], &title);
            ls_text_add(&title, ")");
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

static void print_next(const ls_lab_entry *e)
{
    ls_text tasks = { 0 };
    if (ls_lab_tasks(&tasks) == LS_OK) printf("Next: lockstep lab %.2s check 1\n", e->name);
    else printf("Nothing is recorded here yet.\nNext: lockstep lab start\n");
    ls_text_free(&tasks);
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
    if (st == LS_OK && !way->json && !way->commands) {
        print_sums(&sums);
        if (only && ls_lab_exercises(only) > 0) print_next(only);
    }
    ls_text_free(&json);
    *red = sums.hold < sums.claims || sums.red < sums.controls;
    return st;
}

/* --- what the words ask for -------------------------------------------------------------------------------- */

typedef enum action { LIST, CLAIMS, START, RESULTS, IMPORT, QUIZ, PAGE, WATCH, EXERCISE } action;

/* How many words each has, and which options. */
static const struct { int least, most; bool claims, json, yes, seed; } forms[] = {
    [LIST] = { 0, 0, false, false, false, false },  [CLAIMS] = { 1, 1, true, true, true, false },
    [START] = { 1, 2, false, false, false, false }, [RESULTS] = { 1, 1, false, true, false, false },
    [IMPORT] = { 3, 3, false, false, false, false }, [QUIZ] = { 2, 2, false, true, false, true },
    [PAGE] = { 2, 2, false, false, false, true },  [WATCH] = { 2, 3, false, false, false, true },
    [EXERCISE] = { 3, 3, false, true, true, true },
};

static bool is(const ls_opts *opts, int i, const char *word)
{
    return ls_opts_npositional(opts) > i && strcmp(ls_opts_positional(opts, i), word) == 0;
}

static action action_of(const ls_opts *opts)
{
    const int n = ls_opts_npositional(opts);
    if (n == 0) return LIST;
    if (is(opts, 0, "start")) return START;
    if (is(opts, 0, "results")) return RESULTS;
    if (is(opts, 0, "progress")) return IMPORT;
    if (n == 1) return CLAIMS;
    return is(opts, 1, "quiz") ? QUIZ : is(opts, 1, "page") ? PAGE : is(opts, 1, "watch") ? WATCH : EXERCISE;
}

static ls_status check_words(const options *o, const ls_opts *opts, action act)
{
    const int n = ls_opts_npositional(opts);
    const bool claims = *o->claim || o->commands || o->control || o->rows;
    if (act == LIST && (claims || o->json || o->yes))
        return ls_fail(LS_USAGE, "which lab? `lockstep lab` lists them; an option belongs to one, as in `lockstep lab 1 --claim 5`");
    if (o->json && o->commands) return ls_fail(LS_USAGE, "--json and --commands: expected one of them");
    if ((claims && !forms[act].claims) || (o->json && !forms[act].json))
        return ls_fail(LS_USAGE, "--claim, --json, --commands, --control and --rows belong to the claims of a lab (--json also to check, quiz and "
                       "`lockstep lab results`): leave them out");
    if (act == EXERCISE && o->json && !is(opts, 1, "check"))
        return ls_fail(LS_USAGE, "--json: of an exercise only check prints JSON: leave it out");
    if (o->yes && !forms[act].yes) return ls_fail(LS_USAGE, "--yes: nothing is asked here that it could answer: leave it out");
    if (o->sheet && act != PAGE) return ls_fail(LS_USAGE, "--sheet belongs to `lockstep lab 1 page`: leave it out");
    if (o->seed && (!forms[act].seed || (act == PAGE && !o->sheet)))
        return ls_fail(LS_USAGE, "--seed belongs to `lockstep lab 1 check 1`, `lockstep lab 1 quiz` and `lockstep lab 1 page --sheet`: "
                       "leave it out");
    if (act == IMPORT && (n != 3 || !is(opts, 1, "import")))
        return ls_fail(LS_USAGE, "progress: expected `lockstep lab progress import FILE`");
    if (n < forms[act].least || n > forms[act].most)
        return ls_fail(LS_USAGE, "unexpected '%s': expected one lab, as in `lockstep lab 1`, or `lockstep lab 1 "
                       "check|hint|solution|reset N`, `lockstep lab 1 watch [N]`, `lockstep lab 1 quiz|page`, `lockstep lab start "
                       "[FOLDER]`, `lockstep lab results` or `lockstep lab progress import FILE`", ls_opts_positional(opts, n - 1));
    return LS_OK;
}

/* --- doing it ------------------------------------------------------------------------------------------------ */

/* The first exercise that is not green; the first one if all are. */
static int next_exercise(const ls_lab_entry *e)
{
    ls_text path = { 0 };
    int n = 1;
    for (int i = ls_cli_lab_progress_path(&path) == LS_OK ? ls_lab_exercises(e) : 0; i >= 1; i--) {
        ls_lab_item item;
        char name[64];
        ls_cli_lab_item(e, i, name, sizeof name);
        if (ls_lab_progress_read(path.p, name, &item) == LS_OK && strcmp(item.state, "green") != 0) n = i;
    }
    ls_text_free(&path);
    return n;
}

/* `lab 1 check 2`, `lab 1 watch`. */
static ls_status exercise(const options *o, const ls_opts *opts, const ls_lab_shelf *shelf, const ls_stop *stop,
                          bool *red)
{
    ls_lab_task t = { .seed = o->seed, .yes = o->yes, .json = o->json, .stop = stop };
    char *end;
    bool green = true;
    const bool watch = is(opts, 1, "watch");
    LS_TRY(ls_lab_shelf_find(shelf, ls_opts_positional(opts, 0), &t.lab));
    if (ls_opts_npositional(opts) == 3) {
        const char *number = ls_opts_positional(opts, 2);
        const long n = strtol(number, &end, 10);
        if (*end || n < 1 || n > 99)
            return ls_fail(LS_USAGE, "'%s': expected the number of an exercise, as in `lockstep lab 1 check 1`", number);
        t.n = (int)n;
    } else t.n = next_exercise(t.lab);
    const ls_status st = watch ? ls_cli_lab_watch(&t) : ls_cli_lab_exercise(&t, ls_opts_positional(opts, 1), &green);
    *red = !green;
    return st;
}

static ls_status claims(const options *o, const char *which, const ls_lab_shelf *shelf, const ls_stop *stop, bool *red)
{
    const ls_env *env = ls_env_get();
    const bool terminal = env->isatty(0) && env->isatty(1);
    const bool ask = terminal && !o->yes && !o->json && !o->commands;
    const ls_lab_way way = { .claims = o->claim, .ask = ask, .json = o->json, .commands = o->commands,
                             .control = o->control, .rows = o->rows, .stop = stop };
    return test_labs(shelf, which, &way, red);
}

static ls_status act_on(action act, const options *o, const ls_opts *opts, const ls_lab_shelf *shelf,
                        const ls_stop *stop, bool *red)
{
    const ls_lab_entry *e = NULL;
    if (act == QUIZ || act == PAGE) LS_TRY(ls_lab_shelf_find(shelf, ls_opts_positional(opts, 0), &e));
    switch (act) {
    case LIST: return list(shelf);
    case CLAIMS: return claims(o, ls_opts_positional(opts, 0), shelf, stop, red);
    case START:
        return ls_cli_lab_start(shelf, ls_opts_npositional(opts) == 2 ? ls_opts_positional(opts, 1) : LS_LAB_TASKS);
    case RESULTS: return ls_cli_lab_results(shelf, o->json);
    case IMPORT: return ls_cli_lab_import(ls_opts_positional(opts, 2));
    case QUIZ: return ls_cli_lab_quiz(e, &(ls_lab_quiz_way){ .seed = o->seed, .json = o->json, .stop = stop });
    case PAGE: return o->sheet ? ls_cli_lab_sheet(e, o->seed) : ls_cli_lab_page(e);
    default: return exercise(o, opts, shelf, stop, red);
    }
}

static ls_status lab(const options *o, const ls_opts *opts, bool *red)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    const action act = action_of(opts);
    ls_lab_shelf shelf;
    ls_stop *stop = NULL;
    LS_TRY(check_words(o, opts, act));
    ls_status st = ls_lab_shelf_open(&shelf);
    if (st == LS_OK) st = ls_stop_watch(sigs, 2, &stop);
    if (st == LS_OK) st = act_on(act, o, opts, &shelf, stop, red);
    ls_stop_end(stop);
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
    .usage = "lockstep lab [NUMBER|NAME|all] [options]\n"
             "       lockstep lab start [FOLDER]\n"
             "       lockstep lab NUMBER|NAME check|hint|solution|reset N\n"
             "       lockstep lab NUMBER|NAME watch [N]\n"
             "       lockstep lab NUMBER|NAME quiz|page [--sheet]\n"
             "       lockstep lab results [--json]\n"
             "       lockstep lab progress import FILE",
    .example = "lockstep lab 1 --claim 5",
    LS_CMD_OPTS(table),
    .run = run,
};
