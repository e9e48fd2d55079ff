/* run.c -- a whole run from arguments, for the command and for programs that link the library. */
#include <stdlib.h>
#include <string.h>

#include "train/recipe.h"
#include "train/trainer.h"

ls_status ls_train_read(ls_opts *o, const ls_train_config *c, int argc, char **argv)
{
    int rest;
    LS_TRY(ls_opts_parse(o, argc, argv, false, &rest));
    if (ls_opts_npositional(o) > 1)
        return ls_fail(LS_USAGE, "one configuration file is expected, '%s' is a second one", ls_opts_positional(o, 1));
    if (ls_opts_npositional(o) == 1) {
        ls_text path = { 0 };
        ls_status st = ls_recipe_find(ls_opts_positional(o, 0), &path);
        if (st == LS_OK) st = ls_opts_load_yaml(o, path.p); /* flags stay: they outrank the file */
        ls_text_free(&path);
        if (st < 0) return st;
    } else if (!c->help && !c->print_config && argc < 2) {
        return ls_fail(LS_USAGE, "which run? Give a YAML file, for example recipes/fashion-mnist.yaml, or the name of a recipe, or "
                                 "options; see lockstep train --help");
    }
    return ls_train_config_resolve(o, c);
}

/* Flags that make no sense for a caller that is a rank already. */
static ls_status check_flags(const ls_opts *o, const ls_train_config *c)
{
    static const char *const of_command[] = { "help", "print-config", "dry-run", "explain", "predict", "ranks-as" },
                      *const of_launcher[] = { "events", "log-dir", "max-restarts" };
    for (size_t i = 0; i < sizeof of_command / sizeof *of_command; i++)
        if (!ls_opts_is_default(o, of_command[i]))
            return ls_fail(LS_USAGE, "--%s is for `lockstep train`; ls_train_run only trains: leave it out", of_command[i]);
    for (size_t i = 0; i < sizeof of_launcher / sizeof *of_launcher; i++)
        if (!ls_opts_is_default(o, of_launcher[i]))
            return ls_fail(LS_USAGE, "--%s is for the launcher; ls_train_run starts no ranks: give it to `lockstep run`",
                           of_launcher[i]);
    if (strcmp(c->parallel.placement, "auto") == 0)
        return ls_fail(LS_UNSUPPORTED, "parallel.placement auto is for `lockstep train`, which knows the planner: give ls_train_run "
                       "parallel.order in its place");
    int rank, size;
    (void)ls_world_launched(&rank, &size);
    const int nproc = ls_train_nproc_auto(c) ? 0 : ls_train_nproc(c);
    if (nproc > 1 && nproc != size)
        return ls_fail(LS_USAGE, "--nproc-per-node is %d, but this job has %d ranks and ls_train_run starts none: start the "
                                 "program with `lockstep run --nproc-per-node %d`", nproc, size, nproc);
    return LS_OK;
}

ls_status ls_train_run(int nargs, const char *const *args, ls_train_result *out)
{
    ls_train_config c = { 0 };
    ls_opts *o = NULL;
    *out = (ls_train_result){ 0 };
    if (nargs < 0) return ls_fail(LS_INVALID, "ls_train_run: %d arguments", nargs);
    char **argv = calloc((size_t)nargs + 2, sizeof *argv);
    if (!argv) return ls_fail(LS_NO_MEMORY, "%d arguments", nargs);
    argv[0] = "train";
    for (int i = 0; i < nargs; i++) argv[i + 1] = (char *)args[i]; /* only read */
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o);
    if (st == LS_OK) st = ls_train_read(o, &c, nargs + 1, argv);
    if (st == LS_OK) st = check_flags(o, &c);
    if (st == LS_OK) st = ls_train_check_given(o, &c);
    if (st == LS_OK) st = ls_train(&c, o, out);
    ls_opts_destroy(o);
    free(argv);
    return st;
}
