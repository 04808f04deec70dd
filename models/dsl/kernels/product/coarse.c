// Multiplies rows of f32 with the upper bits of a matrix: op `linear_coarse`. Rows are rounded to 8
// bits, or to 16 if their flag is above 0. A variant defines NAME and the format of the upper bits
// (matrix.h).
#include "product/coarse.h"

// x f32 (rows, columns), exact i32 (rows,), the arrays of a matrix of (outputs, columns),
// out f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs of `rows_each` rows.
int NAME(const float *x, size_t x_at, const int32_t *exact, size_t exact_at, MATRIX_ARRAYS,
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns) {
    const Matrix whole = MATRIX(columns);
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    Matrices matrices;
    matrices.fine = matrices.coarse =
        read_until(&whole, share.end, CELLS / least(share.rows, CELLS));
    matrices.coarse.one_part = 1;
    x += x_at + share.row * columns, exact += exact_at + share.row;
    out += out_at + share.row * outputs;
    if (share.rows <= MAX_SHARING && is_mixed(exact, share.rows)) {
        multiply_mixed(x, exact, share, &matrices, out, outputs);
        return 0;
    }
    Routing routing = {exact, share.rows, 1, 2};
    multiply_flagged(x, routing, 0, &matrices.coarse, share, out, outputs);
    multiply_flagged(x, routing, 1, &matrices.fine, share, out, outputs);
    return 0;
}
