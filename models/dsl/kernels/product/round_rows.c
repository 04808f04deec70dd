// Rounds rows of f32 for the workgroups of a product with a matrix of integers, which would each
// round them again: the scratch of op `linear_quantized`. A variant defines NAME, ROUNDED, and
// the format of the matrix (matrix.h).
#include "product/strips.h"
#if GRIDS
#include "product/grid_tables.h"
#endif

// x f32 (rows, columns), the arrays of a matrix (outputs, columns); cells get the rounded rows, as
// strips.h describes. A workgroup rounds `share` rows.
int NAME(const float *x, size_t x_at, MATRIX_ARRAYS, float *cells, size_t cells_at,
         size_t workgroup, size_t share, size_t rows, size_t columns) {
    const Matrix matrix = MATRIX(columns);
    if (!STRIPS) return 0;
#if MINIMUM
    // Known to the compiler, this needs no test in the loop.
    if (!matrix.minimum) __builtin_unreachable();
#endif
    size_t groups = panel_groups(&matrix);
    x += x_at;
    for (size_t row = workgroup * share; row < least((workgroup + 1) * share, rows); row++) {
        Activations *to = (Activations *)(cells + cells_at) + row;
        for (size_t begin = 0; begin < matrix.groups; begin += groups, to += rows)
            quantize_panel(to, 0, 1, 0, begin, least(begin + groups, matrix.groups),
                           x + row * columns, &matrix, 1);
    }
    return 0;
}
