/* checkpoint damage: a checkpoint of four ranks with the whole model beside it, and damage at random places of all of
 * its files, in numbers: flipped bits, cut files, files exchanged for each other. The four ranks open it each time, and
 * each reads some of its bytes: none of it may pass. LOCKSTEP_TEST_LONG: 10,000 bits and 1,000 cuts. */
#include "harness_files.h"
#include "harness_replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/state.h"

enum { RANKS = 4, FILES = RANKS + 3 };

static const int64_t dims[] = { 37, 23, 5 };

/* Damage of one sort. */
typedef struct count {
    int done, passed;
} count;

/* Rank 0 damages and counts. */
typedef struct scene {
    int nflips, ncuts;
    char folder[256];
    char path[FILES][400]; /* of all files */
    unsigned char *bytes[FILES];
    size_t size[FILES];
    uint64_t random;
    count flips, cuts, exchanges;
} scene;

/* --- the checkpoint -------------------------------------------------------------------------------------- */

typedef struct beside {
    ls_replica *r;
} beside;

static ls_status write_beside(void *arg, const char *folder, ls_manifest *m)
{
    const ls_replica *r = ((beside *)arg)->r;
    const ls_values values = ls_ddp_values(r->ddp);
    ls_ckpt_sums sums;
    char path[400];
    const ls_lm_config none = { 0 };
    if (!folder) return ls_hf_write_model(NULL, &none, &r->model->params, &values, NULL, NULL);
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    spill(path, "train: { steps: 10 }\n", 21);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    LS_TRY(ls_hf_write_model(path, &none, &r->model->params, &values, NULL, &sums));
    return ls_manifest_add(m, "model.safetensors", &sums);
}

static ls_status save(ls_world *w, const char *folder)
{
    const ls_ddp_config ddp = { .zero_stage = 1 };
    const ls_replica_config c = { .dims = dims, .ndims = COUNT(dims), .seed = 1, .ddp = &ddp, .optim = "adamw", .rows = ROWS };
    ls_replica r;
    ls_state *state;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_replica_pass(&r, 1, 0, ROWS, true, 1.0f, NULL));
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_ddp_after_step(r.ddp));
    LS_TRY(ls_state_create(ls_world_group(w), &state));
    LS_TRY(ls_state_add_model(state, &r.model->params, r.optim));
    const ls_status st = ls_state_save_with(state, folder, 10, write_beside, &(beside){ &r });
    ls_state_destroy(state);
    ls_replica_destroy(&r);
    return st;
}

static void read_files(scene *x)
{
    for (int i = 0; i < FILES; i++) {
        if (i < RANKS)
            snprintf(x->path[i], sizeof x->path[i], "%s/sharded/shard-%05d-model-00001-of-00001.safetensors", x->folder, i + 1);
        else
            snprintf(x->path[i], sizeof x->path[i], "%s/%s", x->folder,
                     (const char *[]){ "manifest.json", "config.yaml", "model.safetensors" }[i - RANKS]);
        x->bytes[i] = slurp(x->path[i], &x->size[i]);
    }
}

/* --- damage ---------------------------------------------------------------------------------------------- */

static uint64_t below(scene *x, uint64_t n)
{
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (x->random >> 33) % n;
}

/* Of all files alike, and of all bytes alike: every other time. */
static void any_byte(scene *x, int turn, int *file, size_t *at)
{
    size_t all = 0;
    for (int i = 0; i < FILES; i++) all += x->size[i];
    *file = (int)below(x, FILES);
    *at = below(x, x->size[*file]);
    if (turn % 2) return;
    size_t place = below(x, all);
    for (*file = 0; place >= x->size[*file]; (*file)++) place -= x->size[*file];
    *at = place;
}

/* All ranks get the same answer; n is NULL except on rank 0. */
static ls_status open_damaged(ls_world *w, const scene *x, count *n, const char *what)
{
    ls_checkpoint *saved;
    LS_TRY(ls_barrier(ls_world_group(w))); /* rank 0 has done its damage */
    const ls_status st = ls_checkpoint_open_all(ls_world_group(w), x->folder, &saved);
    ls_checkpoint_close(saved);
    LS_EXPECT(st == LS_OK || st == LS_CKPT_CORRUPT || st == LS_BAD_FILE || st == LS_UNSUPPORTED, "%s: %s", what, ls_last_error());
    LS_TRY(ls_barrier(ls_world_group(w)));
    if (!n) return LS_OK;
    n->done++;
    n->passed += st == LS_OK;
    if (st == LS_OK) printf("%s, and no rank noticed\n", what);
    return LS_OK;
}

static ls_status flip(ls_world *w, scene *x)
{
    char what[600];
    for (int i = 0; i < x->nflips; i++) {
        if (ls_world_rank(w) == 0) {
            int file;
            size_t at;
            any_byte(x, i, &file, &at);
            const unsigned bit = (unsigned)below(x, 8);
            x->bytes[file][at] ^= (unsigned char)(1u << bit);
            snprintf(what, sizeof what, "%s: bit %u of byte %zu was flipped", x->path[file], bit, at);
            spill(x->path[file], x->bytes[file], x->size[file]);
            x->bytes[file][at] ^= (unsigned char)(1u << bit);
            LS_TRY(open_damaged(w, x, &x->flips, what));
            spill(x->path[file], x->bytes[file], x->size[file]);
        } else {
            LS_TRY(open_damaged(w, x, NULL, "a bit was flipped"));
        }
    }
    return LS_OK;
}

static ls_status cut(ls_world *w, scene *x)
{
    char what[600];
    for (int i = 0; i < x->ncuts; i++) {
        if (ls_world_rank(w) == 0) {
            int file;
            size_t at;
            any_byte(x, i, &file, &at);
            snprintf(what, sizeof what, "%s: was cut after %zu of %zu bytes", x->path[file], at, x->size[file]);
            spill(x->path[file], x->bytes[file], at);
            LS_TRY(open_damaged(w, x, &x->cuts, what));
            spill(x->path[file], x->bytes[file], x->size[file]);
        } else {
            LS_TRY(open_damaged(w, x, NULL, "a file was cut"));
        }
    }
    return LS_OK;
}

static ls_status exchange(ls_world *w, scene *x)
{
    char what[900];
    for (int a = 0; a < FILES; a++) {
        for (int b = a + 1; b < FILES; b++) {
            if (ls_world_rank(w) == 0) {
                snprintf(what, sizeof what, "%s and %s were exchanged", x->path[a], x->path[b]);
                spill(x->path[a], x->bytes[b], x->size[b]);
                spill(x->path[b], x->bytes[a], x->size[a]);
                LS_TRY(open_damaged(w, x, &x->exchanges, what));
                spill(x->path[a], x->bytes[a], x->size[a]);
                spill(x->path[b], x->bytes[b], x->size[b]);
            } else {
                LS_TRY(open_damaged(w, x, NULL, "two files were exchanged"));
            }
        }
    }
    return LS_OK;
}

static ls_status is_whole(ls_world *w, const scene *x)
{
    ls_checkpoint *saved;
    LS_TRY(ls_barrier(ls_world_group(w)));
    LS_TRY(ls_checkpoint_open_all(ls_world_group(w), x->folder, &saved));
    ls_checkpoint_close(saved);
    return LS_OK;
}

static ls_status damage(ls_world *w, void *arg)
{
    scene *x = arg;
    LS_TRY(save(w, x->folder));
    if (ls_world_rank(w) == 0) read_files(x);
    LS_TRY(is_whole(w, x));
    LS_TRY(flip(w, x));
    LS_TRY(cut(w, x));
    LS_TRY(exchange(w, x));
    return is_whole(w, x); /* so the damage was it, each time */
}

static void no_damage_passes(void **state)
{
    const bool all = getenv("LOCKSTEP_TEST_LONG") != NULL;
    scene x = { .random = 20261126, .nflips = all ? 10000 : 1000, .ncuts = all ? 1000 : 200 };
    inside(state, "step-00000010", x.folder);
    expect(ls_test_ranks(LS_TEST_THREADS, RANKS, NULL, damage, &x));
    printf("undetected: %d of %d flipped bits, %d of %d cut files, %d of %d pairs of exchanged files\n", x.flips.passed,
           x.flips.done, x.cuts.passed, x.cuts.done, x.exchanges.passed, x.exchanges.done);
    assert_true(x.flips.done == x.nflips && x.cuts.done == x.ncuts && x.exchanges.done == FILES * (FILES - 1) / 2);
    assert_int_equal(x.flips.passed + x.cuts.passed + x.exchanges.passed, 0);
    for (int i = 0; i < FILES; i++) free(x.bytes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_damage_passes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("checkpoint damage", tests, NULL, NULL);
}
