/* fig_buckets.c -- when the buckets of a step are reduced, and what a bucket cap does to the step. */
#include <math.h>
#include <stdlib.h>

#include "fig/fig.h"
#include "fig/gpt.h"
#include "fig/svg.h"
#include "parallel/overlap.h"

enum { LAYERS, WIDTH, VOCAB, TOKENS, GFLOPS, CAP, FIRST, ALPHA, LINK };
#define KIB 1024.0
#define SEQ_LEN 1024
#define MOST_BOXES 200 /* that are drawn; more are not told apart */

static const ls_fig_control controls[] = {
    [LAYERS] = { "layers", "layers", "12", NULL, 1, 48, true },
    [WIDTH] = { "width", "width", "768", NULL, 8, 1280, true }, /* with 48 layers 4 GB, which 32 bits count */
    [VOCAB] = { "vocab", "vocabulary", "8192", NULL, 2, 65536, true },
    [TOKENS] = { "tokens", "tokens per rank and step", "1024", NULL, 1, 1048576, true },
    [GFLOPS] = { "gflops", "speed of a rank (GFLOP/s)", "500", NULL, 1, 1000000, false },
    [CAP] = { "cap_kib", "ddp.bucket_cap (KiB)", "25600", NULL, 1, 1048576, true },
    [FIRST] = { "first_kib", "ddp.first_bucket (KiB)", "1024", NULL, 1, 1048576, true },
    [ALPHA] = { "alpha_us", "an all_reduce takes at least (us)", "500", NULL, 0, 1000000, false },
    [LINK] = { "mb_per_s", "and its bytes travel at (MB/s)", "600", NULL, 0.01, 1000000, false },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "default", "cap_kib=25600", "25 MiB: most all_reduces run while backward computes." },
    { "one-bucket", "cap_kib=1048576 first_kib=1048576", "One bucket starts when backward is over: nothing is hidden." },
    { "too-small", "layers=6 width=256 vocab=1024 gflops=2000 cap_kib=1 first_kib=1 alpha_us=500", "Buckets of one tensor each: latency adds up." },
    { "slow-link", "mb_per_s=50", "On a slow link no bucket cap hides the bytes." },
    { 0 },
};

typedef struct run {
    ls_overlap o;
    size_t *nbytes;
    double *ready;
    ls_overlap_bucket *bucket;
    ls_overlap_step now;
    size_t total, cap[LS_OVERLAP_CAPS];
    ls_overlap_step step[LS_OVERLAP_CAPS];
    int ncaps, best;
    size_t first;
} run;

static void drop(run *r)
{
    free(r->nbytes);
    free(r->ready);
    free(r->bucket);
}

/* Gradients come in the reverse order of parameters. A matrix takes 4 operations per element and token; the table of a
 * tied head is ready at last, but the head's product with it comes first. */
static ls_status time_gradients(const ls_fig_value *v, run *r)
{
    const ls_fig_gpt g = { (int)v[LAYERS].number, (size_t)v[WIDTH].number, (size_t)v[VOCAB].number, SEQ_LEN };
    const double ns = 4.0 * v[TOKENS].number / v[GFLOPS].number; /* per element of a matrix */
    ls_fig_param *p;
    int n;
    LS_TRY(ls_fig_gpt_params(&g, &p, &n));
    r->nbytes = malloc((size_t)n * sizeof *r->nbytes);
    r->ready = malloc((size_t)n * sizeof *r->ready);
    r->bucket = malloc((size_t)n * sizeof *r->bucket);
    double t = ns * (double)ls_fig_param_count(&p[0]);
    for (int i = 0; r->nbytes && r->ready && r->bucket && i < n; i++) {
        const ls_fig_param *a = &p[n - 1 - i];
        if (a->matrix && i + 1 < n) t += ns * (double)ls_fig_param_count(a);
        r->nbytes[i] = 4 * ls_fig_param_count(a);
        r->ready[i] = t;
        r->total += r->nbytes[i];
    }
    free(p);
    if (!r->nbytes || !r->ready || !r->bucket) return ls_fail(LS_NO_MEMORY, "%d gradients", n);
    r->o = (ls_overlap){ .n = n, .nbytes = r->nbytes, .ready_ns = r->ready, .backward_ns = t, .rest_ns = t / 2,
                         .alpha_ns = 1e3 * v[ALPHA].number, .beta_ns = 1e3 / v[LINK].number };
    return LS_OK;
}

static ls_status predict(const ls_fig_value *v, run *r)
{
    const size_t cap = (size_t)(v[CAP].number * KIB);
    r->first = (size_t)(v[FIRST].number * KIB);
    LS_TRY(time_gradients(v, r));
    LS_TRY(ls_overlap_timeline(&r->o, r->first, cap, r->bucket, &r->now));
    r->ncaps = ls_overlap_caps(r->total, cap, r->cap);
    for (int i = 0; i < r->ncaps; i++) /* as `lockstep tune buckets`: the first one is never larger */
        LS_TRY(ls_overlap_predict(&r->o, r->first < r->cap[i] ? r->first : r->cap[i], r->cap[i], &r->step[i]));
    r->best = ls_overlap_best(r->step, r->ncaps);
    return LS_OK;
}

static double end_of(const run *r) { return r->o.backward_ns + r->now.exposed_ns; }

/* --- pictures ---------------------------------------------------------------------------------------------------- */

#define LEFT 90.0
#define WIDE 580.0

static void box(const run *r, double from, double to, double y, const char *cls, ls_fig_page *p)
{
    const double k = WIDE / end_of(r);
    ls_svg_rect(&p->shapes, LEFT + k * from, y, k * (to - from), 34, cls);
}

static void draw_timeline(const run *r, ls_fig_page *p)
{
    const double backward = r->o.backward_ns, k = WIDE / end_of(r), x = LEFT + k * backward;
    const int step = r->now.nbuckets / MOST_BOXES + 1;
    ls_svg_text(&p->shapes, 12, 62, "start", "", "backward");
    ls_svg_text(&p->shapes, 12, 122, "start", "", "all_reduce");
    box(r, 0, backward, 40, "c-backward box", p);
    for (int i = 0; i < r->now.nbuckets; i++) {
        const ls_overlap_bucket *b = &r->bucket[i];
        const double split = b->start_ns > backward ? b->start_ns : b->end_ns < backward ? b->end_ns : backward;
        const double ready = LEFT + k * b->ready_ns;
        if (i % step == 0 || i + 1 == r->now.nbuckets) ls_svg_line(&p->shapes, ready, 74, ready, 84, "s-ink");
        if (split > b->start_ns) box(r, b->start_ns, split, 100, "c-hidden box", p);
        if (b->end_ns > split) {
            box(r, split, b->end_ns, 100, "c-exposed box", p);
            ls_svg_hatch(&p->shapes, "buckets", LEFT + k * split, 100, k * (b->end_ns - split), 34);
        }
    }
    ls_svg_line(&p->shapes, x, 30, x, 146, "s-ink dash");
    ls_svg_text(&p->shapes, LEFT, 26, "start", "small quiet", "ticks: the last gradient of a bucket is ready");
    ls_svg_text(&p->shapes, x < LEFT + 160 ? LEFT : x - 4, 158, x < LEFT + 160 ? "start" : "end", "small", "backward ends after %.4g ms", 1e-6 * backward);
    if (r->now.exposed_ns > 0) ls_svg_text(&p->shapes, LEFT + WIDE, 172, "end", "small", "hatched: %.4g ms exposed", 1e-6 * r->now.exposed_ns);
}

/* Exposed time over the cap: log2 to the right, linear from 0 upwards. */
static void draw_caps(const run *r, ls_fig_page *p)
{
    const double top = 210, high = 150, base = top + high, from = 10, upto = ls_fig_log2((double)r->cap[r->ncaps - 1]);
    double most = 0, xy[2 * LS_OVERLAP_CAPS];
    char text[32];
    for (int i = 0; i < r->ncaps; i++) most = r->step[i].exposed_ns > most ? r->step[i].exposed_ns : most;
    const double wide = upto > from ? WIDE / (upto - from) : WIDE;
    for (int i = 0; i < r->ncaps; i++) {
        const double at = ls_fig_log2((double)r->cap[i]) - from;
        xy[2 * i] = LEFT + (at > 0 ? at * wide : 0);
        xy[2 * i + 1] = base - (most > 0 ? high * r->step[i].exposed_ns / most : 0);
    }
    ls_svg_line(&p->shapes, LEFT, base, LEFT + WIDE, base, "s-quiet");
    ls_svg_line(&p->shapes, LEFT, top, LEFT, base, "s-quiet");
    ls_svg_text(&p->shapes, LEFT - 6, top + 5, "end", "small quiet", "%.4g ms", 1e-6 * most);
    ls_svg_text(&p->shapes, LEFT - 6, base + 4, "end", "small quiet", "0");
    ls_svg_text(&p->shapes, LEFT, base + 18, "start", "small quiet", "cap 1 KiB");
    ls_svg_text(&p->shapes, LEFT + WIDE, base + 18, "end", "small quiet", "all gradients: %s",
                ls_bytes_text((double)r->cap[r->ncaps - 1], text, sizeof text));
    ls_svg_polyline(&p->shapes, xy, r->ncaps, "s-forward bold");
    for (int i = 0; i < r->ncaps; i++) {
        ls_svg_circle(&p->shapes, xy[2 * i], xy[2 * i + 1], i == r->best ? 6 : 3, i == r->best ? "c-paper s-ink" : "c-forward");
    }
    ls_svg_text(&p->shapes, LEFT, base + 36, "start", "small", "exposed time by bucket cap; the ring marks the shortest step, %s",
                ls_bytes_text((double)r->cap[r->best], text, sizeof text));
}

/* 60 columns: what the wire does while backward runs (=) and after it (#). */
static void draw_text(const run *r, ls_fig_page *p)
{
    const double each = end_of(r) / 60;
    ls_text_add(&p->drawing, "backward    ");
    for (int i = 0; i < 60; i++) ls_text_add(&p->drawing, (i + 0.5) * each < r->o.backward_ns ? "b" : "|");
    ls_text_add(&p->drawing, "\nall_reduce  ");
    for (int i = 0, k = 0; i < 60; i++) {
        const double at = (i + 0.5) * each;
        while (k + 1 < r->now.nbuckets && r->bucket[k].end_ns < at) k++;
        const bool busy = r->bucket[k].start_ns <= at && at < r->bucket[k].end_ns;
        ls_text_add(&p->drawing, !busy ? "." : at < r->o.backward_ns ? "=" : "#");
    }
    ls_text_add(&p->drawing, "\n= hidden by backward, # exposed, . idle\n");
}

static void tabulate(const run *r, ls_fig_page *p)
{
    static const char *const names[] = { "cap KiB", "buckets", "exposed ms", "step ms", "note" };
    ls_fig_columns(p, names, 5);
    for (int i = 0; i < r->ncaps; i++) {
        ls_fig_number(p, (double)r->cap[i] / KIB);
        ls_fig_number(p, r->step[i].nbuckets);
        ls_fig_number(p, 1e-6 * r->step[i].exposed_ns);
        ls_fig_number(p, 1e-6 * r->step[i].step_ns);
        ls_fig_words(p, "%s", i == r->best ? "shortest" : "");
    }
}

static ls_status show(const ls_fig_value *v, run *r, ls_fig_page *p)
{
    char cap[32], best[32];
    LS_TRY(predict(v, r));
    const double wire = r->o.alpha_ns * r->now.nbuckets + r->o.beta_ns * (double)r->total;
    const double part = wire > 0 ? r->now.exposed_ns / wire : 0;
    p->width = 700;
    p->height = 408;
    draw_timeline(r, p);
    draw_caps(r, p);
    draw_text(r, p);
    tabulate(r, p);
    ls_text_add(&p->sentence, "With a bucket cap of %s a step has %d all_reduce%s, of whose %.4g ms %.4g ms (%.0f %%) are exposed after backward;",
                ls_bytes_text(v[CAP].number * KIB, cap, sizeof cap), r->now.nbuckets, r->now.nbuckets == 1 ? "" : "s", 1e-6 * wire,
                1e-6 * r->now.exposed_ns, floor(100.0 * part + 0.5));
    ls_text_add(&p->sentence, " of the caps below, %s makes the shortest step.", ls_bytes_text((double)r->cap[r->best], best, sizeof best));
    ls_fig_fact(p, "gradients", r->o.n);
    ls_fig_fact(p, "bytes", (double)r->total);
    ls_fig_fact(p, "buckets", r->now.nbuckets);
    ls_fig_fact(p, "backward_ns", r->o.backward_ns);
    ls_fig_fact(p, "all_reduce_ns", wire);
    ls_fig_fact(p, "exposed_ns", r->now.exposed_ns);
    ls_fig_fact(p, "step_ns", r->now.step_ns);
    ls_fig_fact(p, "best_cap_bytes", (double)r->cap[r->best]);
    ls_fig_fact(p, "best_step_ns", r->step[r->best].step_ns);
    return LS_OK;
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    run r = { 0 };
    const ls_status st = show(v, &r, p);
    drop(&r);
    return st;
}

const ls_figure ls_figure_buckets = {
    .name = "buckets",
    .title = "When buckets are reduced",
    .caption = "Gradients of a GPT-2, assigned to buckets by ls_bucket_assign and timed by the predictor of `lockstep tune buckets`.",
    .control = controls,
    .preset = presets,
    .make = make,
};
