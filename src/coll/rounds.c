/* rounds.c -- the prover's lanes, a message each at a time. */
#include "coll/rounds.h"

#include <stdlib.h>
#include <string.h>

#include "coll/verify_impl.h"

#define MOST_ROUNDS 4096
#define MOST_BYTES ((size_t)64 << 20) /* of counts */

typedef struct rounds {
    prover p;
    ls_rounds *out;
    int *sent; /* [from][to][lane]: the round in which the message that waits was sent */
} rounds;

static bool has_next(const prover *p, int rank, int l) { return lane_of(p, rank, l)->pc < p->s[rank]->lane[l].n; }
static const ls_step *next(const prover *p, int rank, int l) { return step_of(p, rank, l, lane_of(p, rank, l)->pc); }
static bool is_local(const ls_step *a) { return a->kind == LS_STEP_COPY || a->kind == LS_STEP_REDUCE; }

static int *sent(const rounds *x, int from, int to, int l)
{
    return &x->sent[(from * x->p.size + to) * x->p.nlanes + l];
}

/* Room for one item more, where n of them are there. */
static ls_status grow(void **p, size_t n, size_t nbytes)
{
    if (n > 0 && (n & (n - 1)) != 0) return LS_OK; /* doubled at 1, 2, 4 ... */
    if (nbytes > MOST_BYTES / (2 * n + 1)) return ls_fail(LS_UNSUPPORTED, "a schedule of more than %zu rounds or messages", n);
    void *more = realloc(*p, (n ? 2 * n : 1) * nbytes);
    if (!more) return ls_fail(LS_NO_MEMORY, "%zu rounds or messages", n);
    *p = more;
    return LS_OK;
}

static ls_status note(rounds *x, int from, int to, int l, const ls_step *a, int round)
{
    const message *m = peek(&x->p, from, to, l);
    LS_TRY(grow((void **)&x->out->message, (size_t)x->out->nmessages, sizeof *x->out->message));
    x->out->message[x->out->nmessages++] =
        (ls_round_message){ .round = a->kind == LS_STEP_SUM ? *sent(x, from, to, l) : round, .from = from, .to = to,
                            .lane = l, .src = m->src, .dst = a->dst, .adds = a->kind != LS_STEP_RECV };
    return LS_OK;
}

/* Sends, and what comes before it in the lane. */
static ls_status send_one(rounds *x, int rank, int l, int round, bool *moved)
{
    for (bool once = false; has_next(&x->p, rank, l); *moved = true) {
        const ls_step *a = next(&x->p, rank, l);
        if (a->kind != LS_STEP_SEND && !is_local(a)) return LS_OK;
        if (a->kind == LS_STEP_SEND && once) return LS_OK;
        const ls_status st = ls_prover_step(&x->p, rank, l);
        if (st != LS_OK) return st < 0 ? st : LS_OK;
        if (a->kind == LS_STEP_SEND) *sent(x, rank, a->peer, l) = round, once = true;
    }
    return LS_OK;
}

/* Receives, if the message is there, and what comes right after it. */
static ls_status receive_one(rounds *x, int rank, int l, int round, bool *moved)
{
    for (bool once = false; has_next(&x->p, rank, l); *moved = true) {
        const ls_step *a = next(&x->p, rank, l);
        const bool all = a->kind == LS_STEP_SUM;
        bool ready = true;
        if (a->kind == LS_STEP_SEND || (once && !is_local(a))) return LS_OK;
        for (int q = 0; q < x->p.size; q++)
            if ((all && q != rank) || q == a->peer) ready = ready && peek(&x->p, q, rank, l);
        if (!ready) return LS_OK;
        for (int q = 0; q < x->p.size; q++)
            if ((all && q != rank) || q == a->peer) LS_TRY(note(x, q, rank, l, a, round));
        once = once || !is_local(a);
        const ls_status st = ls_prover_step(&x->p, rank, l);
        if (st != LS_OK) return st < 0 ? st : ls_fail(LS_INTERNAL, "%s: rank %d waits for what is there", x->p.what, rank);
    }
    return LS_OK;
}

/* The counts after a round, one more. */
static ls_status keep(rounds *x, int round)
{
    const prover *p = &x->p;
    const size_t each = (size_t)x->out->nchunks * (size_t)p->size, n = each * (size_t)p->size;
    if (round > MOST_ROUNDS) return ls_fail(LS_UNSUPPORTED, "%s: more than %d rounds", p->what, MOST_ROUNDS);
    if (n == 0) return LS_OK;
    LS_TRY(grow((void **)&x->out->count, (size_t)round, n));
    for (int r = 0; r < p->size; r++)
        memcpy(x->out->count + (size_t)round * n + (size_t)r * each, counts(p, slot(p, r, LS_BUF_OUT, 0)), each);
    return LS_OK;
}

static int by_round(const ls_round_message *a, const ls_round_message *b) { return a->round - b->round; }

/* Insertion keeps the order of equal ones, and nearly all are in order. */
static void sort(ls_rounds *r)
{
    for (int i = 1; i < r->nmessages; i++) {
        const ls_round_message m = r->message[i];
        int at = i;
        for (; at > 0 && by_round(&m, &r->message[at - 1]) < 0; at--) r->message[at] = r->message[at - 1];
        r->message[at] = m;
    }
}

static ls_status run(rounds *x)
{
    const prover *p = &x->p;
    LS_TRY(keep(x, 0));
    for (int round = 1;; round++) {
        bool moved = false;
        const int n = p->size * p->nlanes;
        for (int i = 0; i < n; i++) LS_TRY(send_one(x, i / p->nlanes, i % p->nlanes, round, &moved));
        for (int i = 0; i < n; i++) LS_TRY(receive_one(x, i / p->nlanes, i % p->nlanes, round, &moved));
        if (!moved) break;
        LS_TRY(keep(x, round));
        x->out->n = round;
    }
    sort(x->out);
    return ls_prover_ended(p);
}

ls_status ls_rounds_create(const ls_sched *const *per_rank, int size, ls_rounds *out)
{
    rounds x = { .out = out };
    *out = (ls_rounds){ .size = size, .nchunks = per_rank[0]->nchunks[LS_BUF_OUT] };
    ls_status st = ls_prover_open(&x.p, per_rank, size, false, 1);
    if (st == LS_OK) {
        x.sent = calloc((size_t)(size * size * x.p.nlanes), sizeof *x.sent);
        st = x.sent ? run(&x) : ls_fail(LS_NO_MEMORY, "rounds of %d ranks", size);
    }
    free(x.sent);
    ls_prover_close(&x.p);
    return st;
}

void ls_rounds_free(ls_rounds *r)
{
    free(r->message);
    free(r->count);
    *r = (ls_rounds){ 0 };
}

int ls_rounds_ranks(const ls_rounds *r, int round, int rank, uint32_t c)
{
    int n = 0;
    for (int q = 0; q < r->size; q++) n += ls_rounds_count(r, round, rank, c, q) > 0;
    return n;
}
