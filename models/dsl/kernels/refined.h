// The outputs of a row that are computed again from whole weights.
#ifndef HEARTH_REFINED_H
#define HEARTH_REFINED_H

#include "product.h"

// The outputs of one row of x, f32 (columns,), in the blocks `begin` to `end`.
INLINE void refine(const float *x, const Matrix *matrix, const float *coarse, float threshold,
                   float *out, size_t begin, size_t end) {
    Activations panel;
    size_t all = matrix->groups;
    for (size_t block = begin; block < end; block++)
        store(out + block * ROWS, load(coarse + block * ROWS));
    for (size_t first = 0; first < all; first += CELLS) {
        size_t last = least(first + CELLS, all);
        quantize_panel(&panel, 1, 0, first, last, x, matrix, 1);
        for (size_t block = begin; block < end; block++)
            if (largest(load(coarse + block * ROWS)) >= threshold)
                multiply(&panel, 1, 2, matrix, block, first, last, 0, out + block * ROWS, 0);
    }
}

#endif
