/* cli.h -- a subcommand is one file that ends in one of these. */
#ifndef LS_CLI_H
#define LS_CLI_H
#include "base/opts_text.h"
#include "base/text.h"
#include "lockstep/launch.h"
#include "lockstep/opts.h"
#include "lockstep/status.h"

typedef struct ls_cmd ls_cmd;
typedef const ls_cmd *const *ls_cmd_list; /* NULL-ended */

struct ls_cmd {
    const char *name;    /* "coll" */
    const char *summary; /* one line for `lockstep --help` */
    const char *usage;   /* "lockstep ckpt ls|verify FILE": words in lower case after the name are what it can do */
    const char *example; /* a whole command line */
    const ls_opt *opts;  /* its options; NULL: none */
    const size_t *nopts; /* how many; LS_CMD_OPTS sets both */
    const ls_help_index *sections; /* of its options, for --help; NULL: it has none */
    ls_opt_readers *readers; /* who reads which of its options; NULL: no such rule */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit status. NULL: */
    int (*run_with)(ls_cmd_list all, int argc, char **argv); /* the same of one that tells of all commands */
};

#define LS_CMD_OPTS(table) .opts = table, .nopts = &(const size_t){ sizeof table / sizeof *table }

extern const ls_cmd ls_cmd_bench, ls_cmd_calibrate, ls_cmd_ckpt, ls_cmd_coll, ls_cmd_completion, ls_cmd_data,
    ls_cmd_doctor, ls_cmd_explain, ls_cmd_export, ls_cmd_figure, ls_cmd_generate, ls_cmd_help, ls_cmd_import,
    ls_cmd_lab, ls_cmd_pipeline, ls_cmd_plan, ls_cmd_run, ls_cmd_secret, ls_cmd_sim, ls_cmd_topo, ls_cmd_train,
    ls_cmd_tune;

/* --- commands.c: all of them, in the order of `lockstep --help` */
extern const ls_cmd *const ls_cmds[]; /* NULL-ended; main.c hands them on */

/* --- cli.c: what commands share */
int ls_cli_run(ls_cmd_list all, const ls_cmd *cmd, int argc, char **argv);
const ls_cmd *ls_cli_find(ls_cmd_list all, const char *name); /* NULL: there is none */
/* The nearest name, or NULL. */
const char *ls_cli_near(ls_cmd_list all, const char *name);
/* The words that can stand first after the name ("ls", "verify"), from the usage; how many, at most `most`. Each ends
 * at a blank, '|' or the end. */
int ls_cli_words(const ls_cmd *cmd, const char **word, int most);
size_t ls_cli_word_bytes(const char *word);
/* "lockstep coll: error[invalid]: <last error>" on stderr; returns the exit code of s. */
int ls_cli_fail(const char *cmd, ls_status s);
/* Prints a text on stdout and frees it. LS_NO_MEMORY: the text is not whole, and nothing was printed. */
ls_status ls_cli_print(ls_text *out);
/* Starts this program again, once per rank, with the same arguments; o->argv is set here. Waits as ls_launch does. */
ls_status ls_cli_launch(const ls_launch_opts *o, int argc, char **argv, ls_launch_result *out);
/* What `lockstep --help` says. */
void ls_cli_overview(ls_cmd_list all, ls_text *out);

/* --- started.c: of ranks that a launcher has started */
struct ls_train_config;
/* LS_USAGE: -n is another number of ranks than the launcher has started on this machine. */
ls_status ls_cli_check_started(const struct ls_train_config *c);
/* Before ranks meet: ls_cli_fail, but an error that all of them find in the same arguments and files is reported by the
 * first rank of each node only. */
int ls_cli_fail_alike(const char *cmd, ls_status st, int argc, char **argv);

/* --- help.c */
/* --help of a subcommand, from its table; returns 0. On a terminal a command with sections shows their names. */
int ls_cli_help(const ls_cmd *cmd);
/* `COMMAND --help TOPIC`: a section of its options, or all. Fails with LS_USAGE. */
int ls_cli_help_section(const ls_cmd *cmd, const char *section);
/* Manual pages as scdoc reads them: a command's, and that of lockstep. */
void ls_cli_scdoc(const ls_cmd *cmd, ls_text *out);
void ls_cli_scdoc_overview(ls_cmd_list all, ls_text *out);

/* --- completion.c */
/* A script for "bash", "zsh" or "fish" that completes commands, options and their values. LS_USAGE: another shell. */
ls_status ls_cli_completion(ls_cmd_list all, const char *shell, ls_text *out);

#endif
