/* zero_formula.c -- ZeRO's formulas: which class of bytes is sharded in which stage. */
#include "parallel/zero_formula.h"

#include <stdio.h>

static uint64_t count_of(const ls_zero_elements *e, char of)
{
    return of == 'P' ? e->p : of == 'M' ? e->m : e->p - e->m;
}

ls_zero_formula ls_zero_formula_of(ls_zero_class k, const ls_ddp_config *d, const ls_zero_how *how)
{
    const int stage = d->zero_stage;
    const size_t levels = how->levels, all = 4 * (1 + levels); /* gradients, */
    const size_t own = 4 * (levels > 1 ? levels : 1); /* the first sums of rows wait where the last ones are read */
    switch (k) {
    case LS_ZERO_VALUES: /* an optimizer's f32 values of what operations read in bf16 are sharded from stage 1 on */
        if (how->bf16 && (stage == 1 || stage == 2))
            return (ls_zero_formula){ { { 4, 'V', false }, { 4, 'M', true } } };
        return (ls_zero_formula){ { { 4, 'P', stage == 3 } } };
    case LS_ZERO_COPIES: return (ls_zero_formula){ { { how->bf16 && !ls_zero_gathers(d) ? 2 : 0, 'M', stage == 3 } } };
    case LS_ZERO_GRADS:
        if (how->apart && !ls_zero_shards_sums(d))
            return (ls_zero_formula){ { { all, 'P', false }, { 4, 'P', true } } };
        return (ls_zero_formula){ { { ls_zero_shards_sums(d) ? own : all, 'P', ls_zero_shards_sums(d) } } };
    default: return (ls_zero_formula){ { { 4 * (size_t)how->nstates, 'P', stage > 0 } } };
    }
}

void ls_zero_formula_text(const ls_zero_formula *f, bool sets, char out[LS_ZERO_FORMULA])
{
    const size_t n = LS_ZERO_FORMULA;
    size_t at = 0;
    *out = 0;
    for (int i = 0; i < 2 && f->term[i].bytes > 0; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%zu %c%s", i ? " + " : "", f->term[i].bytes, f->term[i].of,
                               !f->term[i].sharded ? "" : sets ? "/S" : "/W");
}

ls_zero_held ls_zero_held_by(const ls_zero_formula *f, const ls_zero_elements *all, const ls_zero_elements *own,
                             int shards)
{
    ls_zero_held h = { 0 };
    for (int i = 0; i < 2; i++) {
        const ls_zero_term *t = &f->term[i];
        const uint64_t whole = t->bytes * count_of(all, t->of), share = t->sharded ? whole / (uint64_t)shards : whole;
        h.formula += share;
        h.rows += t->sharded ? (int64_t)(t->bytes * count_of(own, t->of)) - (int64_t)share : 0;
    }
    return h;
}
