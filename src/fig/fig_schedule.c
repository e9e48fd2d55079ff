/* fig_schedule.c -- a collective round by round: who sends what to whom, and who has whose part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/rounds.h"
#include "coll/sim.h"
#include "fig/fig.h"
#include "fig/svg.h"

enum { COLL, ALGO, RANKS, ROOT, STEP, SIZE, LINK };
#define MOST_RANKS 64
#define MOST_NUMBERED 16 /* ranks whose chunks have numbers in the picture */

static const ls_fig_control controls[] = {
    [COLL] = { "coll", "collective", "all_reduce", "all_reduce|reduce_scatter|all_gather|broadcast|reduce|gather|scatter|all_to_all", 0, 0,
               false },
    [ALGO] = { "algo", "algorithm (auto: the first that serves the collective)", "ring",
               "auto|ring|ring_gloo|direct|oneshot|recursive_doubling|halving_doubling|tree|double_tree|chain|linear|master|pairwise|bruck",
               0, 0, false },
    [RANKS] = { "ranks", "ranks", "4", NULL, 1, MOST_RANKS, true },
    [ROOT] = { "root", "root", "0", NULL, 0, MOST_RANKS - 1, true },
    [STEP] = { "step", "round (after the last one: the end)", "1", NULL, 0, 255, true },
    [SIZE] = { "size_kib", "vector (KiB)", "1024", NULL, 1, 1048576, true },
    [LINK] = { "link", "link", "network", "memory|loopback|network", 0, 0, false },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "ring", "algo=ring ranks=4 step=3", "After N-1 rounds of a ring each rank has one complete chunk: a reduce_scatter." },
    { "ring-end", "algo=ring ranks=4 step=255", "After 2(N-1) rounds every rank has every sum: reduce_scatter, then all_gather." },
    { "master", "algo=master ranks=4 step=3", "Over a master, rank 0 sends and receives what all the others need." },
    { "tree", "coll=broadcast algo=tree ranks=8 step=2", "A tree doubles the ranks that have the vector in each round." },
    { "doubling", "algo=recursive_doubling ranks=8 step=2", "Pairs at distance 1, 2, 4: log2 N rounds." },
    { 0 },
};

typedef struct all {
    ls_sched s[MOST_RANKS];
    const ls_sched *p[MOST_RANKS];
    ls_rounds r;
    const ls_algo *algo;
    ls_coll coll;
    int n, step;
    double ns, most_sent; /* of the whole vector, by the rank that sends most */
} all;

/* Word k of "a|b|c". */
static void word(const char *words, int k, char out[32])
{
    while (k-- > 0) words = strchr(words, '|') + 1;
    snprintf(out, 32, "%.*s", (int)strcspn(words, "|"), words);
}

static ls_status choose(const ls_fig_value *v, all *a)
{
    char coll[32], name[32];
    ls_shape shape = { .size = a->n, .root = (int)v[ROOT].number, .segments = 1, .nlanes = 1 };
    word(controls[COLL].words, v[COLL].word, coll);
    word(controls[ALGO].words, v[ALGO].word, name);
    shape.coll = a->coll = ls_coll_find(coll);
    if (v[ROOT].number >= a->n)
        return ls_fail(LS_USAGE, "root=%d of %d ranks: expected 0 to %d", (int)v[ROOT].number, a->n, a->n - 1);
    a->algo = ls_algo_find(name);
    for (int i = 0; v[ALGO].word == 0 && ls_algos[i] && !a->algo; i++)
        if (ls_algos[i]->colls & 1u << a->coll && (!ls_algos[i]->fits || ls_algos[i]->fits(&shape)))
            a->algo = ls_algos[i];
    if (!a->algo || !(a->algo->colls & 1u << a->coll))
        return ls_fail(LS_USAGE, "algo=%s does not do %s: algo=auto takes one that does", name, coll);
    if (a->algo->fits && !a->algo->fits(&shape))
        return ls_fail(LS_USAGE, "algo=%s does not fit %s over %d ranks: algo=auto takes one that does", name, coll, a->n);
    for (int r = 0; r < a->n; r++) {
        shape.rank = r;
        a->p[r] = &a->s[r];
        LS_TRY(ls_sched_emit(a->algo, &shape, &a->s[r]));
    }
    return LS_OK;
}

static ls_status watch(const ls_fig_value *v, all *a)
{
    const ls_machine m = { .cost = &ls_cost_preset, .memory = v[LINK].word == 0 };
    int node[MOST_RANKS], sent[MOST_RANKS] = { 0 };
    LS_TRY(choose(v, a));
    LS_TRY(ls_sched_verify_all(a->p, a->n));
    LS_TRY(ls_rounds_create(a->p, a->n, &a->r));
    for (int r = 0; r < a->n; r++) {
        node[r] = v[LINK].word == 2 ? r : 0;
        a->s[r].shape.node = node;
    }
    const ls_status st = ls_sched_time(&m, a->p, a->n, (size_t)v[SIZE].number * 1024, &a->ns);
    for (int r = 0; r < a->n; r++) a->s[r].shape.node = NULL;
    for (int i = 0; i < a->r.nmessages; i++) sent[a->r.message[i].from] += (int)a->r.message[i].src.n;
    for (int r = 0; r < a->n; r++)
        if (a->r.nchunks && sent[r] > a->most_sent * a->r.nchunks) a->most_sent = (double)sent[r] / a->r.nchunks;
    a->step = (int)v[STEP].number < a->r.n ? (int)v[STEP].number : a->r.n;
    return st;
}

/* Whether a chunk has what it has at the end. */
static bool is_final(const all *a, int round, int rank, uint32_t c)
{
    for (int q = 0; q < a->n; q++)
        if (ls_rounds_count(&a->r, round, rank, c, q) != ls_rounds_count(&a->r, a->r.n, rank, c, q)) return false;
    return true;
}

/* Chunks whose contributions are those of the end, of those that are in use at the end. */
static int final_chunks(const all *a, int round)
{
    int n = 0;
    for (int r = 0; r < a->n; r++)
        for (uint32_t c = 0; c < a->r.nchunks; c++)
            n += is_final(a, round, r, c) && ls_rounds_ranks(&a->r, a->r.n, r, c) > 0;
    return n;
}

/* --- pictures ---------------------------------------------------------------------------------------------------- */

/* Points of a circle without a library's sine, which is not the same everywhere: halves of angles by square roots would
 * do for powers of two only, so a turn of 1/n is a series, and the others are products. */
static void circle(int n, double *x, double *y)
{
    const double t = 6.283185307179586 / n;
    double c = 1, s = 0, c1 = 0, s1 = 0, term = 1;
    for (int k = 0; k < 40; k++) { /* t^k / k! */
        if (k % 4 == 0) c1 += term;
        else if (k % 4 == 1) s1 += term;
        else if (k % 4 == 2) c1 -= term;
        else s1 -= term;
        term *= t / (k + 1);
    }
    for (int i = 0; i < n; i++) { /* from the top, to the right */
        x[i] = 160 + 120 * s;
        y[i] = 175 - 120 * c;
        const double next = c * c1 - s * s1;
        s = s * c1 + c * s1;
        c = next;
    }
}

static void draw_ranks(const all *a, ls_fig_page *p)
{
    double x[MOST_RANKS], y[MOST_RANKS];
    const bool numbered = a->n <= MOST_NUMBERED;
    const double radius = numbered ? 16 : 256.0 / a->n;
    circle(a->n, x, y);
    for (int i = 0; i < a->r.nmessages; i++) {
        const ls_round_message *m = &a->r.message[i];
        if (m->round != a->step) continue;
        ls_svg_arrow(&p->shapes, "schedule", x[m->from], y[m->from], x[m->to], y[m->to], radius + 3, m->adds ? "s-ink bold" : "s-ink dash");
    }
    for (int r = 0; r < a->n; r++) {
        ls_svg_circle(&p->shapes, x[r], y[r], radius, "c-forward box");
        if (numbered) ls_svg_text(&p->shapes, x[r], y[r] + 5, "middle", "on", "%d", r);
        else if (r % 8 == 0) /* outside the circle */
            ls_svg_text(&p->shapes, x[r] + (x[r] - 160) / 6, y[r] + (y[r] - 175) / 6 + 4, "middle", "small", "%d", r);
    }
    ls_svg_text(&p->shapes, 160, 335, "middle", "small quiet", "solid: added to what is there; dashed: copied");
}

/* More ranks than can have numbers: two colours say what a chunk has. */
static void draw_small_chunks(const all *a, ls_fig_page *p)
{
    const double left = 390, top = 66, side = 300.0 / (a->r.nchunks ? (double)a->r.nchunks : 1.0), row = 264.0 / a->n;
    ls_svg_text(&p->shapes, left, 40, "start", "small quiet", "dark: as at the end; pale: something of it; grey: nothing");
    for (int r = 0; r < a->n; r++) {
        if (r % 8 == 0) ls_svg_text(&p->shapes, left - 8, top + r * row + row / 2 + 4, "end", "small", "rank %d", r);
        for (uint32_t c = 0; c < a->r.nchunks; c++) {
            const bool any = ls_rounds_ranks(&a->r, a->step, r, c) > 0;
            ls_svg_rect(&p->shapes, left + c * side, top + r * row, side * 0.9, row * 0.9,
                        !any ? "c-idle" : is_final(a, a->step, r, c) ? "c-forward" : "c-backward");
        }
    }
    ls_svg_text(&p->shapes, left, top - 8, "start", "small quiet", "chunks 0 to %d", (int)a->r.nchunks - 1);
}

static void draw_chunks(const all *a, ls_fig_page *p)
{
    const double left = 390, top = 66, side = 300.0 / (a->r.nchunks > 8 ? (double)a->r.nchunks : 8.0);
    const double row = a->n > 8 ? 16.5 : 28;
    ls_svg_text(&p->shapes, left, 40, "start", "small quiet", "ranks that a chunk has parts of; framed: as at the end");
    for (int r = 0; r < a->n; r++) {
        ls_svg_text(&p->shapes, left - 8, top + r * row + row / 2 + 4, "end", "small", "rank %d", r);
        for (uint32_t c = 0; c < a->r.nchunks; c++) {
            const int ranks = ls_rounds_ranks(&a->r, a->step, r, c);
            const bool final = is_final(a, a->step, r, c);
            const double x = left + c * side, y = top + r * row;
            ls_svg_rect(&p->shapes, x, y, side - 2, row - 2, ranks == 0 ? "c-idle box" : ranks == a->n ? "c-forward box" : "c-backward box");
            if (final && ranks > 0) ls_svg_rect(&p->shapes, x + 1, y + 1, side - 4, row - 4, "s-ink");
            if (ranks > 0)
                ls_svg_text(&p->shapes, x + side / 2 - 1, y + row / 2 + 3, "middle", ranks == a->n ? "small on" : "small on-pale", "%d", ranks);
        }
    }
    ls_svg_text(&p->shapes, left, top - 8, "start", "small quiet", "chunks 0 to %d", (int)a->r.nchunks - 1);
}

static void draw_text(const all *a, ls_fig_page *p)
{
    const bool numbered = a->n <= MOST_NUMBERED;
    int messages = 0;
    ls_text_add(&p->drawing, "round %d of %d\n", a->step, a->r.n);
    for (int i = 0; i < a->r.nmessages; i++) {
        const ls_round_message *m = &a->r.message[i];
        char to[32];
        if (m->round != a->step || (++messages > 8 && !numbered)) continue;
        if (m->src.n == 1) snprintf(to, sizeof to, "chunk %u", m->src.first);
        else snprintf(to, sizeof to, "chunks %u-%u", m->src.first, m->src.first + m->src.n - 1);
        ls_text_add(&p->drawing, "  %d -> %d  %s, %s\n", m->from, m->to, to, m->adds ? "added" : "copied");
    }
    if (messages > 8 && !numbered) ls_text_add(&p->drawing, "  and %d more\n", messages - 8);
    ls_text_add(&p->drawing, "\n%s\n", numbered ? "from how many ranks a chunk has something (*: as at the end)"
                                                : "what a chunk has (#: as at the end, +: something of it, .: nothing)");
    for (int r = 0; r < a->n; r++) {
        ls_text_add(&p->drawing, "  rank %2d ", r);
        for (uint32_t c = 0; c < a->r.nchunks; c++) {
            const int ranks = ls_rounds_ranks(&a->r, a->step, r, c);
            const bool final = is_final(a, a->step, r, c);
            if (!numbered) ls_text_add(&p->drawing, "%c", !ranks ? '.' : final ? '#' : '+');
            else if (ranks) ls_text_add(&p->drawing, " %2d%c", ranks, final ? '*' : ' ');
            else ls_text_add(&p->drawing, "  . ");
        }
        ls_text_add(&p->drawing, "\n");
    }
}

static void tabulate(const all *a, ls_fig_page *p)
{
    static const char *const names[] = { "round", "messages", "chunks", "final", "who to whom" };
    ls_fig_columns(p, names, 5);
    for (int k = 1; k <= a->r.n; k++) {
        int messages = 0, chunks = 0;
        ls_text who = { 0 };
        for (int i = 0; i < a->r.nmessages; i++) {
            const ls_round_message *m = &a->r.message[i];
            if (m->round != k) continue;
            ls_text_add(&who, "%s%d>%d", messages ? " " : "", m->from, m->to);
            messages++;
            chunks += (int)m->src.n;
        }
        ls_fig_number(p, k);
        ls_fig_number(p, messages);
        ls_fig_number(p, chunks);
        ls_fig_number(p, final_chunks(a, k));
        if (who.n >= LS_FIG_CELL) ls_fig_words(p, "%.*s ...", LS_FIG_CELL - 5, ls_text_str(&who));
        else ls_fig_words(p, "%s", ls_text_str(&who));
        p->failed = p->failed || who.failed;
        ls_text_free(&who);
    }
}

static void show(const ls_fig_value *v, const all *a, ls_fig_page *p)
{
    char size[32];
    p->width = 700;
    p->height = 350;
    draw_ranks(a, p);
    if (a->n <= MOST_NUMBERED) draw_chunks(a, p);
    else draw_small_chunks(a, p);
    ls_svg_text(&p->shapes, 12, 24, "start", "", "%s by %s: round %d of %d", ls_coll_name(a->coll), a->algo->name, a->step, a->r.n);
    draw_text(a, p);
    tabulate(a, p);
    ls_text_add(&p->sentence, "%s over %d rank%s by %s takes %d round%s, and the busiest rank sends %.4g times the vector; ", ls_coll_name(a->coll),
                a->n, a->n == 1 ? "" : "s", a->algo->name, a->r.n, a->r.n == 1 ? "" : "s", a->most_sent);
    ls_text_add(&p->sentence, "%s take %.4g us by the cost model of a %s link. The schedule is proved.",
                ls_bytes_text(v[SIZE].number * 1024, size, sizeof size), 1e-3 * a->ns,
                ls_level_name((ls_level)v[LINK].word));
    ls_fig_fact(p, "rounds", a->r.n);
    ls_fig_fact(p, "step", a->step);
    ls_fig_fact(p, "messages", a->r.nmessages);
    ls_fig_fact(p, "chunks", a->r.nchunks);
    ls_fig_fact(p, "sent_most", a->most_sent);
    ls_fig_fact(p, "final_chunks", final_chunks(a, a->step));
    ls_fig_fact(p, "time_ns", a->ns);
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    all a = { .n = (int)v[RANKS].number };
    const ls_status st = watch(v, &a);
    if (st == LS_OK) show(v, &a, p);
    for (int r = 0; r < a.n; r++) ls_sched_free(&a.s[r]);
    ls_rounds_free(&a.r);
    return st;
}

const ls_figure ls_figure_schedule = {
    .name = "schedule",
    .title = "A collective, round by round",
    .caption = "The schedule that ranks run (ls_sched_emit), stepped by the prover (ls_sched_verify_all) and timed by the simulator (ls_sched_time).",
    .control = controls,
    .preset = presets,
    .make = make,
};
