/* pipeline_picture.c -- a pipeline schedule over time. */
#include "fig/pipeline_picture.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fig/svg.h"

/* --- lines --------------------------------------------------------------------------------------- */

#define MOST_COLUMNS 400
#define MOST_PER_UNIT 3 /* columns of the shortest action, in a picture with space */

static bool is_whole(double v) { return fabs(v - floor(v + 0.5)) < 1e-6 * (1.0 + fabs(v)); }

/* Whether all actions begin and end at multiples of `unit`. */
static bool fits(const ls_pipe_program *g, const ls_pipe_replay *r, double unit)
{
    for (int rank = 0; rank < r->ranks; rank++)
        for (int i = 0; i < g->list[rank].n; i++)
            if (!is_whole(r->action[rank][i].begins / unit) || !is_whole(r->action[rank][i].ends / unit)) return false;
    return true;
}

/* How long a column is: a part of a unit that all actions are multiples of, or what makes the step fit. */
static double column_time(const ls_pipe_program *g, const ls_pipe_replay *r, int columns)
{
    double least = r->step;
    for (int rank = 0; rank < r->ranks; rank++)
        for (int i = 0; i < g->list[rank].n; i++) {
            const double t = r->action[rank][i].ends - r->action[rank][i].begins;
            if (t > 1e-9 * r->step && t < least) least = t;
        }
    for (int part = 1; part <= 10 && r->step * part <= least * columns * (1.0 + 1e-9); part++) {
        if (!fits(g, r, least / part)) continue;
        int each = (int)(columns * least / part / r->step + 1e-6);
        each = each < 1 ? 1 : each > MOST_PER_UNIT ? MOST_PER_UNIT : each;
        return least / part / each;
    }
    return r->step > 0.0 ? r->step / columns : 1.0;
}

typedef struct lines {
    char doing[MOST_COLUMNS + 1], micro[MOST_COLUMNS + 1], phase[MOST_COLUMNS + 1];
} lines;

static char letter_of(const ls_pipe_action *a)
{
    const char c = ls_pipe_letter(a->what);
    return a->chunk % 2 == 1 ? (char)tolower(c) : c;
}

static void write_action(const ls_pipe_action *a, int from, int to, lines *l)
{
    char digits[16];
    const int n = snprintf(digits, sizeof digits, "%d", a->micro_batch);
    for (int c = from; c < to; c++) l->doing[c] = letter_of(a);
    if (from >= to) return;
    if (n <= to - from) memcpy(l->micro + from, digits, (size_t)n);
    else l->micro[from] = digits[n - 1];
}

/* "|steady---" */
static void write_phase(const char *word, int from, int to, lines *l)
{
    const int n = (int)strlen(word);
    for (int c = from; c < to; c++) l->phase[c] = c == from ? '|' : c - from <= n ? word[c - from - 1] : '-';
}

static void write_rank(const ls_pipe_program *g, const ls_pipe_replay *r, int rank, double each, int n, lines *l)
{
    ls_pipe_phases f;
    memset(l->doing, '.', sizeof l->doing);
    memset(l->micro, ' ', sizeof l->micro);
    for (int i = 0; i < g->list[rank].n; i++) {
        const ls_pipe_span *a = &r->action[rank][i];
        const int from = (int)(a->begins / each + 0.5), to = (int)(a->ends / each + 0.5);
        write_action(&g->list[rank].action[i], from, to < n ? to : n, l);
    }
    ls_pipe_phases_of(g, r, rank, &f);
    const int steady = (int)(f.steady_begins / each + 0.5), cool_down = (int)(f.cool_down_begins / each + 0.5);
    write_phase("warm-up", 0, steady, l);
    write_phase("steady", steady, cool_down, l);
    write_phase("cool-down", cool_down, n, l);
    l->doing[n] = l->micro[n] = l->phase[n] = '\0';
    for (int c = n - 1; c >= 0 && l->micro[c] == ' '; c--) l->micro[c] = '\0';
}

double ls_pipe_draw_text(const ls_pipe_program *g, const ls_pipe_replay *r, int columns, ls_text *out)
{
    char label[32];
    const int left = 6 + snprintf(label, sizeof label, "%d", r->ranks - 1);
    int wide = (columns < LS_PIPE_LEAST_COLUMNS ? LS_PIPE_LEAST_COLUMNS : columns) - left;
    if (wide > MOST_COLUMNS) wide = MOST_COLUMNS;
    const double each = column_time(g, r, wide);
    const int n = (int)(r->step / each + 0.5);
    for (int rank = 0; rank < r->ranks; rank++) {
        lines l;
        write_rank(g, r, rank, each, n < wide ? n : wide, &l);
        ls_text_add(out, "rank %-*d%s\n", left - 5, rank, l.doing);
        ls_text_add(out, "%*s%s\n%*s%s\n", left, "", l.micro, left, "", l.phase);
    }
    return each;
}

static bool has(const ls_pipe_program *g, ls_pipe_what what)
{
    for (int r = 0; r < g->shape.ranks; r++)
        for (int i = 0; i < g->list[r].n; i++)
            if (g->list[r].action[i].what == what) return true;
    return false;
}

void ls_pipe_legend(const ls_pipe_program *g, ls_text *out)
{
    for (int k = LS_PIPE_FORWARD; k <= LS_PIPE_BACKWARD_WEIGHT; k++) {
        const ls_pipe_what what = (ls_pipe_what)k;
        if (has(g, what)) ls_text_add(out, "%c %s, ", ls_pipe_letter(what), ls_pipe_what_name(what));
    }
    if (g->shape.chunks > 1) ls_text_add(out, "small letters: odd chunks, ");
    ls_text_add(out, ". idle (bubble); numbers: micro-batches");
}

/* --- SVG ----------------------------------------------------------------------------------------- */

#define LEFT   64.0
#define RIGHT  16.0
#define TOP    20.0
#define ROW    52.0 /* from rank to rank */
#define HIGH   26.0
#define NUMBER 11.0 /* width of a number's first digit and its margin; 6 more for each digit */

static void svg_idle(const char *name, double x, double y, double w, ls_text *out)
{
    if (w < 0.5) return;
    ls_svg_rect(out, x, y, w, HIGH, "c-idle box");
    ls_svg_hatch(out, name, x, y, w, HIGH);
}

static void svg_action(const char *name, const ls_pipe_action *a, double x, double y, double w, ls_text *out)
{
    const bool forward = a->what == LS_PIPE_FORWARD;
    char digits[16];
    const int n = snprintf(digits, sizeof digits, "%d", a->micro_batch);
    ls_svg_rect(out, x, y, w, HIGH, forward ? "c-forward box" : "c-backward box");
    if (a->what == LS_PIPE_BACKWARD_WEIGHT) ls_svg_hatch(out, name, x, y + HIGH / 2, w, HIGH / 2);
    if (a->chunk % 2 == 1) ls_svg_line(out, x, y + HIGH - 2, x + w, y + HIGH - 2, "s-ink bold");
    if (w >= NUMBER + 6.0 * (n - 1))
        ls_svg_text(out, x + w / 2, y + 15, "middle", forward ? "small on" : "small on-pale", "%s", digits);
}

static void svg_phase(const char *word, double from, double to, double y, ls_text *out)
{
    if (to - from < 0.5) return;
    ls_svg_line(out, from, y - 12, from, y, "s-quiet");
    if (to - from >= 6.5 * (double)strlen(word)) ls_svg_text(out, from + 4, y - 3, "start", "small quiet", "%s", word);
}

static void svg_rank(const ls_pipe_program *g, const ls_pipe_replay *r, int rank, const char *name, double scale,
                     ls_text *out)
{
    const double y = TOP + ROW * rank;
    double free = 0.0;
    ls_pipe_phases f;
    ls_svg_text(out, LEFT - 8, y + 17, "end", "", "rank %d", rank);
    for (int i = 0; i < g->list[rank].n; i++) {
        const ls_pipe_span *a = &r->action[rank][i];
        svg_idle(name, LEFT + scale * free, y, scale * (a->begins - free), out);
        svg_action(name, &g->list[rank].action[i], LEFT + scale * a->begins, y, scale * (a->ends - a->begins), out);
        free = a->ends;
    }
    svg_idle(name, LEFT + scale * free, y, scale * (r->step - free), out);
    ls_pipe_phases_of(g, r, rank, &f);
    svg_phase("warm-up", LEFT, LEFT + scale * f.steady_begins, y, out);
    svg_phase("steady", LEFT + scale * f.steady_begins, LEFT + scale * f.cool_down_begins, y, out);
    svg_phase("cool-down", LEFT + scale * f.cool_down_begins, LEFT + scale * r->step, y, out);
}

void ls_pipe_draw_svg(const ls_pipe_program *g, const ls_pipe_replay *r, const char *name, double width,
                      ls_text *shapes, double *height)
{
    const double scale = r->step > 0.0 ? (width - LEFT - RIGHT) / r->step : 0.0;
    for (int rank = 0; rank < r->ranks; rank++) svg_rank(g, r, rank, name, scale, shapes);
    *height = TOP + ROW * r->ranks + 20;
    ls_svg_text(shapes, LEFT, *height - 24, "start", "small quiet", "dark: forward; light: backward%s%s",
                has(g, LS_PIPE_BACKWARD_WEIGHT) ? ", half hatched: of the weights" : "",
                g->shape.chunks > 1 ? "; a line below: odd chunks" : "");
    ls_svg_text(shapes, LEFT, *height - 8, "start", "small quiet", "hatched: idle; numbers: micro-batches");
}
