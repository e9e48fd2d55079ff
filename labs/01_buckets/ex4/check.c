/* check.c -- exercise 4 of lab 01: the exposed time with the cap that is returned, beside the least of all caps. */
#include "check.h"

enum { MOST = 16, CAPS = 7 };

size_t best_cap(const size_t *nbytes, const double *ready_us, int n, double alpha_us, double us_per_byte,
                const size_t *caps, int ncaps); /* task.c */

typedef struct step {
    size_t nbytes[MOST], caps[CAPS];
    double ready_us[MOST], alpha_us, us_per_byte;
    int n;
} step;

/* Without a queue an all_reduce does not wait for the one before it, as in a typical mistake. */
static double exposed(const step *s, size_t cap, bool queue)
{
    size_t held = 0;
    double end = 0;
    for (int i = 0; i < s->n; i++) {
        held += s->nbytes[i];
        if (held < cap && i < s->n - 1) continue;
        const double took = s->alpha_us + (double)held * s->us_per_byte;
        const double after = queue && end > s->ready_us[i] ? end : s->ready_us[i];
        if (after + took > end) end = after + took;
        held = 0;
    }
    return end - s->ready_us[s->n - 1];
}

static int best(const step *s, bool queue)
{
    int least = 0;
    for (int k = 1; k < CAPS; k++)
        if (exposed(s, s->caps[k], queue) < exposed(s, s->caps[least], queue)) least = k;
    return least;
}

/* Times in quarters of a microsecond and caps from one gradient to all of them. */
static void draw(check *c, step *s)
{
    double now = 0;
    s->n = check_between(c, 6, MOST);
    for (int i = 0; i < s->n; i++) {
        s->nbytes[i] = 256 * (size_t)check_between(c, 1, 8);
        s->ready_us[i] = now += 0.25 * check_between(c, 4, 120);
    }
    for (int k = 0; k < CAPS; k++) s->caps[k] = (size_t)1024 << k;
    s->alpha_us = 0.25 * check_between(c, 4, 240);
    s->us_per_byte = 0.001 * check_between(c, 1, 20);
}

/* What all answers have in common. */
typedef struct habit {
    bool smallest, largest, no_queue;
} habit;

static const char *idea(habit h)
{
    if (h.smallest) return "a bucket for each gradient pays alpha_us for each: what cannot start before the earlier ones end piles up";
    if (h.largest) return "one bucket leaves when backward is over, and nothing of it is hidden";
    if (h.no_queue) return "an all_reduce starts when its bucket is ready and the one before it has ended: small buckets queue";
    return "replay the step with each cap, bucket by bucket, and take the least exposed time";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    static step all[CHECK_SHAPES];
    size_t found[CHECK_SHAPES];
    habit h = { true, true, true };
    int wrong = -1;
    for (int i = 0; i < CHECK_SHAPES; i++) {
        step *s = &all[i];
        draw(&c, s);
        const step given = *s;
        found[i] = best_cap(s->nbytes, s->ready_us, s->n, s->alpha_us, s->us_per_byte, s->caps, CAPS);
        *s = given;
        h.smallest &= found[i] == s->caps[0];
        h.largest &= found[i] == s->caps[CAPS - 1];
        h.no_queue &= found[i] == s->caps[best(s, false)];
        bool listed = false;
        for (int k = 0; k < CAPS; k++) listed |= found[i] == s->caps[k];
        const double least = exposed(s, s->caps[best(s, true)], true);
        if (wrong < 0 && (!listed || exposed(s, found[i], true) > 1.1 * least)) wrong = i;
    }
    if (wrong < 0) return check_green(CHECK_SHAPES);
    const step *s = &all[wrong];
    printf("shape %d of %d: alpha_us = %g, us_per_byte = %g\n  nbytes   ", wrong + 1, CHECK_SHAPES, s->alpha_us, s->us_per_byte);
    for (int i = 0; i < s->n; i++) printf(" %zu", s->nbytes[i]);
    printf("\n  ready_us ");
    for (int i = 0; i < s->n; i++) printf(" %g", s->ready_us[i]);
    printf("\n  caps     ");
    for (int k = 0; k < CAPS; k++) printf(" %zu", s->caps[k]);
    const int least = best(s, true);
    printf("\n  expected  cap %zu, or another one with at most 1.1 times %.4g us exposed\n  found     cap %zu, %.4g us exposed\n"
           "  idea      %s\n", s->caps[least], exposed(s, s->caps[least], true), found[wrong], exposed(s, found[wrong], true), idea(h));
    return 1;
}
