/* Wrong: a frozen tensor is in no bucket either, and is taken for one that was forgotten. */
enum { MOST_RANKS = 4, MOST_TENSORS = 6, MOST_STEPS = 6 };

typedef struct evidence {
    int ranks, tensors, steps;
    int bucket[MOST_STEPS][MOST_TENSORS];               /* [step - 1][tensor]; -1: in no bucket */
    int gradient[MOST_STEPS][MOST_TENSORS][MOST_RANKS]; /* [step - 1][tensor][rank] */
} evidence;

void forgotten(const evidence *e, int *tensor, int *step)
{
    *tensor = *step = -1;
    for (int s = 0; s < e->steps && *step < 0; s++)
        for (int t = 0; t < e->tensors; t++)
            if (e->bucket[s][t] < 0 && *step < 0) *tensor = t, *step = s + 1;
}
