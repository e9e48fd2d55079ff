/* explain_tp.c -- tensor and sequence parallelism: a layer with the real shapes of its parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/explain_topic.h"

static const char *const plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                    "train.global_batch", "8", "train.micro_batch", "1",
                                    "optim.name", "adamw", NULL };

static const char *const wide_plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                         "train.global_batch", "8", "train.micro_batch", "1", "optim.name", "adamw",
                                         "parallel.tp", "4", "parallel.sp", "true", NULL };

static const char *divide_layers(ls_train_config *c)
{
    if (c->parallel.tp > 1) return NULL;
    c->parallel.tp = 2;
    return "parallel.tp 2";
}

static const char *divide_sequences_too(ls_train_config *c)
{
    const bool there = c->parallel.tp > 1 && c->parallel.sp;
    (void)divide_layers(c);
    c->parallel.sp = true;
    return there ? NULL : c->parallel.tp == 2 ? "parallel.tp 2 and parallel.sp true" : "parallel.sp true";
}

/* --- a layer  ----------------------------------------------------------------------------------------------- */

static const char *shape(const int64_t *dim, int n, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (at < size) snprintf(buf + at, size - at, "]");
    return buf;
}

/* A matrix [out, in] of the first layer: its columns of the product are its rows. */
static const char *cut_of(const ls_explain_param *p)
{
    const int first = p->ndim - 2;
    if (p->here[first] < p->whole[first]) return "columns";
    return p->here[first + 1] < p->whole[first + 1] ? "rows" : NULL;
}

/* Whether it is of the layer after which the picture is: the first one that has divided matrices. */
static bool of_layer(const ls_explain_param *p, char layer[LS_NAME_BYTES])
{
    const char *at = p->name;
    while (*at && !(at[0] == '.' && at[1] >= '0' && at[1] <= '9')) at++;
    if (!*at || p->ndim < 2 || !cut_of(p)) return false;
    const size_t n = (size_t)(at - p->name) + 1 + strcspn(at + 1, ".");
    if (!*layer) snprintf(layer, LS_NAME_BYTES, "%.*s", (int)n, p->name);
    return strncmp(layer, p->name, n) == 0 && layer[n] == 0;
}

static const char *last_words(const char *name, const char *layer)
{
    const size_t n = strlen(layer);
    return strncmp(name, layer, n) == 0 ? name + n + 1 : name;
}

static void add_end(const ls_topic_of *t, bool enter, ls_text *out)
{
    const bool sp = t->l->plan.sequence_parallel;
    const long long B = t->l->micro, T = t->l->tokens / t->l->plan.size[LS_AXIS_CP], C = t->mc->lm.d_model;
    const long long tp = t->l->plan.size[LS_AXIS_TP], bytes = B * T * C * (long long)ls_dtype_size(t->l->plan.dtype);
    char x[48], part[48];
    snprintf(x, sizeof x, "[%lld, %lld, %lld]", B, T, C);
    snprintf(part, sizeof part, "[%lld, %lld, %lld]", B, T / tp, C);
    ls_text_add(out, "       |\n    %s  forward: ", enter ? "enter" : "leave");
    if (sp && enter) ls_text_add(out, "all_gather %s -> %s, %lld bytes; backward: the same again, and reduce_scatter of its gradient",
                                 part, x, bytes);
    else if (sp) ls_text_add(out, "reduce_scatter %s -> %s, %lld bytes; backward: all_gather of its gradient", x,
                             part, bytes);
    else if (enter) ls_text_add(out, "nothing; backward: all_reduce of the gradient of %s, %lld bytes", x, bytes);
    else ls_text_add(out, "all_reduce of %s, %lld bytes; backward: nothing", x, bytes);
    ls_text_add(out, "\n       |\n");
}

/* Of all experts that are here, each of which is divided by its width, in both of its products. */
static bool is_expert(const ls_explain_param *p) { return strstr(p->name, ".experts.") != NULL; }

/* Each divided matrix of a layer, on the first and the last rank of tp. */
static void add_picture(const ls_topic_of *t, ls_text *out)
{
    const int tp = t->l->plan.size[LS_AXIS_TP];
    const ls_explain_rank *a = &t->l->rank[0], *z = &t->l->rank[tp - 1];
    const long long B = t->l->micro, T = t->l->tokens / t->l->plan.size[LS_AXIS_CP], C = t->mc->lm.d_model;
    const bool sp = t->l->plan.sequence_parallel;
    char layer[LS_NAME_BYTES] = "", s[64], u[64], w[64];
    bool inside = false;
    ls_text_add(out, "\n  x [%lld, %lld, %lld]%s\n", B, sp ? T / tp : T, C, sp ? ": other tokens on each rank; "
                                                                                 "norm" : ": the same on each "
                                                                                          "rank; norm");
    for (int i = 0; i < a->nparams; i++) {
        const ls_explain_param *p = &a->params[i], *q = &z->params[i];
        if (!of_layer(p, layer)) continue;
        const bool expert = is_expert(p), columns = expert || strcmp(cut_of(p), "columns") == 0;
        if (columns && !inside) {
            add_end(t, true, out);
            ls_text_add(out, "   +---+%43s%-20s rank %-15d of\n", "", "rank 0", tp - 1);
        }
        inside = true;
        ls_text_add(out, "   |  %-34s by %-8s %-20s %-20s %s\n", last_words(p->name, layer),
                    expert ? "width" : columns ? "columns" : "rows",
                    shape(p->here, p->ndim, s, sizeof s), shape(q->here, q->ndim, u, sizeof u), shape(p->whole,
                                                                                                      p->ndim, w,
                                                                                                      sizeof w));
        if (columns && strstr(p->name, "attn.c_attn"))
            ls_text_add(out, "   |  attention: %lld of %lld heads on each rank\n", (long long)(t->mc->lm.n_head / tp),
                        (long long)t->mc->lm.n_head);
        const bool more = i + 1 < a->nparams && is_expert(&a->params[i + 1]) && of_layer(&a->params[i + 1], layer);
        if (expert ? more : columns) continue;
        ls_text_add(out, "   +---+\n");
        add_end(t, false, out);
        ls_text_add(out, "  x + sum, and norm\n");
        inside = false;
    }
    ls_text_add(out, "\n  %s is drawn; each of %lld layers is like it, and embedding and head are divided by "
                     "the vocabulary\n", layer,
                (long long)t->mc->lm.n_layer);
}

/* --- the text  ---------------------------------------------------------------------------------------------- */

static void add_cost(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32], c[32], d[32];
    const ls_axis_cost tp = ls_axis_cost_of(t, t->l, LS_AXIS_TP), dp = ls_axis_cost_of(t, t->l, LS_AXIS_DP);
    const double layers = (double)t->mc->lm.n_layer;
    ls_topic_say(out, "tp: %llu calls per step, %.3g per layer, whose vectors have %s bytes. dp: %llu calls, of "
                      "%s bytes.", (unsigned long long)tp.calls,
                 (double)tp.calls / layers, ls_number_text((double)tp.bytes, 0, a, sizeof a),
                 (unsigned long long)dp.calls,
                 ls_number_text((double)dp.bytes, 0, b, sizeof b));
    const char *when = t->l->plan.tp_pieces > 1 ? "between two products, so what does not travel beside a product is waited for"
                                                : "between two products, so all of that is waited for";
    ls_topic_say(out, "By the cost model: tp %s in memory, %s over a network; dp %s and %s. Calls of tp are %s; those "
                      "of dp are beside backward.", ls_topic_ms(tp.ns[LS_LEVEL_MEMORY], a, sizeof a),
                 ls_topic_ms(tp.ns[LS_LEVEL_NETWORK], b, sizeof b), ls_topic_ms(dp.ns[LS_LEVEL_MEMORY], c, sizeof c),
                 ls_topic_ms(dp.ns[LS_LEVEL_NETWORK], d, sizeof d), when);
}

static ls_status print_tp(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32];
    const ls_explain_rank *r = &t->l->rank[0];
    const int tp = t->l->plan.size[LS_AXIS_TP];
    const ls_axis_cost cost = ls_axis_cost_of(t, t->l, LS_AXIS_TP);
    const long long L = t->mc->lm.n_layer, passes = t->l->plan.micro_batches, kept = 2 * L + 1;
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "A layer's matrices are too large for one rank, or its products take one rank too long. "
                      "With tp %d rank 0 stores %s of %s "
                 "parameters, and computes 1/%d of each product.", tp,
                 ls_number_text((double)(r->dense.here + r->experts.here), 0, a, sizeof a),
                 ls_number_text((double)(r->dense.whole + r->experts.whole), 0, b, sizeof b), tp);
    add_picture(t, out);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "The first matrix is divided by columns, so its product is divided and what follows it "
                      "(heads, gelu) needs no other rank; the "
                 "second by rows, so the ranks' results add up. That is two collectives forward and two "
                 "backward per layer, and one each for "
                 "embedding and head: (2 L + 1) + (2 L + 1) = %lld per micro-batch, %lld per step of %lld%s%s; "
                 "and two for the loss.", 2 * kept,
                 2 * kept * passes, passes, t->l->plan.recompute == LS_RECOMPUTE_NONE ? "" : ", and those that "
                                                                                             "are recomputed",
                 r->experts.whole > 0 ? ", and one backward per layer with experts, for the weights of the "
                                        "router" : "");
    if (t->l->plan.tp_pieces > 1)
        ls_topic_say(out, "Those of products in layers go in %d pieces (parallel.tp_pieces), which are calls of their own with as many "
                          "bytes together: the sum of a piece travels while the next piece is computed.", t->l->plan.tp_pieces);
    ls_topic_calls(t, LS_AXIS_TP, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Matrices of layers, embedding and head, with their gradients and optimizer state: "
                      "different on each rank. Norms, positions, biases "
                 "that are added after a sum, and samples: the same on each rank. Activations: %s bytes on rank "
                 "0, divided between enter and leave.",
                 ls_number_text((double)r->plan.bytes[LS_MEM_ACT], 0, a, sizeof a));
    ls_topic_head(LS_TOPIC_COST, out);
    add_cost(t, out);
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    ls_topic_say(out, "\"Tensor parallelism scales over any link.\" Its %llu calls take %.3g times as long over "
                      "a network as in memory (costs of %s), and "
                 "%s: put tp inside a node.", (unsigned long long)cost.calls,
                 cost.ns[LS_LEVEL_NETWORK] / cost.ns[LS_LEVEL_MEMORY], t->cost_from,
                 t->l->plan.tp_pieces > 1 ? "products hide a part of that at most" : "no product can start meanwhile");
    return LS_OK;
}

/* --- sequence parallelism: with it and without  ------------------------------------------------------------- */

static ls_status print_sp(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32];
    ls_train_config without = *t->c;
    ls_explain_layout l;
    without.parallel.sp = false;
    ls_status st = ls_explain_layout_make(&without, t->mc, t->l->size, 1, NULL, &l);
    if (st < 0) {
        ls_explain_layout_free(&l);
        return st;
    }
    const ls_axis_cost with = ls_axis_cost_of(t, t->l, LS_AXIS_TP), off = ls_axis_cost_of(t, &l, LS_AXIS_TP);
    const size_t act = t->l->rank[0].plan.bytes[LS_MEM_ACT], act_off = l.rank[0].plan.bytes[LS_MEM_ACT];
    ls_explain_layout_free(&l);
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "Between two halves of a layer tensor parallelism has each activation whole on every "
                      "rank, and computes norms and residuals %d "
                 "times.", t->l->plan.size[LS_AXIS_TP]);
    add_picture(t, out);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "An all_reduce is a reduce_scatter and an all_gather. The two are taken apart, and what "
                      "is between them is computed for a part of "
                 "the sequence. Gradients of norms and biases are then sums over parts: one all_reduce per step "
                 "adds them up.");
    ls_topic_calls(t, LS_AXIS_TP, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "As with tp. Activations between halves differ from rank to rank, and what enter has gathered is "
                 "not stored: backward gathers it again. %s bytes of activations on rank 0, and %s without sp.",
                 ls_number_text((double)act, 0, a, sizeof a), ls_number_text((double)act_off, 0, b, sizeof b));
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "A rank sends %s bytes per step if calls go round a ring, and %s without sp.",
                 ls_number_text(with.sent, 0, a, sizeof a),
                 ls_number_text(off.sent, 0, b, sizeof b));
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    ls_topic_say(out, "\"Sequence and tensor parallelism exclude each other.\" Sequence parallelism is a part "
                      "of tensor parallelism: same ranks, %.3g times "
                 "the bytes, %.3g times the activations. It also goes together with cp: `lockstep explain sp "
                 "--parallel.cp 2`.", with.sent / off.sent,
                 (double)act / (double)act_off);
    return LS_OK;
}

const ls_topic ls_topic_tp = { .name = "tp", .title = "tensor parallelism (tp)", .plan = plan, .ranks = 4,
                               .adjust = divide_layers,
                               .print = print_tp, .axis = LS_AXIS_TP };
const ls_topic ls_topic_sp = { .name = "sp", .title = "sequence parallelism (sp), a part of tensor parallelism",
                               .plan = wide_plan, .ranks = 4,
                               .adjust = divide_sequences_too, .print = print_sp, .axis = LS_AXIS_TP };
