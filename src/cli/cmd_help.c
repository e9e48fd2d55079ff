/* cmd_help.c -- lockstep help: a command's options, a page, a chapter of the handbook, a status name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/install.h"
#include "cli/cli.h"

#define PAGE_BYTES ((size_t)1 << 20)

typedef struct options {
    bool scdoc, help;
} options;

static const ls_opt table[] = {
    { .name = "scdoc", .type = LS_OPT_BOOL, .offset = offsetof(options, scdoc), .def = "false",
      .help = "print the command's manual page as scdoc reads it; without a command, that of lockstep" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* A page of docs/, or a chapter of docs/handbook/; *out ends with a NUL. */
static bool read_page(const char *topic, ls_text *out)
{
    static const char *const folders[] = { "docs", "docs/handbook" };
    bool found = false;
    for (size_t i = 0; !found && i < sizeof folders / sizeof *folders; i++) {
        ls_text path = { 0 };
        char name[128];
        char *bytes = NULL;
        size_t n = 0;
        found = strlen(topic) < 64 && !strchr(topic, '/') && snprintf(name, sizeof name, "%s/%s.md", folders[i], topic) > 0 &&
                ls_install_find(name, &path) && ls_file_read(path.p, PAGE_BYTES, &bytes, &n) == LS_OK;
        if (found) ls_text_addn(out, bytes, n);
        free(bytes);
        ls_text_free(&path);
    }
    return found;
}

/* The word's row of failures.md: | `word` | code | what it means | what to do | */
static void advise(const char *word)
{
    ls_text page = { 0 };
    char front[64];
    snprintf(front, sizeof front, "\n| `%s` | ", word);
    const char *row = read_page("failures", &page) ? strstr(page.p, front) : NULL;
    if (row) {
        const char *means = strstr(row + strlen(front), " | "), *todo = means ? strstr(means + 3, " | ") : NULL;
        if (todo) printf("meaning: %.*s\n", (int)(todo - means - 3), means + 3);
        const size_t n = todo ? strcspn(todo + 3, "|\n") : 0;
        if (n > 1) printf("to do: %.*s\n", (int)n - 1, todo + 3);
    }
    ls_text_free(&page);
}

static bool explain_word(const char *topic)
{
    static const struct { const char *word, *text; int code; } row[] = {
#define X(NAME, value, word, code, text) { word, text, code },
        LS_STATUS_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (strcmp(topic, row[i].word) != 0) continue;
        printf("%s, exit status %d: %s\n", row[i].word, row[i].code, row[i].text);
        advise(topic);
        return true;
    }
    return false;
}

static int unknown(ls_cmd_list all, const char *topic)
{
    ls_text pages = { 0 }, chapters = { 0 };
    ls_install_list("docs", ".md", &pages);
    ls_install_list("docs/handbook", ".md", &chapters);
    const char *near = ls_cli_near(all, topic);
    const int code = ls_cli_fail("help", ls_fail(LS_USAGE, "no topic '%s'%s%s%s; there are the commands of `lockstep --help`, status names of "
                                                           "messages, pages:%s, and chapters of the handbook:%s", topic, near ? ": did you mean '" : "",
                                                 near ? near : "", near ? "'?" : "", pages.n ? pages.p : " none is installed",
                                                 chapters.n ? chapters.p : " none is installed"));
    ls_text_free(&pages);
    ls_text_free(&chapters);
    return code;
}

static int show(ls_cmd_list all, const char *topic, const char *section)
{
    char flag[] = "--help";
    const ls_cmd *cmd = ls_cli_find(all, topic);
    if (cmd && section) return ls_cli_help_section(cmd, section);
    if (cmd) return ls_cli_run(all, cmd, 2, (char *[]){ (char *)cmd->name, flag, NULL });
    if (section) return ls_cli_fail("help", ls_fail(LS_USAGE, "'%s' is no command, and only a command has sections", topic));
    if (explain_word(topic)) return 0;
    ls_text page = { 0 };
    const bool found = read_page(topic, &page);
    if (found) fputs(ls_text_str(&page), stdout);
    ls_text_free(&page);
    return found ? 0 : unknown(all, topic);
}

static int scdoc(ls_cmd_list all, const char *name)
{
    ls_text out = { 0 };
    const ls_cmd *cmd = name ? ls_cli_find(all, name) : NULL;
    if (name && !cmd) return ls_cli_fail("help", ls_fail(LS_USAGE, "--scdoc: no command '%s'", name));
    if (cmd) ls_cli_scdoc(cmd, &out);
    else ls_cli_scdoc_overview(all, &out);
    const ls_status st = ls_text_status(&out);
    fputs(ls_text_str(&out), stdout);
    ls_text_free(&out);
    return st < 0 ? ls_cli_fail("help", st) : 0;
}

static int run(ls_cmd_list all, int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    const int n = st == LS_OK ? ls_opts_npositional(opts) : 0;
    const char *topic = n > 0 ? ls_opts_positional(opts, 0) : NULL;
    if (st == LS_OK && n > (o.scdoc ? 1 : 2)) st = ls_fail(LS_USAGE, "one topic at a time: '%s' is another", ls_opts_positional(opts, n - 1));
    if (st < 0) {
        code = ls_cli_fail("help", st);
    } else if (o.help) {
        code = ls_cli_help(&ls_cmd_help);
    } else if (o.scdoc) {
        code = scdoc(all, topic);
    } else if (topic) {
        code = show(all, topic, n > 1 ? ls_opts_positional(opts, 1) : NULL);
    } else {
        ls_text text = { 0 };
        ls_cli_overview(all, &text);
        fputs(ls_text_str(&text), stdout);
        ls_text_free(&text);
    }
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_help = {
    .name = "help",
    .summary = "explain a command, a section of its options, a status name, or print a page",
    .usage = "lockstep help [TOPIC [SECTION]]",
    .example = "lockstep help train optim\n  lockstep help rank-hung\n  lockstep help formats\n  lockstep help zero",
    LS_CMD_OPTS(table),
    .run_with = run,
};
