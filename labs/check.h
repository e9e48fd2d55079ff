/* check.h -- what the checks of exercises share: shapes from a seed, and how a red answer is told.
 *
 * A check is a program: the reader's task.c and the exercise's check.c. It ends with 0 if the answer is right.
 * Otherwise it prints the first shape for which it is not, what was expected and found, and an idea, and ends with 1.
 */
#ifndef LS_LABS_CHECK_H
#define LS_LABS_CHECK_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_SHAPES 200

typedef struct check {
    uint64_t state; /* of the random numbers */
} check;

/* SplitMix64 (Steele, Lea and Flood 2014). */
static inline uint64_t check_random(check *c)
{
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number from least to most. */
static inline int check_between(check *c, int least, int most)
{
    return least + (int)(check_random(c) % (uint64_t)(most - least + 1));
}

/* The seed is the first argument. */
static inline check check_begin(int argc, char **argv)
{
    return (check){ .state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 };
}

static inline void check_print(const char *name, const int *v, int n)
{
    printf("  %-9s", name);
    for (int i = 0; i < n; i++) printf(" %d", v[i]);
    printf("\n");
}

/* The end of a right answer: `lockstep lab` looks for these words at the end of what a check prints. */
static inline int check_green(int shapes)
{
    printf("%d of %d shapes are right\n", shapes, shapes);
    return 0;
}

#endif
