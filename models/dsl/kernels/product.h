// Rows of f32 times sixteen rows of a matrix in groups, which the kernels of products share.
//
// Products of the integers of activations and weights are exact in i32, and are summed over the
// groups in f32, always in the same order: a row's result does not depend on the other rows.
#ifndef HEARTH_PRODUCT_H
#define HEARTH_PRODUCT_H

#include "activations.h"
#include "fetches.h"
#if TILES
#include "tiles.h"
#endif

// The exact sums of the products of some quads with a part of a group of x.
INLINE i32x16 dot(const Quad *quads, int count, const int8_t *x, int32_t start, int is_small) {
    i32x16 exact = (i32x16){} + start;
    for (int i = 0; i < count; i++)
        exact = is_small ? dot_small(exact, quads[i], x + i * QUAD)
                         : dot_quad(exact, quads[i], x + i * QUAD);
    return exact;
}

// Sixteen outputs, those of a block of the matrix, of each of `rows` rows, over the groups `begin`
// to `end`; they are added to unless `begin` is 0. Meanwhile bytes are fetched, if `fetches` is not
// 0.
INLINE void multiply(const Activations *x, int rows, int parts, const Matrix *matrix, size_t block,
                     size_t begin, size_t end, Cursor *fetches, float *out, size_t stride) {
    int scales = matrix->halves ? 2 : 1, quads_each = QUADS / scales;
    int is_small = matrix->integers.bits < 8;
    f32x16 sums[8];
    Cursor cursor = {0};
    if (fetches) cursor = *fetches;
    for (int row = 0; row < rows; row++) sums[row] = begin ? load(out + row * stride) : (f32x16){};
    for (size_t group = begin; group < end; group++) {
        size_t at = block * matrix->groups + group, first_cell = (group - begin) * rows;
        f32x16 scale[2], minimum = {};
        if (fetches) cursor = fetch_some(cursor);
        for (int i = 0; i < scales; i++) scale[i] = widen(matrix->scale + (at * scales + i) * ROWS);
        if (matrix->minimum) minimum = widen(matrix->minimum + at * ROWS);
        if (is_small) fetch_group(matrix->scale + at * scales * ROWS, scales * ROWS * 2);
        if (matrix->minimum) fetch_group(matrix->minimum + at * ROWS, ROWS * 2);
        Quad quads[QUADS];
        unpack(quads, matrix->integers, at);
#pragma clang loop unroll(full)
        for (int row = 0; row < rows; row++) {
            size_t cell = first_cell + row;
            for (int i = 0; i < scales; i++) {
                i32x16 dots[PARTS];
#ifdef DOT_RUNS
                int32_t starts[PARTS];
                for (int part = 0; part < parts; part++) starts[part] = x->start[part][i][cell];
                Run run = run_of(quads, i * quads_each, quads_each, matrix->integers, at);
                dot_run(dots, parts, run, x->q[cell][0] + i * quads_each * QUAD, starts);
#else
                for (int part = 0; part < parts; part++)
                    dots[part] = dot(quads + i * quads_each, quads_each,
                                     x->q[cell][part] + i * quads_each * QUAD,
                                     x->start[part][i][cell], is_small);
#endif
                f32x16 product = join(dots, parts, matrix);
                sums[row] = fma16(product, scale[i] * x->scale[cell], sums[row]);
            }
            if (matrix->minimum) sums[row] = fma16(minimum, splat(x->total[cell]), sums[row]);
        }
    }
    for (int row = 0; row < rows; row++) store(out + row * stride, sums[row]);
    if (fetches) *fetches = cursor;
}

// The rows of x and the blocks of a matrix that a workgroup multiplies.
typedef struct {
    size_t row, rows, begin, end;
} Share;

// Workgroups take `rows_each` rows and `blocks` blocks each. Those that read the same blocks follow
// each other.
INLINE Share share_of(size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
                      size_t outputs) {
    size_t parts = (rows + rows_each - 1) / rows_each;
    size_t row = workgroup % parts * rows_each, begin = workgroup / parts * blocks;
    return (Share){row, least(rows_each, rows - row), begin, least(begin + blocks, outputs / ROWS)};
}

// A share of all rows of x, f32 (rows, columns), times a matrix: out has `stride` floats a row.
// Meanwhile bytes are fetched, if `fetches` is not 0; there are few rows then.
INLINE void multiply_all(const float *x, Share share, int parts, const Matrix *matrix,
                         Cursor *fetches, float *out, size_t stride) {
    Activations panel;
    size_t all = matrix->groups;
    x += share.row * all * GROUP, out += share.row * stride;
    int tiles = TILES && !fetches && parts == PARTS && share.rows >= TILE_ROWS;
#if TILES
    if (tiles) shape_tiles(matrix);
#endif
    for (size_t row = 0, count; row < share.rows; row += count) {
        size_t left = share.rows - row;
        count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (tiles && left >= TILE_ROWS) count = TILE_ROWS;
        for (size_t first = 0, last; first < all; first = last) {
            last = least(first + CELLS / count, all);
            quantize_panel(&panel, count, 0, first, last, x + row * all * GROUP, matrix,
                           count < TILE_ROWS);
            for (size_t block = share.begin; block < share.end; block++) {
                float *to = out + row * stride + block * ROWS;
#if TILES
                if (count == TILE_ROWS)
                    multiply_tiles(&panel, matrix, block, first, last, to, stride);
#endif
                if (count == 8)
                    multiply(&panel, 8, parts, matrix, block, first, last, fetches, to, stride);
                if (count == 4)
                    multiply(&panel, 4, parts, matrix, block, first, last, fetches, to, stride);
                if (count == 2)
                    multiply(&panel, 2, parts, matrix, block, first, last, fetches, to, stride);
                if (count == 1)
                    multiply(&panel, 1, parts, matrix, block, first, last, fetches, to, stride);
            }
        }
    }
#if TILES
    if (tiles) _tile_release();
#endif
}

#endif
