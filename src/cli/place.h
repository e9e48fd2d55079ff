/* place.h -- parallel.placement auto: the order of the axes that takes least on nodes joined by a slower network. */
#ifndef LS_CLI_PLACE_H
#define LS_CLI_PLACE_H
#include "lockstep/opts.h"
#include "train/config.h"

/* Of a job of `ranks` on so many nodes, with equally many each: sets parallel.order to the order in which the
 * collectives of a step take least one after another, and parallel.placement to order, so that config.yaml says what
 * was chosen. c is what `o` sets. Where parallel.placement is order nothing is done; on one node the usual order is the
 * best one. Every process of a job chooses the same: from the configuration, not from measurements.
 * LS_BAD_CONFIG: parallel.order is given, too; nodes have not equally many ranks, or that is not known (0 nodes); the
 * configuration is wrong.
 * LS_UNSUPPORTED as ls_step_traffic_of. */
ls_status ls_cli_place(ls_opts *o, const ls_train_config *c, int ranks, int nodes);

#endif
