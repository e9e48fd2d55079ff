/* conv_columns.c -- convolutions as products of matrices (conv.h). */
#include <string.h>

#include "base/compiler.h"
#include "tensor/conv.h"
#include "tensor/share.h"

#define MOST_FLOATS ((int64_t)1 << 18) /* of columns at a time, unless one image has more: what a second cache holds */

/* Some images: columns [images Ho Wo, K], and y or dy of them with channels last, [images Ho Wo, O]. */
typedef struct piece {
    const ls_conv *v;
    int64_t K, P;    /* of a column; pixels of an image of y */
    int64_t images;
    float *columns, *last;
    const float *x, *bias;
    float *y, *dx;   /* of the first image */
    const float *dy;
    bool add;
} piece;

static int64_t images_at_once(const ls_conv *v)
{
    const int64_t n = MOST_FLOATS / (v->C * v->kernel * v->kernel * v->Ho * v->Wo);
    return n < 1 ? 1 : n < v->N ? n : v->N;
}

static int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

size_t ls_conv_columns_bytes(const ls_conv *v)
{
    const int64_t pixels = images_at_once(v) * v->Ho * v->Wo;
    return (size_t)(whole_lines(pixels * v->C * v->kernel * v->kernel) + pixels * v->O) * sizeof(float);
}

static piece begin(const ls_conv *v, const ls_op_call *c)
{
    piece p = { .v = v, .K = v->C * v->kernel * v->kernel, .P = v->Ho * v->Wo, .columns = c->scratch };
    p.last = p.columns + whole_lines(images_at_once(v) * p.P * p.K);
    return p;
}

/* Points p at the images from `first` on. */
static void take(piece *p, const ls_op_call *c, int64_t first)
{
    const ls_conv *v = p->v;
    const int64_t at_once = images_at_once(v), in = first * v->C * v->H * v->W, out = first * v->O * p->P;
    p->images = v->N - first < at_once ? v->N - first : at_once;
    p->x = (const float *)c->in[0]->data + in;
    p->y = c->dy ? NULL : (float *)c->out->data + out;
    p->dy = c->dy ? (const float *)c->dy + out : NULL;
    p->dx = c->grad[0].data ? (float *)c->grad[0].data + in : NULL;
}

/* Rows of columns, each a pixel of y: what it sees of x, 0 outside. */
static void fill_columns(const void *call, int64_t first, int64_t count)
{
    const piece *p = call;
    const ls_conv *v = p->v;
    for (int64_t r = first; r < first + count; r++) {
        const int64_t n = r / p->P, top = r % p->P / v->Wo * v->stride - v->padding;
        const int64_t left = r % v->Wo * v->stride - v->padding;
        float *to = p->columns + r * p->K;
        for (int64_t ch = 0; ch < v->C; ch++)
            for (int64_t i = 0; i < v->kernel; i++, to += v->kernel) {
                const int64_t h = top + i;
                const float *row = p->x + ((n * v->C + ch) * v->H + h) * v->W + left;
                for (int64_t k = 0; k < v->kernel; k++)
                    to[k] = h >= 0 && h < v->H && left + k >= 0 && left + k < v->W ? row[k] : 0.0f;
            }
    }
}

/* Images: y = last with channels first, and the bias. */
static void channels_first(const void *call, int64_t first, int64_t count)
{
    const piece *p = call;
    const int64_t O = p->v->O;
    for (int64_t n = first; n < first + count; n++)
        for (int64_t o = 0; o < O; o++) {
            const float *from = p->last + n * p->P * O + o;
            float *to = p->y + (n * O + o) * p->P;
            const float bias = p->bias ? p->bias[o] : 0.0f;
            for (int64_t i = 0; i < p->P; i++) to[i] = from[i * O] + bias;
        }
}

/* Images: last = dy with channels last. */
static void channels_last(const void *call, int64_t first, int64_t count)
{
    const piece *p = call;
    const int64_t O = p->v->O;
    for (int64_t n = first; n < first + count; n++)
        for (int64_t o = 0; o < O; o++) {
            const float *from = p->dy + (n * O + o) * p->P;
            float *to = p->last + n * p->P * O + o;
            for (int64_t i = 0; i < p->P; i++) to[i * O] = from[i];
        }
}

/* Planes [H, W] of dx: each pixel of y in ascending order adds what it saw. */
static void gather_columns(const void *call, int64_t first, int64_t count)
{
    const piece *p = call;
    const ls_conv *v = p->v;
    for (int64_t plane = first; plane < first + count; plane++) {
        const int64_t n = plane / v->C, ch = plane % v->C;
        float *dx = p->dx + plane * v->H * v->W;
        if (!p->add) memset(dx, 0, (size_t)(v->H * v->W) * sizeof *dx);
        for (int64_t r = 0; r < p->P; r++) {
            const int64_t top = r / v->Wo * v->stride - v->padding, left = r % v->Wo * v->stride - v->padding;
            const float *from = p->columns + (n * p->P + r) * p->K + ch * v->kernel * v->kernel;
            for (int64_t i = 0; i < v->kernel; i++)
                for (int64_t k = 0; k < v->kernel; k++) {
                    const int64_t h = top + i, w = left + k;
                    if (h >= 0 && h < v->H && w >= 0 && w < v->W) dx[h * v->W + w] += from[i * v->kernel + k];
                }
        }
    }
}

static void columns_of(const piece *p)
{
    ls_parallel_for(fill_columns, p, p->images * p->P, 1, 2 * p->images * p->P * p->K * (int64_t)sizeof(float));
}

static void turn_dy(const piece *p)
{
    ls_parallel_for(channels_last, p, p->images, 1, 2 * p->images * p->P * p->v->O * (int64_t)sizeof(float));
}

static ls_status forward(const ls_conv *v, const ls_op_call *c)
{
    piece p = begin(v, c);
    p.bias = c->n > 2 ? c->in[2]->data : NULL;
    for (int64_t n = 0; n < v->N; n += p.images) {
        take(&p, c, n);
        columns_of(&p);
        LS_TRY(ls_product_run(c, &(ls_product){
            .m = p.images * p.P, .n = v->O, .k = p.K, .trans_b = true, .a = p.columns, .b = c->in[1]->data, .c = p.last,
        }));
        ls_parallel_for(channels_first, &p, p.images, 1, 2 * p.images * p.P * v->O * (int64_t)sizeof(float));
    }
    return LS_OK;
}

/* db: each channel in ascending order of images and pixels. */
static void sum_channels(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const int64_t N = c->out->dim[0], O = c->out->dim[1], P = c->out->dim[2] * c->out->dim[3];
    for (int64_t o = first; o < first + count; o++) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++) {
            const float *dy = (const float *)c->dy + (n * O + o) * P;
            for (int64_t i = 0; i < P; i++) sum += (double)dy[i];
        }
        float *db = (float *)c->grad[2].data + o;
        *db = c->grad[2].add ? *db + (float)sum : (float)sum;
    }
}

static ls_status backward_weight(const ls_conv *v, const ls_op_call *c)
{
    piece p = begin(v, c);
    for (int64_t n = 0; c->grad[1].data && n < v->N; n += p.images) {
        take(&p, c, n);
        columns_of(&p);
        turn_dy(&p);
        LS_TRY(ls_product_run(c, &(ls_product){
            .m = v->O, .n = p.K, .k = p.images * p.P, .trans_a = true, .add = n > 0 || c->grad[1].add, .a = p.last,
            .b = p.columns, .c = c->grad[1].data,
        }));
    }
    if (c->n > 2 && c->grad[2].data) ls_parallel_for(sum_channels, c, v->O, 1, (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status backward_input(const ls_conv *v, const ls_op_call *c)
{
    piece p = begin(v, c);
    p.add = c->grad[0].add;
    for (int64_t n = 0; n < v->N; n += p.images) {
        take(&p, c, n);
        turn_dy(&p);
        LS_TRY(ls_product_run(c, &(ls_product){
            .m = p.images * p.P, .n = p.K, .k = v->O, .a = p.last, .b = c->in[1]->data, .c = p.columns,
        }));
        ls_parallel_for(gather_columns, &p, p.images * v->C, 1, 2 * p.images * p.P * p.K * (int64_t)sizeof(float));
    }
    return LS_OK;
}

ls_status ls_conv_columns_run(ls_conv_half half, const ls_conv *v, const ls_op_call *c)
{
    switch (half) {
    case LS_CONV_FORWARD: return forward(v, c);
    case LS_CONV_WEIGHT: return backward_weight(v, c);
    default: return backward_input(v, c);
    }
}
