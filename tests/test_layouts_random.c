/* Random products of data, tensor, sequence, context and pipeline parallelism with ZeRO stages, recompute,
 * micro-batches, bf16 and dropout train the model that one rank trains, and a layout that runs twice has the same bits
 * (R110-R119, R131-R138). So do random products of these, except pipelines, and expert parallelism (R139-R146), and
 * products of pipelines and expert parallelism (R147-R153).
 *
 * Twelve layouts of the first two, six of the third, and 64 ranks; LOCKSTEP_RUNS layouts from LOCKSTEP_SEED on where
 * these are set: tests/long_layouts.sh has 100 of each. LOCKSTEP_LARGE: so many layouts of 32 to 64 ranks. A message
 * names the seed of its layout.
 */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define STEPS      10
#define BATCH      8
#define TOKENS     "32" /* a multiple of 2 cp and of cp tp, for all that are drawn */
#define MOST_RANKS 16
#define LARGE      32   /* ranks of a large layout, at least, and twice as many at most */
#define KEYS       19   /* of a layout */
#define FIRST_SEED 205  /* its 12 have each axis, schedule, stage, context, dtype and kind of recompute */
#define EXPERTS_SEED 5  /* its 12 have all of this, each ep, each task with experts, hybrid sharding and a hook */
#define STAGES_SEED 26  /* the first has backwards in two halves and recomputes all */

/* Of losses, and of norms and weights. Both sides round to float in every operation, and 10 steps pass a difference on.
 * In bf16 every operation rounds to 8 bits. */
static const struct { double losses, weights; } f32 = { 1e-5, 1e-4 }, bf16 = { 1e-2, 5e-2 };

/* --- what is trained ----------------------------------------------------------------------------------------- */

#define RECIPE "data.name", NULL, "data.path", NULL, "data.tokenizer", "char", "train.global_batch", "8", "optim.clip", "1", \
               "model.n_layer", "4", "model.n_head", "8", "model.d_model", "32", "model.seq_len", TOKENS
#define SGD "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05"
/* With the usual eps, 1e-8, a gradient that is 0 except for rounding, as of biases of keys, moves a weight by all of
 * lr. */
#define ADAMW "optim.name", "adamw", "optim.lr", "0.01", "optim.eps", "1e-3"
#define DROPOUT "model.embd_dropout", "0.1", "model.attn_dropout", "0.2", "model.resid_dropout", "0.1"
#define BF16 "train.dtype", "bf16"

static const char *gpt2[] = { RECIPE, SGD, "model.name", "gpt2", NULL };
static const char *dropped[] = { RECIPE, ADAMW, "model.name", "gpt2", DROPOUT, NULL };
static const char *llama[] = { RECIPE, ADAMW, "model.name", "llama", NULL };
static const char *grouped[] = { RECIPE, SGD, "model.name", "llama", "model.n_kv_head", "4", NULL };
static const char *gpt2_bf16[] = { RECIPE, SGD, "model.name", "gpt2", DROPOUT, BF16, NULL };
static const char *llama_bf16[] = { RECIPE, ADAMW, "model.name", "llama", "model.n_kv_head", "4", BF16, NULL };

#define MOE RECIPE, SGD, "model.name", "moe", "model.d_expert", "24", "model.n_experts", "8", "model.top_k", "2"
static const char *moe[] = { MOE, NULL };
static const char *balanced[] = { MOE, "moe.aux_loss", "0.02", "moe.z_loss", "0.01", "moe.bias_rate", "0.02", NULL };
static const char *dropping[] = { MOE, "moe.capacity_factor", "0.75", "moe.aux_loss", "0.02", NULL };
static const char *least[] = { MOE, "moe.capacity_factor", "0.5", "moe.drop", "probability", "model.n_kv_head", "4", NULL };
static const char *shared[] = { MOE, "model.shared_expert", "24", "model.first_dense", "1", NULL };
static const char *moe_bf16[] = { MOE, "model.norm_topk", "false", BF16, NULL };

typedef struct task {
    const char *name;
    const char **run;
    int key_heads;
    bool bf16;
} task;

static const task tasks[] = {
    { "gpt2", gpt2, 8, false },
    { "gpt2 with dropout", dropped, 8, false },
    { "llama", llama, 8, false },
    { "llama with 4 heads of keys", grouped, 4, false },
    { "gpt2 with dropout in bf16", gpt2_bf16, 8, true },
    { "llama with 4 heads of keys in bf16", llama_bf16, 4, true },
    { "experts", moe, 8, false },
    { "experts in balance", balanced, 8, false },
    { "experts of a capacity", dropping, 8, false },
    { "experts that drop the least probable", least, 4, false },
    { "experts and a shared one", shared, 8, false },
    { "experts in bf16", moe_bf16, 8, true },
};
enum { DENSE = 6, SPARSE = COUNT(tasks) - DENSE }; /* of them */

static int open_text(void **state)
{
    if (make_text(state) != 0) return 1;
    for (size_t i = 0; i < COUNT(tasks); i++) tasks[i].run[1] = text, tasks[i].run[3] = tokens;
    return 0;
}

/* --- a layout ---------------------------------------------------------------------------------------------------- */

typedef struct drawn {
    unsigned seed;
    size_t task;
    int ranks;
    const char *layout[2 * KEYS + 1]; /* NULL-ended */
    int n;
} drawn;

static uint32_t draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*rng >> 33) % n;
}

static void set(drawn *d, const char *key, const char *value)
{
    if (d->n + 2 > 2 * KEYS) fail_msg("seed %u: a layout has more than %d keys", d->seed, KEYS);
    d->layout[d->n++] = key;
    d->layout[d->n++] = value;
}

static const char *const number[] = { "0", "1", "2", NULL, "4", NULL, NULL, NULL, "8" };

/* How ranks divide a layer and a sequence. */
static void draw_axes(drawn *d, uint64_t *rng, int dp, int tp, int cp)
{
    static const char *const how[] = { "ring", "gather", "ulysses" };
    const int64_t keys = tasks[d->task].key_heads / tp; /* ulysses divides heads of keys, too */
    set(d, "parallel.dp", number[dp]);
    if (tp > 1) set(d, "parallel.tp", number[tp]);
    if (tp > 1 && draw(rng, 2)) set(d, "parallel.sp", "true");
    else if (tp > 1 && draw(rng, 2)) set(d, "parallel.tp_pieces", "3");
    if (cp == 1) return;
    set(d, "parallel.cp", number[cp]);
    if (cp == 4 && keys % 2 == 0 && draw(rng, 4) == 0) set(d, "parallel.context", "ulysses-ring");
    else set(d, "parallel.context", how[draw(rng, keys % cp == 0 ? 3 : 2)]);
    set(d, "parallel.cp_split", draw(rng, 2) ? "contiguous" : "zigzag");
}

/* Of every other seed stages that begin and end between halves of layers. With numbers of its own, so that all else
 * that a seed draws stays as it was. */
static void draw_split(drawn *d, int stages)
{
    static const char *const two[] = { "0.5,3.5", "1.5,2.5", "2.5,1.5", "3.5,0.5" };
    static const char *const four[] = { "0.5,1.5,1,1",     "1.5,0.5,1.5,0.5", "0,0.5,3,0.5",     "0.5,0.5,0.5,2.5",
                                        "1,1.5,1.5,0",     "2.5,0.5,1,0",     "0.5,2,1,0.5",     "1.5,1,1,0.5" };
    uint64_t rng = d->seed * 2654435761u;
    (void)draw(&rng, 2);
    if (draw(&rng, 2)) set(d, "pipeline.split", stages == 2 ? two[draw(&rng, COUNT(two))] : four[draw(&rng, COUNT(four))]);
}

/* How ranks divide the layers of the model among them. Schedules with backwards in two halves do without stages of ZeRO
 * that reduce each of them; in a V a tied matrix is in two chunks of a rank, which then has all of it. */
static bool draw_pipeline(drawn *d, uint64_t *rng, int pp)
{
    static const struct { const char *name; bool halves; } order[] = {
        { "1f1b", false }, { "gpipe", false }, { "interleaved", false }, { "zb-h1", true }, { "zb-h2", true }, { "zb-v", true },
        { "dualpipe-v", true },
    };
    const uint32_t k = draw(rng, pp == 4 ? 5 : COUNT(order)); /* 6 units */
    if (pp == 1) return false;
    set(d, "parallel.pp", number[pp]);
    const char *const name = order[pp == 4 && k == 2 ? 0 : k].name;
    set(d, "pipeline.schedule", name);
    draw_split(d, strchr(name, 'v') ? 2 * pp : pp); /* interleaved, zb-v and dualpipe-v have two chunks per rank */
    return order[k].halves;
}

/* What a rank of them stores, and when. Experts have dp / ep replicas. */
static void draw_step(drawn *d, uint64_t *rng, int dp, int ep, int cp, bool halves)
{
    static const char *const recompute[] = { "none", "selective", "full" };
    static const char *const transport[] = { "tcp", "shm", "shm", "shm" };
    static const char *const axes[] = { "dp-pp-tp-ep-cp", "tp-cp-ep-dp-pp", "ep-tp-pp-cp-dp", "cp-pp-dp-tp-ep" };
    const uint32_t stage = draw(rng, halves ? 2 : 4);
    const bool own = stage == 3 && draw(rng, 2);
    const int micro = 1 << draw(rng, 3); /* 1, 2, 4 */
    set(d, "zero.stage", (const char *const[]){ "0", "1", "2", "3" }[stage]);
    if (own) set(d, "zero.copy", "rank");
    const bool hybrid = stage > 0 && dp * cp >= 4 && (ep == 1 || dp / ep % 2 == 0) && draw(rng, 3) == 0;
    if (hybrid) set(d, "zero.hsdp", "2");
    if (stage == 0 && ep > 1 && draw(rng, 2)) set(d, "ddp.hook", "allreduce");
    set(d, "train.recompute", recompute[draw(rng, 3)]);
    if (BATCH / dp % micro == 0 && draw(rng, 3)) set(d, "train.micro_batch", number[micro]);
    if (stage < 3 || own) set(d, "comm.transport", transport[draw(rng, 4)]); /* a copy per node is in shared memory */
    if (draw(rng, 4) == 0) set(d, "comm.progress", "thread");
    if (draw(rng, 2)) set(d, "parallel.order", axes[hybrid && ep > 1 ? 0 : draw(rng, COUNT(axes))]); /* all experts in a set */
}

static drawn draw_layout(unsigned seed)
{
    drawn d = { .seed = seed };
    uint64_t rng = seed;
    for (int i = 0; i < 4; i++) (void)draw(&rng, 2); /* seeds that are neighbours begin alike */
    int pp, dp, tp, cp;
    do {
        pp = 1 << draw(&rng, 3);
        dp = 1 << draw(&rng, 4);
        tp = 1 << draw(&rng, 3);
        cp = 1 << draw(&rng, 3);
        d.ranks = pp * dp * tp * cp;
    } while (pp * tp * cp == 1 || d.ranks > MOST_RANKS);
    d.task = draw(&rng, DENSE);
    draw_axes(&d, &rng, dp, tp, cp);
    draw_step(&d, &rng, dp, 1, cp, draw_pipeline(&d, &rng, pp));
    return d;
}

static drawn draw_experts(unsigned seed)
{
    drawn d = { .seed = seed };
    uint64_t rng = seed;
    for (int i = 0; i < 4; i++) (void)draw(&rng, 2);
    int dp, ep, tp, cp;
    do {
        dp = 1 << draw(&rng, 3);
        ep = 1 << draw(&rng, 4);
        tp = 1 << draw(&rng, 2);
        cp = 1 << draw(&rng, 2);
        d.ranks = dp * ep * tp * cp;
    } while (ep == 1 || dp * ep > BATCH || d.ranks > MOST_RANKS);
    d.task = DENSE + draw(&rng, SPARSE);
    draw_axes(&d, &rng, dp, tp, cp);
    set(&d, "parallel.ep", number[ep]);
    draw_step(&d, &rng, dp * ep, ep, cp, false);
    return d;
}

/* Everything at once, of so many ranks: a model with experts has ep > 1, and `both` has pp > 1 beside it. */
static drawn draw_all(unsigned seed, int from, int to, bool both)
{
    drawn d = { .seed = seed };
    uint64_t rng = seed;
    for (int i = 0; i < 4; i++) (void)draw(&rng, 2);
    int pp, dp, ep, tp, cp;
    bool sparse;
    do {
        sparse = both || draw(&rng, 2);
        pp = 1 << draw(&rng, 3);
        dp = 1 << draw(&rng, 4);
        ep = sparse ? 2 << draw(&rng, 2) : 1;
        tp = 1 << draw(&rng, both ? 2 : 3);
        cp = 1 << draw(&rng, both ? 2 : 3);
        d.ranks = pp * dp * ep * tp * cp;
    } while ((both && pp == 1) || dp * ep > BATCH || (sparse && (tp > 2 || cp > 2)) || d.ranks < from || d.ranks > to);
    d.task = sparse ? DENSE + draw(&rng, SPARSE) : draw(&rng, DENSE);
    draw_axes(&d, &rng, dp, tp, cp);
    if (ep > 1) set(&d, "parallel.ep", number[ep]);
    draw_step(&d, &rng, dp * ep, ep, cp, draw_pipeline(&d, &rng, pp));
    return d;
}

static drawn draw_stages_of_experts(unsigned seed) { return draw_all(seed, 4, MOST_RANKS, true); }

static drawn draw_large(unsigned seed) { return draw_all(seed, LARGE, 2 * LARGE, false); }

/* --- a layout against one rank, and against itself --------------------------------------------------------------- */

typedef struct memory { /* of one rank, task by task */
    ls_layout_outcome *alone[COUNT(tasks)];
    double loss[2]; /* the largest difference of a loss: f32, bf16 */
} memory;

static void free_outcome(ls_layout_outcome *o)
{
    if (o) ls_layout_outcome_free(o);
    free(o);
}

static ls_layout_outcome *train(const drawn *d, const ls_layout *l, bool alone)
{
    char name[512];
    ls_layout_outcome *o = calloc(1, sizeof *o);
    assert_non_null(o);
    ls_layout_name(l, name, sizeof name);
    if (ls_layout_train(l, alone, o) < 0)
        fail_msg("seed %u: %s, %s%s: %s", d->seed, tasks[d->task].name, name, alone ? ", one rank alone" : "",
                 ls_last_error());
    return o;
}

static double loss_difference(const ls_layout_outcome *a, const ls_layout_outcome *b)
{
    double most = 0;
    for (int s = 0; s < a->steps; s++) {
        const double d = fabs(a->rank[0].loss[s] / b->rank[0].loss[s] - 1);
        if (!(d <= most)) most = d;
    }
    return most;
}

static bool same_bits(const ls_layout_outcome *a, const ls_layout_outcome *b)
{
    const ls_layout_rank *x = &a->rank[0], *y = &b->rank[0]; /* of all ranks: the verdict compares them */
    return memcmp(x->loss, y->loss, sizeof x->loss) == 0 && memcmp(x->norm, y->norm, sizeof x->norm) == 0 &&
           strcmp(x->digest, y->digest) == 0;
}

static void holds(const drawn *d, memory *m)
{
    const task *t = &tasks[d->task];
    const ls_layout l = { .ranks = d->ranks, .run = t->run, .layout = d->layout, .steps = STEPS };
    char why[1024];
    ls_layout_outcome **alone = &m->alone[d->task];
    if (!*alone) *alone = train(d, &l, true);
    ls_layout_outcome *once = train(d, &l, false), *again = train(d, &l, false);
    if (!ls_layout_verdict(&l, t->bf16 ? bf16.weights : f32.weights, once, *alone, why, sizeof why))
        fail_msg("seed %u: %s, %s", d->seed, t->name, why);
    const double difference = loss_difference(once, *alone), allowed = t->bf16 ? bf16.losses : f32.losses;
    (void)ls_layout_name(&l, why, sizeof why);
    if (!(difference <= allowed))
        fail_msg("seed %u: %s, %s: a loss is %.2g from one rank's, relative to it, where %.2g are allowed", d->seed,
                 t->name, why, difference, allowed);
    if (!same_bits(once, again)) fail_msg("seed %u: %s, %s: a second run has other bits", d->seed, t->name, why);
    if (difference > m->loss[t->bf16]) m->loss[t->bf16] = difference;
    free_outcome(once);
    free_outcome(again);
}

static void forget(memory *m)
{
    for (size_t i = 0; i < COUNT(tasks); i++) free_outcome(m->alone[i]);
}

static void train_random_products(drawn (*draw_one)(unsigned seed), const char *variable, unsigned usual_runs,
                                  unsigned usual)
{
    const char *runs_text = getenv(variable), *seed_text = getenv("LOCKSTEP_SEED");
    const unsigned runs = runs_text ? (unsigned)atoi(runs_text) : usual_runs;
    const unsigned first = seed_text ? (unsigned)atoi(seed_text) : usual;
    memory m = { 0 };
    for (unsigned seed = first; seed < first + runs; seed++) {
        const drawn d = draw_one(seed);
        holds(&d, &m);
    }
    print_message("layouts of seeds %u to %u: a loss is at most %.2g from one rank's in f32, %.2g in bf16\n", first,
                  first + runs - 1, m.loss[0], m.loss[1]);
    forget(&m);
}

static void random_products_train_the_model_of_one_rank(void **state)
{
    (void)state;
    train_random_products(draw_layout, "LOCKSTEP_RUNS", 12, FIRST_SEED);
}

static void random_products_of_experts_train_the_model_of_one_rank(void **state)
{
    (void)state;
    train_random_products(draw_experts, "LOCKSTEP_RUNS", 12, EXPERTS_SEED);
}

static void random_stages_of_experts_train_the_model_of_one_rank(void **state)
{
    (void)state;
    train_random_products(draw_stages_of_experts, "LOCKSTEP_RUNS", 6, STAGES_SEED);
}

static void random_layouts_of_many_ranks_train_the_model_of_one_rank(void **state)
{
    (void)state;
    train_random_products(draw_large, "LOCKSTEP_LARGE", 1, 1);
}

static void sixty_four_ranks_train_the_model_of_one_rank(void **state)
{
    (void)state;
    static const char *const axes[][9] = {
        { "parallel.dp", "4", "parallel.tp", "4", "parallel.cp", "4" },
        { "parallel.dp", "4", "parallel.tp", "4", "parallel.pp", "4", "train.micro_batch", "1" },
    };
    for (size_t i = 0; i < COUNT(axes); i++)
        assert_layout(&(ls_layout){ .ranks = 64, .run = gpt2, .layout = axes[i], .steps = STEPS }, f32.losses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_products_train_the_model_of_one_rank),
        cmocka_unit_test(random_products_of_experts_train_the_model_of_one_rank),
        cmocka_unit_test(random_stages_of_experts_train_the_model_of_one_rank),
        cmocka_unit_test(random_layouts_of_many_ranks_train_the_model_of_one_rank),
        cmocka_unit_test(sixty_four_ranks_train_the_model_of_one_rank),
    };
    return cmocka_run_group_tests_name("random layouts", tests, open_text, remove_text);
}
