/* pipe_list.c -- where stages are, and the list of a rank. */
#include "parallel/pipe_list.h"

int ls_pipe_place_stage(ls_pipe_placement where, int ranks, int rank, int chunk)
{
    return where == LS_PIPE_V && chunk % 2 == 1 ? (chunk + 1) * ranks - 1 - rank : chunk * ranks + rank;
}

int ls_pipe_place_rank(ls_pipe_placement where, int ranks, int stage)
{
    const int at = stage % ranks;
    return where == LS_PIPE_V && stage / ranks % 2 == 1 ? ranks - 1 - at : at;
}

int ls_pipe_place_chunk(ls_pipe_placement where, int ranks, int stage)
{
    (void)where; /* each way along the ranks is one chunk of each */
    return stage / ranks;
}

void ls_pipe_put(ls_pipe_list *l, ls_pipe_what what, int chunk, int micro_batch)
{
    if (micro_batch >= l->wanted) return;
    if (l->n == l->room) {
        l->full = true;
        return;
    }
    l->action[l->n++] = (ls_pipe_action){ .what = what, .chunk = chunk, .micro_batch = micro_batch };
}

const char *ls_pipe_what_name(ls_pipe_what what)
{
    static const char *const name[] = { "forward", "backward", "backward of the input", "backward of the weights" };
    return name[what];
}

char ls_pipe_letter(ls_pipe_what what) { return "FBIW"[what]; }
