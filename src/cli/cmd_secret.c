/* cmd_secret.c -- lockstep secret: makes the file that lets the hosts of a job know one another. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "meet/secret.h"

#define DEFAULT_FILE "lockstep.secret"

static int run(int argc, char **argv)
{
    const char *file = argc > 2 ? argv[2] : DEFAULT_FILE;
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (help) return ls_cli_help(&ls_cmd_secret);
    if (argc < 2 || argc > 3 || strcmp(argv[1], "new") != 0 || file[0] == '-')
        return ls_cli_fail("secret", ls_fail(LS_USAGE, "expected `lockstep secret new [FILE]`"));
    ls_status st = ls_secret_new(file);
    if (st < 0) return ls_cli_fail("secret", st);
    printf("%s: a new secret, which only you can read. Copy it to every node of the job (scp -p), then give\n"
           "--secret-file %s to `lockstep run` there, or set LOCKSTEP_SECRET_FILE for ranks started without a launcher\n",
           file, file);
    return 0;
}

const ls_cmd ls_cmd_secret = {
    .name = "secret",
    .summary = "make the secret file that a job on several nodes needs",
    .usage = "lockstep secret new [FILE]        (default: " DEFAULT_FILE ")",
    .example = "lockstep secret new job.secret",
    .run = run,
};
