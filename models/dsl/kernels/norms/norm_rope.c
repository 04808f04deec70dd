// Some heads of rows, normalized and then rotated by their positions: op `norm_rope`.
#include "norms/rotate.h"

// x f32 (rows, heads, width), weight f32 (width,), cosine and sine f32 (rows, turning / 2), out f32
// (rows, heads from `start` to `stop`, each `step`-th, width). A workgroup computes a row.
int hearth_norm_rope(const float *x, size_t x_at, const float *weight, size_t weight_at,
                     const float *cosine, size_t cosine_at, const float *sine, size_t sine_at,
                     float *out, size_t out_at, size_t row, size_t heads, size_t start, size_t stop,
                     size_t step, size_t width, size_t turning, float eps) {
    size_t count = (stop - start + step - 1) / step;
    x += x_at + (row * heads + start) * width;
    out += out_at + row * count * width;
    cosine += cosine_at + row * (turning / 2);
    sine += sine_at + row * (turning / 2);
    for (size_t i = 0; i < count; i++, x += step * width, out += width)
        rotate_head(x, weight + weight_at, root_mean_square(x, width, eps), cosine, sine, out,
                    width, turning);
    return 0;
}
