// Scales of new rows of a KV cache of 6 or 4 bits: op `write_packed_scales`.
#include "cache/cache_rows.h"

// places i32 (rows,), x f32 (rows, heads, width), out f16 (R, heads * width / 32). A workgroup
// computes a row.
int hearth_write_packed_scales(const int32_t *places, size_t places_at, const float *x, size_t x_at,
                               _Float16 *out, size_t out_at, size_t row, size_t heads, size_t width,
                               size_t bits) {
    size_t columns = heads * width;
    x += x_at + row * columns;
    out += out_at + (size_t)places[places_at + row] * (columns / SCALE_GROUP);
    for (size_t d = 0; d < columns; d += SCALE_GROUP) {
        float group[SCALE_GROUP];
        load_rotated(group, x + d);
        *out++ = group_scale(group, bits);
    }
    return 0;
}
