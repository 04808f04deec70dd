// Rows of f32 times the matrices of their experts, each a part of one matrix in groups.
#ifndef HEARTH_ROUTED_H
#define HEARTH_ROUTED_H

#include "product/expert_turns.h"
#include "product/product.h"

// The most rows that are multiplied together without tiles.
enum { SHARED_ROWS = MAX_SHARING < TOGETHER ? MAX_SHARING : TOGETHER };

// Some rows of x times the blocks `begin` to `end` of a matrix; `first` is the first block of their
// expert. out has `outputs` floats a row.
INLINE void multiply_rows(const float *x, const size_t *rows, int count, size_t each, int in_tiles,
                          const Matrix *whole, size_t first, size_t begin, size_t end, float *out,
                          size_t outputs) {
    Activations panel;
    const Matrix own = read_until(whole, first + end, CELLS / (size_t)count), *matrix = &own;
    float sums[TOGETHER][ROWS];
    size_t sources[TOGETHER];
    for (int i = 0; i < count; i++) sources[i] = rows[i] / each;
    size_t all = matrix->groups;
    for (size_t start = 0, stop; start < all; start = stop) {
        stop = least(start + CELLS / count, all);
        quantize_panel(&panel, 0, count, sources, start, stop, x, matrix, !in_tiles);
        for (size_t block = begin; block < end; block++) {
            float *to = out + block * ROWS;
            for (int i = 0; i < count && start; i++) store(sums[i], load(to + rows[i] * outputs));
            multiply_block(&panel, count, in_tiles, matrix, first + block, start, stop, 0, sums[0],
                           ROWS);
            for (int i = 0; i < count; i++) store(to + rows[i] * outputs, load(sums[i]));
        }
    }
}

// Fetches a plane's bytes of the first groups of a block.
INLINE void fetch_first(Plane plane, size_t groups, size_t block) {
    size_t bytes = group_bytes(plane);
    if (plane.bits) fetch_lines(plane.bytes + block * groups * bytes, least(AHEAD, groups) * bytes);
}

// Fetches the first groups of a block: an expert's matrix begins where nothing was read before.
// Planes are named, because one loop over them would keep the whole matrix in memory, and a kernel
// would take five times as long to compile.
INLINE void fetch_start(const Matrix *matrix, size_t block) {
    fetch_first(matrix->integers.planes[0], matrix->groups, block);
    fetch_first(matrix->integers.planes[1], matrix->groups, block);
    fetch_block_factors(matrix, block);
}

// The arrays of a matrix whose experts have `blocks` blocks each.
INLINE ExpertArrays arrays_of(const Matrix *matrix, size_t blocks) {
    ExpertArrays all = {.count = 0};
    const Integers *integers = &matrix->integers;
    size_t groups = blocks * matrix->groups, scales = blocks * scales_of_row(matrix);
    for (int i = 0; i < 2; i++)
        if (integers->planes[i].bits)
            add_array(&all, integers->planes[i].bytes, groups * group_bytes(integers->planes[i]));
    if (integers->grid.count)
        add_array(&all, integers->index, groups * index_bytes(&integers->grid));
    add_array(&all, integers->extra, groups * (size_t)(integers->grid.extra_bytes * ROWS));
    add_array(&all, matrix->scale, scales * scale_bytes(matrix));
    add_array(&all, matrix->minimum, scales * ROWS * sizeof(_Float16));
    add_array(&all, matrix->multiplier, groups * multiplier_bytes(matrix));
    return all;
}

// The matrix of the expert of a turn, as its first blocks.
INLINE Matrix matrix_in_turn(const Matrix *matrix, const Turns *turns, size_t blocks) {
    Matrix own = *matrix;
    Integers *integers = &own.integers;
    size_t groups = blocks * matrix->groups, scales = blocks * scales_of_row(matrix);
    integers->planes[0].bytes =
        array_in_turn(turns, integers->planes[0].bytes, groups * group_bytes(integers->planes[0]));
    integers->planes[1].bytes =
        array_in_turn(turns, integers->planes[1].bytes, groups * group_bytes(integers->planes[1]));
    integers->index = array_in_turn(turns, integers->index, groups * index_bytes(&integers->grid));
    integers->extra =
        array_in_turn(turns, integers->extra, groups * (size_t)(integers->grid.extra_bytes * ROWS));
    own.scale = array_in_turn(turns, own.scale, scales * scale_bytes(matrix));
    own.minimum = array_in_turn(turns, own.minimum, scales * ROWS * sizeof(_Float16));
    own.multiplier = array_in_turn(turns, own.multiplier, groups * multiplier_bytes(matrix));
    return own;
}

// The workgroup's share of all rows of x, f32 (rows / each, columns), times the matrices of their
// experts, of `outputs` rows each.
INLINE void multiply_routed(const float *x, const Matrix *matrix, Turns turns, float *out,
                            size_t outputs) {
    size_t blocks = outputs / ROWS, some[TOGETHER];
    Routing routing = turns.routing;
#if TILES
    int shaped = 0;  // the rows for which the tiles are shaped
#endif
    while (next_turn(&turns)) {
        if (turns.following < turns.last_expert)
            fetch_start(matrix, turns.following * blocks + turns.begin);
        Matrix own = *matrix;
        size_t first = turns.expert * blocks;
        if (turns.cache) own = matrix_in_turn(matrix, &turns, blocks), first = 0;
        for (size_t next = 0; next < routing.rows;) {
            int most = TILES ? TILE_ROWS : SHARED_ROWS;
            int count = next_rows(some, most, TILES, routing, turns.expert, &next);
            int in_tiles = TILES && count >= min_tile_rows(matrix);
            if (!count) break;
#if TILES
            if (in_tiles && count != shaped) shape_tiles(matrix, shaped = count);
#endif
            multiply_rows(x, some, count, routing.each, in_tiles, &own, first, turns.begin,
                          turns.end, out, outputs);
        }
    }
#if TILES
    if (shaped) _tile_release();
#endif
}

#endif
