/* pipe_exec.c -- walks the list of a step: the loop over its micro-batches.
 *
 * With several stages, an action begins with a receive (of activations from the stage before, or of their gradients
 * from the stage after) and ends with a send. Both will be derived from the lists of neighbours, so no schedule writes
 * them. With one stage there are none.
 */
#include <stdlib.h>

#include "parallel/pipe_list.h"

struct ls_pipe {
    ls_pipe_program program;
    int rank, slots;
};

ls_status ls_pipe_check(const ls_pipe_config *c, int stages)
{
    if (stages != 1)
        return ls_fail(LS_UNSUPPORTED, "pp is %d: pipeline stages are not implemented: expected 1", stages);
    const ls_pipe_schedule *schedule;
    ls_pipe_shape shape = { stages, c->chunks, c->micro_batches };
    LS_TRY(ls_pipe_schedule_find(c->schedule, &schedule));
    if (c->chunks != 0 && c->chunks != 1)
        return ls_fail(LS_UNSUPPORTED, "%d pipeline chunks per stage are not implemented: expected 1", c->chunks);
    return ls_pipe_shape_check(schedule, &shape);
}

ls_status ls_pipe_create(const ls_pipe_config *c, ls_pipe **out)
{
    *out = NULL;
    LS_TRY(ls_pipe_check(c, c->stages ? ls_group_size(c->stages) : 1));
    ls_pipe *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "a pipe");
    const ls_pipe_schedule *schedule = NULL;
    const ls_pipe_shape shape = { 1, c->chunks, c->micro_batches };
    ls_status st = ls_pipe_schedule_find(c->schedule, &schedule);
    if (st == LS_OK) st = ls_pipe_program_create(schedule, &shape, &p->program);
    if (st == LS_OK) st = ls_pipe_program_make(&p->program, c->micro_batches);
    if (st == LS_OK) p->slots = p->program.slots[p->rank]; /* a step of fewer micro-batches has no more alive */
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
    ls_pipe_program_free(&p->program);
    free(p);
}

int ls_pipe_slots(const ls_pipe *p) { return p->slots; }

static ls_status act(const ls_pipe_action *a, const ls_pipe_work *work, void *arg)
{
    if (a->what == LS_PIPE_BACKWARD) return work->backward(arg, a);
    if (work->feed) LS_TRY(work->feed(arg, a));
    return work->forward(arg, a);
}

ls_status ls_pipe_run(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg)
{
    ls_pipe_program *g = &p->program;
    if (micro_batches < 1 || micro_batches > g->most)
        return ls_fail(LS_INVALID, "ls_pipe_run: %d micro-batches: expected 1 to %d, for which the pipe was created",
                       micro_batches, g->most);
    if (micro_batches != g->shape.micro_batches) LS_TRY(ls_pipe_program_make(g, micro_batches));
    const ls_pipe_list *l = &g->list[p->rank];
    for (int i = 0; i < l->n; i++) LS_TRY(act(&l->action[i], work, arg));
    return LS_OK;
}
