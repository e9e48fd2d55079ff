/* What `lockstep explain zero` says for 1 to 16 ranks, every stage, one set of shards and several, in shared memory and
 * over connections: formulas against closed forms of a GPT-2 that are written down here; plan and counts against
 * ledgers and counters of real runs, to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness.h"
#include "harness_text.h"
#include "net/world.h"
#include "tensor/gemm.h"
#include "train/explain_zero.h"
#include "train/trainer.h"

#define assert_done(expr)                                                \
    do {                                                                 \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error()); \
    } while (0)

/* Rows that neither 4 nor 8 ranks can share evenly, of lengths that are no cache lines. */
enum { C = 36, T = 13, LAYERS = 3, HEADS = 2, NPARAMS = 2 + 12 * LAYERS + 2, PARTS = 2, PREFETCH = 1, MOST = 16 };
enum { ROUNDED_ABOVE = 32 << 10 }; /* bytes of a vector, with comm.wire bf16 */
static const bool every_stage[LS_ZERO_STAGES] = { true, true, true, true };

/* --- a run -------------------------------------------------------------------------------------------------- */

typedef struct run {
    ls_train_config c;
    ls_opts *o;
    ls_source source;
    ls_model_config mc;
    int size, sets;
    bool tcp, wire; /* over connections; whose sums travel as bf16 */
    const ls_zero_column *col; /* what the ranks compare themselves with */
} run;

static void set(run *x, const char *key, const char *value)
{
    if (ls_opts_set(x->o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

static void open_run(run *x, int size, const char *dtype)
{
    char batch[16];
    snprintf(batch, sizeof batch, "%d", size * PARTS);
    const char *const key[] = { "model.name", "gpt2", "model.n_layer", "3", "model.n_head", "2", "model.d_model", "36",
                                "model.seq_len", "13", "data.name", text, "data.path", tokens, "data.tokenizer", "byte",
                                "train.global_batch", batch, "train.micro_batch", "1", "train.dtype", dtype };
    *x = (run){ .size = size, .sets = 1 };
    assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &x->c, &x->o));
    for (size_t i = 0; i < sizeof key / sizeof *key; i += 2) set(x, key[i], key[i + 1]);
    assert_done(ls_train_config_resolve(x->o, &x->c));
    assert_done(ls_train_model(&x->c, &x->source, &x->mc));
}

/* Several sets of shards. Algorithms whose bytes do not depend on the length of a vector. */
static void open_sets(run *x, int size, int sets, const char *dtype, const char *transport, const char *wire)
{
    char number[16];
    snprintf(number, sizeof number, "%d", sets);
    open_run(x, size, dtype);
    x->sets = sets;
    x->tcp = strcmp(transport, "tcp") == 0;
    x->wire = strcmp(wire, "bf16") == 0;
    set(x, "zero.hsdp", number);
    set(x, "comm.transport", transport);
    set(x, "comm.wire", wire);
    set(x, "comm.algo", x->tcp ? "direct" : "fold");
}

static void close_run(run *x)
{
    ls_source_free(&x->source);
    ls_opts_destroy(x->o);
}

static ls_status as_planned(ls_trainer *t, const ls_zero_rank *r)
{
    const ls_ledger *l = ls_world_ledger(t->w);
    size_t total = 0;
    ls_step_stats s;
    ls_eval e;
    for (int i = 0; i < 3; i++) LS_TRY(ls_train_step(t, &s));
    const ls_comm_stats *got = &s.comm;
    const uint64_t sums = got->of[LS_REDUCE_SCATTER].bytes, values = got->of[LS_ALL_GATHER].bytes;
    uint64_t want = r->others;
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) want += r->counted[k];
    LS_EXPECT(got->bytes == want, "%llu bytes travelled, expected %llu", (unsigned long long)got->bytes,
              (unsigned long long)want);
    LS_EXPECT(sums == 0 || sums == r->counted[LS_ZERO_SUMS] + r->counted[LS_ZERO_SUMS_SET],
              "reduce_scatter moved %llu bytes", (unsigned long long)sums);
    LS_EXPECT(values >= r->counted[LS_ZERO_NEW], "all_gather moved %llu bytes", (unsigned long long)values);
    LS_TRY(ls_train_evaluate(t, &e));
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) {
        LS_EXPECT(l->peak[k] == r->plan.bytes[k], "%s: the ledger has %zu bytes, expected %zu", ls_mem_kind_name(k),
                  l->peak[k], r->plan.bytes[k]);
        total += l->peak[k];
    }
    LS_EXPECT(total == r->plan.total, "%zu bytes together, expected %zu", total, r->plan.total);
    /* the classes are the kinds, and nothing is left over */
    size_t held[LS_ZERO_CLASSES];
    for (int k = 0; k < LS_ZERO_CLASSES; k++)
        held[k] = (size_t)((int64_t)(r->held[k].formula + r->held[k].alignment) + r->held[k].rows);
    const size_t in_use = r->values.formula + r->values.padding;
    const size_t param = held[LS_ZERO_VALUES] + held[LS_ZERO_COPIES] + in_use + r->packed + r->samples;
    const size_t grad = held[LS_ZERO_GRADS] + r->grads.formula + r->grads.padding;
    LS_EXPECT(param == l->peak[LS_MEM_PARAM], "parameters: lines add up to %zu, the ledger has %zu", param,
              l->peak[LS_MEM_PARAM]);
    LS_EXPECT(grad == l->peak[LS_MEM_GRAD], "gradients: lines add up to %zu, the ledger has %zu", grad,
              l->peak[LS_MEM_GRAD]);
    LS_EXPECT(held[LS_ZERO_STATE] == l->peak[LS_MEM_OPTIM], "the optimizer's lines add up to %zu", held[LS_ZERO_STATE]);
    return LS_OK;
}

static ls_status real_rank(ls_world *w, void *arg)
{
    const run *x = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&x->c, w, NULL, &t));
    const ls_status st = as_planned(t, &x->col->rank[ls_world_rank(w)]);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

/* Trains as the column says, on ranks that are threads. */
static void train(run *x, const ls_zero_column *col)
{
    const char *const stage[] = { "0", "1", "2", "3" };
    ls_memory_plan plan;
    size_t arena[MOST];
    const bool hybrid = x->sets > 1 && col->stage > 0;
    char number[16];
    snprintf(number, sizeof number, "%d", hybrid ? x->sets : 1);
    x->col = col;
    set(x, "zero.hsdp", number);
    set(x, "zero.stage", stage[col->stage]);
    set(x, "zero.copy", col->copy ? col->copy : "host");
    set(x, "zero.reshard", col->reshard ? col->reshard : "default");
    assert_done(ls_memory_plan_make(&x->c, &x->mc, 0, x->size, &plan));
    assert_done(ls_memory_plan_arenas(&x->c, &x->mc, x->size, arena));
    ls_world_opts o = ls_train_world_opts(&x->c, &plan);
    o.arena_of = arena;
    if (ls_world_threads(x->size, &o, real_rank, x) < 0)
        fail_msg("%d ranks, %d sets, %s, %s, stage %d, copy %s, reshard %s: %s", x->size, x->sets, x->c.comm.transport,
                 x->c.train.dtype, col->stage, x->c.zero.copy, x->c.zero.reshard, ls_last_error());
    set(x, "zero.stage", "0");
    set(x, "zero.copy", "host");
    set(x, "zero.reshard", "default");
}

/* --- closed forms ------------------------------------------------------------------------------------------------ */

/* A parameter: rows, elements of one, the unit it is of (-1: the root), and whether operations read it in bf16. */
typedef struct shape {
    size_t rows, row;
    int unit;
    bool copied;
} shape;

/* Of `world` ranks each `size`, side by side, have one set of shards. */
typedef struct model {
    shape of[NPARAMS];
    int n, size, world;
    bool bf16, tcp, wire, asked; /* the algorithm is given */
} model;

static void add(model *m, int unit, size_t rows, size_t row, bool copied)
{
    m->of[m->n++] = (shape){ rows, row, unit, copied && m->bf16 };
}

static void describe(model *m, const run *x, int stage)
{
    const size_t V = (size_t)x->mc.lm.vocab_size;
    *m = (model){ .size = stage > 0 ? x->size / x->sets : x->size, .world = x->size, .tcp = x->tcp,
                  .wire = x->wire, .asked = *x->c.comm.algo != 0, .bf16 = x->c.train.dtype[0] == 'b' };
    add(m, -1, V, C, true);  /* tokens, which are the head's matrix, too */
    add(m, 0, T, C, false);  /* positions */
    for (int l = 1; l <= LAYERS; l++) {
        for (int i = 0; i < 4; i++) add(m, l, C, 1, false); /* two norms */
        add(m, l, (size_t)3 * C, C, true);
        add(m, l, (size_t)3 * C, 1, false);
        add(m, l, C, C, true);
        add(m, l, C, 1, false);
        add(m, l, (size_t)4 * C, C, true);
        add(m, l, (size_t)4 * C, 1, false);
        add(m, l, C, (size_t)4 * C, true);
        add(m, l, C, 1, false);
    }
    add(m, LAYERS + 1, C, 1, false);
    add(m, LAYERS + 1, C, 1, false);
    assert_int_equal(m->n, NPARAMS);
}

static size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static size_t elements(const shape *s) { return s->rows * s->row; }
static bool several(const model *m) { return m->size < m->world; }
/* Several sets, and not all ranks map each other's memory: sums are complete within a set first. */
static bool in_two_steps(const model *m) { return several(m) && m->tcp; }
/* Of n things rank `rank` of `ranks` has so many: the first n % ranks have one more. */
static size_t part_of(size_t n, int rank, int ranks)
{
    return n / (size_t)ranks + ((size_t)rank < n % (size_t)ranks);
}
static size_t mine(const model *m, const shape *s, int rank)
{
    return part_of(s->rows, rank % m->size, m->size) * s->row;
}
static size_t read_bytes(const shape *s) { return elements(s) * (s->copied ? 2 : 4); }

/* What one rank must have and move. */
typedef struct expected {
    size_t held[LS_ZERO_CLASSES];    /* with rows and alignment */
    size_t formula[LS_ZERO_CLASSES]; /* the textbook's, rounded down */
    int64_t rows[LS_ZERO_CLASSES];
    size_t values, values_formula, grads, grads_formula;
    uint64_t travels[LS_ZERO_TRAVELS], travels_formula[LS_ZERO_TRAVELS], rounded[LS_ZERO_TRAVELS], others;
} expected;

/* Values and copies, by what a rank stores of each parameter: all or its rows, in lines of 64 bytes of their own. */
static void expect_values(const model *m, int rank, const ls_zero_column *col, expected *e)
{
    const bool gathered = col->copy && strcmp(col->copy, "rank") == 0, one_copy = col->stage == 3 && !gathered;
    size_t lines = 0;
    for (const shape *s = m->of; s < m->of + m->n; s++) {
        const size_t n = elements(s), own = mine(m, s, rank), width = s->copied ? 2 : 4;
        const bool masters = gathered || (s->copied && col->stage > 0);
        if (masters) lines += up(4 * own, 64);
        else if (!one_copy) lines += up(4 * n, 64);
        if (one_copy) lines += width * own + (rank % m->size == 0 ? up(width * n, 64) - width * n : 0);
        if (s->copied && col->stage < 3) lines += up(2 * n, 64);
        if (s->copied && col->stage < 3) e->held[LS_ZERO_COPIES] += 2 * n;
        if (s->copied && one_copy) e->held[LS_ZERO_COPIES] += 2 * own;
    }
    e->held[LS_ZERO_VALUES] = lines - e->held[LS_ZERO_COPIES];
}

static void expect_classes(const model *m, int rank, const ls_zero_column *col, bool every, expected *e)
{
    const size_t w = (size_t)m->size;
    const bool gathered = col->copy && strcmp(col->copy, "rank") == 0, shards = col->stage >= 2 && every;
    const bool apart = !shards && in_two_steps(m); /* sums of own rows lie beside all gradients */
    size_t P = 0, M = 0, own = 0, own_m = 0, state = 0, grads = 0;
    for (const shape *s = m->of; s < m->of + m->n; s++) {
        const size_t here = mine(m, s, rank), n = elements(s);
        P += n;
        M += s->copied ? n : 0;
        own += here;
        own_m += s->copied ? here : 0;
        state += 2 * up(4 * (col->stage > 0 ? here : n), 64);
        grads += up(4 * n, 64) + (size_t)m->world * 64;
    }
    expect_values(m, rank, col, e);
    e->held[LS_ZERO_GRADS] = (shards ? 0 : grads) + (shards || apart ? up(4 * own, 64) : 0);
    e->held[LS_ZERO_STATE] = state;
    const size_t V = P - M;
    const bool masters = m->bf16 && (col->stage == 1 || col->stage == 2);
    e->formula[LS_ZERO_VALUES] = col->stage == 3 ? 4 * P / w : masters ? 4 * V + 4 * M / w : 4 * P;
    e->rows[LS_ZERO_VALUES] = col->stage == 3 ? (int64_t)(4 * own) - (int64_t)(4 * P / w)
                              : masters       ? (int64_t)(4 * own_m) - (int64_t)(4 * M / w) : 0;
    e->formula[LS_ZERO_COPIES] = gathered ? 0 : col->stage == 3 ? 2 * M / w : 2 * M;
    e->rows[LS_ZERO_COPIES] = col->stage == 3 && !gathered ? (int64_t)(2 * own_m) - (int64_t)(2 * M / w) : 0;
    e->formula[LS_ZERO_GRADS] = (shards ? 0 : 4 * P) + (shards || apart ? 4 * P / w : 0);
    e->rows[LS_ZERO_GRADS] = shards || apart ? (int64_t)(4 * own) - (int64_t)(4 * P / w) : 0;
    e->formula[LS_ZERO_STATE] = col->stage > 0 ? 8 * P / w : 8 * P;
    e->rows[LS_ZERO_STATE] = col->stage > 0 ? (int64_t)(8 * own) - (int64_t)(8 * P / w) : 0;
}

/* Two blocks at a time, or with zero.reshard never all units, each with as much memory as a block; and the root. */
static void expect_in_use(const model *m, const ls_zero_column *col, bool every, expected *e)
{
    const size_t w = (size_t)m->world;
    const bool gathered = col->copy && strcmp(col->copy, "rank") == 0;
    const bool never = col->reshard && strcmp(col->reshard, "never") == 0;
    size_t block = 0, lines = 0, all = 0, padded = 0;
    for (const shape *s = m->of; s < m->of + m->n; s++) {
        block += s->unit == 1 ? 4 * elements(s) : 0;
        padded += s->unit == 1 ? up(4 * elements(s), 64) : 0;
        lines += s->unit == 1 ? up(read_bytes(s), 64) : 0;
    }
    if (col->stage >= 2 && every) {
        e->grads_formula = 2 * block + 4 * elements(&m->of[0]);
        e->grads = 2 * up(padded, w * 64) + up(up(4 * elements(&m->of[0]), 64), w * 64);
    }
    if (!gathered) return;
    for (const shape *s = m->of; s < m->of + m->n; s++) all += s->unit >= 0 ? read_bytes(s) : 0;
    size_t one = 0;
    for (const shape *s = m->of; s < m->of + m->n; s++) one += s->unit == 1 ? read_bytes(s) : 0;
    e->values_formula = (never ? all : (1 + PREFETCH) * one) + read_bytes(&m->of[0]);
    e->values = (size_t)(never ? LAYERS + 2 : 1 + PREFETCH) * lines + up(read_bytes(&m->of[0]), 64);
}

/* Bytes of an all_reduce by fold, or over connections by direct: of its part a rank gets the others' values or sends
 * them theirs, and then all get the sum of each part. `width`: of an element on its way. */
static uint64_t all_reduced(const model *m, size_t n, size_t width, int rank, int ranks)
{
    const size_t part = part_of(n, rank, ranks), others = (size_t)ranks - 1;
    return width * (m->tcp ? n - part + others * part : 2 * others * part);
}

/* On its way a sum of so many floats has 4 bytes each, or 2; and elements that are rounded are counted. */
static size_t width_of(const model *m, size_t n, size_t elements, uint64_t *rounded)
{
    if (!m->wire || m->world == 1 || 4 * n <= ROUNDED_ABOVE) return 4;
    *rounded += elements;
    return 2;
}

/* A bucket of the parameters of one unit, or of all (unit < -1). */
static void expect_bucket(const model *m, int rank, int unit, bool all_reduce, uint64_t times, expected *e)
{
    const int sets = m->world / m->size;
    size_t n = 0, own = 0, padded = 0;
    for (const shape *s = m->of; s < m->of + m->n; s++) {
        if (unit >= -1 && s->unit != unit) continue;
        n += elements(s);
        own += mine(m, s, rank);
        padded += up(4 * elements(s), 64);
    }
    padded = up(padded, (size_t)m->world * 64) / 4;
    const int k = in_two_steps(m) ? LS_ZERO_SUMS_SET : LS_ZERO_SUMS;
    if (all_reduce) {
        const size_t width = width_of(m, padded, n, &e->rounded[k]);
        e->travels[k] += times * all_reduced(m, padded, width, rank, m->world);
        return;
    }
    const size_t width = m->size > 1 ? width_of(m, n, n, &e->rounded[k]) : 4;
    e->travels[k] += times * width * (m->tcp ? n - own : ((size_t)m->size - 1) * own);
    if (!in_two_steps(m)) return;
    const size_t between = width_of(m, own, n, &e->rounded[LS_ZERO_SUMS_SETS]);
    e->travels[LS_ZERO_SUMS_SETS] += all_reduced(m, own, between, rank / m->size, sets);
}

static void expect_sums(const model *m, int rank, const ls_zero_column *col, bool every, expected *e)
{
    const uint64_t w = (uint64_t)m->world, s = (uint64_t)m->size, times = col->stage >= 2 && every ? PARTS : 1;
    const bool gathered = col->copy && strcmp(col->copy, "rank") == 0, at_units = (col->stage >= 2 && every) || gathered;
    const bool all_reduce = col->stage == 0 || (several(m) && !m->tcp);
    uint64_t P = 0;
    for (const shape *x = m->of; x < m->of + m->n; x++) P += elements(x);
    for (int unit = at_units ? -1 : -2; unit == -2 || (at_units && unit <= LAYERS + 1); unit++) {
        expect_bucket(m, rank, unit, all_reduce, times, e);
        if (unit == -2) break;
    }
    if (in_two_steps(m)) {
        e->travels_formula[LS_ZERO_SUMS_SET] = times * (4 * P - 2 * e->rounded[LS_ZERO_SUMS_SET]) * (s - 1) / s;
        e->travels_formula[LS_ZERO_SUMS_SETS] = 2 * (4 * P - 2 * e->rounded[LS_ZERO_SUMS_SETS]) * (w / s - 1) / w;
    } else {
        const uint64_t passes = all_reduce ? 2 * times : times;
        e->travels_formula[LS_ZERO_SUMS] = passes * (4 * P - 2 * e->rounded[LS_ZERO_SUMS]) * (w - 1) / w;
    }
}

/* Four numbers of each rank, and a square per gradient, which are summed: by reading those of all ranks, or by the
 * algorithm that is asked for. In memory it cuts a vector at cache lines. */
static uint64_t expect_others(const model *m, int rank)
{
    const size_t others = (size_t)m->world - 1, lines = up(8 * NPARAMS, 64) / 64;
    const size_t norm = !m->asked ? others * 8 * NPARAMS
                        : m->tcp  ? all_reduced(m, NPARAMS, 8, rank, m->world)
                                  : 2 * others * 64 * part_of(lines, rank, m->world);
    return others * 48 + (others > 0 ? norm : 0); /* what ranks tell each other of a step: six words */
}

/* Of new values a rank reads the others' parts, or sends its own. */
static void expect_traffic(const model *m, int rank, const ls_zero_column *col, bool every, expected *e)
{
    const uint64_t s = (uint64_t)m->size;
    const bool gathered = col->copy && strcmp(col->copy, "rank") == 0;
    const uint64_t often = col->reshard && strcmp(col->reshard, "never") == 0 ? 1 : 2 * PARTS;
    const uint64_t less = col->reshard && strcmp(col->reshard, "default") == 0 ? PARTS : 0;
    uint64_t whole = 0;
    expect_sums(m, rank, col, every, e);
    for (const shape *x = m->of; x < m->of + m->n; x++) {
        const uint64_t here = mine(m, x, rank), n = elements(x), width = x->copied ? 2 : 4;
        const uint64_t turns = !gathered || x->unit < 0 ? 1 : x->unit == LAYERS + 1 ? often - less : often;
        if (!gathered && col->stage != 1 && col->stage != 2) continue;
        whole += turns * width * n;
        e->travels[LS_ZERO_NEW] += turns * width * (m->tcp ? (s - 1) * here : n - here);
    }
    e->travels_formula[LS_ZERO_NEW] = whole * (s - 1) / s;
    e->others = expect_others(m, rank);
}

static void compare(const char *what, const run *x, const ls_zero_column *col, int rank, long long got, long long want)
{
    if (got != want)
        fail_msg("%d ranks, %d sets, %s, %s, stage %d, copy %s, reshard %s, rank %d, %s: %lld, expected %lld", x->size,
                 x->sets, x->c.comm.transport, x->c.train.dtype, col->stage, col->copy ? col->copy : "-", col->reshard ? col->reshard : "-", rank, what,
                 got, want);
}

static void expect_rank(const run *x, const ls_zero_column *col, int rank, bool every)
{
    static const char *const names[] = { "values", "copies", "gradients", "state" };
    static const char *const moved[] = { "gradients", "gradients in a set", "gradients between sets", "new values" };
    const ls_zero_rank *r = &col->rank[rank];
    model m;
    expected e = { 0 };
    describe(&m, x, col->stage);
    expect_classes(&m, rank, col, every, &e);
    expect_in_use(&m, col, every, &e);
    expect_traffic(&m, rank, col, every, &e);
    for (int k = 0; k < LS_ZERO_CLASSES; k++) {
        const ls_zero_held *h = &r->held[k];
        compare(names[k], x, col, rank, (long long)h->formula, (long long)e.formula[k]);
        compare(names[k], x, col, rank, h->rows, e.rows[k]);
        compare(names[k], x, col, rank, (long long)ls_zero_planned(h), (long long)e.held[k]);
    }
    compare("values in use by formula", x, col, rank, (long long)r->values.formula, (long long)e.values_formula);
    compare("values in use", x, col, rank, (long long)(r->values.formula + r->values.padding), (long long)e.values);
    compare("gradients in use by formula", x, col, rank, (long long)r->grads.formula, (long long)e.grads_formula);
    compare("gradients in use", x, col, rank, (long long)(r->grads.formula + r->grads.padding), (long long)e.grads);
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) {
        compare(moved[k], x, col, rank, (long long)r->rounded[k], (long long)e.rounded[k]);
        compare(moved[k], x, col, rank, (long long)r->formula[k], (long long)e.travels_formula[k]);
        compare(moved[k], x, col, rank, (long long)r->counted[k], (long long)e.travels[k]);
    }
    compare("other bytes", x, col, rank, (long long)r->others, (long long)e.others);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void explain(run *x, bool every)
{
    ls_zero_costs z;
    assert_done(ls_zero_costs_make(&x->c, &x->mc, x->size, every_stage, true, &z));
    assert_int_equal(z.n, LS_ZERO_COLUMNS);
    for (int i = 0; i < z.n; i++) {
        for (int r = 0; r < x->size; r++) expect_rank(x, &z.column[i], r, every);
        train(x, &z.column[i]);
    }
    ls_zero_costs_free(&z);
}

static void formulas_ledgers_and_counters_agree(const char *dtype)
{
    for (int size = 1; size <= 8; size *= 2) {
        run x;
        open_run(&x, size, dtype);
        explain(&x, true);
        close_run(&x);
    }
}

static void in_f32_formula_and_run_agree_to_the_byte(void **state)
{
    (void)state;
    formulas_ledgers_and_counters_agree("f32");
}

static void in_bf16_formula_and_run_agree_to_the_byte(void **state)
{
    (void)state;
    formulas_ledgers_and_counters_agree("bf16");
}

/* Each set of shards is as one world of W/C ranks, and sums go over all sets. Where ranks do not map each other's
 * memory, one copy per node is refused, unless a set is one rank. */
static void explain_sets(run *x, bool every, bool trains)
{
    ls_zero_costs z;
    assert_done(ls_zero_costs_make(&x->c, &x->mc, x->size, every_stage, false, &z));
    assert_int_equal(z.n, LS_ZERO_COLUMNS);
    for (int i = 0; i < z.n; i++) {
        ls_zero_column *col = &z.column[i];
        const bool one_copy = col->stage == 3 && strcmp(col->copy, "host") == 0;
        if (one_copy && x->tcp && x->size > x->sets) {
            assert_non_null(strstr(col->refused, "these ranks do not map each other's memory"));
            continue;
        }
        if (*col->refused) fail_msg("%s", col->refused);
        for (int r = 0; r < x->size; r++) expect_rank(x, col, r, every);
        if (trains && col->stage >= (every ? 1 : 2)) train(x, col);
    }
    ls_zero_costs_free(&z);
    close_run(x);
}

static const struct { int size, sets; bool trains; } hybrid[] = {
    { 2, 2, true }, { 4, 2, true }, { 8, 2, false }, { 8, 4, true }, { 16, 2, false }
};

static void several_sets(const char *transport, const char *wire)
{
    for (size_t i = 0; i < 2 * (sizeof hybrid / sizeof *hybrid); i++) {
        run x;
        open_sets(&x, hybrid[i / 2].size, hybrid[i / 2].sets, i % 2 ? "bf16" : "f32", transport, wire);
        explain_sets(&x, true, hybrid[i / 2].trains);
    }
}

static void several_sets_of_shards_that_map_each_other_s_memory(void **state)
{
    (void)state;
    several_sets("shm", "f32");
}

static void several_sets_of_shards_over_connections(void **state)
{
    (void)state;
    several_sets("tcp", "f32");
}

static void several_sets_whose_sums_are_rounded_on_the_wire(void **state)
{
    (void)state;
    several_sets("tcp", "bf16");
}

/* All gradients are there as well as the sums of a rank's own rows. */
static void several_sets_where_the_last_backward_alone_is_reduced(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        run x;
        open_sets(&x, 4, 2, "f32", tcp ? "tcp" : "shm", "f32");
        set(&x, "zero.reduce", "last");
        explain_sets(&x, false, true);
    }
}

/* Sums of long buckets have half the bytes, new values have all. */
static void one_set_whose_sums_are_rounded_on_the_wire(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2) {
        run x;
        open_sets(&x, size, 1, "f32", "tcp", "bf16");
        explain_sets(&x, true, true);
    }
}

/* If only the last micro-batch is reduced, a rank has all gradients in stages 2 and 3, too. */
static void gradients_stay_whole_where_the_last_backward_alone_is_reduced(void **state)
{
    (void)state;
    run x;
    open_run(&x, 4, "f32");
    set(&x, "zero.reduce", "last");
    ls_zero_costs z;
    assert_done(ls_zero_costs_make(&x.c, &x.mc, x.size, every_stage, true, &z));
    for (int i = 0; i < z.n; i++) {
        for (int r = 0; r < x.size; r++) expect_rank(&x, &z.column[i], r, false);
        if (z.column[i].stage >= 2) train(&x, &z.column[i]);
    }
    ls_zero_costs_free(&z);
    close_run(&x);
}

/* train.numerics invariant: 8 micro-batches are a tree of 3 levels. Beside all gradients there are 3 partial sums of
 * them; of a rank's own rows one of the 3 waits where the optimizer reads. */
static void partial_sums_are_gradients(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2) {
        run x;
        char batch[16];
        ls_zero_costs z;
        open_run(&x, size, size == 2 ? "bf16" : "f32");
        snprintf(batch, sizeof batch, "%d", 8 * size);
        set(&x, "train.global_batch", batch);
        set(&x, "train.micro_batch", "4"); /* grains are of 1 sample all the same */
        set(&x, "train.numerics", "invariant");
        assert_done(ls_zero_costs_make(&x.c, &x.mc, size, every_stage, true, &z));
        for (int i = 0; i < z.n; i++) {
            model m;
            describe(&m, &x, z.column[i].stage);
            for (int r = 0; r < size; r++) {
                size_t all = 0, own = 0;
                for (const shape *s = m.of; s < m.of + m.n; s++) all += elements(s), own += mine(&m, s, r);
                const ls_zero_held *h = &z.column[i].rank[r].held[LS_ZERO_GRADS];
                const bool shards = z.column[i].stage >= 2;
                compare("gradients by formula", &x, &z.column[i], r, (long long)h->formula,
                        (long long)(shards ? 12 * all / (size_t)size : 16 * all));
                compare("gradients of rows", &x, &z.column[i], r, (long long)h->formula + h->rows,
                        (long long)(shards ? 12 * own : 16 * all));
            }
            train(&x, &z.column[i]);
        }
        ls_zero_costs_free(&z);
        close_run(&x);
    }
}

/* Packed weights and values for samples are lines of their own, of rank 0 where it is rank 0 that writes samples. */
static void packed_weights_and_samples_have_their_lines(void **state)
{
    (void)state;
    const bool stages[LS_ZERO_STAGES] = { true, true, true, false };
    /* On some processors, and in builds with ThreadSanitizer, no product reads packed weights. */
    const ls_gemm_call large = { .in = LS_BF16, .out = LS_BF16, .m = 256, .n = 256, .k = 256 };
    const bool packs = ls_gemm_packed_bytes(&large) > 0;
    run x;
    open_run(&x, 2, "bf16");
    const char *const larger[] = { "model.d_model", "64", "model.seq_len", "32", "train.micro_batch", "2" };
    for (size_t i = 0; i < 6; i += 2) set(&x, larger[i], larger[i + 1]); /* smaller products read no packed weights */
    ls_source_free(&x.source);
    assert_done(ls_train_model(&x.c, &x.source, &x.mc));
    set(&x, "train.pack_weights", "always");
    set(&x, "train.sample_every", "5");
    ls_zero_costs z;
    assert_done(ls_zero_costs_make(&x.c, &x.mc, x.size, stages, true, &z));
    assert_int_equal(z.n, 3);
    for (int i = 0; i < z.n; i++) {
        assert_int_equal(z.column[i].rank[0].packed > 0, packs);
        assert_int_equal(z.column[i].rank[0].samples > 0, i == 2); /* before, gradients lend their memory */
        assert_int_equal(z.column[i].rank[1].samples, 0);
        train(&x, &z.column[i]);
    }
    ls_zero_costs_free(&z);
    close_run(&x);
}

/* A run with packed weights has no stage 3: the others are shown, unless it is asked for. */
static void a_stage_that_a_run_refuses_says_why(void **state)
{
    (void)state;
    run x;
    open_run(&x, 2, "f32");
    set(&x, "train.pack_weights", "always");
    ls_zero_costs z;
    assert_done(ls_zero_costs_make(&x.c, &x.mc, x.size, every_stage, false, &z));
    for (int i = 0; i < z.n; i++) {
        assert_int_equal(*z.column[i].refused != 0, z.column[i].stage == 3);
        if (z.column[i].stage == 3)
            assert_non_null(strstr(z.column[i].refused, "train.pack_weights always with zero.stage 3"));
    }
    ls_zero_costs_free(&z);
    assert_int_equal(ls_zero_costs_make(&x.c, &x.mc, x.size, every_stage, true, &z), LS_UNSUPPORTED);
    ls_zero_costs_free(&z);
    close_run(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_f32_formula_and_run_agree_to_the_byte),
        cmocka_unit_test(in_bf16_formula_and_run_agree_to_the_byte),
        cmocka_unit_test(several_sets_of_shards_that_map_each_other_s_memory),
        cmocka_unit_test(several_sets_of_shards_over_connections),
        cmocka_unit_test(several_sets_whose_sums_are_rounded_on_the_wire),
        cmocka_unit_test(several_sets_where_the_last_backward_alone_is_reduced),
        cmocka_unit_test(one_set_whose_sums_are_rounded_on_the_wire),
        cmocka_unit_test(gradients_stay_whole_where_the_last_backward_alone_is_reduced),
        cmocka_unit_test(partial_sums_are_gradients),
        cmocka_unit_test(packed_weights_and_samples_have_their_lines),
        cmocka_unit_test(a_stage_that_a_run_refuses_says_why),
    };
    return cmocka_run_group_tests_name("explain_zero", tests, make_text, remove_text);
}
