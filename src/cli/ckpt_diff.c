/* ckpt_diff.c -- lockstep ckpt diff: where two checkpoints part, or two runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "ckpt/apart.h"
#include "ckpt/checkpoint.h"
#include "ckpt/steps.h"
#include "cli/ckpt_folder.h"
#include "cli/cli.h"

/* One comparison, and what is to be printed of it as JSON. */
typedef struct differ {
    bool json;
    bool same;
    int found; /* differences of the present pair */
    ls_text out;
} differ;

static double element(const void *p, ls_dtype dtype, uint64_t i)
{
    switch (dtype) {
    case LS_F32: return (double)((const float *)p)[i];
    case LS_F64: return ((const double *)p)[i];
    case LS_I64: return (double)((const int64_t *)p)[i];
    case LS_I32: return (double)((const int32_t *)p)[i];
    case LS_BF16:
    case LS_F16: return (double)ls_ckpt_value(p, dtype, i);
    default: return (double)((const unsigned char *)p)[i];
    }
}

/* "[3, 17]": where an element is. */
static void add_place(ls_text *out, const ls_weights_tensor *t, uint64_t i)
{
    int64_t at[LS_CKPT_MAX_DIMS];
    for (int d = t->ndim - 1; d >= 0; d--) {
        at[d] = (int64_t)(i % (uint64_t)t->dim[d]);
        i /= (uint64_t)t->dim[d];
    }
    ls_text_add(out, "[");
    for (int d = 0; d < t->ndim; d++) ls_text_add(out, "%s%" PRId64, d ? ", " : "", at[d]);
    ls_text_add(out, "]");
}

/* {"tensor": ..., "why": "values": the caller adds the rest and closes it. */
static void begin_json(differ *d, const char *tensor, const char *why)
{
    ls_text_add(&d->out, "%s\n  {\"tensor\": ", d->found++ ? "," : "");
    ls_json_string(&d->out, tensor);
    ls_text_add(&d->out, ", \"why\": \"%s\"", why);
}

static void say_values(differ *d, const ls_weights_tensor *t, uint64_t n, uint64_t first, double x, double y,
                       const ls_apart *apart)
{
    ls_text place = { 0 };
    add_place(&place, t, first);
    if (d->json) {
        begin_json(d, t->name, "values");
        ls_text_add(&d->out, ", \"elements\": %" PRIu64 ", \"differing\": %" PRIu64 ", \"first\": %s, \"a\": ", n, apart->differ,
                    ls_text_str(&place));
        ls_json_number(&d->out, x);
        ls_text_add(&d->out, ", \"b\": ");
        ls_json_number(&d->out, y);
        ls_text_add(&d->out, ", \"most_apart\": ");
        ls_json_number(&d->out, apart->most);
        if (apart->ulps) ls_text_add(&d->out, ", \"ulps\": %" PRIu64 "}", apart->ulps);
        else ls_text_add(&d->out, ", \"ulps\": null}");
    } else {
        ls_cli_ckpt_put(t->name);
        printf(": %" PRIu64 " of %" PRIu64 " elements differ, the first at %s: %.9g and %.9g; at most %.3g apart", apart->differ, n,
               ls_text_str(&place), x, y, apart->most);
        if (apart->ulps) printf(" (%" PRIu64 " ulp)", apart->ulps);
        putchar('\n');
    }
    ls_text_free(&place);
}

static void say_difference(differ *d, const ls_weights_tensor *t, const void *p, const void *q)
{
    const size_t size = ls_dtype_size(t->dtype) ? ls_dtype_size(t->dtype) : 1;
    const uint64_t n = t->nbytes / size;
    uint64_t first = n;
    ls_apart apart = { 0 };
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp((const char *)p + i * size, (const char *)q + i * size, size) == 0) continue;
        if (first == n) first = i;
        if (t->dtype == LS_F32) ls_apart_add_f32(&apart, ((const float *)p)[i], ((const float *)q)[i]);
        else ls_apart_add(&apart, element(p, t->dtype, i), element(q, t->dtype, i));
    }
    say_values(d, t, n, first, element(p, t->dtype, first), element(q, t->dtype, first), &apart);
}

/* A tensor that cannot be compared: `where` is the checkpoint that lacks it, or has it with another shape or type. */
static void say_lack(differ *d, const char *tensor, bool shape, bool in_a, const char *where)
{
    d->same = false;
    if (d->json) {
        begin_json(d, tensor, shape ? "shape or type" : in_a ? "not in a" : "not in b");
        ls_text_add(&d->out, "}");
        return;
    }
    ls_cli_ckpt_put(tensor);
    printf(shape ? ": another shape or type in " : ": not in ");
    ls_cli_ckpt_put(where);
    putchar('\n');
}

static bool same_shape(const ls_weights_tensor *a, const ls_weights_tensor *b)
{
    bool same = a->ndim == b->ndim && strcmp(a->dtype_name, b->dtype_name) == 0;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
    return same;
}

static ls_status compare(ls_weights *a, ls_weights *b, const ls_weights_tensor *t, const char *path, differ *d)
{
    ls_weights_tensor u;
    const bool found = ls_weights_find(b, t->name, &u);
    if (!found || !same_shape(t, &u)) {
        say_lack(d, t->name, found, false, path);
        return LS_OK;
    }
    void *p = malloc(t->nbytes + 1), *q = malloc(t->nbytes + 1);
    ls_status st = p && q ? LS_OK : ls_fail(LS_NO_MEMORY, "tensor '%s': twice %" PRIu64 " bytes", t->name, t->nbytes);
    if (st == LS_OK) st = ls_weights_read(a, t, p);
    if (st == LS_OK) st = ls_weights_read(b, &u, q);
    if (st == LS_OK && memcmp(p, q, t->nbytes) != 0) {
        say_difference(d, t, p, q);
        d->same = false;
    }
    free(p);
    free(q);
    return st;
}

/* Tensors of `b` that `a` lacks. */
static ls_status say_missing(const ls_weights *a, const ls_weights *b, const char *path, differ *d)
{
    ls_weights_tensor *list = ls_weights_list(b), u;
    if (!list) return ls_fail(LS_NO_MEMORY, "%s: a list of tensors", path);
    for (int i = 0; i < ls_weights_count(b); i++) {
        if (!ls_weights_find(a, list[i].name, &u)) say_lack(d, list[i].name, false, true, path);
    }
    free(list);
    return LS_OK;
}

/* As JSON: "differ" and the rest of an object that has begun. */
static ls_status compare_two(const char *a, const char *b, differ *d)
{
    ls_weights x, y = { 0 };
    d->same = true;
    d->found = 0;
    if (d->json) ls_text_add(&d->out, "\"differ\": [");
    LS_TRY(ls_weights_open(a, &x));
    ls_status st = ls_weights_open(b, &y);
    ls_weights_tensor *list = ls_weights_list(&x);
    if (st == LS_OK && !list) st = ls_fail(LS_NO_MEMORY, "%s: a list of tensors", a);
    for (int i = 0; st == LS_OK && i < ls_weights_count(&x); i++) st = compare(&x, &y, &list[i], b, d);
    if (st == LS_OK) st = say_missing(&x, &y, a, d);
    if (st == LS_OK && d->same && !d->json) printf("the same %d tensors, to the bit\n", ls_weights_count(&x));
    if (d->json) ls_text_add(&d->out, "], \"tensors\": %d, \"same\": %s}", ls_weights_count(&x), d->same ? "true" : "false");
    free(list);
    ls_weights_close(&x);
    ls_weights_close(&y);
    return st;
}

/* --- of two runs: the first checkpoint that differs ------------------------------------------------------------ */

/* The names of a run's checkpoints, sorted, malloc'd for the caller. *count is -1 where `run` is no run's folder. */
static ls_status list_steps(const char *run, char **names, int *count)
{
    ls_text path = { 0 };
    *names = NULL;
    *count = -1;
    if (ls_checkpoint_is_folder(run)) return LS_OK;
    ls_text_add(&path, "%s/checkpoints", run);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK && !(*names = malloc(LS_STEPS_NAMES_BYTES))) st = ls_fail(LS_NO_MEMORY, "the names in %s", path.p);
    if (st == LS_OK) *count = ls_env_get()->list(path.p, *names, LS_STEPS_NAMES_BYTES);
    ls_text_free(&path);
    return st;
}

static bool has_step(const char *names, int count, const char *step)
{
    for (const char *name = NULL; (name = ls_steps_newest(names, count, name));)
        if (strcmp(name, step) == 0) return true;
    return false;
}

static ls_status compare_step(const char *a, const char *b, const char *step, differ *d)
{
    ls_text x = { 0 }, y = { 0 };
    ls_text_add(&x, "%s/checkpoints/%s", a, step);
    ls_text_add(&y, "%s/checkpoints/%s", b, step);
    ls_status st = ls_text_status(&x);
    if (st == LS_OK) st = ls_text_status(&y);
    if (st == LS_OK && !d->json) printf("%s: ", step);
    if (d->json) ls_text_add(&d->out, "%s\n {\"step\": ", d->out.p[d->out.n - 1] == '[' ? "" : ",");
    if (d->json) ls_json_string(&d->out, step);
    if (d->json) ls_text_add(&d->out, ", ");
    if (st == LS_OK) st = ls_text_status(&d->out);
    if (st == LS_OK) st = compare_two(x.p, y.p, d);
    ls_text_free(&x);
    ls_text_free(&y);
    return st;
}

static ls_status compare_runs(const char *a, const char *b, const char *names, int n, const char *others, int m,
                              differ *d)
{
    const char **both = malloc(((size_t)n + 1) * sizeof *both);
    int steps = 0;
    if (!both) return ls_fail(LS_NO_MEMORY, "%d checkpoints", n);
    for (const char *name = NULL; (name = ls_steps_newest(names, n, name));)
        if (has_step(others, m, name)) both[steps++] = name;
    ls_status st = steps ? LS_OK : ls_fail(LS_BAD_FILE, "%s and %s have no step with a checkpoint in both", a, b);
    if (d->json) ls_text_add(&d->out, "\"steps\": [");
    while (st == LS_OK && d->same && steps > 0) st = compare_step(a, b, both[--steps], d);
    if (d->json) ls_text_add(&d->out, "], \"same\": %s}", d->same ? "true" : "false");
    free(both);
    return st;
}

ls_status ls_cli_ckpt_diff(const char *a, const char *b, bool json, bool *same)
{
    char *names, *others = NULL;
    int n, m = -1;
    differ d = { .json = json, .same = true };
    ls_status st = list_steps(a, &names, &n);
    if (st == LS_OK) st = list_steps(b, &others, &m);
    if (json) ls_text_add(&d.out, "{\"a\": ");
    if (json) ls_json_string(&d.out, a);
    if (json) ls_text_add(&d.out, ", \"b\": ");
    if (json) ls_json_string(&d.out, b);
    if (json) ls_text_add(&d.out, ",\n ");
    if (st == LS_OK) st = n >= 0 && m >= 0 ? compare_runs(a, b, names, n, others, m, &d) : compare_two(a, b, &d);
    free(names);
    free(others);
    *same = d.same;
    if (json && st == LS_OK) {
        ls_text_add(&d.out, "\n");
        return ls_cli_print(&d.out);
    }
    ls_text_free(&d.out);
    return st;
}
