/* run_json.c -- what `lockstep train --json` prints of a run: docs/formats.md has every key. */
#include "train/run_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/attention_work.h"
#include "train/memory_units.h"
#include "train/trainer.h"

/* What a rank tells: bytes and calls of each collective in its newest step, then bytes of each kind of memory. */
enum { BYTES, CALLS = BYTES + LS_COLLS, MEMORY = CALLS + LS_COLLS, NUMBERS = MEMORY + LS_MEM_KINDS };

struct ls_run_json {
    ls_comm_stats newest;           /* of the newest step */
    int64_t steps;                  /* that this process has taken */
    uint64_t step_ns, exposed_ns, hidden_ns; /* of all but the first, which takes longer for other reasons */
    ls_text losses, norms;          /* rank 0: their elements of an array */
    ls_text first, last;            /* rank 0: the buckets of the first and of the newest step */
    char order[64];                 /* rank 0: of `last`, as long as it is up to date */
    int64_t (*all)[NUMBERS];        /* [ranks] */
};

ls_status ls_run_json_open(const ls_trainer *t, ls_run_json **out)
{
    *out = NULL;
    if (!t->c->json) return LS_OK;
    ls_run_json *j = calloc(1, sizeof *j);
    if (j) j->all = calloc((size_t)ls_world_size(t->w), sizeof *j->all);
    if (!j || !j->all) {
        free(j);
        return ls_fail(LS_NO_MEMORY, "--json: the numbers of %d ranks", ls_world_size(t->w));
    }
    *out = j;
    return LS_OK;
}

void ls_run_json_close(ls_run_json *j)
{
    if (!j) return;
    ls_text_free(&j->losses);
    ls_text_free(&j->norms);
    ls_text_free(&j->first);
    ls_text_free(&j->last);
    free(j->all);
    free(j);
}

/* --- while the run goes on ------------------------------------------------------------------------- */

static void buckets(const ls_trainer *t, ls_text *x)
{
    ls_text_add(x, "{\"order\": ");
    ls_json_string(x, ls_ddp_bucket_order(t->par.ddp));
    ls_text_add(x, ", \"n\": %d, \"list\": [", ls_ddp_buckets(t->par.ddp));
    for (int i = 0; i < ls_ddp_buckets(t->par.ddp); i++) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(t->par.ddp, i);
        ls_text_add(x, "%s{\"bytes\": %zu, \"parameters\": [", i ? ", " : "", b.nbytes);
        for (int k = 0; k < b.nparams; k++) {
            ls_text_add(x, "%s", k ? ", " : "");
            ls_json_string(x, t->par.model->params.item[b.param[k]].name);
        }
        ls_text_add(x, "]}");
    }
    ls_text_add(x, "]}");
}

/* Buckets are rebuilt once, so most steps find the text as it was. */
static void keep_buckets(ls_run_json *j, const ls_trainer *t)
{
    const char *order = ls_ddp_bucket_order(t->par.ddp);
    if (j->steps == 1) buckets(t, &j->first);
    if (strcmp(order, j->order) == 0) return;
    snprintf(j->order, sizeof j->order, "%s", order);
    j->last.n = 0;
    buckets(t, &j->last);
}

static void add_element(ls_text *list, double v)
{
    if (list->n) ls_text_add(list, ", ");
    ls_json_number(list, v);
}

void ls_run_json_step(ls_run_json *j, const ls_trainer *t, const ls_step_stats *s)
{
    if (!j) return;
    j->newest = s->comm;
    if (++j->steps > 1) {
        j->step_ns += s->step_ns;
        j->exposed_ns += s->comm.exposed_ns;
        j->hidden_ns += s->comm.busy_ns > s->comm.exposed_ns ? s->comm.busy_ns - s->comm.exposed_ns : 0;
    }
    if (!t->par.mesh.speaks) return;
    keep_buckets(j, t);
    if (j->steps > LS_RUN_JSON_LOSSES) return;
    add_element(&j->losses, s->loss);
    add_element(&j->norms, s->grad_norm);
}

/* --- at its end -------------------------------------------------------------------------------------- */

static int64_t sum_of(const int64_t *v, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return sum;
}

static void add_comm(const int64_t numbers[NUMBERS], ls_text *x)
{
    ls_text_add(x, "\"bytes\": %lld, \"calls\": %lld", (long long)sum_of(numbers + BYTES, LS_COLLS),
                (long long)sum_of(numbers + CALLS, LS_COLLS));
    for (int c = 0; c < LS_COLLS; c++)
        ls_text_add(x, ", \"%s\": {\"bytes\": %lld, \"calls\": %lld}", ls_coll_name((ls_coll)c),
                    (long long)numbers[BYTES + c], (long long)numbers[CALLS + c]);
}

static void add_memory(const int64_t numbers[NUMBERS], ls_text *x)
{
    for (int k = 0; k < LS_MEM_KINDS; k++)
        ls_text_add(x, "\"%s\": %lld, ", ls_mem_kind_name((ls_mem_kind)k), (long long)numbers[MEMORY + k]);
    ls_text_add(x, "\"total\": %lld", (long long)sum_of(numbers + MEMORY, LS_MEM_KINDS));
}

/* An object with the sums of all ranks, and each rank's numbers in a list. */
static void add_ranks(const ls_run_json *j, int n, void (*add)(const int64_t *, ls_text *), ls_text *x)
{
    int64_t sum[NUMBERS] = { 0 };
    for (int r = 0; r < n; r++)
        for (int i = 0; i < NUMBERS; i++) sum[i] += j->all[r][i];
    add(sum, x);
    ls_text_add(x, ", \"ranks\": [");
    for (int r = 0; r < n; r++) {
        ls_text_add(x, "%s{\"rank\": %d, ", r ? ", " : "", r);
        add(j->all[r], x);
        ls_text_add(x, "}");
    }
    ls_text_add(x, "]}");
}

static void add_run(const ls_run_json *j, const ls_trainer *t, double loss, const char *digest, ls_text *x)
{
    const ls_feed *f = &t->feed;
    ls_text_add(x, "{\"lockstep_train\": 1, \"version\": \"%s\", \"ranks\": %d, \"ranks_as\": \"%s\", \"transport\": ",
                LS_VERSION, ls_world_size(t->w), t->thread ? "threads" : "processes");
    ls_json_string(x, ls_world_transport(t->w));
    ls_text_add(x, ", \"steps\": %lld, \"steps_here\": %lld, \"loss\": ", (long long)t->step, (long long)j->steps);
    ls_json_number(x, loss);
    ls_text_add(x, ", \"loss_bits\": \"%a\", \"losses\": [%s], \"grad_norms\": [%s], \"digest\": \"%s\", \"parameters\": %llu, ",
                loss, ls_text_str(&j->losses), ls_text_str(&j->norms), digest,
                (unsigned long long)ls_params_count_whole(&t->par.model->params));
    ls_text_add(x, "\"batch\": {\"global\": %lld, \"per_rank\": %zu, \"micro_batch\": %zu, \"micro_batches\": %zu}, "
                "\"run_dir\": ", (long long)t->c->train.global_batch, f->local, f->micro, f->local / f->micro);
    ls_json_string(x, t->run_dir);
}

static void add_time(const ls_run_json *j, ls_text *x)
{
    const double n = j->steps > 1 ? 1e9 * (double)(j->steps - 1) : 0.0;
    if (j->steps < 2) {
        ls_text_add(x, ", \"seconds_per_step\": null");
        return;
    }
    ls_text_add(x, ", \"seconds_per_step\": {\"all\": %.9g, \"exposed\": %.9g, \"hidden\": %.9g}", (double)j->step_ns / n,
                (double)j->exposed_ns / n, (double)j->hidden_ns / n);
}

/* Ranks tell each other in counts that JSON's readers hold exactly. */
static ls_status tell(ls_run_json *j, const ls_trainer *t)
{
    const int size = ls_world_size(t->w);
    const ls_ledger *l = ls_world_ledger(t->w);
    int64_t *mine = j->all[ls_world_rank(t->w)];
    for (int c = 0; c < LS_COLLS; c++) {
        mine[BYTES + c] = (int64_t)j->newest.of[c].bytes;
        mine[CALLS + c] = (int64_t)j->newest.of[c].ops;
    }
    for (int k = 0; k < LS_MEM_KINDS; k++) mine[MEMORY + k] = (int64_t)l->peak[k];
    return ls_all_gather(ls_world_group(t->w), NULL, j->all, (size_t)size * NUMBERS, LS_I64);
}

ls_status ls_run_json_print(ls_run_json *j, const ls_trainer *t, double loss, const char *digest)
{
    ls_text x = { 0 };
    if (!j) return LS_OK;
    LS_TRY(tell(j, t));
    if (!t->par.mesh.speaks) return LS_OK;
    const int size = ls_world_size(t->w);
    add_run(j, t, loss, digest, &x);
    if (j->steps) {
        ls_text_add(&x, ", \"comm\": {\"step\": %lld, ", (long long)t->step);
        add_ranks(j, size, add_comm, &x);
        ls_text_add(&x, ", \"buckets\": {\"first_step\": %s, \"last_step\": %s}", ls_text_str(&j->first), ls_text_str(&j->last));
    } else {
        ls_text_add(&x, ", \"comm\": null, \"buckets\": null");
    }
    add_time(j, &x);
    ls_text_add(&x, ", \"attention\": ");
    ls_attention_work_json(t, &x);
    ls_text_add(&x, ", \"memory\": {");
    add_ranks(j, size, add_memory, &x);
    ls_text_add(&x, "}");
    ls_status st = ls_text_status(&x);
    if (st == LS_OK) st = ls_text_status(&j->losses);
    if (st == LS_OK) st = ls_text_status(&j->norms);
    if (st == LS_OK) st = ls_text_status(&j->first);
    if (st == LS_OK) st = ls_text_status(&j->last);
    if (st == LS_OK) ls_say("%s", ls_text_str(&x));
    ls_text_free(&x);
    return st;
}
