/* topo_links.c -- pairs of ranks, one after another. */
#include "cli/topo_links.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/median.h"
#include "lockstep/group.h"

#define WARM      10
#define TURNS     8                    /* there and back, of one look at the latency */
#define LOOKS     40                   /* of which the best counts: what disturbs a machine only makes it slower. Short
                                          ones, so that some are within a slice of time of both ranks */
#define LOOK_NS   1000000u             /* messages of one look at the rate take about so long, */
#define MOST_SENT ((size_t)1 << 28)    /* and have no more bytes than this */

typedef struct pair {
    ls_group *g;
    char *p;
    size_t nbytes;
    int peer;
    bool first; /* this rank begins */
} pair;

static ls_status there_and_back(const pair *x, int turns)
{
    for (int i = 0; i < turns; i++) {
        if (x->first) LS_TRY(ls_send(x->g, x->p, 8, LS_U8, x->peer));
        LS_TRY(ls_recv(x->g, x->p, 8, LS_U8, x->peer));
        if (!x->first) LS_TRY(ls_send(x->g, x->p, 8, LS_U8, x->peer));
    }
    return LS_OK;
}

static ls_status latency(const pair *x, double *best_s)
{
    const ls_env *env = ls_env_get();
    LS_TRY(there_and_back(x, WARM));
    for (int k = 0; k < LOOKS; k++) {
        const uint64_t t0 = env->mono_ns();
        LS_TRY(there_and_back(x, TURNS));
        const double s = 1e-9 * (double)(env->mono_ns() - t0) / (2 * TURNS);
        if (k == 0 || s < *best_s) *best_s = s;
    }
    return LS_OK;
}

/* n messages one way, and one byte back when all are there. */
static ls_status one_way(const pair *x, bool sends, int n, double *s)
{
    const ls_env *env = ls_env_get();
    const uint64_t t0 = env->mono_ns();
    for (int i = 0; i < n; i++)
        LS_TRY(sends ? ls_send(x->g, x->p, x->nbytes, LS_U8, x->peer) : ls_recv(x->g, x->p, x->nbytes, LS_U8, x->peer));
    LS_TRY(sends ? ls_recv(x->g, x->p, 1, LS_U8, x->peer) : ls_send(x->g, x->p, 1, LS_U8, x->peer));
    *s = 1e-9 * (double)(env->mono_ns() - t0);
    return LS_OK;
}

/* The one that begins decides how many messages take long enough, and says so. */
static ls_status rate(const pair *x, bool sends, double *best)
{
    double s;
    int32_t n = 1;
    LS_TRY(one_way(x, sends, 1, &s));
    LS_TRY(one_way(x, sends, 1, &s));
    const double wanted = s > 0 ? 1e-9 * LOOK_NS / s : 1, most = (double)MOST_SENT / (double)x->nbytes;
    n = (int32_t)(wanted < 1 ? 1 : wanted > most ? most : wanted);
    if (n < 1) n = 1;
    LS_TRY(x->first ? ls_send(x->g, &n, 1, LS_I32, x->peer) : ls_recv(x->g, &n, 1, LS_I32, x->peer));
    for (int k = 0; k < LOOKS; k++) {
        LS_TRY(one_way(x, sends, n, &s));
        const double r = (double)x->nbytes * n / s;
        if (k == 0 || r > *best) *best = r;
    }
    return LS_OK;
}

static ls_status measure_pair(const pair *x, int a, int b, ls_links *out)
{
    double late = 0, there = 0, back = 0;
    LS_TRY(latency(x, &late));
    LS_TRY(rate(x, x->first, &there));
    LS_TRY(rate(x, !x->first, &back));
    if (!x->first) return LS_OK; /* one of the two tells */
    out->latency_s[a * out->size + b] = out->latency_s[b * out->size + a] = late;
    out->rate[a * out->size + b] = there;
    out->rate[b * out->size + a] = back;
    return LS_OK;
}

ls_status ls_links_measure(ls_world *w, size_t nbytes, ls_links *out)
{
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w), n = ls_world_size(w);
    const size_t pairs = (size_t)n * (size_t)n;
    void *p;
    *out = (ls_links){ .size = n, .rate = calloc(pairs, sizeof(double)), .latency_s = calloc(pairs, sizeof(double)) };
    if (!out->rate || !out->latency_s) return ls_fail(LS_NO_MEMORY, "the links of %d ranks", n);
    LS_TRY(ls_alloc(w, nbytes < 64 ? 64 : nbytes, LS_MEM_COMM, &p));
    memset(p, 1, nbytes);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const pair x = { .g = g, .p = p, .nbytes = nbytes, .peer = rank == a ? b : a, .first = rank == a };
            if (rank == a || rank == b) LS_TRY(measure_pair(&x, a, b, out));
            LS_TRY(ls_barrier(g));
        }
    LS_TRY(ls_all_reduce(g, NULL, out->rate, pairs, LS_F64, LS_SUM));
    return ls_all_reduce(g, NULL, out->latency_s, pairs, LS_F64, LS_SUM);
}

void ls_links_free(ls_links *l)
{
    free(l->rate);
    free(l->latency_s);
    *l = (ls_links){ 0 };
}

/* --- what stands out ----------------------------------------------------------------------------------------- */

/* Of two middle ones the lower one: of two directions alone none is slow, but they may be asymmetric. */
static double median(const ls_links *l, const double *v)
{
    double *all = malloc((size_t)l->size * (size_t)l->size * sizeof *all), m = 0;
    size_t n = 0;
    for (int i = 0; all && i < l->size * l->size; i++)
        if (i / l->size != i % l->size) all[n++] = v[i];
    if (n > 0) {
        ls_sort_values(all, n);
        m = all[(n - 1) / 2];
    }
    free(all);
    return m;
}

ls_links_fault ls_links_judge(const ls_links *l, int a, int b)
{
    const double there = l->rate[a * l->size + b], back = l->rate[b * l->size + a];
    if (there * LS_LINKS_SLOW < median(l, l->rate)) return LS_LINKS_IS_SLOW;
    if (there * LS_LINKS_UNEVEN < back) return LS_LINKS_IS_UNEVEN;
    return l->latency_s[a * l->size + b] > LS_LINKS_LATE * median(l, l->latency_s) ? LS_LINKS_IS_LATE : LS_LINKS_FINE;
}

static const char *const words[] = { "", "slow", "asymmetric", "late" };

/* --- output ---------------------------------------------------------------------------------------------------- */

static void table(const ls_links *l, const double *v, double unit, const char *title, ls_text *out)
{
    ls_text_add(out, "\n%s\n     ", title);
    for (int b = 0; b < l->size; b++) ls_text_add(out, " %7d", b);
    for (int a = 0; a < l->size; a++) {
        ls_text_add(out, "\n%5d", a);
        for (int b = 0; b < l->size; b++)
            if (a == b) ls_text_add(out, " %7s", "-");
            else ls_text_add(out, " %7.4g", v[a * l->size + b] / unit);
    }
    ls_text_add(out, "\n");
}

void ls_links_print(const ls_links *l, const char *transport, ls_text *out)
{
    int found = 0;
    ls_text_add(out, "%d ranks, %s; pairs one after another, the best of %d\n", l->size, transport, LOOKS);
    table(l, l->rate, 1e9, "GB/s, from a row's rank to a column's", out);
    table(l, l->latency_s, 1e-6, "latency in us", out);
    ls_text_add(out, "\n");
    for (int a = 0; a < l->size; a++)
        for (int b = 0; b < l->size; b++) {
            const ls_links_fault f = a == b ? LS_LINKS_FINE : ls_links_judge(l, a, b);
            if (f == LS_LINKS_FINE) continue;
            found++;
            ls_text_add(out, "%s: from rank %d to rank %d %.4g GB/s in %.4g us; ", words[f], a, b,
                        l->rate[a * l->size + b] * 1e-9, l->latency_s[a * l->size + b] * 1e6);
            ls_text_add(out, "back %.4g GB/s, the median %.4g GB/s in %.4g us\n", l->rate[b * l->size + a] * 1e-9,
                        median(l, l->rate) * 1e-9, median(l, l->latency_s) * 1e6);
        }
    if (!found)
        ls_text_add(out, "no link stands out: none has less than a third of the median's rate or of the other direction's, "
                         "or four times its latency\n");
}

static void numbers(const ls_links *l, const char *key, const double *v, ls_text *out)
{
    ls_text_add(out, ",\n \"%s\": [", key);
    for (int i = 0; i < l->size * l->size; i++) {
        ls_text_add(out, "%s", i == 0 ? "[" : i % l->size == 0 ? "], [" : ", ");
        ls_json_number(out, v[i]);
    }
    ls_text_add(out, "]]");
}

void ls_links_json(const ls_links *l, const char *transport, ls_text *out)
{
    const char *comma = "";
    ls_text_add(out, "{\"ranks\": %d, \"transport\": ", l->size);
    ls_json_string(out, transport);
    numbers(l, "bytes_per_s", l->rate, out);
    numbers(l, "latency_s", l->latency_s, out);
    ls_text_add(out, ",\n \"flagged\": [");
    for (int a = 0; a < l->size; a++)
        for (int b = 0; b < l->size; b++) {
            const ls_links_fault f = a == b ? LS_LINKS_FINE : ls_links_judge(l, a, b);
            if (f == LS_LINKS_FINE) continue;
            ls_text_add(out, "%s{\"from\": %d, \"to\": %d, \"why\": \"%s\"}", comma, a, b, words[f]);
            comma = ", ";
        }
    ls_text_add(out, "]}\n");
}
