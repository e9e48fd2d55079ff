/* opts: what a table accepts from flags, files and the environment, and what it says otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/limits.h"
#include "base/opts_text.h"
#include "lockstep/opts.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct settings {
    int64_t steps, ranks;
    double lr, beta;
    size_t bucket;
    uint64_t timeout;
    int64_t every;
    const char *dir, *name;
    ls_opt_ints dims;
    ls_opt_doubles betas;
    bool drop_last, help;
} settings;

static const ls_opt table[] = {
    { "train.steps", LS_OPT_INT, offsetof(settings, steps), "100", "1..", "updates", 0, "training.steps" },
    { "optim.name", LS_OPT_CHOICE, offsetof(settings, name), "adamw", "sgd|adam|adamw", "optimizer", 0, NULL },
    { "optim.lr", LS_OPT_DOUBLE, offsetof(settings, lr), "1e-3", ">0", "learning rate", 0, "lr|learning-rate" },
    { "optim.beta", LS_OPT_DOUBLE, offsetof(settings, beta), "0.9", "0..<1", "decay", 0, NULL },
    { "optim.betas", LS_OPT_DOUBLES, offsetof(settings, betas), "0.9,0.999", "0..<1", "decays", 0, NULL },
    { "ddp.bucket_cap", LS_OPT_BYTES, offsetof(settings, bucket), "25MiB", "1KiB..1G", "bytes", 0, NULL },
    { "comm.timeout", LS_OPT_TIME, offsetof(settings, timeout), "30s", ">0", "deadline", 0, NULL },
    { "save.every", LS_OPT_EVERY, offsetof(settings, every), "0", "0..100", "between saves", 0, NULL },
    { "run.dir", LS_OPT_STRING, offsetof(settings, dir), NULL, NULL, "folder", 0, NULL },
    { "model.dims", LS_OPT_INTS, offsetof(settings, dims), "[784, 10]", "1..4096", "widths", 0, NULL },
    { "data.drop_last", LS_OPT_BOOL, offsetof(settings, drop_last), NULL, NULL, "drop the rest", 0, NULL },
    { "nproc-per-node", LS_OPT_INT, offsetof(settings, ranks), "1", "1..64", "local ranks", 'n', NULL },
    { "help", LS_OPT_BOOL, offsetof(settings, help), NULL, NULL, "this text", 'h', NULL },
};

static ls_opts *fresh(settings *s)
{
    ls_opts *o;
    memset(s, 0xa5, sizeof *s);
    assert_int_equal(ls_opts_create(table, COUNT(table), s, &o), LS_OK);
    return o;
}

static ls_status parse(ls_opts *o, const char *const *words, int *rest)
{
    char *argv[16] = { 0 };
    int argc = 0;
    for (; words[argc]; argc++) argv[argc] = (char *)(uintptr_t)words[argc];
    return ls_opts_parse(o, argc, argv, false, rest);
}

static ls_status read_text(ls_opts *o, const char *text) { return ls_opts_read_yaml(o, "run.yaml", text, strlen(text)); }

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

static void sets_every_default(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    assert_int_equal(s.steps, 100);
    assert_string_equal(s.name, "adamw");
    assert_true(s.lr == 1e-3);
    assert_int_equal(s.bucket, 25 << 20);
    assert_int_equal(s.timeout, 30000000000);
    assert_null(s.dir);
    assert_int_equal(s.dims.n, 2);
    assert_int_equal(s.dims.v[0], 784);
    assert_int_equal(s.betas.n, 2);
    assert_true(s.betas.v[1] == 0.999);
    assert_false(s.drop_last);
    assert_string_equal(ls_opts_origin(o, "train.steps"), "default");
    assert_false(ls_opts_is_set(o, "train.steps"));
    ls_opts_destroy(o);
}

static void reads_values_with_units_and_exponents(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    static const struct { const char *text; uint64_t want; } sizes[] = {
        { "64KiB", 65536 }, { "64k", 65536 }, { "25MiB", 26214400 }, { "25 MiB", 26214400 }, { "1G", 1073741824 },
        { "1.5KiB", 1536 }, { "2048", 2048 }, { "2048B", 2048 }, { "1e4", 10000 },
    };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(ls_opts_set(o, "ddp.bucket_cap", sizes[i].text, "flag"), LS_OK);
        assert_int_equal(s.bucket, sizes[i].want);
    }
    static const struct { const char *text; uint64_t want; } times[] = {
        { "30", 30000000000 }, { "30s", 30000000000 }, { "500ms", 500000000 }, { "2m", 120000000000 }, { "2 min", 120000000000 },
        { "1h", 3600000000000 }, { "250us", 250000 }, { "7ns", 7 }, { "0.5", 500000000 }, { "1.5s", 1500000000 },
    };
    for (size_t i = 0; i < COUNT(times); i++) {
        assert_int_equal(ls_opts_set(o, "comm.timeout", times[i].text, "flag"), LS_OK);
        assert_int_equal(s.timeout, times[i].want);
    }
    static const struct { const char *text; int64_t want; } ints[] = {
        { "7", 7 }, { "+7", 7 }, { "1e3", 1000 }, { "2.0", 2 }, { "9223372036854775807", INT64_MAX },
    };
    for (size_t i = 0; i < COUNT(ints); i++) {
        assert_int_equal(ls_opts_set(o, "train.steps", ints[i].text, "flag"), LS_OK);
        assert_int_equal(s.steps, ints[i].want);
    }
    static const struct { const char *text, *again; int64_t want; } intervals[] = {
        { "7", "7", 7 }, { "0", "0", 0 }, { "1e2", "100", 100 }, { "90s", "90s", -90000000000 }, { "10m", "600s", -600000000000 },
        { "1.5ms", "1500us", -1500000 },
    };
    for (size_t i = 0; i < COUNT(intervals); i++) {
        ls_text text = { 0 };
        assert_int_equal(ls_opts_set(o, "save.every", intervals[i].text, "flag"), LS_OK);
        assert_int_equal(s.every, intervals[i].want);
        ls_opt_format(&table[ls_opts_find(o, "save.every")], &s.every, &text);
        assert_string_equal(text.p, intervals[i].again);
        ls_text_free(&text);
    }
    assert_int_equal(ls_opts_set(o, "optim.lr", "1e-4", "flag"), LS_OK);
    assert_true(s.lr == 1e-4);
    assert_int_equal(ls_opts_set(o, "model.dims", "[ 784,256 , 10 ]", "flag"), LS_OK);
    assert_int_equal(s.dims.n, 3);
    assert_int_equal(s.dims.v[1], 256);
    assert_int_equal(ls_opts_set(o, "model.dims", "[]", "flag"), LS_OK);
    assert_int_equal(s.dims.n, 0);
    ls_opts_destroy(o);
}

static void refuses_what_a_type_or_range_excludes(void **state)
{
    (void)state;
    static const struct { const char *name, *value, *says; } row[] = {
        { "save.every", "ten", "--save.every: expected a time such as 10m, or an integer in 0..100, found 'ten'" },
        { "save.every", "101", "found '101'" },     { "save.every", "-1", "found '-1'" },
        { "save.every", "1.5", "found '1.5'" },     { "save.every", "0ms", "found '0ms'" },
        { "save.every", "-1s", "found '-1s'" },     { "save.every", "", "found ''" },
        { "train.steps", "ten", "--train.steps: expected an integer in 1.., found 'ten'" },
        { "train.steps", "", "found ''" },
        { "train.steps", "0", "expected an integer in 1.." },
        { "train.steps", "1.5", "found '1.5'" },
        { "train.steps", "0x10", "found '0x10'" },
        { "train.steps", "9223372036854775808", "expected an integer" },
        { "nproc-per-node", "65", "expected an integer in 1..64, found '65'" },
        { "optim.lr", "0", "expected a number >0" },
        { "optim.lr", "nan", "expected a number" },
        { "optim.lr", "inf", "expected a number" },
        { "optim.lr", "1e999", "expected a number" },
        { "optim.lr", "1e-3x", "expected a number" },
        { "optim.beta", "1", "expected a number in 0..<1" },
        { "optim.name", "adamv", "expected one of sgd|adam|adamw, found 'adamv'; did you mean 'adam'?" },
        { "optim.name", "", "expected one of" },
        { "optim.name", "sgd|adam", "expected one of" },
        { "ddp.bucket_cap", "25MB", "KiB, MiB and GiB are powers of 1024" },
        { "ddp.bucket_cap", "1023", "in 1KiB..1G" },
        { "ddp.bucket_cap", "2G", "in 1KiB..1G" },
        { "ddp.bucket_cap", "1.0001KiB", "expected a size" },
        { "ddp.bucket_cap", "99999999999999999999", "expected a size" },
        { "comm.timeout", "0", "expected a time such as 30s or 500ms >0" },
        { "comm.timeout", "-1", "expected a time" },
        { "comm.timeout", "5 parsecs", "expected a time" },
        { "model.dims", "[784, 0]", "expected a list of integers such as [784, 256, 10] in 1..4096" },
        { "model.dims", "784,", "expected a list" },
        { "model.dims", "[784", "expected a list" },
        { "model.dims", "[", "expected a list" },
        { "model.dims", "[7,,8]", "expected a list" },
        { "optim.betas", "0.9,1", "expected a list of numbers such as [0.9, 0.95] in 0..<1" },
        { "data.drop_last", "maybe", "expected true or false, found 'maybe'" },
    };
    settings s;
    ls_opts *o = fresh(&s);
    for (size_t i = 0; i < COUNT(row); i++) {
        if (ls_opts_set(o, row[i].name, row[i].value, "flag") != LS_USAGE) fail_msg("took %s %s", row[i].name, row[i].value);
        assert_says(row[i].says);
        assert_false(ls_opts_is_set(o, row[i].name));
    }
    assert_int_equal(s.steps, 100);
    ls_opts_destroy(o);
}

static void holds_no_more_list_elements_than_fit(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    char text[2 * LS_OPT_MAX_INTS + 4] = "1";
    for (int i = 1; i < LS_OPT_MAX_INTS; i++) strcat(text, ",1");
    assert_int_equal(ls_opts_set(o, "model.dims", text, "flag"), LS_OK);
    assert_int_equal(s.dims.n, LS_OPT_MAX_INTS);
    strcat(text, ",1");
    assert_int_equal(ls_opts_set(o, "model.dims", text, "flag"), LS_USAGE);
    ls_opts_destroy(o);
}

static void reads_a_command_line(void **state)
{
    (void)state;
    settings s;
    int rest;
    ls_opts *o = fresh(&s);
    const char *words[] = { "train", "run.yaml", "--train.steps", "5", "--optim.lr=1e-2", "-n4", "--ddp.bucket-cap", "1MiB",
                            "--data.drop_last", "more", "--", "--not-ours", NULL };
    assert_int_equal(parse(o, words, &rest), LS_OK);
    assert_int_equal(rest, 11);
    assert_int_equal(s.steps, 5);
    assert_true(s.lr == 1e-2);
    assert_int_equal(s.ranks, 4);
    assert_int_equal(s.bucket, 1 << 20);
    assert_true(s.drop_last);
    assert_int_equal(ls_opts_npositional(o), 2);
    assert_string_equal(ls_opts_positional(o, 0), "run.yaml");
    assert_string_equal(ls_opts_positional(o, 1), "more");
    assert_null(ls_opts_positional(o, 2));
    assert_true(ls_opts_is_set(o, "train.steps"));
    assert_string_equal(ls_opts_origin(o, "train_steps"), "default"); /* no such name */
    assert_string_equal(ls_opts_origin(o, "ddp.bucket-cap"), "flag");

    const char *off[] = { "train", "--data.drop_last", "false", "--training.steps", "6", "--learning_rate", "3", NULL };
    assert_int_equal(parse(o, off, &rest), LS_OK);
    assert_int_equal(rest, 7);
    assert_false(s.drop_last);
    assert_int_equal(s.steps, 6);
    assert_true(s.lr == 3.0);
    ls_opts_destroy(o);
}

static void stops_at_the_program_to_run(void **state)
{
    (void)state;
    settings s;
    int rest;
    ls_opts *o = fresh(&s);
    char *argv[] = { (char[]){ "run" }, (char[]){ "-n" }, (char[]){ "2" }, (char[]){ "python3" }, (char[]){ "-n" }, (char[]){ "9" } };
    assert_int_equal(ls_opts_parse(o, 6, argv, true, &rest), LS_OK);
    assert_int_equal(rest, 3);
    assert_int_equal(s.ranks, 2);
    assert_int_equal(ls_opts_npositional(o), 0);
    ls_opts_destroy(o);
}

static void names_the_nearest_option(void **state)
{
    (void)state;
    static const struct { const char *word, *says; } row[] = {
        { "--train.stpes", "unknown option '--train.stpes'; did you mean '--train.steps'?" },
        { "--steps", "did you mean '--train.steps'?" },
        { "--train.step=4", "unknown option '--train.step'; did you mean '--train.steps'?" },
        { "--nproc_per_nod", "did you mean '--nproc-per-node'?" },
        { "--zzzzzzzzzzzzzzzz", "unknown option '--zzzzzzzzzzzzzzzz'; --help lists them" },
        { "-q", "unknown option '-q'" },
        { "--train.steps", "--train.steps: needs a value: an integer in 1.." },
    };
    settings s;
    int rest;
    ls_opts *o = fresh(&s);
    for (size_t i = 0; i < COUNT(row); i++) {
        const char *words[] = { "train", row[i].word, NULL };
        assert_int_equal(parse(o, words, &rest), LS_USAGE);
        assert_says(row[i].says);
    }
    ls_opts_destroy(o);

    static const char *const fruit[] = { "apple", "pear", "orange" };
    assert_string_equal(ls_nearest("aplpe", fruit, 3), "apple");
    assert_string_equal(ls_nearest("Orang", fruit, 3), "orange");
    assert_null(ls_nearest("cucumber", fruit, 3));
    char longer[300];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_null(ls_nearest(longer, fruit, 3));
}

static void lets_flags_win_over_environment_and_file_in_any_order(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    assert_int_equal(ls_opts_set(o, "train.steps", "1", "flag"), LS_OK);
    assert_int_equal(ls_opts_set(o, "train.steps", "2", "environment"), LS_OK);
    assert_int_equal(read_text(o, "train: {steps: 3}"), LS_OK);
    assert_int_equal(s.steps, 1);
    assert_string_equal(ls_opts_origin(o, "train.steps"), "flag");
    assert_int_equal(read_text(o, "optim: {lr: 3}"), LS_OK);
    assert_int_equal(ls_opts_set(o, "optim.lr", "2", "environment"), LS_OK);
    assert_true(s.lr == 2.0);
    assert_int_equal(read_text(o, "train: {steps: none}"), LS_BAD_CONFIG); /* outranked, checked all the same */
    assert_int_equal(ls_opts_set(o, "train.steps", "x", "environment"), LS_BAD_CONFIG);
    assert_says("environment: train.steps: expected an integer");
    ls_opts_destroy(o);
}

static void reads_sections_and_lists_from_yaml(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    assert_int_equal(read_text(o, "# a run\n"
                                  "train:\n  steps: 1e2\n"
                                  "optim: {lr: 1e-4, name: 'sgd', betas: [0.5, 0.25]}\n"
                                  "ddp:\n  bucket-cap: 64KiB\n"
                                  "model:\n  dims:\n    - 784\n    - 256\n    - 10\n"
                                  "run.dir: \"a b\"\n"
                                  "data:\n  drop_last: yes\n"
                                  "comm:\n"), LS_OK);
    assert_int_equal(s.steps, 100);
    assert_true(s.lr == 1e-4);
    assert_string_equal(s.name, "sgd");
    assert_true(s.betas.n == 2 && s.betas.v[1] == 0.25);
    assert_int_equal(s.bucket, 65536);
    assert_int_equal(s.dims.n, 3);
    assert_int_equal(s.dims.v[2], 10);
    assert_string_equal(s.dir, "a b");
    assert_true(s.drop_last);
    assert_string_equal(ls_opts_origin(o, "train.steps"), "run.yaml:3");
    assert_string_equal(ls_opts_origin(o, "model.dims"), "run.yaml:8");
    assert_int_equal(read_text(o, "run: {dir: ~}"), LS_OK);
    assert_null(s.dir);
    assert_int_equal(read_text(o, ""), LS_OK);
    assert_int_equal(read_text(o, "# nothing\n"), LS_OK);
    assert_int_equal(read_text(o, "---\ntrain: {steps: 3}\n...\n"), LS_OK);
    assert_int_equal(s.steps, 3);
    ls_opts_destroy(o);
}

static void says_where_a_file_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *text; ls_status st; const char *says; } row[] = {
        { "train:\n  stpes: 3\n", LS_BAD_CONFIG, "run.yaml:2:3: unknown key 'train.stpes'; did you mean 'train.steps'?" },
        { "trian:\n  steps: 3\n", LS_BAD_CONFIG, "run.yaml:1:1: unknown key 'trian'" },
        { "steps: 3\n", LS_BAD_CONFIG, "run.yaml:1:1: unknown key 'steps'; did you mean 'train.steps'?" },
        { "train:\n  steps: many\n", LS_BAD_CONFIG, "run.yaml:2:10: train.steps: expected an integer in 1.., found 'many'" },
        { "train:\n  steps:\n", LS_BAD_CONFIG, "train.steps: expected an integer in 1.., found nothing" },
        { "train: 3\n", LS_BAD_CONFIG, "run.yaml:1:1: 'train' is a section: expected keys below it" },
        { "train: {steps: {a: 1}}\n", LS_BAD_CONFIG, "'train.steps' takes a value, not a section" },
        { "train: {steps: [1]}\n", LS_BAD_CONFIG, "train.steps: expected an integer in 1.., found a list" },
        { "model: {dims: [1, [2]]}\n", LS_BAD_CONFIG, "a list holds single numbers" },
        { "model: {dims: [1, {a: 2}]}\n", LS_BAD_CONFIG, "a list holds single numbers" },
        { "model: {dims: ['1,2']}\n", LS_BAD_CONFIG, "a list holds single numbers" },
        { "model: {dims: [1, x]}\n", LS_BAD_CONFIG, "run.yaml:1:15: model.dims: expected a list of integers" },
        { "nproc-per-node: 2\n", LS_BAD_CONFIG, "'nproc-per-node' belongs on the command line: --nproc-per-node" },
        { "train: {steps: 1, steps: 2}\n", LS_BAD_FILE, "run.yaml:1:19: 'train.steps' is given twice, first on line 1" },
        { "train: {steps: 1}\ntraining.steps: 2\n", LS_BAD_FILE, "run.yaml:2:1: 'training.steps' is given twice, first on line 1" },
        { "train: {}\nrun: {}\ntrain: {}\n", LS_BAD_FILE, "run.yaml:3:1: 'train' is given twice, first on line 1" },
        { "train: &a {steps: 1}\n", LS_BAD_FILE, "run.yaml:1:8: anchors (&name) are not accepted" },
        { "train: {steps: &a 1}\n", LS_BAD_FILE, "anchors" },
        { "model: {dims: &a [1]}\n", LS_BAD_FILE, "anchors" },
        { "train: {steps: *a }\n", LS_BAD_FILE, "aliases (*name) are not accepted" },
        { "train: {steps: !!int 1}\n", LS_BAD_FILE, "tags (!name) are not accepted" },
        { "train: !x {}\n", LS_BAD_FILE, "tags" },
        { "model: {dims: !x [1]}\n", LS_BAD_FILE, "tags" },
        { "%TAG ! x:\n---\ntrain: {}\n", LS_BAD_FILE, "tags" },
        { "train: {}\n---\nrun: {}\n", LS_BAD_FILE, "run.yaml:2:1: more than one document" },
        { "hello world\n", LS_BAD_FILE, "run.yaml:1:1: expected sections and keys such as 'train: {steps: 100}', found a text" },
        { "- a\n- b\n", LS_BAD_FILE, "found a list" },
        { "? [a]\n: 1\n", LS_BAD_FILE, "expected the name of a key, found a list" },
        { "? {a: 1}\n: 1\n", LS_BAD_FILE, "expected the name of a key, found a mapping" },
        { "\"\": 1\n", LS_BAD_CONFIG, "expected the name of a key, found nothing" },
        { "train:\n  steps: 1\n lr: 2\n", LS_BAD_FILE, "run.yaml:3:2: not YAML: did not find expected key" },
        { "train: {steps: 1\n", LS_BAD_FILE, "not YAML: did not find expected ',' or '}'" },
        { "train: 'x\n", LS_BAD_FILE, "not YAML: found unexpected end of stream, while scanning a quoted scalar that starts on line 1" },
        { "\ttrain: 1\n", LS_BAD_FILE, "not YAML: found character that cannot start any token" },
        { "train:\n  steps: \xff\n", LS_BAD_FILE, "run.yaml:2:10: not YAML: invalid leading UTF-8 octet" },
        { "run: {dir: \"a\\0b\"}\n", LS_BAD_FILE, "a zero byte inside a text" },
        { "\"a\\0b\": 1\n", LS_BAD_FILE, "a zero byte inside a text" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        settings s;
        ls_opts *o = fresh(&s);
        ls_status st = read_text(o, row[i].text);
        if (st != row[i].st) fail_msg("%s gave %s: %s", row[i].text, ls_status_word(st), ls_last_error());
        assert_says(row[i].says);
        ls_opts_destroy(o);
    }
}

/* A table of n made-up rows "k0".."kn-1" over one int64. */
static ls_opts *many_rows(size_t n, char (*names)[8], ls_opt *rows, int64_t *target)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "k%zu", i);
        rows[i] = (ls_opt){ .name = names[i], .type = LS_OPT_INT };
    }
    ls_opts *o;
    assert_int_equal(ls_opts_create(rows, n, target, &o), LS_OK);
    return o;
}

static void accepts_as_many_keys_as_the_limit(void **state)
{
    (void)state;
    enum { N = LS_YAML_MAX_KEYS + 1 };
    char (*names)[8] = calloc(N, sizeof *names);
    ls_opt *rows = calloc(N, sizeof *rows);
    int64_t target;
    ls_opts *o = many_rows(N, names, rows, &target);
    ls_text t = { 0 };
    for (size_t i = 0; i < LS_YAML_MAX_KEYS; i++) ls_text_add(&t, "k%zu: 1\n", i);
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", t.p, t.n), LS_OK);
    ls_text_add(&t, "k%d: 1\n", LS_YAML_MAX_KEYS);
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", t.p, t.n), LS_BAD_FILE);
    assert_says("run.yaml:4097:1: more than 4096 keys");
    ls_text_free(&t);
    ls_opts_destroy(o);
    free(names);
    free(rows);
}

static void accepts_sections_as_deep_as_the_limit(void **state)
{
    (void)state;
    for (int depth = LS_YAML_MAX_DEPTH; depth <= LS_YAML_MAX_DEPTH + 1; depth++) {
        ls_text name = { 0 }, text = { 0 };
        for (int i = 0; i < depth; i++) {
            ls_text_add(&name, "%sa", i ? "." : "");
            ls_text_add(&text, "%sa: ", i ? "{" : "");
        }
        ls_text_add(&text, "7");
        for (int i = 1; i < depth; i++) ls_text_add(&text, "}");
        int64_t target = 0;
        ls_opt row = { .name = name.p, .type = LS_OPT_INT };
        ls_opts *o;
        assert_int_equal(ls_opts_create(&row, 1, &target, &o), LS_OK);
        if (depth == LS_YAML_MAX_DEPTH) {
            assert_int_equal(read_text(o, text.p), LS_OK);
            assert_int_equal(target, 7);
        } else {
            assert_int_equal(read_text(o, text.p), LS_BAD_FILE);
            assert_says("more than 32 sections inside one another");
        }
        ls_opts_destroy(o);
        ls_text_free(&name);
        ls_text_free(&text);
    }
}

static void accepts_files_up_to_the_limit(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    char *text = malloc(LS_YAML_MAX_BYTES + 1);
    memset(text, ' ', LS_YAML_MAX_BYTES + 1);
    memcpy(text, "train: {steps: 9}", 17);
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", text, LS_YAML_MAX_BYTES), LS_OK);
    assert_int_equal(s.steps, 9);
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", text, LS_YAML_MAX_BYTES + 1), LS_BAD_FILE);
    assert_says("run.yaml: 1048577 bytes, at most 1048576 are accepted");
    free(text);
    ls_opts_destroy(o);
}

static void accepts_names_up_to_the_limit(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    char text[LS_YAML_MAX_NAME + 8];
    memset(text, 'a', sizeof text);
    memcpy(text + LS_YAML_MAX_NAME, ": 1", 4);
    assert_int_equal(read_text(o, text), LS_BAD_CONFIG);
    assert_says("unknown key 'aaaa");
    memset(text, 'a', sizeof text);
    memcpy(text + LS_YAML_MAX_NAME + 1, ": 1", 4);
    assert_int_equal(read_text(o, text), LS_BAD_FILE);
    assert_says("too long");
    ls_opts_destroy(o);
}

static void survives_a_file_cut_at_every_byte(void **state)
{
    (void)state;
    static const char text[] = "train:\n  steps: 12\noptim: {lr: 1e-4, betas: [0.9, 0.95]}\nmodel:\n  dims: [7, 8]\nrun: {dir: \"x\"}\n";
    for (size_t n = 0; n < sizeof text; n++) {
        settings s;
        ls_opts *o = fresh(&s);
        char *copy = malloc(n + 1); /* so that reading past the end is seen */
        memcpy(copy, text, n);
        (void)ls_opts_read_yaml(o, "run.yaml", copy, n);
        free(copy);
        ls_opts_destroy(o);
    }
}

static void prints_a_configuration_that_reads_back_the_same(void **state)
{
    (void)state;
    settings s, back;
    ls_opts *o = fresh(&s), *again = fresh(&back);
    static const char *const given[][2] = {
        { "train.steps", "12" }, { "optim.lr", "1e-5" }, { "optim.betas", "0.1,0.7" }, { "ddp.bucket_cap", "1536" },
        { "comm.timeout", "1500ms" }, { "run.dir", "a \"b\" \\ \t#c" }, { "model.dims", "1,2,3" }, { "data.drop_last", "true" },
        { "optim.beta", "0.30000000000000004" },
    };
    for (size_t i = 0; i < COUNT(given); i++) assert_int_equal(ls_opts_set(o, given[i][0], given[i][1], "flag"), LS_OK);
    char *text = ls_opts_print_config(o), *bare = ls_opts_yaml(o);
    assert_non_null(text);
    assert_non_null(strstr(text, "train:\n  steps: 12                     # flag\n"));
    assert_non_null(strstr(text, "  name: adamw                   # default\n"));
    assert_non_null(strstr(text, "  lr: 1.0e-05 "));
    assert_non_null(strstr(text, "  timeout: 1500ms "));
    assert_non_null(strstr(text, "  bucket_cap: 1536 "));
    assert_null(strstr(text, "nproc")); /* not configuration */
    assert_ptr_equal(strchr(bare, '#'), strstr(bare, "#c")); /* no comments */
    assert_int_equal(read_text(again, text), LS_OK);
    char *second = ls_opts_yaml(again);
    assert_string_equal(bare, second);
    assert_string_equal(back.dir, s.dir);
    assert_true(back.beta == 0.1 + 0.2);
    free(text);
    free(bare);
    free(second);
    ls_opts_destroy(o);
    ls_opts_destroy(again);
}

static void prints_every_text_so_that_it_reads_back(void **state)
{
    (void)state;
    static const char *const text[] = {
        "", "null", "~", "yes", "1e3", "a: b", "- a", "#", " x ", "\t\n\r\x1b\x7f", "'\"\\", "{a}", "*a", "&a", "!a", "%a", "@", "`",
        "caf\xc3\xa9", "\xc2\x85" "next", "\xe2\x80\xa8", "\xef\xbb\xbf" "bom", "\xef\xbf\xbe", "\xf0\x9f\x98\x80", "plain/path.x-1_2",
    };
    for (size_t i = 0; i < COUNT(text); i++) {
        settings s, back;
        ls_opts *o = fresh(&s), *again = fresh(&back);
        assert_int_equal(ls_opts_set(o, "run.dir", text[i], "flag"), LS_OK);
        char *yaml = ls_opts_yaml(o);
        if (read_text(again, yaml) != LS_OK) fail_msg("%s: %s", text[i], ls_last_error());
        assert_string_equal(back.dir, text[i]);
        free(yaml);
        ls_opts_destroy(o);
        ls_opts_destroy(again);
    }
}

static void explains_every_option_in_help(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    char *text = ls_opts_help(o, "lockstep train FILE [options]", "Trains.", "lockstep train run.yaml");
    assert_non_null(text);
    assert_memory_equal(text, "usage: lockstep train FILE [options]\n\nTrains.\n\ntrain:\n", 54);
    assert_non_null(strstr(text, "      --train.steps N             updates (default 100; 1..) [also --training.steps]\n"));
    assert_non_null(strstr(text, "\noptions:\n  -n, --nproc-per-node N          local ranks (default 1; 1..64)\n"));
    assert_non_null(strstr(text, "[also --lr, --learning-rate]"));
    const char *end = "\nexample:\n  lockstep train run.yaml\n";
    assert_string_equal(text + strlen(text) - strlen(end), end);
    free(text);
    ls_opts_destroy(o);
}

static void reads_files_and_says_why_it_cannot(void **state)
{
    (void)state;
    settings s;
    ls_opts *o = fresh(&s);
    const ls_env *env = ls_env_get();
    char path[128];
    snprintf(path, sizeof path, "/tmp/test_opts.%d.yaml", env->pid());
    int fd = env->create(path);
    assert_true(fd >= 0);
    assert_int_equal(env->write(fd, "train: {steps: 8}\n", 18), 18);
    env->close_fd(fd);
    assert_int_equal(ls_opts_load_yaml(o, path), LS_OK);
    assert_int_equal(s.steps, 8);
    env->unlink(path);
    assert_int_equal(ls_opts_load_yaml(o, path), LS_IO);
    assert_says("cannot be opened: No such file or directory");
    assert_int_equal(ls_opts_load_yaml(o, "/tmp"), LS_IO);
    assert_says("/tmp: cannot be opened: Is a directory");
    ls_opts_destroy(o);
}

static void calls_a_wrong_default_a_bug(void **state)
{
    (void)state;
    int64_t target;
    ls_opt row = { .name = "x", .type = LS_OPT_INT, .def = "0", .range = "1.." };
    ls_opts *o;
    assert_int_equal(ls_opts_create(&row, 1, &target, &o), LS_INTERNAL);
    assert_null(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_every_default),
        cmocka_unit_test(reads_values_with_units_and_exponents),
        cmocka_unit_test(refuses_what_a_type_or_range_excludes),
        cmocka_unit_test(holds_no_more_list_elements_than_fit),
        cmocka_unit_test(reads_a_command_line),
        cmocka_unit_test(stops_at_the_program_to_run),
        cmocka_unit_test(names_the_nearest_option),
        cmocka_unit_test(lets_flags_win_over_environment_and_file_in_any_order),
        cmocka_unit_test(reads_sections_and_lists_from_yaml),
        cmocka_unit_test(says_where_a_file_is_wrong),
        cmocka_unit_test(accepts_as_many_keys_as_the_limit),
        cmocka_unit_test(accepts_sections_as_deep_as_the_limit),
        cmocka_unit_test(accepts_files_up_to_the_limit),
        cmocka_unit_test(accepts_names_up_to_the_limit),
        cmocka_unit_test(survives_a_file_cut_at_every_byte),
        cmocka_unit_test(prints_a_configuration_that_reads_back_the_same),
        cmocka_unit_test(prints_every_text_so_that_it_reads_back),
        cmocka_unit_test(explains_every_option_in_help),
        cmocka_unit_test(reads_files_and_says_why_it_cannot),
        cmocka_unit_test(calls_a_wrong_default_a_bug),
    };
    return cmocka_run_group_tests_name("opts", tests, NULL, NULL);
}
