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

/* --- arrays that a task writes, with guards before and after them ----------------------------------------- */

enum { CHECK_GUARD = 64 }; /* bytes */

/* An array of nbytes in `room`, which has `size` bytes, 2 CHECK_GUARD more at least. Its ints are -1, its doubles
 * NAN. */
static inline void *check_room(void *room, size_t size, size_t nbytes)
{
    memset(room, 0x5a, size);
    return memset((char *)room + CHECK_GUARD, 0xff, nbytes);
}

/* Whether something was written outside that array. */
static inline bool check_outside(const void *room, size_t size, size_t nbytes)
{
    const unsigned char *p = room;
    for (size_t i = 0; i < size; i++)
        if ((i < CHECK_GUARD || i >= CHECK_GUARD + nbytes) && p[i] != 0x5a) return true;
    return false;
}

/* The end of a right answer: `lockstep lab` looks for these words at the end of what a check prints. */
static inline int check_green(int shapes)
{
    printf("%d of %d shapes are right\n", shapes, shapes);
    return 0;
}

#endif
