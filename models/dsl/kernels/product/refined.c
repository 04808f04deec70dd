// Completes approximate products, of the upper bits of a matrix: op `linear_refined`. To each block
// of sixteen outputs that matters, it adds the product of the matrix of the lower bits. With
// REPLACES, the product of the upper bits with activations of 16 bits replaces the outputs. A block
// matters to a row if one of its outputs reaches the row's threshold. A variant defines NAME,
// REPLACES, and the format of the matrix (matrix.h).
#include "product/refined.h"

// out f32 (rows, outputs), at first the approximate products, x f32 (rows, columns), threshold f32
// (rows,), the arrays of a matrix of (outputs, columns); a workgroup has `blocks` times sixteen
// outputs, at most SHARE_BLOCKS times, of `rows_each` rows. `step` is what is added for 1 of the
// matrix.
int NAME(const float *x, size_t x_at, const float *threshold, size_t threshold_at, MATRIX_ARRAYS,
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns, float step) {
    const Matrix matrix = MATRIX(columns);
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    x += x_at, threshold += threshold_at, out += out_at;
    size_t end = share.row + share.rows;
    for (size_t row = share.row, count; row < end; row += count) {
        count = refined_rows(&matrix, end - row);
        refine(x + row * columns, count, &matrix, step, REPLACES, threshold + row,
               out + row * outputs, outputs, share.begin, share.end);
    }
    return 0;
}
