/* pipe_csv.h -- pipeline schedules as files that torch.distributed.pipelining reads and writes, too.
 *
 * A row per rank, a cell per action: stage, letter, micro-batch.
 *
 *     0F0,0F1,0B0,0B1
 *     1F0,1B0,1F1,1B1
 *
 * F is forward, B backward, I and W its halves. Empty cells are time that a rank idles; (0F3;3B1)OVERLAP_F_B is two
 * actions, one after the other here. That is PyTorch's format "compute_only". With "compute_comms", there are messages,
 * too: 0SEND_F0 on the rank of stage 0, 1RECV_F0 on that of stage 1, and SEND_B and RECV_B of gradients. PyTorch keeps
 * what is sent until a WAIT_SEND_F or WAIT_SEND_B, which each send needs; versions without them read no file that has
 * them.
 */
#ifndef LS_PARALLEL_PIPE_CSV_H
#define LS_PARALLEL_PIPE_CSV_H
#include "base/text.h"
#include "parallel/pipe_list.h"

#define LS_PIPE_MOST_CSV_BYTES ((size_t)64 << 20)

/* Reads a schedule of either format and proves it, with at most `most_alive` micro-batches alive per rank (0: any
 * number). Ranks, chunks, micro-batches and placement follow from the cells. Messages are checked, since they are
 * derived (pipe_list.h): each once, sent after what it carries, received before what needs it. WAIT_SEND has to come
 * after its SEND; UNSHARD, RESHARD and REDUCE_GRAD, which belong to FSDP, are counted in *others (may be NULL) and left
 * out. LS_BAD_FILE: `name` with row and cell, or the first violation of the proof; LS_NO_MEMORY. */
ls_status ls_pipe_csv_read(const char *name, const char *text, size_t nbytes, int most_alive, ls_pipe_program *out,
                           int *others);
/* The lists of a proved program; with `messages` each receive right before the action that needs it, and each send
 * right after what it sends; the wait for an activation follows the backward of the same stage and micro-batch, and the
 * waits for gradients are the last cells of a row, as PyTorch places them. */
void ls_pipe_csv_write(const ls_pipe_program *g, bool messages, ls_text *out);

#endif
