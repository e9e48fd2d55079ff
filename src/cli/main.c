/* main.c -- lockstep: finds the subcommand and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "lockstep/lockstep.h"

static void overview(FILE *to)
{
    ls_text text = { 0 };
    ls_cli_overview(ls_cmds, &text);
    fputs(ls_text_str(&text), to);
    ls_text_free(&text);
}

/* The exit code, unless what was printed got lost: a full disk must not look like success. */
static int flushed(const char *cmd, int code)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    return lost && code == 0 ? ls_cli_fail(cmd, ls_fail(LS_IO, "writing to standard output failed")) : code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        overview(stderr);
        return ls_status_exit_code(LS_USAGE);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        overview(stdout);
        return flushed("help", 0);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("lockstep %s\n", ls_version());
        return flushed("--version", 0);
    }
    const ls_cmd *cmd = ls_cli_find(ls_cmds, name);
    if (cmd) return flushed(name, ls_cli_run(ls_cmds, cmd, argc - 1, argv + 1));
    const char *near = ls_cli_near(ls_cmds, name);
    fprintf(stderr, "lockstep: error[usage]: no command named '%s'%s%s%s; `lockstep --help` lists them\n", name,
            near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    return ls_status_exit_code(LS_USAGE);
}
