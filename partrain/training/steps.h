/* Steps of SGD and Adam for all parameters of a network in one call. compiled_step.py mirrors the structures. */

#pragma once

#include "numeric.h"

enum { NO_STEP, SGD, ADAM, ADAMW };

typedef struct {
    NUMBER *param, *gradient, *first, *second; /* moments: SGD's momentum, or both of Adam */
    float *steps;
    int64_t size;
    double peak, decay;
} Tensor;

typedef struct {
    int64_t kind, nesterov, count;
    double peak, momentum, beta1, beta2, epsilon;
    Tensor *tensors;
} Optimizer;

/* Steps round like torch's fused kernels where a tensor fills SIMD registers. */
static void sgd(const Optimizer *optimizer, const Tensor *tensor, NUMBER rate) {
    NUMBER *restrict param = tensor->param, *restrict first = tensor->first;
    const NUMBER *restrict gradient = tensor->gradient;
    const NUMBER momentum = optimizer->momentum, decay = tensor->decay;
    for (int64_t j = 0; j < tensor->size; j++) {
        NUMBER step = FUSED(decay, param[j], gradient[j]);
        if (first) {
            const NUMBER mean = first[j] = momentum * first[j] + step;
            step = optimizer->nesterov ? FUSED(momentum, mean, step) : mean;
        }
        param[j] = FUSED(-rate, step, param[j]);
    }
}

static void adam(const Optimizer *optimizer, const Tensor *tensor, double rate) {
    NUMBER *restrict param = tensor->param, *restrict first = tensor->first, *restrict second = tensor->second;
    const NUMBER *restrict gradient = tensor->gradient;
    const double steps = *tensor->steps;
    const NUMBER of_first = 1 - optimizer->beta1, beta2 = optimizer->beta2, of_second = 1 - optimizer->beta2;
    const NUMBER step_size = rate / (1 - pow(optimizer->beta1, steps)), root = sqrt(1 - pow(optimizer->beta2, steps));
    const NUMBER epsilon = optimizer->epsilon, coupled = optimizer->kind == ADAM ? tensor->decay : 0;
    const NUMBER kept = optimizer->kind == ADAMW ? 1 - rate * tensor->decay : 1;
    for (int64_t j = 0; j < tensor->size; j++) {
        const NUMBER before = param[j] * kept, g = FUSED(coupled, before, gradient[j]);
        first[j] = FUSED(of_first, g - first[j], first[j]);
        second[j] = FUSED(of_second * g, g, beta2 * second[j]);
        param[j] = before - step_size * first[j] / (sqrt(second[j]) / root + epsilon);
    }
}

/* Take a step with the current gradients. */
void take_step(const Optimizer *optimizer, double rate) {
    for (const Tensor *tensor = optimizer->tensors; tensor < optimizer->tensors + optimizer->count; tensor++) {
        const double own = tensor->peak == optimizer->peak ? rate : tensor->peak * (rate / optimizer->peak);
        if (optimizer->kind == SGD) sgd(optimizer, tensor, own);
        else {
            *tensor->steps += 1;
            adam(optimizer, tensor, own);
        }
    }
}
