// Normalizes each of some groups of columns of a row: op `grouped_rms_norm`.
#include "norms/norm.h"

// x f32 (rows, width), weight f32 (width,), out f32 (rows, width): a workgroup computes one of the
// `groups` of a row.
int hearth_grouped_rms_norm(const float *x, size_t x_at, const float *weight, size_t weight_at,
                            float *out, size_t out_at, size_t workgroup, size_t width,
                            size_t groups, float eps) {
    size_t each = width / groups;
    x += x_at + workgroup * each;
    out += out_at + workgroup * each;
    weight += weight_at + workgroup % groups * each;
    float root = root_mean_square(x, each, eps);
    for (size_t i = 0; i < each; i += LANES) store(out + i, load(x + i) / root * load(weight + i));
    return 0;
}
