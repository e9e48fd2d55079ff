/* cli.c -- what commands share: finding one by its name, its words, errors. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

#define MOST_COMMANDS 64

int ls_cli_run(ls_cmd_list all, const ls_cmd *cmd, int argc, char **argv)
{
    return cmd->run ? cmd->run(argc, argv) : cmd->run_with(all, argc, argv);
}

const ls_cmd *ls_cli_find(ls_cmd_list all, const char *name)
{
    for (; *all; all++)
        if (strcmp(name, (*all)->name) == 0) return *all;
    return NULL;
}

const char *ls_cli_near(ls_cmd_list all, const char *name)
{
    const char *names[MOST_COMMANDS];
    size_t n = 0;
    for (; *all && n < MOST_COMMANDS; all++) names[n++] = (*all)->name;
    return ls_nearest(name, names, n);
}

size_t ls_cli_word_bytes(const char *word) { return strcspn(word, " |"); }

int ls_cli_words(const ls_cmd *cmd, const char **word, int most)
{
    char front[64];
    int n = 0;
    snprintf(front, sizeof front, "lockstep %s ", cmd->name);
    for (const char *p = strstr(cmd->usage, front); p; p = strstr(p, front)) {
        p += strlen(front);
        while (islower((unsigned char)*p) && n < most) {
            word[n++] = p;
            p += ls_cli_word_bytes(p);
            if (*p == '|') p++;
        }
    }
    return n;
}

ls_status ls_cli_print(ls_text *out)
{
    const ls_status st = ls_text_status(out);
    if (st == LS_OK) fputs(ls_text_str(out), stdout);
    ls_text_free(out);
    return st;
}

int ls_cli_fail(const char *cmd, ls_status s)
{
    fflush(stdout);
    fprintf(stderr, "lockstep %s: error[%s]: ", cmd, ls_status_word(s));
    for (const unsigned char *p = (const unsigned char *)ls_last_error(); *p; p++)
        if (*p < 0x20 || *p == 0x7f) fprintf(stderr, "\\x%02x", *p); /* a file's text must not steer a terminal */
        else fputc(*p, stderr);
    fputc('\n', stderr);
    return ls_status_exit_code(s);
}

void ls_cli_overview(ls_cmd_list all, ls_text *out)
{
    const ls_cmd *train = ls_cli_find(all, "train");
    ls_text_add(out, "lockstep: plan it, simulate it, run it, explain it - with the same code\n\nusage: lockstep COMMAND "
                     "[options]\n\n");
    for (ls_cmd_list cmd = all; *cmd; cmd++) ls_text_add(out, "  %-10s %s\n", (*cmd)->name, (*cmd)->summary);
    ls_text_add(out,
                "\n  lockstep COMMAND --help   what a command takes, with an example\n"
                "  lockstep help TOPIC       explains a command, a page of the handbook, or a status name\n"
                "  lockstep --version, -V    what was built\n\nexample:\n  %s\n",
                train ? train->example : "");
}

ls_status ls_cli_launch(const ls_launch_opts *o, int argc, char **argv, ls_launch_result *out)
{
    char self[4096];
    ls_launch_opts mine = *o;
    if (ls_env_get()->self_path(self, sizeof self) < 0) return ls_fail(LS_SYSTEM, "the path of this program is unknown");
    const char **child = calloc((size_t)argc + 2, sizeof *child);
    if (!child) return ls_fail(LS_NO_MEMORY, "arguments of the ranks");
    child[0] = self;
    for (int i = 0; i < argc; i++) child[i + 1] = argv[i];
    mine.argv = child;
    const ls_status st = ls_launch(&mine, out);
    free(child);
    return st;
}
