// The outputs of rows to which the products of the lower part of a matrix are added.
#ifndef HEARTH_REFINED_H
#define HEARTH_REFINED_H

#include "product/product.h"

// The blocks of a share of which each is a bit, and the rows whose blocks are read together.
enum { SHARE_BLOCKS = 64, REFINED_ROWS = 8 };

// Fetches a block of a matrix of one plane.
INLINE void fetch_block(const Matrix *matrix, size_t block) {
    Plane plane = matrix->integers.planes[0];
    size_t bytes = matrix->groups * group_bytes(plane);
    fetch_lines(plane.bytes + block * bytes, bytes);
    fetch_block_factors(matrix, block);
}

// The blocks from `begin` to `end` that matter: the lowest bit is the first one.
INLINE uint64_t blocks_that_matter(const float *out, float threshold, size_t begin, size_t end) {
    uint64_t found = 0;
    for (size_t block = begin; block < end; block++) {
        uint64_t reached = __builtin_reduce_or(load(out + block * ROWS) >= threshold) != 0;
        found |= reached << (block - begin);
    }
    return found;
}

// The outputs of a few rows of x, f32 (rows, columns), in the blocks `begin` to `end`: out has
// `stride` floats a row. A block is read for all rows to which it matters. While it is multiplied,
// the next one is fetched: at once if it is far, else as it is read.
INLINE void refine(const float *x, size_t rows, const Matrix *matrix, float step,
                   const float *threshold, float *out, size_t stride, size_t begin, size_t end) {
    Activations panel;
    size_t all = matrix->groups, row_cells = (all + 3) / 4 * 4;
    uint64_t blocks[REFINED_ROWS], any = 0;
    for (size_t row = 0; row < rows; row++)
        any |= blocks[row] = blocks_that_matter(out + row * stride, threshold[row], begin, end);
    for (size_t first = 0; first < all && any; first += CELLS) {
        size_t last = least(first + CELLS, all);
        fetch_block(matrix, begin + __builtin_ctzll(any));
        for (size_t row = 0; row < rows; row++)
            if (blocks[row])
                quantize_panel(&panel, row * row_cells, 1, 0, first, last, x + row * all * GROUP,
                               matrix, 1);
        for (uint64_t left = any; left; left &= left - 1) {
            size_t at = __builtin_ctzll(left), block = begin + at;
            uint64_t later = left & (left - 1);
            size_t next = later ? begin + __builtin_ctzll(later) : end;
            Matrix read = *matrix;
            if (next == block + 1)
                read = read_until(matrix, least(next + 1, end));
            else if (next < end)
                fetch_block(matrix, next);
            for (size_t row = 0; row < rows; row++) {
                float added[ROWS] = {}, *to = out + row * stride + block * ROWS;
                if (!(blocks[row] >> at & 1)) continue;
                multiply(&panel, row * row_cells, 1, &read, block, first, last, 0, added, 0);
                store(to, load(to) + load(added) * step);
            }
        }
    }
}

// The rows that `refine` takes at once: their cells fit a panel.
INLINE size_t refined_rows(const Matrix *matrix, size_t rows) {
    size_t fit = CELLS / ((matrix->groups + 3) / 4 * 4);
    return least(rows, least(fit ? fit : 1, REFINED_ROWS));
}

#endif
