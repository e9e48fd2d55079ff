/* program.c -- from the steps of a schedule to operations of the event engine. */
#include "coll/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/team.h"
#include "coll/layout.h"

#define PIECE 16384 /* ranks that are emitted into one piece of memory */
#define LARGE ((size_t)4 << 20) /* bytes from which on memory is mapped, in large pages where there are any */
#define WOVEN 64    /* ranks whose programs are woven: their first operations, then their second ones, ... */
#define LOG2_WOVEN 6
#define MANY  (1 << 16) /* ranks from which on they are */
#define TABLE 1024u /* of costs that are looked up without a search */
#define ALIKE 16    /* different programs of a piece up to which its ranks share them */

/* Costs that a piece uses; at the end all pieces share one table. */
typedef struct costs {
    double *value; /* owned */
    uint32_t n, room, slot[TABLE];
} costs;

/* A program that ranks share: a rank has it if its steps do the same, and name ranks that differ from it in the same
 * bits. */
typedef struct shared_step {
    ls_step_kind kind;
    uint32_t flip;
    size_t amount; /* elements that are sent or added */
} shared_step;

typedef struct shared {
    shared_step *step; /* owned: [n] */
    uint32_t n;
    size_t first;      /* of its operations, in the piece's */
    uint64_t messages;
} shared;

typedef struct piece {
    ls_des_op *op; /* owned, until all are done */
    size_t n, room;
    size_t *first; /* owned: of each process */
    costs cost;
    ls_des_op *scratch; /* owned */
    bool uneven;   /* weaving would take too much memory; or ranks have too many programs to share them */
    shared *alike; /* owned: [ALIKE]; NULL: ranks do not share programs */
    int nalike, last; /* last: that a rank had */
    uint64_t messages;
    ls_status st;
    char why[256];
} piece;

typedef struct maker {
    const ls_algo *a;
    const ls_shape *any;
    const ls_layout *layout;
    double gamma;
    bool weaves, shares;
    piece *piece; /* owned */
} maker;

/* --- costs -------------------------------------------------------------------------------------------- */

static uint32_t hash(double v)
{
    uint64_t x;
    memcpy(&x, &v, sizeof x);
    return (uint32_t)((x ^ x >> 29) * 0x9e3779b97f4a7c15u >> 40) % TABLE;
}

static ls_status cost_of(costs *c, double v, uint32_t *out)
{
    uint32_t *slot = &c->slot[hash(v)];
    if (*slot < c->n && c->value[*slot] == v) {
        *out = *slot;
        return LS_OK;
    }
    for (*slot = 0; *slot < c->n && c->value[*slot] != v;) ++*slot;
    if (*slot == c->n) {
        if (c->n == LS_DES_MOST_COSTS)
            return ls_fail(LS_UNSUPPORTED, "messages of more than %u lengths", LS_DES_MOST_COSTS);
        if (c->n == c->room) {
            double *more = realloc(c->value, (c->room += 64) * sizeof *more);
            if (!more) return ls_fail(LS_NO_MEMORY, "%u lengths of messages", c->room);
            c->value = more;
        }
        c->value[c->n++] = v;
    }
    *out = *slot;
    return LS_OK;
}

/* --- memory ------------------------------------------------------------------------------------------- */

static void release(ls_des_op *op, size_t room)
{
    if (op && room * sizeof *op >= LARGE) ls_env_get()->unmap(op, room * sizeof *op);
    else free(op);
}

static void piece_free(piece *p)
{
    release(p->op, p->room);
    free(p->first);
    free(p->cost.value);
    free(p->scratch);
    for (int i = 0; i < p->nalike; i++) free(p->alike[i].step);
    free(p->alike);
    *p = (piece){ 0 };
}

static ls_status reserve(piece *p, size_t room)
{
    const size_t bytes = room * sizeof *p->op;
    ls_des_op *more = bytes >= LARGE ? ls_env_get()->map_private(bytes) : malloc(bytes);
    if (!more) return ls_fail(LS_NO_MEMORY, "%zu operations", room);
    if (p->n > 0) memcpy(more, p->op, p->n * sizeof *more);
    release(p->op, p->room);
    p->op = more;
    p->room = room;
    return LS_OK;
}

/* --- a rank --------------------------------------------------------------------------------------------- */

static ls_status put(piece *to, ls_des_kind kind, uint32_t who, double cost)
{
    uint32_t i = 0;
    LS_TRY(cost_of(&to->cost, cost, &i));
    if (to->n == to->room) LS_TRY(reserve(to, to->room ? to->room + to->room / 2 : 4096));
    to->op[to->n++] = ls_des_op_of(kind, who, 0, i);
    return LS_OK;
}

static double sum_of(const maker *m, const ls_step *a)
{
    return m->gamma > 0 ? m->gamma * (double)ls_layout_count(m->layout, a->dst) : 0;
}

static ls_status step(const maker *m, piece *to, const ls_sched *s, int lane, const ls_step *a)
{
    const uint32_t lanes = (uint32_t)m->any->nlanes, peer = (uint32_t)a->peer * lanes + (uint32_t)lane;
    switch (a->kind) {
    case LS_STEP_SEND:
        to->messages++;
        return put(to, LS_DES_SEND, peer, (double)ls_layout_count(m->layout, a->src));
    case LS_STEP_RECV: return put(to, LS_DES_RECV, peer, 0);
    case LS_STEP_RECV_REDUCE: return put(to, LS_DES_RECV, peer, sum_of(m, a));
    case LS_STEP_REDUCE: return put(to, LS_DES_WORK, 0, sum_of(m, a));
    case LS_STEP_COPY: return LS_OK;
    case LS_STEP_SUM:
        for (int q = 0; q < s->shape.size; q++)
            if (q != s->shape.rank) LS_TRY(put(to, LS_DES_RECV, (uint32_t)q * lanes + (uint32_t)lane, 0));
        return put(to, LS_DES_WORK, 0, sum_of(m, a) * (s->shape.size + 1) / 3.0);
    default:
        return ls_fail(LS_UNSUPPORTED, "algorithm '%s' works on memory that all ranks map: no messages to simulate",
                       m->a->name);
    }
}

/* Emits into s, which is used again and again. */
static ls_status emit(const maker *m, ls_sched *s, int r)
{
    s->shape = *m->any;
    s->shape.rank = r;
    memset(s->nchunks, 0, sizeof s->nchunks);
    for (int l = 0; l < s->shape.nlanes; l++) s->lane[l].n = 0;
    return m->a->emit(s, &s->shape);
}

static ls_status rank(const maker *m, piece *to, ls_sched *s, int r, size_t *first)
{
    LS_TRY(emit(m, s, r));
    for (int l = 0; l < s->shape.nlanes; l++) {
        first[l] = to->n;
        for (uint32_t i = 0; i < s->lane[l].n; i++) LS_TRY(step(m, to, s, l, &s->lane[l].step[i]));
        LS_TRY(put(to, LS_DES_END, 0, 0));
    }
    return LS_OK;
}

/* --- programs that ranks share ---------------------------------------------------------------------------- */

static LS_ALWAYS_INLINE shared_step shared_of(const maker *m, int r, const ls_step *a)
{
    const bool adds = (a->kind == LS_STEP_RECV_REDUCE || a->kind == LS_STEP_REDUCE) && m->gamma > 0;
    return (shared_step){ a->kind, a->peer < 0 ? 0 : (uint32_t)(a->peer ^ r),
                          a->kind == LS_STEP_SEND ? ls_layout_count(m->layout, a->src)
                              : adds ? ls_layout_count(m->layout, a->dst) : 0 };
}

static bool is_alike(const maker *m, int r, const ls_lane *l, const shared *x)
{
    if (l->n != x->n) return false;
    for (uint32_t i = 0; i < x->n; i++) {
        const shared_step a = shared_of(m, r, &l->step[i]), *b = &x->step[i];
        if (a.kind != b->kind || a.flip != b->flip || a.amount != b->amount) return false;
    }
    return true;
}

static ls_status add_alike(const maker *m, piece *to, const ls_sched *s, int r)
{
    const ls_lane *l = &s->lane[0];
    const uint64_t before = to->messages;
    if (to->nalike == ALIKE) {
        to->uneven = true;
        return LS_OK;
    }
    shared *x = &to->alike[to->nalike];
    *x = (shared){ .step = malloc(((size_t)l->n + 1) * sizeof *x->step), .first = to->n };
    if (!x->step) return ls_fail(LS_NO_MEMORY, "a program of %u steps", l->n);
    to->last = to->nalike++;
    for (; x->n < l->n; x->n++) {
        ls_step a = l->step[x->n];
        x->step[x->n] = shared_of(m, r, &a);
        if (a.kind == LS_STEP_SUM) to->uneven = true; /* it names all ranks, in their order */
        if (a.peer >= 0) a.peer ^= r;
        LS_TRY(step(m, to, s, 0, &a));
    }
    x->messages = to->messages - before;
    to->messages = before;
    return put(to, LS_DES_END, 0, 0);
}

/* The rank's program is one that a rank of the piece has, or another. */
static ls_status rank_alike(const maker *m, piece *to, ls_sched *s, int r, size_t *first)
{
    LS_TRY(emit(m, s, r));
    int i = to->last;
    if (i >= to->nalike || !is_alike(m, r, &s->lane[0], &to->alike[i]))
        for (i = 0; i < to->nalike && !is_alike(m, r, &s->lane[0], &to->alike[i]);) i++;
    to->last = i;
    if (i == to->nalike) LS_TRY(add_alike(m, to, s, r));
    if (to->uneven) return LS_OK;
    *first = to->alike[to->last].first;
    to->messages += to->alike[to->last].messages;
    return LS_OK;
}

/* --- pieces ------------------------------------------------------------------------------------------------ */

/* The programs of the n ranks that were put last, which begin at first[]; shorter ones get more ENDs. */
static ls_status weave(piece *to, size_t *first, int n)
{
    const size_t begin = first[0], all = to->n - begin;
    size_t longest = 0, length[WOVEN];
    for (int k = 0; k < n; k++) {
        length[k] = (k + 1 < n ? first[k + 1] : to->n) - first[k];
        longest = length[k] > longest ? length[k] : longest;
    }
    if (longest * WOVEN > 2 * all + 4096) {
        to->uneven = true;
        return LS_OK;
    }
    ls_des_op *copy = realloc(to->scratch, all * sizeof *copy);
    if (!copy) return ls_fail(LS_NO_MEMORY, "%zu operations", all);
    memcpy(to->scratch = copy, to->op + begin, all * sizeof *copy);
    to->n = begin;
    if (to->room < begin + longest * WOVEN) LS_TRY(reserve(to, begin + longest * WOVEN + to->room / 4));
    for (size_t i = 0; i < longest; i++)
        for (int k = 0; k < WOVEN; k++)
            to->op[to->n++] = k < n && i < length[k] ? copy[first[k] - begin + i] : ls_des_op_of(LS_DES_END, 0, 0, 0);
    for (int k = 0; k < n; k++) first[k] = begin + (size_t)k;
    return LS_OK;
}

static ls_status make_ranks(const maker *m, piece *to, ls_sched *s, int begin, int end)
{
    const int lanes = m->any->nlanes;
    for (int r = begin; r < end; r++) {
        LS_TRY(rank(m, to, s, r, to->first + (size_t)(r - begin) * (size_t)lanes));
        /* Others of the piece take about as much. */
        if (r == begin) LS_TRY(reserve(to, (to->n + 1) * (size_t)(end - begin)));
        const int group = (r - begin) % WOVEN + 1;
        if (m->weaves && !to->uneven && (group == WOVEN || r == end - 1))
            LS_TRY(weave(to, to->first + (r - begin) - (group - 1), group));
    }
    return LS_OK;
}

static ls_status make_alike(const maker *m, piece *to, ls_sched *s, int begin, int end)
{
    to->alike = calloc(ALIKE, sizeof *to->alike);
    if (!to->alike) return ls_fail(LS_NO_MEMORY, "the programs of %d ranks", end - begin);
    for (int r = begin; r < end && !to->uneven; r++) LS_TRY(rank_alike(m, to, s, r, to->first + (r - begin)));
    return LS_OK;
}

static void make_piece(void *arg, int64_t i)
{
    const maker *m = arg;
    piece *to = &m->piece[i];
    const int lanes = m->any->nlanes, begin = (int)i * PIECE, left = m->any->size - begin;
    const int end = begin + (left < PIECE ? left : PIECE);
    ls_sched s = { 0 };
    to->first = malloc((size_t)(end - begin) * (size_t)lanes * sizeof *to->first);
    if (!to->first) to->st = ls_fail(LS_NO_MEMORY, "the programs of %d ranks", end - begin);
    else to->st = m->shares ? make_alike(m, to, &s, begin, end) : make_ranks(m, to, &s, begin, end);
    if (to->st < 0) strncpy(to->why, ls_last_error(), sizeof to->why - 1);
    ls_sched_free(&s);
}

/* Whether all pieces were made as they were to be; if not, nothing is left of them. */
static bool make_pieces(maker *m, int pieces)
{
    bool uneven = false;
    ls_team_run(make_piece, m, pieces);
    for (int i = 0; i < pieces; i++) uneven = uneven || (m->piece[i].uneven && m->piece[i].st == LS_OK);
    for (int i = 0; uneven && i < pieces; i++) piece_free(&m->piece[i]);
    return !uneven;
}

/* --- all -------------------------------------------------------------------------------------------------- */

/* One table of costs, and where each process begins. */
static ls_status join(const maker *m, ls_coll_program *out)
{
    costs all = { 0 };
    ls_status st = LS_OK;
    uint32_t p = 0;
    for (int i = 0; st == LS_OK && i < out->pieces; i++) {
        piece *from = &m->piece[i];
        uint32_t *as = malloc((from->cost.n + 1) * sizeof *as);
        bool moved = false;
        if (!as) st = ls_fail(LS_NO_MEMORY, "%u lengths of messages", from->cost.n);
        for (uint32_t k = 0; st == LS_OK && k < from->cost.n; k++) {
            st = cost_of(&all, from->cost.value[k], &as[k]);
            moved = moved || as[k] != k;
        }
        for (size_t k = 0; st == LS_OK && moved && k < from->n; k++) from->op[k].cost = as[from->op[k].cost] & 0xfffffu;
        const int ranks = m->any->size - i * PIECE < PIECE ? m->any->size - i * PIECE : PIECE;
        for (int k = 0; st == LS_OK && k < ranks * m->any->nlanes; k++) out->program[p++] = from->op + from->first[k];
        out->messages += from->messages;
        out->memory[i] = from->op;
        out->room[i] = from->room;
        from->op = NULL;
        free(as);
    }
    out->cost = all.value;
    out->ncosts = all.n;
    return st;
}

static ls_status make(maker *m, ls_coll_program *out)
{
    const size_t n = (size_t)m->any->size * (size_t)m->any->nlanes;
    if (n > LS_DES_MOST_PROCESSES)
        return ls_fail(LS_UNSUPPORTED, "%zu lanes of ranks: expected at most %u", n, LS_DES_MOST_PROCESSES);
    out->n = (uint32_t)n;
    out->pieces = (m->any->size + PIECE - 1) / PIECE;
    out->program = malloc(n * sizeof *out->program);
    out->memory = calloc((size_t)out->pieces, sizeof *out->memory);
    out->room = calloc((size_t)out->pieces, sizeof *out->room);
    out->place = m->any->nlanes > 1 ? malloc(n * sizeof *out->place) : NULL;
    m->piece = calloc((size_t)out->pieces, sizeof *m->piece);
    if (!out->program || !out->memory || !out->room || !m->piece || (m->any->nlanes > 1 && !out->place))
        return ls_fail(LS_NO_MEMORY, "the programs of %zu lanes", n);
    for (size_t i = 0; out->place && i < n; i++) out->place[i] = (uint32_t)(i / (size_t)m->any->nlanes);
    const bool many = m->any->nlanes == 1 && m->any->size >= MANY;
    m->shares = many && (m->any->size & (m->any->size - 1)) == 0;
    if (!m->shares || !make_pieces(m, out->pieces)) {
        m->shares = false;
        m->weaves = many;
        if (!make_pieces(m, out->pieces)) {
            m->weaves = false;
            make_pieces(m, out->pieces);
        }
    }
    out->flips = m->shares;
    out->log2_stride = m->weaves ? LOG2_WOVEN : 0;
    for (int i = 0; i < out->pieces; i++)
        if (m->piece[i].st < 0) return ls_fail(m->piece[i].st, "%s", m->piece[i].why);
    return join(m, out);
}

ls_status ls_coll_program_create(const ls_algo *a, const ls_shape *any, size_t nbytes, double gamma_s,
                                 ls_coll_program *out)
{
    maker m = { .a = a, .any = any, .gamma = gamma_s };
    ls_shape first = *any;
    ls_layout layout;
    ls_sched s = { 0 };
    *out = (ls_coll_program){ 0 };
    first.rank = 0;
    if (!(a->colls & 1u << any->coll) || (a->fits && !a->fits(any)))
        return ls_fail(LS_INVALID, "algorithm '%s' does not fit %s over %d ranks", a->name, ls_coll_name(any->coll),
                       any->size);
    s.shape = first;
    ls_status st = a->emit(&s, &first);
    if (st == LS_OK) st = ls_layout_create(&s, &layout);
    if (st == LS_OK) {
        ls_layout_set(&layout, nbytes);
        m.layout = &layout;
        st = make(&m, out);
        for (int i = 0; m.piece && i < out->pieces; i++) piece_free(&m.piece[i]);
        free(m.piece);
        ls_layout_free(&layout);
    }
    ls_sched_free(&s);
    if (st < 0) ls_coll_program_free(out);
    return st;
}

void ls_coll_program_free(ls_coll_program *p)
{
    for (int i = 0; p->memory && p->room && i < p->pieces; i++) release(p->memory[i], p->room[i]);
    free(p->memory);
    free(p->room);
    free(p->program);
    free(p->place);
    free(p->cost);
    *p = (ls_coll_program){ 0 };
}

void ls_coll_program_model(const ls_coll_program *p, ls_des_model *out)
{
    *out = (ls_des_model){ .n = p->n, .program = (const ls_des_op *const *)p->program, .log2_stride = p->log2_stride,
                           .flips = p->flips, .place = p->place, .cost = p->cost, .ncosts = p->ncosts };
}
