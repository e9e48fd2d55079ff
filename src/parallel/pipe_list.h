/* pipe_list.h -- the list of actions of a step, and its proof. */
#ifndef LS_PARALLEL_PIPE_LIST_H
#define LS_PARALLEL_PIPE_LIST_H
#include <stdint.h>
#include "lockstep/pipe.h"

/* Zeros are a list without memory. */
typedef struct ls_pipe_list {
    ls_pipe_action *action;  /* owned, as all here: [n], of 2 chunks most */
    int n;
    int chunks, most, slots; /* pieces of the model; micro-batches at most; of them alive at most */
    int micro_batches;       /* that it is made for; 0: none yet */
    int *forward, *backward; /* [chunks]: how many micro-batches have gone so far in the proof */
    int64_t *holds;          /* [slots]: the micro-batch in each slot, as chunk most + micro_batch; -1: none */
} ls_pipe_list;

ls_status ls_pipe_list_create(int chunks, int most, int slots, ls_pipe_list *out);
void ls_pipe_list_free(ls_pipe_list *l);
/* The list of one stage with one chunk, proved. 1 <= micro_batches <= l->most. */
ls_status ls_pipe_list_make(ls_pipe_list *l, int micro_batches);
/* Whether l->action[0 .. n), of which `what`, `chunk` and `micro_batch` are read, is a step of so many micro-batches in
 * l->slots slots; gives each action its slot and says which is the last. LS_INTERNAL names the first action that is
 * not part of one. */
ls_status ls_pipe_list_prove(ls_pipe_list *l, int micro_batches);

#endif
