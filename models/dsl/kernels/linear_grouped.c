// Rows of f32 times a matrix of int8 in groups of 32 columns: op `linear_grouped`.
#include "product.h"

// x f32 (rows, columns), weight and scale of (outputs, columns), out f32 (rows, outputs); a
// workgroup computes `blocks` times sixteen outputs of `rows_each` rows.
int hearth_linear_grouped(const float *x, size_t x_at, const int8_t *weight, size_t weight_at,
                          const _Float16 *scale, size_t scale_at, float *out, size_t out_at,
                          size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
                          size_t outputs, size_t columns) {
    Integers integers = {8, .whole = weight + weight_at};
    Matrix matrix = {integers, scale + scale_at, .groups = columns / GROUP};
    multiply_all(x + x_at, share_of(workgroup, blocks, rows_each, rows, outputs), &matrix, 0,
                 out + out_at, outputs);
    return 0;
}
