// Multiplies many rows of bf16 with a matrix of bf16: op `linear_bf16` of rows that were rounded. A
// row's result does not depend on the other rows. With tiles it has other bits than without.
#include "isa/bf16.h"
#if BF16_TILES
#include "product/bf16_tiles.h"
#endif

// Rows of x and of the matrix that are multiplied together: their sums stay in registers.
#ifdef __AVX512F__
enum { TALL = 6, WIDE = 4 };
#else
enum { TALL = 2, WIDE = 2 };
#endif
// The columns of a vector.
enum { PAIRS = 2 * LANES };

// `rows` rows of x times `wide` rows of a matrix.
INLINE void multiply_block(const uint16_t *x, int rows, const uint16_t *weight, int wide,
                           size_t columns, float *out, size_t outputs) {
    f32x16 sums[TALL][4] = {};
    size_t whole = columns / PAIRS * PAIRS;
    for (size_t column = 0; column < whole; column += PAIRS) {
        u32x16 factors[WIDE];
        UNROLL
        for (int j = 0; j < wide; j++) factors[j] = load_pairs(weight + j * columns + column);
        UNROLL
        for (int i = 0; i < rows; i++) {
            u32x16 pairs = load_pairs(x + i * columns + column);
            UNROLL
            for (int j = 0; j < wide; j++) sums[i][j] = dot_pairs(sums[i][j], pairs, factors[j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        f32x4 totals = sums4(sums[i]);
        UNROLL
        for (int j = 0; j < wide; j++) {
            float total = totals[j];
            for (size_t column = whole; column < columns; column++)
                total += f32_of_bf16(x[i * columns + column]) *
                         f32_of_bf16(weight[j * columns + column]);
            out[i * outputs + j] = total;
        }
    }
}

// All rows of x times `wide` rows of a matrix.
INLINE void multiply_rows(const uint16_t *x, size_t rows, const uint16_t *weight, int wide,
                          size_t columns, float *out, size_t outputs) {
    size_t row = 0;
    for (; row + TALL <= rows; row += TALL)
        multiply_block(x + row * columns, TALL, weight, wide, columns, out + row * outputs,
                       outputs);
    for (; row < rows; row++)
        multiply_block(x + row * columns, 1, weight, wide, columns, out + row * outputs, outputs);
}

// x bf16 (rows, columns), weight bf16 (outputs, columns), out f32 (rows, outputs); a workgroup
// computes `share` outputs of `rows_each` rows.
int hearth_linear_rounded_bf16(const uint16_t *x, size_t x_at, const uint16_t *weight,
                               size_t weight_at, float *out, size_t out_at, size_t workgroup,
                               size_t share, size_t rows_each, size_t rows, size_t outputs,
                               size_t columns) {
    size_t parts = (rows + rows_each - 1) / rows_each, row = workgroup % parts * rows_each;
    size_t output = workgroup / parts * share, end = least(output + share, outputs);
    x += x_at + row * columns, weight += weight_at, out += out_at + row * outputs;
    rows = least(rows_each, rows - row);
#if BF16_TILES
    if (columns % PAIRS == 0)
        output = multiply_tiles(x, rows, weight, columns, output, end, out, outputs);
#endif
    for (; output + WIDE <= end; output += WIDE)
        multiply_rows(x, rows, weight + output * columns, WIDE, columns, out + output, outputs);
    for (; output < end; output++)
        multiply_rows(x, rows, weight + output * columns, 1, columns, out + output, outputs);
    return 0;
}
