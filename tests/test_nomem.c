/* nomem: when the n-th allocation fails, a reader says so, hands nothing out and leaks nothing.
 *
 * The linker sends the library's malloc, calloc, realloc and strdup here
 * (--wrap). Each case runs again and again with a later allocation failing,
 * until none is left to fail. Leaks are the sanitizer's to find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/opts_text.h"
#include "data/idx.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "lockstep/ckpt.h"
#include "lockstep/data.h"
#include "lockstep/hf.h"
#include "lockstep/mem.h"
#include "lockstep/optim.h"
#include "lockstep/trace.h"
#include "meet/agent.h"
#include "meet/door.h"
#include "net/tcp.h"
#include "net/transports.h"
#include "harness_files.h"

static int countdown = -1; /* allocations until one fails; < 0: none does */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static bool fails(void) { return countdown >= 0 && countdown-- == 0; }

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t each) { return fails() ? NULL : __real_calloc(n, each); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }
char *__wrap_strdup(const char *s) { return fails() ? NULL : __real_strdup(s); }

/* Runs fn with its first, second ... allocation failing; at least `least` of them there are. */
static void fail_each(ls_status (*fn)(void), int least)
{
    for (int n = 0;; n++) {
        countdown = n;
        ls_status st = fn();
        bool reached = countdown < 0;
        countdown = -1;
        if (!reached) {
            assert_int_equal(st, LS_OK);
            assert_true(n >= least);
            return;
        }
        if (st != LS_NO_MEMORY) fail_msg("allocation %d: %s", n, ls_status_word(st));
    }
}

typedef struct settings { int64_t i; const char *text; ls_opt_ints ints; } settings;

static const ls_opt table[] = {
    { "a.i", LS_OPT_INT, offsetof(settings, i), "1", NULL, "a number", 0, "a.int" },
    { "a.text", LS_OPT_STRING, offsetof(settings, text), "x", NULL, "a text", 0, NULL },
    { "b.ints", LS_OPT_INTS, offsetof(settings, ints), "1,2", NULL, "numbers", 0, NULL },
};

static ls_status make_options(void)
{
    settings s;
    ls_opts *o;
    ls_status st = ls_opts_create(table, 3, &s, &o);
    if (st != LS_OK) assert_null(o);
    ls_opts_destroy(o);
    return st;
}

/* On a table that was made while memory lasted. */
static ls_opts *options(settings *s)
{
    ls_opts *o;
    int left = countdown;
    countdown = -1;
    assert_int_equal(ls_opts_create(table, 3, s, &o), LS_OK);
    countdown = left;
    return o;
}

static ls_status read_yaml(void)
{
    static const char text[] = "a: {i: 3, text: abc}\nb:\n  ints: [4, 5]\n";
    settings s;
    ls_opts *o = options(&s);
    ls_status st = ls_opts_read_yaml(o, "run.yaml", text, sizeof text - 1);
    ls_opts_destroy(o);
    return st;
}

static ls_status read_flags(void)
{
    settings s;
    int rest;
    char *argv[] = { (char[]){ "x" }, (char[]){ "--a.i" }, (char[]){ "4" }, (char[]){ "--a.text=b" }, (char[]){ "file" } };
    ls_opts *o = options(&s);
    ls_status st = ls_opts_parse(o, 5, argv, false, &rest);
    assert_true(s.text != NULL && (s.i == 1 || s.i == 4)); /* a value is the old or the new one */
    ls_opts_destroy(o);
    return st;
}

static ls_status print_options(void)
{
    settings s;
    ls_opts *o = options(&s);
    char *text[] = { ls_opts_help(o, "u", "s", "e"), NULL, NULL };
    if (text[0]) text[1] = ls_opts_print_config(o);
    if (text[1]) text[2] = ls_opts_yaml(o);
    bool all = text[2] != NULL;
    for (int i = 0; i < 3; i++) free(text[i]);
    ls_opts_destroy(o);
    return all ? LS_OK : LS_NO_MEMORY;
}

static ls_status read_idx(void)
{
    static const uint8_t file[] = { 0, 0, 8, 1, 0, 0, 0, 2, 7, 8 };
    int ndim;
    size_t dims[4];
    uint8_t *data;
    ls_status st = ls_idx_parse("t", file, sizeof file, 100, &ndim, dims, &data);
    if (st != LS_OK) assert_null(data);
    free(data);
    return st;
}

static ls_status open_images(void)
{
    ls_dataset d;
    ls_status st = ls_dataset_open_idx(LOCKSTEP_SOURCE "/tests/data/fashion-2000", "test", &d);
    if (st != LS_OK) assert_null(d.owner);
    ls_dataset_free(&d);
    return st;
}

static ls_status save_prefixed(void)
{
    float value[3] = { 1, 2, 3 };
    ls_params ps = { 0 };
    ls_status st = ls_params_add(&ps, "0.bias", 1, (int64_t[]){ 3 });
    if (st == LS_OK) {
        ps.item[0].t.data = value;
        st = ls_ckpt_save_prefixed("nomem.safetensors", &ps, "net.", NULL);
    }
    (void)remove("nomem.safetensors");
    ls_params_free(&ps);
    return st;
}

static ls_status load_batches(void)
{
    ls_dataset d = { 0 };
    ls_sampler *s = NULL;
    ls_loader *l = NULL;
    ls_status st = ls_dataset_synthetic(0, 20, 4, 3, &d);
    if (st == LS_OK) st = ls_sampler_create(20, 2, 1, true, 0, false, &s);
    if (st == LS_OK) st = ls_sampler_set_epoch(s, 1);
    if (st == LS_OK) st = ls_loader_create(&d, s, 8, false, &l);
    ls_loader_destroy(l);
    l = NULL;
    if (st == LS_OK) st = ls_loader_create_with(&d, s, &(ls_loader_opts){ .batch = 8, .workers = 2 }, &l);
    ls_loader_destroy(l);
    l = NULL;
    if (st == LS_OK) st = save_prefixed();
    ls_sampler_destroy(s);
    ls_dataset_free(&d);
    return st;
}

#define TOKENIZER "nomem.json"

static ls_status keep_tokenizer(void)
{
    ls_tokenizer *t;
    ls_status st = ls_tokenizer_open_chars("some text", 9, &t);
    if (st != LS_OK) assert_null(t);
    ls_tokenizer_close(t);
    if (st != LS_OK) return st;
    st = ls_tokenizer_open("byte", &t);
    if (st == LS_OK) st = ls_vocab_add(&t->vocab, 257, "ab", 2);
    if (st == LS_OK) st = ls_bpe_add(&t->bpe, 'a', 'b', 257);
    if (st == LS_OK) st = ls_split_create(ls_split_gpt2, true, &t->split);
    if (st == LS_OK) st = ls_tokenizer_save(t, TOKENIZER);
    ls_tokenizer_close(t);
    return st;
}

/* Its pattern, a merge, words short and long, and what is not UTF-8. */
static ls_status use_tokenizer(void)
{
    static const char text[] = "abc ababababababababababababababababababababababababababababababababababababab\xff";
    ls_tokenizer *t;
    ls_ids ids = { 0 };
    char *back = NULL;
    size_t n;
    ls_status st = ls_tokenizer_open(TOKENIZER, &t);
    if (st != LS_OK) {
        assert_null(t);
        return st;
    }
    st = ls_tokenizer_encode(t, text, sizeof text - 1, LS_ENCODE_LOSSY, &ids);
    if (st != LS_OK) assert_int_equal(ids.n, 0);
    if (st == LS_OK) st = ls_tokenizer_decode(t, ids.p, ids.n, &back, &n);
    free(back);
    ls_ids_free(&ids);
    ls_tokenizer_close(t);
    return st;
}

static ls_status load_tokens(void)
{
    static const uint32_t id[] = { 1, 2, 3, 4, 5 };
    ls_token_writer w;
    ls_tokens f = { 0 };
    ls_token_loader *l = NULL;
    ls_status st = ls_token_writer_open(&w, "nomem.bin", LS_TOKENS_LLMC, 9);
    if (st == LS_OK) st = ls_token_writer_add(&w, id, 5);
    if (st == LS_OK) st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    if (st == LS_OK) st = ls_tokens_open("nomem.bin", LS_TOKENS_LLMC, &f);
    ls_token_loader_opts o = { .batch = 2, .T = 2, .dp_size = 1, .vocab = 9 };
    if (st == LS_OK) st = ls_token_loader_create(&f, &o, &l);
    if (st != LS_OK) assert_null(l);
    else st = ls_token_loader_next(l);
    ls_token_loader_destroy(l);
    ls_tokens_close(&f);
    unlink("nomem.bin");
    return st;
}

static ls_status make_optimizer(void)
{
    float p[2], g[2];
    ls_param item = { .name = "a", .t = { .dtype = LS_F32, .ndim = 1, .dim = { 2 }, .data = p }, .grad = { .data = g } };
    ls_params ps = { .item = &item, .n = 1, .cap = 1 };
    ls_optim_config c;
    ls_optim *o;
    ls_optim_defaults("sgd", &c);
    ls_status st = ls_optim_create(&c, &ps, NULL, &o);
    if (st != LS_OK) assert_null(o);
    ls_optim_destroy(o);
    return st;
}

#define CKPT "nomem.safetensors"

static ls_status save_checkpoint(void)
{
    static const char *const meta[] = { "step", "3", NULL };
    float p[2] = { 1.0f, 2.0f };
    ls_param item = { .name = "a", .t = { .dtype = LS_F32, .ndim = 1, .dim = { 2 }, .data = p } };
    ls_params ps = { .item = &item, .n = 1, .cap = 1 };
    return ls_ckpt_save(CKPT, &ps, meta);
}

static ls_status load_checkpoint(void)
{
    float p[2] = { -1.0f, -1.0f };
    ls_param item = { .name = "a", .t = { .dtype = LS_F32, .ndim = 1, .dim = { 2 }, .data = p } };
    ls_params ps = { .item = &item, .n = 1, .cap = 1 };
    ls_status st = ls_ckpt_load(CKPT, &ps, false);
    assert_true(st == LS_OK ? p[0] == 1.0f && p[1] == 2.0f : p[0] == -1.0f && p[1] == -1.0f);
    return st;
}

static ls_status verify_checkpoint(void)
{
    ls_ckpt *c;
    ls_status st = ls_ckpt_open(CKPT, &c);
    if (st != LS_OK) assert_null(c);
    else st = ls_ckpt_verify(c);
    ls_ckpt_close(c);
    return st;
}

#define FOLDER "nomem.hf"

static ls_status import_folder(void)
{
    const ls_status st = ls_hf_import(LOCKSTEP_SOURCE "/tests/golden/hf/llama", CKPT); /* two shards and their index */
    if (st != LS_OK) assert_true(access(CKPT, F_OK) != 0);
    return st;
}

static int remove_hf(void)
{
    (void)unlink(FOLDER "/config.json");
    (void)unlink(FOLDER "/generation_config.json");
    (void)unlink(FOLDER "/model.safetensors");
    return rmdir(FOLDER);
}

static ls_status export_checkpoint(void)
{
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    const ls_status st = ls_hf_export(CKPT, FOLDER, LS_BF16, 1 << 20);
    if (st != LS_OK) assert_true(access(FOLDER "/config.json", F_OK) != 0);
    assert_int_equal(remove_hf(), 0);
    return st;
}

/* A folder without config.json, whose file says by itself what it is of. */
static ls_status open_folder_of_checkpoint(void)
{
    ls_hf_config c;
    ls_model *model;
    ls_arena *arena;
    assert_int_equal(mkdir(FOLDER, 0700), 0);
    assert_int_equal(link(CKPT, FOLDER "/model.safetensors"), 0);
    const ls_status st = ls_hf_open(FOLDER, &c, &model, &arena);
    if (st != LS_OK) assert_true(!model && !arena);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    assert_int_equal(remove_hf(), 0);
    return st;
}

static ls_status fill_arena(void)
{
    ls_ledger l = { 0 };
    ls_arena *a;
    ls_status st = ls_arena_create(1 << 16, true, &l, &a);
    if (st != LS_OK) assert_null(a);
    for (int i = 0; st == LS_OK && i < 100; i++) { /* each of another kind than the one before: a span each */
        void *p;
        size_t before = l.now[i % LS_MEM_KINDS];
        st = ls_arena_alloc(a, 100, (ls_mem_kind)(i % LS_MEM_KINDS), &p);
        if (st != LS_OK) assert_null(p);
        assert_int_equal(l.now[i % LS_MEM_KINDS], before + (st == LS_OK ? 128 : 0));
    }
    ls_arena_destroy(a);
    for (int k = 0; k < LS_MEM_KINDS; k++) assert_int_equal(l.now[k], 0);
    return st;
}

static ls_status export_trace(void)
{
    static ls_blackbox box;
    const ls_trace_box boxes[] = { { &box, NULL }, { &box, NULL } };
    ls_tracer *t;
    ls_status st = ls_tracer_create(&box, &t);
    if (st != LS_OK) {
        assert_null(t);
        return st;
    }
    for (uint64_t i = 0; i < 40; i++) /* all at once, so that lanes must grow */
        ls_tracer_add(t, &(ls_event){ .kind = LS_EV_COLL, .seq = (uint32_t)i, .t0_ns = i, .t1_ns = 1000, .peer = -1 });
    ls_tracer_destroy(t);
    char path[64];
    snprintf(path, sizeof path, "/tmp/lockstep-test-nomem-%d.json", (int)getpid());
    st = ls_trace_export(boxes, 2, 0, 9, path);
    if (st == LS_OK) assert_int_equal(unlink(path), 0);
    else assert_int_equal(access(path, F_OK), -1);
    return st;
}

/* --- what speaks with others: over a network in memory ------------------------------------------------ */

#include "fake_net.h"

/* As fail_each, where the one that runs out of memory may be at the other end: then we hear of it in another way. */
static void fail_each_end(ls_status (*fn)(void), int least)
{
    for (int n = 0;; n++) {
        fake_begin();
        countdown = n;
        ls_status st = fn();
        bool reached = countdown < 0;
        countdown = -1;
        fake_end_net(); /* every descriptor is closed */
        if (reached) continue;
        if (st != LS_OK) fail_msg("with all memory there: %s", fake.context.error);
        assert_true(n >= least);
        return;
    }
}

static void step_store(void *arg) { (void)ls_store_step(arg, fake.now_ns); }

/* A rank and an agent of another host come, ask, tell and leave. */
static ls_status meet_at_store(void)
{
    static const uint8_t secret[LS_SECRET_BYTES] = { 1 }, job[LS_DOOR_JOB_BYTES] = { 2 };
    static ls_world_page *page;
    char value[16];
    size_t n = sizeof value;
    int left = countdown, fd = -1, none = -1;
    ls_store *s = NULL;
    ls_store_client *rank = NULL, *link = NULL;
    ls_agent *agent = NULL;
    countdown = -1;
    if (!page) page = calloc(1, ls_page_bytes(2));
    memset(page, 0, sizeof *page);
    ls_page_format(page, 2, 1);
    countdown = left;
    ls_store_config c = { .unix_name = "x", .tcp_port = -1, .nranks = 2, .page = page, .page_fd = -1 };
    memcpy(c.secret, secret, sizeof secret);
    memcpy(c.job, job, sizeof job);
    ls_status st = ls_store_create(&c, &s);
    if (st < 0) return st;
    fake.idle = step_store;
    fake.idle_arg = s;
    uint64_t end = fake.now_ns + 3000000000u;
    ls_store_caller who = { .unix_name = "x", .secret = secret, .job = job, .rank = 0, .size = 2 };
    st = ls_store_connect(&who, end, &rank, &fd);
    if (st == LS_OK) st = ls_store_set(rank, "key", "value", 5, end);
    if (st == LS_OK) st = ls_store_get(rank, "key", value, &n, end);
    if (st == LS_OK) st = ls_store_set_fd(rank, "fd", 0, end);
    if (st == LS_OK && (st = ls_store_get_fd(rank, "fd", &none, end)) == LS_OK) fake_close(none);
    who = (ls_store_caller){ .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret, .job = job, .agent = true, .rank = 1 };
    if (st == LS_OK) st = ls_store_connect(&who, end, &link, &none);
    if (st == LS_OK) st = ls_agent_create(link, page, s, "node 0", 0, &agent);
    for (int i = 0; i < 6 && st == LS_OK; i++) {
        fake.now_ns += 100000000u;
        (void)ls_agent_step(agent, fake.now_ns);
        step_store(s);
    }
    if (st == LS_OK && ls_agent_fd(agent) < 0) st = LS_PEER_RESET;
    ls_agent_leave(agent, end);
    if (rank && st == LS_OK) st = ls_store_bye(rank);
    ls_store_disconnect(rank);
    if (fd >= 0) fake_close(fd);
    ls_store_destroy(s);
    return st;
}

static bool any_key(void *arg, const ls_door_head *h, uint8_t psk[LS_NOISE_KEY_BYTES])
{
    (void)arg;
    (void)h;
    memset(psk, 0, LS_NOISE_KEY_BYTES);
    psk[0] = 1;
    return true;
}

/* Both ends of a sealed connection, and a transport on one. */
static ls_status through_the_door(void)
{
    static const uint8_t secret[LS_SECRET_BYTES] = { 1 }, job[LS_DOOR_JOB_BYTES] = { 2 };
    static ls_world w;
    char got[8];
    int listener = fake_listen_tcp("", 0, NULL), ours = fake_connect(true), theirs = fake_accept(listener);
    ls_door a, *b = malloc(sizeof *b);
    ls_transport *t = NULL;
    ls_tcp_link link[2] = { { -1, NULL }, { theirs, NULL } };
    ls_status st = b ? LS_OK : LS_NO_MEMORY;
    ls_door_connect(&a, &(ls_door_head){ .role = LS_DOOR_RANK, .generation = 1, .from = 1 }, job, secret);
    if (b) {
        ls_door_accept(b, LS_DOOR_RANK, 1, job, any_key, NULL);
        for (int i = 0; i < 4; i++) (void)ls_door_step(i % 2 ? b : &a, i % 2 ? theirs : ours);
        if (!ls_door_is_open(&a) || ls_door_step(b, theirs) != LS_OK) st = LS_PROTOCOL;
        if (st == LS_OK && ls_door_send(&a, ours, "hello", 5) != 5) st = LS_NO_MEMORY;
        if (st == LS_OK && ls_door_recv(b, theirs, got, sizeof got) != 5) st = LS_NO_MEMORY;
    }
    if (st == LS_OK) {
        link[1].door = b;
        b = NULL;
        w = (ls_world){ .size = 2, .failed = true };
        st = ls_transport_tcp_over(&w, link, &t);
        theirs = -1; /* taken over */
        uint64_t ticket;
        ls_msg m = { got, 5, 1 };
        if (st == LS_OK) st = ls_transport_tcp.send(t, 1, 0, &m, &ticket);
        ls_transport_tcp.close(t);
    }
    ls_door_close(&a);
    if (b) ls_door_close(b);
    free(b);
    fake_close(ours);
    if (theirs >= 0) fake_close(theirs);
    fake_close(listener);
    return st;
}

static void doors_and_stores_survive(void **state)
{
    (void)state;
    fail_each_end(meet_at_store, 20);
    fail_each_end(through_the_door, 5);
}

static void memory_and_traces_survive(void **state)
{
    (void)state;
    fail_each(fill_arena, 4);   /* the arena; its spans for 16, 32, 64 and 128 */
    fail_each(export_trace, 10); /* the tracer, slices, two ranks' lanes of 8 to 64, text, joined events */
}

static void options_survive(void **state)
{
    (void)state;
    fail_each(make_options, 8);   /* the handle, its slots, text and origin of three */
    fail_each(read_yaml, 9);      /* lines, two sections, text and origin of three values */
    fail_each(read_flags, 5);     /* positionals, text and origin of two */
    fail_each(print_options, 3);
}

static void data_survives(void **state)
{
    (void)state;
    fail_each(read_idx, 1);
    fail_each(open_images, 5);    /* the owner; a file and its elements, twice */
    fail_each(load_batches, 10);
    fail_each(keep_tokenizer, 20);
    fail_each(use_tokenizer, 15);
    unlink(TOKENIZER);
    fail_each(load_tokens, 5);
}

static void optimizers_survive(void **state)
{
    (void)state;
    fail_each(make_optimizer, 2);
}

static void checkpoints_survive(void **state)
{
    (void)state;
    fail_each(save_checkpoint, 14);   /* text, names and values of the header read back, the file's names */
    fail_each(load_checkpoint, 14);
    fail_each(verify_checkpoint, 14); /* the same, a buffer and a digest's state */
    assert_int_equal(unlink(CKPT), 0);
}

static void folders_of_hugging_face_survive(void **state)
{
    (void)state;
    (void)remove_hf(); /* of a run that did not end */
    fail_each(import_folder, 100);     /* names of 21 tensors in index, shards and model; the checkpoint's header */
    fail_each(export_checkpoint, 100); /* that header, the model, the file's header */
    fail_each(open_folder_of_checkpoint, 80); /* the header, twice; the model */
    assert_int_equal(unlink(CKPT), 0);
}

/* The files are in a folder of their own, wherever the test is run from. */
static int enter_folder(void **state)
{
    (void)make_folder(state);
    return chdir(*state);
}

static int leave_folder(void **state) { return chdir("/") == 0 ? remove_folder(state) : -1; }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_traces_survive),
        cmocka_unit_test(doors_and_stores_survive),
        cmocka_unit_test(options_survive),
        cmocka_unit_test(data_survives),
        cmocka_unit_test(optimizers_survive),
        cmocka_unit_test(checkpoints_survive),
        cmocka_unit_test(folders_of_hugging_face_survive),
    };
    return cmocka_run_group_tests_name("nomem", tests, enter_folder, leave_folder);
}
