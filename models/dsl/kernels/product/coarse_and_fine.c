// Multiplies a row of f32 with the upper bits of a matrix: op `linear_coarse` with `fine`. The row
// is rounded to 8 bits, or to 16 if its flag is above 0, and once more to 16: with one row, memory
// is slower than products. A variant defines NAME and the format of the upper bits (matrix.h).
#include "product/coarse.h"

// x f32 (1, columns), exact i32 (1,), the arrays of a matrix of (outputs, columns),
// out f32 (2, outputs); a workgroup computes `blocks` times sixteen outputs of both.
int NAME(const float *x, size_t x_at, const int32_t *exact, size_t exact_at, MATRIX_ARRAYS,
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns) {
    const Matrix whole = MATRIX(columns);
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    const Matrix matrix = read_until(&whole, share.end, CELLS);
    const size_t cell = 0;
    Activations panel;
    float *coarse = out + out_at, *fine = coarse + outputs;
    for (size_t first = 0, last; first < matrix.groups; first = last) {
        last = least(first + CELLS, matrix.groups);
        quantize_panel(&panel, 0, 1, 0, first, last, x + x_at, &matrix, 1);
        for (size_t block = share.begin; block < share.end; block++) {
            size_t at = block * ROWS;
            fetch_to_write(coarse + at), fetch_to_write(fine + at);
            multiply_cells(&panel, &cell, 1, 1, &matrix, block, first, last, 0, coarse + at,
                           fine + at, outputs);
        }
    }
    for (size_t at = share.begin * ROWS; at < share.end * ROWS && exact[exact_at] > 0; at += ROWS)
        store(coarse + at, load(fine + at));
    return 0;
}
