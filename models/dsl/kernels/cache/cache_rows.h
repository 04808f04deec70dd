// New rows of a KV cache of int8.
#ifndef HEARTH_CACHE_ROWS_H
#define HEARTH_CACHE_ROWS_H

#include "isa/vector.h"

// 127 divided by it is finite; an infinity counts as the largest, and NaN as zero.
static const float SMALLEST = 0x1p-100f, LARGEST = 0x1p100f;

INLINE f32x16 load_bounded(const float *x) {
    f32x16 zero = {}, lanes = load(x);
    f32x16 bounded = __builtin_elementwise_max(choose(lanes == lanes, lanes, zero), zero - LARGEST);
    return __builtin_elementwise_min(bounded, zero + LARGEST);
}

// The largest magnitude of a head.
INLINE float largest_magnitude(const float *x, size_t width) {
    f32x16 most = splat(SMALLEST);
    for (size_t d = 0; d < width; d += LANES)
        most = __builtin_elementwise_max(most, __builtin_elementwise_abs(load_bounded(x + d)));
    return largest(most);
}

#endif
