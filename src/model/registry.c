/* registry.c -- the list of models, and what all of them have in common. */
#include <stdlib.h>
#include <string.h>

#include "lockstep/model.h"
#include "tensor/tape.h"

extern const ls_model_class ls_model_mlp, ls_model_gpt2, ls_model_llama;

const ls_model_class *const ls_model_classes[] = { &ls_model_mlp, &ls_model_gpt2, &ls_model_llama, NULL };

const ls_model_class *ls_model_class_find(const char *name)
{
    for (int i = 0; name && ls_model_classes[i]; i++)
        if (strcmp(ls_model_classes[i]->name, name) == 0) return ls_model_classes[i];
    return NULL;
}

ls_status ls_model_create(const ls_model_config *c, ls_model **out)
{
    *out = NULL;
    const ls_model_class *cls = ls_model_class_find(c->name);
    if (!cls) return ls_fail(LS_BAD_CONFIG, "model.name: no model '%s'; known: mlp, gpt2, llama", c->name ? c->name : "");
    ls_model *m = calloc(1, sizeof *m);
    if (!m) return ls_fail(LS_NO_MEMORY, "model '%s'", c->name);
    m->cls = cls;
    const ls_status st = cls->create(c, m);
    if (st < 0) {
        ls_model_destroy(m);
        return st;
    }
    *out = m;
    return LS_OK;
}

ls_status ls_model_init(ls_model *m, const ls_model_config *c) { return m->cls->init(m, c); }

ls_tensor *ls_model_forward(ls_model *m, ls_tape *t, ls_tensor *x) { return m->cls->forward(m, t, x); }

ls_tensor *ls_model_loss(ls_model *m, ls_tape *t, ls_tensor *x, ls_tensor *labels, ls_loss_sums *sums)
{
    if (sums) *sums = (ls_loss_sums){ .correct = -1 };
    if (m->cls->loss) return m->cls->loss(m, t, x, labels, sums);
    if (sums && labels) sums->counted = ls_tensor_count(labels);
    return ls_softmax_cross_entropy(t, ls_model_forward(m, t, x), labels, sums ? &sums->sum : NULL,
                                    sums ? &sums->correct : NULL);
}

void ls_model_destroy(ls_model *m)
{
    if (!m) return;
    if (m->cls->destroy) m->cls->destroy(m);
    ls_params_free(&m->params);
    ls_arena_destroy(m->arena);
    free(m);
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
