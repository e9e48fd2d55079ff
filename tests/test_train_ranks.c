/* A trainer on 1 to 4 ranks, which are processes, looked at from outside: what its forwards see and drop, what its
 * gradients are the gradients of, how ranks share an evaluation, and settings that would not be missed in a loss.
 * What a feed alone hands out is in test_samples_seen.c. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/tokens.h"
#include "net/world.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST_RANKS 4
#define GLOBAL 12
#define T 4
#define WINDOWS 72        /* of train.bin: 6 steps */
#define TEST_WINDOWS 37
#define IDS 300           /* tokens of train.bin say where they stand */
#define STEPS 6
#define SITES 5           /* where a GPT-2 of 2 layers drops what is added to the residual stream */
#define GRADS 65536

/* What ranks find out, in memory that they share with the test. */
typedef struct board {
    int64_t window[STEPS][GLOBAL];      /* which was at each place of a step; -1: none */
    uint64_t mask[STEPS][SITES][GLOBAL]; /* bit i: element i of that sample's [4, 16] was dropped */
    uint64_t masks[STEPS][SITES][GLOBAL]; /* how often it was made */
    int tested[MOST_RANKS][TEST_WINDOWS]; /* forwards of each window for tests, by each rank */
    int rows[MOST_RANKS];                /* samples for tests, of features */
    double loss[STEPS], eval_loss, eval_accuracy, norm;
    char before[33], after[33];          /* digests */
    float grad[GRADS];
    size_t ngrads;
} board;

typedef struct job {
    const char *const *flags; /* pairs, NULL at the end */
    ls_status (*body)(ls_trainer *t, struct job *j);
    board *b;
    int64_t step;    /* where the trainer is */
    int site;        /* of the forward at hand */
    size_t first;    /* place of its first sample in the step */
    int kind;        /* the body's own */
} job;

static board *open_board(void)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    memset(b->window, 0xff, sizeof b->window);
    return b;
}

static void close_board(board *b) { munmap(b, sizeof *b); }

static ls_status with_trainer(void *arg)
{
    job *j = arg;
    ls_train_config c;
    ls_opts *o;
    ls_trainer *t;
    LS_TRY(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
    LS_TRY(ls_opts_set(o, "comm.timeout", "20", "default"));
    for (const char *const *f = j->flags; *f; f += 2) LS_TRY(ls_opts_set(o, f[0], f[1], "flag"));
    LS_TRY(ls_trainer_create(&c, &t));
    const ls_status st = j->body(t, j);
    if (st < 0) (void)ls_world_abort(t->w, st);
    ls_trainer_destroy(t);
    ls_opts_destroy(o);
    return st;
}

#define MOST_FLAGS 80

/* Runs `body` on n ranks with the flags of both lists; the caller closes the board. */
static board *run_kind(int n, ls_status (*body)(ls_trainer *, job *), int kind, const char *const *always,
                       const char *const *more)
{
    const char *flags[MOST_FLAGS] = { NULL };
    size_t k = 0;
    for (; *always; always++) flags[k++] = *always;
    for (; *more; more++) flags[k++] = *more;
    assert_true(k < MOST_FLAGS);
    job j = { .flags = flags, .body = body, .b = open_board(), .kind = kind };
    const ls_rank_report r = ls_test_processes(n, with_trainer, &j);
    if (r.failed) fail_msg("%d ranks: %s", n, r.text);
    return j.b;
}
#define RUN(n, body, always, ...) run_kind(n, body, 0, always, (const char *const[]){ __VA_ARGS__ })

/* --- data ----------------------------------------------------------------------------------------------- */

static char folder[64], numbered[80], same[80], ignoring[80], late[80];

static int write_tokens(const char *in, const char *name, size_t n, uint32_t kinds, uint32_t (*id)(size_t i))
{
    char path[128];
    ls_token_writer w;
    snprintf(path, sizeof path, "%s/%s", in, name);
    if (ls_token_writer_open(&w, path, LS_TOKENS_LLMC, kinds) < 0) return 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t v = id(i);
        if (ls_token_writer_add(&w, &v, 1) < 0) return 1;
    }
    const ls_status st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    return st < 0;
}

static uint32_t its_place(size_t i) { return (uint32_t)i; }
static uint32_t its_place_in_the_window(size_t i) { return (uint32_t)(i % T); }

#define IGNORED 3
/* Of 12 windows, numbers 3 to 7 have no label that counts: none of rank 1 in both 3 and 4 ranks. */
static uint32_t often_ignored(size_t i)
{
    const bool counts = i <= 3 * T || i > 8 * T;
    return !counts || i % 5 == 2 ? IGNORED : (uint32_t)((i * i + i / 3) % 17);
}

/* Of 12 windows, the first 6 have no label that counts: none of rank 0 in 2, 3 and 4 ranks. */
static uint32_t ignored_at_first(size_t i) { return i <= 6 * T ? IGNORED : (uint32_t)((i * i + i / 3) % 17); }

static int make_data(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-ranks-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    char *const in[] = { numbered, same, ignoring, late };
    for (size_t i = 0; i < COUNT(in); i++) {
        snprintf(in[i], sizeof numbered, "%s/%zu", folder, i);
        if (mkdir(in[i], 0700) != 0) return 1;
    }
    return write_tokens(numbered, "train.bin", WINDOWS * T + 1, IDS, its_place) ||
           write_tokens(numbered, "val.bin", TEST_WINDOWS * T + 1, IDS, its_place) ||
           write_tokens(same, "train.bin", WINDOWS * T + 1, IDS, its_place_in_the_window) ||
           write_tokens(ignoring, "train.bin", GLOBAL * T + 1, 17, often_ignored) ||
           write_tokens(late, "train.bin", GLOBAL * T + 1, 17, ignored_at_first);
}

static int remove_data(void **state)
{
    (void)state;
    const char *const in[] = { numbered, same, ignoring, late };
    char path[128];
    for (size_t i = 0; i < COUNT(in); i++) {
        snprintf(path, sizeof path, "%s/train.bin", in[i]);
        remove(path);
        snprintf(path, sizeof path, "%s/val.bin", in[i]);
        remove(path);
        remove(in[i]);
    }
    return remove(folder);
}

static const char *const gpt2[] = { "model.name", "gpt2", "data.name", "tokens", "model.seq_len", "4", "model.n_layer", "2",
                                    "model.n_head", "2", "model.d_model", "16", "train.global_batch", "12", "train.steps",
                                    "6", "optim.name", "sgd", NULL };
static const char *const mlp[] = { "model.name", "mlp", "data.name", "synthetic", "optim.name", "sgd", NULL };

/* --- what forwards see ---------------------------------------------------------------------------------- */

/* The token that a row of the embedding's result stands for; positions are added later. -1: none. */
static int64_t token_of(const ls_trainer *t, const float *row)
{
    const ls_tensor *wte = &t->par.model->params.item[0].t;
    for (int64_t v = 0; v < wte->dim[0]; v++)
        if (memcmp((const float *)wte->data + v * wte->dim[1], row, (size_t)wte->dim[1] * sizeof *row) == 0) return v;
    return -1;
}

typedef struct watcher {
    ls_trainer *t;
    job *j;
    bool test; /* an evaluation */
    size_t rows;
} watcher;

static uint64_t dropped(const float *x)
{
    uint64_t bits = 0;
    for (int i = 0; i < 64; i++) bits |= (uint64_t)(x[i] == 0.0f) << i;
    return bits;
}

static void watch(void *arg, const char *op, const ls_tensor *out)
{
    watcher *w = arg;
    job *j = w->j;
    board *b = j->b;
    const float *x = out->data;
    const int64_t rows = out->dim[0];
    const size_t each = rows ? (size_t)(ls_tensor_count(out) / rows) : 0; /* a loss has no rows */
    if (strncmp(op, "embedding", 9) == 0) {
        j->site = 0;
        j->first = (size_t)ls_world_rank(w->t->w) * w->t->feed.local + w->rows;
        w->rows += (size_t)rows;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t token = token_of(w->t, x + (size_t)r * each);
            if (w->test && token >= 0) b->tested[ls_world_rank(w->t->w)][token / T]++;
            if (!w->test) b->window[j->step][j->first + (size_t)r] = token / T;
        }
    } else if (strncmp(op, "dropout", 7) == 0 && !w->test) {
        for (int64_t r = 0; r < rows; r++) {
            b->mask[j->step][j->site][j->first + (size_t)r] = dropped(x + (size_t)r * each);
            b->masks[j->step][j->site][j->first + (size_t)r]++;
        }
        j->site++;
    } else if (strncmp(op, "linear", 6) == 0 && w->test && !w->t->feed.tokens && j->site++ % 2 == 0) {
        b->rows[ls_world_rank(w->t->w)] += (int)rows; /* the first of an mlp's two layers */
    }
}

/* Buckets whose reduction this rank has seen so far. */
static uint64_t reductions(const ls_trainer *t)
{
    const ls_blackbox *box = &t->w->page->rank[ls_world_local_rank(t->w)].box;
    uint64_t n = 0;
    for (uint64_t i = 0; i < box->count && i < LS_BLACKBOX_EVENTS; i++)
        n += box->ev[i].kind == LS_EV_COLL && strncmp(box->string[box->ev[i].label], "bucket", 6) == 0;
    return n;
}

static ls_status trains(ls_trainer *t, job *j)
{
    for (j->step = 0; j->step < STEPS; j->step++) {
        watcher w = { .t = t, .j = j };
        ls_step_stats s;
        LS_TRY(ls_tape_listen(t->par.tape[0], &(ls_tape_events){ .output = watch }, &w));
        const uint64_t buckets = reductions(t);
        LS_TRY(ls_train_step(t, &s));
        ls_tape_unlisten(t->par.tape[0], &w);
        j->b->loss[j->step] = s.loss;
        LS_EXPECT(s.samples == GLOBAL && s.tokens == GLOBAL * T, "%lld samples, %lld tokens", (long long)s.samples,
                  (long long)s.tokens);
        const uint64_t more = reductions(t) - buckets; /* once per step, whatever micro-batches there are */
        LS_EXPECT(ls_world_size(t->w) == 1 || more == (uint64_t)ls_ddp_buckets(t->par.ddp), "%d buckets were reduced in step %d, expected %d",
                  (int)more, (int)j->step, ls_ddp_buckets(t->par.ddp));
    }
    return LS_OK;
}

static const char *const divided[][2] = { { "1", "0" }, { "1", "1" }, { "1", "4" }, { "2", "0" }, { "2", "2" },
                                          { "3", "1" }, { "4", "0" }, { "4", "1" } }; /* ranks, micro-batch */

static void forwards_see_each_window_once_and_in_its_place(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(divided); k++) {
        board *b = RUN(atoi(divided[k][0]), trains, gpt2, "data.path", numbered, "model.vocab_size", "300", "data.shuffle",
                       "false", "train.micro_batch", divided[k][1], NULL);
        for (int64_t s = 0; s < STEPS; s++)
            for (int64_t i = 0; i < GLOBAL; i++)
                if (b->window[s][i] != s * GLOBAL + i)
                    fail_msg("%s ranks, micro-batches of %s: place %d of step %d has window %d", divided[k][0], divided[k][1],
                             (int)i, (int)s, (int)b->window[s][i]);
        close_board(b);
    }
}

/* --- what forwards drop ----------------------------------------------------------------------------------- */

#define P 0.25

static int ones(uint64_t x) { return __builtin_popcountll(x); }

/* Bits of `bits` that are set with probability p each and apart from each other: within 5 standard deviations of their
 * mean, which one in 1.7 million such counts is not. The numbers are the same in every run. */
static void check_share(const char *what, double set, double bits, double p)
{
    if (fabs(set / bits - p) > 5.0 * sqrt(p * (1.0 - p) / bits))
        fail_msg("%s: %.0f of %.0f bits, expected a share of %g", what, set, bits, p);
}

/* Two masks agree in a bit with probability p p + (1 - p)(1 - p), unless one has to do with the other. */
static void check_independent(const board *b, int step, int site, int sample, const char *what)
{
    double agree = 0, bits = 0;
    for (int s = 0; s + step < STEPS; s++)
        for (int k = 0; k + site < SITES; k++)
            for (int i = 0; i + sample < GLOBAL; i++, bits += 64)
                agree += 64 - ones(b->mask[s][k][i] ^ b->mask[s + step][k + site][i + sample]);
    check_share(what, agree, bits, P * P + (1 - P) * (1 - P));
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static board *run_dropping(const char *ranks, const char *micro, const char *seed)
{
    return RUN(atoi(ranks), trains, gpt2, "data.path", same, "model.vocab_size", "300", "data.shuffle", "false",
               "model.embd_dropout", "0.25", "model.resid_dropout", "0.25", "train.micro_batch", micro, "train.seed", seed,
               NULL);
}

static void a_mask_is_that_of_its_step_its_sample_and_its_place(void **state)
{
    (void)state;
    board *b = run_dropping("1", "0", "4");
    uint64_t sorted[STEPS * SITES * GLOBAL];
    double set = 0;
    memcpy(sorted, b->mask, sizeof sorted);
    qsort(sorted, COUNT(sorted), sizeof *sorted, by_value);
    for (size_t i = 0; i < COUNT(sorted); i++) {
        set += ones(sorted[i]);
        assert_true(i == 0 || sorted[i] != sorted[i - 1]); /* 65,000 pairs, each the same with probability 1e-13 */
    }
    check_share("dropped", set, 64.0 * COUNT(sorted), P);
    check_independent(b, 1, 0, 0, "a step and the next");
    check_independent(b, 0, 1, 0, "a place of the model and the next");
    check_independent(b, 0, 0, 1, "a sample and the next");
    check_independent(b, 0, 0, GLOBAL / MOST_RANKS, "a rank's sample and the next rank's");

    for (size_t k = 1; k < COUNT(divided); k++) {
        board *o = run_dropping(divided[k][0], divided[k][1], "4");
        for (int i = 0; i < STEPS * SITES * GLOBAL; i++) assert_int_equal((&o->masks[0][0][0])[i], 1);
        if (memcmp(o->mask, b->mask, sizeof b->mask) != 0)
            fail_msg("%s ranks, micro-batches of %s: other masks than on one rank", divided[k][0], divided[k][1]);
        /* the same sums in another order, over 6 steps: some roundings of 2^-24 of a loss of about log 300 */
        for (int s = 0; s < STEPS; s++) assert_true(fabs(o->loss[s] - b->loss[s]) < 1e-5 * b->loss[s]);
        close_board(o);
    }
    board *other = run_dropping("1", "0", "5");
    double agree = 0;
    for (int i = 0; i < STEPS * SITES * GLOBAL; i++)
        agree += 64 - ones((&other->mask[0][0][0])[i] ^ (&b->mask[0][0][0])[i]);
    check_share("a seed and the next", agree, 64.0 * COUNT(sorted), P * P + (1 - P) * (1 - P));
    close_board(other);
    close_board(b);
}

/* Attention keeps no mask that could be seen. Weights stay, samples are alike: whatever differs is what was dropped. */
static void attention_drops_others_in_each_step_and_the_same_on_any_ranks(void **state)
{
    (void)state;
    board *first = NULL;
    for (size_t k = 0; k < COUNT(divided); k++) {
        board *b = RUN(atoi(divided[k][0]), trains, gpt2, "data.path", same, "model.vocab_size", "300", "model.attn_dropout",
                       "0.5", "optim.lr", "0", "train.micro_batch", divided[k][1], NULL);
        for (int s = 0; s < STEPS; s++)
            for (int o = 0; o < s; o++) assert_true(b->loss[s] != b->loss[o]); /* the same masks give the same bits */
        for (int s = 0; first && s < STEPS; s++) /* 48 losses whose logits are floats */
            if (fabs(b->loss[s] - first->loss[s]) > 1e-6 * b->loss[s])
                fail_msg("%s ranks, micro-batches of %s: loss %.9g in step %d, on one rank %.9g", divided[k][0],
                         divided[k][1], b->loss[s], s, first->loss[s]);
        if (first) close_board(b);
        else first = b;
    }
    close_board(first);
}

/* --- gradients where labels do not count ------------------------------------------------------------------- */

/* Over the labels that count in n windows; NAN: there are none. */
static double mean_loss_of(ls_trainer *t, size_t first, size_t n, ls_status *st)
{
    const ls_tokens *data = &t->feed.train_tokens;
    double sum = 0;
    int counted = 0;
    ls_tape_set_grad(t->par.tape[0], false);
    for (size_t w = first; *st == LS_OK && w < first + n; w++) {
        int64_t id[T + 1], dim[2] = { 1, T };
        if ((*st = ls_tokens_read(data, w * T, T + 1, 17, id)) < 0) break;
        ls_tape_reset(t->par.tape[0]);
        ls_tensor *x = ls_tape_input(t->par.tape[0], LS_I64, 2, dim, id);
        const ls_tensor *y = ls_model_forward(t->par.model, t->par.tape[0], x);
        if ((*st = ls_tape_status(t->par.tape[0])) < 0) break;
        for (int p = 0; p < T; p++) {
            const float *l = (const float *)y->data + p * 17;
            double z = 0;
            if (id[p + 1] == IGNORED) continue;
            for (int v = 0; v < 17; v++) z += exp((double)l[v]);
            sum += log(z) - (double)l[id[p + 1]];
            counted++;
        }
    }
    ls_tape_set_grad(t->par.tape[0], true);
    return sum / counted;
}

static double mean_loss(ls_trainer *t, ls_status *st) { return mean_loss_of(t, 0, GLOBAL, st); }

/* The largest of the ranks' means; ranks without a label that counts have none. */
static double largest_loss(ls_trainer *t, ls_status *st)
{
    double most = -INFINITY;
    const size_t each = GLOBAL / (size_t)ls_world_size(t->w);
    for (size_t r = 0; r < (size_t)ls_world_size(t->w); r++) {
        const double mean = mean_loss_of(t, r * each, each, st);
        if (mean > most) most = mean;
    }
    return most;
}

/* The loss where parameter p is moved by `by` along its gradient's direction. */
static double moved(ls_trainer *t, ls_param *p, const float *grad, double norm, double by, ls_status *st)
{
    const size_t n = (size_t)ls_tensor_count(&p->t);
    float *x = p->t.data, *was = malloc(n * sizeof *was);
    if (!was) {
        *st = LS_NO_MEMORY;
        return 0;
    }
    memcpy(was, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)x[i] + by * (double)grad[i] / norm);
    const double loss = mean_loss(t, st);
    memcpy(x, was, n * sizeof *x);
    free(was);
    return loss;
}

/* One step that changes no weight; then rank 0 compares its gradient with the slope of the loss of the whole batch. */
static ls_status takes_one_step(ls_trainer *t, job *j)
{
    ls_params *ps = &t->par.model->params;
    board *b = j->b;
    ls_step_stats s;
    ls_status st = LS_OK;
    LS_TRY(ls_train_step(t, &s));
    if (ls_world_rank(t->w) != 0) return LS_OK;
    const double loss = mean_loss(t, &st);
    LS_TRY(st);
    LS_EXPECT(fabs(s.loss - loss) < 1e-6 * loss, "the loss is %.9g, that of the labels that count %.9g", s.loss, loss);
    const double largest = largest_loss(t, &st);
    LS_TRY(st);
    LS_EXPECT(fabs(s.max_loss - largest) < 1e-6 * largest, "the largest loss of a rank is %.9g, expected %.9g", s.max_loss,
              largest);
    b->norm = s.grad_norm;
    int compared = 0;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const float *g = p->grad.data;
        const size_t n = (size_t)ls_tensor_count(&p->t);
        double norm = 0;
        for (size_t k = 0; k < n; k++) norm += (double)g[k] * (double)g[k];
        norm = sqrt(norm);
        LS_EXPECT(b->ngrads + n <= GRADS, "more than %d gradients", GRADS);
        memcpy(b->grad + b->ngrads, g, n * sizeof *g);
        b->ngrads += n;
        if (norm < 0.05 * s.grad_norm) continue; /* below the noise of losses in float */
        /* central difference: off by h^2 / 6 of a third derivative, and by 1e-7 of a loss near 3 over 2 h */
        const double h = 0.005, slope = (moved(t, p, g, norm, h, &st) - moved(t, p, g, norm, -h, &st)) / (2 * h);
        LS_TRY(st);
        LS_EXPECT(fabs(slope - norm) < 0.01 * norm, "the gradient of %s has the norm %.6g, but the loss's slope is %.6g",
                  p->name, norm, slope);
        compared++;
    }
    LS_EXPECT(compared >= 4, "%d parameters compared", compared);
    return LS_OK;
}

static void compare_gradients(const char *data)
{
    board *first = NULL;
    for (size_t k = 0; k < COUNT(divided); k++) {
        board *b = RUN(atoi(divided[k][0]), takes_one_step, gpt2, "data.path", data, "model.vocab_size", "17",
                       "data.ignore_token", "3", "data.shuffle", "false", "optim.lr", "0", "train.micro_batch", divided[k][1],
                       NULL);
        double most = 0, far = 0;
        for (size_t i = 0; first && i < b->ngrads; i++) {
            most = fmax(most, fabs((double)first->grad[i]));
            far = fmax(far, fabs((double)first->grad[i] - (double)b->grad[i]));
        }
        /* sums of at most 48 products of floats of like size, split otherwise: some roundings of 2^-24 */
        if (first && far > 1e-5 * most)
            fail_msg("%s ranks, micro-batches of %s: gradients differ from one rank's by %g of %g", divided[k][0], divided[k][1],
                     far, most);
        if (first) close_board(b);
        else first = b;
    }
    close_board(first);
}

static void a_gradient_is_that_of_the_mean_over_labels_that_count(void **state)
{
    (void)state;
    compare_gradients(ignoring);
    compare_gradients(late);
}

/* --- evaluation ------------------------------------------------------------------------------------------------ */

static ls_status evaluates(ls_trainer *t, job *j)
{
    watcher w = { .t = t, .j = j, .test = true };
    ls_eval e;
    LS_TRY(ls_tape_listen(t->par.tape[0], &(ls_tape_events){ .output = watch }, &w));
    LS_TRY(ls_train_evaluate(t, &e));
    ls_tape_unlisten(t->par.tape[0], &w);
    j->b->eval_loss = e.loss;
    j->b->eval_accuracy = e.accuracy;
    return LS_OK;
}

static void ranks_share_the_windows_of_an_evaluation(void **state)
{
    (void)state;
    static const struct { const char *batches, *micro; int windows; } row[] = {
        { "0", "0", 37 }, { "0", "1", 37 }, { "2", "0", 24 }, { "100", "0", 37 }
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        double loss = 0;
        for (int n = 1; n <= MOST_RANKS; n++) {
            board *b = RUN(n, evaluates, gpt2, "data.path", numbered, "model.vocab_size", "300", "train.eval_batches",
                           row[k].batches, "train.micro_batch", row[k].micro, NULL);
            int least = TEST_WINDOWS, most = 0;
            for (int r = 0; r < n; r++) {
                int mine = 0;
                for (int i = 0; i < TEST_WINDOWS; i++) mine += b->tested[r][i];
                least = mine < least ? mine : least;
                most = mine > most ? mine : most;
            }
            if (most - least > 1) fail_msg("%d ranks: from %d to %d windows each", n, least, most);
            for (int i = 0; i < TEST_WINDOWS; i++) {
                int times = 0;
                for (int r = 0; r < n; r++) times += b->tested[r][i];
                if (times != (i < row[k].windows)) fail_msg("%d ranks: window %d is evaluated %d times", n, i, times);
            }
            if (n == 1) loss = b->eval_loss;
            assert_true(fabs(b->eval_loss - loss) < 1e-6 * loss); /* logits are floats */
            close_board(b);
        }
    }
}

static void ranks_share_the_samples_of_an_evaluation(void **state)
{
    (void)state;
    double loss = 0, accuracy = 0;
    for (int n = 1; n <= MOST_RANKS; n++) {
        board *b = RUN(n, evaluates, mlp, "model.dims", "8,16,4", "train.global_batch", "12", NULL);
        int all = 0;
        for (int r = 0; r < n; r++) {
            all += b->rows[r];
            assert_in_range(b->rows[r], 200 / n, (200 + n - 1) / n);
        }
        assert_int_equal(all, 200);
        if (n == 1) loss = b->eval_loss;
        if (n == 1) accuracy = b->eval_accuracy;
        assert_true(fabs(b->eval_loss - loss) < 1e-6 * loss && b->eval_accuracy == accuracy);
        close_board(b);
    }
}

/* kind: whether there is an evaluation after each step. */
static ls_status trains_and_evaluates(ls_trainer *t, job *j)
{
    char digest[33];
    ls_step_stats s;
    ls_eval e;
    for (j->step = 0; j->step < STEPS; j->step++) {
        LS_TRY(ls_train_step(t, &s));
        if (ls_world_rank(t->w) == 0) j->b->loss[j->step] = s.loss;
        if (j->kind) LS_TRY(ls_train_evaluate(t, &e));
    }
    LS_TRY(ls_params_digest(&t->par.model->params, digest));
    if (ls_world_rank(t->w) == 0) memcpy(j->b->after, digest, sizeof digest);
    return LS_OK;
}

static void an_evaluation_leaves_no_trace_in_training(void **state)
{
    (void)state;
    static const char *const data[] = { "data.path", numbered, "model.vocab_size", "300", "model.resid_dropout", "0.2", NULL };
    for (int n = 1; n <= 3; n++) {
        board *without = run_kind(n, trains_and_evaluates, 0, gpt2, data);
        board *with = run_kind(n, trains_and_evaluates, 1, gpt2, data);
        for (int s = 1; s < STEPS; s++) assert_true(without->loss[s] != without->loss[s - 1]); /* it learns */
        assert_memory_equal(with->loss, without->loss, sizeof with->loss);
        assert_string_equal(with->after, without->after);
        close_board(with);
        close_board(without);
    }
}

/* --- settings that a loss does not show ------------------------------------------------------------------------- */

static ls_status trains_three_steps(ls_trainer *t, job *j)
{
    char before[33], after[33];
    ls_step_stats s;
    LS_TRY(ls_params_digest(&t->par.model->params, before));
    for (int k = 0; k < 3; k++) LS_TRY(ls_train_step(t, &s));
    LS_TRY(ls_params_digest(&t->par.model->params, after));
    if (ls_world_rank(t->w) != 0) return LS_OK;
    memcpy(j->b->before, before, sizeof before);
    memcpy(j->b->after, after, sizeof after);
    return LS_OK;
}

static void the_seed_decides_initial_values_and_the_run(void **state)
{
    (void)state;
    for (int lm = 0; lm < 2; lm++) {
        board *b[3];
        static const char *const seed[] = { "11", "12", "11" };
        for (int k = 0; k < 3; k++)
            b[k] = lm ? RUN(2, trains_three_steps, gpt2, "data.path", numbered, "model.vocab_size", "300", "train.seed", seed[k], NULL)
                      : RUN(2, trains_three_steps, mlp, "model.dims", "8,16,4", "train.global_batch", "12", "train.seed", seed[k],
                            NULL);
        assert_string_not_equal(b[0]->before, b[1]->before);
        assert_string_not_equal(b[0]->after, b[1]->after);
        assert_string_not_equal(b[0]->before, b[0]->after);
        assert_string_equal(b[0]->before, b[2]->before);
        assert_string_equal(b[0]->after, b[2]->after);
        for (int k = 0; k < 3; k++) close_board(b[k]);
    }
}

/* When the first bucket of a step was started, and when the last operation of its backward was over. */
static ls_status starts_of(const ls_trainer *t, uint32_t step, uint64_t *bucket, uint64_t *end)
{
    const ls_blackbox *box = &t->w->page->rank[ls_world_local_rank(t->w)].box;
    LS_EXPECT(box->count < LS_BLACKBOX_EVENTS, "events were overwritten");
    *bucket = UINT64_MAX;
    *end = 0;
    for (uint64_t i = 0; i < box->count; i++) {
        const ls_event *e = &box->ev[i];
        if (e->step != step) continue;
        if (e->kind == LS_EV_COLL && strncmp(box->string[e->label], "bucket", 6) == 0 && e->t0_ns < *bucket) *bucket = e->t0_ns;
        if (e->kind == LS_EV_OP && e->backward && e->t1_ns > *end) *end = e->t1_ns;
    }
    LS_EXPECT(*bucket != UINT64_MAX && *end > 0, "no bucket, or no backward, in step %u", step);
    return LS_OK;
}

/* kind: whether buckets overlap. */
static ls_status starts_buckets(ls_trainer *t, job *j)
{
    ls_step_stats s;
    for (uint32_t step = 1; step <= 5; step++) {
        uint64_t bucket = 0, end = 0;
        LS_TRY(ls_train_step(t, &s));
        LS_TRY(starts_of(t, step, &bucket, &end));
        LS_EXPECT(step == 1 || (bucket < end) == j->kind, "step %u: the first bucket starts %s the end of backward", step,
                  bucket < end ? "before" : "after");
    }
    return LS_OK;
}

static void overlap_decides_when_buckets_start(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++)
        close_board(run_kind(2, starts_buckets, overlap, mlp,
                             (const char *const[]){ "model.dims", "64,64,64,64,10", "train.global_batch", "12", "ddp.first_bucket",
                                                    "1", "ddp.bucket_cap", "1", "ddp.overlap", overlap ? "true" : "false", NULL }));
}

#define ROW 16 /* elements of a bias */

/* kind: whether contributions are divided by the number of ranks, or multiplied by its reciprocal. What is left in the
 * bucket of 0.bias is compared with the sum, in the order of ranks, of what each rank's backward alone gives. */
static ls_status averages(ls_trainer *t, job *j)
{
    ls_param *bias = ls_params_find(&t->par.model->params, "0.bias");
    float mean[ROW], all[MOST_RANKS * ROW], divided_sum[ROW] = { 0 }, scaled_sum[ROW] = { 0 };
    ls_step_stats s;
    ls_loss_sums sums;
    LS_TRY(ls_train_step(t, &s));
    memcpy(mean, bias->grad.data, sizeof mean);
    ls_params_zero_grad(&t->par.model->params);
    ls_tape_reset(t->par.tape[0]);
    LS_TRY(ls_ddp_begin_forward(t->par.ddp, t->par.tape[0], false));
    LS_TRY(ls_backward(t->par.tape[0], ls_train_loss(t, t->par.tape[0], &t->feed.step, &sums)));
    memcpy(all + ls_world_rank(t->w) * ROW, bias->grad.data, sizeof mean);
    LS_TRY(ls_all_gather(ls_world_group(t->w), NULL, all, (size_t)ls_world_size(t->w) * ROW, LS_F32));
    int differ = 0;
    for (int i = 0; i < ROW; i++) {
        for (int r = 0; r < ls_world_size(t->w); r++) {
            divided_sum[i] += all[r * ROW + i] / (float)ls_world_size(t->w);
            scaled_sum[i] += all[r * ROW + i] * (1.0f / (float)ls_world_size(t->w));
        }
        differ += divided_sum[i] != scaled_sum[i];
        LS_EXPECT(mean[i] == (j->kind ? divided_sum : scaled_sum)[i], "element %d of %d ranks is %a: divided %a, scaled %a", i,
                  ls_world_size(t->w), (double)mean[i], (double)divided_sum[i], (double)scaled_sum[i]);
    }
    LS_EXPECT((differ > 0) == (ls_world_size(t->w) == 3), "%d elements differ on %d ranks", differ, ls_world_size(t->w));
    return LS_OK;
}

static void bucket_view_decides_how_ranks_are_averaged(void **state)
{
    (void)state;
    for (int view = 0; view < 2; view++)
        for (int n = 2; n <= MOST_RANKS; n++)
            close_board(run_kind(n, averages, view, mlp,
                                 (const char *const[]){ "model.dims", "8,16,4", "train.global_batch", "12", "optim.lr", "0",
                                                        "ddp.bucket_view", view ? "true" : "false", NULL }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards_see_each_window_once_and_in_its_place),
        cmocka_unit_test(a_mask_is_that_of_its_step_its_sample_and_its_place),
        cmocka_unit_test(attention_drops_others_in_each_step_and_the_same_on_any_ranks),
        cmocka_unit_test(a_gradient_is_that_of_the_mean_over_labels_that_count),
        cmocka_unit_test(ranks_share_the_windows_of_an_evaluation),
        cmocka_unit_test(ranks_share_the_samples_of_an_evaluation),
        cmocka_unit_test(an_evaluation_leaves_no_trace_in_training),
        cmocka_unit_test(the_seed_decides_initial_values_and_the_run),
        cmocka_unit_test(overlap_decides_when_buckets_start),
        cmocka_unit_test(bucket_view_decides_how_ranks_are_averaged),
    };
    return cmocka_run_group_tests_name("train_ranks", tests, make_data, remove_data);
}
