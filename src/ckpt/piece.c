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

/* A transposed box is read as it is in the file, and then turned. */
static ls_status read_transposed(ls_checkpoint *s, const ls_checkpoint_tensor *t, const ls_box *box, size_t count,
                                 float *dst)
{
    float *file = malloc(count * sizeof *file);
    if (!file) return ls_fail(LS_NO_MEMORY, "tensor '%s': %zu elements to transpose", t->name, count);
    const ls_status st = ls_checkpoint_read(s, t, box->first, box->count, file);
    if (st == LS_OK) ls_ckpt_transpose(file, LS_F32, box->count[1], box->count[0], dst);
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
        st = p->transposed ? read_transposed(s, t, &piece[i].box, piece[i].count, dst + piece[i].first)
                           : ls_checkpoint_read(s, t, piece[i].box.first, piece[i].box.count, dst + piece[i].first);
    free(piece);
    return st;
}
