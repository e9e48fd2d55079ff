/* planned.h -- what commands share that read a configuration of `lockstep train` and plan it: on a cluster (topo place,
 * sim), or without one (explain).
 */
#ifndef LS_CLI_PLANNED_H
#define LS_CLI_PLANNED_H
#include "lockstep/opts.h"
#include "lockstep/topo.h"

/* The command's own options, and then those of `lockstep train`, whose offsets are in a configuration that comes first
 * in the command's struct. To be freed; NULL: no memory. */
ls_opt *ls_cli_with_train_opts(const ls_opt *own, size_t nown);
/* Keys of a configuration have a dot. LS_USAGE: another option of `lockstep train` is set, which would do nothing. */
ls_status ls_cli_refuse_train_flags(const ls_opts *opts, size_t nown);
/* Whether the name of a topology is "local": this machine, whose ranks share memory. */
bool ls_cli_is_local(const char *name);
/* A preset, a file, or "local". units: so many of its highest level; 0: as it is. LS_USAGE: no name; the failures of
 * ls_topo_load and ls_topo_resize. */
ls_status ls_cli_cluster(const char *name, int64_t units, ls_topo *out);
/* The same with room for so many ranks (0: as it is): a preset gets as many of its highest units as they need, unless
 * `units` says how many. */
ls_status ls_cli_cluster_for(const char *name, int64_t units, int64_t ranks, ls_topo *out);
/* Ranks that are asked for; 0: one per device. LS_BAD_CONFIG: they do not fit; LS_USAGE: more than 65536. */
ls_status ls_cli_cluster_ranks(const ls_topo *t, int64_t asked, int *out);

#endif
