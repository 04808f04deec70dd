// The latest inputs of a convolution after new tokens: op `latest_inputs`.
#include "isa/vector.h"

// positions i32 (2,): of the first token and of the last one that counts; before f32 (earlier,
// channels), x f32 (tokens, channels), which begins at `start` and has rows of `step` values, out
// f32 (ring, earlier, channels): the inputs after position p are row p mod ring, the oldest first.
// A workgroup writes a share of the channels.
int hearth_latest_inputs(const int32_t *positions, size_t positions_at, const float *before,
                         size_t before_at, const float *x, size_t x_at, float *out, size_t out_at,
                         size_t workgroup, size_t tokens, size_t channels, size_t earlier,
                         size_t ring, size_t every, size_t writers, size_t start, size_t step) {
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    size_t share = (channels / LANES + writers - 1) / writers * LANES;
    size_t begin = least(workgroup * share, channels), end = least(begin + share, channels);
    before += before_at, x += x_at + start, out += out_at;
    for (size_t t = every ? 0 : last - first; t < tokens; t++) {
        float *to = out + (first + t) % ring * earlier * channels;
        for (size_t i = 0; i < earlier; i++) {
            size_t row = t + 1 + i;
            const float *from =
                row < earlier ? before + row * channels : x + (row - earlier) * step;
            for (size_t at = begin; at < end; at += LANES)
                store(to + i * channels + at, load(from + at));
        }
        if (!every) break;
    }
    return 0;
}
