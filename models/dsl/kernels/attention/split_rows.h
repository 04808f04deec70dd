// Keys and values as tiles read them: each number is the sum of two bf16.
//
// A product of two such sums leaves out the product of both smaller parts, so its error is 2^-17;
// the error of a product of bf16 is 2^-8. All heads of a group read the same rows. A block of BLOCK
// rows has the upper parts of keys, row after row, then the lower ones; then for each TILE_KEYS
// rows and each 16 columns of values a tile of the upper parts, and one of the lower ones. A row of
// a tile is a column of values.
#ifndef HEARTH_SPLIT_ROWS_H
#define HEARTH_SPLIT_ROWS_H

#include "isa/vector.h"

enum { BLOCK = 128, TILE_KEYS = 2 * LANES, TILE_PARTS = TILE_KEYS * LANES };

// Columns of keys, which fill tiles.
INLINE size_t key_columns(size_t width) { return (width + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS; }

// The number of parts of a block's keys, and of its keys and values.
INLINE size_t key_parts(size_t width) { return 2 * BLOCK * key_columns(width); }

INLINE size_t block_parts(size_t width) { return key_parts(width) + 2 * BLOCK * width; }

// The upper 16 bits are the nearest bf16.
INLINE u32x16 rounded(f32x16 x) { return (u32x16)x + 0x8000; }

// A number less its nearest bf16.
INLINE f32x16 remainder_of(f32x16 x) { return x - (f32x16)(rounded(x) & 0xFFFF0000); }

// The nearest bf16 of two numbers, side by side, x first.
INLINE f32x16 pair(f32x16 x, f32x16 y) {
    return (f32x16)(rounded(x) >> 16 | (rounded(y) & 0xFFFF0000));
}

#endif
