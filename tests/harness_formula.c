/* harness_formula.c -- how many bytes each rank sends and receives, and in how many rounds, by the formulas of the
 * literature. Written from the descriptions of the algorithms, not from their schedules or forms: an oracle for what
 * these say of themselves (ls_form.traffic, ls_sched_traffic), and for the library's counter.
 *
 * n ranks, a vector of S elements; v is a rank's number counted from the root. Where a vector does not divide, shares
 * are those of ls_shard_range, and pieces of shares likewise.
 */
#include "harness_formula.h"

#include <string.h>

#include "lockstep/shard.h"

#define LINE_BYTES 64 /* shares of a fold end where cache lines do */

typedef struct sum {
    const ls_bench_case *c;
    int n, rank, v, segments; /* segments: pieces of a share, which move one by one */
    const int *node;
    size_t all, own, block;   /* elements: of the vector, of the own share, of the own block (all_to_all) */
    size_t sent, received;
    int rounds;
} sum;

/* --- parts of a vector -------------------------------------------------------------------------- */

static size_t part(size_t count, int i, int n)
{
    ls_range r;
    return ls_shard_range(count, i, n, &r) == LS_OK ? r.count : 0;
}

static int wrap(int i, int n) { return (i % n + n) % n; }

/* Of rank r, counted modulo n. */
static size_t share(const sum *s, int r)
{
    r = wrap(r, s->n);
    return s->c->each ? ls_bench_share(s->c, 0, r) : part(s->c->count, r, s->n);
}

static size_t shares(const sum *s, int first, int n)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) total += share(s, first + i);
    return total;
}

/* Chunks first .. first + n - 1 of every run, where the pieces of all shares, in order, are cut into runs of n. */
static size_t chunks(const sum *s, int first, int n)
{
    size_t total = 0;
    for (int run = 0; run < s->segments; run++)
        for (int i = run * s->n + first; i < run * s->n + first + n; i++)
            total += part(share(s, i / s->segments), i % s->segments, s->segments);
    return total;
}

static int log2_up(int n)
{
    int k = 0;
    while (1 << k < n) k++;
    return k;
}

static void both(sum *s, size_t sent, size_t received, int rounds)
{
    s->sent += sent;
    s->received += received;
    s->rounds += rounds;
}

static void turn_round(sum *s) /* the same way back */
{
    size_t sent = s->sent;
    s->sent = s->received;
    s->received = sent;
}

/* --- everyone alike ------------------------------------------------------------------------------- */

/* Phase one leaves rank r with share r; in phase two it goes round. */
static void ring(sum *s, size_t own, size_t after, size_t before)
{
    ls_coll coll = s->c->coll;
    if (coll != LS_ALL_GATHER) both(s, s->all - own, s->all - before, s->n - 1);
    if (coll != LS_REDUCE_SCATTER) both(s, s->all - after, s->all - own, s->n - 1);
}

/* Gloo's cut: segments of a MiB, at least two a rank and as many for each; so the last shares are shorter. */
static size_t gloo_share(const sum *s, int r)
{
    size_t elem = ls_dtype_size(s->c->dtype), bytes = s->all * elem, n = (size_t)s->n;
    size_t per_rank = (((bytes + (1u << 20) - 1) >> 20) + n - 1) / n;
    if (per_rank < 2) per_rank = 2;
    size_t segment = ((bytes + n * per_rank - 1) / (n * per_rank) + elem - 1) / elem, most = segment * per_rank;
    size_t first = (size_t)wrap(r, s->n) * most;
    return first >= s->all ? 0 : s->all - first < most ? s->all - first : most;
}

/* One round each for a sum of the own share, and for its way to everybody. */
static void direct(sum *s, size_t own)
{
    size_t others = (size_t)s->n - 1;
    if (s->c->coll == LS_ALL_TO_ALL) {
        size_t in = 0;
        for (int r = 0; r < s->n; r++) in += s->c->each ? ls_bench_share(s->c, r, s->rank) : share(s, r);
        both(s, s->all - s->block, in - s->block, 1);
        return;
    }
    if (s->c->coll != LS_ALL_GATHER) both(s, s->all - own, others * own, 1);
    if (s->c->coll != LS_REDUCE_SCATTER) both(s, others * own, s->all - own, 1);
}

/* What a rank sums in memory: whole cache lines. */
static size_t lines(const sum *s, int rank)
{
    size_t unit = LINE_BYTES / ls_dtype_size(s->c->dtype);
    ls_range r;
    if (ls_shard_range((s->all + unit - 1) / unit, rank, s->n, &r) < 0) return 0;
    size_t first = r.first * unit, left = first < s->all ? s->all - first : 0;
    return left < r.count * unit ? left : r.count * unit;
}

/* Sums in memory: whoever sums reads the others' parts of a share, and writes the result where it is wanted. */
static void fold(sum *s)
{
    size_t others = (size_t)s->n - 1, mine = s->c->coll == LS_REDUCE_SCATTER ? s->own : lines(s, s->rank), written = 0;
    if (s->c->coll == LS_ALL_REDUCE) written = others;
    if (s->c->coll == LS_REDUCE) written = s->rank != s->c->root;
    both(s, (others + written) * mine, (others + written) * mine, 1);
}

/* The same through slots: the result is read where it is wanted. */
static void staged(sum *s)
{
    bool wanted = s->c->coll == LS_ALL_REDUCE || (s->c->coll == LS_REDUCE && s->v == 0);
    size_t mine = s->c->coll == LS_REDUCE_SCATTER ? s->own : lines(s, s->rank), moved = (size_t)(s->n - 1) * mine;
    if (wanted) moved += s->all - mine;
    both(s, moved, moved, 1 + wanted);
}

/* --- powers of two ------------------------------------------------------------------------------------ */

/* size = power + extra: the first extra odd ranks each speak for the even one before them. */
typedef struct pairs { int power, extra, v; } pairs;

static pairs pairs_of(const sum *s)
{
    pairs p = { .power = 1 << (log2_up(s->n + 1) - 1) };
    p.extra = s->n - p.power;
    p.v = s->rank >= 2 * p.extra ? s->rank - p.extra : s->rank % 2 ? s->rank / 2 : -1;
    return p;
}

static bool speaks_for_two(const pairs *p) { return p->v >= 0 && p->v < p->extra; }

/* Elements of what virtual ranks first .. first + n - 1 stand for. */
static size_t spoken(const sum *s, const pairs *p, int first, int n)
{
    int a = first < p->extra ? 2 * first : first + p->extra, end = first + n;
    int b = end < p->extra ? 2 * end : end + p->extra;
    return s->c->coll == LS_ALL_REDUCE ? chunks(s, a, b - a) : shares(s, a, b - a);
}

/* Own block, then twice as much, and so on. */
static void doubling(sum *s, const pairs *p)
{
    for (int d = 1; d < p->power; d *= 2) {
        int mine = p->v & ~(d - 1);
        both(s, spoken(s, p, mine, d), spoken(s, p, mine ^ d, d), 1);
    }
}

static void halving(sum *s, const pairs *p)
{
    for (int d = p->power / 2; d >= 1; d /= 2) {
        int kept = p->v & ~(d - 1);
        both(s, spoken(s, p, kept ^ d, d), spoken(s, p, kept, d), 1);
    }
}

static void gather_by_doubling(sum *s)
{
    pairs p = pairs_of(s);
    if (p.v < 0) {
        both(s, s->own, s->all, 2 + log2_up(p.power));
        return;
    }
    if (speaks_for_two(&p)) both(s, s->all, share(s, s->rank - 1), 0);
    doubling(s, &p);
    s->rounds += p.extra ? 2 : 0;
}

static void recursive_doubling(sum *s)
{
    if (s->c->coll == LS_ALL_GATHER) {
        gather_by_doubling(s);
        return;
    }
    pairs p = pairs_of(s);
    size_t rounds = (size_t)log2_up(p.power), times = p.v < 0 ? 1 : rounds + speaks_for_two(&p);
    both(s, times * s->all, times * s->all, (int)rounds + (p.extra ? 2 : 0));
}

static void halving_doubling(sum *s)
{
    if (s->c->coll == LS_ALL_GATHER) {
        gather_by_doubling(s);
        return;
    }
    pairs p = pairs_of(s);
    bool whole = s->c->coll == LS_ALL_REDUCE;
    s->rounds = p.extra ? 2 : 0;
    if (p.v < 0) {
        both(s, whole ? s->all : s->all - s->own, whole ? s->all : s->own, log2_up(p.power) * (whole ? 2 : 1));
        return;
    }
    if (speaks_for_two(&p)) {
        size_t even = share(s, s->rank - 1);
        both(s, whole ? s->all : even, whole ? s->all : s->all - even, 0);
    }
    halving(s, &p);
    if (whole) doubling(s, &p);
}

/* --- trees, lines and stars ----------------------------------------------------------------------------- */

/* Children of number v of n in a binomial tree: v + 1, v + 2, v + 4 ... below v's lowest bit. */
static int children(int v, int n)
{
    int k = 0;
    for (int d = 1; v + d < n && (v == 0 || d < (v & -v)); d *= 2) k++;
    return k;
}

static void tree(sum *s)
{
    ls_coll coll = s->c->coll;
    int low = s->v & -s->v, below = s->v == 0 || low > s->n - s->v ? s->n - s->v : low;
    s->rounds = log2_up(s->n);
    if (coll == LS_BARRIER) s->rounds *= 2;
    else if (coll == LS_BROADCAST || coll == LS_REDUCE)
        both(s, (size_t)children(s->v, s->n) * s->all, s->v ? s->all : 0, 0);
    else both(s, shares(s, s->rank, below) - s->own, s->v ? shares(s, s->rank, below) : 0, 0);
    if (coll == LS_REDUCE || coll == LS_GATHER) turn_round(s);
}

/* Nodes 1 .. m of a binary tree in order, 0 above it: odd ones are leaves, the others have a left child, and
 * a right one unless they are the last. */
static size_t in_order_children(int v, int m) { return v == 0 ? m > 0 : v % 2 ? 0 : 1 + (size_t)(v < m); }

static void double_tree(sum *s)
{
    bool whole = s->c->coll == LS_ALL_REDUCE;
    int m = s->n - 1, v = whole ? s->rank : s->v, second = v == 0 ? 0 : m % 2 ? v % m + 1 : m + 1 - v;
    size_t half = 0;
    if (whole) half = chunks(s, 0, s->n / 2);
    else
        for (int i = 0; i < s->segments; i += 2) half += part(s->all, i, s->segments);
    size_t down = in_order_children(v, m) * half + in_order_children(second, m) * (s->all - half), up = v ? s->all : 0;
    both(s, down, up, log2_up(s->n) + s->segments);
    if (whole) both(s, up, down, log2_up(s->n) + s->segments);
    if (s->c->coll == LS_REDUCE) turn_round(s);
}

static void chain(sum *s)
{
    both(s, s->v < s->n - 1 ? s->all : 0, s->v > 0 ? s->all : 0, s->n - 2 + s->segments);
    if (s->c->coll == LS_REDUCE) turn_round(s);
}

static void linear(sum *s)
{
    ls_coll coll = s->c->coll;
    size_t others = (size_t)s->n - 1;
    if (coll == LS_BROADCAST || coll == LS_REDUCE) both(s, s->v ? 0 : others * s->all, s->v ? s->all : 0, 1);
    else both(s, s->v ? 0 : s->all - s->own, s->v ? s->own : 0, 1);
    if (coll == LS_REDUCE || coll == LS_GATHER) turn_round(s);
}

static void master(sum *s)
{
    size_t others = (size_t)s->n - 1, in = s->c->coll == LS_ALL_GATHER ? s->own : s->all;
    if (s->c->coll == LS_BROADCAST || s->c->coll == LS_REDUCE) linear(s);
    else if (s->rank) both(s, in, s->all, 2);
    else both(s, others * s->all, s->c->coll == LS_ALL_GATHER ? s->all - s->own : others * s->all, 2);
}

static void bruck(sum *s)
{
    for (int d = 1; d < s->n; d *= 2) {
        int blocks = 0;
        for (int i = 1; i < s->n; i++) blocks += (i & d) != 0;
        int m = d < s->n - d ? d : s->n - d;
        if (s->c->coll == LS_ALL_TO_ALL) both(s, (size_t)blocks * s->block, (size_t)blocks * s->block, 1);
        else both(s, shares(s, s->rank, m), shares(s, s->rank + d, m), 1);
    }
}

/* --- hosts --------------------------------------------------------------------------------------------- */

static int host(const sum *s, int r) { return s->node ? s->node[r] : 0; }
static int number_on_host(const sum *s, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++) place += host(s, r) == host(s, rank);
    return place;
}

static int ranks_on(const sum *s, int node)
{
    int n = 0;
    for (int r = 0; r < s->n; r++) n += host(s, r) == node;
    return n;
}

static int hosts(const sum *s)
{
    int n = 1;
    for (int r = 0; r < s->n; r++) n = host(s, r) >= n ? host(s, r) + 1 : n;
    return n;
}

/* Whether we are who has rank r's share on our host: r itself, or the rank with its number. */
static bool keeps(const sum *s, int r)
{
    if (host(s, r) == host(s, s->rank)) return r == s->rank;
    return number_on_host(s, r) % ranks_on(s, host(s, s->rank)) == number_on_host(s, s->rank);
}

static void hierarchical_sum(sum *s, int here, int n, int hs)
{
    int place = number_on_host(s, s->rank), mine = 0;
    size_t own = 0;
    for (int i = 0; i < s->n; i++) {
        if (i * n / s->n != place) continue;
        size_t chunk = chunks(s, i, 1);
        own += chunk;
        mine++;
        bool starts = i % hs == here, ends = i % hs == wrap(here + 1, hs), before = i % hs == wrap(here - 1, hs);
        if (hs == 1) continue;
        both(s, (size_t)(!starts + !ends) * chunk, (size_t)(!before + !starts) * chunk, 0);
    }
    both(s, s->all - own + (size_t)(n - 1) * own, (size_t)(n - 1) * own + s->all - own, 2 * (n - 1) + 2 * (hs - 1));
}

static void hierarchical_shares(sum *s, int here, int n, int hs)
{
    size_t kept = 0;
    for (int r = 0; r < s->n; r++) {
        if (!keeps(s, r)) continue;
        int away = wrap(here - host(s, r), hs);
        kept += share(s, r);
        both(s, away < hs - 1 ? share(s, r) : 0, away > 0 ? share(s, r) : 0, 0);
    }
    both(s, (size_t)(n - 1) * kept, s->all - kept, n - 1 + hs - 1);
    if (s->c->coll == LS_REDUCE_SCATTER) turn_round(s);
}

static void hierarchical(sum *s)
{
    int here = host(s, s->rank), n = ranks_on(s, here), hs = hosts(s), home = host(s, s->c->root);
    if (s->c->coll == LS_ALL_REDUCE) {
        hierarchical_sum(s, here, n, hs);
    } else if (s->c->coll == LS_ALL_GATHER || s->c->coll == LS_REDUCE_SCATTER) {
        hierarchical_shares(s, here, n, hs);
    } else {
        int head = here == home ? number_on_host(s, s->c->root) : 0, v = wrap(number_on_host(s, s->rank) - head, n);
        int across = v ? 0 : children(wrap(here - home, hs), hs);
        size_t below = (size_t)(children(v, n) + across);
        both(s, below * s->all, s->rank != s->c->root ? s->all : 0, log2_up(n) + log2_up(hs));
        if (s->c->coll == LS_REDUCE) turn_round(s);
    }
}

/* --- by name --------------------------------------------------------------------------------------------- */

static bool reckon(sum *s, const char *algo)
{
    ls_coll coll = s->c->coll;
    bool sums = coll == LS_ALL_REDUCE || coll == LS_REDUCE_SCATTER || coll == LS_REDUCE;
    bool rooted = coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER;
#define IS(name) (strcmp(algo, name) == 0)
    if (coll == LS_SENDRECV) both(s, s->all, s->all, 1);
    else if (IS("dissemination")) s->rounds = log2_up(s->n);
    else if (IS("ring")) ring(s, s->own, share(s, s->rank + 1), share(s, s->rank - 1));
    else if (IS("ring-gloo")) ring(s, gloo_share(s, s->rank), gloo_share(s, s->rank - 1), gloo_share(s, s->rank + 1));
    else if (IS("recursive_doubling")) recursive_doubling(s);
    else if (IS("halving_doubling")) halving_doubling(s);
    else if (IS("tree")) tree(s);
    else if (IS("double_tree")) double_tree(s);
    else if (IS("chain")) chain(s);
    else if (IS("hierarchical")) hierarchical(s);
    else if (IS("master")) master(s);
    else if (IS("bruck")) bruck(s);
    else if (IS("pairwise")) direct(s, s->own), s->rounds = s->n - 1;
    else if (IS("fold") && sums) fold(s);
    else if (IS("staged") && sums) staged(s);
    else if (IS("oneshot") && coll == LS_BARRIER) s->rounds = 1;
    else if (IS("oneshot") && coll == LS_ALL_REDUCE)
        both(s, (size_t)(s->n - 1) * s->all, (size_t)(s->n - 1) * s->all, 1);
    else if (rooted && (IS("linear") || IS("oneshot") || IS("mail") || IS("staged"))) linear(s);
    else if (rooted && IS("rooted")) {
        linear(s);
        if (coll == LS_GATHER) s->received = s->sent; /* everyone writes its share into the root's memory */
    } else if (!rooted && (IS("direct") || IS("oneshot") || IS("fold") || IS("staged") || IS("attached"))) direct(s, s->own);
    else return false;
#undef IS
    return true;
}

bool ls_test_formula(const ls_bench_case *c, int rank, const ls_test_ran *ran, ls_test_moved *out)
{
    sum s = { .c = c, .n = c->size, .rank = rank, .v = wrap(rank - c->root, c->size), .all = c->count,
              .node = ran->node, .segments = ran->segments > 1 ? ran->segments : 1 };
    *out = (ls_test_moved){ 0 };
    if (c->size == 1) return true;
    s.own = c->coll == LS_ALL_TO_ALL ? 0 : share(&s, rank);
    s.block = c->coll == LS_ALL_TO_ALL ? ls_bench_share(c, rank, rank) : 0;
    if (!reckon(&s, ran->algo)) return false;
    size_t elem = ls_dtype_size(c->dtype);
    *out = (ls_test_moved){ s.sent * elem, s.received * elem, s.rounds };
    return true;
}
