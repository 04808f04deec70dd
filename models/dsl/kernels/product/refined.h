// The outputs of rows to which the products of the lower part of a matrix are added.
#ifndef HEARTH_REFINED_H
#define HEARTH_REFINED_H

#include "product/product.h"

// The most blocks of a share, each a bit of a word, and the rows whose blocks are read together.
enum { SHARE_BLOCKS = 64, REFINED_ROWS = 8 };

// Adds the bytes of a block of a matrix of one plane.
INLINE void add_block_spans(Fetches *to, const Matrix *matrix, size_t block) {
    Plane plane = matrix->integers.planes[0];
    size_t bytes = matrix->groups * group_bytes(plane);
    add_span(to, plane.bytes + block * bytes, bytes);
    bytes = scales_of_row(matrix) * scale_bytes(matrix);
    add_span(to, (const char *)matrix->scale + block * bytes, bytes);
    bytes = matrix->groups * multiplier_bytes(matrix);
    if (bytes) add_span(to, matrix->multiplier + block * bytes, bytes);
}

// The blocks from `begin` to `end` that matter: the lowest bit is the first one.
INLINE uint64_t blocks_that_matter(const float *out, float threshold, size_t begin, size_t end) {
    uint64_t found = 0;
    if (threshold == __builtin_inff()) return 0;
    for (size_t block = begin; block < end; block++) {
        uint64_t reached = __builtin_reduce_or(load(out + block * ROWS) >= threshold) != 0;
        found |= reached << (block - begin);
    }
    return found;
}

// Some rows to which a block matters: their first cells, and where their outputs are.
typedef struct {
    size_t cells[REFINED_ROWS], count;
    float *outputs[REFINED_ROWS];
} Chosen;

// Adds `step` times the product of a block to the outputs of `rows` rows from `at` on, or replaces
// the outputs.
INLINE void add_product(const Activations *x, const Chosen *chosen, size_t at, int rows,
                        const Matrix *matrix, size_t block, size_t begin, size_t end, float step,
                        int replaces, Cursor *fetches) {
    float products[4][ROWS] = {};
    for (int row = 0; row < rows && replaces; row++)
        store(products[row], load(chosen->outputs[at + row]));
    multiply_cells(x, chosen->cells + at, 1, rows, matrix, block, begin, end, fetches, 0,
                   products[0], ROWS);
    for (int row = 0; row < rows; row++) {
        float *to = chosen->outputs[at + row];
        f32x16 product = load(products[row]);
        store(to, replaces ? product : load(to) + product * step);
    }
}

// The outputs of a few rows of x, f32 (rows, columns), in the blocks `begin` to `end`: out has
// `stride` floats a row. A block is multiplied with all rows to which it matters; meanwhile the
// next one is fetched.
INLINE void refine(const float *x, size_t rows, const Matrix *matrix, float step, int replaces,
                   const float *threshold, float *out, size_t stride, size_t begin, size_t end) {
    Activations panel;
    size_t all = matrix->groups, row_cells = (all + 3) / 4 * 4;
    uint64_t blocks[REFINED_ROWS], any = 0;
    for (size_t row = 0; row < rows; row++)
        any |= blocks[row] = blocks_that_matter(out + row * stride, threshold[row], begin, end);
    for (size_t first = 0; first < all && any; first += CELLS) {
        size_t last = least(first + CELLS, all);
        for (size_t row = 0; row < rows; row++)
            if (blocks[row])
                quantize_panel(&panel, row * row_cells, 1, 0, first, last, x + row * all * GROUP,
                               matrix, 1);
        for (uint64_t left = any, later; left; left = later) {
            size_t at = __builtin_ctzll(left), block = begin + at;
            Chosen chosen;
            chosen.count = 0;
            for (size_t row = 0; row < rows; row++) {
                chosen.cells[chosen.count] = row * row_cells;
                chosen.outputs[chosen.count] = out + row * stride + block * ROWS;
                chosen.count += blocks[row] >> at & 1;
            }
            later = left & (left - 1);
            Fetches fetches;
            fetches.count = 0;
            if (later) add_block_spans(&fetches, matrix, begin + __builtin_ctzll(later));
            size_t passes = chosen.count / 4 + (chosen.count % 4 + 1) / 2;
            Cursor cursor = start_fetches(&fetches, (last - first) * passes, matrix->scale);
            for (size_t row = 0; row < chosen.count;) {
                size_t rest = chosen.count - row;
                int together = rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
                if (together == 4)
                    add_product(&panel, &chosen, row, 4, matrix, block, first, last, step, replaces,
                                &cursor);
                else if (together == 2)
                    add_product(&panel, &chosen, row, 2, matrix, block, first, last, step, replaces,
                                &cursor);
                else
                    add_product(&panel, &chosen, row, 1, matrix, block, first, last, step, replaces,
                                &cursor);
                row += (size_t)together;
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
