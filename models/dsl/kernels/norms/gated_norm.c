// The norm of the outputs of heads, times the SiLU of gates: op `gated_norm`.
#include "gates.h"
#include "norms/norm.h"

// gate and x f32 (rows, width), weight f32 (width,), out f32 (rows, width): silu(gate) * norm(x) *
// weight. A workgroup computes `share` rows.
int hearth_gated_norm(const float *gate, size_t gate_at, const float *x, size_t x_at,
                      const float *weight, size_t weight_at, float *out, size_t out_at,
                      size_t workgroup, size_t rows, size_t width, size_t share, float eps) {
    size_t end = least((workgroup + 1) * share, rows);
    for (size_t row = workgroup * share; row < end; row++) {
        const float *values = x + x_at + row * width, *gates = gate + gate_at + row * width;
        float root = root_mean_square(values, width, eps);
        for (size_t i = 0; i < width; i += LANES) {
            f32x16 normalized = load(values + i) / root * load(weight + weight_at + i);
            store(out + out_at + row * width + i, silu(load(gates + i)) * normalized);
        }
    }
    return 0;
}
