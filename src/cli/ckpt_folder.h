/* ckpt_folder.h -- lockstep ckpt: what is done with the checkpoint of all ranks, and with two of any kind. */
#ifndef LS_CLI_CKPT_FOLDER_H
#define LS_CLI_CKPT_FOLDER_H
#include "ckpt/weights.h"

/* Text from a file must not steer a terminal: only printable ASCII stands for itself. */
void ls_cli_ckpt_put(const char *s);

/* Whether a tensor of a checkpoint belongs to the state of a run: the optimizer's, or the program's. */
bool ls_cli_ckpt_is_state(const char *name);

/* Prints its tensors, each as a whole; with `json` one object. */
ls_status ls_cli_ckpt_list_folder(const char *path, bool json);
/* Checks every byte of every file, and prints a line. */
ls_status ls_cli_ckpt_verify_folder(const char *path, bool json);
/* The line of a checkpoint that is as it was saved. files 0: it is a file; step < 0: unknown; `compared` false: there
 * are no checksums of its bytes. */
ls_status ls_cli_ckpt_good(const char *path, int tensors, int files, int64_t step, bool compared, bool json);
/* Prints the step, the files, the state and the sizes of one. */
ls_status ls_cli_ckpt_show(const char *path, bool json);
/* Prints the digest of the model, as the last line of a training has it. */
ls_status ls_cli_ckpt_digest(const char *path, bool json);
/* Compares two: prints each tensor that differs, names ascending, with its first element that does, and how far they
 * are apart. Of two runs' folders: the first step that has a checkpoint in both and differs. *same is false if any
 * does. */
ls_status ls_cli_ckpt_diff(const char *a, const char *b, bool json, bool *same);
/* Writes the model into one file of the new folder `out`, with the files beside it that Hugging Face's models have. */
ls_status ls_cli_ckpt_merge(const char *path, const char *out, bool json);

/* Writes the new folder `out`: the checkpoint as `ranks` ranks would have written it. */
ls_status ls_cli_ckpt_reshard(const char *path, const char *out, int ranks, bool json);

#endif
