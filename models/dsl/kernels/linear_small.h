// The body of a kernel that multiplies rows of f32 with a matrix of integers of 4 to 6 bits: op
// `linear_small`. Each form of a matrix has a file, which says NAME, BITS, HALVES and MINIMUM.
#include "product.h"

// x f32 (rows, columns), low, high (if BITS > 4), scale, minimum (if MINIMUM) of (outputs,
// columns), out f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs of
// `rows_each` rows.
int NAME(const float *x, size_t x_at, const uint8_t *low, size_t low_at,
#if BITS > 4
         const uint8_t *high, size_t high_at,
#endif
         const _Float16 *scale, size_t scale_at,
#if MINIMUM
         const _Float16 *minimum, size_t minimum_at,
#endif
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns) {
    Integers integers = {BITS, .low = low + low_at};
    Matrix matrix = {
        .scale = scale + scale_at,
        .zero = MINIMUM ? 0 : 1 << (BITS - 1),
        .halves = HALVES,
        .groups = columns / GROUP,
    };
#if BITS > 4
    integers.high = high + high_at;
#endif
#if MINIMUM
    matrix.minimum = minimum + minimum_at;
#endif
    matrix.integers = integers;
    multiply_all(x + x_at, share_of(workgroup, blocks, rows_each, rows, outputs), 2, &matrix,
                 out + out_at, outputs);
    return 0;
}
