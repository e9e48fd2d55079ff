/* Exercise 3 of lab 02: a run was refused. What is large, and what is the cheapest change that fits?
 *
 * A training of stage 0 needs more than its limit. You are given what a rank would hold of each unit, by class; the
 * limit is less than the sum of all these bytes. Find
 *
 *   unit, largest   the unit and the class of the largest number in the table (no other number is as large)
 *   flag            the first of STAGE1, STAGE2, STAGE3, RECOMPUTE with which the rank fits; NOTHING if none is enough
 *
 * Each flag is tried by itself. What a rank needs is the sum of all classes over all units, but
 *
 *   STAGE1     the optimizer's state is divided by ranks (all bytes can be divided)
 *   STAGE2     gradients are, too. Backward has memory for two units besides: twice the gradients of the largest unit
 *   STAGE3     values are divided, too; ranks map one copy, so nothing is gathered
 *   RECOMPUTE  as stage 0, but of a unit's activations its input stays. One unit at a time has all of its activations:
 *              memory for the unit with the most activations is needed besides the inputs of all units
 *
 * A rank fits if it needs limit bytes or less.
 */
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
    (void)r;
    return (answer){ 0, VALUES, NOTHING }; /* your code takes the place of these lines */
}
