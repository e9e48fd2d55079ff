/* pipe_list.c -- which micro-batch goes forward or backward when, and the proof that a list of it is a step. */
#include <stdlib.h>

#include "parallel/pipe_list.h"

ls_status ls_pipe_list_create(int chunks, int most, int slots, ls_pipe_list *out)
{
    *out = (ls_pipe_list){ .chunks = chunks, .most = most, .slots = slots };
    out->action = calloc(2 * (size_t)chunks * (size_t)most, sizeof *out->action);
    out->forward = calloc((size_t)chunks, sizeof *out->forward);
    out->backward = calloc((size_t)chunks, sizeof *out->backward);
    out->holds = calloc((size_t)slots, sizeof *out->holds);
    if (out->action && out->forward && out->backward && out->holds) return LS_OK;
    ls_pipe_list_free(out);
    return ls_fail(LS_NO_MEMORY, "a list of %d micro-batches", most);
}

void ls_pipe_list_free(ls_pipe_list *l)
{
    free(l->action);
    free(l->forward);
    free(l->backward);
    free(l->holds);
    *l = (ls_pipe_list){ 0 };
}

/* --- making ----------------------------------------------------------------------------------- */

/* There is no stage to wait for: each micro-batch goes backward as soon as it can. */
static void one_stage(ls_pipe_list *l, int micro_batches)
{
    l->n = 0;
    for (int m = 0; m < micro_batches; m++) {
        l->action[l->n++] = (ls_pipe_action){ .what = LS_PIPE_FORWARD, .micro_batch = m };
        l->action[l->n++] = (ls_pipe_action){ .what = LS_PIPE_BACKWARD, .micro_batch = m };
    }
}

ls_status ls_pipe_list_make(ls_pipe_list *l, int micro_batches)
{
    l->micro_batches = 0; /* a failure leaves none */
    one_stage(l, micro_batches);
    LS_TRY(ls_pipe_list_prove(l, micro_batches));
    l->micro_batches = micro_batches;
    return LS_OK;
}

/* --- proving ------------------------------------------------------------------------------------ */

static const char *name_of(const ls_pipe_action *a) { return a->what == LS_PIPE_FORWARD ? "forward" : "backward"; }

/* The slot that holds `key`, or -1. */
static int slot_of(const ls_pipe_list *l, int64_t key)
{
    for (int s = 0; s < l->slots; s++)
        if (l->holds[s] == key) return s;
    return -1;
}

static ls_status prove_order(const ls_pipe_list *l, int i, int expected, int micro_batches)
{
    const ls_pipe_action *a = &l->action[i];
    if (expected == micro_batches)
        return ls_fail(LS_INTERNAL,
                       "pipeline schedule: action %d is the %s of micro-batch %d, but all %d have gone %s", i, name_of(a),
                       a->micro_batch, micro_batches, name_of(a));
    if (a->micro_batch == expected) return LS_OK;
    return ls_fail(LS_INTERNAL,
                   "pipeline schedule: action %d is the %s of micro-batch %d: expected that of micro-batch %d, since "
                   "each goes once and in ascending order",
                   i, name_of(a), a->micro_batch, expected);
}

static ls_status prove_action(ls_pipe_list *l, int i, int micro_batches)
{
    ls_pipe_action *a = &l->action[i];
    if (a->chunk < 0 || a->chunk >= l->chunks)
        return ls_fail(LS_INTERNAL, "pipeline schedule: action %d is of chunk %d: expected 0 to %d", i, a->chunk,
                       l->chunks - 1);
    int *gone = a->what == LS_PIPE_FORWARD ? &l->forward[a->chunk] : &l->backward[a->chunk];
    LS_TRY(prove_order(l, i, *gone, micro_batches));
    const int64_t key = (int64_t)a->chunk * l->most + a->micro_batch;
    a->slot = slot_of(l, a->what == LS_PIPE_FORWARD ? -1 : key);
    if (a->slot < 0 && a->what == LS_PIPE_FORWARD)
        return ls_fail(LS_INTERNAL,
                       "pipeline schedule: action %d is the forward of micro-batch %d, with which more than %d are alive",
                       i, a->micro_batch, l->slots);
    if (a->slot < 0)
        return ls_fail(LS_INTERNAL,
                       "pipeline schedule: action %d is the backward of micro-batch %d, which has not gone forward", i,
                       a->micro_batch);
    l->holds[a->slot] = a->what == LS_PIPE_FORWARD ? key : -1;
    a->last = a->micro_batch == micro_batches - 1;
    ++*gone;
    return LS_OK;
}

ls_status ls_pipe_list_prove(ls_pipe_list *l, int micro_batches)
{
    for (int c = 0; c < l->chunks; c++) l->forward[c] = l->backward[c] = 0;
    for (int s = 0; s < l->slots; s++) l->holds[s] = -1;
    for (int i = 0; i < l->n; i++) LS_TRY(prove_action(l, i, micro_batches));
    for (int c = 0; c < l->chunks; c++)
        if (l->backward[c] != micro_batches)
            return ls_fail(LS_INTERNAL,
                           "pipeline schedule: %d of %d micro-batches have gone forward, and %d backward, when it ends",
                           l->forward[c], micro_batches, l->backward[c]);
    return LS_OK;
}
