/* prove.c -- the first run of a kernel: does it fill what `shapes` promises, and nothing else?
 *
 * In that run the kernel gets other memory for what it writes, with a pattern in it and behind it. What it has written
 * is copied to its place afterwards. So shapes that lie are found in the first step, before the kernel overwrites the
 * tensor behind, and cost the later steps nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tape_impl.h"

#define PATTERN 0x7fa1u /* as float and as bfloat16 a signaling NaN: no arithmetic has it for a result */
#define LEAST_GUARD ((size_t)4096)
#define MOST_GUARD ((size_t)1 << 20)

typedef enum place_kind { RESULT, GRADIENT, SAVED, SCRATCH } place_kind;

/* Memory that a kernel writes. */
typedef struct place {
    place_kind kind;
    int input;       /* whose gradient it is */
    const ls_tensor *like; /* of a result, or a gradient: */
    bool all;        /* every element must be written */
    char *at;        /* while it is proved */
    void *real;
    size_t bytes, guard;
} place;

typedef struct proof {
    const ls_op_call *c;
    const ls_device *device;
    const char *half; /* of backward; NULL: forward */
    size_t guard;
    place item[LS_OP_MOST_INPUTS + 2];
    int n;
} proof;

static void spoil(char *p, size_t nbytes)
{
    uint16_t *half = (uint16_t *)(void *)p;
    for (size_t i = 0; i < nbytes / 2; i++) half[i] = PATTERN;
}

static bool spoiled(const char *p, size_t nbytes)
{
    const uint16_t *half = (const uint16_t *)(const void *)p;
    for (size_t i = 0; i < nbytes / 2; i++)
        if (half[i] != PATTERN) return false;
    return true;
}

/* --- memory ------------------------------------------------------------------------------------------ */

static size_t whole_lines(size_t nbytes) { return (nbytes + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN; }

/* As large as the largest operand, within limits: as much as a kernel writes that takes one tensor for another. */
static size_t guard_of(const ls_op_call *c)
{
    size_t most = ls_tensor_nbytes(c->out);
    for (int i = 0; i < c->n; i++)
        if (ls_tensor_nbytes(c->in[i]) > most) most = ls_tensor_nbytes(c->in[i]);
    return LEAST_GUARD + (most < MOST_GUARD ? most : MOST_GUARD);
}

/* What the CPU computes is proved in memory of the process, which goes back: a tape that ranks share lies in the
 * world's arena, where what is taken stays, and no plan has a proof. Another device's kernels may need memory of their
 * own. */
static bool has_own_memory(const ls_device *d) { return d->alloc && d->kernels != ls_device_cpu.kernels; }

/* Other memory for *p; NULL stays NULL. `reads`: the kernel reads what is there, too. */
static ls_status take(proof *f, const place *what, void **p, size_t nbytes, bool reads)
{
    void *at = NULL;
    const size_t all = whole_lines(nbytes + f->guard);
    if (!*p) return LS_OK;
    if (has_own_memory(f->device)) LS_TRY(f->device->alloc(f->device, all, &at));
    else at = aligned_alloc(LS_SLAB_ALIGN, all);
    if (!at) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes for its first run", f->c->op->name, all);
    place *q = &f->item[f->n++];
    *q = *what;
    q->at = at;
    q->real = *p;
    q->bytes = nbytes;
    q->guard = all - nbytes;
    spoil(at, all);
    if (reads) memcpy(at, *p, nbytes);
    *p = at;
    return LS_OK;
}

static ls_status take_result(proof *f, ls_op_call *c, ls_tensor *y)
{
    const size_t saved = c->op->saved_bytes ? c->op->saved_bytes(c) : 0;
    *y = *c->out;
    c->out = y;
    LS_TRY(take(f, &(place){ .kind = RESULT, .like = f->c->out, .all = true }, &y->data, ls_tensor_nbytes(y), false));
    return take(f, &(place){ .kind = SAVED }, &c->saved, saved, false);
}

static ls_status take_gradients(proof *f, ls_op_call *c)
{
    for (int i = 0; i < c->n; i++) {
        ls_op_grad *g = &c->grad[i];
        const place what = { .kind = GRADIENT, .input = i, .like = c->in[i], .all = !g->add };
        LS_TRY(take(f, &what, &g->data, ls_tensor_nbytes(c->in[i]), g->add));
    }
    return LS_OK;
}

static ls_status take_all(proof *f, ls_op_call *c, ls_tensor *y)
{
    const size_t scratch = c->op->scratch_bytes ? c->op->scratch_bytes(c, f->half != NULL) : 0;
    LS_TRY(take(f, &(place){ .kind = SCRATCH }, &c->scratch, scratch, false));
    return f->half ? take_gradients(f, c) : take_result(f, c, y);
}

static void release(proof *f, bool keep)
{
    while (f->n > 0) {
        const place *q = &f->item[--f->n];
        if (keep && q->kind != SCRATCH) memcpy(q->real, q->at, q->bytes);
        if (has_own_memory(f->device)) f->device->release(f->device, q->at, q->bytes + q->guard);
        else free(q->at);
    }
}

/* --- what is found -------------------------------------------------------------------------------------- */

/* "the gradient of input 1 (fc.weight), [3, 4]" */
static const char *place_name(const place *q, char *buf, size_t n)
{
    char shape[96];
    if (q->kind == SAVED || q->kind == SCRATCH)
        snprintf(buf, n, "its %s memory of %zu bytes", q->kind == SAVED ? "saved" : "scratch", q->bytes);
    else if (q->kind == RESULT)
        snprintf(buf, n, "its result %s", ls_tensor_shape(q->like, shape, sizeof shape));
    else
        snprintf(buf, n, "the gradient of input %d (%s), %s", q->input, q->like->name ? q->like->name : "not a parameter",
                 ls_tensor_shape(q->like, shape, sizeof shape));
    return buf;
}

static ls_status is_unwritten(const proof *f, const place *q, int64_t element)
{
    char what[256];
    return ls_fail(LS_SHAPE, "%s: %s leaves element %lld of %s unwritten%s", f->c->op->name, f->half ? f->half : "forward",
                   (long long)element, place_name(q, what, sizeof what),
                   f->half ? "" : ": `shapes` promises more than forward fills");
}

static ls_status is_too_long(const proof *f, const place *q)
{
    static const char *const why[] = { [RESULT] = ": `shapes` promises less than forward fills",
                                       [GRADIENT] = ": it has the shape of the input",
                                       [SAVED] = ": `saved_bytes` says less than forward leaves",
                                       [SCRATCH] = ": `scratch_bytes` says less than the kernel takes" };
    char what[256];
    return ls_fail(LS_SHAPE, "%s: %s writes past the end of %s%s", f->c->op->name, f->half ? f->half : "forward",
                   place_name(q, what, sizeof what), why[q->kind]);
}

static ls_status check(const proof *f)
{
    for (int k = 0; k < f->n; k++) {
        const place *q = &f->item[k];
        const size_t end = (q->bytes + 1) / 2 * 2; /* the pattern has two bytes */
        if (!spoiled(q->at + end, q->bytes + q->guard - end)) return is_too_long(f, q);
        if (!q->all) continue;
        const size_t each = ls_dtype_size(q->like->dtype);
        for (int64_t i = 0; i < ls_tensor_count(q->like); i++)
            if (spoiled(q->at + (size_t)i * each, each)) return is_unwritten(f, q, i);
    }
    return LS_OK;
}

ls_status ls_op_prove(const ls_device *d, ls_kernel kernel, const char *half, const ls_op_call *c)
{
    ls_tensor y;
    ls_op_call with = *c;
    proof f = { .c = c, .device = d, .half = half, .guard = guard_of(c) };
    ls_status st = take_all(&f, &with, &y);
    if (st >= 0) st = kernel(&with);
    if (st >= 0) st = check(&f);
    release(&f, st >= 0);
    return st;
}
