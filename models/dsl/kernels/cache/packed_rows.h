// Rows of a KV cache of 6 and 4 bits. Each group of SCALE_GROUP columns of a head is multiplied by
// a Hadamard matrix and has a scale. A group stores u, an integer plus 2^(bits - 1): byte i
// of LANES has the lower four bits of column i in its lower half, and the lower four bits of column
// LANES + i, less 8, in its upper half. Four bytes follow for each further bit, with that bit of
// all columns.
#ifndef HEARTH_PACKED_ROWS_H
#define HEARTH_PACKED_ROWS_H

#include "isa/vector.h"

enum { SCALE_GROUP = 2 * LANES };

// The bytes of the groups before column `d`.
INLINE size_t packed_bytes(size_t d, int bits) { return d / SCALE_GROUP * (size_t)(4 * bits); }

// LANES columns from column `d` on. `bits` is a constant.
INLINE f32x16 unpack(const int8_t *bytes, const _Float16 *scales, size_t d, const int bits) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const float scale = (float)scales[d / SCALE_GROUP];
    bytes += packed_bytes(d, bits);
    const int second = d % SCALE_GROUP != 0;
    i8x16 pairs;
    __builtin_memcpy(&pairs, bytes, sizeof pairs);
    i32x16 integers = __builtin_convertvector(second ? pairs >> 4 : pairs & 15, i32x16);
    UNROLL for (int bit = 4; bit < bits; bit++) {
        uint32_t plane;
        __builtin_memcpy(&plane, bytes + LANES + (bit - 4) * 4, sizeof plane);
        u32x16 words = plane - (u32x16){};
        words >>= (u32x16)(second ? lane + LANES : lane);
        integers += (i32x16)((words & 1) << (uint32_t)bit);
    }
    const float zero = (float)((second ? 8 : 0) - (1 << (bits - 1)));
    return fma16(__builtin_convertvector(integers, f32x16), splat(scale), splat(zero * scale));
}

// Adds to each lane the lane whose number differs in `bit`; lanes with that bit are subtracted.
#define ADD_FLIPPED(x, bit, ...) \
    x = __builtin_shufflevector(x, x, __VA_ARGS__) + choose((lane & (bit)) == 0, x, -x)

INLINE f32x16 rotate_lanes(f32x16 x) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ADD_FLIPPED(x, 1, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    ADD_FLIPPED(x, 2, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    ADD_FLIPPED(x, 4, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    ADD_FLIPPED(x, 8, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    return x;
}

// Rotates each group of columns. `to` may be `from`.
INLINE void rotate(float *to, const float *from, size_t columns) {
    for (size_t d = 0; d < columns; d += SCALE_GROUP) {
        f32x16 first = rotate_lanes(load(from + d)), second = rotate_lanes(load(from + d + LANES));
        store(to + d, (first + second) * 0x1.6a09e6p-3f);  // divided by the root of 32
        store(to + d + LANES, (first - second) * 0x1.6a09e6p-3f);
    }
}

#endif
