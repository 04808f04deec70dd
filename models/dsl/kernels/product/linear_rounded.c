// Multiplies rows, which round_rows.c has rounded, with a matrix of integers: op `linear_quantized`
// of many rows. A variant defines NAME, ROUNDED, and the format of the matrix (matrix.h).
#include "product/strips.h"
#if GRIDS
#include "product/grid_tables.h"
#endif

// x f32 (rows, columns), the arrays of a matrix of (outputs, columns), cells with the rounded rows,
// out f32 (rows, outputs); workgroups share rows and blocks as in linear.c.
int NAME(const float *x, size_t x_at, MATRIX_ARRAYS, const float *cells, size_t cells_at,
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns) {
    const Matrix matrix = MATRIX(columns);
#if MINIMUM
    // Known to the compiler, this needs no test in the loop.
    if (!matrix.minimum) __builtin_unreachable();
#endif
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    if (STRIPS)
        multiply_strips((const Activations *)(cells + cells_at), in_strips(share, rows_each, rows),
                        rows, &matrix, out + out_at, outputs);
    else
        multiply_all(x + x_at, share, &matrix, 0, out + out_at, outputs);
    return 0;
}
