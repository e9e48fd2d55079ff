/* fig_winner.c -- which algorithm is the fastest, by size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/choose.h"
#include "fig/fig.h"
#include "fig/svg.h"

enum { COLL, RANKS, ALPHA, GAP, GB_PER_S, GAMMA };
#define MOST_RANKS 16
#define SIZES 11
#define MOST_ALGOS 16
#define SMALLEST 256.0

static const ls_fig_control controls[] = {
    [COLL] = { "coll", "collective", "all_reduce", "all_reduce|reduce_scatter|all_gather|broadcast|reduce", 0, 0, false },
    [RANKS] = { "ranks", "ranks, each on a node of its own", "8", NULL, 2, MOST_RANKS, true },
    [ALPHA] = { "alpha_us", "latency of a message (us)", "30", NULL, 0.01, 100000, false },
    [GAP] = { "gap_percent", "of that the sender is busy (%)", "8", NULL, 0, 100, false },
    [GB_PER_S] = { "gb_per_s", "bandwidth of a link (GB/s)", "1.25", NULL, 0.001, 1000, false },
    [GAMMA] = { "add_gb_per_s", "speed of additions (GB/s)", "6", NULL, 0.01, 10000, false },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "ethernet", "alpha_us=30 gb_per_s=1.25", "10 Gbit/s Ethernet: short vectors want one latency, not two, long ones want fewer bytes." },
    { "infiniband", "alpha_us=1.5 gap_percent=100 gb_per_s=25", "Messages are cheap, additions are not: three algorithms win in turn." },
    { "far", "alpha_us=5000 gap_percent=0 gb_per_s=0.1", "Between continents one latency is worth more than 64 KiB sent to every rank." },
    { "broadcast", "coll=broadcast ranks=16", "A broadcast: few rounds win first, then a tree, then a chain that sends each byte once." },
    { 0 },
};

static const ls_coll colls[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_BROADCAST, LS_REDUCE };

typedef struct chart {
    double size[SIZES], ns[MOST_ALGOS][SIZES]; /* 0: not a choice there */
    const ls_algo *algo[MOST_ALGOS];
    int nalgos, winner[SIZES], second[SIZES];  /* second: -1: there is none */
    ls_choice first[SIZES];
} chart;

static int number_of(chart *c, const ls_algo *a)
{
    int k = 0;
    while (k < c->nalgos && c->algo[k] != a) k++;
    if (k == c->nalgos && k < MOST_ALGOS) c->algo[c->nalgos++] = a;
    return k;
}

/* What ls_choose_sizes says of size i. */
static void note(chart *c, int i, const ls_choice *choice, int n)
{
    c->second[i] = -1;
    c->first[i] = choice[0];
    for (int k = n; k-- > 0;) { /* the fastest way of each algorithm comes last */
        const int a = number_of(c, choice[k].algo);
        if (a < MOST_ALGOS) c->ns[a][i] = choice[k].ns;
    }
    c->winner[i] = number_of(c, choice[0].algo);
    for (int k = n; k-- > 0;)
        if (choice[k].algo != choice[0].algo) c->second[i] = number_of(c, choice[k].algo);
}

static ls_status ask(const ls_fig_value *v, chart *c)
{
    ls_cost cost = ls_cost_preset;
    int node[MOST_RANKS], n[SIZES];
    size_t nbytes[SIZES];
    ls_choice(*choice)[LS_MAX_CHOICES] = calloc(SIZES, sizeof *choice);
    if (!choice) return ls_fail(LS_NO_MEMORY, "what is chosen for %d sizes", SIZES);
    cost.link[LS_LEVEL_NETWORK] = (ls_link_cost){ .alpha_ns = 1e3 * v[ALPHA].number,
                                                  .gap_ns = 10.0 * v[ALPHA].number * v[GAP].number,
                                                  .beta_ns = 1.0 / v[GB_PER_S].number };
    cost.gamma_ns = 1.0 / v[GAMMA].number;
    for (int r = 0; r < MOST_RANKS; r++) node[r] = r;
    const ls_machine m = { .cost = &cost };
    const ls_question q = { .coll = colls[v[COLL].word], .size = (int)v[RANKS].number, .node = node, .nlanes = 1 };
    double size = SMALLEST;
    for (int i = 0; i < SIZES; i++, size *= 4) {
        c->size[i] = size;
        nbytes[i] = (size_t)size;
    }
    const ls_status st = ls_choose_sizes(&m, &q, nbytes, SIZES, choice, n);
    for (int i = 0; st == LS_OK && i < SIZES; i++) note(c, i, choice[i], n[i]);
    free(choice);
    return st;
}

/* alpha and beta of an algorithm's times, as `lockstep bench --fit` takes them from measured ones; false: too few. */
static bool fit(const chart *c, const ls_algo *a, double *alpha, double *beta, double *worst)
{
    double x[SIZES], y[SIZES];
    int n = 0, k = 0;
    while (k < c->nalgos && c->algo[k] != a) k++;
    for (int i = 0; k < c->nalgos && i < SIZES; i++)
        if (c->ns[k][i] > 0) x[n] = c->size[i], y[n++] = c->ns[k][i];
    if (n < 2) return false;
    ls_cost_fit(x, y, n, alpha, beta, worst);
    return true;
}

/* --- pictures ---------------------------------------------------------------------------------------------------- */

#define LEFT 70.0
#define WIDE 490.0
#define TOP 40.0
#define HIGH 270.0

static const char *size_text(double nbytes, char buf[16])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB" };
    int k = 0;
    for (; nbytes >= 1024 && k < 3; k++) nbytes /= 1024;
    snprintf(buf, 16, "%.4g %s", nbytes, unit[k]);
    return buf;
}

static const char *time_text(double ns, char buf[16])
{
    if (ns < 1e6) snprintf(buf, 16, "%.3g us", 1e-3 * ns);
    else if (ns < 1e9) snprintf(buf, 16, "%.3g ms", 1e-6 * ns);
    else snprintf(buf, 16, "%.3g s", 1e-9 * ns);
    return buf;
}

static void draw(const chart *c, ls_fig_page *p)
{
    double least = (double)INFINITY, most = 0;
    char text[16];
    for (int k = 0; k < c->nalgos; k++)
        for (int i = 0; i < SIZES; i++) {
            if (c->ns[k][i] <= 0) continue;
            least = c->ns[k][i] < least ? c->ns[k][i] : least;
            most = c->ns[k][i] > most ? c->ns[k][i] : most;
        }
    const double low = ls_fig_log2(least), high = ls_fig_log2(most), scale = high > low ? HIGH / (high - low) : 0;
    const double step = WIDE / (SIZES - 1);
    double label[MOST_ALGOS];
    int order[MOST_ALGOS]; /* from top to bottom */
    ls_svg_line(&p->shapes, LEFT, TOP + HIGH, LEFT + WIDE, TOP + HIGH, "s-quiet");
    ls_svg_line(&p->shapes, LEFT, TOP, LEFT, TOP + HIGH, "s-quiet");
    ls_svg_text(&p->shapes, LEFT - 6, TOP + 5, "end", "small quiet", "%s", time_text(most, text));
    ls_svg_text(&p->shapes, LEFT - 6, TOP + HIGH + 3, "end", "small quiet", "%s", time_text(least, text));
    for (int i = 0; i < SIZES; i += 2)
        ls_svg_text(&p->shapes, LEFT + i * step, TOP + HIGH + 18, "middle", "small quiet", "%s", size_text(c->size[i], text));
    for (int k = 0; k < c->nalgos; k++) {
        double xy[2 * SIZES];
        int n = 0;
        for (int i = 0; i < SIZES; i++) {
            if (c->ns[k][i] <= 0) continue;
            xy[2 * n] = LEFT + i * step;
            xy[2 * n++ + 1] = TOP + HIGH - scale * (ls_fig_log2(c->ns[k][i]) - low);
        }
        ls_svg_polyline(&p->shapes, xy, n, "s-quiet");
        label[k] = xy[2 * n - 1] + 4;
        int at = k;
        for (; at > 0 && label[k] < label[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    for (int k = 1; k < c->nalgos; k++) /* labels do not overlap */
        if (label[order[k]] < label[order[k - 1]] + 13) label[order[k]] = label[order[k - 1]] + 13;
    for (int k = 0; k < c->nalgos; k++) ls_svg_text(&p->shapes, LEFT + WIDE + 8, label[k], "start", "small", "%s", c->algo[k]->name);
    for (int i = 0; i < SIZES; i++) { /* who wins: a strip of names under the axis, and the lower hull */
        const double x = LEFT + i * step, y = TOP + HIGH - scale * (ls_fig_log2(c->ns[c->winner[i]][i]) - low);
        ls_svg_circle(&p->shapes, x, y, 5, "c-forward");
    }
    for (int from = 0; from < SIZES;) {
        int to = from;
        while (to + 1 < SIZES && c->winner[to + 1] == c->winner[from]) to++;
        const double x = LEFT + (from - 0.5) * step, w = (to - from + 1) * step;
        ls_svg_rect(&p->shapes, x, TOP + HIGH + 28, w, 22, "c-hidden box");
        if (7.0 * (double)strlen(c->algo[c->winner[from]]->name) < w)
            ls_svg_text(&p->shapes, x + w / 2, TOP + HIGH + 43, "middle", "small", "%s", c->algo[c->winner[from]]->name);
        from = to + 1;
    }
    ls_svg_text(&p->shapes, LEFT, 24, "start", "small quiet", "time over size, both logarithmic; dots and the strip below: the fastest");
}

static void draw_text(const chart *c, ls_fig_page *p)
{
    char text[16];
    double most = 0;
    for (int i = 0; i < SIZES; i++) {
        const double l = ls_fig_log2(c->ns[c->winner[i]][i]);
        most = l > most ? l : most;
    }
    for (int i = 0; i < SIZES; i++) {
        const double l = ls_fig_log2(c->ns[c->winner[i]][i]);
        ls_text_add(&p->drawing, "%9s  ", size_text(c->size[i], text));
        for (int k = 0; k < (int)(40 * l / most + 0.5); k++) ls_text_addn(&p->drawing, "-", 1);
        ls_text_add(&p->drawing, " %s\n", c->algo[c->winner[i]]->name);
    }
    ls_text_add(&p->drawing, "length: logarithm of the fastest algorithm's time\n");
}

static void tabulate(const chart *c, ls_fig_page *p)
{
    static const char *const names[] = { "bytes", "fastest", "segments", "us", "second", "its us" };
    ls_fig_columns(p, names, 6);
    for (int i = 0; i < SIZES; i++) {
        const int s = c->second[i];
        ls_fig_number(p, c->size[i]);
        ls_fig_words(p, "%s", c->algo[c->winner[i]]->name);
        ls_fig_number(p, c->first[i].segments);
        ls_fig_number(p, 1e-3 * c->first[i].ns);
        ls_fig_words(p, "%s", s >= 0 ? c->algo[s]->name : "-");
        if (s >= 0) ls_fig_number(p, 1e-3 * c->ns[s][i]);
        else ls_fig_words(p, "-");
    }
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    chart c = { 0 };
    char text[16];
    double alpha, beta, worst;
    int crossings = 0;
    LS_TRY(ask(v, &c));
    p->width = 700;
    p->height = 380;
    draw(&c, p);
    draw_text(&c, p);
    tabulate(&c, p);
    ls_text_add(&p->sentence, "%s over %d ranks: %s is the fastest for %s", ls_coll_name(colls[v[COLL].word]), (int)v[RANKS].number,
                c.algo[c.winner[0]]->name, size_text(c.size[0], text));
    for (int i = 1; i < SIZES; i++) {
        if (c.winner[i] == c.winner[i - 1]) continue;
        crossings++;
        ls_text_add(&p->sentence, ", %s from %s on", c.algo[c.winner[i]]->name, size_text(c.size[i], text));
    }
    ls_text_add(&p->sentence, ".");
    ls_fig_fact(p, "algorithms", c.nalgos);
    ls_fig_fact(p, "crossings", crossings);
    ls_fig_fact(p, "smallest_ns", c.first[0].ns);
    ls_fig_fact(p, "largest_ns", c.first[SIZES - 1].ns);
    if (fit(&c, c.algo[c.winner[SIZES - 1]], &alpha, &beta, &worst)) {
        ls_text_add(&p->sentence, " A fit of %s's times: %.4g us + %.4g us per MB.", c.algo[c.winner[SIZES - 1]]->name, 1e-3 * alpha, 1e3 * beta);
        ls_fig_fact(p, "fit_alpha_ns", alpha);
        ls_fig_fact(p, "fit_beta_ns_per_byte", beta);
        ls_fig_fact(p, "fit_worst", worst);
    }
    return LS_OK;
}

const ls_figure ls_figure_winner = {
    .name = "winner",
    .title = "Which algorithm wins",
    .caption = "Every algorithm and its ways to cut a vector, timed by the simulator as a group does before it chooses (ls_choose, ls_cost_fit).",
    .control = controls,
    .preset = presets,
    .make = make,
};
