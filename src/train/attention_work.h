/* attention_work.h -- how much of the attention each rank of cp computes: for the log and --json. */
#ifndef LS_TRAIN_ATTENTION_WORK_H
#define LS_TRAIN_ATTENTION_WORK_H
#include "base/text.h"
#include "train/trainer.h"

/* "attention: work of the ranks of cp: 0.27 0.76 1.24 1.73 of the mean; ..."; empty where no rank divides sequences. */
void ls_attention_work_text(const ls_trainer *t, ls_text *out);
/* {"work": [..], "largest": x, "blocks": n, "skipped": n}, or null. */
void ls_attention_work_json(const ls_trainer *t, ls_text *out);

#endif
