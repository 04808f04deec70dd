// Looks up rows of a matrix of integers, as f32: op `embedding_quantized`. A variant defines NAME
// and the format of the matrix (matrix.h).
#include "product/matrix.h"
#if GRIDS
#include "product/grid_tables.h"
#endif

// ids i32 (M,), the arrays of a matrix of (V, columns), out f32 (M, columns); a workgroup reads one
// row.
int NAME(const int32_t *ids, size_t ids_at, MATRIX_ARRAYS, float *out, size_t out_at, size_t token,
         size_t columns) {
    const Matrix matrix = MATRIX(columns);
    const Integers integers = matrix.integers;
    size_t id = (size_t)ids[ids_at + token], lane = id % ROWS, scales = matrix.halves ? 2 : 1;
    size_t block = id / ROWS;
    out += out_at + token * columns;
    for (size_t i = 0; i < matrix.groups; i++) {
        size_t group = block * matrix.groups + i;
        Factors factors[2];
        for (size_t half = 0; half < scales; half++)
            factors[half] = factors_of(&matrix, block, i, half);
        Quad quads[QUADS];
        Bytes lower[QUADS] = {};
        unpack(quads, integers, group, matrix.zero);
        if (integers.bits > 8) unpack_low(lower, integers, group);
        for (size_t j = 0; j < GROUP; j++) {
            size_t half = j * scales / GROUP, at = lane * QUAD + j % QUAD;
            int quad = quads[j / QUAD][at];
            float value = (float)(quad - matrix.zero);
            if (integers.bits > 8) value = (float)(quad * 16 + lower[j / QUAD][at] - matrix.zero);
            *out = value * factors[half].scale[lane];
            if (matrix.minimum) *out += factors[half].minimum[lane];
            out++;
        }
    }
    return 0;
}
