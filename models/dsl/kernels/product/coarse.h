// Rows of f32 times a matrix, some with activations of 8 bits and some with 16.
#ifndef HEARTH_COARSE_H
#define HEARTH_COARSE_H

#include "product/routed.h"

// Matrices that are multiplied with rows without a flag, and with rows that have one. They differ
// in the parts of activations.
typedef struct {
    Matrix coarse, fine;
} Matrices;

// Rows of x in the order of their cells, which are `all` for a group.
typedef struct {
    size_t rows[MAX_SHARING], all;
} Order;

// A block of a matrix times the rows `at` to `end` of an order.
INLINE void multiply_some(const Activations *x, const Order *order, size_t at, size_t end,
                          const Matrix *matrix, size_t block, size_t begin, size_t stop, float *out,
                          size_t outputs) {
    for (size_t count; at < end; at += count) {
        float sums[4][ROWS];
        size_t rest = end - at, cells[4], all = order->all;
        count = rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
        for (size_t i = 0; i < count; i++) {
            cells[i] = at + i;
            if (begin) store(sums[i], load(out + order->rows[at + i] * outputs));
        }
        if (count == 4)
            multiply_cells(x, cells, all, 4, matrix, block, begin, stop, 0, 0, sums[0], ROWS);
        if (count == 2)
            multiply_cells(x, cells, all, 2, matrix, block, begin, stop, 0, 0, sums[0], ROWS);
        if (count == 1)
            multiply_cells(x, cells, all, 1, matrix, block, begin, stop, 0, 0, sums[0], ROWS);
        for (size_t i = 0; i < count; i++)
            store(out + order->rows[at + i] * outputs, load(sums[i]));
    }
}

// Whether some of the rows have a flag and some have none.
INLINE int is_mixed(const int32_t *exact, size_t rows) {
    size_t flagged = 0;
    for (size_t row = 0; row < rows; row++) flagged += exact[row] > 0;
    return flagged && flagged < rows;
}

// A share of at most MAX_SHARING rows. Those with and without a flag follow each other in each
// block, while it is in the first cache.
INLINE void multiply_mixed(const float *x, const int32_t *exact, Share share,
                           const Matrices *matrices, float *out, size_t outputs) {
    Activations panel;
    Order order = {.all = share.rows};
    size_t groups = matrices->fine.groups, coarse = 0, all = 0;
    for (size_t row = 0; row < share.rows; row++)
        if (exact[row] <= 0) order.rows[coarse++] = row;
    all = coarse;
    for (size_t row = 0; row < share.rows; row++)
        if (exact[row] > 0) order.rows[all++] = row;
    for (size_t first = 0, last; first < groups; first = last) {
        last = least(first + CELLS / all, groups);
        quantize_panel(&panel, 0, all, order.rows, first, last, x, &matrices->fine, 1);
        for (size_t block = share.begin; block < share.end; block++) {
            float *to = out + block * ROWS;
            for (size_t row = 0; row < all; row++) fetch_to_write(to + row * outputs);
            multiply_some(&panel, &order, 0, coarse, &matrices->coarse, block, first, last, to,
                          outputs);
            multiply_some(&panel, &order, coarse, all, &matrices->fine, block, first, last, to,
                          outputs);
        }
    }
}

// The rows of a share that have a flag, times its blocks of the matrix. The flags are the experts
// of `routing`.
INLINE void multiply_flagged(const float *x, Routing routing, size_t flag, const Matrix *matrix,
                             Share share, float *out, size_t outputs) {
    size_t some[TOGETHER];
    for (size_t next = 0; next < routing.rows;) {
        int most = TILES ? TILE_ROWS : SHARED_ROWS;
        int count = next_rows(some, most, TILES, routing, flag, &next);
        int in_tiles = TILES && count >= min_tile_rows(matrix);
        if (!count) continue;
#if TILES
        if (in_tiles) shape_tiles(matrix, count);
#endif
        multiply_rows(x, some, count, 1, in_tiles, matrix, 0, share.begin, share.end, out, outputs);
#if TILES
        if (in_tiles) _tile_release();
#endif
    }
}

#endif
