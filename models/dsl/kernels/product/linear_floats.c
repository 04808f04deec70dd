// Multiplies a few rows of f32, which are not rounded, with a matrix of floats: ops `linear_bf16`
// and `router_logits`. A variant defines NAME and the type of weights (floats.h).
#include "product/floats.h"

// `rows` rows of x, 1, 2, 4 or 8, times the rows `begin` to `end` of a matrix.
INLINE void multiply_few(const float *x, int rows, const WEIGHT *weight, size_t columns,
                         size_t begin, size_t end, float *out, size_t outputs) {
    int together = rows < SHARED_SUMS / SHARED_OUTPUTS ? SHARED_OUTPUTS
                   : rows < SHARED_SUMS                ? SHARED_SUMS / rows
                                                       : 1;
    const float *sources[SHARED_ROWS];
    Products products;
    const WEIGHT *last = weight + end * columns;
    for (int i = 0; i < rows; i++) sources[i] = x + (size_t)i * columns;
    size_t output = begin;
    for (; output + (size_t)together <= end; output += (size_t)together) {
        multiply_floats(sources, rows, weight + output * columns, together, last, columns,
                        products);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < together; j++)
                out[(size_t)i * outputs + output + (size_t)j] = products[i][j];
    }
    for (; output < end; output++) {
        multiply_floats(sources, rows, weight + output * columns, 1, last, columns, products);
        for (int i = 0; i < rows; i++) out[(size_t)i * outputs + output] = products[i][0];
    }
}

// x f32 (rows, columns), weight (outputs, columns), out f32 (rows, outputs); a workgroup
// computes `share` outputs of all rows.
int NAME(const float *x, size_t x_at, const WEIGHT *weight, size_t weight_at, float *out,
         size_t out_at, size_t workgroup, size_t share, size_t rows, size_t outputs,
         size_t columns) {
    size_t begin = workgroup * share, end = least(begin + share, outputs);
    x += x_at, weight += weight_at, out += out_at;
    for (size_t row = 0, count; row < rows; row += count) {
        size_t left = rows - row;
        count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        const float *from = x + row * columns;
        float *to = out + row * outputs;
        if (count == 8) multiply_few(from, 8, weight, columns, begin, end, to, outputs);
        if (count == 4) multiply_few(from, 4, weight, columns, begin, end, to, outputs);
        if (count == 2) multiply_few(from, 2, weight, columns, begin, end, to, outputs);
        if (count == 1) multiply_few(from, 1, weight, columns, begin, end, to, outputs);
    }
    return 0;
}
