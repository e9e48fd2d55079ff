/* Exercise 5 of lab 01: which tensor is in no bucket, and since when does it show?
 *
 * A run has trained on several ranks. In step 1 all tensors share one bucket; from step 2 on there are others, and a
 * tensor may have been forgotten: bucket -1. You get each tensor's bucket in each step, and its gradient on each rank
 * when the optimizer's step begins (a number stands for it: equal numbers mean equal gradients, and 0 means none).
 *
 * At most one tensor was forgotten although it is trained. Write its number to *tensor, and to *step the first step
 * after which ranks have different weights. If there is none, write -1 to both. Tensors and ranks are counted from 0,
 * steps from 1.
 *
 * A frozen tensor has no gradient, is in no bucket from step 2 on, and that is right. A tensor may also get no gradient
 * in some steps only.
 */
enum { MOST_RANKS = 4, MOST_TENSORS = 6, MOST_STEPS = 6 };

typedef struct evidence {
    int ranks, tensors, steps;
    int bucket[MOST_STEPS][MOST_TENSORS];               /* [step - 1][tensor]; -1: in no bucket */
    int gradient[MOST_STEPS][MOST_TENSORS][MOST_RANKS]; /* [step - 1][tensor][rank] */
} evidence;

void forgotten(const evidence *e, int *tensor, int *step)
{
    (void)e;
    *tensor = *step = -1; /* your code takes the place of these lines */
}
