/* attention_forward.c -- forward of one head: softmax, running over tiles of keys. */
#include "tensor/attention_impl.h"

#include <math.h>

#include "tensor/attention_dot.h"
#include "tensor/vecmath.h"

/* The running softmax of a tile's queries; columns without a query are harmless. */
typedef struct running {
    _Alignas(64) float max[QUERIES];
    _Alignas(64) float sum[QUERIES];  /* of e^(s - max) */
    _Alignas(64) float fade[QUERIES]; /* e^(old max - new max) */
} running;

static LS_ALWAYS_INLINE void row_most(float *restrict top, const float *restrict s, float scale, int n)
{
    for (int i = 0; i < n; i++) top[i] = scale * s[i] > top[i] ? scale * s[i] : top[i];
}

static LS_ALWAYS_INLINE void row_exponentials(float *restrict sum, float *restrict s, const float *restrict top,
                                              float scale, int n)
{
    for (int i = 0; i < n; i++) {
        s[i] = ls_expf_low(scale * s[i] - top[i]);
        sum[i] += s[i];
    }
}

/* `whole`: is_whole. A loop whose length is known takes a fifth less time. */
static LS_ALWAYS_INLINE void exponentials_loop(running *r, const block *at, float *restrict st, float scale, bool whole)
{
    _Alignas(64) float top[QUERIES], sum[QUERIES];
    for (int i = 0; i < QUERIES; i++) top[i] = r->max[i];
    for (int j = 0; j < at->keys; j++) {
        float *s = st + j * QUERIES;
        const int first = first_query(at, j), from = first / LANES * LANES;
        if (whole) row_most(top, s, scale, QUERIES);
        for (int i = from; !whole && i < first; i++) s[i] = -INFINITY;
        for (int b = from; !whole && b < at->width; b += LANES) row_most(top + b, s + b, scale, LANES);
    }
    for (int i = 0; i < QUERIES; i++) {
        r->fade[i] = ls_expf_low(r->max[i] - top[i]);
        sum[i] = r->sum[i] * r->fade[i];
        r->max[i] = top[i];
    }
    for (int j = 0; j < at->keys; j++) {
        float *s = st + j * QUERIES;
        if (whole) row_exponentials(sum, s, top, scale, QUERIES);
        for (int b = first_query(at, j) / LANES * LANES; !whole && b < at->width; b += LANES)
            row_exponentials(sum + b, s + b, top + b, scale, LANES);
    }
    for (int i = 0; i < QUERIES; i++) r->sum[i] = sum[i];
}

/* Scores become e^(scale s - max), 0 where hidden. */
LS_KERNEL_CHOOSING static void exponentials_of(running *r, const block *at, float *st, float scale)
{
    if (is_whole(at)) exponentials_loop(r, at, st, scale, true);
    else exponentials_loop(r, at, st, scale, false);
}

static void exponentials(running *r, const block *at, float *st, float scale)
{
    exponentials_of(r, at, st, scale);
    if (!is_whole(at)) ls_attention_hide(at, st);
}

/* Rows of out fade where the maximum grew. */
LS_KERNEL static void fade_rows(float *out, int64_t out_row, const float *fade, int queries, int64_t D)
{
    for (int i = 0; i < queries; i++) {
        const float f = fade[i];
        float *row = out + i * out_row;
        if (f == 1.0f) continue;
        for (int64_t d = 0; d < D; d++) row[d] *= f;
    }
}

void ls_attention_forward_tiles(const ls_attention_call *c, int64_t b, int64_t h, float *scratch)
{
    _Alignas(64) float packed[MOST_D * QUERIES], st[KEYS * QUERIES], out[TILE], copy[TILE];
    rounded p;
    uint64_t mask[QUERIES];
    running r;
    ahead next;
    const ls_gemm_tile *tile = ls_attention_tile(c);
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D, along = D / each(tile);
    const int64_t q_row = c->q_by.token, row0 = (b * c->Hq + h) * c->Tq;
    const int64_t q_at = offset(c->q_by, b, h), out_at = offset(c->out_by, b, h);
    float *lse = c->lse ? c->lse + row0 : NULL;
    const head of = ls_attention_gather(c, tile, b, hkv, scratch, false);

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        ls_attention_look_ahead(c, &next, b, h, i + QUERIES, false);
        const row_view q = ls_attention_factor(c, tile, c->q, q_at + i * q_row, q_row, at.queries, copy, false);
        ls_attention_pack_queries(tile, &at, packed, q.along_d, q.along_row, along,
                                  tile->pairs ? 1.0f : c->scale);
        for (int l = 0; l < QUERIES; l++) {
            r.max[l] = -INFINITY;
            r.sum[l] = 0.0f;
        }
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const row_view k = rows_from(tile, &of.k, j), v = rows_from(tile, &of.v, j);
            ls_attention_scores(tile, &next, &at, st, k.along_d, k.along_row, packed, along);
            exponentials(&r, &at, st, tile->pairs ? c->scale : 1.0f);
            if (c->drop.least > 0) {
                ls_attention_draw(c, &at, drop_row(c, b, h) + i, j, mask);
                ls_attention_apply_drop(&at, st, mask, c->drop.scale);
            }
            if (j > 0) fade_rows(out, D, r.fade, at.queries, D);
            if (tile->pairs) ls_attention_round_tile(&p, &at, st, true);
            ls_attention_sum_over_keys(tile, &next, &at, out, D, tile->pairs ? (const float *)p.of_keys : st, v.down,
                                       v.down_row, D, j > 0);
        }
        for (int l = 0; l < at.queries; l++) {
            r.fade[l] = 1.0f / r.sum[l];
            if (lse) lse[i + l] = r.max[l] + logf(r.sum[l]);
        }
        fade_rows(out, D, r.fade, at.queries, D);
        ls_attention_put_rows(c, c->out, out_at + i * c->out_by.token, c->out_by.token, out, at.queries, false);
    }
}

/* One query against n keys, which are read once, as they lie in memory. */
LS_KERNEL static void forward_one(const ls_attention_call *c, const float *q, const float *k, const float *v, int64_t n,
                                  float *restrict out)
{
    float p[KEYS], max = -INFINITY, sum = 0.0f;
    const int64_t D = c->D;
    for (int64_t d = 0; d < D; d++) out[d] = 0.0f;
    for (int64_t first = 0; first < n; first += KEYS) {
        const int keys = n - first < KEYS ? (int)(n - first) : KEYS;
        float top = max;
        for (int j = 0; j < keys; j++) {
            p[j] = c->scale * dot(q, k + (first + j) * c->k_by.token, D, false);
            top = p[j] > top ? p[j] : top;
        }
        const float fade = ls_expf(max - top);
        max = top;
        sum *= fade;
        for (int j = 0; j < keys; j++) p[j] = ls_expf(p[j] - top);
        for (int j = 0; j < keys; j++) sum += p[j];
        if (fade != 1.0f)
            for (int64_t d = 0; d < D; d++) out[d] *= fade;
        for (int j = 0; j < keys; j++) {
            const float *restrict row = v + (first + j) * c->v_by.token;
            for (int64_t d = 0; d < D; d++) out[d] += p[j] * row[d];
        }
    }
    for (int64_t d = 0; d < D; d++) out[d] *= 1.0f / sum;
}

void ls_attention_forward_few(const ls_attention_call *c, int64_t b, int64_t h)
{
    const int64_t hkv = h / (c->Hq / c->Hkv);
    const float *q = (const float *)c->q + offset(c->q_by, b, h), *k = (const float *)c->k + offset(c->k_by, b, hkv),
                *v = (const float *)c->v + offset(c->v_by, b, hkv);
    float *out = (float *)c->out + offset(c->out_by, b, h);
    for (int64_t i = 0; i < c->Tq; i++)
        forward_one(c, q + i * c->q_by.token, k, v, keys_before(c, i + 1), out + i * c->out_by.token);
}
