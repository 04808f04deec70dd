// Multiplies an activation of some values with others: ops `gated_silu` and `gated_gelu_tanh`. A
// variant defines NAME and ACTIVATION.
#include "isa/vector.h"

// 1 / (1 + exp(-x)).
INLINE f32x16 sigmoid16(f32x16 x) {
    f32x16 power = exp16(-__builtin_elementwise_abs(x)), whole = splat(1.0f) / (power + 1.0f);
    return choose(x < 0.0f, power * whole, whole);
}

INLINE f32x16 silu(f32x16 x) { return x * sigmoid16(x); }

// (1 + tanh(u)) / 2 is the sigmoid of 2u.
INLINE f32x16 gelu_tanh(f32x16 x) {
    return x * sigmoid16((x + x * x * x * 0.044715f) * 1.59576912f);
}

// gate and up f32 of `count` values, out likewise: ACTIVATION(gate) * up. A workgroup computes
// `share` of them, a multiple of LANES, as is `count`.
int NAME(const float *gate, size_t gate_at, const float *up, size_t up_at, float *out,
         size_t out_at, size_t workgroup, size_t share, size_t count) {
    size_t begin = workgroup * share, end = least(begin + share, count);
    gate += gate_at, up += up_at, out += out_at;
    for (size_t i = begin; i < end; i += LANES)
        store(out + i, ACTIVATION(load(gate + i)) * load(up + i));
    return 0;
}
