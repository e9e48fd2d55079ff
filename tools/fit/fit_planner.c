/* fit_planner.c -- fits the planner's constants to published measurements, and reports how well it predicts others.
 *
 *   build/tools/fit_planner ROWS.csv [src/plan/constants.c [docs/planner-points.csv [DIVISION|models [TERMS.csv]]]]
 *
 * Minimizes the mean absolute logarithm of predicted over measured, and how far constants are from what they are
 * expected to be, per stack (a device and its software). Cross-validation: whole configurations are in one of 5 folds;
 * each fold is predicted with constants that the four others gave, from the same start; constants of collectives, which
 * steps use, are of all rows of collectives. Deterministic. DIVISION is the number of another way to divide the
 * configurations into folds, from 1 on: an improvement should hold in several. `models` makes each model of a stack a
 * fold. TERMS.csv gets the parts of each step in seconds, by the constants of each fold (`without`: the fold that they
 * have not seen); bench/plan-floor reads them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/coll_cost.h"
#include "plan/memory.h"
#include "plan/predict.h"
#include "plan/row_run.h"

enum { FOLDS = 5, K = LS_K_COUNT, MOST = 8192, GROUPS = LS_STACKS + LS_COLL_CLASSES, MEMORY = GROUPS };
enum { ROUNDS = 20000, ATTEMPTS = 20 }; /* a fit ends before that, where no step is better */

/* Steps, then collectives: how many constants there are, from where they start, how far they may move. */
static const struct { int n; double prior[K], spread[K]; } kinds[2] = {
#define PRIOR(name, prior_, sd, meaning) prior_,
#define SPREAD(name, prior_, sd, meaning) sd,
    { LS_K_COUNT, { LS_CONSTANTS(PRIOR) }, { LS_CONSTANTS(SPREAD) } },
    { LS_C_COUNT, { LS_COLL_CONSTANTS(PRIOR) }, { LS_COLL_CONSTANTS(SPREAD) } },
};
_Static_assert((int)LS_C_COUNT <= (int)LS_K_COUNT, "constants of collectives fit");

/* What a constant one standard deviation away from its expected value costs, as a part of one family's error: of steps,
 * less where more configurations speak against the expectation; of collectives. */
#define RIDGE .02
#define RIDGE_CONFIGURATIONS 5
#define RIDGE_COLLECTIVES .002

enum { MOST_DIVISIONS = 1000 };

/* The fold of a row's configuration: division 0 takes its hash, each further one mixes that once more. */
static int fold_of(const ls_row *r, int division)
{
    uint64_t h = ls_row_configuration(r);
    for (int i = 0; i < division; i++) {
        h = (h ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
        h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
        h ^= h >> 29;
    }
    return (int)(h % FOLDS);
}

static int kind_of(int group) { return group >= LS_STACKS; }

typedef struct sample {
    const ls_row *row;
    ls_run run;
    ls_coll_run coll;
    double seconds, weight; /* measured (of memory: bytes); of its family */
    int stack, fold; /* stack MEMORY: no constant of it is fitted */
    double held_out;        /* logarithm of measured over predicted, constants of the other folds */
    double own;             /* the same, constants of all rows */
} sample;

static double seconds_and_parts(const sample *s, const double *x, ls_step_cost *parts)
{
    double k[K];
    const int kind = kind_of(s->stack);
    for (int i = 0; i < kinds[kind].n; i++) k[i] = kinds[kind].prior[i] * exp(x[i]);
    if (kind) return ls_coll_cost(&s->coll, k);
    if (k[LS_K_HIDDEN] > 1) k[LS_K_HIDDEN] = 1;
    ls_step_cost_of(&s->run, k, parts);
    return parts->total;
}

static double seconds(const sample *s, const double *x)
{
    ls_step_cost parts;
    return seconds_and_parts(s, x, &parts);
}

/* Makes each model of a stack a fold, numbered from 0. Collectives have no model, and keep their folds. */
static void number_models(sample *all, int n)
{
    for (int stack = 0; stack < LS_STACKS; stack++) {
        int models = 0;
        for (int i = 0; i < n; i++) {
            if (all[i].stack != stack) continue;
            const ls_llm *m = &all[i].run.m;
            int j = 0;
            while (all[j].stack != stack || all[j].run.m.layers != m->layers || all[j].run.m.hidden != m->hidden ||
                   all[j].run.m.heads != m->heads || all[j].run.m.experts != m->experts) j++;
            all[i].fold = j < i ? all[j].fold : models++;
        }
    }
}

/* Solves A y = b in place, A symmetric and positive. */
static void solve(double A[K][K], double *b)
{
    for (int i = 0; i < K; i++) {
        for (int j = 0; j <= i; j++) {
            double v = A[i][j];
            for (int l = 0; l < j; l++) v -= A[i][l] * A[j][l];
            A[i][j] = i == j ? sqrt(v > 1e-300 ? v : 1e-300) : v / A[j][j];
        }
        double v = b[i];
        for (int l = 0; l < i; l++) v -= A[i][l] * b[l];
        b[i] = v / A[i][i];
    }
    for (int i = K - 1; i >= 0; i--) {
        double v = b[i];
        for (int l = i + 1; l < K; l++) v -= A[l][i] * b[l];
        b[i] = v / A[i][i];
    }
}

static double ridge_of(int stack, sample **s, int n)
{
    if (kind_of(stack) == 1) return RIDGE_COLLECTIVES;
    int configurations = 0;
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (ls_row_configuration(s[j]->row) != ls_row_configuration(s[i]->row)) j++;
        configurations += j == i;
    }
    return configurations > RIDGE_CONFIGURATIONS ? RIDGE * RIDGE_CONFIGURATIONS / configurations : RIDGE;
}

static double objective(sample **s, int n, const double *x, double ridge, const double *spread)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += s[i]->weight * fabs(log(s[i]->seconds / seconds(s[i], x)));
    for (int i = 0; i < K; i++) if (spread[i] > 0) sum += ridge * x[i] * x[i] / (spread[i] * spread[i]);
    return sum;
}

/* Levenberg and Marquardt, rows reweighted so that squares become absolute values. False: steps were still better after
 * the last round. */
static bool fit(sample **s, int n, double ridge, double *x)
{
    static const double still[K];
    const double *spread = n ? kinds[kind_of(s[0]->stack)].spread : still;
    const int count = n ? kinds[kind_of(s[0]->stack)].n : 0;
    double best, damp = 1e-2;
    memset(x, 0, K * sizeof *x);
    if (n == 0) return true;
    best = objective(s, n, x, ridge, spread);
    for (int round = 0; round < ROUNDS; round++) {
        double A[K][K] = { { 0 } }, b[K] = { 0 };
        for (int i = 0; i < n; i++) {
            double J[K] = { 0 };
            const double at = log(seconds(s[i], x)), e = log(s[i]->seconds) - at, w =
                s[i]->weight / fmax(fabs(e), .005);
            for (int j = 0; j < count; j++) {
                const double keep = x[j];
                x[j] += 1e-4;
                J[j] = (log(seconds(s[i], x)) - at) / 1e-4;
                x[j] = keep;
            }
            for (int j = 0; j < K; j++) {
                b[j] += w * J[j] * e;
                for (int l = 0; l <= j; l++) A[j][l] += w * J[j] * J[l];
            }
        }
        for (int j = 0; j < K; j++) {
            if (j >= count) A[j][j] = 1;
            if (j >= count) continue;
            A[j][j] += 2 * ridge / (spread[j] * spread[j]);
            b[j] -= 2 * ridge * x[j] / (spread[j] * spread[j]);
        }
        bool better = false;
        for (int attempt = 0; attempt < ATTEMPTS && !better; attempt++) {
            double D[K][K], y[K], next[K];
            memcpy(D, A, sizeof D);
            memcpy(y, b, sizeof y);
            for (int j = 0; j < K; j++) D[j][j] *= 1 + damp;
            solve(D, y);
            for (int j = 0; j < K; j++) next[j] = x[j] + fmax(-1, fmin(1, y[j]));
            const double now = objective(s, n, next, ridge, spread);
            if (now < best) {
                better = best - now > 1e-10 * best;
                memcpy(x, next, sizeof next);
                best = now;
                damp = fmax(damp / 4, 1e-6);
                if (!better) return true;
            } else damp = fmin(damp * 4, 1e6);
        }
        if (!better) return true;
    }
    return false;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-th quantile of n sorted values, as order statistics with the correction for n. */
static double quantile(const double *v, int n, double q)
{
    double at = q < .5 ? (n + 1) * q - 1 : (n + 1) * q - 1;
    if (at < 0) at = 0;
    if (at > n - 1) at = n - 1;
    const int i = (int)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[i];
}

/* The 95th percentile of Student's t with so many degrees of freedom: the first by table, then Fisher's expansion. */
static double student(int freedom)
{
    static const double few[] = { 6.314, 2.920, 2.353, 2.132, 2.015 };
    const double z = 1.645, d = freedom;
    if (freedom <= 5) return few[freedom > 1 ? freedom - 1 : 0];
    return z + (z * z * z + z) / (4 * d) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * d * d);
}

/* Where 90 % of further rows of a family are expected: between its 5th and 95th percentile; and as few configurations
 * have no percentiles, at least where Student's t says, were its logarithms normal. Rows beyond the percentiles count
 * there as if they were on them: a single outlier among many rows widens nothing, and few rows have none beyond. The
 * rows of a single configuration repeat one error, so that they vary about no error at all, not about their mean. */
static void interval(const double *logs, int n, int configurations, double *low, double *high)
{
    double mean = 0, square = 0;
    const double least = quantile(logs, n, .05), most = quantile(logs, n, .95);
    for (int i = 0; i < n; i++) mean += fmin(fmax(logs[i], least), most) / n;
    for (int i = 0; i < n; i++)
        square += pow(fmin(fmax(logs[i], least), most) - (configurations > 1 ? mean : 0), 2);
    const double deviation = n > 1 ? sqrt(square / (n - 1)) : 0;
    const double spread = student(configurations - 1) * deviation * sqrt(1 + 1.0 / configurations);
    *low = exp(fmin(least, mean - spread));
    *high = exp(fmax(most, mean + spread));
}

/* Ampere, Hopper, Volta; B200 and GB200 are one kind. */
static char device_kind(const sample *s) { return s->run.device->name[0] == 'G' ? 'B' : s->run.device->name[0]; }

/* Whether a row counts for the interval of a stack: its own, or, where `of` is not 0, all of a kind of device. */
static bool pooled(const sample *s, int stack, char of)
{
    return s->stack < LS_STACKS && (of ? device_kind(s) == of : s->stack == stack);
}

/* 90 % of what is measured of a run that is in no family: from a third to three times as long, if nothing is known. */
static void stack_interval(const sample *all, int n, int stack, ls_text *t)
{
    static double logs[MOST];
    double low = 1.0 / 3, high = 3;
    int c = 0, configurations = 0;
    char of = 0;
    for (int pass = 0; pass < 2 && configurations < LS_LEAST_CONFIGURATIONS; pass++) {
        for (int i = 0; i < n && pass == 1; i++) if (all[i].stack == stack) of = device_kind(&all[i]);
        c = configurations = 0;
        for (int i = 0; i < n; i++) {
            if (!pooled(&all[i], stack, of)) continue;
            logs[c++] = all[i].held_out;
            int k = 0;
            while (!pooled(&all[k], stack, of) ||
                   ls_row_configuration(all[k].row) != ls_row_configuration(all[i].row)) k++;
            configurations += k == i;
        }
    }
    qsort(logs, (size_t)c, sizeof *logs, by_value);
    if (configurations >= LS_LEAST_CONFIGURATIONS) interval(logs, c, configurations, &low, &high);
    ls_text_add(t, "    { \"%s\", 's', %.4f, %.4f },\n", ls_stacks[stack].name, low, high);
}

static const char *kind_name(const sample *s) { return s->stack == MEMORY ? "memory" : kind_of(s->stack) ?
    "collective" : "step"; }

static bool same_family(const sample *a, const sample *b)
{
    return strcmp(a->row->family, b->row->family) == 0 && strcmp(kind_name(a), kind_name(b)) == 0;
}

/* The first row of the family that has the configuration of row i. */
static int first_like(const sample *all, int i)
{
    int k = 0;
    while (!same_family(&all[k], &all[i]) || ls_row_configuration(all[k].row) != ls_row_configuration(all[i].row)) k++;
    return k;
}

static void family_line(const sample *all, int n, const sample *of, ls_text *intervals)
{
    static double error[MOST], logs[MOST];
    double own = 0, held = 0, low, high;
    int c = 0, configurations = 0;
    for (int i = 0; i < n; i++) {
        if (!same_family(&all[i], of)) continue;
        own += 100 * fabs(exp(-all[i].own) - 1);
        error[c] = 100 * fabs(exp(-all[i].held_out) - 1);
        held += error[c];
        logs[c++] = all[i].held_out;
        configurations += first_like(all, i) == i;
    }
    qsort(error, (size_t)c, sizeof *error, by_value);
    qsort(logs, (size_t)c, sizeof *logs, by_value);
    interval(logs, c, configurations, &low, &high);
    printf("%-20s %-10s %5d %8.2f %8.2f %8.2f %8.2f   %6.3f %6.3f\n", of->row->family, kind_name(of), c, own / c,
           held / c,
           error[c / 2], error[c - 1], low, high);
    ls_text_add(intervals, "    { \"%s\", '%c', %.4f, %.4f },\n", of->row->family, *kind_name(of), low, high);
}

/* Bytes of a row's unit. */
static double bytes_of(const char *unit)
{
    return strcmp(unit, "GB") == 0 ? 1e9 : strcmp(unit, "GiB") == 0 ? 0x1p30 : 1;
}

/* A line per row: what was measured, and what the constants of the other folds predict. tools/draw-fit reads them. */
static ls_status write_points(const char *path, const sample *all, int n)
{
    ls_text t = { 0 };
    ls_text_add(&t, "family,what,id,metric,fold,measured,predicted,configuration\n");
    for (int i = 0; i < n; i++) {
        const sample *s = &all[i];
        ls_text_add(&t, "%s,%s,%s,%s,%d,%.5g,%.5g,%d\n", s->row->family, kind_name(s), s->row->id, s->row->metric, s->fold,
                    s->seconds, s->seconds / exp(s->held_out), first_like(all, i));
    }
    ls_status st = ls_text_status(&t);
    if (st == LS_OK) st = ls_file_write(path, t.p, t.n);
    ls_text_free(&t);
    return st;
}

/* A line per step and fold of its stack: its parts by the constants that have not seen the fold. */
static void add_terms(ls_text *t, const sample *s, int without, const ls_step_cost *p)
{
    const double parts[] = { p->compute, p->recompute, p->tensor, p->exchange, p->bubble, p->hops, p->data, p->update,
        p->overhead };
    ls_text_add(t, "%s,%s,%d,%d", s->row->id, ls_stacks[s->stack].name, s->fold, without);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) ls_text_add(t, ",%.6g", parts[i]);
    ls_text_add(t, "\n");
}

static void weigh(sample *all, int n)
{
    for (int i = 0; i < n; i++) {
        int same = 0, configurations = 0;
        for (int j = 0; j < n; j++) {
            if (!same_family(&all[i], &all[j])) continue;
            same++;
            configurations += ls_row_configuration(all[i].row) == ls_row_configuration(all[j].row);
        }
        all[i].weight = 1 / (sqrt((double)same / 10) * configurations);
    }
}

/* The null model of plans: the median part of the peak that steps of a stack have, of those with 16-bit products. */
static double median_part(const sample *all, int n, int stack)
{
    double part[MOST];
    int count = 0;
    for (int i = 0; i < n; i++) {
        const ls_run *r = &all[i].run;
        if (all[i].stack != stack || r->bits != 16) continue;
        const double flops = (double)r->batch * (double)r->m.seq * ls_llm_flops(&r->m, LS_FLOPS_FULL);
        part[count++] = flops / ((double)r->n * r->device->peak16 * all[i].seconds);
    }
    if (count == 0) return 0;
    qsort(part, (size_t)count, sizeof *part, by_value);
    return count % 2 ? part[count / 2] : (part[count / 2 - 1] + part[count / 2]) / 2;
}

static ls_status write_constants(const char *path, double k[GROUPS][K], const sample *all, int n,
                                 const ls_text *intervals)
{
    ls_text t = { 0 };
    ls_text_add(&t, "/* constants.c -- written by `make fit` from published measurements (docs/planner.md). */\n"
                    "#include \"plan/predict.h\"\n\nconst double ls_constants[LS_STACKS][LS_K_COUNT] = {\n");
    for (int g = 0; g < GROUPS; g++) {
        if (g == LS_STACKS) ls_text_add(&t, "};\n\nconst double ls_coll_constants[LS_COLL_CLASSES][LS_C_COUNT] = {\n");
        ls_text_add(&t, "    { /* %s */", g < LS_STACKS ? ls_stacks[g].name : ls_coll_classes[g - LS_STACKS]);
        for (int i = 0; i < kinds[kind_of(g)].n; i++) ls_text_add(&t, "%s%.5g,", i % 12 ? " " : "\n      ", k[g][i]);
        ls_text_add(&t, "\n    },\n");
    }
    ls_text_add(&t, "};\n\nconst double ls_null_mfu[LS_STACKS] = {");
    for (int g = 0; g < LS_STACKS; g++) ls_text_add(&t, "%s%.4f,", g % 8 ? " " : "\n    ", median_part(all, n, g));
    ls_text_add(&t, "\n};\n\nconst ls_interval ls_intervals[] = {\n%s    { NULL, 0, 0, 0 },\n};\n",
                ls_text_str(intervals));
    ls_text_add(&t, "\nconst ls_interval ls_stack_intervals[LS_STACKS] = {\n");
    for (int g = 0; g < LS_STACKS; g++) stack_interval(all, n, g, &t);
    ls_text_add(&t, "};\n");
    ls_status st = ls_text_status(&t);
    if (st == LS_OK) st = ls_file_write(path, t.p, t.n);
    ls_text_free(&t);
    return st;
}

int main(int argc, char **argv)
{
    static sample all[MOST];
    static double k[GROUPS][K], coll[LS_COLL_CLASSES][LS_C_COUNT]; /* collectives are fitted first: steps have some */
    sample *some[MOST];
    ls_rows rows;
    char *text = NULL;
    size_t bytes = 0;
    int n = 0;
    if (argc < 2)
        return fprintf(stderr, "usage: fit_planner ROWS.csv [constants.c [points.csv [DIVISION|models [TERMS.csv]]]]\n"), 64;
    char *end = NULL;
    const bool models = argc > 4 && strcmp(argv[4], "models") == 0;
    const long asked = argc > 4 && !models ? strtol(argv[4], &end, 10) : 0;
    if (asked < 0 || asked > MOST_DIVISIONS || (argc > 4 && !models && (end == argv[4] || *end)))
        return fprintf(stderr, "fit_planner: DIVISION is '%s': expected a whole number from 0 to %d, or models\n",
                       argv[4], MOST_DIVISIONS), 64;
    const int division = (int)asked;
    if (ls_file_read(argv[1], (size_t)1 << 28, &text, &bytes) < 0 || ls_rows_read(argv[1], text, &rows) < 0)
        return fprintf(stderr, "fit_planner: %s\n", ls_last_error()), 1;
    for (int i = 0; i < rows.n && n < MOST; i++) {
        sample *s = &all[n];
        double one;
        *s = (sample){ .row = &rows.row[i], .stack = ls_stack_of(&rows.row[i]) };
        if (ls_row_coll(s->row, &s->coll) == LS_OK && s->row->value > 0) {
            s->stack = LS_STACKS + s->coll.class;
            s->seconds = ls_coll_measured(s->row, &s->coll);
            s->fold = fold_of(s->row, division);
            n++;
            continue;
        }
        double predicted;
        if (!ls_metric_of_step(s->row->metric)) {
            if (ls_row_memory(s->row, &predicted) < 0 || !(predicted > 0) || !(s->row->value > 0) ||
                strncmp(s->row->metric, "fits", 4) == 0) continue;
            s->stack = MEMORY;
            s->own = s->held_out = log(s->row->value / predicted);
            s->seconds = s->row->value * bytes_of(s->row->unit);
            s->fold = fold_of(s->row, division);
            n++;
            continue;
        }
        if (s->stack < 0 || !ls_metric_of_step(s->row->metric) || ls_row_run(s->row, &s->run) < 0) continue;
        if (ls_row_from_seconds(s->row, &s->run, 1, &one) < 0 || !(s->row->value > 0)) continue;
        const bool seconds_ = strncmp(s->row->metric, "step_time", 9) == 0 ||
            strncmp(s->row->metric, "train_days", 10) == 0;
        s->seconds = seconds_ ? s->row->value / one : one / s->row->value;
        s->fold = fold_of(s->row, division);
        s->run.coll = (const double (*)[LS_C_COUNT])coll;
        n++;
    }
    weigh(all, n);
    if (models) number_models(all, n);
    ls_text terms = { 0 };
    ls_text_add(&terms, "id,stack,fold,without,compute,recompute,tensor,exchange,bubble,hops,data,update,overhead\n");
    for (int g = 0; g < GROUPS; g++) {
        const int stack = (LS_STACKS + g) % GROUPS; /* collectives' first */
        double x[K];
        int folds = 0;
        for (int i = 0; i < n; i++) if (all[i].stack == stack && all[i].fold >= folds) folds = all[i].fold + 1;
        for (int fold = -1; fold < folds; fold++) {
            int c = 0;
            for (int i = 0; i < n; i++)
                if (all[i].stack == stack && all[i].fold != fold) some[c++] = &all[i];
            if (!fit(some, c, ridge_of(stack, some, c), x))
                fprintf(stderr, "fit_planner: %s (fold %d left out, -1: none) did not converge in %d rounds, so its "
                        "constants are not the best: raise ROUNDS\n", stack < LS_STACKS ? ls_stacks[stack].name :
                        ls_coll_classes[stack - LS_STACKS], fold, ROUNDS);
            for (int i = 0; i < n; i++) {
                if (all[i].stack != stack) continue;
                ls_step_cost parts = { 0 };
                const double e = log(all[i].seconds / seconds_and_parts(&all[i], x, &parts));
                if (fold < 0) all[i].own = e;
                else if (all[i].fold == fold) all[i].held_out = e;
                if (fold >= 0 && argc > 5 && kind_of(stack) == 0) add_terms(&terms, &all[i], fold, &parts);
            }
            for (int i = 0; fold < 0 && i < kinds[kind_of(stack)].n; i++) k[stack][i] =
                kinds[kind_of(stack)].prior[i] * exp(x[i]);
        }
        if (stack < LS_STACKS && k[stack][LS_K_HIDDEN] > 1) k[stack][LS_K_HIDDEN] = 1;
        if (stack >= LS_STACKS) memcpy(coll[stack - LS_STACKS], k[stack], sizeof *coll);
    }
    ls_text intervals = { 0 };
    printf("%-20s %-10s %5s %8s %8s %8s %8s   %6s %6s\n", "family", "what", "rows", "fitted %", "5-fold %", "median",
           "worst", "low90", "high90");
    for (int i = 0; i < n; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++) first = !same_family(&all[i], &all[j]);
        if (first) family_line(all, n, &all[i], &intervals);
    }
    if ((argc > 2 && write_constants(argv[2], k, all, n, &intervals) < 0) ||
        (argc > 3 && write_points(argv[3], all, n) < 0) ||
        (argc > 5 && (ls_text_status(&terms) < 0 || ls_file_write(argv[5], terms.p, terms.n) < 0)))
        return fprintf(stderr, "fit_planner: %s\n", ls_last_error()), 1;
    ls_text_free(&intervals);
    ls_text_free(&terms);
    free(text);
    ls_rows_free(&rows);
    return 0;
}
