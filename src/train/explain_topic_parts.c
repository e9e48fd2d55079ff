/* explain_topic_parts.c -- what the texts of topics share: headings, sentences, and what an axis costs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/explain_topic.h"

/* --- words -------------------------------------------------------------------------------------------------- */

void ls_topic_head(ls_topic_part part, ls_text *out)
{
    static const char *const head[] = { "problem", "synchronization", "state placement", "communication cost",
                                        "common misunderstanding", "often asked", "in four parts" };
    ls_text_add(out, "\n%s\n", head[part]);
}

void ls_topic_say(ls_text *out, const char *fmt, ...)
{
    char words[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    ls_text_add(out, "  ");
    ls_text_wrap(out, words, 2, LS_TOPIC_WIDTH);
}

const char *ls_topic_ms(double ns, char *buf, size_t n)
{
    if (ns < 1e5) snprintf(buf, n, "%.1f us", ns * 1e-3);
    else snprintf(buf, n, "%.3g ms", ns * 1e-6);
    return buf;
}

/* --- numbers ------------------------------------------------------------------------------------------------ */

/* Messages in a row, and the part of the vector's bytes that a rank sends, if a call goes round a ring of n ranks. */
static void ring(ls_coll coll, int n, double *rounds, double *part)
{
    const double one = (double)(n - 1) / n;
    *rounds = n - 1;
    *part = one;
    if (coll == LS_ALL_REDUCE) *rounds *= 2, *part *= 2;
    if (coll == LS_SENDRECV) *rounds = 0.5,
    *part = 0.5; /* a message is counted where it is sent and where it arrives */
}

ls_axis_cost ls_axis_cost_of(const ls_topic_of *t, const ls_explain_layout *l, ls_axis axis)
{
    ls_axis_cost sum = { 0 };
    const ls_explain_rank *r = &l->rank[0];
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        double rounds, part;
        if (ls_explain_axis(k) != (int)axis || r->group[k->group].size < 2) continue;
        ring(k->coll, r->group[k->group].size, &rounds, &part);
        sum.calls += k->calls;
        sum.bytes += k->bytes;
        sum.moved += k->moved;
        sum.sent += part * (double)k->bytes;
        for (int level = 0; level < LS_LEVELS; level++)
            sum.ns[level] += rounds * (double)k->calls * t->cost.link[level].alpha_ns +
                             part * (double)k->bytes * t->cost.link[level].beta_ns;
    }
    return sum;
}

void ls_topic_calls(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    const ls_explain_rank *r = &t->l->rank[0];
    ls_text_add(out, "  %-14s %-14s %-32s %6s %14s %14s  when\n", "group", "collective", "of", "calls",
                "vectors, bytes",
                "moved, bytes");
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        if (ls_explain_axis(k) != (int)axis) continue;
        ls_text_add(out, "  %-14s %-14s %-32s %6llu %14llu %14llu  %s\n", r->group[k->group].text,
                    ls_coll_name(k->coll), k->what,
                    (unsigned long long)k->calls, (unsigned long long)k->bytes, (unsigned long long)k->moved,
                    ls_explain_when(t->l, r, k));
    }
}
