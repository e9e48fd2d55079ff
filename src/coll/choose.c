/* choose.c -- emitting, timing and sorting the candidates. */
#include "coll/choose.h"

#include <math.h>
#include <stdlib.h>

#define SEGMENT_BYTES ((size_t)16 << 10) /* smaller ones are not worth their messages anywhere */
#define MOST_SEGMENTS 128

static bool folds(const ls_sched *s)
{
    for (int l = 0; l < s->shape.nlanes; l++)
        for (uint32_t i = 0; i < s->lane[l].n; i++)
            if (s->lane[l].step[i].kind == LS_STEP_FOLD) return true;
    return false;
}

/* The time of one candidate; LS_UNSUPPORTED when it may not be used. */
static ls_status time_of(const ls_machine *m, const ls_question *q, size_t nbytes, ls_choice *p)
{
    size_t n = (size_t)q->size;
    ls_status st = LS_OK;
    ls_sched *s = calloc(n, sizeof *s);
    const ls_sched **all = calloc(n, sizeof *all);
    if (!s || !all) st = ls_fail(LS_NO_MEMORY, "timing %s over %d ranks", p->algo->name, q->size);
    bool reduces = q->coll == LS_ALL_REDUCE || q->coll == LS_REDUCE_SCATTER || q->coll == LS_REDUCE;
    for (int r = 0; st == LS_OK && r < q->size; r++) {
        ls_shape shape = { .coll = q->coll, .rank = r, .size = q->size, .segments = p->segments, .nlanes = p->nlanes,
                           .node = q->node };
        st = ls_sched_emit(p->algo, &shape, &s[r]);
        all[r] = &s[r];
        if (st == LS_OK && (folds(&s[r]) || (q->ascending && reduces && !s[r].one_sum))) st = LS_UNSUPPORTED;
    }
    if (st == LS_OK) st = ls_sched_time(m, all, q->size, nbytes, &p->ns);
    for (int r = 0; s && r < q->size; r++) ls_sched_free(&s[r]);
    free(s);
    free(all);
    return st;
}

static void insert(ls_choice p, ls_choice *out, int *n)
{
    int at = *n;
    if (at == LS_MAX_CHOICES) return;
    for (; at > 0 && p.ns < out[at - 1].ns; at--) out[at] = out[at - 1];
    out[at] = p;
    ++*n;
}

/* An algorithm in 1, 2, 4 ... segments, until more of them do not help. */
static ls_status consider(const ls_machine *m, const ls_question *q, size_t nbytes, const ls_algo *a, ls_choice *out,
                          int *n)
{
    int most = a->pipelined ? MOST_SEGMENTS : q->nlanes;
    double best = (double)INFINITY;
    for (int k = 1; k <= most && (k == 1 || nbytes / (size_t)k >= SEGMENT_BYTES); k *= 2) {
        ls_choice p = { a, k, k < q->nlanes ? k : q->nlanes, 0.0 };
        ls_status st = time_of(m, q, nbytes, &p);
        if (st == LS_UNSUPPORTED) return LS_OK;
        if (st < 0) return st;
        insert(p, out, n);
        if (p.ns > best && k > 2) return LS_OK;
        if (p.ns < best) best = p.ns;
    }
    return LS_OK;
}

static bool on_one_host(const ls_question *q)
{
    for (int r = 0; q->node && r < q->size; r++)
        if (q->node[r] != q->node[0]) return false;
    return true;
}

ls_status ls_choose(const ls_machine *m, const ls_question *q, size_t nbytes, ls_choice *out, int *n)
{
    *n = 0;
    for (int i = 0; ls_algos[i]; i++) {
        const ls_algo *a = ls_algos[i];
        ls_shape whole = { .coll = q->coll, .size = q->size, .segments = 1, .nlanes = 1, .node = q->node };
        bool allowed = q->only ? a == q->only : !a->by_name;
        if (!allowed || !(a->colls & 1u << q->coll) || (a->fits && !a->fits(&whole))) continue;
        if (a->levels && !q->only && on_one_host(q)) continue;
        LS_TRY(consider(m, q, nbytes, a, out, n));
    }
    if (*n > 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "%s: no algorithm over %d ranks%s%s", ls_coll_name(q->coll), q->size,
                   q->only ? " by the name of " : "", q->only ? q->only->name : "");
}
