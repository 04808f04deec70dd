// New rows of a KV cache of int8, or of 6 and 4 bits.
#ifndef HEARTH_CACHE_ROWS_H
#define HEARTH_CACHE_ROWS_H

#include "cache/packed_rows.h"

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

// A group of columns, bounded and rotated.
INLINE void load_rotated(float group[SCALE_GROUP], const float *x) {
    for (size_t i = 0; i < SCALE_GROUP; i += LANES) store(group + i, load_bounded(x + i));
    rotate(group, group, SCALE_GROUP);
}

// The scale of a group: the value of the largest magnitude becomes -2^(bits - 1).
INLINE _Float16 group_scale(const float *x, size_t bits) {
    const float most = 65504.0f;  // of an f16
    f32x16 a = load(x), b = load(x + LANES);
    float top = largest(__builtin_elementwise_max(a, b));
    float bottom = largest(__builtin_elementwise_max(-a, -b));
    float scale = (top >= bottom ? top : -bottom) / -(float)(1 << (bits - 1));
    scale = scale > most ? most : scale;
    return (_Float16)(scale < -most ? -most : scale);
}

#endif
