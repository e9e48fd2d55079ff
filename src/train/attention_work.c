/* attention_work.c -- how much of the attention each rank of cp computes. A token sees those before it, so a rank with
 * the later part of a sequence has more to do, and the ranks before it wait (Brandon et al. 2023). */
#include "train/attention_work.h"

#include <math.h>

#include "lockstep/place.h"

#define LISTED 16 /* ranks, at most; of more the least and the most are told */

typedef struct work {
    int ranks;
    double least, most;  /* of a rank, over the mean */
    int blocks, skipped; /* of all ranks together */
} work;

static double of_mean(const ls_trainer *t, int rank, ls_cp_work *of_rank)
{
    const ls_place *p = &t->par.model->place;
    ls_cp_work_of(p, rank, (int64_t)t->feed.tokens, of_rank);
    return of_rank->share * p->cp.size;
}

static work sum_up(const ls_trainer *t)
{
    work w = { .ranks = t->par.mesh.size[LS_AXIS_CP], .least = INFINITY };
    for (int r = 0; r < w.ranks; r++) {
        ls_cp_work one;
        const double x = of_mean(t, r, &one);
        w.least = fmin(w.least, x);
        w.most = fmax(w.most, x);
        w.blocks += one.blocks;
        w.skipped += one.skipped;
    }
    return w;
}

static bool divides(const ls_trainer *t) { return t->par.mesh.size[LS_AXIS_CP] > 1; }

void ls_attention_work_text(const ls_trainer *t, ls_text *out)
{
    ls_cp_work one;
    if (!divides(t)) return;
    const work w = sum_up(t);
    if (w.most - w.least < 1e-9) {
        ls_text_add(out, "attention: all ranks of cp have the same work");
    } else if (w.ranks > LISTED) {
        ls_text_add(out, "attention: work of the ranks of cp: %.2f to %.2f of the mean", w.least, w.most);
    } else {
        ls_text_add(out, "attention: work of the ranks of cp:");
        for (int r = 0; r < w.ranks; r++) ls_text_add(out, " %.2f", of_mean(t, r, &one));
        ls_text_add(out, " of the mean");
    }
    if (w.blocks > 0)
        ls_text_add(out, "; the causal mask skips %d of %d blocks of queries and keys", w.skipped, w.blocks);
}

void ls_attention_work_json(const ls_trainer *t, ls_text *out)
{
    ls_cp_work one;
    if (!divides(t)) {
        ls_text_add(out, "null");
        return;
    }
    const work w = sum_up(t);
    ls_text_add(out, "{\"work\": [");
    for (int r = 0; r < w.ranks; r++) ls_text_add(out, "%s%.9g", r ? ", " : "", of_mean(t, r, &one));
    ls_text_add(out, "], \"largest\": %.9g, \"blocks\": %d, \"skipped\": %d}", w.most, w.blocks, w.skipped);
}
