/* bench_explain.c -- lockstep bench --explain: how each size would be carried out, and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "group/debug.h"
#include "lockstep/lockstep.h"

#define SHOWN 6 /* algorithms of a size */

static void title(const ls_bench_opts *o, const ls_group *g)
{
    const ls_debug_group d = ls_debug_look(g);
    const int size = ls_group_size(g);
    printf("# %s over %d rank%s on %d node%s, transport %s; costs from %s%s%s\n", ls_coll_name(o->coll), size,
           size == 1 ? "" : "s", d.nnodes, d.nnodes == 1 ? "" : "s", d.transport, d.cost_from,
           *d.asked ? "; asked for: " : "", d.asked);
    for (int h = 0; h < d.nnodes; h++) {
        int ranks = 0;
        for (int r = 0; r < size; r++) ranks += d.node[r] == h;
        printf("# node %d: %d rank%s on %d core%s%s\n", h, ranks, ranks == 1 ? "" : "s", d.cores[h],
               d.cores[h] == 1 ? "" : "s", ranks > d.cores[h] ? ", oversubscribed" : "");
    }
}

/* Whether p[i] is the best cut of its algorithm: the first, since the fastest are first. */
static bool is_best(const ls_choice *p, int i)
{
    for (int j = 0; j < i; j++)
        if (p[j].algo == p[i].algo) return false;
    return true;
}

/* The best cut of each algorithm, fastest first. */
static void candidates(const ls_choice *p, int n)
{
    int shown = 0, left = 0;
    for (int i = 0; i < n; i++) {
        if (!is_best(p, i)) continue;
        if (shown == SHOWN) {
            left++;
            continue;
        }
        printf("%12s  %-20s %4d segment%s %12.2f us%s\n", "", p[i].algo->name, p[i].segments,
               p[i].segments == 1 ? " " : "s", p[i].ns / 1e3, shown == 0 ? "  <- chosen" : "");
        shown++;
    }
    if (left) printf("%12s  and %d slower one%s\n", "", left, left == 1 ? "" : "s");
}

/* What a rank moves by each form in memory, as it travels to rank 0. */
typedef struct rank_moves {
    struct { ls_traffic moved; double ns; } by[LS_DEBUG_FORMS];
} rank_moves;

/* The rank that has the most to do by form i. */
static int busiest(const rank_moves *of, int i, int size)
{
    int most = 0;
    for (int r = 1; r < size; r++)
        if (of[r].by[i].ns > of[most].by[i].ns) most = r;
    return most;
}

/* The forms in memory, each with what the rank moves that has the most to do. */
static void forms(const ls_debug_form *f, int n, const rank_moves *of, int size)
{
    if (n > 0)
        printf("%12s  %-8s %4s %6s %6s %11s %11s %11s %11s  %s\n", "", "form", "rank", "rounds", "flags", "read", "written",
               "added", "copied", "by the costs");
    for (int i = 0; i < n; i++) {
        const int most = busiest(of, i, size);
        const ls_traffic *t = &of[most].by[i].moved;
        printf("%12s  %-8s %4d %6d %6llu %11llu %11llu %11llu %11llu %10.2f us%s%s\n", "", f[i].name, most, t->rounds,
               (unsigned long long)t->flags, (unsigned long long)t->read, (unsigned long long)t->written,
               (unsigned long long)t->added, (unsigned long long)t->copied, of[most].by[i].ns / 1e3,
               f[i].private_memory ? "  in private memory" : "", f[i].chosen ? "  <- chosen" : "");
    }
}

/* --- the same as JSON ------------------------------------------------------------------- */

static void json_title(const ls_bench_opts *o, const ls_group *g, ls_text *out)
{
    const ls_debug_group d = ls_debug_look(g);
    const int size = ls_group_size(g);
    ls_text_add(out, "{\"collective\": \"%s\", \"ranks\": %d, \"transport\": ", ls_coll_name(o->coll), size);
    ls_json_string(out, d.transport);
    ls_text_add(out, ", \"costs_from\": ");
    ls_json_string(out, d.cost_from);
    ls_text_add(out, ", \"algo\": ");
    if (*d.asked) ls_json_string(out, d.asked);
    else ls_text_add(out, "null");
    ls_text_add(out, ",\n \"nodes\": [");
    for (int h = 0; h < d.nnodes; h++) {
        int ranks = 0;
        for (int r = 0; r < size; r++) ranks += d.node[r] == h;
        ls_text_add(out, "%s{\"ranks\": %d, \"cores\": %d}", h ? ", " : "", ranks, d.cores[h]);
    }
    ls_text_add(out, "],\n \"sizes\": [");
}

static void json_candidates(const ls_choice *p, int n, ls_text *out)
{
    ls_text_add(out, ",\n   \"algorithms\": [");
    for (int i = 0; i < n; i++) {
        if (!is_best(p, i)) continue;
        ls_text_add(out, "%s{\"name\": \"%s\", \"segments\": %d, \"chosen\": %s, \"predicted_us\": ", i ? ", " : "", p[i].algo->name,
                    p[i].segments, i == 0 ? "true" : "false");
        ls_json_number(out, p[i].ns / 1e3);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]");
}

static void json_forms(const ls_debug_form *f, int n, const rank_moves *of, int size, ls_text *out)
{
    ls_text_add(out, ",\n   \"forms\": [");
    for (int i = 0; i < n; i++) {
        const int most = busiest(of, i, size);
        const ls_traffic *t = &of[most].by[i].moved;
        ls_text_add(out, "%s\n    {\"name\": \"%s\", \"rank\": %d, \"rounds\": %d, \"flags\": %llu", i ? "," : "", f[i].name, most, t->rounds,
                    (unsigned long long)t->flags);
        ls_text_add(out, ", \"read_bytes\": %llu, \"written_bytes\": %llu, \"added_bytes\": %llu, \"copied_bytes\": %llu",
                    (unsigned long long)t->read, (unsigned long long)t->written, (unsigned long long)t->added,
                    (unsigned long long)t->copied);
        ls_text_add(out, ", \"private_memory\": %s, \"chosen\": %s, \"predicted_us\": ", f[i].private_memory ? "true" : "false",
                    f[i].chosen ? "true" : "false");
        ls_json_number(out, of[most].by[i].ns / 1e3);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}");
}

/* Every rank says what it moves: to rank 0, which has room for all ranks in `all`. */
static ls_status gather_moves(ls_group *g, const ls_coll_args *a, ls_debug_form *form, int *n, rank_moves *all)
{
    rank_moves mine = { 0 };
    LS_TRY(ls_debug_forms(g, a, form, n));
    for (int i = 0; i < *n; i++) mine.by[i].moved = form[i].moved, mine.by[i].ns = form[i].ns;
    return ls_gather(g, &mine, all, sizeof mine * (size_t)ls_group_size(g), LS_U8, 0);
}

/* Of one size, on rank 0: with `json` as an object of the array that has begun there. */
static ls_status explain(ls_group *g, const ls_coll_args *a, size_t nbytes, const ls_debug_form *form, int nforms,
                         const rank_moves *all, ls_text *json)
{
    ls_choice choice[LS_MAX_CHOICES];
    const char *about;
    int n;
    LS_TRY(ls_debug_explain(g, a, &about, choice, &n));
    if (json) {
        LS_TRY(ls_text_status(json));
        ls_text_add(json, "%s\n  {\"bytes\": %zu, \"about\": ", json->p[json->n - 1] == '[' ? "" : ",", nbytes);
        ls_json_string(json, about);
        json_candidates(choice, n, json);
        json_forms(form, nforms, all, ls_group_size(g), json);
        return LS_OK;
    }
    printf("%12zu  %s%s\n", nbytes, about, n > 0 ? "; by the costs:" : "");
    candidates(choice, n);
    forms(form, nforms, all, ls_group_size(g));
    return LS_OK;
}

ls_status ls_bench_explain(ls_world *w, const ls_bench_opts *o)
{
    ls_group *g = ls_world_group(w);
    const int size = ls_group_size(g);
    const bool prints = ls_group_rank(g) == 0;
    int d0, d1, op0, op1, n;
    (void)ls_bench_dtypes(o->dtype, &d0, &d1); /* choices: one of them; of "all" the first */
    (void)ls_bench_ops(o->op, &op0, &op1);
    ls_coll_args a = { .coll = o->coll, .dtype = (ls_dtype)d0, .op = (ls_redop)op0, .root = (int)o->root };
    rank_moves *all = malloc((size_t)size * sizeof *all);
    ls_status st = LS_OK, met = all ? LS_OK : ls_fail(LS_NO_MEMORY, "what %d ranks move", size);
    ls_text out = { 0 }, *json = o->print_json ? &out : NULL;
    if (prints && json) json_title(o, g, json);
    else if (prints) title(o, g);
    for (size_t nbytes = o->min_bytes; met == LS_OK && nbytes <= o->max_bytes;) { /* all ranks, even if one fails */
        ls_debug_form form[LS_DEBUG_FORMS];
        a.count = o->coll == LS_BARRIER ? 0 : nbytes / ls_dtype_size(a.dtype);
        met = gather_moves(g, &a, form, &n, all);
        if (met == LS_OK && prints && st == LS_OK)
            st = explain(g, &a, o->coll == LS_BARRIER ? 0 : nbytes, form, n, all, json);
        size_t next = o->step_factor > 1 ? nbytes * (size_t)o->step_factor : nbytes + o->step_bytes;
        if (next <= nbytes || o->coll == LS_BARRIER) break;
        nbytes = next;
    }
    free(all);
    if (met == LS_OK) met = ls_barrier(g);
    if (json) ls_text_add(json, "]}\n");
    if (json && prints && st == LS_OK && met == LS_OK) st = ls_cli_print(json);
    ls_text_free(&out);
    return st < 0 ? st : met;
}
