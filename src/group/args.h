/* args.h -- what a collective is called with: whether it is possible, and the work that is made of it. */
#ifndef LS_GROUP_ARGS_H
#define LS_GROUP_ARGS_H
#include "group/group.h"

#define LS_MOST_ELEMENTS (SIZE_MAX / 16) /* so that no size in bytes overflows */
_Static_assert(sizeof(ls_coll_args) <= 80, "a call's arguments are cleared by a few stores");

/* LS_INVALID with a sentence unless the call is possible; and, where `in` is not `out`, the one spelling of
 * "in place" for a share that stands where it belongs: in NULL (a scatter's root: out NULL). */
ls_status ls_args_check(const ls_group *g, const ls_coll_args *a);
void ls_args_in_place(const ls_group *g, ls_coll_args *a);
/* Of a call with counts or spans: its parts become the work's, and their total the work's count; and what says whether
 * two ranks gave the same ones. */
LS_COLD ls_status ls_args_keep_counts(ls_work *k, const ls_coll_args *a);
LS_COLD uint32_t ls_args_sign_counts(const ls_work *k);
LS_COLD ls_status ls_no_group(void);

static inline bool ls_has_average(ls_dtype d) { return d == LS_F32 || d == LS_F64 || d == LS_BF16 || d == LS_F16; }

/* The everyday cases of ls_args_check, told apart by a few comparisons; false: look closer. */
static inline bool ls_args_plain(const ls_group *g, const ls_coll_args *a)
{
    const char *in = a->in, *out = a->out;
    if (g->failed < 0 || (unsigned)a->dtype >= LS_DTYPES || (unsigned)a->op >= LS_REDOPS || a->counts ||
        a->recv_counts || a->span || (unsigned)a->root >= (unsigned)g->size || a->count > LS_MOST_ELEMENTS ||
        ls_elsewhere(g))
        return false;
    if (a->coll == LS_BARRIER) return true;
    if (a->coll != LS_ALL_REDUCE && a->coll != LS_REDUCE_SCATTER && a->coll != LS_ALL_GATHER && a->coll != LS_BROADCAST)
        return false;
    size_t nbytes = a->count * 8; /* of the widest type */
    return out && (a->op != LS_AVG || ls_has_average(a->dtype)) &&
           (!in || in == out || in + nbytes <= out || out + nbytes <= in);
}

/* A work for a call that is possible; there must be a spare one. Field by field: what is written so and read as a whole
 * a moment later has to wait for the fields to reach the cache. */
static inline ls_work *ls_args_take(ls_group *g, const ls_coll_args *a)
{
    ls_work *k = &g->work[g->spare[--g->nspare]];
    k->g = g;
    k->a.coll = a->coll;
    k->a.in = a->in == a->out ? NULL : a->in; /* in place has one spelling from here on */
    k->a.out = a->out;
    k->a.count = a->count;
    k->a.counts = a->counts;
    k->a.recv_counts = a->recv_counts;
    k->a.dtype = a->dtype;
    k->a.op = a->op;
    k->a.root = a->root;
    k->a.label = a->label;
    k->a.bucket = a->bucket;
    if (k->a.in && a->coll != LS_ALL_REDUCE && !a->span) ls_args_in_place(g, &k->a);
    k->counts = k->recv_counts = NULL;
    k->span = NULL;
    k->copied = NULL;
    k->status = LS_OK;
    k->live = true;
    k->phase = 0;
    k->pos = 0;
    k->moved = 0;
    k->algo = NULL;
    atomic_store_explicit(&k->done, 0, memory_order_relaxed);
    return k;
}

/* args.c: notes an all_reduce that the program calls itself, for `lockstep run --lint`. */
LS_COLD void ls_args_note(const ls_coll_args *a);

#endif
