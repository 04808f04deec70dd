// The body of a kernel that multiplies an activation of some values with others: a gated layer.
#include "vector.h"

// 1 / (1 + exp(-x)).
INLINE f32x16 sigmoid16(f32x16 x) {
    f32x16 power = exp16(-__builtin_elementwise_abs(x)), whole = splat(1.0f) / (power + 1.0f);
    return choose(x < 0.0f, power * whole, whole);
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
