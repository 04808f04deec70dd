// Multiplies an activation of some values with others: ops `gated_silu` and `gated_gelu_tanh`. A
// variant defines NAME and ACTIVATION.
#include "gates.h"

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
