/* cli.h -- a subcommand is one file that ends in one of these. */
#ifndef LS_CLI_H
#define LS_CLI_H
#include "lockstep/opts.h"
#include "lockstep/status.h"

typedef struct ls_cmd {
    const char *name;    /* "coll" */
    const char *summary; /* one line for `lockstep --help` */
    const char *usage;   /* "lockstep coll [options]" */
    const char *example; /* a whole command line */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit status */
} ls_cmd;

extern const ls_cmd ls_cmd_bench, ls_cmd_calibrate, ls_cmd_ckpt, ls_cmd_coll, ls_cmd_data, ls_cmd_doctor,
    ls_cmd_export, ls_cmd_generate, ls_cmd_import, ls_cmd_run, ls_cmd_secret, ls_cmd_train;

/* "lockstep coll: error[invalid]: <last error>" on stderr; returns the exit code of s. */
int ls_cli_fail(const char *cmd, ls_status s);
/* --help of a subcommand, generated from its options (o may be NULL); returns 0. */
int ls_cli_help(const ls_cmd *cmd, const ls_opts *o);

#endif
