/* planned.c -- a configuration and a cluster from the command line. */
#include "cli/planned.h"

#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"
#include "cli/topo_here.h"
#include "train/config.h"

#define MOST_RANKS 65536

ls_opt *ls_cli_with_train_opts(const ls_opt *own, size_t nown)
{
    ls_opt *all = calloc(nown + ls_train_nopts, sizeof *all);
    if (!all) return NULL;
    memcpy(all, own, nown * sizeof *all);
    memcpy(all + nown, ls_train_opts, ls_train_nopts * sizeof *all);
    return all;
}

ls_status ls_cli_refuse_train_flags(const ls_opts *opts, size_t nown)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const char *name = ls_train_opts[i].name;
        if (!strchr(name, '.') && ls_opts_find(opts, name) >= nown && ls_opts_is_set(opts, name))
            return ls_fail(LS_USAGE, "--%s belongs to `lockstep train`: leave it out", name);
    }
    return LS_OK;
}

bool ls_cli_is_local(const char *name) { return strcmp(name, "local") == 0; }

ls_status ls_cli_cluster(const char *name, int64_t units, ls_topo *out)
{
    if (!name || !*name) return ls_fail(LS_USAGE, "which cluster? --topology names a preset, a file or local");
    LS_TRY(ls_cli_is_local(name) ? ls_topo_here(out) : ls_topo_load(name, out));
    return units > 0 ? ls_topo_resize(out, units) : LS_OK;
}

ls_status ls_cli_cluster_for(const char *name, int64_t units, int64_t ranks, ls_topo *out)
{
    LS_TRY(ls_cli_cluster(name, units, out));
    const bool preset = !strchr(name, '/') && !strchr(name, '.') && !ls_cli_is_local(name);
    const int64_t each = ls_topo_devices(out) / out->level[out->nlevels - 1].count;
    if (!preset || units > 0 || ranks <= ls_topo_devices(out)) return LS_OK;
    return ls_topo_resize(out, (ranks + each - 1) / each);
}

ls_status ls_cli_cluster_ranks(const ls_topo *t, int64_t asked, int *out)
{
    const int64_t ranks = asked ? asked : ls_topo_devices(t);
    LS_TRY(ls_topo_check_ranks(t, ranks));
    if (ranks > MOST_RANKS)
        return ls_fail(LS_USAGE, "%s has %lld devices: --ranks says how many of them to use, at most %d", t->name,
                       (long long)ranks, MOST_RANKS);
    *out = (int)ranks;
    return LS_OK;
}
