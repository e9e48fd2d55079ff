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

/* The schedules of all ranks of one candidate. */
typedef struct candidate {
    ls_sched *s;          /* owned: [size] */
    const ls_sched **all; /* owned: [size], of s */
} candidate;

static void candidate_free(candidate *c, int size)
{
    for (int r = 0; c->s && r < size; r++) ls_sched_free(&c->s[r]);
    free(c->s);
    free(c->all);
}

/* LS_UNSUPPORTED when it may not be used. */
static ls_status candidate_emit(const ls_question *q, const ls_choice *p, candidate *out)
{
    const size_t n = (size_t)q->size;
    const bool reduces = q->coll == LS_ALL_REDUCE || q->coll == LS_REDUCE_SCATTER || q->coll == LS_REDUCE;
    *out = (candidate){ calloc(n, sizeof *out->s), calloc(n, sizeof *out->all) };
    if (!out->s || !out->all) return ls_fail(LS_NO_MEMORY, "timing %s over %d ranks", p->algo->name, q->size);
    for (int r = 0; r < q->size; r++) {
        ls_shape shape = { .coll = q->coll, .rank = r, .size = q->size, .segments = p->segments, .nlanes = p->nlanes,
                           .node = q->node };
        LS_TRY(ls_sched_emit(p->algo, &shape, &out->s[r]));
        out->all[r] = &out->s[r];
        if (folds(&out->s[r]) || (q->ascending && reduces && !out->s[r].one_sum)) return LS_UNSUPPORTED;
    }
    return LS_OK;
}

static void insert(ls_choice p, ls_choice *out, int *n)
{
    int at = *n;
    if (at == LS_MAX_CHOICES) return;
    for (; at > 0 && p.ns < out[at - 1].ns; at--) out[at] = out[at - 1];
    out[at] = p;
    ++*n;
}

/* One size of a vector: its answer so far, and whether the algorithm that is considered needs more segments there. */
typedef struct place {
    size_t nbytes;
    ls_choice *out; /* borrowed: [LS_MAX_CHOICES] */
    int *n;
    double best;
    bool done;
} place;

/* A candidate at every size that is not done: more segments are considered until they do not help. */
static ls_status try(const ls_machine *m, const ls_question *q, ls_choice p, place *at, int nsizes)
{
    candidate c;
    ls_status st = candidate_emit(q, &p, &c);
    for (int i = 0; st == LS_OK && i < nsizes; i++) {
        if (at[i].done) continue;
        st = ls_sched_time(m, c.all, q->size, at[i].nbytes, &p.ns);
        if (st < 0) break;
        insert(p, at[i].out, at[i].n);
        at[i].done = p.ns > at[i].best && p.segments > 2;
        if (p.ns < at[i].best) at[i].best = p.ns;
    }
    candidate_free(&c, q->size);
    return st;
}

/* An algorithm in 1, 2, 4 ... segments. */
static ls_status consider(const ls_machine *m, const ls_question *q, const ls_algo *a, place *at, int nsizes)
{
    const int most = a->pipelined ? MOST_SEGMENTS : q->nlanes;
    for (int i = 0; i < nsizes; i++) at[i].best = (double)INFINITY, at[i].done = false;
    for (int k = 1; k <= most; k *= 2) {
        bool any = false;
        for (int i = 0; i < nsizes; i++) {
            at[i].done = at[i].done || (k > 1 && at[i].nbytes / (size_t)k < SEGMENT_BYTES);
            any = any || !at[i].done;
        }
        if (!any) break;
        const ls_status st = try(m, q, (ls_choice){ a, k, k < q->nlanes ? k : q->nlanes, 0.0 }, at, nsizes);
        if (st == LS_UNSUPPORTED) break;
        LS_TRY(st);
    }
    return LS_OK;
}

static bool on_one_host(const ls_question *q)
{
    for (int r = 0; q->node && r < q->size; r++)
        if (q->node[r] != q->node[0]) return false;
    return true;
}

ls_status ls_choose_sizes(const ls_machine *m, const ls_question *q, const size_t *nbytes, int nsizes,
                          ls_choice (*out)[LS_MAX_CHOICES], int *n)
{
    place at[LS_CHOOSE_SIZES];
    for (int i = 0; i < nsizes; i++) at[i] = (place){ .nbytes = nbytes[i], .out = out[i], .n = &n[i] }, n[i] = 0;
    for (int i = 0; ls_algos[i]; i++) {
        const ls_algo *a = ls_algos[i];
        ls_shape whole = { .coll = q->coll, .size = q->size, .segments = 1, .nlanes = 1, .node = q->node };
        bool allowed = q->only ? a == q->only : !a->by_name;
        if (!allowed || !(a->colls & 1u << q->coll) || (a->fits && !a->fits(&whole))) continue;
        if (a->levels && !q->only && on_one_host(q)) continue;
        LS_TRY(consider(m, q, a, at, nsizes));
    }
    if (n[0] > 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "%s: no algorithm over %d ranks%s%s", ls_coll_name(q->coll), q->size,
                   q->only ? " by the name of " : "", q->only ? q->only->name : "");
}

ls_status ls_choose(const ls_machine *m, const ls_question *q, size_t nbytes, ls_choice *out, int *n)
{
    return ls_choose_sizes(m, q, &nbytes, 1, (ls_choice(*)[LS_MAX_CHOICES])out, n);
}
