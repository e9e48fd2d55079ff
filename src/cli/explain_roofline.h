/* explain_roofline.h -- lockstep explain roofline: the peaks of a cluster or of this machine, and what limits a
 * step. */
#ifndef LS_CLI_EXPLAIN_ROOFLINE_H
#define LS_CLI_EXPLAIN_ROOFLINE_H
#include "cli/explain_side.h"

/* A configuration or a run that ls_explain_look has looked at. Of this machine the peaks are measured, unless flags
 * say them. LS_USAGE: those of a cluster are not known; the failures of ls_cli_cluster and ls_roofline_of. */
ls_status ls_explain_roofline(const ls_explain_asked *a, ls_text *out);

#endif
