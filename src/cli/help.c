/* help.c -- a command's help and its manual page, both from the command's table of options. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/cli.h"
#include "lockstep/lockstep.h"

static size_t count(const ls_cmd *cmd) { return cmd->nopts ? *cmd->nopts : 0; }

static int print(const ls_cmd *cmd, const char *section, const ls_help_index *index)
{
    const ls_help h = { .usage = cmd->usage, .summary = cmd->summary, .example = cmd->example, .section = section,
                        .index = index, .readers = cmd->readers, .width = ls_help_width() };
    char *text = ls_opts_help_of(cmd->opts, count(cmd), &h);
    if (!text) return ls_cli_fail(cmd->name, ls_fail(LS_NO_MEMORY, "the text of --help"));
    fputs(text, stdout);
    free(text);
    return 0;
}

int ls_cli_help(const ls_cmd *cmd)
{
    if (cmd->sections && ls_env_get()->isatty(1)) return print(cmd, "", cmd->sections);
    return print(cmd, NULL, NULL); /* who reads it by a pager or grep wants all */
}

int ls_cli_help_section(const ls_cmd *cmd, const char *section)
{
    if (strcmp(section, "all") == 0) return print(cmd, NULL, NULL);
    const char *names[64];
    size_t n = 0;
    for (const ls_help_index *s = cmd->sections; s && s->section && n < 64; s++) {
        if (strcmp(s->section, section) == 0) return print(cmd, section, NULL);
        names[n++] = s->section;
    }
    if (strcmp(section, "sections") == 0 && n > 0) return print(cmd, "", cmd->sections);
    const char *near = ls_nearest(section, names, n);
    return ls_cli_fail(cmd->name, ls_fail(LS_USAGE, "--help %s: no such section%s%s%s; `lockstep %s --help sections` lists them", section,
                                          near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "", cmd->name));
}

/* --- manual pages ------------------------------------------------------------------------------- */

/* What scdoc would read as markup stands for itself. */
static void literal(ls_text *out, const char *s)
{
    for (; *s; s++)
        if (isalnum((unsigned char)*s) || strchr(" ,()/=:'\"", *s)) ls_text_addn(out, s, 1);
        else ls_text_add(out, "\\%c", *s);
}

static void option(ls_text *out, const ls_cmd *cmd, const ls_opt *row, bool config)
{
    ls_text words = { 0 };
    if (row->short_name) ls_text_add(out, "*-%c*, ", row->short_name);
    ls_text_add(out, "*");
    literal(out, "--");
    literal(out, row->name);
    ls_text_add(out, "*");
    const char *value = ls_opt_placeholder(row->type);
    if (*value) ls_text_add(out, " _%s_", value + 1);
    ls_opt_describe(row, config, cmd->readers, &words);
    ls_text_add(out, "\n\t");
    literal(out, ls_text_str(&words));
    ls_text_add(out, "\n\n");
    out->failed = out->failed || words.failed;
    ls_text_free(&words);
}

static void options(ls_text *out, const ls_cmd *cmd)
{
    const bool dotted = ls_opt_dotted(cmd->opts, count(cmd));
    for (size_t i = 0; i < count(cmd); i++) {
        if (!ls_opt_opens_section(cmd->opts, i)) continue;
        const char *name = cmd->opts[i].name, *dot = strrchr(name, '.');
        char section[64] = "";
        if (dot) snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
        if (dotted) ls_text_add(out, "## %s\n\n", dot ? section : "flags of the command line");
        for (size_t k = i; k < count(cmd); k++)
            if (ls_opt_in_section(&cmd->opts[k], section)) option(out, cmd, &cmd->opts[k], !dotted || dot);
    }
}

static void title(ls_text *out, const char *name, const char *summary)
{
    ls_text_add(out, "%s(1) \"lockstep " LS_VERSION "\" \"Lockstep\"\n\n# NAME\n\n%s - ", name, name);
    literal(out, summary);
    ls_text_add(out, "\n\n# SYNOPSIS\n\n");
}

void ls_cli_scdoc(const ls_cmd *cmd, ls_text *out)
{
    char name[64];
    snprintf(name, sizeof name, "lockstep-%s", cmd->name);
    title(out, name, cmd->summary);
    literal(out, cmd->usage);
    ls_text_add(out, "\n\n");
    if (count(cmd) > 0) ls_text_add(out, "# OPTIONS\n\n");
    options(out, cmd);
    ls_text_add(out, "# EXAMPLE\n\n```\n");
    for (const char *p = cmd->example; *p;) { /* lines after the first are indented for --help */
        const size_t n = strcspn(p, "\n");
        ls_text_add(out, "%.*s\n", (int)n, p);
        p += n + strspn(p + n, "\n");
        p += strspn(p, " ");
    }
    ls_text_add(out, "```\n\n# SEE ALSO\n\n*lockstep*(1)\n");
}

void ls_cli_scdoc_overview(ls_cmd_list all, ls_text *out)
{
    title(out, "lockstep", "distributed training on CPUs");
    ls_text_add(out, "*lockstep* _COMMAND_ \\[options\\]++\n*lockstep* *--help*++\n*lockstep* *--version*, *-V*\n\n# COMMANDS\n\n");
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        ls_text_add(out, "*lockstep-%s*(1)\n\t", (*cmd)->name);
        literal(out, (*cmd)->summary);
        ls_text_add(out, "\n\n");
    }
    ls_text_add(out, "# EXIT STATUS\n\nA failure has a status name, which is in its message, and an exit status.\n\n");
#define X(NAME, value, word, code, text)              \
    if (code > 0) {                                   \
        ls_text_add(out, "*%d* _%s_\n\t", code, word); \
        literal(out, text);                           \
        ls_text_add(out, "\n\n");                     \
    }
    LS_STATUS_MAP(X)
#undef X
}
