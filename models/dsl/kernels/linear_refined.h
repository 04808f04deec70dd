// The body of a kernel that completes coarse products: op `linear_refined`. To each block of
// sixteen outputs that matters, it adds the product of the lower part of the matrix: the lower
// halves of int8, the lowest 2 bits of 6, or the lower 4 of 12. A file says NAME and BITS.
//
// A block of sixteen outputs matters to a row if one of them reaches the row's threshold.
#include "refined.h"

// x f32 (rows, columns), lower and scale of (outputs, columns), coarse and out f32 (rows, outputs),
// threshold f32 (rows,); a workgroup has `blocks` times sixteen outputs of `rows_each` rows.
int NAME(const float *x, size_t x_at, const uint8_t *lower, size_t lower_at, const _Float16 *scale,
         size_t scale_at, const float *coarse, size_t coarse_at, const float *threshold,
         size_t threshold_at, float *out, size_t out_at, size_t workgroup, size_t blocks,
         size_t rows_each, size_t rows, size_t outputs, size_t columns) {
    enum { LOWER_BITS = BITS == 6 ? 2 : 4 };
    const float step = BITS == 12 ? 1.0f / 16.0f : 1.0f;
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    Matrix matrix = {
        .integers = {LOWER_BITS, .low = lower + lower_at},
        .scale = scale + scale_at,
        .zero = zero_of(LOWER_BITS, 0),
        .halves = BITS == 6,
        .groups = columns / GROUP,
    };
    x += x_at, coarse += coarse_at, threshold += threshold_at, out += out_at;
    for (size_t row = share.row; row < share.row + share.rows; row++)
        refine(x + row * columns, &matrix, step, coarse + row * outputs, threshold[row],
               out + row * outputs, share.begin, share.end);
    return 0;
}
