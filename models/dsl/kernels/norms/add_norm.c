// Adds a layer's result to the residual stream, and normalizes it for the next: op `add_norm`.
#include "norms/norm.h"

// h and y f32 (rows, width), before f32 (width,), out f32 (2, rows, width): first h + y * scale,
// then norm of that * before. A workgroup computes a row.
int hearth_add_norm(const float *h, size_t h_at, const float *y, size_t y_at, const float *before,
                    size_t before_at, float *out, size_t out_at, size_t row, size_t rows,
                    size_t width, float scale, float eps) {
    h += h_at + row * width;
    y += y_at + row * width;
    before += before_at;
    float *sums = out + out_at + row * width, *normalized = sums + rows * width;
    for (size_t i = 0; i < width; i += LANES) store(sums + i, load(h + i) + load(y + i) * scale);
    float root = root_mean_square(sums, width, eps);
    for (size_t i = 0; i < width; i += LANES)
        store(normalized + i, load(sums + i) / root * load(before + i));
    return 0;
}
