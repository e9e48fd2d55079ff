/* commands.c -- the list of commands, and what they share: lookup, errors. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

const ls_cmd *const ls_cmds[] = {
    &ls_cmd_run,    &ls_cmd_train,  &ls_cmd_bench,  &ls_cmd_calibrate, &ls_cmd_coll,
    &ls_cmd_data,   &ls_cmd_ckpt,   &ls_cmd_export, &ls_cmd_import,    &ls_cmd_generate,
    &ls_cmd_secret, &ls_cmd_doctor, &ls_cmd_help,   &ls_cmd_completion, NULL,
};
#define NCMDS (sizeof ls_cmds / sizeof *ls_cmds - 1)

const ls_cmd *ls_cli_find(const char *name)
{
    for (size_t i = 0; i < NCMDS; i++)
        if (strcmp(name, ls_cmds[i]->name) == 0) return ls_cmds[i];
    return NULL;
}

const char *ls_cli_near(const char *name)
{
    const char *names[NCMDS];
    for (size_t i = 0; i < NCMDS; i++) names[i] = ls_cmds[i]->name;
    return ls_nearest(name, names, NCMDS);
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

void ls_cli_overview(ls_text *out)
{
    ls_text_add(out, "lockstep: plan it, simulate it, run it, explain it - with the same code\n\nusage: lockstep COMMAND "
                     "[options]\n\n");
    for (size_t i = 0; i < NCMDS; i++) ls_text_add(out, "  %-10s %s\n", ls_cmds[i]->name, ls_cmds[i]->summary);
    ls_text_add(out,
                "\n  lockstep COMMAND --help   what a command takes, with an example\n"
                "  lockstep help TOPIC       explains a command, a page of the handbook, or a status name\n"
                "  lockstep --version, -V    what was built\n\nexample:\n  %s\n",
                ls_cmd_train.example);
}
