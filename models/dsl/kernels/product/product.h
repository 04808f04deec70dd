// Multiplies rows of f32 with sixteen rows of a matrix in groups. The kernels of products share it.
//
// Products of the integers of activations and weights are exact in i32, and are summed over the
// groups in f32, always in the same order: a row's result does not depend on the other rows.
#ifndef HEARTH_PRODUCT_H
#define HEARTH_PRODUCT_H

#include "lora/fetches.h"
#include "product/activations.h"
#if TILES
#include "product/tiles.h"
#endif

// How the loops over groups, rows and halves of a group are compiled. On ARM sums of several rows
// do not stay in registers.
#ifdef DOT_RUNS
#define GROUP_LOOP _Pragma("clang loop unroll(disable)")
#define ROW_LOOP _Pragma("clang loop unroll(disable)")
#define HALF_LOOP
#else
#define GROUP_LOOP
#define HALF_LOOP UNROLL
#define ROW_LOOP _Pragma("clang loop unroll(full)")
#endif

// The largest number of rows that share a pass over the weights: on x86 their sums stay in
// registers. With activations of 8 bits a row takes less time, so more of them share a pass.
#if defined(__AVX512F__) && ACTIVATION_BITS == 8
enum { MAX_SHARING = 16 };
#else
enum { MAX_SHARING = 8 };
#endif

// The rows whose products are computed in turn: all, or one where products of a row fill the
// registers.
#if defined(DOT_RUNS) || IN_PAIRS
enum { MAX_CELLS = 1 };
#else
enum { MAX_CELLS = MAX_SHARING };
#endif

// Turns integers of 12 bits into pairs of int16: columns 0 and 2 of each quad, then columns 1
// and 3. At first the upper eight bits are in QUADS quads, followed by the lower four bits in QUADS
// quads.
INLINE void pair_up(Quad quads[2 * QUADS]) {
    typedef int16_t Pairs __attribute__((vector_size(64)));
    Quad upper[QUADS];
    __builtin_memcpy(upper, quads, sizeof upper);
    UNROLL
    for (int i = 0; i < QUADS; i++) {
        Pairs above = (Pairs)upper[i], below = (Pairs)quads[QUADS + i];
        quads[2 * i] = (Quad)(above << 8 >> 4 | (below & 15));
        quads[2 * i + 1] = (Quad)((above >> 4 & ~15) | below >> 8);
    }
}

#ifdef DOT_RUNS

// The exact sums of the products of each part of `count` cells of x with group `at` of a matrix, or
// with a half of it. `quads` are the group's.
INLINE void dot_cells(i32x16 (*dots)[MAX_PARTS], int count, const Quad *quads, const Matrix *matrix,
                      size_t at, int half, const Activations *x, const size_t *cells) {
    int of_half = matrix->halves ? QUADS / 2 : QUADS, first = half * of_half;
    for (int i = 0; i < count; i++) {
        const int8_t *q = x->q[cells[i]][0] + first * QUAD;
        int32_t starts[MAX_PARTS];
        for (int part = 0; part < PARTS; part++) starts[part] = x->start[part][half][cells[i]];
        if (matrix->integers.bits > 8)
            dot_wide(dots[i], PARTS, matrix->integers, at, q, starts);
        else
            dot_run(dots[i], parts_of(matrix), run_of(quads, first, of_half, matrix->integers, at),
                    q, starts);
    }
}

#else

// Adds the products of the quad or the pairs `i` of a group, or of a half of it, with a part of x.
INLINE i32x16 dot_one(i32x16 sums, const Quad *quads, int i, const int8_t *x,
                      const Matrix *matrix) {
    if (is_paired(matrix)) return dot_pairs(sums, quads[i], x + i * QUAD);
    // Values have DOT_OFFSET added.
    int is_whole = matrix->integers.bits >= 8 && !matrix->integers.values;
    return is_whole ? dot_quad(sums, quads[i], x + i * QUAD)
                    : dot_bytes(sums, quads[i], x + i * QUAD);
}

// Adds the products of integers of 12 bits, `upper` eight and `lower` four, with a part of x.
INLINE i32x16 dot_wide(i32x16 sums, const Quad *upper, const Quad *lower, const int8_t *x) {
    // Neither sum waits for the other.
    i32x16 whole = {};
    dot_small(&sums, 1, lower, QUADS, x, 4);
    for (int i = 0; i < QUADS; i++) whole = dot_quad(whole, upper[i], x + i * QUAD);
    return whole * 16 + sums;
}

// The exact sums of the products of each part of `count` cells of x with group `at` of a matrix, or
// with a half of it, or of pairs of int16 with the whole x. `quads` are the group's, followed by
// the quads of the lower four bits if integers have 12.
//
// A product waits for the one before it that is added to the same sums, so each quad is multiplied
// with all cells and parts in turn.
INLINE void dot_cells(i32x16 (*dots)[MAX_PARTS], int count, const Quad *quads, const Matrix *matrix,
                      size_t at, int half, const Activations *x, const size_t *cells) {
    int bits = matrix->integers.bits, of_half = matrix->halves ? QUADS / 2 : QUADS;
    int paired = is_paired(matrix), parts = paired ? 1 : parts_of(matrix),
        in_turn = paired || bits <= 8;
    const int8_t *q[MAX_CELLS];
    (void)at;
    quads += half * of_half;
    UNROLL
    for (int i = 0; i < count; i++) {
        q[i] = x->q[cells[i]][0] + half * of_half * QUAD;
        UNROLL
        for (int part = 0; part < parts; part++) {
            dots[i][part] = (i32x16){} + x->start[part][half][cells[i]];
            if (!in_turn)
                dots[i][part] = dot_wide(dots[i][part], quads, quads + QUADS, q[i] + part * GROUP);
        }
        if (bits < 8 && IN_PAIRS) dot_small(dots[i], parts, quads, of_half, q[i], bits);
    }
    UNROLL
    for (int j = 0; j < (paired ? 2 * QUADS : of_half) && in_turn && !(bits < 8 && IN_PAIRS); j++) {
        UNROLL
        for (int i = 0; i < count; i++) {
            UNROLL
            for (int part = 0; part < parts; part++)
                dots[i][part] = dot_one(dots[i][part], quads, j, q[i] + part * GROUP, matrix);
        }
    }
}

#endif

// From this number of rows, parts and scales together on, cells fill the first cache, and products
// take longer than a group's bytes: those go to the second cache. Measured on Zen 4.
enum { MANY_CELLS = 8 };

// The sixteen outputs of a block of the matrix for each of `rows` rows, over the groups `begin` to
// `end`. A row begins with its cell in `first`, and its next group is `step` cells later. Outputs
// are added to unless `begin` is 0. `coarse` gets the outputs of the first parts of x alone, if it
// is not 0. Meanwhile bytes are fetched, if `fetches` is not 0.
INLINE void multiply_cells(const Activations *x, const size_t *first, size_t step, int rows,
                           const Matrix *whole, size_t block, size_t begin, size_t end,
                           Cursor *fetches, float *coarse, float *out, size_t stride) {
    int scales = whole->halves ? 2 : 1;
    Matrix own = *whole, *matrix = &own;
    own.integers.to_second = NEAREST == SECOND_CACHE && rows * PARTS * scales >= MANY_CELLS;
    int is_small = matrix->integers.bits < 8, count = rows < MAX_CELLS ? rows : MAX_CELLS;
    f32x16 sums[MAX_SHARING], coarse_sums[MAX_SHARING];
    Cursor cursor = {0};
    if (fetches) cursor = *fetches;
    for (int row = 0; row < rows; row++) {
        sums[row] = begin ? load(out + row * stride) : (f32x16){};
        if (coarse) coarse_sums[row] = begin ? load(coarse + row * stride) : (f32x16){};
    }
    GROUP_LOOP
    for (size_t group = begin; group < end; group++) {
        size_t at = block * matrix->groups + group, cells[MAX_SHARING];
        for (int row = 0; row < rows; row++) cells[row] = first[row] + (group - begin) * step;
        Factors factors[2];
        if (fetches) cursor = fetch_some(cursor);
        for (int i = 0; i < scales; i++) factors[i] = factors_of(matrix, block, group, i);
        if (is_small) fetch_factors(matrix, at);
        Quad quads[2 * QUADS];
        unpack(quads, matrix->integers, at, is_small ? matrix->zero : DOT_OFFSET);
        if (is_wide(matrix)) unpack_low((Bytes *)quads + QUADS, matrix->integers, at);
        if (is_paired(matrix)) pair_up(quads);
        ROW_LOOP
        for (int row = 0; row < rows; row += count) {
            HALF_LOOP
            for (int i = 0; i < scales; i++) {
                i32x16 dots[MAX_CELLS][MAX_PARTS];
                dot_cells(dots, count, quads, matrix, at, i, x, cells + row);
                UNROLL
                for (int j = row; j < row + count; j++) {
                    size_t cell = cells[j];
                    const i32x16 *parts = dots[j - row];
                    f32x16 product = is_paired(matrix) ? __builtin_convertvector(*parts, f32x16)
                                                       : join(parts, matrix);
                    f32x16 scale = factors[i].scale * x->scale[cell];
                    sums[j] = fma16(product, scale, sums[j]);
                    if (coarse)
                        coarse_sums[j] =
                            fma16(__builtin_convertvector(*parts, f32x16), scale, coarse_sums[j]);
                    if (matrix->minimum)
                        sums[j] = fma16(factors[i].minimum, splat(x->total[i][cell]), sums[j]);
                }
            }
        }
    }
    for (int row = 0; row < rows; row++) {
        store(out + row * stride, sums[row]);
        if (coarse) store(coarse + row * stride, coarse_sums[row]);
    }
    if (fetches) *fetches = cursor;
}

// `multiply_cells` for rows whose cells are side by side in each group.
INLINE void multiply(const Activations *x, int rows, const Matrix *matrix, size_t block,
                     size_t begin, size_t end, Cursor *fetches, float *out, size_t stride) {
    size_t first[MAX_SHARING];
    for (int row = 0; row < rows; row++) first[row] = (size_t)row;
    multiply_cells(x, first, (size_t)rows, rows, matrix, block, begin, end, fetches, 0, out,
                   stride);
}

// A block of the matrix times `rows` rows, as `multiply` or in tiles; a loop for each number of
// rows.
INLINE void multiply_block(const Activations *x, int rows, int in_tiles, const Matrix *matrix,
                           size_t block, size_t begin, size_t end, Cursor *fetches, float *out,
                           size_t stride) {
    for (int row = 0; row < rows; row++) fetch_to_write(out + row * stride);
#if TILES
    if (in_tiles && matrix->integers.grid.count && rows == PANEL_ROWS) {
        Strip strip;
        set_strip(&strip, matrix, block, begin, end);
        for (int row = 0; row < rows; row += TILE_ROWS)
            multiply_tiles(x, row, TILE_ROWS, rows, matrix, &strip, block, begin, end, fetches,
                           out + (size_t)row * stride, stride);
    }
    if (in_tiles && rows == 16)
        multiply_tiles(x, 0, 16, 16, matrix, 0, block, begin, end, fetches, out, stride);
    if (in_tiles && rows == 8)
        multiply_tiles(x, 0, 8, 8, matrix, 0, block, begin, end, fetches, out, stride);
#endif
    if (in_tiles) return;
    if (MAX_SHARING == 16 && rows == 16)
        multiply(x, 16, matrix, block, begin, end, fetches, out, stride);
    if (rows == 8) multiply(x, 8, matrix, block, begin, end, fetches, out, stride);
    if (rows == 4) multiply(x, 4, matrix, block, begin, end, fetches, out, stride);
    if (rows == 2) multiply(x, 2, matrix, block, begin, end, fetches, out, stride);
    if (rows == 1) multiply(x, 1, matrix, block, begin, end, fetches, out, stride);
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

// The matrix of a call that reads no block from `end` on, and of each block only `groups`.
INLINE Matrix read_until(const Matrix *matrix, size_t end, size_t groups) {
    Matrix read = *matrix;
    read.integers.last = end * matrix->groups - 1;
    read.integers.ahead = groups < matrix->groups ? matrix->groups : AHEAD;
    return read;
}

// A share of all rows of x, f32 (rows, columns), times a matrix: out has `stride` floats a row.
// Meanwhile bytes are fetched, if `fetches` is not 0; there are few rows then.
INLINE void multiply_all(const float *x, Share share, const Matrix *whole, Cursor *fetches,
                         float *out, size_t stride) {
    Activations panel;
    size_t all = whole->groups;
    x += share.row * all * GROUP, out += share.row * stride;
#if TILES
    int shaped = 0;  // the rows for which the tiles are shaped
#endif
    for (size_t row = 0, count; row < share.rows; row += count) {
        size_t left = share.rows - row;
        count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if ((TILES || MAX_SHARING == 16) && left >= 16) count = 16;
        if (TILES && whole->integers.grid.count && left >= PANEL_ROWS) count = PANEL_ROWS;
        int in_tiles = TILES && (int)count >= min_tile_rows(whole);
#if TILES
        int tall = (int)least(count, TILE_ROWS);
        if (in_tiles && tall != shaped) shape_tiles(whole, shaped = tall);
#endif
        const Matrix own = read_until(whole, share.end, CELLS / count), *matrix = &own;
        for (size_t first = 0, last; first < all; first = last) {
            last = least(first + CELLS / count, all);
            quantize_panel(&panel, 0, count, 0, first, last, x + row * all * GROUP, matrix,
                           !in_tiles);
            for (size_t block = share.begin; block < share.end; block++) {
                float *to = out + row * stride + block * ROWS;
                multiply_block(&panel, (int)count, in_tiles, matrix, block, first, last, fetches,
                               to, stride);
            }
        }
    }
#if TILES
    if (shaped) _tile_release();
#endif
}

#endif
