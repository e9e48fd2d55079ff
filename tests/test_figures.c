/* Figures against closed forms; every preset in every form; requests that are refused, with what is expected. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/limits.h"
#include "fig/fig.h"
#include "lockstep/model.h"
#include "fig/gpt.h"

static char *answer(const char *request)
{
    ls_text out = { 0 };
    if (ls_fig_answer(request, &out) != LS_OK) fail_msg("%s: %s", request, ls_last_error());
    return out.p;
}

static json_t *ask(const char *fmt, ...)
{
    char request[512];
    json_error_t e;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(request, sizeof request, fmt, ap);
    va_end(ap);
    strcat(request, " --json");
    char *text = answer(request);
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!j) fail_msg("%s: line %d: %s", request, e.line, e.text);
    free(text);
    return j;
}

static double fact(const json_t *j, const char *name)
{
    const json_t *v = json_object_get(json_object_get(j, "facts"), name);
    if (!json_is_number(v)) fail_msg("no fact %s", name);
    return json_number_value(v);
}

static const json_t *cell(const json_t *j, int row, int column)
{
    return json_array_get(json_array_get(json_object_get(json_object_get(j, "table"), "rows"), (size_t)row), (size_t)column);
}
static double number(const json_t *j, int row, int column) { return json_number_value(cell(j, row, column)); }

/* To 8 digits: answers have 9. */
static void close_to(double a, double b, const char *what)
{
    if (!(fabs(a - b) <= 1e-8 * fabs(b))) fail_msg("%s: %.12g, expected %.12g", what, a, b);
}

static void refuse(const char *request, const char *why)
{
    ls_text out = { 0 };
    assert_int_equal(ls_fig_answer(request, &out), LS_USAGE);
    if (!strstr(ls_last_error(), why)) fail_msg("%s: %s: expected '%s'", request, ls_last_error(), why);
    assert_int_equal(out.n, 0);
    ls_text_free(&out);
}

/* --- schedule ---------------------------------------------------------------------------------------------------- */

static void a_ring_is_the_textbooks(void **state)
{
    (void)state;
    for (int n = 2; n <= 64; n += n < 16 ? 1 : 16) {
        const double S = 240.0 * n * 1024, alpha = 30000, beta = 0.8, gamma = 0.15; /* S divides by n */
        json_t *j = ask("schedule algo=ring ranks=%d size_kib=%d step=%d", n, 240 * n, n - 1);
        close_to(fact(j, "rounds"), 2 * (n - 1), "rounds");
        close_to(fact(j, "messages"), 2 * (n - 1) * n, "messages");
        close_to(fact(j, "sent_most"), 2.0 * (n - 1) / n, "sent");
        close_to(fact(j, "final_chunks"), n, "a complete chunk on each rank after N-1 rounds");
        close_to(fact(j, "time_ns"), 2 * (n - 1) * (alpha + beta * S / n) + (n - 1) * gamma * S / n, "time");
        close_to(number(j, 2 * (n - 1) - 1, 3), (double)n * n, "the last round completes all");
        json_decref(j);
    }
}

static void others_count_as_the_books_do(void **state)
{
    (void)state;
    for (int k = 1; k <= 4; k++) {
        const int n = 1 << k;
        json_t *j = ask("schedule algo=recursive_doubling ranks=%d", n);
        close_to(fact(j, "rounds"), k, "rounds of doubling");
        close_to(fact(j, "sent_most"), k, "whole vectors");
        json_decref(j);
        j = ask("schedule algo=halving_doubling ranks=%d", n);
        close_to(fact(j, "rounds"), 2 * k, "rounds of halving and doubling");
        close_to(fact(j, "sent_most"), 2.0 * (n - 1) / n, "bytes of halving and doubling");
        json_decref(j);
        j = ask("schedule coll=broadcast algo=tree ranks=%d step=%d root=%d", n, k > 1 ? k - 1 : 1, n - 1);
        close_to(fact(j, "rounds"), k, "rounds of a tree");
        close_to(fact(j, "messages"), n - 1, "messages of a tree");
        close_to(fact(j, "final_chunks"), k > 1 ? n / 2 : n, "ranks that have it");
        json_decref(j);
    }
    json_t *j = ask("schedule algo=master ranks=4"); /* rank 0 sends each of three ranks the result */
    close_to(fact(j, "sent_most"), 3, "a master sends three vectors");
    json_decref(j);
    j = ask("schedule ranks=4 step=200");
    close_to(fact(j, "step"), 6, "a step after the last is the end");
    json_decref(j);
    j = ask("schedule ranks=4 step=0");
    close_to(fact(j, "final_chunks"), 0, "nothing is complete at the start");
    json_decref(j);
}

static void chunks_that_stay_empty_are_not_final(void **state)
{
    (void)state;
    json_t *j = ask("schedule coll=gather algo=linear ranks=4 step=0"); /* each has its own part from the start */
    close_to(fact(j, "final_chunks"), 4, "own parts");
    json_decref(j);
    j = ask("schedule coll=gather algo=linear ranks=4 step=255");
    close_to(fact(j, "final_chunks"), 7, "the root has four, others have their own");
    json_decref(j);
}

static void values_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    refuse("schedule root=4", "root=4 of 4 ranks: expected 0 to 3");
    refuse("schedule algo=chain", "algo=chain does not do all_reduce");
    refuse("schedule coll=broadcast", "algo=ring does not do broadcast: algo=auto takes one that does");
}

/* --- winner ------------------------------------------------------------------------------------------------------ */

static void two_ranks_broadcast_in_one_message(void **state)
{
    (void)state;
    json_t *j = ask("winner coll=broadcast ranks=2 alpha_us=20 gap_percent=0 gb_per_s=2");
    close_to(fact(j, "smallest_ns"), 20000 + 0.5 * 256, "alpha + beta S");
    close_to(fact(j, "largest_ns"), 20000 + 0.5 * 268435456, "alpha + beta S");
    close_to(fact(j, "fit_alpha_ns"), 20000, "alpha");
    close_to(fact(j, "fit_beta_ns_per_byte"), 0.5, "beta");
    assert_true(fact(j, "fit_worst") < 1e-9);
    close_to(fact(j, "crossings"), 0, "one winner");
    json_decref(j);
}

static void the_fastest_is_first_and_crossings_are_counted(void **state)
{
    (void)state;
    static const char *const presets[] = { "ethernet", "infiniband", "far", "broadcast" };
    static const int crossings[] = { 1, 2, 1, 2 };
    for (int p = 0; p < 4; p++) {
        json_t *j = ask("winner preset=%s", presets[p]);
        int n = 0;
        for (int i = 0; i < 11; i++) {
            assert_true(number(j, i, 3) <= number(j, i, 5));
            if (i > 0) n += strcmp(json_string_value(cell(j, i, 1)), json_string_value(cell(j, i - 1, 1))) != 0;
            close_to(number(j, i, 0), 256.0 * pow(4, i), "size");
        }
        close_to(fact(j, "crossings"), n, "crossings");
        assert_int_equal(n, crossings[p]); /* what the preset's point says */
        const double fitted = fact(j, "fit_alpha_ns") + fact(j, "fit_beta_ns_per_byte") * 268435456; /* of the winner */
        assert_true(fabs(fitted - fact(j, "largest_ns")) <= (fact(j, "fit_worst") + 1e-8) * fact(j, "largest_ns"));
        json_decref(j);
    }
}

/* --- buckets ----------------------------------------------------------------------------------------------------- */

static void buckets_follow_the_formulas(void **state)
{
    (void)state;
    const double L = 3, C = 64, V = 500, tokens = 100, alpha = 700e3, link = 40; /* link: MB/s */
    const double P = V * C + 1024 * C + L * (12 * C * C + 13 * C) + 2 * C;
    const double backward = 4 * tokens * (V * C + L * 12 * C * C) / 20, beta = 1e3 / link;
    const char *const what = "layers=3 width=64 vocab=500 tokens=100 gflops=20 alpha_us=700 mb_per_s=40";
    json_t *j = ask("buckets %s cap_kib=1048576 first_kib=1048576", what);
    close_to(fact(j, "bytes"), 4 * P, "bytes");
    close_to(fact(j, "gradients"), 4 + 12 * L, "gradients");
    close_to(fact(j, "buckets"), 1, "buckets");
    close_to(fact(j, "backward_ns"), backward, "backward");
    close_to(fact(j, "exposed_ns"), alpha + beta * 4 * P, "one bucket is exposed as a whole");
    close_to(fact(j, "step_ns"), 1.5 * backward + alpha + beta * 4 * P, "step");
    json_decref(j);
    j = ask("buckets layers=3 width=64 vocab=500 tokens=100000 gflops=1 alpha_us=0 mb_per_s=1000000 cap_kib=1 first_kib=1");
    /* behind a slow backward: what comes with the first layer's first product, and after it */
    close_to(fact(j, "exposed_ns"), 1e-3 * 4 * (3 * C * C + 3 * C + 2 * C + 1024 * C + V * C), "the last four buckets");
    json_decref(j);
    j = ask("buckets %s", what); /* the shortest of the table's steps is the one that is named */
    double least = INFINITY, cap = 0;
    const size_t n = json_array_size(json_object_get(json_object_get(j, "table"), "rows"));
    for (size_t i = 0; i < n; i++)
        if (number(j, (int)i, 3) < least) least = number(j, (int)i, 3), cap = number(j, (int)i, 0);
    close_to(1e-6 * fact(j, "best_step_ns"), least, "shortest step");
    close_to(fact(j, "best_cap_bytes"), 1024 * cap, "its cap");
    json_decref(j);
}

static void presets_of_buckets_show_their_points(void **state)
{
    (void)state;
    json_t *few = ask("buckets preset=one-bucket"), *normal = ask("buckets preset=default");
    assert_true(fact(few, "buckets") < 2);
    close_to(fact(few, "exposed_ns"), fact(few, "all_reduce_ns"), "nothing is hidden");
    assert_true(fact(normal, "exposed_ns") < 0.2 * fact(normal, "all_reduce_ns"));
    json_t *small = ask("buckets preset=too-small"), *slow = ask("buckets preset=slow-link");
    assert_true(fact(small, "step_ns") > 1.5 * fact(small, "best_step_ns"));
    assert_true(fact(slow, "best_step_ns") > 5 * fact(slow, "backward_ns"));
    json_decref(few);
    json_decref(normal);
    json_decref(small);
    json_decref(slow);
}

/* --- sampler ----------------------------------------------------------------------------------------------------- */

static void samples_are_dealt_in_turn(void **state)
{
    (void)state;
    json_t *j = ask("sampler n=10 ranks=4 shuffle=off");
    static const char *const want[] = { "0 4 8", "1 5 9", "2 6 0", "3 7 1" };
    for (int r = 0; r < 4; r++) assert_string_equal(json_string_value(cell(j, r, 2)), want[r]);
    close_to(fact(j, "repeated"), 2, "repeated");
    json_decref(j);
    for (int n = 1; n <= 64; n += 7)
        for (int w = 1; w <= 8; w++) {
            j = ask("sampler n=%d ranks=%d seed=9 epoch=3", n, w);
            const int each = (n + w - 1) / w;
            close_to(fact(j, "samples_per_rank"), each, "each");
            close_to(fact(j, "repeated"), each * w - n, "repeated");
            close_to(fact(j, "left_out"), 0, "left out");
            json_decref(j);
            j = ask("sampler n=%d ranks=%d drop_last=on", n, w);
            close_to(fact(j, "samples_per_rank"), n / w, "each");
            close_to(fact(j, "left_out"), n % w, "left out");
            json_decref(j);
        }
}

static void set_epoch_changes_the_order(void **state)
{
    (void)state;
    json_t *with = ask("sampler epoch=7"), *without = ask("sampler epoch=7 set_epoch=off"), *plain = ask("sampler epoch=7 shuffle=off");
    close_to(fact(with, "same_as_epoch_0"), 0, "set_epoch");
    close_to(fact(without, "same_as_epoch_0"), 1, "no set_epoch");
    close_to(fact(plain, "same_as_epoch_0"), 1, "no shuffle");
    json_decref(with);
    json_decref(without);
    json_decref(plain);
}

/* --- ledger ------------------------------------------------------------------------------------------------------ */

static void stages_hold_the_textbooks_bytes(void **state)
{
    (void)state;
    const double L = 2, C = 64, V = 512, T = 32;
    const double P = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C;
    for (int w = 1; w <= 32; w *= 2) { /* all rows divide by 32 */
        const double want[4] = { 16, 8 + 8.0 / w, 4 + 12.0 / w, 16.0 / w };
        json_t *j = ask("ledger layers=2 width=64 vocab=512 seq_len=32 ranks=%d", w);
        close_to(fact(j, "parameters"), P, "P");
        for (int s = 0; s < 4; s++) close_to(number(j, s, 5), want[s] * P, "total");
        json_decref(j);
    }
    static const double bf16[4] = { 18, 12, 9, 4.5 }; /* of matrices, 4 ranks: stage 1 is 4/W + 2 + 4 + 8/W */
    json_t *j = ask("ledger layers=2 width=64 vocab=512 seq_len=32 dtype=bf16 copy=host");
    const double M = fact(j, "copied"), rest[4] = { 16, 10, 7, 4 };
    close_to(M, V * C + L * 12 * C * C, "M");
    for (int s = 0; s < 4; s++) close_to(number(j, s, 5), (s == 1 ? 9 : s == 2 ? 6 : bf16[s]) * M + rest[s] * (P - M), "total in bf16");
    json_decref(j);
}

static void ranks_hold_all_rows_once(void **state)
{
    (void)state;
    for (int w = 3; w <= 1024; w = 7 * w + 2) { /* nothing divides: still every row is someone's */
        json_t *j = ask("ledger stage=3 layers=2 width=100 vocab=1001 seq_len=77 ranks=%d", w);
        close_to(fact(j, "all_ranks_bytes"), 16 * fact(j, "parameters"), "all ranks together");
        assert_true(fact(j, "last_rank_bytes") <= fact(j, "rank_0_bytes"));
        json_decref(j);
        j = ask("ledger stage=0 layers=2 width=100 ranks=%d", w);
        close_to(fact(j, "all_ranks_bytes"), 16.0 * w * fact(j, "parameters"), "copies");
        json_decref(j);
    }
    json_t *j = ask("ledger layers=48 width=4096"); /* more bytes than 32 bits count */
    const double C = 4096, P = 50257 * C + 1024 * C + 48 * (12 * C * C + 13 * C) + 2 * C;
    assert_true(fact(j, "parameters") >= P && fact(j, "parameters") <= P); /* with all its digits */
    close_to(number(j, 0, 5), 16 * fact(j, "parameters"), "bytes");
    json_decref(j);
}

static void shapes_are_the_models(void **state)
{
    (void)state;
    const ls_model_config c = { .name = "gpt2", .lm = { .vocab_size = 11, .seq_len = 6, .n_layer = 3, .n_head = 2, .d_model = 8, .tied = true } };
    const ls_fig_gpt g = { .layers = 3, .width = 8, .vocab = 11, .seq_len = 6 };
    ls_fig_param *p;
    ls_model *m;
    int n;
    assert_int_equal(ls_model_create(&c, &m), LS_OK);
    assert_int_equal(ls_fig_gpt_params(&g, &p, &n), LS_OK);
    assert_int_equal(n, m->params.n);
    for (int i = 0; i < n; i++) {
        const ls_param *q = &m->params.item[i];
        assert_int_equal(p[i].rows, q->t.dim[0]);
        assert_int_equal(ls_fig_param_count(&p[i]), ls_tensor_count(&q->t));
        assert_int_equal(p[i].matrix, ls_param_bf16_nbytes(q) > 0);
    }
    free(p);
    ls_model_destroy(m);
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static void every_preset_has_all_three_forms(void **state)
{
    (void)state;
    static const char *const forms[] = { "--text", "--svg", "--json" };
    for (int f = 0; ls_figures[f]; f++) {
        int n = 0;
        for (const ls_fig_preset *p = ls_figures[f]->preset; p->name; p++, n++) {
            for (int k = 0; k < 3; k++) {
                char request[128];
                snprintf(request, sizeof request, "%s preset=%s %s", ls_figures[f]->name, p->name, forms[k]);
                char *a = answer(request), *b = answer(request);
                assert_string_equal(a, b);
                if (k == 0) assert_non_null(strstr(a, ls_figures[f]->title));
                if (k == 1) assert_ptr_equal(strstr(a, "<svg "), a);
                if (k == 1) assert_non_null(strstr(a, "aria-label=\""));
                if (k != 2) assert_null(strstr(a, "nan")), assert_null(strstr(a, "inf\""));
                for (char *line = strtok(a, "\n"); k == 0 && line; line = strtok(NULL, "\n")) /* the sentence is one line */
                    assert_true(strlen(line) < 120 || strstr(line, ". ") || strchr(line, ';') || line[strlen(line) - 1] == '.');
                free(a);
                free(b);
            }
            json_t *j = ask("%s preset=%s", ls_figures[f]->name, p->name);
            for (int k = 0; k < 2; k++) { /* --page has the others */
                char request[128];
                snprintf(request, sizeof request, "%s preset=%s --page", ls_figures[f]->name, p->name);
                char *whole = answer(request), *form;
                json_t *w = json_loads(whole, 0, NULL);
                snprintf(request, sizeof request, "%s preset=%s %s", ls_figures[f]->name, p->name, forms[k]);
                form = answer(request);
                assert_string_equal(json_string_value(json_object_get(w, k ? "svg" : "text")), form);
                assert_true(json_equal(json_object_get(w, "table"), json_object_get(j, "table")));
                json_decref(w);
                free(whole);
                free(form);
            }
            const json_t *table = json_object_get(j, "table"), *rows = json_object_get(table, "rows");
            assert_true(json_array_size(rows) > 0);
            for (size_t i = 0; i < json_array_size(rows); i++)
                assert_int_equal(json_array_size(json_array_get(rows, i)), json_array_size(json_object_get(table, "columns")));
            assert_true(strlen(json_string_value(json_object_get(j, "sentence"))) > 40);
            json_decref(j);
        }
        assert_in_range(n, 3, 5);
    }
}

static void requests_override_presets_in_any_order(void **state)
{
    (void)state;
    char *a = answer("sampler preset=padded ranks=3"), *b = answer("sampler ranks=3 preset=padded"), *c = answer("sampler n=10 ranks=3");
    assert_string_equal(a, b);
    assert_string_equal(a, c);
    free(a);
    free(b);
    free(c);
    char *list = answer("list");
    for (int f = 0; ls_figures[f]; f++) assert_non_null(strstr(list, ls_figures[f]->caption));
    free(list);
    json_t *j = ask("list");
    assert_int_equal(json_array_size(json_object_get(j, "figures")), 6);
    json_decref(j);
}

/* --- pipeline ---------------------------------------------------------------------------------------------------- */

static void bubbles_are_those_of_the_formulas(void **state)
{
    (void)state;
    static const struct { const char *schedule; int alive; double step; } row[] = {
        { "gpipe", 16, (16 + 3) * 3.5 },
        { "1f1b", 4, (16 + 3) * 3.5 },
        { "interleaved chunks=4", 4 * 4 + 3, 16 * 3.5 + 3 * 3.5 / 4 },
        { "zb-h1", 4, 16 * 3.5 + 3 * (1.5 + 1 - 1) },
        { "zb-h2", 7, 16 * 3.5 + 3 * 1.5 },
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        json_t *j = ask("pipeline micro=16 forward_ms=1.5 schedule=%s", row[k].schedule);
        close_to(fact(j, "step_ms"), row[k].step, row[k].schedule);
        close_to(fact(j, "bubble"), 1 - 16 * 3.5 / row[k].step, row[k].schedule);
        close_to(fact(j, "alive"), row[k].alive, row[k].schedule);
        for (int rank = 0; rank < 4; rank++) {
            double sum = 0;
            for (int i = 1; i < 5; i++) sum += number(j, rank, i);
            close_to(sum, row[k].step, "phases and idle time");
        }
        json_decref(j);
    }
    refuse("pipeline schedule=zb-v chunks=3", "chunks=3: pipeline schedule zb-v with 3 chunks of the model per rank: expected 2");
    refuse("pipeline schedule=zero", "schedule=zero: expected one of gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|dualpipe-v");
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    char longest[LS_FIG_MAX_REQUEST + 2], at_bound[LS_FIG_MAX_REQUEST + 1];
    memset(longest, ' ', sizeof longest);
    longest[sizeof longest - 1] = 0;
    memcpy(longest, "list", 4);
    memcpy(at_bound, longest, sizeof at_bound);
    at_bound[sizeof at_bound - 1] = 0;
    free(answer(at_bound));
    refuse(longest, "a figure's request of 1025 bytes: expected at most 1024");
    refuse("", "an empty request: expected a figure's name, or list");
    refuse(" \n", "an empty request");
    refuse("schedul", "no figure named 'schedul'; did you mean 'schedule'?");
    refuse("xyzzy-plugh", "expected one of schedule, winner, buckets, sampler, ledger, pipeline, list");
    refuse("sampler ranks", "'ranks': expected key=value, --text, --svg or --json");
    refuse("sampler rank=4", "no control named 'rank'; did you mean 'ranks'?");
    refuse("sampler ranks=4 ranks=4", "ranks is there twice");
    refuse("sampler ranks=9", "ranks=9: expected a whole number from 1 to 8");
    refuse("sampler ranks=0", "ranks=0: expected");
    refuse("sampler ranks=", "ranks=: expected");
    refuse("sampler ranks=2.5", "expected a whole number");
    refuse("sampler ranks=0x4", "ranks=0x4: expected");
    refuse("sampler ranks=nan", "ranks=nan: expected");
    refuse("sampler seed=1e400", "seed=1e400: expected");
    refuse("sampler seed=-1", "seed=-1: expected a whole number from 0 to 4294967295");
    refuse("sampler shuffle=maybe", "shuffle=maybe: expected one of on|off");
    refuse("sampler shuffle=o", "shuffle=o: expected one of on|off");
    refuse("sampler preset=evn", "no preset named 'evn'; did you mean 'even'?");
    refuse("sampler preset=", "preset=: expected a name");
    refuse("sampler preset=even preset=even", "preset is there twice");
    refuse("sampler --json --json", "there is a form already");
    refuse("list --svg", "list --svg: expected --text or --json");
    refuse("list --page", "list --page: expected --text or --json");
    refuse("list ranks=2", "list ranks=2: expected --text or --json");
    refuse("sampler ranks=0000000000000000000000000000000000000000000000000000000004", "a word of 64 bytes");
    refuse("winner alpha_us=1e-3", "alpha_us=1e-3: expected a number from 0.01 to 100000");
}

static void one_piece_says_how_it_went(void **state)
{
    (void)state;
    char *good = ls_fig_request("sampler"), *bad = ls_fig_request("sampler n=0"), *plain = answer("sampler");
    assert_int_equal(strncmp(good, "ok\n", 3), 0);
    assert_string_equal(good + 3, plain);
    assert_string_equal(bad, "error[usage]: n=0: expected a whole number from 1 to 64\n");
    free(good);
    free(bad);
    free(plain);
}

static void the_logarithm_is_one(void **state)
{
    (void)state;
    for (int e = -40; e <= 60; e++) assert_true(ls_fig_log2(ldexp(1.0, e)) == e);
    for (double v = 1e-6; v < 1e12; v *= 1.37)
        assert_true(fabs(ls_fig_log2(v) - log2(v)) < 1e-14 * (1 + fabs(log2(v))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_is_the_textbooks),
        cmocka_unit_test(others_count_as_the_books_do),
        cmocka_unit_test(chunks_that_stay_empty_are_not_final),
        cmocka_unit_test(values_that_do_not_go_together_are_refused),
        cmocka_unit_test(two_ranks_broadcast_in_one_message),
        cmocka_unit_test(the_fastest_is_first_and_crossings_are_counted),
        cmocka_unit_test(buckets_follow_the_formulas),
        cmocka_unit_test(presets_of_buckets_show_their_points),
        cmocka_unit_test(samples_are_dealt_in_turn),
        cmocka_unit_test(set_epoch_changes_the_order),
        cmocka_unit_test(stages_hold_the_textbooks_bytes),
        cmocka_unit_test(ranks_hold_all_rows_once),
        cmocka_unit_test(shapes_are_the_models),
        cmocka_unit_test(every_preset_has_all_three_forms),
        cmocka_unit_test(requests_override_presets_in_any_order),
        cmocka_unit_test(bubbles_are_those_of_the_formulas),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(one_piece_says_how_it_went),
        cmocka_unit_test(the_logarithm_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
