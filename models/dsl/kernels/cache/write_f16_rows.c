// New rows of a KV cache of f16: op `write_f16_rows`.
#include "isa/vector.h"

// The largest f16. NaN stays NaN.
static const float MAX_F16 = 65504.0f;

// places i32 (rows,), x f32 (R, heads, width), out f16 (S, (stop - start) * width): writes `rows`
// rows of x from `first` on, and of these the heads from `start` up to `stop`. A workgroup computes
// a row.
int hearth_write_f16_rows(const int32_t *places, size_t places_at, const float *x, size_t x_at,
                          _Float16 *out, size_t out_at, size_t row, size_t first, size_t heads,
                          size_t start, size_t stop, size_t width) {
    size_t count = (stop - start) * width;
    x += x_at + ((first + row) * heads + start) * width;
    out += out_at + (size_t)places[places_at + row] * count;
    for (size_t i = 0; i < count; i += LANES) {
        f32x16 lanes = load(x + i);
        lanes = choose(lanes > MAX_F16, splat(MAX_F16), lanes);
        lanes = choose(lanes < -MAX_F16, splat(-MAX_F16), lanes);
        f16x16 narrow = __builtin_convertvector(lanes, f16x16);
        __builtin_memcpy(out + i, &narrow, sizeof narrow);
    }
    return 0;
}
