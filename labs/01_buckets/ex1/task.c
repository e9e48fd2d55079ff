/* Exercise 1 of lab 01: which gradients travel together?
 *
 * The n gradients are listed in the order in which they become ready; gradient i has nbytes[i] bytes. Fill buckets in
 * this order. Bucket 0 is closed as soon as it holds `first` bytes or more, each later bucket as soon as it holds `cap`
 * bytes or more. Write the number of gradient i's bucket to bucket[i], and return how many buckets there are.
 *
 * Example: nbytes = 40 2560 256 32768 512, first = 2048, cap = 16384: bucket = 0 0 1 1 2, and the result is 3.
 */
#include <stddef.h>

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    (void)nbytes, (void)first, (void)cap;
    for (int i = 0; i < n; i++) bucket[i] = 0; /* your code takes the place of this line and the next */
    return n > 0;
}
