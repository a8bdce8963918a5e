/* Arithmetic that gcc turns into SIMD instructions.

Numbers are float if SINGLE is defined, else double. */

#pragma once

#include <stdint.h>
#include <tgmath.h>

#ifdef SINGLE
#define NUMBER float
#else
#define NUMBER double
#endif

#ifdef FP_FAST_FMAF
#define FUSED(a, b, c) fma(a, b, c)
#else /* fma would be a slow call */
#define FUSED(a, b, c) ((a) * (b) + (c))
#endif

#ifdef SINGLE /* loops over these functions become SIMD instructions; loops over calls of the C library do not */

/* exp as 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], up to 2 units in the last place (Cephes). */
static inline float exponential(float x) {
    union { uint32_t bits; float number; } power;
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float n = rintf(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    power.bits = ((uint32_t)(int32_t)n + 127) << 23;
    const float tail = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                        1.6666665459e-1f) * r + 5.0000001201e-1f;
    return (tail * r * r + r + 1.0f) * power.number;
}

/* tanh by an odd polynomial near 0, else by exp (Cephes). */
static inline float hyperbolic_tangent(float x) {
    const float size = fabsf(x), square = x * x;
    const float near = ((((-5.70498872745e-3f * square + 2.06390887954e-2f) * square - 5.37397155531e-2f) * square +
                         1.33314422036e-1f) * square - 3.33332819422e-1f) * square * x + x;
    const float far = copysignf(1.0f - 2.0f / (exponential(2.0f * size) + 1.0f), x);
    return size < 0.625f ? near : far;
}

#else
#define exponential exp
#define hyperbolic_tangent tanh
#endif

static inline NUMBER sigmoid(NUMBER x) { return 1 / (1 + exponential(-x)); }
