// The results of attention, times the sigmoids of the gates of their heads: op `gated_heads`.
#include "gates.h"

// gate f32 (rows, heads, width), x and out f32 (rows, heads from `start` to `stop`, each `step`-th,
// width): sigmoid(gate) * x. A workgroup computes a row.
int hearth_gated_heads(const float *gate, size_t gate_at, const float *x, size_t x_at, float *out,
                       size_t out_at, size_t row, size_t heads, size_t start, size_t stop,
                       size_t step, size_t width) {
    size_t count = (stop - start + step - 1) / step;
    gate += gate_at + (row * heads + start) * width;
    x += x_at + row * count * width, out += out_at + row * count * width;
    for (size_t head = 0; head < count; head++, gate += step * width)
        for (size_t i = 0; i < width; i += LANES) {
            size_t at = head * width + i;
            store(out + at, sigmoid16(load(gate + i)) * load(x + at));
        }
    return 0;
}
