/* explain_zero_print.c -- what ZeRO's stages cost, as a table and as JSON. */
#include <stdio.h>
#include <string.h>

#include "train/explain_zero.h"
#include "train/memory_units.h"

#define NAME  29 /* columns of what a line is */
#define LEAST 13 /* columns of a number, at least */

/* --- what a cell shows ------------------------------------------------------------------------------------- */

/* A line of the table: of a rank, a number. `arg` says which. */
typedef int64_t cell(const ls_zero_rank *r, int arg);

static int64_t formula(const ls_zero_rank *r, int k) { return (int64_t)r->held[k].formula; }
static int64_t rows(const ls_zero_rank *r, int k) { return r->held[k].rows; }
static int64_t alignment(const ls_zero_rank *r, int k) { return (int64_t)r->held[k].alignment; }
static int64_t planned(const ls_zero_rank *r, int k) { return (int64_t)ls_zero_planned(&r->held[k]); }

static int64_t held(const ls_zero_rank *r, int arg)
{
    int64_t sum = 0;
    (void)arg;
    for (int k = 0; k < LS_ZERO_CLASSES; k++) sum += planned(r, k);
    return sum;
}

static const ls_zero_in_use *used(const ls_zero_rank *r, int grads) { return grads ? &r->grads : &r->values; }
static int64_t used_formula(const ls_zero_rank *r, int grads) { return (int64_t)used(r, grads)->formula; }
static int64_t used_padding(const ls_zero_rank *r, int grads) { return (int64_t)used(r, grads)->padding; }
static int64_t packed(const ls_zero_rank *r, int arg) { return (void)arg, (int64_t)r->packed; }
static int64_t samples(const ls_zero_rank *r, int arg) { return (void)arg, (int64_t)r->samples; }
static int64_t kind(const ls_zero_rank *r, int k) { return (int64_t)r->plan.bytes[k]; }
static int64_t peak(const ls_zero_rank *r, int arg) { return (void)arg, (int64_t)r->plan.total; }

static int64_t travels(const ls_zero_rank *r, int k) { return (int64_t)r->formula[k]; }
static int64_t counted(const ls_zero_rank *r, int k) { return (int64_t)r->counted[k]; }
static int64_t rounded(const ls_zero_rank *r, int k) { return (int64_t)r->rounded[k]; }
static int64_t others(const ls_zero_rank *r, int arg) { return (void)arg, (int64_t)r->others; }
/* Of gradients and values. */
static int64_t model_counted(const ls_zero_rank *r)
{
    int64_t sum = 0;
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) sum += counted(r, k);
    return sum;
}
static int64_t all_counted(const ls_zero_rank *r, int arg) { return model_counted(r) + others(r, arg); }

/* --- lines -------------------------------------------------------------------------------------------------- */

typedef struct table {
    const ls_zero_costs *z;
    ls_text *out;
    int width; /* of a number */
} table;

static bool refused(const ls_zero_column *col) { return *col->refused; }

/* The line's numbers, of rank 0; nothing where all are 0 and it is not wanted then. */
static void line(const table *t, const char *name, cell *of, int arg, bool zeros)
{
    const ls_zero_costs *z = t->z;
    for (int i = 0; i < z->n; i++) zeros |= !refused(&z->column[i]) && of(&z->column[i].rank[0], arg) != 0;
    if (!zeros) return;
    ls_text_add(t->out, "%-*s", NAME, name);
    for (int i = 0; i < z->n; i++) {
        if (refused(&z->column[i])) ls_text_add(t->out, "%*s", t->width, "refused");
        else ls_text_add(t->out, "%*lld", t->width, (long long)of(&z->column[i].rank[0], arg));
    }
    ls_text_add(t->out, "\n");
}

/* A line of words. */
static void words(const table *t, const char *name, const char *(*of)(const ls_zero_column *, int), int arg)
{
    ls_text_add(t->out, "%-*s", NAME, name);
    for (int i = 0; i < t->z->n; i++) ls_text_add(t->out, "%*s", t->width, of(&t->z->column[i], arg));
    ls_text_add(t->out, "\n");
}

static const char *word(const char *s) { return s && *s ? s : "-"; }
static const char *copy_of(const ls_zero_column *col, int arg) { return (void)arg, word(col->copy); }
static const char *reshard_of(const ls_zero_column *col, int arg) { return (void)arg, word(col->reshard); }
static const char *held_of(const ls_zero_column *col, int k) { return word(col->held[k]); }
static const char *travels_of(const ls_zero_column *col, int k) { return word(col->travels[k]); }
static const char *stage_of(const ls_zero_column *col, int arg)
{
    static const char *const number[2][LS_ZERO_STAGES] = { { "0", "1", "2", "3" }, { "0 *", "1 *", "2 *", "3 *" } };
    (void)arg;
    return number[col->chosen][col->stage];
}

/* A line of numbers that `of` writes as text. */
typedef void number(const ls_zero_costs *z, const ls_zero_column *col, char *buf, size_t n);

static void numbers(const table *t, const char *name, number *of)
{
    ls_text_add(t->out, "%-*s", NAME, name);
    for (int i = 0; i < t->z->n; i++) {
        char buf[32] = "refused";
        if (!refused(&t->z->column[i])) of(t->z, &t->z->column[i], buf, sizeof buf);
        ls_text_add(t->out, "%*s", t->width, buf);
    }
    ls_text_add(t->out, "\n");
}

static int64_t of_all_ranks(const ls_zero_costs *z, const ls_zero_column *col)
{
    int64_t sum = 0;
    for (int r = 0; r < z->size; r++) sum += held(&col->rank[r], 0);
    return sum;
}

static void per_parameter(const ls_zero_costs *z, const ls_zero_column *col, char *buf, size_t n)
{
    snprintf(buf, n, "%.3f", (double)held(&col->rank[0], 0) / (double)z->elements);
}

static void all_ranks(const ls_zero_costs *z, const ls_zero_column *col, char *buf, size_t n)
{
    snprintf(buf, n, "%lld", (long long)of_all_ranks(z, col));
}

/* In whole vectors of gradients, of which (W-1)/W travels. */
static void in_gradients(const ls_zero_costs *z, const ls_zero_column *col, char *buf, size_t n)
{
    const double of = 4.0 * (double)z->elements * (z->size - 1) / z->size;
    const ls_zero_rank *r = &col->rank[0];
    if (z->size == 1) snprintf(buf, n, "-");
    else snprintf(buf, n, "%.3f", (double)model_counted(r) / of);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

static const char *const classes[LS_ZERO_CLASSES] = {
    "parameters, f32", "copies in bf16", "gradients", "optimizer state"
};

static int wider(int width, int n) { return width > n + 2 ? width : n + 2; }

static int width_of(const ls_zero_costs *z)
{
    int width = LEAST;
    int64_t most = 0;
    for (int i = 0; i < z->n; i++) {
        if (refused(&z->column[i])) continue;
        const int64_t n = of_all_ranks(z, &z->column[i]), top = peak(&z->column[i].rank[0], 0);
        most = n > most ? n : most;
        most = top > most ? top : most;
        for (int k = 0; k < LS_ZERO_CLASSES; k++) width = wider(width, (int)strlen(z->column[i].held[k]));
        for (int k = 0; k < LS_ZERO_TRAVELS; k++) width = wider(width, (int)strlen(z->column[i].travels[k]));
    }
    return wider(width, snprintf(NULL, 0, "%lld", (long long)most));
}

static void add_held(const table *t)
{
    ls_text_add(t->out, "\nheld between steps\n");
    for (int k = 0; k < LS_ZERO_CLASSES; k++) {
        if (k == LS_ZERO_COPIES && t->z->dtype != LS_BF16) continue;
        words(t, classes[k], held_of, k);
        line(t, "  by formula", formula, k, true);
        line(t, "  whole rows", rows, k, false);
        line(t, "  alignment", alignment, k, false);
        line(t, "  planned", planned, k, true);
    }
    line(t, "all of them, planned", held, 0, true);
    numbers(t, "  bytes per parameter", per_parameter);
    numbers(t, "  all ranks together", all_ranks);
}

static void add_peak(const table *t)
{
    ls_text_add(t->out, "\nat the peak of a step, in addition\n");
    line(t, "values of units in use", used_formula, 0, false);
    line(t, "  padding", used_padding, 0, false);
    line(t, "gradients of units in use", used_formula, 1, false);
    line(t, "  padding", used_padding, 1, false);
    line(t, "packed weights", packed, 0, false);
    line(t, "values for samples", samples, 0, false);
    for (int k = LS_MEM_ACT; k < LS_MEM_KINDS; k++) line(t, ls_memory_kind_name(k), kind, k, false);
    line(t, "peak, planned", peak, 0, true);
}

/* Whether some column has a formula for it. With one set of shards, gradients travel over all ranks, and values do. */
static bool is_shown(const ls_zero_costs *z, int k)
{
    bool any = z->sets == 1 && (k == LS_ZERO_SUMS || k == LS_ZERO_NEW);
    for (int i = 0; i < z->n; i++) any |= *z->column[i].travels[k] != 0;
    return any;
}

static void add_traffic(const table *t)
{
    static const char *const one_set[LS_ZERO_TRAVELS] = { [LS_ZERO_SUMS] = "gradients", [LS_ZERO_NEW] = "parameters" };
    static const char *const sets[LS_ZERO_TRAVELS] = { "gradients: (W-1)/W of", "gradients in set: (S-1)/S of",
                                                       "between sets: (C-1)/C of", "parameters: (S-1)/S of" };
    ls_text_add(t->out, "\ntraffic of a step%s\n", t->z->sets == 1 ? ": (W-1)/W of" : "");
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) {
        if (!is_shown(t->z, k)) continue;
        words(t, t->z->sets == 1 ? one_set[k] : sets[k], travels_of, k);
        line(t, "  N, in bf16 on the wire", rounded, k, false);
        line(t, "  by formula", travels, k, true);
        line(t, "  counted", counted, k, true);
    }
    line(t, "norm, losses, signals", others, 0, true);
    line(t, "all of it, counted", all_counted, 0, true);
    numbers(t, "  in (W-1)/W 4 P, no others", in_gradients);
}

void ls_zero_costs_table(const ls_zero_costs *z, ls_text *out)
{
    const table t = { .z = z, .out = out, .width = width_of(z) };
    ls_text_add(out, "W = %d rank%s", z->size, z->size == 1 ? "" : "s");
    if (z->sets > 1 && z->size % z->sets == 0)
        ls_text_add(out, ", C = %d sets of S = %d shard%s", z->sets, z->size / z->sets, z->size == z->sets ? "" : "s");
    ls_text_add(out, ": memory and traffic of rank 0, bytes\n");
    words(&t, "zero.stage", stage_of, 0);
    words(&t, "zero.copy", copy_of, 0);
    words(&t, "zero.reshard", reshard_of, 0);
    add_held(&t);
    add_peak(&t);
    add_traffic(&t);
    for (int i = 0; i < z->n; i++) {
        const ls_zero_column *col = &z->column[i];
        if (refused(col) && (i == 0 || strcmp(col->refused, col[-1].refused) != 0))
            ls_text_add(out, "refused, zero.stage %d: %s\n", col->stage, col->refused);
    }
}

/* Whether the formula of some column has N. */
static bool rounds(const ls_zero_costs *z)
{
    bool any = false;
    for (int i = 0; i < z->n; i++)
        for (int k = 0; k < LS_ZERO_TRAVELS; k++) any |= strchr(z->column[i].travels[k], 'N') != NULL;
    return any;
}

void ls_zero_costs_words(const ls_train_config *c, const ls_zero_costs *z, ls_text *out)
{
    ls_text_add(out, "%s, %s, %s: %zu bytes of state per parameter\n", c->model.name, c->train.dtype, c->optim.name,
                (size_t)z->nstates * sizeof(float));
    ls_text_add(out, "P = %zu parameters", z->elements);
    if (z->dtype == LS_BF16)
        ls_text_add(out, ", of which M = %zu are read in bf16 and V = %zu in f32", z->copied, z->elements - z->copied);
    ls_text_add(out, "\nU = %zu bytes that units read, of which the last unit reads L = %zu\n", z->units, z->last);
    ls_text_add(out, "R = %zu bytes of the root, which several units read\n", z->root);
    if (rounds(z)) ls_text_add(out, "N = parameters in buckets that are long enough for their sums to travel in bf16\n");
    ls_text_add(out, "zero.prefetch %lld: units in use are %lld neighbours; *: what this configuration says\n\n",
                (long long)c->zero.prefetch, (long long)c->zero.prefetch + 1);
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

static void add_word(ls_text *out, const char *key, const char *s)
{
    ls_text_add(out, "\"%s\": ", key);
    if (s && *s) ls_json_string(out, s);
    else ls_text_add(out, "null");
}

static void add_rank(const ls_zero_rank *r, int rank, ls_text *out)
{
    static const char *const name[LS_ZERO_CLASSES] = { "parameters", "copies", "gradients", "optimizer" };
    static const char *const moved[LS_ZERO_TRAVELS] = { "gradients", "gradients_in_set", "gradients_between_sets",
                                                        "parameters" };
    ls_text_add(out, "\n      {\"rank\": %d, \"held\": {", rank);
    for (int k = 0; k < LS_ZERO_CLASSES; k++)
        ls_text_add(out, "%s\"%s\": {\"formula\": %zu, \"rows\": %lld, \"alignment\": %zu, \"planned\": %zu}",
                    k ? ", " : "", name[k], r->held[k].formula, (long long)r->held[k].rows, r->held[k].alignment,
                    ls_zero_planned(&r->held[k]));
    ls_text_add(out, "},\n       \"in_use\": {");
    for (int k = 0; k < 2; k++)
        ls_text_add(out, "%s\"%s\": {\"formula\": %lld, \"padding\": %lld}", k ? ", " : "", k ? "gradients" : "values",
                    (long long)used_formula(r, k), (long long)used_padding(r, k));
    ls_text_add(out, ", \"packed\": %zu, \"samples\": %zu},\n       \"planned\": {", r->packed, r->samples);
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++)
        ls_text_add(out, "\"%s\": %zu, ", ls_mem_kind_name(k), r->plan.bytes[k]);
    ls_text_add(out, "\"total\": %zu},\n       \"traffic\": {", r->plan.total);
    for (int k = 0; k < LS_ZERO_TRAVELS; k++)
        ls_text_add(out, "\"%s\": {\"formula\": %lld, \"counted\": %lld, \"rounded\": %lld}, ", moved[k],
                    (long long)travels(r, k), (long long)counted(r, k), (long long)rounded(r, k));
    ls_text_add(out, "\"others\": %lld}}", (long long)others(r, 0));
}

static void add_column(const ls_zero_costs *z, const ls_zero_column *col, ls_text *out)
{
    ls_text_add(out, "\n    {\"stage\": %d, ", col->stage);
    add_word(out, "copy", col->copy);
    ls_text_add(out, ", ");
    add_word(out, "reshard", col->reshard);
    ls_text_add(out, ", \"chosen\": %s, ", col->chosen ? "true" : "false");
    add_word(out, "refused", col->refused);
    ls_text_add(out, ", \"ranks\": [");
    for (int r = 0; r < z->size && !refused(col); r++) {
        if (r > 0) ls_text_add(out, ",");
        add_rank(&col->rank[r], r, out);
    }
    ls_text_add(out, "]}");
}

void ls_zero_costs_json(const ls_zero_costs *z, ls_text *out)
{
    ls_text_add(out, "{\"world_size\": %d, \"sets\": %d, \"dtype\": \"%s\", \"parameters\": %zu, \"in_bf16\": %zu, "
                     "\"units_bytes\": %zu, \"last_bytes\": %zu, \"root_bytes\": %zu, \"states\": %d, "
                     "\"micro_batches\": %d,\n  \"ways\": [",
                z->size, z->sets, ls_dtype_name(z->dtype), z->elements, z->copied, z->units, z->last, z->root,
                z->nstates, z->micro_batches);
    for (int i = 0; i < z->n; i++) {
        if (i > 0) ls_text_add(out, ",");
        add_column(z, &z->column[i], out);
    }
    ls_text_add(out, "]}");
}
