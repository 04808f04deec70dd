// The sum of the results of a token's experts, each times its factor: op `expert_sum`.
#include "isa/vector.h"

// y f32 (rows * count, columns) and factors f32 (rows, count), out f32 (rows, columns). A workgroup
// computes `share` of all values, a multiple of LANES, as is `columns`.
int hearth_expert_sum(const float *y, size_t y_at, const float *factors, size_t factors_at,
                      float *out, size_t out_at, size_t workgroup, size_t share, size_t size,
                      size_t columns, size_t count) {
    size_t end = least(workgroup * share + share, size);
    for (size_t at = workgroup * share; at < end; at += LANES) {
        size_t row = at / columns;
        const float *from = y + y_at + row * count * columns + at % columns;
        const float *own = factors + factors_at + row * count;
        f32x16 total = load(from) * own[0];
        for (size_t i = 1; i < count; i++)
            total = fma16(load(from + i * columns), splat(own[i]), total);
        store(out + out_at + at, total);
    }
    return 0;
}
