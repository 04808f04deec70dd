// The outputs of a row that are computed again from whole weights.
#ifndef HEARTH_REFINED_H
#define HEARTH_REFINED_H

#include "product.h"

// Fetches a block of a matrix of 8 bits in halves, or of 6 or 12 bits.
INLINE void fetch_block(const Matrix *matrix, size_t block) {
    const Integers *from = &matrix->integers;
    size_t quads = block * matrix->groups * GROUP * ROWS, half = matrix->groups * GROUP * ROWS / 2;
    if (from->whole) fetch_lines(from->whole + quads, 2 * half);
    if (from->upper) fetch_lines(from->upper + quads / 2, half);
    if (from->lower) fetch_lines(from->lower + quads / 2, half);
    if (from->low && from->bits == 12) fetch_lines(from->low + quads / 2, half);
    if (from->bits == 6) {
        fetch_lines(from->high + quads / 2, half);
        fetch_lines(from->low + quads / 4, half / 2);
    }
    size_t scales = matrix->groups * ROWS * (matrix->halves ? 2 : 1);
    fetch_lines(matrix->scale + block * scales, scales * 2);
}

// The first block from `block` on that matters, or `end`.
INLINE size_t next_block(const float *coarse, float threshold, size_t block, size_t end) {
    while (block < end && !__builtin_reduce_or(load(coarse + block * ROWS) >= threshold)) block++;
    return block;
}

// The outputs of one row of x, f32 (columns,), in the blocks `begin` to `end`. While a block is
// multiplied, the next one that matters is fetched: they are far apart.
INLINE void refine(const float *x, const Matrix *matrix, const float *coarse, float threshold,
                   float *out, size_t begin, size_t end) {
    Activations panel;
    size_t all = matrix->groups;
    for (size_t block = begin; block < end; block++)
        store(out + block * ROWS, load(coarse + block * ROWS));
    for (size_t first = 0; first < all; first += CELLS) {
        size_t last = least(first + CELLS, all), block = next_block(coarse, threshold, begin, end);
        if (block < end) {
            fetch_block(matrix, block);
            quantize_panel(&panel, 1, 0, first, last, x, matrix, 1);
        }
        for (size_t next; block < end; block = next) {
            next = next_block(coarse, threshold, block + 1, end);
            if (next < end) fetch_block(matrix, next);
            multiply(&panel, 1, 2, matrix, block, first, last, 0, out + block * ROWS, 0);
        }
    }
}

#endif
