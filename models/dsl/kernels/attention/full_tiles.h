// Products of attention by tiles: scores (keys, queries), and mixed values (columns, queries). Each
// number is the sum of two bf16, as split_rows.h says.
#ifndef HEARTH_FULL_TILES_H
#define HEARTH_FULL_TILES_H

#include "attention/split_rows.h"
#include "product/bf16_tiles.h"

// The queries of a set, whose scores are a row of two vectors.
enum { SET = 2 * LANES, ROW_BYTES = SET * sizeof(float) };

// Two tiles of upper parts and two of lower parts. `tile` is the first upper tile, `next` the
// offset of the second one, and `lower` the offset of a lower tile from its upper tile, in parts.
// `stride` is the bytes of a row.
typedef struct {
    const uint16_t *tile;
    size_t next, lower, stride;
} Operand;

// Adds x times y to the sums in tiles 0 to 3: three products, all but the one of both lower parts.
// Unless `is_tall`, x has one tile of rows.
INLINE void multiply_split(Operand x, int is_tall, Operand y) {
    _tile_loadd(4, x.tile + x.lower, x.stride);
    _tile_loadd(6, y.tile, y.stride);
    _tile_loadd(7, y.tile + y.next, y.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (is_tall) {
        _tile_loadd(5, x.tile + x.next + x.lower, x.stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(5, x.tile + x.next, x.stride);
    }
    _tile_loadd(4, x.tile, x.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (is_tall) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_loadd(6, y.tile + y.lower, y.stride);
    _tile_loadd(7, y.tile + y.next + y.lower, y.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (is_tall) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

INLINE void store_sums(float *to, int is_tall) {
    _tile_stored(0, to, ROW_BYTES);
    _tile_stored(1, to + LANES, ROW_BYTES);
    if (!is_tall) return;
    _tile_stored(2, to + LANES * SET, ROW_BYTES);
    _tile_stored(3, to + LANES * SET + LANES, ROW_BYTES);
}

// scores (BLOCK, SET) of a block. `queries` has four tiles for each 32 columns: the upper parts of
// sixteen queries, of the next sixteen, then the lower parts of both.
INLINE void score_tiles(float *scores, const uint16_t *keys, const uint16_t *queries,
                        size_t width) {
    size_t columns = key_columns(width);
    for (size_t k = 0; k < BLOCK; k += 2 * LANES) {
        _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
        for (size_t d = 0; d < columns; d += TILE_COLUMNS) {
            Operand x = {keys + k * columns + d, LANES * columns, BLOCK * columns,
                         columns * sizeof *keys};
            Operand y = {queries + d / TILE_COLUMNS * 4 * TILE_PARTS, TILE_PARTS, 2 * TILE_PARTS,
                         TILE_BYTES};
            multiply_split(x, 1, y);
        }
        store_sums(scores + k * SET, 1);
    }
}

// Adds the values of a block, weighted, to mixed (width, SET). Rows 2 i of `weights` are the upper
// parts of two keys, and rows 2 i + 1 the lower ones.
INLINE void mix_tiles(float *mixed, const float *weights, const uint16_t *values, size_t width) {
    for (size_t d = 0, tall; d < width; d += tall) {
        tall = least(width - d, 2 * LANES);
        int is_tall = tall > LANES;
        float *sums = mixed + d * SET;
        _tile_loadd(0, sums, ROW_BYTES);
        _tile_loadd(1, sums + LANES, ROW_BYTES);
        if (is_tall) _tile_loadd(2, sums + LANES * SET, ROW_BYTES);
        if (is_tall) _tile_loadd(3, sums + LANES * SET + LANES, ROW_BYTES);
        for (size_t k = 0; k < BLOCK; k += TILE_KEYS) {
            Operand x = {values + 2 * (k * width + d * TILE_KEYS), 2 * TILE_PARTS, TILE_PARTS,
                         TILE_BYTES};
            Operand y = {(const uint16_t *)(weights + k * SET), 2 * LANES, 2 * SET, 2 * ROW_BYTES};
            multiply_split(x, is_tall, y);
        }
        store_sums(sums, is_tall);
    }
}

#endif
