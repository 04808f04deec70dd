// Scales of new rows of a KV cache of int8: op `write_row_scales`.
#include "cache/cache_rows.h"

// places i32 (rows,), x f32 (rows, heads, width), out f32 (R, heads). A workgroup computes a row.
int hearth_write_row_scales(const int32_t *places, size_t places_at, const float *x, size_t x_at,
                            float *out, size_t out_at, size_t row, size_t heads, size_t width) {
    x += x_at + row * heads * width;
    out += out_at + (size_t)places[places_at + row] * heads;
    for (size_t head = 0; head < heads; head++, x += width)
        out[head] = largest_magnitude(x, width) * (1.0f / 127.0f);
    return 0;
}
