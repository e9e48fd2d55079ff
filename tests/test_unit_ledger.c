/* What a tape keeps for each unit of a model: counted when the unit's forward is over, until backward is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/model.h"
#include "nn/unit_ledger.h"

#define assert_done(expr)                                                          \
    do {                                                                           \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());           \
    } while (0)

enum { V = 64, T = 8, B = 2, C = 32, LAYERS = 3, UNITS = LAYERS + 2, ROWS = UNITS + 1 };

static const ls_model_config gpt2 = {
    .name = "gpt2",
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = LAYERS, .n_head = 4, .d_model = C, .tied = true },
};

typedef struct fixture {
    ls_model *m;
    ls_ledger l;
    ls_unit_ledger *units;
    ls_tape_scratch *scratch;
    ls_tape *t[2];
} fixture;

static void open_at(fixture *f, const ls_model_config *c, const ls_place *place)
{
    memset(f, 0, sizeof *f);
    assert_done(ls_model_create_at(c, place, &f->m));
    assert_done(ls_unit_ledger_open(&f->m->units, &f->l, &f->units));
    assert_done(ls_tape_scratch_create_dry(&f->scratch));
    for (int i = 0; i < 2; i++) {
        assert_done(ls_tape_create_shared(f->scratch, 0, NULL, NULL, &f->t[i]));
        assert_done(ls_unit_ledger_listen(f->units, f->t[i]));
    }
    for (int i = 0; i < f->m->params.n; i++) f->m->params.item[i].t.grad = &f->m->params.item[i].grad;
}

static void open_all(fixture *f) { open_at(f, &gpt2, &(ls_place){ 0 }); }

static void close_all(fixture *f)
{
    for (int i = 0; i < 2; i++) ls_tape_destroy(f->t[i]);
    ls_tape_scratch_destroy(f->scratch);
    ls_unit_ledger_close(f->units);
    assert_null(f->l.row);
    ls_model_destroy(f->m);
}

static ls_tensor *forward(fixture *f, int tape)
{
    const int64_t shape[] = { B, T };
    ls_tape *t = f->t[tape];
    ls_tape_reset(t);
    ls_tensor *x = ls_tape_input(t, LS_I64, 2, shape, NULL), *labels = ls_tape_input(t, LS_I64, 2, shape, NULL);
    ls_tensor *loss = ls_model_loss(f->m, t, x, labels, NULL);
    assert_done(ls_tape_status(t));
    return loss;
}

static size_t inputs(fixture *f)
{
    const int64_t shape[] = { B, T };
    ls_tape_reset(f->t[0]);
    for (int i = 0; i < 2; i++) assert_non_null(ls_tape_input(f->t[0], LS_I64, 2, shape, NULL));
    return ls_tape_in_use(f->t[0]);
}

static size_t sum(const fixture *f)
{
    size_t n = 0;
    for (int i = 0; i < f->l.nrows; i++) n += f->l.row[i].now[LS_MEM_ACT];
    assert_int_equal(n, f->l.held[LS_MEM_ACT]);
    return n;
}

static void rows_are_named_after_units(void **state)
{
    (void)state;
    static const char *const name[ROWS] = { "root", "embedding", "h.0", "h.1", "h.2", "head" };
    fixture f;
    open_all(&f);
    assert_int_equal(f.l.nrows, ROWS);
    for (int i = 0; i < ROWS; i++) assert_string_equal(f.l.row[i].name, name[i]);
    close_all(&f);
    ls_unit_ledger_close(NULL);
}

/* Everything that a forward leaves on the tape was made in a unit, but the inputs. */
static void units_keep_all_that_forward_leaves(void **state)
{
    (void)state;
    static const ls_recompute how[] = { LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL };
    size_t before = SIZE_MAX;
    for (int i = 0; i < 3; i++) {
        fixture f;
        open_all(&f);
        const size_t outside = inputs(&f);
        ls_tape_set_recompute(f.t[0], how[i]);
        ls_tensor *loss = forward(&f, 0);
        assert_int_equal(sum(&f), ls_tape_in_use(f.t[0]) - outside);
        assert_true(sum(&f) < before); /* each keeps less than the one before */
        before = sum(&f);
        for (int r = 1; r < ROWS; r++) assert_true(f.l.row[r].now[LS_MEM_ACT] > 0);
        assert_int_equal(f.l.row[0].now[LS_MEM_ACT], 0);
        for (int r = 3; r < 5; r++) assert_int_equal(f.l.row[r].now[LS_MEM_ACT], f.l.row[2].now[LS_MEM_ACT]);
        assert_done(ls_backward(f.t[0], loss));
        assert_int_equal(sum(&f), 0);
        size_t peak = 0;
        for (int r = 0; r < ROWS; r++) peak += f.l.row[r].peak[LS_MEM_ACT];
        assert_int_equal(peak, before);
        close_all(&f);
    }
}

/* A block of GPT-2 without dropout, T tokens in each of B sequences, keeps of a token 18 rows of C numbers, mean and
 * 1 / deviation of two norms, and one number per head; selective 6 rows less; full its result. */
static void a_block_keeps_what_the_formula_says(void **state)
{
    (void)state;
    static const struct { ls_recompute how; size_t rows, numbers; } row[] = {
        { LS_RECOMPUTE_NONE, 18, 4 + 4 }, { LS_RECOMPUTE_SELECTIVE, 12, 4 + 4 }, { LS_RECOMPUTE_FULL, 1, 0 },
    };
    static const ls_dtype dtype[] = { LS_F32, LS_BF16 };
    for (int k = 0; k < 6; k++) {
        fixture f;
        size_t kept[2];
        open_all(&f);
        ls_tape *t = f.t[0];
        ls_tape_set_recompute(t, row[k / 2].how);
        assert_done(ls_tape_set_dtype(t, dtype[k % 2]));
        for (int i = 0; i < 2; i++) { /* headers, which are no numbers, are the same in both */
            const int64_t shape[] = { 16 << i, T };
            ls_tape_reset(t);
            ls_tensor *x = ls_tape_input(t, LS_I64, 2, shape, NULL), *labels = ls_tape_input(t, LS_I64, 2, shape, NULL);
            assert_non_null(ls_model_loss(f.m, t, x, labels, NULL));
            kept[i] = f.l.row[3].now[LS_MEM_ACT];
        }
        const size_t token = row[k / 2].rows * C * ls_dtype_size(dtype[k % 2]) + row[k / 2].numbers * sizeof(float);
        assert_int_equal(kept[1] - kept[0], 16 * T * token);
        close_all(&f);
    }
}

/* Of a rank of tp, per token: what tp divides, and what each rank has whole. With sequence parallelism it divides all
 * (Korthikanti et al. 2022): what is gathered for products, and their sums before they are scattered, do not stay. */
static void a_rank_of_tensor_parallelism_keeps_its_part(void **state)
{
    (void)state;
    static const struct { bool sp; ls_recompute how; size_t whole, divided, numbers; } row[] = {
        { false, LS_RECOMPUTE_NONE, 6, 12, 4 }, { false, LS_RECOMPUTE_SELECTIVE, 4, 8, 4 },
        { true, LS_RECOMPUTE_NONE, 0, 18, 0 },  { true, LS_RECOMPUTE_SELECTIVE, 0, 12, 0 },
    };
    enum { HEADS = 4, LONGER = 64 };
    ls_model_config c = gpt2;
    c.lm.seq_len = 2 * LONGER;
    for (int k = 0; k < 8; k++) {
        const size_t tp = k < 4 ? 2 : 4;
        const bool sp = row[k % 4].sp;
        fixture f;
        size_t kept[2];
        open_at(&f, &c, &(ls_place){ .tp = { .size = (int)tp }, .sequence_parallel = sp });
        ls_tape *t = f.t[0];
        ls_tape_set_recompute(t, row[k % 4].how);
        for (int i = 0; i < 2; i++) {
            const int64_t shape[] = { B, LONGER << i };
            ls_tape_reset(t);
            ls_tensor *x = ls_tape_input(t, LS_I64, 2, shape, NULL), *labels = ls_tape_input(t, LS_I64, 2, shape, NULL);
            ls_tensor *loss = ls_model_loss(f.m, t, x, labels, NULL);
            assert_non_null(loss);
            for (int r = 3; r < 5; r++) assert_int_equal(f.l.row[r].now[LS_MEM_ACT], f.l.row[2].now[LS_MEM_ACT]);
            kept[i] = f.l.row[3].now[LS_MEM_ACT];
            assert_done(ls_backward(t, loss));
        }
        const size_t numbers = row[k % 4].numbers + (HEADS + 4 - row[k % 4].numbers) / tp;
        const size_t token = row[k % 4].whole * C + row[k % 4].divided * C / tp + numbers;
        assert_int_equal(kept[1] - kept[0], B * LONGER * token * sizeof(float));
        close_all(&f);
    }
}

static void micro_batches_add_up(void **state)
{
    (void)state;
    fixture f;
    open_all(&f);
    ls_tensor *first = forward(&f, 0);
    const size_t one = sum(&f);
    ls_tensor *second = forward(&f, 1);
    assert_int_equal(sum(&f), 2 * one);
    assert_done(ls_backward(f.t[0], first));
    assert_int_equal(sum(&f), one);
    assert_done(ls_backward(f.t[1], second));
    assert_int_equal(sum(&f), 0);
    assert_int_equal(f.l.most[LS_MEM_ACT], 2 * one);
    close_all(&f);
}

/* Weight halves that are put off read what forward kept. */
static void a_backward_that_is_put_off_keeps_its_units(void **state)
{
    (void)state;
    fixture f;
    open_all(&f);
    assert_done(ls_tape_defer_weights(f.t[0], true));
    ls_tensor *loss = forward(&f, 0);
    const size_t one = sum(&f);
    assert_done(ls_backward(f.t[0], loss));
    assert_int_equal(sum(&f), one);
    assert_done(ls_backward_weights(f.t[0]));
    assert_int_equal(sum(&f), 0);
    close_all(&f);
}

static void what_is_given_up_or_not_recorded_does_not_stay(void **state)
{
    (void)state;
    fixture f;
    open_all(&f);
    forward(&f, 0);
    const size_t one = sum(&f);
    forward(&f, 0); /* after no backward */
    assert_int_equal(sum(&f), one);
    assert_int_equal(f.l.most[LS_MEM_ACT], one);
    ls_tape_set_grad(f.t[0], false);
    forward(&f, 0);
    assert_int_equal(sum(&f), 0);
    const struct ls_unit other = { .name = "other" }; /* of no model that it knows */
    ls_tape_set_grad(f.t[0], true);
    ls_tape_reset(f.t[0]);
    ls_tape_unit_begin(f.t[0], &other);
    ls_tape_unit_end(f.t[0]);
    assert_int_equal(sum(&f), 0);
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_named_after_units),
        cmocka_unit_test(units_keep_all_that_forward_leaves),
        cmocka_unit_test(a_block_keeps_what_the_formula_says),
        cmocka_unit_test(a_rank_of_tensor_parallelism_keeps_its_part),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(a_backward_that_is_put_off_keeps_its_units),
        cmocka_unit_test(what_is_given_up_or_not_recorded_does_not_stay),
    };
    return cmocka_run_group_tests_name("unit_ledger", tests, NULL, NULL);
}
