// Rows of f32 times rows of a matrix of floats, sixteen columns at a time.
//
// A product's sums are added in the same order whatever else is computed, and on every target. A
// variant defines WEIGHT, the type of a stored weight, and `load_weights` and `f32_of`, which
// convert sixteen weights, or one, to f32.
#ifndef HEARTH_FLOATS_H
#define HEARTH_FLOATS_H

#include "isa/vector.h"

// The most rows of x that are multiplied together, and rows of a matrix.
enum { SHARED_ROWS = 8, SHARED_OUTPUTS = 4 };
// The sums that stay in registers.
#ifdef __AVX512F__
enum { SHARED_SUMS = 16 };
#else
enum { SHARED_SUMS = 4 };
#endif

typedef float Products[SHARED_ROWS][SHARED_OUTPUTS];

// `rows` rows of x times `outputs` rows of a matrix that follow each other. The matrix is read as
// far as `end`: what is read next is fetched.
INLINE void multiply_floats(const float *const *x, int rows, const WEIGHT *weight, int outputs,
                            const WEIGHT *end, size_t columns, Products products) {
    size_t whole = columns / LANES * LANES, ahead = (size_t)outputs * columns;
    f32x16 sums[SHARED_ROWS][SHARED_OUTPUTS] = {};
    for (size_t column = 0; column < whole; column += LANES) {
        UNROLL
        for (int j = 0; j < outputs; j++) {
            const WEIGHT *from = weight + (size_t)j * columns + column;
            if (end - from > (ptrdiff_t)ahead) __builtin_prefetch(from + ahead, 0, NEAREST);
            f32x16 factor = load_weights(from);
            UNROLL
            for (int i = 0; i < rows; i++)
                sums[i][j] = fma16(load(x[i] + column), factor, sums[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        f32x4 totals = sums4(sums[i]);
        UNROLL
        for (int j = 0; j < outputs; j++) {
            float total = totals[j];
            for (size_t column = whole; column < columns; column++)
                total += x[i][column] * f32_of(weight[(size_t)j * columns + column]);
            products[i][j] = total;
        }
    }
}

#endif
