// Adds a layer's normalized result to the residual stream, and normalizes the stream for the next
// layer: op `residual_norm`.
#include "norms/norm.h"

// h and y f32 (rows, width), after and before f32 (width,), out f32 (2, rows, width): first
// h + norm(y) * after, then norm of that * before. A workgroup computes a row.
int hearth_residual_norm(const float *h, size_t h_at, const float *y, size_t y_at,
                         const float *after, size_t after_at, const float *before, size_t before_at,
                         float *out, size_t out_at, size_t row, size_t rows, size_t width,
                         float eps) {
    h += h_at + row * width;
    y += y_at + row * width;
    after += after_at;
    before += before_at;
    float *sums = out + out_at + row * width, *normalized = sums + rows * width;
    float root = root_mean_square(y, width, eps);
    for (size_t i = 0; i < width; i += LANES)
        store(sums + i, load(h + i) + load(y + i) / root * load(after + i));
    root = root_mean_square(sums, width, eps);
    for (size_t i = 0; i < width; i += LANES)
        store(normalized + i, load(sums + i) / root * load(before + i));
    return 0;
}
