/* lm.c -- what language models share: rules of sizes, units and first values from tables, pieces of forward. */
#include "model/lm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tape.h"

#define MOST_WIDTH ((int64_t)1 << 20)
#define MOST_TOKENS ((int64_t)1 << 24)

/* --- sizes --------------------------------------------------------------------------- */

static ls_status check_sizes(const ls_lm_config *c)
{
    const struct { const char *key; int64_t value, most; } size[] = {
        { "vocab_size", c->vocab_size, MOST_TOKENS }, { "seq_len", c->seq_len, MOST_TOKENS },
        { "n_layer", c->n_layer, LS_MOST_LAYERS },    { "n_head", c->n_head, 1024 },
        { "n_kv_head", c->n_kv_head, 1024 },          { "d_model", c->d_model, MOST_WIDTH },
        { "d_ff", c->d_ff, MOST_TOKENS },
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value < 1 || size[i].value > size[i].most)
            return ls_fail(LS_BAD_CONFIG, "model.%s is %lld; expected 1 to %lld", size[i].key, (long long)size[i].value,
                           (long long)size[i].most);
    if (c->d_model % c->n_head != 0)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld is not a multiple of model.n_head %lld", (long long)c->d_model,
                       (long long)c->n_head);
    if (c->n_head % c->n_kv_head != 0)
        return ls_fail(LS_BAD_CONFIG, "model.n_head %lld is not a multiple of model.n_kv_head %lld", (long long)c->n_head,
                       (long long)c->n_kv_head);
    return LS_OK;
}

ls_status ls_lm_resolve(const ls_model_config *c, ls_model_config *out)
{
    *out = *c;
    ls_lm_config *s = &out->lm;
    if (s->n_kv_head == 0) s->n_kv_head = s->n_head;
    if (s->d_ff == 0) s->d_ff = 4 * s->d_model;
    if (!(s->norm_eps > 0) && !(s->norm_eps < 0)) s->norm_eps = 1e-5;
    if (!(s->rope_theta > 0) && !(s->rope_theta < 0)) s->rope_theta = 10000;
    LS_TRY(check_sizes(s));
    if (!(s->norm_eps > 0 && s->norm_eps < 1))
        return ls_fail(LS_BAD_CONFIG, "model.norm_eps is %g; expected more than 0, less than 1", s->norm_eps);
    if (!(s->rope_theta >= 1 && s->rope_theta <= 1e12))
        return ls_fail(LS_BAD_CONFIG, "model.rope_theta is %g; expected 1 to 1e12", s->rope_theta);
    const double p[] = { s->embd_dropout, s->attn_dropout, s->resid_dropout };
    for (int i = 0; i < 3; i++)
        if (!(p[i] >= 0 && p[i] < 1))
            return ls_fail(LS_BAD_CONFIG, "a dropout of %g; expected a probability, 0 or more and less than 1", p[i]);
    return LS_OK;
}

/* --- units and parameters ---------------------------------------------------------------- */

static int64_t length(const ls_lm_config *c, ls_lm_dim dim)
{
    switch (dim) {
    case LS_LM_V: return c->vocab_size;
    case LS_LM_T: return c->seq_len;
    case LS_LM_C: return c->d_model;
    case LS_LM_3C: return 3 * c->d_model;
    case LS_LM_KV: return c->d_model / c->n_head * c->n_kv_head;
    case LS_LM_F: return c->d_ff;
    case LS_LM_E: return c->n_experts;
    case LS_LM_EF: return c->n_experts * c->d_expert;
    case LS_LM_S: return c->shared_expert;
    case LS_LM_1: return 1;
    default: return 0;
    }
}

static void name_of(const char *pattern, int layer, char *out, size_t n)
{
    const char *number = strstr(pattern, "%d");
    if (number) snprintf(out, n, "%.*s%d%s", (int)(number - pattern), pattern, layer, number + 2);
    else snprintf(out, n, "%s", pattern);
}

const ls_lm_param *ls_lm_tied(const ls_lm_unit *u)
{
    for (int k = 0; k < u->cls.nparams; k++)
        if (u->param[k].head) return &u->param[k];
    return NULL;
}

/* Some of the experts, and of each some of the rows. */
static ls_part experts_of(const ls_model *m, int64_t dim[2])
{
    const ls_along *ep = &m->place.ep;
    const int64_t E = m->lm.n_experts, here = ls_part_of(ep, E);
    ls_part part = { .dim = 0, .runs = (int)here, .of = dim[0] / E, .count = dim[0] / E, .of_runs = (int)E,
                     .first_run = ls_divides(ep) ? (int)here * ep->rank : 0 };
    if (ls_divides(&m->place.tp)) {
        const ls_range rows = ls_shard_of((size_t)part.of, m->place.tp.rank, m->place.tp.size);
        part.first = (int64_t)rows.first;
        part.count = (int64_t)rows.count;
    }
    dim[0] = here * part.count;
    return part;
}

/* On how many neighbours of tp a part of it is. */
static int copies_of(const ls_model *m, const ls_lm_param *p)
{
    return p->cut == LS_LM_COLUMNS && p->dim[0] == LS_LM_KV ? ls_part_copies(&m->place.tp, m->lm.n_kv_head) : 1;
}

/* Which part of the parameter is here, and dim[] as it is here. */
static ls_part part_of(const ls_model *m, const ls_lm_param *p, int64_t dim[2])
{
    const int d = p->cut == LS_LM_ROWS;
    ls_part part = { .dim = d, .runs = 1, .of = dim[d], .count = dim[d] };
    if (p->cut == LS_LM_EXPERTS && (ls_divides(&m->place.tp) || ls_divides(&m->place.ep))) return experts_of(m, dim);
    if (p->cut == LS_LM_WHOLE || !ls_divides(&m->place.tp)) return part;
    if (p->dim[d] == LS_LM_3C) {
        part.runs = 3;
        part.of = m->lm.d_model;
    }
    const int copies = copies_of(m, p);
    const ls_range here = ls_shard_of((size_t)part.of, m->place.tp.rank / copies, m->place.tp.size / copies);
    part.first = (int64_t)here.first;
    part.count = (int64_t)here.count;
    dim[d] = part.runs * part.count;
    return part;
}

/* The parameter at its index is this one of the table. */
static void describe(ls_model *m, const ls_lm_param *p, const ls_part *part, int index)
{
    ls_param *added = &m->params.item[index];
    added->part = *part;
    added->transposed = p->transposed;
    added->f32 = p->f32;
    added->tp_copies = copies_of(m, p);
}

/* Of the newest unit, or of the root. */
static ls_status add(ls_model *m, const ls_lm_param *p, int layer)
{
    char name[LS_NAME_BYTES];
    name_of(p->name, layer, name, sizeof name);
    int64_t dim[2] = { length(&m->lm, p->dim[0]), length(&m->lm, p->dim[1]) };
    const ls_part part = part_of(m, p, dim);
    LS_TRY(ls_units_add(&m->units, &m->params, name, p->dim[1] ? 2 : 1, dim));
    describe(m, p, &part, m->params.n - 1);
    return LS_OK;
}

/* A table with a hole, or without the matrix that a model may tie, is a mistake of the model's file. */
static ls_status check_table(const ls_model *m, const char *unit, const ls_lm_unit *u, bool tied)
{
    for (int k = 0; k < u->cls.nparams; k++)
        if (!u->param[k].name)
            return ls_fail(LS_INVALID, "%s: the table of unit '%s' has no parameter at position %d", m->cls->name, unit, k);
    if (!tied || ls_lm_tied(u)) return LS_OK;
    return ls_fail(LS_INVALID, "%s: the table of unit '%s' marks no parameter as the head's matrix (.head)", m->cls->name,
                   unit);
}

/* Experts that ranks divide have other replicas than all else: they come after it, where one wrapper has them. */
static bool comes_last(const ls_model *m, const ls_lm_param *p)
{
    return p->cut == LS_LM_EXPERTS && ls_divides(&m->place.ep);
}

/* The newest unit has all parameters of the table, or those of its attention or of its mlp. A parameter's id is that of
 * its place in the table, so first values do not depend on which layers are halved. */
static ls_status add_params(ls_model *m, const ls_lm_unit *u, const bool *mlp, int layer, uint32_t id)
{
    const char *root = ls_lm_tied(&m->cls->lm->embedding)->name;
    for (int k = 0; k < u->cls.nparams; k++) {
        const ls_lm_param *p = &u->param[k];
        if (p->head && m->lm.tied) {
            LS_TRY(ls_units_share(&m->units, &m->params, root));
            continue;
        }
        if (mlp && p->mlp != *mlp) LS_TRY(ls_units_skip(&m->units));
        else if (comes_last(m, p)) LS_TRY(ls_units_leave(&m->units));
        else {
            LS_TRY(add(m, p, layer));
            m->params.item[m->params.n - 1].id = id;
        }
        id++;
    }
    return LS_OK;
}

/* Parameters of a table that belong to its unit, not to the root. */
static uint32_t own_of(const ls_model *m, const ls_lm_unit *u)
{
    uint32_t n = 0;
    for (int k = 0; k < u->cls.nparams; k++) n += !(u->param[k].head && m->lm.tied);
    return n;
}

static ls_status add_unit(ls_model *m, const ls_lm_unit *u, const char *name, uint32_t *id)
{
    LS_TRY(ls_units_begin(&m->units, name, 0, &u->cls, m));
    LS_TRY(add_params(m, u, NULL, 0, *id));
    *id += own_of(m, u);
    return LS_OK;
}

static const ls_lm_unit *layer_of(const ls_model *m, int layer)
{
    const ls_lm_class *lm = m->cls->lm;
    return lm->block_at ? lm->block_at(&m->lm, layer) : &lm->block;
}

/* One unit, or one for each half. */
static ls_status add_layer(ls_model *m, int layer, uint32_t *id)
{
    static const char *const half[] = { ".attention", ".mlp" };
    const ls_lm_unit *u = layer_of(m, layer);
    const bool halved = ls_layer_is_halved(&m->place, layer);
    for (int h = 0; h < (halved ? 2 : 1); h++) {
        const bool mlp = h > 0;
        char name[LS_UNIT_NAME];
        snprintf(name, sizeof name, "h.%d%s", layer, halved ? half[h] : "");
        LS_TRY(ls_units_begin(&m->units, name, layer, halved ? &u->half[h] : &u->cls, m));
        LS_TRY(add_params(m, u, halved ? &mlp : NULL, layer, *id));
    }
    *id += own_of(m, u);
    return LS_OK;
}

/* The table of unit i. */
static const ls_lm_unit *table_of(const ls_model *m, int i)
{
    if (i == 0) return &m->cls->lm->embedding;
    return i == m->units.n - 1 ? &m->cls->lm->head : layer_of(m, m->units.item[i].number);
}

bool ls_lm_is_second_half(const ls_model *m, int i)
{
    return i > 1 && i < m->units.n - 1 && m->units.item[i].number == m->units.item[i - 1].number;
}

ls_unit *ls_lm_last_of(const ls_model *m, int layer)
{
    int i = 1 + layer;
    while (m->units.item[i].number < layer || ls_lm_is_second_half(m, i + 1)) i++;
    return &m->units.item[i];
}

/* What comes last, of unit i, whose table's first parameter has this id. */
static ls_status add_experts_of(ls_model *m, int i, uint32_t id)
{
    const ls_lm_unit *u = table_of(m, i);
    char name[LS_NAME_BYTES];
    for (int k = 0; k < u->cls.nparams; k++) {
        const ls_lm_param *p = &u->param[k];
        if (p->head && m->lm.tied) continue;
        id++;
        if (!comes_last(m, p) || m->units.item[i].position[k] == LS_UNIT_SKIPPED) continue;
        int64_t dim[2] = { length(&m->lm, p->dim[0]), length(&m->lm, p->dim[1]) };
        const ls_part part = part_of(m, p, dim);
        name_of(p->name, m->units.item[i].number, name, sizeof name);
        LS_TRY(ls_units_add_last(&m->units, &m->params, i, k, name, 2, dim));
        describe(m, p, &part, m->params.n - 1);
        m->params.item[m->params.n - 1].id = id - 1;
    }
    return LS_OK;
}

static ls_status add_experts(ls_model *m)
{
    uint32_t id = m->lm.tied;
    m->params.experts = m->params.n;
    for (int i = 0; i < m->units.n; i++) {
        const bool second = ls_lm_is_second_half(m, i);
        if (second) id -= own_of(m, table_of(m, i));
        LS_TRY(add_experts_of(m, i, id));
        id += own_of(m, table_of(m, i));
    }
    return LS_OK;
}

ls_status ls_lm_create(const ls_model_config *c, ls_model *m)
{
    const ls_lm_class *lm = m->cls->lm;
    uint32_t id = 0;
    m->lm = c->lm;
    LS_TRY(check_table(m, "embedding", &lm->embedding, true));
    for (int l = 0; l < m->lm.n_layer; l++) LS_TRY(check_table(m, "h", layer_of(m, l), false));
    LS_TRY(check_table(m, "head", &lm->head, true));
    if (m->lm.tied) LS_TRY(add(m, ls_lm_tied(&lm->embedding), (int)id++));
    LS_TRY(add_unit(m, &lm->embedding, "embedding", &id));
    for (int l = 0; l < m->lm.n_layer; l++) LS_TRY(add_layer(m, l, &id));
    LS_TRY(add_unit(m, &lm->head, "head", &id));
    return ls_divides(&m->place.ep) ? add_experts(m) : LS_OK;
}

void ls_lm_input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    const int64_t T = tokens ? tokens : m->lm.seq_len;
    *in = (ls_model_input){ .dtype = LS_I64, .ndim = 2, .dim = { batch, T },
                            .label_ndim = 2, .label_dim = { batch, T } };
}

/* --- initial values ------------------------------------------------------------------------ */

static ls_dist dist_of(ls_lm_init how, int64_t layers)
{
    switch (how) {
    case LS_LM_RESIDUAL: return (ls_dist){ .kind = LS_DIST_NORMAL, .a = (float)(0.02 / sqrt(2.0 * (double)layers)) };
    case LS_LM_ZERO: return (ls_dist){ .kind = LS_DIST_CONSTANT, .a = 0.0f };
    case LS_LM_ONE: return (ls_dist){ .kind = LS_DIST_CONSTANT, .a = 1.0f };
    default: return (ls_dist){ .kind = LS_DIST_NORMAL, .a = 0.02f };
    }
}

ls_status ls_lm_init_values(ls_model *m, const ls_model_config *c)
{
    if (c->init != LS_INIT_PHILOX)
        return ls_fail(LS_UNSUPPORTED, "model.init torch: %s does not have PyTorch's initial values; set it to philox", m->cls->name);
    for (int i = 0; i < m->units.n; i++) {
        const ls_unit *u = &m->units.item[i];
        const ls_lm_param *table = table_of(m, i)->param;
        for (int k = 0; k < u->npositions; k++) {
            if (u->position[k] == LS_UNIT_SKIPPED) continue;
            ls_param *p = ls_units_param(&m->params, u, k);
            const bool again = p->unit < 0 && i > 0; /* tied: the embedding's has been drawn */
            if (!again) LS_TRY(ls_init_part(p, c->seed, dist_of(table[k].init, m->lm.n_layer)));
        }
    }
    return LS_OK;
}

/* --- pieces of forward ------------------------------------------------------------------------ */

ls_tensor *ls_lm_ids(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass)
{
    const ls_model *m = u->arg;
    char shape[96];
    if (!ids) return NULL;
    if (ids->dtype != LS_I64 || ids->ndim != 2)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "%s: token ids %s of %s: expected [B, T] of int64", m->cls->name,
                                     ls_tensor_shape(ids, shape, sizeof shape), ls_dtype_name(ids->dtype)));
    const int64_t tokens = ids->dim[1] + pass->at.first;
    if (tokens > m->lm.seq_len)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "%s: a sequence of %lld tokens, the model's longest is %lld", m->cls->name,
                                     (long long)tokens, (long long)m->lm.seq_len));
    return ids;
}

ls_tensor *ls_lm_embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, ls_tensor *w, const ls_pass *pass)
{
    const ls_vocab_part part = ls_tp_vocab(pass->place, ls_lm_sizes(u)->vocab_size);
    ids = ls_cp_pick(t, ls_lm_ids(u, t, ids, pass), pass->place);
    return ls_tp_leave(t, ls_embedding_part(t, ids, w, &part), pass->place);
}

/* Of tokens that follow each other here, [first, first + count). */
static void some_of(const ls_places *all, int64_t first, int64_t count, ls_places *out)
{
    *out = (ls_places){ .of = all->of };
    for (int k = 0; k < all->n && count > 0; k++) {
        const int64_t left = all->count[k] - first, n = left < count ? left : count;
        if (n > 0) {
            out->first[out->n] = all->first[k] + first;
            out->count[out->n++] = n;
            count -= n;
        }
        first = n > 0 ? 0 : first - all->count[k];
    }
}

ls_status ls_lm_tokens(const ls_pass *pass, int64_t T, bool between, ls_places *out)
{
    const ls_place *p = pass->place;
    const int64_t parts = between && p->sequence_parallel && ls_divides(&p->tp) ? p->tp.size : 1;
    ls_places all;
    LS_TRY(ls_cp_tokens(p, T * parts * (ls_divides(&p->cp) ? p->cp.size : 1), &all));
    some_of(&all, parts > 1 ? T * p->tp.rank : 0, T, out);
    for (int k = 0; k < out->n; k++) out->first[k] += pass->at.first;
    return LS_OK;
}

ls_tensor *ls_lm_positions(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_pass *pass)
{
    ls_places tokens;
    if (!x) return NULL;
    const ls_status st = ls_lm_tokens(pass, x->dim[x->ndim - 2], true, &tokens);
    return st < 0 ? ls_op_fail(t, st) : ls_add_rows_at(t, x, w, &tokens);
}

ls_tensor *ls_lm_rope(ls_tape *t, ls_tensor *x, double theta, const ls_pass *pass)
{
    ls_places tokens;
    if (!x) return NULL;
    const ls_status st = ls_lm_tokens(pass, x->dim[1], false, &tokens);
    return st < 0 ? ls_op_fail(t, st) : ls_rope_at(t, x, theta, &tokens);
}

#define SITE_BITS 16 /* of a site's number: at most 3 in each of 1024 layers, and one */

static uint64_t stream_of(const ls_draw *draw, int64_t site)
{
    return ls_stream(LS_STREAM_DROPOUT, draw->step << SITE_BITS | (uint64_t)site);
}

ls_tensor *ls_lm_dropout(const ls_pass *pass, ls_tape *t, ls_tensor *x, double p, int64_t site)
{
    if (!x || !(p > 0) || !ls_tape_grad(t)) return x;
    const ls_draw *draw = &pass->draw;
    ls_places tokens;
    const ls_status st = ls_lm_tokens(pass, x->dim[1], true, &tokens);
    if (st < 0) return ls_op_fail(t, st);
    const uint64_t sample = (uint64_t)(tokens.of * x->dim[2]); /* elements of one */
    return ls_dropout_at(t, x, (float)p, draw->seed, stream_of(draw, site), draw->sample * sample, &tokens);
}

ls_attention_dropout ls_lm_attention_dropout(const ls_pass *pass, const ls_tape *t, double p, int64_t site,
                                             int64_t heads, int64_t T)
{
    const ls_draw *draw = &pass->draw;
    if (!(p > 0) || !ls_tape_grad(t)) return (ls_attention_dropout){ 0 };
    if (ls_divides(&pass->place->cp)) T *= pass->place->cp.size;
    return (ls_attention_dropout){
        .p = (float)p, .seed = draw->seed, .stream = stream_of(draw, site),
        .first = draw->sample * (uint64_t)(heads * T * T), .heads = heads,
        .first_head = ls_lm_heads(pass, heads) * (ls_divides(&pass->place->tp) ? pass->place->tp.rank : 0),
    };
}

ls_tensor *ls_lm_output(const ls_unit *u, ls_tape *t, ls_tensor *h, ls_tensor *w, const ls_pass *pass)
{
    const ls_tensor *labels = pass->labels;
    ls_loss_sums *sums = pass->sums;
    const ls_vocab_part part = ls_tp_vocab(pass->place, ls_lm_sizes(u)->vocab_size);
    if ((part.size > 1 || ls_divides(&pass->place->cp)) && pass->output != LS_OUTPUT_LOSS)
        return ls_op_fail(t, ls_fail(LS_UNSUPPORTED, "logits of a model whose layers several ranks divide: a rank has the loss "
                                     "alone; create the whole model (ls_model_create) to ask for logits"));
    switch (pass->output) {
    case LS_OUTPUT_LOGITS: return ls_linear(t, h, w, NULL);
    case LS_OUTPUT_LAST_LOGITS: return ls_last_logits(t, h, w);
    default: break;
    }
    if (!h || !labels) return NULL;
    return ls_linear_cross_entropy_part(t, ls_tp_enter(t, h, pass->place), w, ls_cp_pick(t, pass->labels, pass->place),
                                        1.0 / (double)ls_tensor_count(labels), sums ? &sums->sum : NULL,
                                        sums ? &sums->counted : NULL, &part);
}
