/* registry.c -- the list of models, and what all of them have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/model.h"
#include "tensor/tape.h"

/* The models: a line each, in the order in which messages and --help name them. */
#define OTHERS(model) \
    model(gpt2)       \
    model(llama)      \
    model(moe)        \
    model(cnn)        \
    model(timed)
#define MODELS(model) model(mlp) OTHERS(model)

#define DECLARED(name) extern const ls_model_class ls_model_##name;
#define LISTED(name) &ls_model_##name,
#define CHOICE(name) "|" #name

MODELS(DECLARED)
const ls_model_class *const ls_model_classes[] = { MODELS(LISTED) NULL };
const char ls_model_choices[] = "mlp" OTHERS(CHOICE);

/* --- finding one -------------------------------------------------------------------------- */

const ls_model_class *ls_model_class_find(const char *name)
{
    for (int i = 0; name && ls_model_classes[i]; i++)
        if (strcmp(ls_model_classes[i]->name, name) == 0) return ls_model_classes[i];
    return NULL;
}

static bool lists(const ls_model_class *cls, const char *key)
{
    for (const char *const *k = cls->keys; *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

bool ls_model_reads(const ls_model_class *cls, const char *key)
{
    if (cls && lists(cls, key)) return true;
    for (int i = 0; ls_model_classes[i]; i++)
        if (lists(ls_model_classes[i], key)) return false;
    return true;
}

const char *ls_model_names(const char *key, char *buf, size_t n)
{
    const char *name[32]; /* more models than that need a longer sentence */
    int names = 0;
    for (int i = 0; ls_model_classes[i] && names < 32; i++)
        if (!key || lists(ls_model_classes[i], key)) name[names++] = ls_model_classes[i]->name;
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; i < names && at < n; i++)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", i == 0 ? "" : i < names - 1 ? ", " : " and ", name[i]);
    return buf;
}

const ls_model_preset *ls_model_preset_find(const char *name)
{
    for (int i = 0; name && ls_model_classes[i]; i++)
        for (const ls_model_preset *p = ls_model_classes[i]->presets; p && p->name; p++)
            if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

const char *ls_model_preset_names(char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; ls_model_classes[i]; i++)
        for (const ls_model_preset *p = ls_model_classes[i]->presets; p && p->name && at < n; p++)
            at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", p->name);
    return buf;
}

/* --- sizes -------------------------------------------------------------------------------- */

ls_status ls_model_class_of(const ls_model_config *c, const ls_model_class **out)
{
    char names[128];
    *out = c->cls ? c->cls : ls_model_class_find(c->name);
    if (*out) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "model.name: no model '%s'; known: %s", c->name ? c->name : "",
                   ls_model_names(NULL, names, sizeof names));
}

ls_status ls_model_resolve(const ls_model_config *c, ls_model_config *out)
{
    const ls_model_class *cls;
    LS_TRY(ls_model_class_of(c, &cls));
    return cls->resolve(c, out);
}

int64_t ls_model_count(const ls_model_config *c)
{
    ls_model_config resolved;
    const ls_model_class *cls;
    if (ls_model_class_of(c, &cls) < 0 || cls->resolve(c, &resolved) < 0) return 0;
    return cls->count ? cls->count(&resolved) : 0;
}

/* --- creating it ---------------------------------------------------------------------------- */

/* "b [3, 5], c [3]": what a unit has, as far as there is room. */
static const char *params_text(const ls_unit *u, const ls_pass *pass, char *buf, size_t n)
{
    char shape[96];
    size_t at = 0;
    buf[0] = '\0';
    for (int k = 0; k < u->npositions && at < n; k++) {
        if (u->position[k] == LS_UNIT_SKIPPED) continue;
        const ls_param *p = ls_unit_param(u, pass, k);
        at += (size_t)snprintf(buf + at, n - at, "%s%s %s", at ? ", " : "", p->name,
                               ls_tensor_shape(&p->t, shape, sizeof shape));
    }
    return buf;
}

/* Whether x, which the last unit gives where a loss is asked for, is one. */
static ls_status check_loss(const ls_model *m, const ls_tensor *x)
{
    char shape[96];
    if (x && ls_tensor_count(x) == 1) return LS_OK;
    return ls_fail(LS_SHAPE, "unit '%s' gives %s where pass->output asks for a loss: expected one element",
                   m->units.item[m->units.n - 1].name, x ? ls_tensor_shape(x, shape, sizeof shape) : "nothing");
}

/* Each unit once on a dry tape, with two samples of a token or as few as ranks can divide: do its parameters' shapes
 * fit what it does? */
static ls_status check_shapes(const ls_model *m)
{
    ls_tape *t;
    ls_model_input in;
    const int64_t tokens =
        (m->place.sequence_parallel ? m->place.tp.size : 1) * (ls_divides(&m->place.cp) ? 2 * m->place.cp.size : 1);
    LS_TRY(ls_tape_create_dry(&t));
    ls_tape_set_grad(t, false);
    m->cls->input(m, 2, tokens <= m->lm.seq_len ? tokens : m->lm.seq_len > 0 ? m->lm.seq_len : 1, &in);
    ls_pass pass = ls_model_pass(m);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    pass.labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    pass.output = LS_OUTPUT_LOSS;
    ls_status st = ls_tape_status(t);
    for (int i = 0; st == LS_OK && i < m->units.n; i++) {
        x = ls_units_forward(&m->units, i, 1, t, x, &pass);
        st = ls_tape_status(t);
        if (st < 0) {
            const ls_unit *u = &m->units.item[i];
            char params[160];
            st = ls_while(st, "checking the shapes of unit '%s' (%s)", u->name, params_text(u, &pass, params, sizeof params));
        }
    }
    if (st == LS_OK) st = check_loss(m, x);
    ls_tape_destroy(t);
    return st;
}

/* The groups are not there while shapes are looked at: nothing is called in them. */
static ls_status describe(ls_model *m, const ls_model_config *c, const ls_place *place)
{
    m->place = ls_place_alone(place);
    LS_TRY(m->cls->create(c, m));
    LS_TRY(ls_units_end(&m->units, &m->params));
    LS_TRY(check_shapes(m));
    m->place = *place;
    return LS_OK;
}

static ls_status create(const ls_model_class *cls, const ls_model_config *c, const ls_place *place, ls_model **out)
{
    ls_model_config resolved;
    *out = NULL;
    LS_TRY(cls->resolve(c, &resolved));
    ls_model *m = calloc(1, sizeof *m);
    if (!m) return ls_fail(LS_NO_MEMORY, "model '%s'", cls->name);
    m->cls = cls;
    const ls_status st = describe(m, &resolved, place);
    if (st < 0) {
        ls_model_destroy(m);
        return ls_while(st, "creating model '%s'", cls->name);
    }
    *out = m;
    return LS_OK;
}

ls_status ls_model_create_of(const ls_model_class *cls, const ls_model_config *c, ls_model **out)
{
    return create(cls, c, &(ls_place){ 0 }, out);
}

ls_status ls_model_create_at(const ls_model_config *c, const ls_place *place, ls_model **out)
{
    const ls_model_class *cls;
    char names[128];
    *out = NULL;
    LS_TRY(ls_model_class_of(c, &cls));
    if (ls_divides(&place->ep) && cls != &ls_model_moe)
        return ls_fail(LS_UNSUPPORTED, "model '%s' has no experts that ranks divide: expected ep 1, or moe", cls->name);
    if ((ls_divides(&place->tp) || ls_divides(&place->cp)) && !cls->lm)
        return ls_fail(LS_UNSUPPORTED, "model '%s' has no layers that ranks divide: expected tp 1 and cp 1, or one of %s", cls->name,
                       ls_model_names(LS_LM_KEY, names, sizeof names));
    return create(cls, c, place, out);
}

ls_status ls_model_create(const ls_model_config *c, ls_model **out)
{
    return ls_model_create_at(c, &(ls_place){ 0 }, out);
}

ls_status ls_model_init(ls_model *m, const ls_model_config *c) { return m->cls->init(m, c); }

void ls_model_destroy(ls_model *m)
{
    if (!m) return;
    ls_units_free(&m->units);
    ls_params_free(&m->params);
    ls_arena_destroy(m->arena);
    free(m->stage);
    free(m->own);
    free(m);
}

/* --- computing ------------------------------------------------------------------------------- */

ls_pass ls_model_pass(const ls_model *m)
{
    return (ls_pass){ .params = &m->params, .place = &m->place, .draw = m->draw, .at = { .causal = true } };
}

ls_tensor *ls_model_forward(const ls_model *m, ls_tape *t, ls_tensor *x)
{
    const ls_pass pass = ls_model_pass(m);
    return ls_units_forward(&m->units, 0, m->units.n, t, x, &pass);
}

ls_tensor *ls_model_loss(const ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums)
{
    ls_pass pass = ls_model_pass(m);
    pass.output = LS_OUTPUT_LOSS;
    pass.labels = labels;
    pass.sums = sums;
    if (sums) *sums = (ls_loss_sums){ .correct = -1 };
    return ls_units_forward(&m->units, 0, m->units.n, t, x, &pass);
}

/* The step on a dry tape, with a copy of the parameters that wants gradients: so the
 * answer is right before ls_params_bind, and for any model. */
static ls_status dry_run(const ls_model *m, int64_t batch, int64_t tokens, const ls_tape_mode *mode, size_t *bytes,
                         size_t *packed)
{
    ls_status st = LS_OK;
    ls_model copy = *m;
    ls_tape *t = NULL;
    ls_model_input in;

    copy.place = ls_place_alone(&m->place);
    copy.params.item = malloc((size_t)m->params.n * sizeof *copy.params.item);
    if (!copy.params.item) {
        st = ls_fail(LS_NO_MEMORY, "copy of %d parameters", m->params.n);
        goto done;
    }
    for (int i = 0; i < m->params.n; i++) {
        copy.params.item[i] = m->params.item[i];
        copy.params.item[i].t.grad = &copy.params.item[i].grad;
    }
    if ((st = ls_tape_create_dry(&t)) < 0 || (st = ls_tape_set_dtype(t, mode->dtype)) < 0) goto done;
    ls_tape_set_recompute(t, mode->recompute);
    ls_tape_set_grad(t, !mode->evaluate);
    ls_tape_pack_begin(t);
    m->cls->input(m, batch, tokens, &in);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    ls_tensor *labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    ls_tensor *loss = ls_model_loss(&copy, t, x, labels, NULL);
    if ((st = ls_tape_status(t)) < 0 || (!mode->evaluate && (st = ls_backward(t, loss)) < 0)) goto done;
    *bytes = ls_tape_peak(t);
    *packed = ls_tape_packed_bytes(t);
done:
    ls_tape_destroy(t);
    free(copy.params.item);
    return st;
}

size_t ls_model_tape_bytes_in(const ls_model *m, int64_t batch, int64_t tokens, const ls_tape_mode *mode)
{
    size_t bytes = 0, packed;
    return dry_run(m, batch, tokens, mode, &bytes, &packed) < 0 ? 0 : bytes;
}

ls_status ls_model_packed_bytes(const ls_model *m, int64_t batch, int64_t tokens, const ls_tape_mode *mode,
                                size_t *bytes)
{
    size_t tape;
    return dry_run(m, batch, tokens, mode, &tape, bytes);
}

size_t ls_model_tape_bytes_of(const ls_model *m, int64_t batch, int64_t tokens)
{
    return ls_model_tape_bytes_in(m, batch, tokens, &(ls_tape_mode){ 0 });
}

size_t ls_model_tape_bytes(const ls_model *m, int64_t batch) { return ls_model_tape_bytes_of(m, batch, 0); }
