/* piece.c -- elements of a parameter as boxes of a tensor in a file. */
#include <stdlib.h>

#include "ckpt/format.h"
#include "ckpt/state.h"

static ls_part part_of(const ls_param *p) { return p->part.runs > 0 ? p->part : ls_part_all(&p->t); }

static void exchange(int64_t *v)
{
    const int64_t rows = v[0];
    v[0] = v[1];
    v[1] = rows;
}

void ls_piece_shape(const ls_param *p, int64_t dim[LS_MAX_DIMS])
{
    const ls_part part = part_of(p);
    ls_part_shape(&part, &p->t, dim);
    if (p->transposed) exchange(dim);
}

int ls_piece_most(const ls_param *p) { return part_of(p).runs; }

ls_status ls_piece_boxes(const ls_param *p, ls_range range, ls_piece *out, int *n)
{
    const ls_part part = part_of(p);
    const size_t row = p->t.ndim ? (size_t)(ls_tensor_count(&p->t) / p->t.dim[0]) : 1;
    *n = 0;
    if (range.count == 0) return LS_OK;
    if (range.first % row || range.count % row || (part.runs > 1 && part.dim != 0))
        return ls_fail(LS_UNSUPPORTED, "parameter '%s': elements %zu to %zu of rows of %zu are not contiguous boxes of the tensor",
                       p->name, range.first, range.first + range.count - 1, row);
    ls_box *box = malloc((size_t)part.runs * sizeof *box);
    if (!box) return ls_fail(LS_NO_MEMORY, "parameter '%s': %d boxes", p->name, part.runs);
    *n = ls_part_boxes(&part, &p->t, (ls_range){ range.first / row, range.count / row }, box);
    size_t first = 0;
    for (int i = 0; i < *n; i++) {
        size_t count = 1;
        for (int d = 0; d < p->t.ndim; d++) count *= (size_t)box[i].count[d];
        out[i] = (ls_piece){ box[i], first, count };
        first += count;
        if (p->transposed) {
            exchange(out[i].box.first);
            exchange(out[i].box.count);
        }
    }
    free(box);
    return LS_OK;
}

#define STRIP ((int64_t)1 << 18) /* elements, and at least a row, that are transposed at a time */

/* A transposed box is read as it is in the file, some rows at a time, and they become columns. */
static ls_status read_transposed(ls_checkpoint *s, const ls_checkpoint_tensor *t, const ls_box *box, float *dst)
{
    const int64_t rows = box->count[0], columns = box->count[1], most = STRIP / columns > 0 ? STRIP / columns : 1;
    ls_status st = LS_OK;
    float *file = malloc((size_t)((most < rows ? most : rows) * columns) * sizeof *file);
    if (!file) return ls_fail(LS_NO_MEMORY, "tensor '%s': %lld elements to transpose", t->name, (long long)(most * columns));
    for (int64_t r = 0; st == LS_OK && r < rows; r += most) {
        ls_box strip = *box;
        strip.first[0] += r;
        strip.count[0] = rows - r < most ? rows - r : most;
        st = ls_checkpoint_read(s, t, strip.first, strip.count, file);
        if (st == LS_OK) ls_ckpt_turn(file, (size_t)columns, strip.count[0], columns, dst + r, (size_t)rows);
    }
    free(file);
    return st;
}

ls_status ls_piece_read(ls_checkpoint *s, const char *name, const ls_param *p, ls_range range, float *dst)
{
    const ls_checkpoint_tensor *t = ls_checkpoint_find(s, name);
    ls_piece *piece = malloc((size_t)ls_piece_most(p) * sizeof *piece);
    int n = 0;
    if (!piece) return ls_fail(LS_NO_MEMORY, "parameter '%s': its boxes", p->name);
    ls_status st = ls_piece_boxes(p, range, piece, &n);
    for (int i = 0; st == LS_OK && i < n; i++)
        st = p->transposed ? read_transposed(s, t, &piece[i].box, dst + piece[i].first)
                           : ls_checkpoint_read(s, t, piece[i].box.first, piece[i].box.count, dst + piece[i].first);
    free(piece);
    return st;
}
