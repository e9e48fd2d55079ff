/* main.c -- lockstep: finds the subcommand and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "lockstep/lockstep.h"

static const ls_cmd *const cmds[] = {
    &ls_cmd_run,  &ls_cmd_train, &ls_cmd_bench,  &ls_cmd_calibrate,
    &ls_cmd_coll, &ls_cmd_data,  &ls_cmd_ckpt,   &ls_cmd_export,
    &ls_cmd_import, &ls_cmd_generate, &ls_cmd_secret, &ls_cmd_doctor,
};
#define NCMDS (sizeof cmds / sizeof *cmds)

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

int ls_cli_help(const ls_cmd *cmd, const ls_opts *o)
{
    char *text = o ? ls_opts_help(o, cmd->usage, cmd->summary, cmd->example) : NULL;
    if (text) printf("%s", text);
    else printf("usage: %s\n%s\n\nexample:\n  %s\n", cmd->usage, cmd->summary, cmd->example);
    free(text);
    return 0;
}

static void help(FILE *to)
{
    fprintf(to, "lockstep: plan it, simulate it, run it, explain it - with the same code\n\nusage: lockstep COMMAND "
                "[options]\n\n");
    for (size_t i = 0; i < NCMDS; i++) fprintf(to, "  %-9s %s\n", cmds[i]->name, cmds[i]->summary);
    fprintf(to,
            "\n  lockstep COMMAND --help   what a command takes, with an example\n  lockstep --version        what was "
            "built\n\n"
            "example:\n  %s\n",
            ls_cmd_train.example);
}

/* The exit code, unless what was printed got lost: a full disk must not look like success. */
static int flushed(const char *cmd, int code)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    return lost && code == 0 ? ls_cli_fail(cmd, ls_fail(LS_IO, "writing to standard output failed")) : code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL, *names[NCMDS];
    if (!name) {
        help(stderr);
        return ls_status_exit_code(LS_USAGE);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        printf("lockstep %s\n", ls_version());
        return 0;
    }
    for (size_t i = 0; i < NCMDS; i++) {
        names[i] = cmds[i]->name;
        if (strcmp(name, names[i]) == 0) return flushed(name, cmds[i]->run(argc - 1, argv + 1));
    }
    const char *near = ls_nearest(name, names, NCMDS);
    fprintf(stderr, "lockstep: error[usage]: no command named '%s'%s%s%s; `lockstep --help` lists them\n", name,
            near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    return ls_status_exit_code(LS_USAGE);
}
