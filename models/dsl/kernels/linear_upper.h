// The body of a kernel that multiplies rows of f32 with the upper bits of a matrix in groups: the
// upper halves of int8, the upper 4 bits of 6, or the upper 8 of 12. Op `linear_upper`; a file says
// NAME and BITS.
#include "product.h"

// x f32 (rows, columns), upper and scale of (outputs, columns), skipped i32 (rows,), out f32
// (rows, outputs); a workgroup computes `blocks` times sixteen outputs of `rows_each` rows. If all
// rows are skipped, the outputs are zeros.
int NAME(const float *x, size_t x_at, const uint8_t *upper, size_t upper_at, const _Float16 *scale,
         size_t scale_at, const int32_t *skipped, size_t skipped_at, float *out, size_t out_at,
         size_t workgroup, size_t blocks, size_t rows_each, size_t rows, size_t outputs,
         size_t columns) {
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    size_t needed = 0;
#if BITS == 12
    Integers integers = {8, .whole = (const int8_t *)upper + upper_at};
#elif BITS == 6
    Integers integers = {BITS, .high = upper + upper_at};
#else
    Integers integers = {8, .upper = upper + upper_at};
#endif
    Matrix matrix = {
        .integers = integers,
        .scale = scale + scale_at,
        .zero = BITS == 6 ? zero_of(BITS, 0) : 0,
        .halves = BITS == 6,
        .groups = columns / GROUP,
    };
    out += out_at;
    for (size_t row = 0; row < rows; row++) needed += !skipped[skipped_at + row];
    if (needed) {
        multiply_all(x + x_at, share, 1, &matrix, 0, out, outputs);
        return 0;
    }
    for (size_t row = share.row; row < share.row + share.rows; row++)
        for (size_t block = share.begin; block < share.end; block++)
            store(out + row * outputs + block * ROWS, (f32x16){});
    return 0;
}
