/* unused.h -- parameters that a backward does not reach (ls_ddp_config.find_unused, static_graph).
 *
 * A parameter that no operation of the forward has used gets no gradient, so its bucket would never be full. With
 * find_unused, DDP counts such parameters as ready at the first gradient of a backward; they contribute zeros. After
 * the last bucket, ranks add up who has used what: if no rank has used a parameter, its gradient stays as it was.
 * With static_graph the first backward decides this for all later ones, which must not differ from it.
 */
#ifndef LS_PARALLEL_UNUSED_H
#define LS_PARALLEL_UNUSED_H
#include "parallel/strategy.h"

typedef struct ls_unused ls_unused;

/* d->unused, if the configuration asks for it. LS_UNSUPPORTED: the strategy shards gradients. */
ls_status ls_unused_create(ls_ddp *d);
void ls_unused_destroy(ls_unused *u); /* NULL is fine */

/* A gradient of parameter i is ready, in a backward that is reduced or not. LS_INVALID: static_graph, and no
 * backward had reached it before. */
ls_status ls_unused_reached(ls_ddp *d, int i);
/* At the first gradient of a reduced backward: the parameters that it will not reach contribute zeros, or what earlier
 * backwards have accumulated, and are ready. */
ls_status ls_unused_mark(ls_ddp *d);
/* This rank takes no part in the coming reduction: what earlier backwards have reached does not count. */
void ls_unused_forget(ls_ddp *d);
/* After the last bucket of a reduced backward. LS_CONFIG_MISMATCH: static_graph, and ranks use different parameters. */
ls_status ls_unused_settle(ls_ddp *d);

#endif
