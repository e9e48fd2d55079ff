/* explain_topic.c -- the list of topics. */
#include "train/explain_topic.h"

#include <stdio.h>
#include <string.h>

const ls_topic *const ls_topics[] = { &ls_topic_dp, &ls_topic_tp, &ls_topic_sp, &ls_topic_cp, &ls_topic_ep,
                                      &ls_topic_pp, &ls_topic_3d, NULL };

const ls_topic *ls_topic_find(const char *name)
{
    for (const ls_topic *const *t = ls_topics; *t; t++)
        if (strcmp((*t)->name, name) == 0) return *t;
    return NULL;
}

const char *ls_topic_names(char *buf, size_t n)
{
    size_t at = 0;
    *buf = 0;
    for (const ls_topic *const *t = ls_topics; *t && at < n; t++)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", (*t)->name);
    return buf;
}

static void add_title(const ls_topic *topic, const ls_topic_of *t, ls_text *out)
{
    char axes[96];
    const ls_lm_config *lm = &t->mc->lm;
    ls_text_add(out, "%s\n%s", topic->title, t->c->model.name);
    if (ls_train_is_lm(t->c))
        ls_text_add(out, ", L = %lld layers, C = %lld, H = %lld heads, F = %lld, V = %lld; batch [%lld, %lld], "
                         "micro-batch [%lld, %lld]",
                    (long long)lm->n_layer, (long long)lm->d_model, (long long)lm->n_head, (long long)lm->d_ff,
                    (long long)lm->vocab_size,
                    (long long)t->l->batch, (long long)t->l->tokens, (long long)t->l->micro,
                    (long long)(t->l->tokens / t->l->plan.size[LS_AXIS_CP]));
    ls_text_add(out, "; %d rank%s = %s, zero.stage %lld\n", t->l->size, t->l->size == 1 ? "" : "s",
                ls_explain_axes(t->l, axes, sizeof axes), (long long)t->c->zero.stage);
}

/* What to say of a topic, in the order state, axis and shape, collective and link, number. */
static void add_four(const ls_topic *topic, const ls_topic_of *t, ls_text *out)
{
    ls_topic_head(LS_TOPIC_FOUR, out);
    for (int a = LS_AXES - 1; a >= 0; a--)
        if (topic->axis == LS_AXES ? t->l->plan.size[a] > 1 : topic->axis == (ls_axis)a)
            ls_topic_four(t, (ls_axis)a, out);
}

ls_status ls_topic_print(const ls_topic *topic, const ls_train_config *c, const ls_model_config *mc, int size,
                         ls_text *out)
{
    ls_explain_layout l;
    ls_topic_of t = { .c = c, .mc = mc, .l = &l };
    ls_status st = ls_explain_layout_make(c, mc, size, 1, NULL, &l);
    if (st == LS_OK) st = ls_cost_load(&t.cost, t.cost_from, sizeof t.cost_from);
    if (st == LS_OK) {
        add_title(topic, &t, out);
        st = topic->print(&t, out);
        if (st == LS_OK) add_four(topic, &t, out);
    }
    ls_explain_layout_free(&l);
    return st;
}
