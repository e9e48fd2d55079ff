/* sample_log.c -- log.samples: which samples each rank has used in each step, so that others can check that an epoch
 * has every sample once.
 *
 * <run.dir>/samples/rank-NNNNN.jsonl has a line per step of rank N, written when the step is finished:
 *
 *   {"step": 12, "rank": 1, "ranks": 2, "epochs": [0, 0], "positions": [265, 267], "indices": [31, 870]}
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "net/world.h"
#include "report/rundir.h"
#include "train/trainer.h"

#define FOLDER "samples"
#define NAMES_BYTES ((size_t)1 << 21) /* of the files of all ranks that a world may have */

/* Ranks that wrote in an earlier part of the run need not be there now. */
ls_status ls_sample_log_cut(const ls_trainer *t)
{
    char path[600], dir[320];
    snprintf(dir, sizeof dir, "%s/" FOLDER, t->run_dir);
    char *names = malloc(NAMES_BYTES);
    if (!names) return ls_fail(LS_NO_MEMORY, "the names in %s", dir);
    int count = ls_env_get()->list(dir, names, NAMES_BYTES); /* < 0: there is no such folder */
    ls_status st = LS_OK;
    for (const char *name = names; st == LS_OK && count-- > 0; name += strlen(name) + 1) {
        snprintf(path, sizeof path, "%s/%.255s", dir, name);
        if (strncmp(name, "rank-", 5) == 0) st = ls_rundir_cut_metrics(path, t->begun);
    }
    free(names);
    return st;
}

ls_status ls_sample_log_folder(const ls_trainer *t)
{
    char dir[320];
    snprintf(dir, sizeof dir, "%s/" FOLDER, t->run_dir);
    return t->c->log.samples ? ls_mkdirs(dir) : LS_OK;
}

ls_status ls_sample_log_open(ls_trainer *t)
{
    char path[400];
    if (!t->c->log.samples) return LS_OK;
    snprintf(path, sizeof path, "%s/" FOLDER "/rank-%05d.jsonl", t->run_dir, ls_world_rank(t->w));
    t->samples_fd = ls_env_get()->append(path);
    return t->samples_fd < 0 ? ls_fail(LS_IO, "log.samples: %s: %s", path, strerror(-t->samples_fd)) : LS_OK;
}

/* One of the three lists of a line. */
static void add_list(ls_trainer *t, const char *key, int64_t (*of)(const ls_feed_place *))
{
    ls_text_add(&t->sample_line, ", \"%s\": [", key);
    for (size_t i = 0; i < t->feed.step.n; i++) {
        const ls_feed_place p = ls_feed_place_of(&t->feed, i);
        ls_text_add(&t->sample_line, "%s%" PRId64, i ? ", " : "", of(&p));
    }
    ls_text_add(&t->sample_line, "]");
}

static int64_t epoch_of(const ls_feed_place *p) { return p->epoch; }
static int64_t position_of(const ls_feed_place *p) { return p->position; }
static int64_t index_of(const ls_feed_place *p) { return p->index; }

ls_status ls_sample_log_step(ls_trainer *t)
{
    ls_text *line = &t->sample_line;
    if (t->samples_fd < 0) return LS_OK;
    line->n = 0;
    ls_text_add(line, "{\"step\": %" PRId64 ", \"rank\": %d, \"ranks\": %d", t->step, t->feed.rank, t->feed.size);
    add_list(t, "epochs", epoch_of);
    add_list(t, "positions", position_of);
    add_list(t, "indices", index_of);
    ls_text_add(line, "}\n");
    LS_TRY(ls_text_status(line));
    for (size_t at = 0; at < line->n;) {
        const ssize_t k = ls_env_get()->write(t->samples_fd, line->p + at, line->n - at);
        if (k <= 0) return ls_fail(LS_IO, "log.samples: %s/" FOLDER " cannot be written: %s", t->run_dir, strerror((int)-k));
        at += (size_t)k;
    }
    return LS_OK;
}
