// Coarse products, of which those that matter are computed from whole weights: op `linear_refined`.
//
// A block of sixteen outputs matters to a row if one of them reaches the row's threshold. A row's
// outputs have the bits that `linear_grouped` gives, or those of `linear_upper`.
#include "product.h"

// The outputs of one row of x, f32 (columns,), in the blocks `begin` to `end`.
INLINE void refine(const float *x, const Matrix *matrix, const float *coarse, float threshold,
                   float *out, size_t begin, size_t end) {
    Activations panel;
    size_t all = matrix->groups;
    for (size_t block = begin; block < end; block++)
        store(out + block * ROWS, load(coarse + block * ROWS));
    for (size_t first = 0; first < all; first += CELLS) {
        size_t last = least(first + CELLS, all);
        quantize_panel(&panel, 1, 0, first, last, x, matrix, 1);
        for (size_t block = begin; block < end; block++)
            if (largest(load(coarse + block * ROWS)) >= threshold)
                multiply(&panel, 1, 2, matrix, block, first, last, 0, out + block * ROWS, 0);
    }
}

// x f32 (rows, columns), upper, lower and scale of (outputs, columns), coarse and out f32
// (rows, outputs), threshold f32 (rows,); a workgroup has `blocks` times sixteen outputs of
// `rows_each` rows.
int hearth_linear_refined(const float *x, size_t x_at, const uint8_t *upper, size_t upper_at,
                          const uint8_t *lower, size_t lower_at, const _Float16 *scale,
                          size_t scale_at, const float *coarse, size_t coarse_at,
                          const float *threshold, size_t threshold_at, float *out, size_t out_at,
                          size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
                          size_t outputs, size_t columns) {
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    Integers integers = {8, .upper = upper + upper_at, .lower = lower + lower_at};
    Matrix matrix = {integers, scale + scale_at, .groups = columns / GROUP};
    x += x_at, coarse += coarse_at, threshold += threshold_at, out += out_at;
    for (size_t row = share.row; row < share.row + share.rows; row++)
        refine(x + row * columns, &matrix, coarse + row * outputs, threshold[row],
               out + row * outputs, share.begin, share.end);
    return 0;
}
