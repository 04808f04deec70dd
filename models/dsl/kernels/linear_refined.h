// The body of a kernel of coarse products, of which those that matter are computed from whole
// weights, int8 in halves or integers of 6 or 12 bits: op `linear_refined`. A file says NAME and
// BITS.
//
// A block of sixteen outputs matters to a row if one of them reaches the row's threshold. A row's
// outputs have the bits that `linear_grouped` or `linear_small` gives, or those of `linear_upper`.
#include "refined.h"

// x f32 (rows, columns), upper, lower and scale of (outputs, columns), coarse and out f32
// (rows, outputs), threshold f32 (rows,); a workgroup has `blocks` times sixteen outputs of
// `rows_each` rows.
int NAME(const float *x, size_t x_at, const uint8_t *upper, size_t upper_at, const uint8_t *lower,
         size_t lower_at, const _Float16 *scale, size_t scale_at, const float *coarse,
         size_t coarse_at, const float *threshold, size_t threshold_at, float *out, size_t out_at,
         size_t workgroup, size_t blocks, size_t rows_each, size_t rows, size_t outputs,
         size_t columns) {
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
#if BITS == 12
    Integers integers = {BITS, .whole = (const int8_t *)upper + upper_at, .low = lower + lower_at};
#elif BITS == 6
    Integers integers = {BITS, .high = upper + upper_at, .low = lower + lower_at};
#else
    Integers integers = {BITS, .upper = upper + upper_at, .lower = lower + lower_at};
#endif
    Matrix matrix = {
        .integers = integers,
        .scale = scale + scale_at,
        .zero = zero_of(BITS, 0),
        .halves = BITS == 6,
        .groups = columns / GROUP,
    };
    x += x_at, coarse += coarse_at, threshold += threshold_at, out += out_at;
    for (size_t row = share.row; row < share.row + share.rows; row++)
        refine(x + row * columns, &matrix, coarse + row * outputs, threshold[row],
               out + row * outputs, share.begin, share.end);
    return 0;
}
