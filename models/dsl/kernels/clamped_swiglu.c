// The gate of gpt-oss: op `clamped_swiglu`. (u + 1) g sigmoid(slope * g), where g is `gate`, at
// most `limit`, and u is `up` within +-`limit`.
#include "gates.h"

INLINE f32x16 at_most(f32x16 x, float limit) { return choose(x > limit, splat(limit), x); }

// gate and up f32 of `count` values, out likewise. A workgroup computes `share` of them, a multiple
// of LANES, as is `count`.
int hearth_clamped_swiglu(const float *gate, size_t gate_at, const float *up, size_t up_at,
                          float *out, size_t out_at, size_t workgroup, size_t share, size_t count,
                          float limit, float slope) {
    size_t begin = workgroup * share, end = least(begin + share, count);
    gate += gate_at, up += up_at, out += out_at;
    for (size_t i = begin; i < end; i += LANES) {
        f32x16 bounded = at_most(load(gate + i), limit);
        f32x16 values = -at_most(-at_most(load(up + i), limit), limit);
        store(out + i, (values + 1.0f) * (bounded * sigmoid16(bounded * slope)));
    }
    return 0;
}
