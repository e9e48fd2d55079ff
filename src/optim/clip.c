/* clip.c -- the global gradient norm, and the coefficient that keeps it below a limit.
 *
 *   norm = sqrt(sum over parameters and elements of g^2)
 *   g    = g min(1, max_norm / (norm + 1e-6))      Pascanu, Mikolov and Bengio 2013; torch.nn.utils.clip_grad_norm_
 *
 * The norm is one read of the gradients, 4 bytes an element, by all threads; the coefficient is applied inside the
 * optimizer's pass. A parameter is cut into blocks by its size alone, and their sums are added in ascending order: the
 * norm has the same bits with any number of threads, and of ranks that share the work.
 */
#include <math.h>

#include "base/compiler.h"
#include "base/exact.h"
#include "lockstep/optim.h"
#include "tensor/ahead.h"
#include "tensor/share.h"

#define AHEAD 1024 /* elements */

/* Sum of squares in double, in eight interleaved parts: the same bits however wide the vectors are. Gradients come from
 * memory, so they are prefetched. */
LS_KERNEL static double squares(const float *g, size_t n)
{
    double part[8] = { 0 };
    size_t k = 0;
    for (; k + AHEAD + LS_STRIP <= n; k += LS_STRIP) {
        ls_ask_strip(g, (int64_t)(k + AHEAD), false, false);
        for (size_t i = k; i < k + LS_STRIP; i += 8)
            for (size_t j = 0; j < 8; j++) part[j] += (double)g[i + j] * (double)g[i + j];
    }
    for (; k + 8 <= n; k += 8)
        for (size_t j = 0; j < 8; j++) part[j] += (double)g[k + j] * (double)g[k + j];
    for (; k < n; k++) part[k % 8] += (double)g[k] * (double)g[k];
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

#define MOST_BLOCKS 64
#define BLOCK ((int64_t)64 << 10) /* elements, at least */

#define AT_ONCE 128               /* parameters whose sums travel together */

typedef struct blocks {
    const float *g;
    int64_t n, size;
    double *sum;
} blocks;

static void sum_blocks(const void *call, int64_t first, int64_t count)
{
    const blocks *b = call;
    for (int64_t k = first; k < first + count; k++) {
        const int64_t at = k * b->size;
        b->sum[k] = squares(b->g + at, (size_t)(b->n - at < b->size ? b->n - at : b->size));
    }
}

static double sum_of_squares(const float *g, int64_t n)
{
    double sum[MOST_BLOCKS], all = 0.0;
    const int64_t even = (n + MOST_BLOCKS - 1) / MOST_BLOCKS, size = even < BLOCK ? BLOCK : (even + 7) / 8 * 8;
    const int64_t count = (n + size - 1) / size;
    ls_parallel_for(sum_blocks, &(blocks){ g, n, size, sum }, count, 1, n * (int64_t)sizeof *g);
    for (int64_t k = 0; k < count; k++) all += sum[k];
    return all;
}

static bool has_gradient(const ls_param *p) { return ls_param_has_gradient(p) && ls_param_gradients(p); }

/* Whether this rank has all of a gradient, and not a part of it that others add to. */
static bool has_all(const ls_param *p)
{
    return ls_part_is_all(&p->part) && p->own.count == (size_t)ls_tensor_count(&p->t);
}

static double sum_of(const ls_param *p, ls_range of)
{
    return has_gradient(p) ? sum_of_squares(ls_param_gradients(p) + (of.first - p->own.first), (int64_t)of.count) : 0.0;
}

/* Every rank adds up the elements it keeps, and takes the sums of the others: zeros change no bit of a sum. `g` NULL:
 * this rank has all gradients and adds up all. `dry`: gradients have addresses and no memory, and their norm is 0. */
static ls_status norm_of(ls_group *g, const ls_params *ps, bool dry, double *norm, const ls_param **culprit)
{
    double sum = 0.0, of[AT_ONCE];
    if (culprit) *culprit = NULL;
    const int all = ls_params_total(ps);
    for (int first = 0; first < all; first += AT_ONCE) {
        const int n = all - first < AT_ONCE ? all - first : AT_ONCE;
        for (int i = 0; i < n; i++) {
            const ls_param *p = ls_params_at(ps, first + i);
            of[i] = dry ? 0.0 : sum_of(p, g ? p->keeps : p->own);
        }
        if (g) LS_TRY(ls_all_reduce(g, NULL, of, (size_t)n, LS_F64, LS_SUM));
        for (int i = 0; i < n; i++) {
            sum += of[i];
            if (LS_LIKELY(isfinite(sum))) continue; /* squares of floats do not overflow a double */
            *norm = sum;
            const ls_param *p = ls_params_at(ps, first + i);
            if (culprit) *culprit = p;
            return ls_fail(LS_NAN, "the gradient of %s is not finite", p->name);
        }
    }
    *norm = sqrt(sum);
    return LS_OK;
}

ls_status ls_grad_norm(const ls_params *ps, double *norm, const ls_param **culprit)
{
    for (int i = 0; i < ps->n; i++)
        if (!has_all(&ps->item[i]))
            return ls_fail(LS_INVALID, "ls_grad_norm: this rank has a part of the gradient of %s, and others the rest: call "
                                       "ls_grad_norm_shared", ps->item[i].name);
    return norm_of(NULL, ps, false, norm, culprit);
}

static ls_status check_counted(const char *call, const ls_group *g, const ls_params *ps)
{
    if (!g) return ls_fail(LS_INVALID, "%s without a group: ls_grad_norm needs none", call);
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!p->replicas && ls_group_size(g) > 1)
            return ls_fail(LS_INVALID, "%s over %d ranks: nothing says which of them counts the gradient of %s: call "
                                       "ls_ddp_create first", call, ls_group_size(g), p->name);
    }
    return LS_OK;
}

ls_status ls_grad_norm_shared(ls_group *g, const ls_params *ps, double *norm, const ls_param **culprit)
{
    LS_TRY(check_counted("ls_grad_norm_shared", g, ps));
    const bool dry = ls_world_is_dry(ls_group_world(g));
    return norm_of(ls_group_size(g) > 1 ? g : NULL, ps, dry, norm, culprit);
}

/* --- the same bits in every layout -------------------------------------------------------------------------- */

#define MOST_PARTS 16 /* of a parameter's rows: threads have one each */
#define SHORT_ROW  16 /* elements: below, each is added by itself */

/* Rows [0, rows) of `row` elements in parts of `each`, whose sums are part[]. */
typedef struct rows_of {
    const float *g;
    int64_t rows, row, each;
    ls_exact *part;
} rows_of;

static void sum_rows(const void *call, int64_t first, int64_t count)
{
    const rows_of *r = call;
    for (int64_t k = first; k < first + count; k++) {
        const int64_t end = (k + 1) * r->each < r->rows ? (k + 1) * r->each : r->rows;
        ls_exact sum = { 0 };
        for (int64_t at = k * r->each; at < end; at++) {
            const float *g = r->g + at * r->row;
            if (r->row >= SHORT_ROW) ls_exact_add(&sum, squares(g, (size_t)r->row));
            else
                for (int64_t i = 0; i < r->row; i++) ls_exact_add(&sum, (double)g[i] * (double)g[i]);
        }
        r->part[k] = sum;
    }
}

/* Shards are cut between rows, so every layout has the same rows. */
static void add_squares(const ls_param *p, ls_range of, ls_exact *sum)
{
    ls_exact part[MOST_PARTS];
    const int64_t row = ls_tensor_count(&p->t) / p->t.dim[0], rows = (int64_t)of.count / row;
    const int64_t each = (rows + MOST_PARTS - 1) / MOST_PARTS, parts = each ? (rows + each - 1) / each : 0;
    const rows_of r = { ls_param_gradients(p) + (of.first - p->own.first), rows, row, each, part };
    ls_parallel_for(sum_rows, &r, parts, 1, (int64_t)(of.count * sizeof(float)));
    for (int64_t k = 0; k < parts; k++) ls_exact_merge(sum, &part[k]);
}

ls_status ls_grad_norm_exact(ls_group *g, const ls_params *ps, double *norm, const ls_param **culprit)
{
    LS_TRY(check_counted("ls_grad_norm_exact", g, ps));
    const bool dry = ls_world_is_dry(ls_group_world(g));
    ls_exact sum = { 0 };
    int64_t first = ps->n; /* the first parameter of this rank that is not finite */
    if (culprit) *culprit = NULL;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!dry && has_gradient(p)) add_squares(p, ls_group_size(g) > 1 ? p->keeps : p->own, &sum);
        if (sum.word[LS_EXACT_DIGITS] != 0 && first == ps->n) first = i;
    }
    ls_exact_carry(&sum);
    LS_TRY(ls_all_reduce(g, NULL, sum.word, LS_EXACT_WORDS, LS_I64, LS_SUM));
    *norm = sqrt(ls_exact_value(&sum));
    if (LS_LIKELY(isfinite(*norm))) return LS_OK;
    LS_TRY(ls_all_reduce(g, NULL, &first, 1, LS_I64, LS_MIN));
    if (culprit) *culprit = &ps->item[first];
    return ls_fail(LS_NAN, "the gradient of %s is not finite", ps->item[first].name);
}

double ls_clip_scale(double norm, double max_norm)
{
    if (max_norm == 0.0) return 1.0;
    const double scale = max_norm / (norm + 1e-6);
    return scale < 1.0 ? scale : 1.0;
}
