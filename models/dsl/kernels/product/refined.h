// The outputs of a row to which the products of the lower part of a matrix are added.
#ifndef HEARTH_REFINED_H
#define HEARTH_REFINED_H

#include "product/product.h"

// Fetches a block of a matrix of one plane.
INLINE void fetch_block(const Matrix *matrix, size_t block) {
    Plane plane = matrix->integers.planes[0];
    size_t bytes = matrix->groups * group_bytes(plane);
    fetch_lines(plane.bytes + block * bytes, bytes);
    fetch_block_factors(matrix, block);
}

// The first block from `block` on that matters, or `end`.
INLINE size_t next_block(const float *coarse, float threshold, size_t block, size_t end) {
    while (block < end && !__builtin_reduce_or(load(coarse + block * ROWS) >= threshold)) block++;
    return block;
}

// The outputs of one row of x, f32 (columns,), in the blocks `begin` to `end`. While a block is
// multiplied, the next one that matters is fetched: at once if it is far, else as it is read.
INLINE void refine(const float *x, const Matrix *matrix, float step, const float *coarse,
                   float threshold, float *out, size_t begin, size_t end) {
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
            float added[ROWS] = {};
            Matrix read = *matrix;
            next = next_block(coarse, threshold, block + 1, end);
            if (next == block + 1)
                read = read_until(matrix, least(next + 1, end));
            else if (next < end)
                fetch_block(matrix, next);
            multiply(&panel, 1, &read, block, first, last, 0, added, 0);
            store(out + block * ROWS, load(out + block * ROWS) + load(added) * step);
        }
    }
}

#endif
