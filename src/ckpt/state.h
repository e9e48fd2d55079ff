/* state.h -- a state from the inside: which boxes of which tensors a rank has in memory.
 *
 *   state.c        what a state consists of, and loading it
 *   shards.c       the files of one rank
 *   saving.c       the files of all ranks, and the order in which they become a checkpoint (saving.h)
 *   state_save.c   a save that is waited for
 *   state_async.c  the same while the program goes on
 *   agree.c        whether all ranks have succeeded
 *   piece.c        elements of a parameter as boxes of a tensor in a file
 */
#ifndef LS_CKPT_STATE_H
#define LS_CKPT_STATE_H
#include "base/text.h"
#include "ckpt/manifest.h"
#include "lockstep/state.h"

#define LS_STATE_OPTIM "optim." /* before the names of optimizer state, */
#define LS_STATE_OWN   "state." /* and of what a program has added */

/* --- pieces -------------------------------------------------------------------------------------- */

/* Some elements of a parameter's tensor here, or of an optimizer's state of it: rows of a matrix, elements of a vector.
 * In files a piece is boxes of the whole tensor, one for each run of the part (ls_part) that it has elements of. */
typedef struct ls_piece {
    ls_box box;     /* of the whole tensor, as files have it: of a transposed parameter the first two sizes are
                       exchanged */
    size_t first;   /* the first element's place among the piece's, */
    size_t count;   /* and how many there are; they follow one another here */
} ls_piece;

/* The shape of a parameter's whole tensor in files: p->t.ndim sizes. */
void ls_piece_shape(const ls_param *p, int64_t dim[LS_MAX_DIMS]);
/* Boxes that elements [range.first, range.first + range.count) of p->t are; out[runs of the part]. *n gets their
 * number. LS_UNSUPPORTED: elements that are no whole rows, or parts whose boxes are not contiguous here. */
ls_status ls_piece_boxes(const ls_param *p, ls_range range, ls_piece *out, int *n);
int ls_piece_most(const ls_param *p); /* boxes that there may be */
/* Reads these elements of the tensor `name`, whose shape is that of p's, into dst, one after another as they are here.
 * */
ls_status ls_piece_read(ls_checkpoint *s, const char *name, const ls_param *p, ls_range range, float *dst);

/* LS_SHAPE unless the checkpoint has such a tensor. */
ls_status ls_checkpoint_check(const ls_checkpoint *s, const char *name, ls_dtype dtype, int ndim, const int64_t *dim);

/* The number of updates in the tensor `name`: one I64, or of another program also one F32, as PyTorch has it. LS_SHAPE:
 * there is none, or it is no whole number. */
ls_status ls_checkpoint_updates(ls_checkpoint *s, const char *name, int64_t *out);

/* --- states ----------------------------------------------------------------------------------------- */

/* What a program has added. */
typedef struct ls_state_own {
    char name[LS_NAME_BYTES + sizeof LS_STATE_OWN]; /* with the prefix */
    void *p;                                        /* borrowed */
    ls_dtype dtype;                                 /* LS_U8: bytes */
    int64_t count;
} ls_state_own;

typedef struct ls_state_async ls_state_async;

struct ls_state {
    ls_group *g;        /* borrowed, as the next two */
    ls_params *ps;      /* NULL: no model */
    ls_optim *optim;    /* NULL: none */
    ls_state_own *own;  /* owned: [nown] */
    int nown;
    int64_t generation; /* of the job: what a manifest says */
    const char *const *meta; /* borrowed: pairs; NULL: none */
    int culprit;        /* the rank of g whose failure the last failed save was */
    ls_state_async *async; /* owned: the copy of ls_state_save_begin, and the thread that writes it; NULL: none yet */
};

/* ls_state_save with files beside sharded/: every rank calls `companions`, rank 0 with the folder that is being written
 * and its manifest, the others with NULL. What it writes there is checked like the ranks' files: files that it has
 * checksums of it adds to m, the others are read back. */
typedef ls_status (*ls_state_companions)(void *arg, const char *folder, ls_manifest *m);
ls_status ls_state_save_with(ls_state *s, const char *folder, int64_t step, ls_state_companions companions, void *arg);

/* ls_state_save_begin with files beside sharded/: the thread of rank 0 calls `beside` (NULL: none) with the folder that
 * is being written, when the files of all ranks are there. arg is borrowed until the save is over. */
ls_status ls_state_save_begin_with(ls_state *s, const char *folder, int64_t step,
                                   ls_status (*beside)(void *arg, const char *folder), void *arg);
bool ls_state_saving(const ls_state *s); /* a save is in flight: the same on all ranks */
/* LS_INVALID, with the name of the caller's function, if one is. */
ls_status ls_state_check_idle(const ls_state *s, const char *call);
/* For programs that exchange words between ranks anyway, in place of ls_state_save_poll. Busy: this rank's thread is at
 * work for the save in flight; costs no system call. Advance: every rank calls it, at the same place, with whether any
 * rank said busy; returns what ls_state_save_poll does. With false it waits for the threads. */
bool ls_state_save_busy(const ls_state *s);
ls_status ls_state_save_advance(ls_state *s, bool busy);
void ls_state_async_destroy(ls_state *s);

/* Every rank of g calls it with what its part of the work gave. LS_OK if all succeeded; else the first rank's failure,
 * on every rank, with its message; *culprit (NULL: not wanted) is that rank's number in g. */
ls_status ls_state_agree(ls_group *g, ls_status mine, int *culprit);

#endif
