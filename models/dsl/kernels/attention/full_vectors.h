// Products of attention by vectors: scores (keys, queries), and mixed values (columns, queries).
#ifndef HEARTH_FULL_VECTORS_H
#define HEARTH_FULL_VECTORS_H

#include "isa/vector.h"

// Keys of a block and queries of a set.
enum { BLOCK = 64, SET = 2 * LANES };
// Rows of a result and vectors of queries that are computed together: their sums stay in registers.
#ifdef __AVX512F__
enum { TALL = 8, WIDE = 2 };
#else
enum { TALL = 4, WIDE = 1 };
#endif

// Adds `tall` rows of out (rows, SET): see add_product.
INLINE void add_rows(float *out, int tall, const Value *x, size_t row, size_t step, const float *y,
                     size_t steps) {
    for (size_t q = 0; q < SET; q += WIDE * LANES) {
        f32x16 sums[TALL][WIDE];
        UNROLL
        for (int i = 0; i < tall; i++) {
            UNROLL
            for (int j = 0; j < WIDE; j++) sums[i][j] = load(out + i * SET + q + j * LANES);
        }
        for (size_t s = 0; s < steps; s++) {
            f32x16 factors[WIDE];
            UNROLL
            for (int j = 0; j < WIDE; j++) factors[j] = load(y + s * SET + q + j * LANES);
            UNROLL
            for (int i = 0; i < tall; i++) {
                f32x16 factor = splat((float)x[i * row + s * step]);
                UNROLL
                for (int j = 0; j < WIDE; j++) sums[i][j] = fma16(factor, factors[j], sums[i][j]);
            }
        }
        UNROLL
        for (int i = 0; i < tall; i++) {
            UNROLL
            for (int j = 0; j < WIDE; j++) store(out + i * SET + q + j * LANES, sums[i][j]);
        }
    }
}

// Adds to out (rows, SET): x (rows, steps) times y (steps, SET). Rows of x begin every `row`
// numbers, and its columns every `step`.
INLINE void add_product(float *out, size_t rows, const Value *x, size_t row, size_t step,
                        const float *y, size_t steps) {
    size_t r = 0;
    for (; r + TALL <= rows; r += TALL)
        add_rows(out + r * SET, TALL, x + r * row, row, step, y, steps);
    for (; r < rows; r++) add_rows(out + r * SET, 1, x + r * row, row, step, y, steps);
}

#endif
