/* fig_ledger.c -- what a rank holds between steps, by stage of ZeRO. */
#include <stdio.h>
#include <stdlib.h>

#include "fig/fig.h"
#include "fig/gpt.h"
#include "fig/palette.h"
#include "fig/svg.h"
#include "lockstep/shard.h"
#include "parallel/zero_formula.h"

enum { LAYERS, WIDTH, VOCAB, SEQ_LEN, RANKS, STAGE, COPY, DTYPE, OPTIMIZER };

static const ls_fig_control controls[] = {
    [LAYERS] = { "layers", "layers", "12", NULL, 1, 48, true },
    [WIDTH] = { "width", "width", "768", NULL, 8, 4096, true },
    [VOCAB] = { "vocab", "vocabulary", "50257", NULL, 2, 65536, true },
    [SEQ_LEN] = { "seq_len", "positions", "1024", NULL, 1, 65536, true },
    [RANKS] = { "ranks", "ranks", "4", NULL, 1, 1024, true },
    [STAGE] = { "stage", "zero.stage", "1", "0|1|2|3", 0, 0, false },
    [COPY] = { "copy", "zero.copy: parameters of stage 3 are one copy per node, or gathered by each rank", "rank", "host|rank", 0, 0,
               false },
    [DTYPE] = { "dtype", "train.dtype", "f32", "f32|bf16", 0, 0, false },
    [OPTIMIZER] = { "optimizer", "optimizer", "adam", "adam|momentum|sgd", 0, 0, false },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "ddp", "stage=0", "Without sharding each rank holds 16 bytes per parameter, however many ranks there are." },
    { "optimizer", "stage=1", "Stage 1 shards the moments of Adam: half of all bytes." },
    { "all", "stage=3 ranks=8", "Stage 3 shards everything: 8 ranks hold an eighth each." },
    { "sgd", "stage=1 optimizer=sgd", "Plain SGD has no state: stage 1 saves nothing." },
    { "bf16", "stage=1 dtype=bf16", "In bf16 stage 1 also shards the f32 values of the matrices." },
    { 0 },
};

#define STAGES LS_ZERO_STAGES
static const char *const class_name[LS_ZERO_CLASSES] = { "parameters", "bf16 copies", "gradients", "optimizer" };
static const ls_colour class_colour[LS_ZERO_CLASSES] = { LS_COLOUR_FORWARD, LS_COLOUR_HIDDEN, LS_COLOUR_BACKWARD,
                                                         LS_COLOUR_OPTIMIZER };

static const char *const class_text[LS_ZERO_CLASSES] = { "on small", "small", "on-pale small", "on small" };

typedef struct ledger {
    ls_zero_elements all, first, last;            /* of the model; that ranks 0 and W - 1 own */
    uint64_t bytes[STAGES][LS_ZERO_CLASSES];      /* rank 0's */
    uint64_t last_bytes[STAGES];
    uint64_t sum[STAGES];                         /* over all ranks */
    char formula[STAGES][LS_ZERO_CLASSES][LS_ZERO_FORMULA];
} ledger;

static void own(const ls_fig_param *p, int n, int rank, int size, bool bf16, ls_zero_elements *out)
{
    *out = (ls_zero_elements){ 0 };
    for (int i = 0; i < n; i++) {
        const uint64_t count = (uint64_t)ls_shard_of(p[i].rows, rank, size).count * p[i].cols;
        out->p += count;
        out->m += bf16 && p[i].matrix ? count : 0;
    }
}

static uint64_t total(const uint64_t bytes[LS_ZERO_CLASSES])
{
    uint64_t sum = 0;
    for (int k = 0; k < LS_ZERO_CLASSES; k++) sum += bytes[k];
    return sum;
}

/* What a rank that owns so much holds. */
static void hold(const ls_fig_value *v, const ledger *l, const ls_zero_elements *own_of, int stage,
                 uint64_t bytes[LS_ZERO_CLASSES], char (*formula)[LS_ZERO_FORMULA])
{
    static const int nstates[] = { 2, 1, 0 };
    const ls_ddp_config d = { .zero_stage = stage, .copy = v[COPY].word ? LS_ZERO_COPY_RANK : LS_ZERO_COPY_HOST };
    const ls_zero_how how = { .bf16 = v[DTYPE].word == 1, .nstates = nstates[v[OPTIMIZER].word] };
    for (int k = 0; k < LS_ZERO_CLASSES; k++) {
        const ls_zero_formula f = ls_zero_formula_of((ls_zero_class)k, &d, &how);
        const ls_zero_held h = ls_zero_held_by(&f, &l->all, own_of, (int)v[RANKS].number);
        bytes[k] = ls_zero_planned(&h);
        if (formula) ls_zero_formula_text(&f, false, formula[k]);
    }
}

static ls_status count(const ls_fig_value *v, ledger *out)
{
    const ls_fig_gpt g = { (int)v[LAYERS].number, (size_t)v[WIDTH].number, (size_t)v[VOCAB].number,
                           (size_t)v[SEQ_LEN].number };
    const int size = (int)v[RANKS].number;
    const bool bf16 = v[DTYPE].word == 1;
    ls_fig_param *p;
    int n;
    *out = (ledger){ 0 };
    LS_TRY(ls_fig_gpt_params(&g, &p, &n));
    own(p, n, 0, 1, bf16, &out->all);
    own(p, n, 0, size, bf16, &out->first);
    own(p, n, size - 1, size, bf16, &out->last);
    for (int s = 0; s < STAGES; s++) {
        uint64_t last[LS_ZERO_CLASSES];
        hold(v, out, &out->first, s, out->bytes[s], out->formula[s]);
        hold(v, out, &out->last, s, last, NULL);
        out->last_bytes[s] = total(last);
    }
    for (int r = 0; r < size; r++) {
        ls_zero_elements mine;
        own(p, n, r, size, bf16, &mine);
        for (int s = 0; s < STAGES; s++) {
            uint64_t bytes[LS_ZERO_CLASSES];
            hold(v, out, &mine, s, bytes, NULL);
            out->sum[s] += total(bytes);
        }
    }
    free(p);
    return LS_OK;
}

static void draw(const ledger *l, int chosen, ls_fig_page *p)
{
    const double left = 96, wide = 470, high = 34, step = 60;
    const double most = (double)total(l->bytes[0]);
    char text[32];
    double x = left;
    p->width = 700;
    p->height = 60 + STAGES * step + 16;
    for (int k = 0; k < LS_ZERO_CLASSES; k++) { /* the direct labels, once */
        if (l->bytes[0][k] == 0) continue;
        ls_svg_rect(&p->shapes, x, 14, 12, 12, k == 0 ? "c-forward box" : k == 1 ? "c-hidden box" : k == 2 ? "c-backward box" : "c-optimizer box");
        ls_svg_text(&p->shapes, x + 18, 25, "start", "", "%s", class_name[k]);
        x += 130;
    }
    for (int s = 0; s < STAGES; s++) {
        const double y = 46 + s * step;
        x = left;
        ls_svg_text(&p->shapes, 12, y + 22, "start", s == chosen ? "" : "quiet", "stage %d", s);
        for (int k = 0; k < LS_ZERO_CLASSES; k++) {
            const double w = wide * (double)l->bytes[s][k] / most;
            char cls[48];
            if (l->bytes[s][k] == 0) continue;
            snprintf(cls, sizeof cls, "c-%s box", ls_colour_name(class_colour[k]));
            ls_svg_rect(&p->shapes, x, y, w, high, cls);
            if (w >= 60)
                ls_svg_text(&p->shapes, x + w / 2, y + 22, "middle", class_text[k], "%s", l->formula[s][k]);
            x += w;
        }
        if (s == chosen) ls_svg_rect(&p->shapes, left - 3, y - 3, x - left + 6, high + 6, "s-ink bold");
        ls_svg_text(&p->shapes, x + 10, y + 22, "start", s == chosen ? "" : "quiet", "%s",
                    ls_bytes_text((double)total(l->bytes[s]), text, sizeof text));
    }
}

/* A letter per class, and 50 columns for stage 0. */
static void draw_text(const ledger *l, int chosen, ls_fig_page *p)
{
    static const char letter[LS_ZERO_CLASSES] = { 'P', 'b', 'g', 'o' };
    const double most = (double)total(l->bytes[0]);
    char text[32];
    for (int s = 0; s < STAGES; s++) {
        ls_text_add(&p->drawing, "%c stage %d  ", s == chosen ? '*' : ' ', s);
        double upto = 0;
        int at = 0;
        for (int k = 0; k < LS_ZERO_CLASSES; k++) {
            upto += (double)l->bytes[s][k];
            for (; at < (int)(50.0 * upto / most + 0.5); at++) ls_text_addn(&p->drawing, &letter[k], 1);
        }
        ls_text_add(&p->drawing, "  %s\n", ls_bytes_text((double)total(l->bytes[s]), text, sizeof text));
    }
    ls_text_add(&p->drawing, "P parameters, b copies in bf16, g gradients, o optimizer state\n");
}

static void tabulate(const ledger *l, ls_fig_page *p)
{
    static const char *const names[] = { "stage", "parameters", "bf16 copies", "gradients", "optimizer", "total", "bytes per parameter" };
    ls_fig_columns(p, names, 7);
    for (int s = 0; s < STAGES; s++) {
        ls_fig_number(p, s);
        for (int k = 0; k < LS_ZERO_CLASSES; k++) ls_fig_number(p, (double)l->bytes[s][k]);
        ls_fig_number(p, (double)total(l->bytes[s]));
        ls_fig_number(p, (double)total(l->bytes[s]) / (double)l->all.p);
    }
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    const int stage = v[STAGE].word, size = (int)v[RANKS].number;
    char whole[32], mine[32];
    ledger l;
    LS_TRY(count(v, &l));
    const double none = (double)total(l.bytes[0]), now = (double)total(l.bytes[stage]);
    draw(&l, stage, p);
    draw_text(&l, stage, p);
    tabulate(&l, p);
    ls_text_add(&p->sentence, "With zero.stage %d a rank of %d holds %s between steps, %.9g bytes per parameter", stage, size,
                ls_bytes_text(now, mine, sizeof mine), (double)(int)(100.0 * now / (double)l.all.p + 0.5) / 100.0);
    if (stage > 0 && now < none) ls_text_add(&p->sentence, "; without sharding it would hold %s", ls_bytes_text(none, whole, sizeof whole));
    if (stage > 0 && now >= none) ls_text_add(&p->sentence, ", as without sharding");
    ls_text_add(&p->sentence, ". Activations and gathered parameters come on top.");
    ls_fig_fact(p, "parameters", (double)l.all.p);
    ls_fig_fact(p, "copied", (double)l.all.m);
    ls_fig_fact(p, "rank_0_bytes", now);
    ls_fig_fact(p, "last_rank_bytes", (double)l.last_bytes[stage]);
    ls_fig_fact(p, "all_ranks_bytes", (double)l.sum[stage]);
    ls_fig_fact(p, "without_sharding_bytes", none);
    return LS_OK;
}

const ls_figure ls_figure_ledger = {
    .name = "ledger",
    .title = "What a rank holds between steps",
    .caption = "Bytes of a GPT-2 on rank 0, by the formulas of `lockstep explain zero` and the rows that ls_shard_range gives it.",
    .control = controls,
    .preset = presets,
    .make = make,
};
