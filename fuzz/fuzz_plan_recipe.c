/* fuzz_plan_recipe.c -- plans of a config.json of arbitrary bytes: the best layout that the runtime has becomes a
 * recipe that `lockstep train` reads, with the plan's sizes. Two bytes say how many ranks there are, and the batch. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"
#include "plan/llm_config.h"
#include "plan/plan_recipe.h"
#include "train/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

static const ls_topo cluster = {
    .name = "nodes", .device = { .name = "H100 SXM", .flops_per_s = 989e12, .memory_bytes = 80e9 }, .nlevels = 2,
    .level = { { .name = "node", .count = 8, .link = "NVLink", .bytes_per_s = 450e9, .latency_s = 6e-7, .ports = 1,
                 .oversubscription = 1 },
               { .name = "cluster", .count = 4, .link = "NDR", .bytes_per_s = 50e9, .latency_s = 2.7e-6, .ports = 8,
                 .rails = true, .oversubscription = 1 } },
};

/* Sizes that a model has: those at the limits of readers are other targets'. */
static bool is_usual(const ls_llm *m)
{
    const int64_t size[] = { m->layers, m->heads, m->vocab, m->seq, m->hidden, m->ffn, m->experts, m->topk };
    static const int64_t most[] = { 64, 64, 1 << 18, 1 << 13, 1 << 13, 1 << 15, 64, 32 };
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        if (size[i] > most[i]) return false;
    return m->heads > 0 && m->hidden / m->heads <= 128;
}

static void train_reads(const ls_layout_query *q, const ls_layout *l, const char *text)
{
    ls_train_config c;
    ls_opts *o;
    CHECK(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o) == LS_OK);
    CHECK(ls_opts_read_yaml(o, "recipe", text, strlen(text)) == LS_OK);
    CHECK(ls_train_config_resolve(o, &c) == LS_OK);
    CHECK(c.parallel.tp == l->t && c.parallel.pp == l->p && c.parallel.cp == l->c && c.train.micro_batch == l->micro);
    CHECK(c.model.n_layer == q->model.layers && c.model.d_model == q->model.hidden && c.train.global_batch == q->batch);
    c.data.path = "not read";
    const ls_status st = ls_train_config_check(&c, (int)q->world);
    CHECK(st == LS_OK);
    ls_opts_destroy(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 2) return 0;
    ls_layout_query q = { .topo = &cluster, .world = 1 << p[0] % 6, .memory = 1e18, .top = 1,
                          .schedules = ls_recipe_schedules() };
    q.batch = q.world * (1 + p[1] % 8);
    if (ls_llm_config_parse("fuzz", (const char *)p + 2, n - 2, &q.model) != LS_OK || !is_usual(&q.model)) return 0;
    ls_layouts *found = malloc(sizeof *found);
    CHECK(found);
    const ls_status st = ls_layout_search(&q, found);
    CHECK(st == LS_OK || st == LS_BAD_CONFIG);
    ls_text text = { 0 };
    if (st == LS_OK && found->n > 0) {
        const ls_status written = ls_layout_recipe(&q, &found->best[0].layout, "--topology x", &text);
        CHECK(written == LS_OK || written == LS_UNSUPPORTED);
        if (written == LS_OK) train_reads(&q, &found->best[0].layout, ls_text_str(&text));
    }
    ls_text_free(&text);
    free(found);
    return 0;
}
