/* context_parallel.c -- which tokens of a sequence a rank has (place.h). */
#include <string.h>

#include "parallel/cp_attention.h"

static const char *const names[] = { "ring", "gather", "ulysses", "ulysses-ring" };

ls_status ls_cp_mode_find(const char *name, ls_cp_mode *out)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (ls_cp_mode)i;
            return LS_OK;
        }
    return ls_fail(LS_BAD_CONFIG, "context '%s': expected ring, gather, ulysses or ulysses-ring", name);
}

void ls_cp_tokens_of(const ls_place *p, int rank, int64_t T, ls_places *out)
{
    const int64_t P = p->cp.size > 1 ? p->cp.size : 1, pieces = P == 1 || p->in_turn ? P : 2 * P, each = T / pieces;
    *out = (ls_places){ .of = T, .n = 1, .first = { rank * each }, .count = { each } };
    if (pieces == P) return;
    out->n = 2;
    out->first[1] = (pieces - 1 - rank) * each;
    out->count[1] = each;
}

const ls_places *ls_cp_all_tokens(ls_tape *t, const ls_place *p, int64_t T)
{
    if (!ls_divides(&p->cp)) return NULL;
    ls_places *all = ls_tape_take_node(t, (size_t)p->cp.size * sizeof *all);
    for (int r = 0; all && r < p->cp.size; r++) ls_cp_tokens_of(p, r, T, &all[r]);
    return all;
}

ls_status ls_cp_tokens(const ls_place *p, int64_t T, ls_places *out)
{
    const int64_t P = p->cp.size > 1 ? p->cp.size : 1, pieces = P == 1 || p->in_turn ? P : 2 * P;
    ls_cp_tokens_of(p, p->cp.rank, T, out);
    if (T % pieces == 0) return LS_OK;
    return ls_fail(
        LS_SHAPE,
        "a sequence of %lld tokens for %lld ranks: expected a multiple of %lld%s; %s%lld is the nearest above",
        (long long)T, (long long)P, (long long)pieces, p->in_turn ? "" : ", two pieces for each rank",
        T < pieces ? "it is too short: " : "", (long long)((T + pieces - 1) / pieces * pieces));
}

/* Of tokens whose queries meet the keys of ranks one after the other. */
static void work_along(const ls_place *p, int rank, int64_t T, ls_cp_work *out)
{
    ls_places q, k;
    double pairs = 0.0;
    ls_cp_tokens_of(p, rank, T, &q);
    for (int i = 0; i < q.n; i++) /* query t sees t + 1 keys */
        pairs += (double)q.count[i] * ((double)q.first[i] + 0.5 * (double)(q.count[i] + 1));
    *out = (ls_cp_work){ .share = pairs / (0.5 * (double)T * (double)(T + 1)), .blocks = p->cp.size * q.n * q.n };
    for (int r = 0; r < p->cp.size; r++) {
        ls_cp_tokens_of(p, r, T, &k);
        for (int i = 0; i < q.n; i++)
            for (int j = 0; j < k.n; j++) out->skipped += k.first[j] > q.first[i];
    }
}

void ls_cp_work_of(const ls_place *p, int rank, int64_t T, ls_cp_work *out)
{
    ls_place few = *p;
    *out = (ls_cp_work){ .share = ls_divides(&p->cp) ? 1.0 / p->cp.size : 1.0 };
    if (!ls_divides(&p->cp) || p->context == LS_CP_ULYSSES) return;
    if (p->context == LS_CP_ULYSSES_RING) few.cp = p->ring;
    const int heads = p->cp.size / few.cp.size; /* a rank has 1 / heads of them */
    work_along(&few, rank / heads, T, out);
    out->share /= heads;
}

ls_tensor *ls_cp_pick(ls_tape *t, ls_tensor *x, const ls_place *p)
{
    char shape[96];
    ls_places here;
    if (!ls_divides(&p->cp) || !x) return x;
    if (x->ndim != 2 || x->dtype != LS_I64)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "cp_pick: input %s of %s: expected [B, T] of int64",
                                     ls_tensor_shape(x, shape, sizeof shape), ls_dtype_name(x->dtype)));
    const ls_status st = ls_cp_tokens(p, x->dim[1], &here);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t B = x->dim[0], T = x->dim[1];
    ls_tensor *y = ls_op_output(t, LS_I64, 2, (int64_t[]){ B, T / p->cp.size });
    if (!y || ls_tape_dry(t)) return y;
    int64_t *to = y->data;
    for (int64_t b = 0; b < B; b++)
        for (int k = 0; k < here.n; to += here.count[k++])
            memcpy(to, (const int64_t *)x->data + b * T + here.first[k], (size_t)here.count[k] * sizeof *to);
    return y;
}
