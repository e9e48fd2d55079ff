/* cmd_completion.c -- lockstep completion: scripts by which shells complete commands and options. */
#include <stdio.h>
#include <string.h>

#include "base/install.h"
#include "cli/cli.h"

/* Lists that the scripts ask for while they complete. */
static bool list(ls_cmd_list all, const char *what, ls_text *out)
{
    if (strcmp(what, "recipes") == 0) {
        ls_install_list("recipes", ".yaml", out);
    } else if (strcmp(what, "topics") == 0) {
        for (ls_cmd_list cmd = all; *cmd; cmd++) ls_text_add(out, " %s", (*cmd)->name);
        ls_install_list("docs", ".md", out);
#define X(NAME, value, word, code, text) ls_text_add(out, " %s", word);
        LS_STATUS_MAP(X)
#undef X
    } else {
        return false;
    }
    ls_text_add(out, "\n");
    return true;
}

static int run(ls_cmd_list all, int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return ls_cli_help(&ls_cmd_completion);
    if (argc != 2) return ls_cli_fail("completion", ls_fail(LS_USAGE, "which shell? Expected bash, zsh or fish"));
    ls_text out = { 0 };
    ls_status st = list(all, argv[1], &out) ? LS_OK : ls_cli_completion(all, argv[1], &out);
    if (st == LS_OK) st = ls_text_status(&out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    ls_text_free(&out);
    return st < 0 ? ls_cli_fail("completion", st) : 0;
}

const ls_cmd ls_cmd_completion = {
    .name = "completion",
    .summary = "print a script by which bash, zsh or fish completes commands and options",
    .usage = "lockstep completion bash|zsh|fish",
    .example = "source <(lockstep completion bash)",
    .run_with = run,
};
