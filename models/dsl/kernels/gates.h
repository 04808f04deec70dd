// The activations of layers.
#ifndef HEARTH_GATES_H
#define HEARTH_GATES_H

#include "isa/vector.h"

// 1 / (1 + exp(-x)).
INLINE f32x16 sigmoid16(f32x16 x) {
    f32x16 power = exp16(-__builtin_elementwise_abs(x)), whole = splat(1.0f) / (power + 1.0f);
    return choose(x < 0.0f, power * whole, whole);
}

INLINE f32x16 silu(f32x16 x) { return x * sigmoid16(x); }

// log(1 + exp(x)): with p = exp(-|x|) and z = p / (2 + p), at most 1/3, log(1 + p) = 2 atanh(z).
INLINE f32x16 softplus(f32x16 x) {
    f32x16 power = exp16(-__builtin_elementwise_abs(x)), z = power / (power + 2.0f), square = z * z;
    f32x16 series = splat(2.0f / 15);
    UNROLL for (int odd = 13; odd > 0; odd -= 2) series =
        fma16(series, square, splat(2.0f / (float)odd));
    return fma16(series, z, __builtin_elementwise_max(x, (f32x16){}));
}

// (1 + tanh(u)) / 2 is the sigmoid of 2u.
INLINE f32x16 gelu_tanh(f32x16 x) {
    return x * sigmoid16((x + x * x * x * 0.044715f) * 1.59576912f);
}

#endif
