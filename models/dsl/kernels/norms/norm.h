// Root-mean-square normalization (Zhang and Sennrich, 2019) of rows whose width is a multiple of
// LANES.
#ifndef HEARTH_NORM_H
#define HEARTH_NORM_H

#include "isa/vector.h"

// sqrt(mean(x^2) + eps).
INLINE float root_mean_square(const float *x, size_t width, float eps) {
    f32x16 squares = {};
    for (size_t i = 0; i < width; i += LANES) squares = fma16(load(x + i), load(x + i), squares);
    return __builtin_sqrtf(sum(squares) / (float)width + eps);
}

#endif
