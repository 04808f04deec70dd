// The square of values above 0, and 0 for others: op `squared_relu`.
#include "isa/vector.h"

// x f32 of `count` values, out likewise. A workgroup computes `share` of them, a multiple of LANES,
// as is `count`.
int hearth_squared_relu(const float *x, size_t x_at, float *out, size_t out_at, size_t workgroup,
                        size_t share, size_t count) {
    size_t begin = workgroup * share, end = least(begin + share, count);
    x += x_at, out += out_at;
    for (size_t i = begin; i < end; i += LANES) {
        f32x16 positive = __builtin_elementwise_max(load(x + i), (f32x16){});
        store(out + i, positive * positive);
    }
    return 0;
}
