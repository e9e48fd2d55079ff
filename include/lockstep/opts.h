/* opts.h -- one option table for the command line, YAML, the environment and
 * --help.
 *
 * A table row is an option's single definition. Values are stored at `offset`
 * in the caller's struct; where each value came from is remembered for
 * --print-config. An unknown name is an error that gives the nearest known one.
 */
#ifndef LS_OPTS_H
#define LS_OPTS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_opt_type {
    LS_OPT_BOOL,     /* bool; --x, --x true|false|0|1 */
    LS_OPT_INT,      /* int64_t; 1e3 is 1000 */
    LS_OPT_DOUBLE,   /* double */
    LS_OPT_BYTES,    /* size_t; "25MiB", "64KiB", "1G" (powers of 1024) */
    LS_OPT_TIME,     /* uint64_t ns; "30" or "30s", "500ms", "2m" */
    LS_OPT_EVERY,    /* int64_t: a number of steps, "10"; or a time with its unit, "10m": the negative number of its ns */
    LS_OPT_STRING,   /* const char *, owned by the ls_opts */
    LS_OPT_CHOICE,   /* const char *, one of `range` */
    LS_OPT_INTS,     /* ls_opt_ints: "[784, 256, 10]" or "784,256,10" */
    LS_OPT_DOUBLES   /* ls_opt_doubles: "[0.9, 0.95]" or "0.9,0.95" */
} ls_opt_type;

#define LS_OPT_MAX_INTS 32
typedef struct ls_opt_ints { int64_t v[LS_OPT_MAX_INTS]; int n; } ls_opt_ints;
typedef struct ls_opt_doubles { double v[LS_OPT_MAX_INTS]; int n; } ls_opt_doubles;

typedef struct ls_opt {
    const char *name;   /* "train.steps" or "nproc-per-node"; '-' and '_' are the same on input */
    ls_opt_type type;
    size_t offset;      /* in the target struct */
    const char *def;    /* default, as text; NULL: zero */
    const char *range;  /* "1..64", "0..", ">0", "0..<1" (1 excluded), "a|b|c"; NULL: any. Shown in
                         * --help, checked; of a list, every element is; of a string: words that it may be,
                         * shown and completed, not checked */
    const char *help;   /* one line */
    char short_name;    /* 'n' for -n; 0: none */
    const char *alias;  /* other long names, "a|b"; NULL: none */
} ls_opt;

typedef struct ls_opts ls_opts;

/* Sets every default in target. table and target are borrowed.
 *
 * Where a table has names with a dot ("train.steps"), those are the configuration: they may come
 * from a YAML file and are what ls_opts_print_config shows. The others ("help") are for the
 * command line alone. A table without dots is all configuration. */
ls_status ls_opts_create(const ls_opt *table, size_t n, void *target, ls_opts **out);
void ls_opts_destroy(ls_opts *o);

/* One value. origin ("default", "run.yaml:12", "flag", "environment") is copied.
 *
 * A flag wins over the environment, that over a file, and that over a default, in whatever order
 * they are set; the value that loses is checked all the same.
 * LS_USAGE (flag) / LS_BAD_CONFIG: unknown name (with the nearest), wrong type, out of range. */
ls_status ls_opts_set(ls_opts *o, const char *name, const char *value, const char *origin);
/* --name value, --name=value, -n value, -nvalue, --flag. argv[0] is the command's name and skipped.
 * Stops at "--" or (stop_at_positional) at the first positional. Positionals are collected in argv
 * order and borrowed; *rest is the index of the first unparsed. LS_USAGE as in ls_opts_set. */
ls_status ls_opts_parse(ls_opts *o, int argc, char **argv, bool stop_at_positional, int *rest);
int ls_opts_npositional(const ls_opts *o);
const char *ls_opts_positional(const ls_opts *o, int i);
/* A YAML file of sections and keys ("train: {steps: 10}" is train.steps). Errors name
 * file:line:column. LS_IO: not readable; LS_BAD_FILE: not YAML, or with anchors, aliases, tags,
 * duplicate keys, a second document, larger or deeper than Lockstep accepts; LS_BAD_CONFIG: as in
 * ls_opts_set. Keys before the failing one have been set. */
ls_status ls_opts_load_yaml(ls_opts *o, const char *path);
/* Whether name was set by anything but its default; and by what. */
bool ls_opts_is_set(const ls_opts *o, const char *name);
const char *ls_opts_origin(const ls_opts *o, const char *name);
/* Whether the value is the table's default, whoever gave it. */
bool ls_opts_is_default(const ls_opts *o, const char *name);
/* The value as ls_opts_print_config shows it, for the caller to free; NULL: no such name, or out of memory. */
char *ls_opts_value(const ls_opts *o, const char *name);

/* malloc'd texts for the caller to free; NULL when out of memory. */
char *ls_opts_help(const ls_opts *o, const char *usage, const char *summary, const char *example);
char *ls_opts_print_config(const ls_opts *o); /* runnable YAML, "key: value  # origin" */
char *ls_opts_yaml(const ls_opts *o);         /* the same without comments */

/* The entry of names[n] nearest to `name` by edit distance, or NULL when none is near. */
const char *ls_nearest(const char *name, const char *const *names, size_t n);

#ifdef __cplusplus
}
#endif
#endif
