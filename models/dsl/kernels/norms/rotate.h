// Heads that are rotated by their positions.
#ifndef HEARTH_ROTATE_H
#define HEARTH_ROTATE_H

#include "norms/norm.h"

// Sixteen values of a head: over a root, times weights, unless there are none.
INLINE f32x16 head_lanes(const float *x, const float *weight, float root, size_t at) {
    return weight ? load(x + at) / root * load(weight + at) : load(x + at);
}

// One head: its first `turning` columns are rotated by cosines and sines, f32 (turning / 2,).
INLINE void rotate_head(const float *x, const float *weight, float root, const float *cosine,
                        const float *sine, float *out, size_t width, size_t turning) {
    size_t half = turning / 2;
    for (size_t i = 0; i < half; i += LANES) {
        f32x16 first = head_lanes(x, weight, root, i);
        f32x16 second = head_lanes(x, weight, root, half + i);
        f32x16 c = load(cosine + i), s = load(sine + i);
        store(out + i, first * c - second * s);
        store(out + half + i, second * c + first * s);
    }
    for (size_t i = turning; i < width; i += LANES) store(out + i, head_lanes(x, weight, root, i));
}

#endif
