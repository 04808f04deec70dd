// Rows of f32 times the matrices of their experts, each a part of one matrix in groups.
#ifndef HEARTH_ROUTED_H
#define HEARTH_ROUTED_H

#include "product/experts.h"
#include "product/product.h"

// Some rows of x times the blocks `begin` to `end` of a matrix, of which `first` is the first one
// of their expert: out has `outputs` floats a row.
INLINE void multiply_rows(const float *x, const size_t *rows, int count, const Matrix *whole,
                          size_t first, size_t begin, size_t end, float *out, size_t outputs) {
    Activations panel;
    const Matrix own = read_until(whole, first + end), *matrix = &own;
    float sums[TOGETHER][ROWS];
    size_t all = matrix->groups;
    for (size_t start = 0, stop; start < all; start = stop) {
        stop = least(start + CELLS / count, all);
        quantize_panel(&panel, count, rows, start, stop, x, matrix, 1);
        for (size_t block = begin; block < end; block++) {
            float *to = out + block * ROWS;
            for (int i = 0; i < count && start; i++) store(sums[i], load(to + rows[i] * outputs));
            multiply(&panel, count, matrix, first + block, start, stop, 0, sums[0], ROWS);
            for (int i = 0; i < count; i++) store(to + rows[i] * outputs, load(sums[i]));
        }
    }
}

// All rows of x, f32 (rows, columns), times the matrices of their experts, of `outputs` rows each;
// a workgroup computes `blocks` times sixteen outputs.
INLINE void multiply_routed(const float *x, Routing routing, const Matrix *matrix, size_t workgroup,
                            size_t blocks, float *out, size_t outputs) {
    size_t begin = workgroup * blocks, end = least(begin + blocks, outputs / ROWS);
    for (size_t row = 0; row < routing.rows; row++) {
        if (!is_first(routing, row)) continue;
        size_t expert = expert_of(routing, row), first = expert * (outputs / ROWS), some[TOGETHER];
        for (size_t next = row; next < routing.rows;) {
            int count = next_rows(some, routing, expert, &next);
            if (count == 8) multiply_rows(x, some, 8, matrix, first, begin, end, out, outputs);
            if (count == 4) multiply_rows(x, some, 4, matrix, first, begin, end, out, outputs);
            if (count == 2) multiply_rows(x, some, 2, matrix, first, begin, end, out, outputs);
            if (count == 1) multiply_rows(x, some, 1, matrix, first, begin, end, out, outputs);
        }
    }
}

#endif
