// A short convolution of each channel over the latest inputs, then SiLU: ops `causal_conv`. A
// variant defines NAME and BIASED.
//
// Every token is computed in the same way, so the bits do not depend on how a text is split.
#include "gates.h"

enum { MAX_TAPS = 8 };

// before f32 (taps - 1, channels), x f32 (tokens, channels), which begins at `start` and has rows
// of `step` values, weight f32 (channels, taps), bias f32 (channels,), out f32 (tokens, channels).
// A workgroup computes `share` channels.
int NAME(const float *before, size_t before_at, const float *x, size_t x_at, const float *weight,
         size_t weight_at,
#if BIASED
         const float *bias, size_t bias_at,
#endif
         float *out, size_t out_at, size_t workgroup, size_t tokens, size_t channels, size_t taps,
         size_t share, size_t start, size_t step) {
    size_t begin = workgroup * share, end = least(begin + share, channels), earlier = taps - 1;
    before += before_at, x += x_at + start, weight += weight_at, out += out_at;
    for (size_t at = begin; at < end; at += LANES) {
        f32x16 factors[MAX_TAPS] = {};
        for (size_t tap = 0; tap < taps; tap++)
            for (int lane = 0; lane < LANES; lane++)
                factors[tap][lane] = weight[(at + (size_t)lane) * taps + tap];
        for (size_t t = 0; t < tokens; t++) {
            f32x16 total = load(x + t * step + at) * factors[earlier];
            for (size_t tap = 0; tap < earlier; tap++) {
                size_t row = t + tap;
                const float *from =
                    row < earlier ? before + row * channels : x + (row - earlier) * step;
                total = fma16(load(from + at), factors[tap], total);
            }
#if BIASED
            total = total + load(bias + bias_at + at);
#endif
            store(out + t * channels + at, silu(total));
        }
    }
    return 0;
}
