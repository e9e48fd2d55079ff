/* spans.h -- vectors that are made of matrices, of which a rank's part is some rows of each (ls_matrix_span.part).
 *
 * A form that walks spans (ls_form.spans) works on them where they lie. Any other one packs the parts that it needs,
 * rank by rank, into a vector with counts when the turn of the work comes, and unpacks them at its end. A group carries
 * out one such work at a time, so it has one place for that, in the world's arena: of the largest vector so far.
 */
#ifndef LS_GROUP_SPANS_H
#define LS_GROUP_SPANS_H
#include "group/form.h"

/* Elements of the vector up to the end of its last matrix. */
size_t ls_spans_extent(const ls_work *k);
/* Elements of rank r's part of `nspans` matrices. */
/* The rows of rank r of `size`. */
ls_range ls_spans_rows(const ls_matrix_span *s, int r, int size);
size_t ls_spans_count(const ls_matrix_span *span, int nspans, int r, int size);
/* Where element `pos` of rank r's part stands in the vector; *left: so many from there on lie side by side. */
size_t ls_spans_at(const ls_work *k, int r, size_t pos, size_t *left);
/* Sees to it that the group's place holds `nbytes`. A smaller one stays in the arena, for works that have it. */
ls_status ls_spans_reserve(ls_group *g, size_t nbytes);
/* On the calling thread, once the form is chosen and k->counts are the parts. */
ls_status ls_spans_begin(ls_work *k);
/* For a form that packs, on whatever thread moves the work: k->a.out becomes the packed vector, in place; and, after
 * LS_OK, what this rank has got goes where it belongs. */
void ls_spans_pack(ls_work *k);
void ls_spans_unpack(ls_work *k);

#endif
