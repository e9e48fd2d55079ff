/* score.c -- predictions beside measurements, family by family. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "plan/row_run.h"
#include "plan/score.h"

typedef struct scored {
    const ls_row *row;
    double predicted, low, high, error, null; /* errors in percent of what was measured */
    double part;                              /* of the peak, measured; 0: no step */
    bool ok;
} scored;

static double percent(double predicted, double measured)
{
    /* a label that is wrong */
    return measured != 0 ? 100 * (predicted - measured) / fabs(measured) : predicted == 0 ? 0 : 100;
}

/* The part of its devices' peak that a step takes a second to have. */
static double one_second_part(const ls_row *r, ls_run *run)
{
    if (!ls_metric_of_step(r->metric) || ls_row_run(r, run) < 0) return 0;
    const double flops = (double)run->batch * (double)run->m.seq * ls_llm_flops(&run->m, LS_FLOPS_FULL);
    return flops / ((double)run->n * run->device->peak16);
}

static double measured_seconds(const ls_row *r, const ls_run *run)
{
    double one, two;
    if (ls_row_from_seconds(r, run, 1, &one) < 0 || ls_row_from_seconds(r, run, 2, &two) < 0) return 0;
    return two > one ? r->value / one : one / r->value; /* seconds, or their inverse */
}

static bool alike(const scored *a, const scored *b)
{
    const bool steps = a->part > 0 && b->part > 0;
    if (steps) return strcmp(a->row->gpu, b->row->gpu) == 0 && strcmp(a->row->dtype, b->row->dtype) == 0;
    return a->part == b->part && strcmp(a->row->metric, b->row->metric) == 0 &&
        strcmp(a->row->family, b->row->family) == 0;
}

static void null_model(scored *s, int n, double *room)
{
    for (int i = 0; i < n; i++) {
        int c = 0;
        for (int j = 0; j < n; j++)
            if (alike(&s[i], &s[j])) room[c++] = s[j].part > 0 ? s[j].part : s[j].row->value;
        const double mid = ls_median(room, (size_t)c);
        double value = mid;
        if (s[i].part > 0) {
            ls_run run;
            const double part = one_second_part(s[i].row, &run);
            ls_row_from_seconds(s[i].row, &run, part / mid, &value);
        }
        s[i].null = percent(value, s[i].row->value);
    }
}

static void family(const scored *s, int n, const char *name, double *room, ls_text *out)
{
    double sum = 0, null = 0, worst = 0;
    int c = 0, covered = 0;
    for (int i = 0; i < n; i++) {
        if (!s[i].ok || (name && strcmp(s[i].row->family, name) != 0)) continue;
        const double e = fabs(s[i].error);
        room[c++] = e;
        sum += e;
        null += fabs(s[i].null);
        if (e > worst) worst = e;
        covered += s[i].row->value >= s[i].low && s[i].row->value <= s[i].high;
    }
    if (c == 0) return;
    ls_text_add(out, "%-20s %5d %8.2f %8.2f %8.2f %9.1f %8.2f\n", name ? name : "total", c, sum / c, ls_median(room, (size_t)c),
                worst,
                100.0 * covered / c, null / c);
}

ls_status ls_score(const ls_rows *rows, ls_text *out)
{
    scored *s = calloc((size_t)rows->n + 1, sizeof *s);
    double *room = calloc((size_t)rows->n + 1, sizeof *room);
    ls_text refused = { 0 };
    int not = 0;
    if (!s || !room) {
        free(s);
        free(room);
        return ls_fail(LS_NO_MEMORY, "scores of %d rows", rows->n);
    }
    ls_text_add(out, "id,metric,predicted,low90,high90,measured,error_pct\n");
    for (int i = 0; i < rows->n; i++) {
        const ls_row *r = &rows->row[i];
        ls_run run;
        s[i] = (scored){ .row = r };
        const double part = one_second_part(r, &run);
        if (part > 0) s[i].part = part / measured_seconds(r, &run);
        s[i].ok = ls_row_predict(r, rows, &s[i].predicted) == LS_OK;
        if (!s[i].ok) {
            ls_text_add(&refused, "not predicted: %s,%s: %s\n", r->id, r->metric, ls_last_error());
            not++;
            continue;
        }
        ls_row_interval(r, s[i].predicted, &s[i].low, &s[i].high);
        s[i].error = percent(s[i].predicted, r->value);
        ls_text_add(out, "%s,%s,%.9g,%.9g,%.9g,%.12g,%.3f\n", r->id, r->metric, s[i].predicted, s[i].low, s[i].high,
                    r->value, s[i].error);
    }
    null_model(s, rows->n, room);
    ls_text_add(out, "\n%s", ls_text_str(&refused));
    ls_text_add(out, "\n%-20s %5s %8s %8s %8s %9s %8s\n", "family", "rows", "mean %", "median %", "worst %",
                "in low-high", "null %");
    for (int i = 0; i < rows->n; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++) first = strcmp(rows->row[i].family, rows->row[j].family) != 0;
        if (first) family(s, rows->n, rows->row[i].family, room, out);
    }
    family(s, rows->n, NULL, room, out);
    ls_text_add(out, "%d of %d rows are not predicted\n", not, rows->n);
    ls_text_free(&refused);
    free(s);
    free(room);
    return ls_text_status(out);
}
