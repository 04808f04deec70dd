// The body of a kernel that looks up rows of a matrix of integers of 4 to 6 or 12 bits, as f32: op
// `embedding_small`. Each form of a matrix has a file, which says NAME, BITS, HALVES and MINIMUM.
#include "grouped.h"

// ids i32 (M,), low, high (if BITS > 4), scale, minimum (if MINIMUM) of (V, columns), out f32
// (M, columns); a workgroup reads one row.
int NAME(const int32_t *ids, size_t ids_at, const uint8_t *low, size_t low_at,
#if BITS > 4
         const uint8_t *high, size_t high_at,
#endif
         const _Float16 *scale, size_t scale_at,
#if MINIMUM
         const _Float16 *minimum, size_t minimum_at,
#endif
         float *out, size_t out_at, size_t token, size_t columns) {
    enum { SCALES = HALVES ? 2 : 1 };
    const int zero = zero_of(BITS, MINIMUM);
    size_t groups = columns / GROUP, id = (size_t)ids[ids_at + token], lane = id % ROWS;
    Integers integers = {BITS, .low = low + low_at};
#if BITS == 12
    integers.whole = (const int8_t *)high + high_at;
#elif BITS > 4
    integers.high = high + high_at;
#endif
    out += out_at + token * columns;
    for (size_t i = 0; i < groups; i++) {
        size_t group = id / ROWS * groups + i;
        Quad quads[QUADS];
        unpack(quads, integers, group);
#if BITS == 12
        Halves lower[QUADS];
        unpack_low(lower, integers, group);
#endif
        for (int j = 0; j < GROUP; j++) {
            size_t factor = (group * SCALES + (size_t)j * SCALES / GROUP) * ROWS + lane;
            size_t at = lane * QUAD + (size_t)j % QUAD;
            float value = (float)(quads[j / QUAD][at] - zero);
#if BITS == 12
            value = (float)(quads[j / QUAD][at] * 16 + lower[j / QUAD][at] - zero) * (1.0f / 16.0f);
#endif
            *out = value * (float)scale[scale_at + factor];
#if MINIMUM
            *out += (float)minimum[minimum_at + group * ROWS + lane];
#endif
            out++;
        }
    }
    return 0;
}
