/* A linear layer: answers and gradients of a batch. compiled_linear.py calls it where product.h has its own products.

Matrices are in row-major order. */

#include "product.h"

/* out (rows, outputs) = x W^T + bias; bias may be null. */
void forward(int64_t rows, int64_t inputs, int64_t outputs, const NUMBER *x, const NUMBER *weight, const NUMBER *bias,
             NUMBER *out) {
    product(0, 0, 1, rows, outputs, inputs, x, weight, 0, out);
    for (int64_t row = 0; bias && row < rows; row++)
        for (int64_t j = 0; j < outputs; j++) out[row * outputs + j] += bias[j];
}

/* Gradients of the loss by x, weight and bias, from `delta` (rows, outputs), the gradient by the answers. A null result is skipped. */
void backward(int64_t rows, int64_t inputs, int64_t outputs, const NUMBER *x, const NUMBER *weight, const NUMBER *delta,
              NUMBER *of_x, NUMBER *of_weight, NUMBER *restrict of_bias) {
    if (of_x) product(0, 0, 0, rows, inputs, outputs, delta, weight, 0, of_x);
    if (of_weight) product(0, 1, 0, outputs, inputs, rows, delta, x, 0, of_weight);
    for (int64_t j = 0; of_bias && j < outputs; j++) of_bias[j] = 0;
    for (int64_t row = 0; of_bias && row < rows; row++)
        for (int64_t j = 0; j < outputs; j++) of_bias[j] += delta[row * outputs + j];
}
