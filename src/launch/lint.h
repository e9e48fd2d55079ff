/* lint.h -- what a program that was made for one rank still lacks, by the calls that its ranks made (base/lint.h).
 *
 *   group       a rank joined no process group
 *   wrapper     a rank made an optimizer, and no ls_ddp of its parameters
 *   sampler     a rank loads samples, and never by a sampler of all ranks
 *   set_epoch   a rank passed twice through the same shuffled order
 *   save        a rank other than 0 wrote the model, too
 *   all_reduce  a rank summed gradients by a call of its own
 */
#ifndef LS_LAUNCH_LINT_H
#define LS_LAUNCH_LINT_H
#include "base/text.h"

#define LS_LINT_RULES 6

/* Reads the notes of `size` ranks, and appends findings to `out`: as text, or as a JSON object. *findings: how many. A
 * file that is not there has no notes. LS_BAD_FILE: a line is none. */
ls_status ls_lint_judge(const char *path, int size, int exit_code, bool json, ls_text *out, int *findings);

#endif
