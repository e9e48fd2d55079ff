/* lint.c -- findings from the calls of a job's ranks. */
#include "launch/lint.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rank_set.h"

#define NOTES_MOST ((size_t)1 << 28) /* bytes */
#define RANGES     4096              /* gradients of a rank that are looked at */
#define PASSES     1024              /* passes through the data of a rank, likewise */

typedef enum rule { GROUP, WRAPPER, SAMPLER, SET_EPOCH, SAVE, ALL_REDUCE } rule;

static const struct { const char *name, *what; } rules[LS_LINT_RULES] = {
    [GROUP] = { "group", "joined no process group: call ls_world_join before anything that ranks do together" },
    [WRAPPER] = { "wrapper", "made an optimizer, but wrapped no parameters: gradients are not averaged and the ranks' weights part; call "
                             "ls_ddp_create" },
    [SAMPLER] = { "sampler", "loaded samples without a sampler of all ranks: they train on the same samples; give ls_loader_create one "
                             "of ls_sampler_create(n, world size, rank, ...)" },
    [SET_EPOCH] = { "set_epoch", "passed through the same shuffled order again: call ls_sampler_set_epoch(sampler, epoch) before each epoch" },
    [SAVE] = { "save", "wrote the model to a file, as rank 0 does: let rank 0 alone call ls_ckpt_save" },
    [ALL_REDUCE] = { "all_reduce", "summed gradients by ls_all_reduce: the wrapper averages them in backward; leave the call out" },
};

typedef struct range { uint64_t first, end; } range;
typedef struct pass { uint64_t loader; int64_t epoch; } pass;

/* What a rank did. */
typedef struct seen {
    bool joined, wrapped, optimizes, loads, samples; /* samples: by a sampler of all ranks */
    range *grad; /* owned: [ngrads] */
    pass *pass;  /* owned: [npasses] of shuffled loaders */
    int ngrads, npasses;
} seen;

typedef struct judge {
    int size;
    seen *rank;                      /* owned: [size] */
    ls_rank_set found[LS_LINT_RULES]; /* owned: who broke a rule */
} judge;

/* --- notes --------------------------------------------------------------------------------------------- */

static uint64_t word(const json_t *j, const char *key) { return (uint64_t)json_integer_value(json_object_get(j, key)); }

static ls_status add_grads(seen *s, const json_t *list)
{
    size_t i;
    const json_t *one;
    if (!s->grad && !(s->grad = calloc(RANGES, sizeof *s->grad))) return ls_fail(LS_NO_MEMORY, "gradients of a rank");
    json_array_foreach(list, i, one)
        if (s->ngrads < RANGES) {
            const uint64_t first = (uint64_t)json_integer_value(json_array_get(one, 0));
            s->grad[s->ngrads++] = (range){ first, first + (uint64_t)json_integer_value(json_array_get(one, 1)) };
        }
    return LS_OK;
}

static bool meets_gradients(const seen *s, uint64_t first, uint64_t nbytes)
{
    for (int i = 0; i < s->ngrads; i++)
        if (first < s->grad[i].end && s->grad[i].first < first + nbytes) return true;
    return false;
}

/* False: this loader has passed through that order before. */
static ls_status add_pass(seen *s, pass p, bool *again)
{
    *again = false;
    if (!s->pass && !(s->pass = calloc(PASSES, sizeof *s->pass))) return ls_fail(LS_NO_MEMORY, "passes of a rank");
    for (int i = 0; i < s->npasses; i++) *again |= s->pass[i].loader == p.loader && s->pass[i].epoch == p.epoch;
    if (s->npasses < PASSES) s->pass[s->npasses++] = p;
    return LS_OK;
}

static ls_status take(judge *x, int rank, const char *call, const json_t *j)
{
    seen *s = &x->rank[rank];
    if (strcmp(call, "join") == 0) s->joined = true;
    if (strcmp(call, "wrap") == 0) s->wrapped = true;
    if (strcmp(call, "optimizer") == 0) s->optimizes = true;
    if (strcmp(call, "wrap") == 0 || strcmp(call, "optimizer") == 0) LS_TRY(add_grads(s, json_object_get(j, "grads")));
    if (strcmp(call, "loader") == 0) {
        s->loads = true;
        s->samples |= word(j, "replicas") == (uint64_t)x->size; /* another loader may be for an evaluation */
    }
    if (strcmp(call, "save") == 0 && rank > 0) ls_rank_set_add(&x->found[SAVE], rank);
    if (strcmp(call, "all_reduce") == 0 && meets_gradients(s, word(j, "at"), word(j, "bytes")))
        ls_rank_set_add(&x->found[ALL_REDUCE], rank);
    if (strcmp(call, "pass") == 0 && json_is_true(json_object_get(j, "shuffle"))) {
        bool again;
        LS_TRY(add_pass(s, (pass){ word(j, "loader"), (int64_t)word(j, "epoch") }, &again));
        if (again) ls_rank_set_add(&x->found[SET_EPOCH], rank);
    }
    return LS_OK;
}

static ls_status read_notes(judge *x, const char *path)
{
    char *text = NULL;
    size_t n = 0, number = 0;
    if (ls_file_read(path, NOTES_MOST, &text, &n) < 0) return LS_OK; /* no rank has called the library */
    ls_status st = LS_OK;
    for (const char *at = text, *end; st == LS_OK && (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1) {
        json_error_t e;
        json_t *j = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &e);
        const char *call = json_string_value(json_object_get(j, "call"));
        const int64_t rank = json_integer_value(json_object_get(j, "rank"));
        number++;
        if (!call || rank < 0 || rank >= x->size)
            st = ls_fail(LS_BAD_FILE, "%s: line %zu is no note of a call by one of %d ranks", path, number, x->size);
        else st = take(x, (int)rank, call, j);
        json_decref(j);
    }
    free(text);
    return st;
}

/* --- findings ------------------------------------------------------------------------------------------- */

static void conclude(judge *x)
{
    for (int r = 0; r < x->size; r++) {
        const seen *s = &x->rank[r];
        if (!s->joined) ls_rank_set_add(&x->found[GROUP], r);
        if (s->optimizes && !s->wrapped) ls_rank_set_add(&x->found[WRAPPER], r);
        if (s->loads && !s->samples) ls_rank_set_add(&x->found[SAMPLER], r);
    }
}

static int count(const judge *x)
{
    int n = 0;
    for (int k = 0; k < LS_LINT_RULES; k++) n += !ls_rank_set_is_empty(&x->found[k]);
    return n;
}

static void add_text(const judge *x, ls_text *out)
{
    char ranks[128];
    const int n = count(x);
    ls_text_add(out, "lint: %d finding%s in the calls of %d rank%s\n", n, n == 1 ? "" : "s", x->size, x->size == 1 ? "" : "s");
    for (int k = 0; k < LS_LINT_RULES; k++)
        if (!ls_rank_set_is_empty(&x->found[k]))
            ls_text_add(out, "  %-10s  rank%s %s %s\n", rules[k].name, ls_rank_set_count(&x->found[k]) == 1 ? "" : "s",
                        ls_rank_set_text(&x->found[k], ranks, sizeof ranks), rules[k].what);
}

static void add_json(const judge *x, int exit_code, ls_text *out)
{
    const char *comma = "";
    ls_text_add(out, "{\"ranks\": %d, \"exit_code\": %d, \"findings\": [", x->size, exit_code);
    for (int k = 0; k < LS_LINT_RULES; k++) {
        if (ls_rank_set_is_empty(&x->found[k])) continue;
        ls_text_add(out, "%s{\"rule\": \"%s\", \"ranks\": [", comma, rules[k].name);
        for (int r = ls_rank_set_next(&x->found[k], 0), first = r; r >= 0; r = ls_rank_set_next(&x->found[k], r + 1))
            ls_text_add(out, "%s%d", r == first ? "" : ", ", r);
        ls_text_add(out, "], \"text\": ");
        ls_json_string(out, rules[k].what);
        ls_text_add(out, "}");
        comma = ", ";
    }
    ls_text_add(out, "]}\n");
}

ls_status ls_lint_judge(const char *path, int size, int exit_code, bool json, ls_text *out, int *findings)
{
    judge x = { .size = size, .rank = calloc((size_t)size, sizeof *x.rank) };
    ls_status st = x.rank ? LS_OK : ls_fail(LS_NO_MEMORY, "the calls of %d ranks", size);
    for (int k = 0; k < LS_LINT_RULES && st == LS_OK; k++) st = ls_rank_set_create(size, &x.found[k]);
    if (st == LS_OK) st = read_notes(&x, path);
    if (st == LS_OK) {
        conclude(&x);
        *findings = count(&x);
        if (json) add_json(&x, exit_code, out);
        else add_text(&x, out);
        st = ls_text_status(out);
    }
    for (int k = 0; k < LS_LINT_RULES; k++) ls_rank_set_free(&x.found[k]);
    for (int r = 0; x.rank && r < size; r++) {
        free(x.rank[r].grad);
        free(x.rank[r].pass);
    }
    free(x.rank);
    return st;
}
