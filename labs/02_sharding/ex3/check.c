/* check.c -- exercise 3 of lab 02: tables of random units, each with a limit that some flag meets, or none. */
#include "check.h"

enum class { VALUES, GRADIENTS, OPTIMIZER, ACTIVATIONS };
enum flag { STAGE1, STAGE2, STAGE3, RECOMPUTE, NOTHING };
enum { MOST_UNITS = 8, CLASSES = 4 };

typedef struct refusal {
    int ranks, units;
    long bytes[MOST_UNITS][CLASSES]; /* that a rank holds of a unit, in stage 0 */
    long input[MOST_UNITS];          /* of the activations: bytes of what the unit computes from */
    long limit;                      /* that a rank may take */
} refusal;

typedef struct answer {
    int unit;
    enum class largest;
    enum flag flag;
} answer;

answer explain(const refusal *r); /* task.c */

enum { SHAPES = 300, FLAGS = NOTHING + 1, MISTAKES = 5 };

static const char *const flags[] = { "STAGE1", "STAGE2", "STAGE3", "RECOMPUTE", "NOTHING" };
static const char *const classes[] = { "VALUES", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS" };

static long sum(const refusal *r, int class)
{
    long n = 0;
    for (int u = 0; u < r->units; u++) n += r->bytes[u][class];
    return n;
}

static long most(const refusal *r, int class)
{
    long n = 0;
    for (int u = 0; u < r->units; u++) n = r->bytes[u][class] > n ? r->bytes[u][class] : n;
    return n;
}

/* two: units whose gradients backward has memory for; alive: 0: recomputation stores nothing but inputs. */
static long needs(const refusal *r, int flag, int two, int alive)
{
    const long w = r->ranks, values = sum(r, VALUES), grads = sum(r, GRADIENTS), optim = sum(r, OPTIMIZER);
    long act = sum(r, ACTIVATIONS);
    if (flag == RECOMPUTE) {
        act = alive * most(r, ACTIVATIONS);
        for (int u = 0; u < r->units; u++) act += r->input[u];
    }
    if (flag == RECOMPUTE || flag == NOTHING) return values + grads + optim + act;
    return (flag == STAGE3 ? values / w : values) + optim / w + act +
           (flag == STAGE1 ? grads : grads / w + two * most(r, GRADIENTS));
}

static int first_that_fits(const refusal *r, const int *order, int two, int alive)
{
    for (int i = 0; i < NOTHING; i++)
        if (needs(r, order[i], two, alive) <= r->limit) return order[i];
    return NOTHING;
}

static answer largest_of(const refusal *r)
{
    answer a = { 0 };
    for (int u = 0; u < r->units; u++)
        for (int k = 0; k < CLASSES; k++)
            if (r->bytes[u][k] > r->bytes[a.unit][a.largest]) a.unit = u, a.largest = (enum class)k;
    return a;
}

/* What a typical mistake answers; MISTAKES: the right answer. */
static answer answered(const refusal *r, int mistake)
{
    static const int order[] = { STAGE1, STAGE2, STAGE3, RECOMPUTE }, other[] = { RECOMPUTE, STAGE1, STAGE2, STAGE3 },
                     last[] = { STAGE3, STAGE2, STAGE1, RECOMPUTE };
    answer a = largest_of(r);
    long total = 0;
    a.flag = (enum flag)first_that_fits(r, mistake == 0 ? other : mistake == 1 ? last : order, mistake == 2 ? 0 : 2,
                                        mistake != 3);
    if (mistake == 4) /* the unit and the class with the largest sums */
        for (int u = 0; u < r->units; u++) {
            long all = 0;
            for (int k = 0; k < CLASSES; k++) {
                all += r->bytes[u][k];
                if (sum(r, k) > sum(r, (int)a.largest)) a.largest = (enum class)k;
            }
            if (all > total) total = all, a.unit = u;
        }
    return a;
}

static bool same(answer a, answer b) { return a.unit == b.unit && a.largest == b.largest && a.flag == b.flag; }

static const char *idea(const bool *like)
{
    static const char *const of[MISTAKES] = {
        "the stages cost less than computing activations again, so they are tried first",
        "a stage that divides more than is needed is not the cheapest one that fits",
        "from stage 2 on, backward has memory for the gradients of two units besides the shard",
        "recomputation stores inputs, and while a unit is recomputed it has all of its activations",
        "the largest number of the table, and not the largest sum of a row or of a column",
    };
    for (int k = 0; k < MISTAKES; k++)
        if (like[k]) return of[k];
    return "write what a rank needs with each flag, then compare with the limit in the order of the list";
}

static void draw(check *c, refusal *r)
{
    memset(r, 0, sizeof *r);
    r->ranks = 1 << check_between(c, 1, 3);
    r->units = check_between(c, 2, MOST_UNITS);
    const int acts = check_between(c, 1, 4000);
    for (int u = 0; u < r->units; u++) {
        const long p = 32L * check_between(c, 1, 500);
        r->bytes[u][VALUES] = r->bytes[u][GRADIENTS] = p;
        r->bytes[u][OPTIMIZER] = 2 * p;
        r->bytes[u][ACTIVATIONS] = 32L * check_between(c, acts / 4 + 1, acts + 1) + 1 + u;
        r->input[u] = r->bytes[u][ACTIVATIONS] / check_between(c, 3, 12);
    }
    const int kind = check_between(c, 0, NOTHING);
    const long all = needs(r, NOTHING, 2, 1), with = kind == NOTHING ? all / 3 : needs(r, kind, 2, 1);
    r->limit = with + check_between(c, 0, 2) * (all / 100);
    if (r->limit >= all) r->limit = all - 1;
}

/* The largest number stands alone in the table. */
static bool is_clear(const refusal *r)
{
    const answer a = largest_of(r);
    int n = 0;
    for (int u = 0; u < r->units; u++)
        for (int k = 0; k < CLASSES; k++) n += r->bytes[u][k] == r->bytes[a.unit][a.largest];
    return n == 1;
}

static void print(const refusal *r)
{
    printf("  ranks %d, limit %ld\n  unit      VALUES GRADIENTS OPTIMIZER ACTIVATIONS     input\n", r->ranks, r->limit);
    for (int u = 0; u < r->units; u++)
        printf("  %4d %11ld %9ld %9ld %11ld %9ld\n", u, r->bytes[u][0], r->bytes[u][1], r->bytes[u][2], r->bytes[u][3], r->input[u]);
}

static void tell(const char *what, answer a)
{
    const bool known = (unsigned)a.largest < CLASSES && (unsigned)a.flag < FLAGS;
    printf("  %-9s unit %d, %s, %s\n", what, a.unit, known ? classes[a.largest] : "no class", known ? flags[a.flag] : "no flag");
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    bool like[MISTAKES] = { true, true, true, true, true }, red = false;
    for (int shape = 0; shape < SHAPES; shape++) {
        refusal r;
        do draw(&c, &r);
        while (!is_clear(&r));
        const answer right = answered(&r, MISTAKES), found = explain(&r);
        for (int k = 0; k < MISTAKES; k++) like[k] = like[k] && same(answered(&r, k), found);
        if (red || same(right, found)) continue;
        red = true;
        printf("shape %d of %d\n", shape + 1, SHAPES);
        print(&r);
        tell("expected", right);
        tell("found", found);
    }
    if (!red) return check_green(SHAPES);
    printf("  idea      %s\n", idea(like));
    return 1;
}
