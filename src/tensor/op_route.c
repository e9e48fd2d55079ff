/* op_route.c -- a router: which experts compute a token, and with which weights (moe.h).
 *
 *   logits  [B, T, E]    N = B T tokens
 *   p       [N, E]       softmax over E, kept in float
 *   w       [B, T, k]    of the k experts with the largest p (+ bias): p, or p over the sum of the k
 *
 * forward          about 15 flops per logit
 * backward, input  with a = dw of the chosen ones, through the sum where weights are renormalized, and the losses' part
 *                  dlogit_i = p_i (a_i - sum_j a_j p_j) + 2 z lse p_i / N        about 6 flops per logit
 *
 * Tokens are routed one after another, on one thread: E is small.
 *
 * With context parallelism N is this rank's part of all tokens; what was chosen for the others comes by an all_gather.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "lockstep/moe.h"
#include "tensor/collective.h"
#include "tensor/element.h"
#include "tensor/tape_impl.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD  15.0
#define FLOPS_BACKWARD 6.0

typedef struct saved {
    const ls_routing *r;
    float *p;     /* [N, E] */
    float *w;     /* [N, k] the result */
    float *lse;   /* [N] */
    float *share; /* [B, E] f_i of each sequence */
    float tokens; /* of the whole sequences: N, and with context parallelism those of the other ranks, too */
    bool renormalize;
    float aux, z;
} saved;

int64_t ls_moe_capacity(int64_t T, int64_t k, int64_t E, double factor)
{
    if (!(factor > 0)) return T;
    const double c = ceil((double)(T * k) / (double)E * factor - 1e-9);
    return c < 1 ? 1 : c > (double)T ? T : (int64_t)c;
}

int64_t ls_moe_most_rows(int64_t B, int64_t T, int64_t E, int64_t k, int64_t capacity, int ep)
{
    const int64_t here = E / ep, of_token = k < here ? k : here, by_choice = T * of_token, by_place = here * capacity;
    return ep * B * (by_choice < by_place ? by_choice : by_place);
}

/* --- forward -------------------------------------------------------------------------------- */

/* p of one token; returns log of the sum of e^logit. */
static LS_ALWAYS_INLINE float probabilities_of(float *restrict p, const void *logits, int64_t at, int64_t E, bool bf16)
{
    float most = -INFINITY;
    double sum = 0;
    for (int64_t e = 0; e < E; e++) {
        p[e] = ls_get(logits, at + e, bf16);
        most = p[e] > most ? p[e] : most;
    }
    for (int64_t e = 0; e < E; e++) sum += (double)(p[e] = ls_expf(p[e] - most));
    for (int64_t e = 0; e < E; e++) p[e] = (float)((double)p[e] / sum);
    return most + (float)log(sum);
}

/* The k largest of p + bias, of equal ones the lower first. */
static void choose(int32_t *choice, const float *p, const float *bias, int64_t E, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        int32_t best = -1;
        float most = 0;
        for (int32_t e = 0; e < (int32_t)E; e++) {
            const float v = p[e] + (bias ? bias[e] : 0.0f);
            bool taken = false;
            for (int64_t i = 0; i < j; i++) taken |= choice[i] == e;
            if (taken || (best >= 0 && !(v > most))) continue;
            best = e;
            most = v;
        }
        choice[j] = best;
    }
}

/* Those that a rule forces on every token. */
static void force(int32_t *choice, int64_t first, int64_t E, int64_t k)
{
    for (int64_t j = 0; j < k; j++) choice[j] = (int32_t)((first + j) % E);
}

/* An expert has an interval as long as its load on the line from 0 to k. A token takes k points of it, one in each
 * unit, at the fraction of its number times the golden ratio. Of the first n tokens, whatever n is, each expert then
 * has as many as its load says, except for a few. */
static void draw(int32_t *choice, int64_t token, const float *loads, int64_t E, int64_t k)
{
    const double golden = 0.6180339887498949, at = golden * (double)token, point = at - floor(at);
    double sum = 0;
    int64_t j = 0;
    for (int32_t e = 0; e < (int32_t)E && j < k; e++) {
        sum += (double)loads[e];
        if (point + (double)j < sum || E - e == k - j) choice[j++] = e; /* or no more are left than are needed */
    }
}

static bool are_loads(const float *loads, int64_t E, int64_t k)
{
    double sum = 0;
    for (int64_t e = 0; e < E; e++) {
        if (!(loads[e] >= 0 && loads[e] <= 1)) return false;
        sum += (double)loads[e];
    }
    return fabs(sum - (double)k) < 1e-3;
}

static void weigh(float *w, const float *p, const int32_t *choice, int64_t k, bool renormalize)
{
    float sum = 0;
    for (int64_t j = 0; j < k; j++) sum += w[j] = p[choice[j]];
    for (int64_t j = 0; j < k && renormalize; j++) w[j] /= sum;
}

/* A token that wants a place at an expert. */
typedef struct wish {
    float p;
    int32_t at; /* token k + j, within the sequence */
} wish;

static int before(const void *a, const void *b)
{
    const wish *x = a, *y = b;
    if (x->p > y->p || x->p < y->p) return x->p > y->p ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* What was chosen for the tokens of whole sequences. Where these are here, choice and place are the routing's. */
typedef struct choices {
    int64_t T, k, E, capacity;
    int32_t *choice; /* [B, T, k] */
    float *p;        /* [B, T, k] its probability; NULL unless there is a capacity */
    int32_t *place;  /* [B, T, k] 0, or -1 for what an expert has no room for */
} choices;

/* Of sequence b. */
static void drop(const choices *c, int64_t b, bool by_probability, wish *list)
{
    const int64_t n = c->T * c->k;
    for (int64_t e = 0; e < c->E; e++) {
        int64_t wishes = 0;
        for (int32_t i = 0; i < (int32_t)n; i++)
            if (c->choice[b * n + i] == e) list[wishes++] = (wish){ c->p[b * n + i], i };
        if (by_probability && wishes > c->capacity) qsort(list, (size_t)wishes, sizeof *list, before);
        for (int64_t i = c->capacity; i < wishes; i++) c->place[b * n + list[i].at] = -1;
    }
}

/* Rows in the order of experts, then of tokens. */
static void number(ls_routing *r)
{
    int64_t next[LS_MOE_EXPERTS], at = 0;
    const int64_t n = r->B * r->T * r->k;
    memset(r->count, 0, (size_t)r->E * sizeof *r->count);
    for (int64_t i = 0; i < n; i++) r->count[r->choice[i]] += r->place[i] >= 0;
    for (int64_t e = 0; e < r->E; at += r->count[e++]) next[e] = at;
    for (int64_t i = 0; i < n; i++)
        if (r->place[i] >= 0) r->place[i] = (int32_t)next[r->choice[i]]++;
    r->sent = at;
}

/* f_i of each sequence; the losses, and what was chosen and dropped. */
static void add_up(const ls_routing *r, const saved *s, const choices *c, const ls_moe_rule *rule, ls_moe_stats *stats)
{
    const int64_t n = c->T * c->k;
    double aux = 0, z = 0;
    for (int64_t b = 0; b < r->B; b++) {
        float *f = s->share + b * r->E;
        memset(f, 0, (size_t)r->E * sizeof *f);
        for (int64_t i = b * n; i < (b + 1) * n; i++) f[c->choice[i]] += 1.0f;
        for (int64_t e = 0; e < r->E; e++) f[e] /= (float)n;
        for (int64_t i = 0; stats && i < r->T; i++)
            for (int64_t e = 0; e < r->E; e++) aux += (double)f[e] * (double)s->p[(b * r->T + i) * r->E + e];
    }
    if (!stats) return;
    for (int64_t i = 0; i < r->B * r->T; i++) z += (double)s->lse[i] * (double)s->lse[i];
    for (int64_t i = 0; i < r->B * r->T * r->k; i++) {
        stats->chosen[r->choice[i]] += 1;
        stats->dropped[r->choice[i]] += r->place[i] < 0;
    }
    stats->sums[LS_MOE_AUX] += aux * (double)r->E / (double)s->tokens;
    stats->sums[LS_MOE_Z] += z / (double)s->tokens;
    stats->sums[LS_MOE_CALLS] += 1.0 / (rule->tokens ? rule->ncp : 1);
}

static LS_ALWAYS_INLINE void probabilities(const ls_routing *r, const saved *s, const void *logits, bool bf16)
{
    for (int64_t i = 0; i < r->B * r->T; i++)
        s->lse[i] = probabilities_of(s->p + i * r->E, logits, i * r->E, r->E, bf16);
}

/* What ranks of cp tell each other of a choice. */
typedef struct told {
    float p;
    int32_t choice;
} told;
_Static_assert(sizeof(told) == 8, "it travels as a number of 8 bytes");

/* Memory while an op runs. */
typedef struct scratch {
    wish *list;  /* [T k] of a whole sequence; NULL unless there is a capacity */
    told *told;  /* [ncp, B, T / ncp, k]; NULL where sequences are whole */
    choices all; /* of whole sequences: of its own, or the routing's */
} scratch;

/* This rank's choices, into `to`. */
static void tell(const ls_routing *r, const saved *s, told *to)
{
    for (int64_t i = 0; i < r->B * r->T * r->k; i++)
        to[i] = (told){ s->p[i / r->k * r->E + r->choice[i]], r->choice[i] };
}

/* Of a run of tokens of sequence b: where its choices are among those of the whole sequences. */
static int64_t whole_at(const choices *c, int64_t b, int64_t first) { return (b * c->T + first) * c->k; }

/* The order of the tokens in their sequences. */
static void sort_told(const ls_routing *r, const ls_moe_rule *rule, const scratch *w)
{
    const told *from = w->told;
    for (int rank = 0; rank < rule->ncp; rank++)
        for (int64_t b = 0; b < r->B; b++)
            for (int run = 0; run < rule->tokens[rank].n; run++) {
                const int64_t at = whole_at(&w->all, b, rule->tokens[rank].first[run]);
                const int64_t n = rule->tokens[rank].count[run] * r->k;
                for (int64_t i = 0; i < n; i++, from++) {
                    w->all.choice[at + i] = from->choice;
                    w->all.p[at + i] = from->p;
                }
            }
}

/* Of what was dropped, the part of this rank. */
static void take_places(const ls_routing *r, const ls_places *here, const choices *c)
{
    int32_t *place = r->place;
    for (int64_t b = 0; b < r->B; b++)
        for (int run = 0; run < here->n; place += here->count[run++] * r->k)
            memcpy(place, c->place + whole_at(c, b, here->first[run]),
                   (size_t)(here->count[run] * r->k) * sizeof *place);
}

static void choose_all(const ls_routing *r, const saved *s, const ls_tensor *logits, const ls_moe_rule *rule)
{
    LS_BY_DTYPE(logits->dtype, probabilities, r, s, logits->data);
    for (int64_t i = 0; i < r->B * r->T; i++) {
        if (rule->forced > 0) force(r->choice + i * r->k, rule->forced - 1, r->E, r->k);
        else if (rule->loads) draw(r->choice + i * r->k, i, rule->loads, r->E, r->k);
        else choose(r->choice + i * r->k, s->p + i * r->E, rule->bias ? rule->bias->data : NULL, r->E, r->k);
        weigh(s->w + i * r->k, s->p + i * r->E, r->choice + i * r->k, r->k, rule->renormalize);
    }
}

/* What was chosen for all tokens of the sequences. */
static ls_status gather(ls_tape *t, const ls_routing *r, const saved *s, const ls_moe_rule *rule, const scratch *w)
{
    const int64_t mine = r->B * r->T * r->k;
    if (!rule->tokens) {
        for (int64_t i = 0; w->all.p && i < mine; i++) w->all.p[i] = s->p[i / r->k * r->E + r->choice[i]];
        return LS_OK;
    }
    const ls_coll_args a = { .coll = LS_ALL_GATHER,
                             .dtype = LS_I64,
                             .out = w->told,
                             .count = (size_t)(mine * rule->ncp),
                             .label = "choices of experts" };
    if (!ls_tape_dry(t)) tell(r, s, w->told + ls_group_rank(rule->cp) * mine);
    LS_TRY(ls_op_collective(t, rule->cp, &a, true));
    if (!ls_tape_dry(t)) sort_told(r, rule, w);
    return LS_OK;
}

static ls_status forward(ls_tape *t, ls_routing *r, const saved *s, const ls_tensor *logits, const ls_moe_rule *rule,
                         const scratch *w)
{
    ls_moe_stats *stats = t->grad && !t->again ? rule->stats : NULL;
    const choices *c = &w->all;
    if (!ls_tape_dry(t)) choose_all(r, s, logits, rule);
    LS_TRY(gather(t, r, s, rule, w));
    if (ls_tape_dry(t)) return LS_OK;
    memset(c->place, 0, (size_t)(r->B * c->T * c->k) * sizeof *c->place);
    for (int64_t b = 0; rule->capacity > 0 && b < r->B; b++) drop(c, b, rule->by_probability, w->list);
    if (rule->tokens) take_places(r, &rule->tokens[ls_group_rank(rule->cp)], c);
    number(r);
    add_up(r, s, c, rule, stats);
    return LS_OK;
}

/* --- backward -------------------------------------------------------------------------------- */

/* Of token i: the gradient of p, and through the softmax that of the logits, into d. */
static void slopes(const saved *s, int64_t i, const float *dw, float scale, float *d)
{
    const ls_routing *r = s->r;
    const int64_t E = r->E, k = r->k;
    const float *p = s->p + i * E, *w = s->w + i * k, *f = s->share + i / r->T * E;
    const int32_t *choice = r->choice + i * k;
    const float aux = scale * s->aux * (float)E / s->tokens, z = scale * s->z * 2.0f * s->lse[i] / s->tokens;
    float sum = 0, mean = 0, dot = 0;
    for (int64_t j = 0; j < k; j++) sum += p[choice[j]];
    for (int64_t j = 0; j < k; j++) mean += dw[j] * w[j];
    for (int64_t e = 0; e < E; e++) d[e] = aux * f[e];
    for (int64_t j = 0; j < k; j++) d[choice[j]] += s->renormalize ? (dw[j] - mean) / sum : dw[j];
    for (int64_t e = 0; e < E; e++) dot += d[e] * p[e];
    for (int64_t e = 0; e < E; e++) d[e] = p[e] * (d[e] - dot + z);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    const saved *s = n->saved;
    ls_tensor *logits = n->in[0];
    const int64_t E = s->r->E;
    float d[LS_MOE_EXPERTS];
    bool add;
    void *out;
    LS_TRY(ls_grad_begin(t, logits, &add, &out));
    const bool bf16 = logits->dtype == LS_BF16;
    for (int64_t i = 0; !ls_tape_dry(t) && i < s->r->B * s->r->T; i++) {
        slopes(s, i, (const float *)n->out->grad->data + i * s->r->k, t->loss_grad, d);
        for (int64_t e = 0; e < E; e++)
            ls_put(out, i * E + e, d[e] + (add ? ls_get(out, i * E + e, bf16) : 0.0f), bf16);
    }
    return ls_grad_end(t, logits);
}

/* Of the bias, on which no weight depends. */
static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    bool add;
    void *out;
    LS_TRY(ls_grad_begin(t, n->in[1], &add, &out));
    if (!ls_tape_dry(t) && !add) memset(out, 0, ls_tensor_nbytes(n->in[1]));
    return ls_grad_end(t, n->in[1]);
}

static const ls_tape_op route = {
    .name = "route",
    .napplied = 1,
    .backward_weight = backward_weight,
    .backward_input = backward_input,
};

/* --- call ------------------------------------------------------------------------------------ */

static ls_status check(const ls_tape *t, const ls_tensor *logits, const ls_moe_rule *rule)
{
    char shape[96];
    if (logits->ndim != 3 || logits->dim[2] > LS_MOE_EXPERTS)
        return ls_fail(LS_SHAPE, "route: logits %s: expected [B, T, E], E at most %d",
                       ls_tensor_shape(logits, shape, sizeof shape), LS_MOE_EXPERTS);
    if (rule->top_k < 1 || rule->top_k > logits->dim[2] || rule->top_k > LS_MOE_TOP_K)
        return ls_fail(LS_SHAPE, "route: the %lld most probable of %lld experts: expected 1 to %lld",
                       (long long)rule->top_k, (long long)logits->dim[2],
                       (long long)(logits->dim[2] < LS_MOE_TOP_K ? logits->dim[2] : LS_MOE_TOP_K));
    if (!(rule->capacity >= 0))
        return ls_fail(LS_INVALID, "route: a capacity factor of %g: expected 0 (none) or more", rule->capacity);
    if (rule->forced < 0 || rule->forced > logits->dim[2])
        return ls_fail(LS_INVALID, "route: tokens are forced to expert %lld of %lld: expected 0 to %lld",
                       (long long)rule->forced - 1, (long long)logits->dim[2], (long long)logits->dim[2] - 1);
    if (rule->loads && !are_loads(rule->loads, logits->dim[2], rule->top_k))
        return ls_fail(LS_INVALID, "route: loads of %lld experts: expected numbers from 0 to 1 that add up to %lld",
                       (long long)logits->dim[2], (long long)rule->top_k);
    if (rule->bias && ls_tensor_count(rule->bias) != logits->dim[2])
        return ls_fail(LS_SHAPE, "route: a bias %s for %lld experts: expected one number each",
                       ls_tensor_shape(rule->bias, shape, sizeof shape), (long long)logits->dim[2]);
    if (rule->bias) LS_TRY(ls_op_check(t, "route", "bias", rule->bias));
    if (rule->tokens && rule->tokens[0].of != logits->dim[1] * rule->ncp)
        return ls_fail(LS_SHAPE, "route: logits %s of sequences of %lld tokens, on each of %d ranks: expected %lld tokens here",
                       ls_tensor_shape(logits, shape, sizeof shape), (long long)rule->tokens[0].of, rule->ncp,
                       (long long)(rule->tokens[0].of / rule->ncp));
    return ls_op_check_activation(t, "route", "logits", logits);
}

static float *floats(ls_tape *t, int64_t n) { return ls_op_alloc(t, (size_t)n * sizeof(float)); }

/* What backward, and the ops after this one, read. NULL: no room. */
static ls_routing *describe(ls_tape *t, const ls_tensor *logits, const ls_moe_rule *rule, ls_tensor *w, saved *s)
{
    const int64_t B = logits->dim[0], T = logits->dim[1], E = logits->dim[2], k = rule->top_k, N = B * T;
    ls_routing *r = ls_tape_take_node(t, sizeof *r);
    if (!r) return NULL;
    const int64_t whole = rule->tokens ? rule->tokens[0].of : T;
    *r = (ls_routing){ .B = B, .T = T, .E = E, .k = k, .capacity = ls_moe_capacity(whole, k, E, rule->capacity),
                        .alike = rule->alike };
    r->choice = ls_op_alloc(t, (size_t)(N * k) * sizeof *r->choice);
    r->place = ls_op_alloc(t, (size_t)(N * k) * sizeof *r->place);
    r->count = ls_op_alloc(t, (size_t)E * sizeof *r->count);
    *s = (saved){ .r = r,
                  .p = floats(t, N * E),
                  .w = w->data,
                  .lse = floats(t, N),
                  .share = floats(t, B * E),
                  .tokens = (float)(B * whole),
                  .renormalize = rule->renormalize,
                  .aux = (float)rule->aux,
                  .z = (float)rule->z };
    return ls_tape_status(t) < 0 ? NULL : r;
}

/* Memory while the op runs. */
static scratch take_scratch(ls_tape *t, const ls_routing *r, const ls_moe_rule *rule)
{
    const int64_t T = rule->tokens ? rule->tokens[0].of : r->T, n = r->B * T * r->k;
    scratch w = { .all = { T, r->k, r->E, r->capacity, r->choice, NULL, r->place } };
    if (rule->capacity > 0) w.list = ls_op_alloc(t, (size_t)(T * r->k) * sizeof *w.list);
    if (rule->capacity > 0 || rule->tokens) w.all.p = floats(t, n);
    if (!rule->tokens) return w;
    w.told = ls_op_alloc(t, (size_t)n * sizeof *w.told);
    w.all.choice = ls_op_alloc(t, (size_t)n * sizeof *w.all.choice);
    w.all.place = ls_op_alloc(t, (size_t)n * sizeof *w.all.place);
    return w;
}

ls_tensor *ls_route(ls_tape *t, ls_tensor *logits, const ls_moe_rule *rule, ls_routing **out)
{
    *out = NULL;
    if (!ls_op_begin(t, route.name, logits != NULL)) return NULL;
    ls_status st = check(t, logits, rule);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t B = logits->dim[0], T = logits->dim[1], k = rule->top_k;
    ls_tensor *w = ls_op_output(t, LS_F32, 3, (int64_t[]){ B, T, k });
    saved *s = ls_tape_take_node(t, sizeof *s);
    ls_routing *r = w && s ? describe(t, logits, rule, w, s) : NULL;
    if (!r) return NULL;
    const size_t mark = ls_op_mark(t);
    const scratch work = take_scratch(t, r, rule);
    if (ls_tape_status(t) < 0) return NULL;
    if ((st = forward(t, r, s, logits, rule, &work)) < 0) return ls_op_fail(t, st);
    ls_op_release(t, mark);
    *out = r;
    return ls_op_end(t, w,
                     &(struct ls_node){
                         .op = &route,
                         .in = { logits, rule->bias },
                         .saved = s,
                         .label_a = (uint32_t)r->E,
                         .label_b = (uint32_t)k,
                         .flops = FLOPS_FORWARD * (double)ls_tensor_count(logits),
                         .flops_input = FLOPS_BACKWARD * (double)ls_tensor_count(logits),
                     });
}
