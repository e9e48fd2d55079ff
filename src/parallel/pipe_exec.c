/* pipe_exec.c -- walks the list of a step: the loop over its micro-batches.
 *
 * With several stages, an action begins with a receive (of activations from the stage before, or of their gradients
 * from the stage after) and ends with a send. Both will be derived from the lists of neighbours, so no schedule writes
 * them. With one stage there are none.
 */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipe_list.h"

#define ONE_STAGE_SLOTS 1

struct ls_pipe {
    ls_pipe_list list;
};

ls_status ls_pipe_check(const ls_pipe_config *c, int stages)
{
    if (stages != 1)
        return ls_fail(LS_UNSUPPORTED, "pp is %d: pipeline stages are not implemented: expected 1", stages);
    if (c->schedule && strcmp(c->schedule, "1f1b") != 0)
        return ls_fail(LS_UNSUPPORTED, "pipeline schedule '%s' is not implemented: expected 1f1b", c->schedule);
    if (c->chunks != 0 && c->chunks != 1)
        return ls_fail(LS_UNSUPPORTED, "%d pipeline chunks per stage are not implemented: expected 1", c->chunks);
    if (c->micro_batches < 1 || c->micro_batches > LS_PIPE_MOST_MICRO_BATCHES)
        return ls_fail(LS_BAD_CONFIG, "a step of %d micro-batches: expected 1 to %d", c->micro_batches,
                       LS_PIPE_MOST_MICRO_BATCHES);
    return LS_OK;
}

ls_status ls_pipe_create(const ls_pipe_config *c, ls_pipe **out)
{
    *out = NULL;
    LS_TRY(ls_pipe_check(c, c->stages ? ls_group_size(c->stages) : 1));
    ls_pipe *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "a pipe");
    ls_status st = ls_pipe_list_create(1, c->micro_batches, ONE_STAGE_SLOTS, &p->list);
    if (st == LS_OK) st = ls_pipe_list_make(&p->list, c->micro_batches);
    if (st < 0) {
        ls_pipe_destroy(p);
        return st;
    }
    *out = p;
    return LS_OK;
}

void ls_pipe_destroy(ls_pipe *p)
{
    if (!p) return;
    ls_pipe_list_free(&p->list);
    free(p);
}

int ls_pipe_slots(const ls_pipe *p) { return p->list.slots; }

static ls_status act(const ls_pipe_action *a, const ls_pipe_work *work, void *arg)
{
    if (a->what == LS_PIPE_BACKWARD) return work->backward(arg, a);
    if (work->feed) LS_TRY(work->feed(arg, a));
    return work->forward(arg, a);
}

ls_status ls_pipe_run(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg)
{
    ls_pipe_list *l = &p->list;
    if (micro_batches < 1 || micro_batches > l->most)
        return ls_fail(LS_INVALID, "ls_pipe_run: %d micro-batches: expected 1 to %d, for which the pipe was created",
                       micro_batches, l->most);
    if (micro_batches != l->micro_batches) LS_TRY(ls_pipe_list_make(l, micro_batches));
    for (int i = 0; i < l->n; i++) LS_TRY(act(&l->action[i], work, arg));
    return LS_OK;
}
