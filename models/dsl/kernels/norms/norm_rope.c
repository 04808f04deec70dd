// Some heads of rows, normalized and then rotated by their positions: op `norm_rope`.
#include "norms/norm.h"

// x f32 (rows, heads, width), weight f32 (width,), cosine and sine f32 (rows, width / 2), out f32
// (rows, stop - start, width). A workgroup computes a row.
int hearth_norm_rope(const float *x, size_t x_at, const float *weight, size_t weight_at,
                     const float *cosine, size_t cosine_at, const float *sine, size_t sine_at,
                     float *out, size_t out_at, size_t row, size_t heads, size_t start, size_t stop,
                     size_t width, float eps) {
    size_t half = width / 2;
    x += x_at + (row * heads + start) * width;
    out += out_at + row * (stop - start) * width;
    weight += weight_at;
    cosine += cosine_at + row * half;
    sine += sine_at + row * half;
    for (size_t head = start; head < stop; head++, x += width, out += width) {
        float root = root_mean_square(x, width, eps);
        for (size_t i = 0; i < half; i += LANES) {
            f32x16 first = load(x + i) / root * load(weight + i);
            f32x16 second = load(x + half + i) / root * load(weight + half + i);
            f32x16 c = load(cosine + i), s = load(sine + i);
            store(out + i, first * c - second * s);
            store(out + half + i, second * c + first * s);
        }
    }
    return 0;
}
