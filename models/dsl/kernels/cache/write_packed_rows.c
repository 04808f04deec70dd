// Integers of new rows of a KV cache of 6 or 4 bits: op `write_packed_rows`.
#include "cache/cache_rows.h"

// LANES values divided by a scale and rounded, plus `half`: from 0 to 2 * half - 1.
INLINE i32x16 rounded(const float *x, float factor, float half) {
    f32x16 zero = {}, lanes = __builtin_elementwise_roundeven(load(x) * factor) + half;
    lanes = __builtin_elementwise_max(lanes, zero);
    lanes = __builtin_elementwise_min(lanes, zero + (2.0f * half - 1.0f));
    return __builtin_convertvector(lanes, i32x16);
}

// A bit of each of LANES integers; lane i gives bit i.
INLINE uint32_t plane_of(i32x16 integers, size_t bit) {
    uint32_t plane = 0;
    for (int i = 0; i < LANES; i++) plane |= (uint32_t)(integers[i] >> bit & 1) << i;
    return plane;
}

// places i32 (rows,), x f32 (rows, heads, width), out i8 (R, heads * width * bits / 8). A workgroup
// computes a row.
int hearth_write_packed_rows(const int32_t *places, size_t places_at, const float *x, size_t x_at,
                             int8_t *out, size_t out_at, size_t row, size_t heads, size_t width,
                             size_t bits) {
    const float half = (float)(1 << (bits - 1));
    size_t columns = heads * width;
    x += x_at + row * columns;
    out += out_at + (size_t)places[places_at + row] * packed_bytes(columns, (int)bits);
    for (size_t d = 0; d < columns; d += SCALE_GROUP) {
        float group[SCALE_GROUP];
        load_rotated(group, x + d);
        float scale = (float)group_scale(group, bits);
        float factor = scale == 0.0f ? 0.0f : 1.0f / scale;
        i32x16 first = rounded(group, factor, half);
        i32x16 second = rounded(group + LANES, factor, half);
        i8x16 pairs = __builtin_convertvector(((second & 15) - 8) * 16 + (first & 15), i8x16);
        __builtin_memcpy(out, &pairs, sizeof pairs);
        out += LANES;
        for (size_t bit = 4; bit < bits; bit++, out += sizeof(uint32_t)) {
            uint32_t plane = plane_of(first, bit) | plane_of(second, bit) << LANES;
            __builtin_memcpy(out, &plane, sizeof plane);
        }
    }
    return 0;
}
