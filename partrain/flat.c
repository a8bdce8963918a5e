/* Means of rows, and the check for non-finite numbers: with the bits of flat.py's torch code, in one pass over memory. */

#include "numeric.h"

enum { BLOCK = 1024 }; /* numbers with float64 sums that stay in the cache */

/* A sum of two halves is rounded once in any case, so it needs no float64. */
static void mean_of_two(NUMBER *restrict first, NUMBER *restrict second, int64_t size, NUMBER share) {
    for (int64_t j = 0; j < size; j++) first[j] = second[j] = share * first[j] + share * second[j];
}

/* Write sum_i w_i x_i / total, with x_i the numbers from `start` to `stop` of row i, to the same place in each target. */
void mean(NUMBER *const *rows, const double *weights, int64_t count, int64_t start, int64_t stop, double total,
          NUMBER *const *targets, int64_t target_count) {
    const int halves = count == 2 && weights[0] == weights[1] && (weights[0] == 0.5 || weights[0] == 1) && total == 1;
    if (halves && target_count == 2 && rows[0] == targets[0] && rows[1] == targets[1]) {
        mean_of_two(rows[0] + start, rows[1] + start, stop - start, weights[0]);
        return;
    }
    for (int64_t block = start; block < stop; block += BLOCK) {
        const int64_t size = stop - block < BLOCK ? stop - block : BLOCK;
        double sums[BLOCK];
        for (int64_t j = 0; j < size; j++) sums[j] = weights[0] * rows[0][block + j];
        for (int64_t i = 1; i < count; i++) {
            const NUMBER *restrict row = rows[i] + block;
            const double weight = weights[i];
            for (int64_t j = 0; j < size; j++) sums[j] = FUSED(weight, (double)row[j], sums[j]);
        }
        for (int64_t j = 0; j < size; j++) sums[j] /= total;
        for (int64_t i = 0; i < target_count; i++) {
            NUMBER *restrict target = targets[i] + block;
            for (int64_t j = 0; j < size; j++) target[j] = sums[j];
        }
    }
}

/* Return the index of the first NaN or infinity, or -1. */
int64_t first_non_finite(const NUMBER *x, int64_t size) {
    for (int64_t block = 0; block < size; block += BLOCK) {
        const int64_t end = size - block < BLOCK ? size : block + BLOCK;
        int wrong = 0;
        for (int64_t j = block; j < end; j++) wrong |= !(fabs(x[j]) < (NUMBER)INFINITY);
        for (int64_t j = block; wrong && j < end; j++)
            if (!(fabs(x[j]) < (NUMBER)INFINITY)) return j;
    }
    return -1;
}
