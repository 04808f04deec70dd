// The body of a kernel that multiplies rows of f32 with the upper bits of a matrix in groups: the
// upper halves of int8, the upper 4 bits of 6, or the upper 8 of 12. Op `linear_upper`; a file says
// NAME and BITS.
#include "product.h"

// x f32 (rows, columns), upper and scale of (outputs, columns), out f32 (rows, outputs); a
// workgroup computes `blocks` times sixteen outputs of `rows_each` rows.
int NAME(const float *x, size_t x_at, const uint8_t *upper, size_t upper_at, const _Float16 *scale,
         size_t scale_at, float *out, size_t out_at, size_t workgroup, size_t blocks,
         size_t rows_each, size_t rows, size_t outputs, size_t columns) {
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
    multiply_all(x + x_at, share_of(workgroup, blocks, rows_each, rows, outputs), &matrix, 0,
                 out + out_at, outputs);
    return 0;
}
