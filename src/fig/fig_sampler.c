/* fig_sampler.c -- which samples of an epoch are whose. */
#include <stdio.h>
#include <stdlib.h>

#include "fig/fig.h"
#include "fig/svg.h"
#include "lockstep/data.h"

enum { N, RANKS, EPOCH, SHUFFLE, SET_EPOCH, DROP_LAST, SEED };
#define MOST_SAMPLES 64
#define MOST_RANKS 8

static const ls_fig_control controls[] = {
    [N] = { "n", "samples", "20", NULL, 1, MOST_SAMPLES, true },
    [RANKS] = { "ranks", "ranks", "4", NULL, 1, MOST_RANKS, true },
    [EPOCH] = { "epoch", "epoch", "0", NULL, 0, 1000, true },
    [SHUFFLE] = { "shuffle", "shuffle", "on", "on|off", 0, 0, false },
    [SET_EPOCH] = { "set_epoch", "set_epoch is called", "on", "on|off", 0, 0, false },
    [DROP_LAST] = { "drop_last", "drop the last samples if they do not divide", "off", "on|off", 0, 0, false },
    [SEED] = { "seed", "seed", "0", NULL, 0, 4294967295.0, true },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "even", "n=20 ranks=4", "20 samples on 4 ranks: 5 each, and none twice." },
    { "padded", "n=10 ranks=4", "10 on 4: two samples are seen twice, so that all ranks take as many steps." },
    { "dropped", "n=10 ranks=4 drop_last=on", "With drop_last two samples are left out of the epoch instead." },
    { "no-set-epoch", "n=20 ranks=4 epoch=7 set_epoch=off", "Without set_epoch every epoch has the order of epoch 0." },
    { 0 },
};

typedef struct ranks {
    ls_sampler *s[MOST_RANKS];
    int n;
    int seen[MOST_SAMPLES]; /* how often a sample is in the epoch */
} ranks;

static ls_status create(const ls_fig_value *v, bool first_epoch, ranks *out)
{
    const uint64_t epoch = first_epoch ? 0 : (uint64_t)v[EPOCH].number;
    *out = (ranks){ .n = (int)v[RANKS].number };
    for (int r = 0; r < out->n; r++) {
        LS_TRY(ls_sampler_create((size_t)v[N].number, out->n, r, v[SHUFFLE].word == 0, (uint64_t)v[SEED].number,
                                 v[DROP_LAST].word == 0, &out->s[r]));
        LS_TRY(ls_sampler_set_epoch(out->s[r], epoch));
        for (size_t i = 0; i < out->s[r]->num_samples; i++) out->seen[out->s[r]->index[i]]++;
    }
    return LS_OK;
}

static void destroy(ranks *a)
{
    for (int r = 0; r < a->n; r++) ls_sampler_destroy(a->s[r]);
}

/* Whether ranks have what they have in epoch 0. */
static ls_status same_as_first(const ls_fig_value *v, const ranks *a, bool *out)
{
    ranks first;
    const ls_status st = create(v, true, &first);
    *out = true;
    for (int r = 0; st == LS_OK && r < a->n; r++)
        for (size_t i = 0; i < a->s[r]->num_samples; i++) *out = *out && a->s[r]->index[i] == first.s[r]->index[i];
    destroy(&first);
    return st;
}

static void draw(const ranks *a, ls_fig_page *p)
{
    const double left = 70, side = 34, gap = 6;
    const size_t each = a->s[0]->num_samples;
    int drawn[MOST_SAMPLES] = { 0 };
    const double most = (double)each * side + left + 20;
    p->width = most > 700 ? most : 700;
    p->height = 44 + a->n * (side + gap) + 28;
    ls_svg_text(&p->shapes, left, 24, "start", "small quiet", "step 1, 2, 3 ... of the epoch, one sample each");
    for (size_t i = 0; i < each; i++) /* in the order in which the epoch goes on */
        for (int r = 0; r < a->n; r++) {
            const int64_t k = a->s[r]->index[i];
            const double x = left + (double)i * side, y = 36 + r * (side + gap);
            const bool again = drawn[k]++ > 0;
            ls_svg_rect(&p->shapes, x, y, side - 3, side - 3, again ? "c-backward box" : "c-hidden box");
            if (again) ls_svg_hatch(&p->shapes, "sampler", x, y, side - 3, side - 3);
            ls_svg_text(&p->shapes, x + side / 2 - 1.5, y + side / 2 + 3, "middle", again ? "on-pale" : "", "%d", (int)k);
        }
    for (int r = 0; r < a->n; r++) ls_svg_text(&p->shapes, 12, 36 + r * (side + gap) + 21, "start", "", "rank %d", r);
    ls_svg_text(&p->shapes, left, p->height - 12, "start", "small quiet", "hatched: a sample that the epoch has had");
    for (int r = 0; r < a->n; r++) {
        ls_text_add(&p->drawing, "rank %d ", r);
        for (size_t i = 0; i < each && i < 17; i++) ls_text_add(&p->drawing, " %3d", (int)a->s[r]->index[i]);
        ls_text_add(&p->drawing, each > 17 ? " ..\n" : "\n");
    }
}

static void tabulate(const ranks *a, ls_fig_page *p)
{
    static const char *const names[] = { "rank", "samples", "indices" };
    ls_fig_columns(p, names, 3);
    for (int r = 0; r < a->n; r++) {
        ls_text all = { 0 };
        for (size_t i = 0; i < a->s[r]->num_samples; i++) ls_text_add(&all, "%s%d", i ? " " : "", (int)a->s[r]->index[i]);
        const char *text = ls_text_str(&all);
        const bool cut = all.n >= LS_FIG_CELL;
        ls_fig_number(p, r);
        ls_fig_number(p, (double)a->s[r]->num_samples);
        if (cut) ls_fig_words(p, "%.*s ...", LS_FIG_CELL - 5, text);
        else ls_fig_words(p, "%s", text);
        p->failed = p->failed || all.failed;
        ls_text_free(&all);
    }
}

static ls_status show(const ls_fig_value *v, const ranks *a, ls_fig_page *p)
{
    const int n = (int)v[N].number;
    int twice = 0, never = 0;
    bool same = false;
    for (int i = 0; i < n; i++) {
        twice += a->seen[i] > 1 ? a->seen[i] - 1 : 0;
        never += a->seen[i] == 0;
    }
    LS_TRY(same_as_first(v, a, &same));
    draw(a, p);
    tabulate(a, p);
    ls_text_add(&p->sentence, "Each of %d ranks has %d of %d samples; ", a->n, (int)a->s[0]->num_samples, n);
    if (twice) ls_text_add(&p->sentence, "%d of the epoch's are repeated, so that all ranks take as many steps", twice);
    else if (never) ls_text_add(&p->sentence, "%d %s left out, so that all ranks take as many steps", never, never == 1 ? "is" : "are");
    else ls_text_add(&p->sentence, "each is seen once");
    if (v[EPOCH].number > 0)
        ls_text_add(&p->sentence, same ? ". The order is that of epoch 0." : ". The order is another than in epoch 0.");
    else ls_text_add(&p->sentence, ".");
    ls_fig_fact(p, "samples_per_rank", (double)a->s[0]->num_samples);
    ls_fig_fact(p, "repeated", twice);
    ls_fig_fact(p, "left_out", never);
    ls_fig_fact(p, "same_as_epoch_0", same);
    return LS_OK;
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    ranks a;
    ls_status st = create(v, v[SET_EPOCH].word == 1, &a);
    if (st == LS_OK) st = show(v, &a, p);
    destroy(&a);
    return st;
}

const ls_figure ls_figure_sampler = {
    .name = "sampler",
    .title = "Which samples are whose",
    .caption = "The samples of an epoch on each rank, as ls_sampler (PyTorch's DistributedSampler) deals them out.",
    .control = controls,
    .preset = presets,
    .make = make,
};
