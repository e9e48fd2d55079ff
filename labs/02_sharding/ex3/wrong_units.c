/* Wrong: the units that backward has memory for are forgotten. */
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

answer explain(const refusal *r)
{
    answer a = { 0, VALUES, NOTHING };
    long sum[CLASSES] = { 0 }, most[CLASSES] = { 0 }, inputs = 0, need[NOTHING];
    const long w = r->ranks;
    for (int u = 0; u < r->units; u++) {
        inputs += r->input[u];
        for (int k = 0; k < CLASSES; k++) {
            sum[k] += r->bytes[u][k];
            if (r->bytes[u][k] > most[k]) most[k] = r->bytes[u][k];
            if (r->bytes[u][k] > r->bytes[a.unit][a.largest]) a.unit = u, a.largest = (enum class)k;
        }
    }
    need[STAGE1] = sum[VALUES] + sum[GRADIENTS] + sum[OPTIMIZER] / w + sum[ACTIVATIONS];
    need[STAGE2] = sum[VALUES] + sum[GRADIENTS] / w + sum[OPTIMIZER] / w + sum[ACTIVATIONS];
    need[STAGE3] = need[STAGE2] - sum[VALUES] + sum[VALUES] / w;
    need[RECOMPUTE] = sum[VALUES] + sum[GRADIENTS] + sum[OPTIMIZER] + inputs + most[ACTIVATIONS];
    for (int k = STAGE1; k < NOTHING && a.flag == NOTHING; k++)
        if (need[k] <= r->limit) a.flag = (enum flag)k;
    return a;
}
