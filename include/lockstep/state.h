/* state.h -- the whole state of a training run: saved by all ranks together, loaded on any number of ranks in any
 * layout.
 *
 *     ls_state_create(group, &state);
 *     ls_state_add_model(state, &model->params, optim);   parameters, and the optimizer's state by name
 *     ls_state_add(state, "loop", &loop, sizeof loop);    what the program has besides, the same on all ranks
 *     ... after a step:
 *     ls_state_save_in(state, "ckpts", 100);              as ckpts/step-00000100
 *
 * and when the program starts:
 *
 *     ls_checkpoint_newest(group, "ckpts", &saved);             the newest whole checkpoint; NULL: there is none
 *     ls_checkpoint_values(saved, &model->params);              in place of first values
 *     ls_ddp_create(...); ls_optim_create(...);
 *     ls_state_load(state, saved);                         the optimizer's state, and `loop`
 *
 * A checkpoint is a folder:
 *
 *   sharded/shard-00001-model-00001-of-00001.safetensors   what rank 0 has, in the layout of PyTorch's DCP
 *   sharded/shard-00002-model-00001-of-00001.safetensors   what rank 1 has ...
 *   manifest.json                                          which files there are, and a checksum of each MiB of them
 *
 * A tensor's name is the parameter's; `optim.<state>.<parameter>` is its optimizer state ("optim.exp_avg.0.weight"),
 * `optim.step.<parameter>` the number of its updates, `state.<name>` what ls_state_add has added. Each element is in
 * the file of one rank. PyTorch's HuggingFaceStorageReader
 * (torch.distributed.checkpoint) reads the folder `sharded`.
 *
 * What PyTorch's HuggingFaceStorageWriter (save_distributed) wrote of {"model": ..., "optim": ...}, the state dicts of
 * get_state_dict, is a checkpoint, too: `model.0.weight` gets the name 0.weight here, and
 * `optim.state.0.weight.exp_avg` the name optim.exp_avg.0.weight.
 *
 * The folder is written under a temporary name, and gets its own when all of it is on the disk: a crash at any moment
 * leaves the older checkpoints and perhaps this one, whole. All ranks must see the same folder: on several nodes it is
 * on a file system that they share.
 */
#ifndef LS_STATE_H
#define LS_STATE_H
#include "lockstep/ckpt.h"
#include "lockstep/group.h"
#include "lockstep/model.h"
#include "lockstep/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- a checkpoint that was saved --------------------------------------------------------------- */

typedef struct ls_checkpoint ls_checkpoint;

/* A tensor of it, which is in the files of one or more ranks. */
typedef struct ls_checkpoint_tensor {
    const char *name;
    const char *dtype_name; /* as in ls_ckpt_tensor, as the next two */
    ls_dtype dtype;
    int ndim;
    int64_t dim[LS_CKPT_MAX_DIMS]; /* of the whole tensor */
    int nchunks;                   /* boxes of it in files, */
    int first_chunk;               /* and the first one's place among all */
} ls_checkpoint_tensor;

/* Opens a checkpoint's folder. The manifest and the headers of all files are read and checked; data are checked as they
 * are read. A folder `sharded` without a manifest, which another program wrote, is opened, too, without checksums; so
 * are files shard-*.safetensors in `folder` itself.
 * LS_BAD_FILE: no checkpoint, or one whose files lack elements of a tensor or have some of them twice. LS_CKPT_CORRUPT
 * names a file that is missing, was changed, is of another save, or does not belong to the checkpoint. LS_UNSAFE_PATH:
 * a link in place of a file. LS_IO. */
ls_status ls_checkpoint_open(const char *folder, ls_checkpoint **out);
/* The same on every rank of g, which all call it: every byte is checked, each rank reads some of them. */
ls_status ls_checkpoint_open_all(ls_group *g, const char *folder, ls_checkpoint **out);
/* The newest whole checkpoint step-XXXXXXXX in `dir`: every rank of g calls it and gets the same one, opened and with
 * every byte checked, each rank some of them; *out is NULL if there is none. One line of the log names each checkpoint
 * that is skipped: it is damaged, is a link, or holds another step than its name says. LS_CKPT_CORRUPT: there are some,
 * and all of them are damaged. */
ls_status ls_checkpoint_newest(ls_group *g, const char *dir, ls_checkpoint **out);
void ls_checkpoint_close(ls_checkpoint *s); /* NULL is fine */
const char *ls_checkpoint_folder(const ls_checkpoint *s);
int64_t ls_checkpoint_step(const ls_checkpoint *s);     /* 0 without a manifest, as the next two */
int ls_checkpoint_world_size(const ls_checkpoint *s);   /* ranks that wrote it */
int64_t ls_checkpoint_generation(const ls_checkpoint *s);
int ls_checkpoint_nfiles(const ls_checkpoint *s);       /* files of ranks */
/* Names of the files beside them: config.yaml, model.safetensors ... */
int ls_checkpoint_nbeside(const ls_checkpoint *s);
const char *ls_checkpoint_beside(const ls_checkpoint *s, int i);
bool ls_checkpoint_has_manifest(const ls_checkpoint *s);
/* Whether another program, PyTorch's DCP, wrote it: there is no manifest, and nothing that ls_state_add adds. */
bool ls_checkpoint_is_foreign(const ls_checkpoint *s);
/* A value of the metadata that ls_state_set_meta gave; NULL if absent. */
const char *ls_checkpoint_meta(const ls_checkpoint *s, const char *key);
int ls_checkpoint_count(const ls_checkpoint *s);
const ls_checkpoint_tensor *ls_checkpoint_at(const ls_checkpoint *s, int i);                 /* names ascending */
const ls_checkpoint_tensor *ls_checkpoint_find(const ls_checkpoint *s, const char *name);    /* NULL if absent */
uint64_t ls_checkpoint_nbytes(const ls_checkpoint *s, const ls_checkpoint_tensor *t);
/* Reads the box of elements [first[d], first[d] + count[d]) of every dimension d into dst, row-major; first NULL: all
 * of the tensor. Each MiB that is read is checked: LS_CKPT_CORRUPT names file and byte. LS_INVALID: a box beyond the
 * tensor. */
ls_status ls_checkpoint_read(ls_checkpoint *s, const ls_checkpoint_tensor *t, const int64_t *first,
                             const int64_t *count, void *dst);
/* Reads and checks every byte of every file, or of blocks of 1 MiB those that rank `part` of `parts` reads.
 * LS_CKPT_CORRUPT. Without a manifest there is nothing to check. */
ls_status ls_checkpoint_verify(ls_checkpoint *s, int part, int parts);
/* The parameters' values, where a model draws its first ones: before ls_ddp_create. Every rank that has the model calls
 * it. LS_SHAPE names a tensor that is missing, unknown, or of another shape; nothing is changed then. In a checkpoint
 * of another program a tensor may be unknown if it has the values of a parameter of its shape, to the bit, and no
 * optimizer state: PyTorch saves a tied head under both of its names. */
ls_status ls_checkpoint_values(ls_checkpoint *s, ls_params *ps);
/* The same of a model, as ls_parallel_opts.values asks for it; `checkpoint` is an ls_checkpoint. */
ls_status ls_checkpoint_first_values(void *checkpoint, ls_model *m);

/* --- a state --------------------------------------------------------------------------------------- */

typedef struct ls_state ls_state;

/* Every rank of g, which is borrowed, calls these alike. */
ls_status ls_state_create(ls_group *g, ls_state **out);
void ls_state_destroy(ls_state *s); /* NULL is fine */
/* Parameters, and the state of their optimizer (NULL: none). Both are borrowed. Once per state. */
ls_status ls_state_add_model(ls_state *s, ls_params *ps, ls_optim *o);
/* `nbytes` bytes at p, which all ranks have alike: rank 0's are saved, and a load writes them on every rank. p is
 * borrowed. LS_INVALID: a name that is empty, has other characters than letters, digits, '.', '_' and '-', or was
 * added before. */
ls_status ls_state_add(ls_state *s, const char *name, void *p, size_t nbytes);
/* The same of one number, which `lockstep ckpt show` prints. */
ls_status ls_state_add_i64(ls_state *s, const char *name, int64_t *p);
ls_status ls_state_add_f64(ls_state *s, const char *name, double *p);

/* NULL-ended "key", "value" pairs for the metadata of the ranks' files, borrowed; NULL: none. */
void ls_state_set_meta(ls_state *s, const char *const *meta);
/* Every rank calls it, with the same folder and step, between two steps. It returns when the checkpoint is durable; a
 * checkpoint of that name is replaced. LS_CKPT_FAILED on all ranks if one could not write: the message names the first
 * one and says why; the temporary folder is removed, and older checkpoints stay as they were. */
ls_status ls_state_save(ls_state *s, const char *folder, int64_t step);
/* The same with the folder dir/step-XXXXXXXX, where ls_checkpoint_newest finds it. LS_INVALID: the step is below 0 or
 * has more than 8 digits, or the name is too long. */
ls_status ls_state_save_in(ls_state *s, const char *dir, int64_t step);

/* --- a save while the program goes on --------------------------------------------------------------
 *
 *     ls_state_save_begin(state, "ckpts/step-00000100", 100);   copies what this rank saves, and returns
 *     ... steps, after each of which
 *     ls_state_save_poll(state);                                LS_AGAIN: not durable yet
 *     ...
 *     ls_state_save_wait(state);                                before the program ends
 *
 * A thread of each rank writes the copy; the program may change what it has added at once. One save can be in flight:
 * ls_state_save and ls_state_save_begin return LS_INVALID until poll or wait has said that it is over. Every rank calls
 * these functions, between the same two steps. A crash at any moment leaves older checkpoints as they were. */

/* Bytes of the copy on this rank: what it saves. They can differ between ranks. */
size_t ls_state_copy_bytes(const ls_state *s);
/* Memory for the copy, touched now, counted by the world's ledger as LS_MEM_CKPT; and the thread that writes it. Once,
 * after everything was added; without it the first ls_state_save_begin does it. Signals that this thread blocks, the
 * writing thread blocks, too. LS_NO_MEMORY, LS_SYSTEM. */
ls_status ls_state_reserve(ls_state *s);
/* Begins a save, of values as they are now. The metadata (ls_state_set_meta) stay until it is over. Failures as of
 * ls_state_save, then or from poll and wait. */
ls_status ls_state_save_begin(ls_state *s, const char *folder, int64_t step);
/* LS_AGAIN: the save goes on. LS_OK: it is durable, or none is in flight. A failure, on all ranks, as of ls_state_save:
 * the save is over, and its temporary folder is removed. Costs the exchange of one word while a save is in flight. */
ls_status ls_state_save_poll(ls_state *s);
/* The same, but it waits until the save is over: never LS_AGAIN. */
ls_status ls_state_save_wait(ls_state *s);

/* The rank of the group whose failure that was, after a save that failed: the others have its message. */
int ls_state_culprit(const ls_state *s);
/* Every rank calls it after ls_checkpoint_values, with the optimizer created: its state, and what ls_state_add has
 * added. LS_SHAPE: something is missing or has another size, and nothing is changed. From a checkpoint of another
 * program the optimizer's state alone is loaded: what ls_state_add has added stays as it is. */
ls_status ls_state_load(ls_state *s, ls_checkpoint *from);

#ifdef __cplusplus
}
#endif
#endif
