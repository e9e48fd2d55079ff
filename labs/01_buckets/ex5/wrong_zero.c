/* Wrong: counts steps from 0. */
enum { MOST_RANKS = 4, MOST_TENSORS = 6, MOST_STEPS = 6 };

typedef struct evidence {
    int ranks, tensors, steps;
    int bucket[MOST_STEPS][MOST_TENSORS];               /* [step - 1][tensor]; -1: in no bucket */
    int gradient[MOST_STEPS][MOST_TENSORS][MOST_RANKS]; /* [step - 1][tensor][rank] */
} evidence;

static int differs(const int *gradient, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (gradient[r] != gradient[0]) return 1;
    return 0;
}

void forgotten(const evidence *e, int *tensor, int *step)
{
    *tensor = *step = -1;
    for (int s = 0; s < e->steps && *step < 0; s++)
        for (int t = 0; t < e->tensors; t++)
            if (e->bucket[s][t] < 0 && differs(e->gradient[s][t], e->ranks)) *tensor = t, *step = s;
}
