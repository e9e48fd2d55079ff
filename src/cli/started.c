/* started.c -- what commands that train do as ranks which a launcher has started. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/cli.h"
#include "train/config.h"

#define COMMAND_BYTES 65536 /* of a launcher's command line */

ls_status ls_cli_check_started(const struct ls_train_config *c)
{
    const char *local = getenv("LOCAL_WORLD_SIZE");
    /* auto is no number here: a rank that is bound sees its own cores only */
    const int nproc = ls_train_nproc_auto(c) ? 0 : ls_train_nproc(c);
    if (!nproc || !local || atoi(local) == nproc) return LS_OK;
    return ls_fail(LS_USAGE, "--nproc-per-node is %d, but the launcher has started %s ranks on this machine: leave it out",
                   nproc, local);
}

/* Whether the launcher's own command line ends with our arguments: then every rank of this node has them. */
static bool same_for_all(int argc, char **argv)
{
    char path[40], text[COMMAND_BYTES];
    snprintf(path, sizeof path, "/proc/%d/cmdline", ls_env_get()->parent_pid());
    FILE *f = fopen(path, "rb");
    size_t at = f ? fread(text, 1, sizeof text, f) : 0;
    bool same = at > 0 && at < sizeof text; /* a longer one is not known */
    if (f) fclose(f);
    for (int i = argc - 1; same && i >= 0; i--) {
        const size_t k = strlen(argv[i]) + 1;
        same = at >= k && memcmp(text + at - k, argv[i], k) == 0;
        at -= same ? k : 0;
    }
    return same;
}

int ls_cli_fail_alike(const char *cmd, ls_status st, int argc, char **argv)
{
    const char *local = getenv("LOCAL_RANK");
    const bool alike = st != LS_NO_MEMORY && st != LS_SYSTEM && st != LS_INTERNAL;
    const bool other = alike && getenv("LOCKSTEP_LAUNCHER") && local && atoi(local) > 0;
    return other && same_for_all(argc, argv) ? ls_status_exit_code(st) : ls_cli_fail(cmd, st);
}
