// Integers of new rows of a KV cache: op `write_int8_rows`.
#include "cache/cache_rows.h"

// places i32 (rows,), x f32 (rows, heads, width), out i8 (R, heads * width). A workgroup computes a
// row.
int hearth_write_int8_rows(const int32_t *places, size_t places_at, const float *x, size_t x_at,
                           int8_t *out, size_t out_at, size_t row, size_t heads, size_t width) {
    x += x_at + row * heads * width;
    out += out_at + (size_t)places[places_at + row] * heads * width;
    for (size_t head = 0; head < heads; head++, x += width, out += width) {
        const f32x16 factor = splat(127.0f / largest_magnitude(x, width));
        for (size_t d = 0; d < width; d += LANES) {
            f32x16 rounded = __builtin_elementwise_roundeven(load_bounded(x + d) * factor);
            i8x16 integers =
                __builtin_convertvector(__builtin_convertvector(rounded, i32x16), i8x16);
            __builtin_memcpy(out + d, &integers, sizeof integers);
        }
    }
    return 0;
}
