// Queries for a KV cache of 6 and 4 bits: op `rotate_heads`.
#include "cache/packed_rows.h"

// x f32 (rows, heads, width), out likewise. A workgroup computes a row.
int hearth_rotate_heads(const float *x, size_t x_at, float *out, size_t out_at, size_t row,
                        size_t heads, size_t width) {
    size_t at = row * heads * width;
    rotate(out + out_at + at, x + x_at + at, heads * width);
    return 0;
}
