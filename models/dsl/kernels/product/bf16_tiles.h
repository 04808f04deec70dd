// Rows of bf16 times rows of a matrix of bf16 by AMX, whose registers are tiles of up to 16 rows of
// 64 bytes.
//
// A tile of x has 32 columns of sixteen rows, as they are stored. A tile of the matrix has two
// columns of each of sixteen outputs in a row, so a panel of the matrix is turned first, once for
// all rows of x. The sums of a row stay in one register while the columns pass, or go to `out` and
// back at the end of a panel, so columns are added in order.
#ifndef HEARTH_BF16_TILES_H
#define HEARTH_BF16_TILES_H

#include "isa/intrinsics.h"
#include "isa/vector.h"

// Columns of a tile. A panel of MAX_PANEL tiles of 32 outputs takes 40 KiB of stack: a worker has
// 128.
enum { TILE_COLUMNS = 2 * LANES, MAX_PANEL = 20, TILE_BYTES = 64 };

typedef u32x16 Tile[LANES];

// Shapes the registers: 0 to 3 hold sums, of the first sixteen rows and of `more` others; 4 and 5
// have these rows of x, 6 and 7 weights. The operand of LDTILECFG is described in Intel's SDM,
// volume 1, chapter 18.
INLINE void shape_tiles(size_t first, size_t more) {
    const size_t rows[8] = {first, first, more, more, first, more, LANES, LANES};
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int i = 0; i < 8; i++)
        shapes.rows[i] = (uint8_t)rows[i], shapes.bytes[i] = rows[i] ? TILE_BYTES : 0;
    _tile_loadconfig(&shapes);
}

// A row of two columns of sixteen outputs for each two columns of sixteen rows of a matrix.
INLINE void turn(Tile to, const uint16_t *weight, size_t columns) {
    u32x16 rows[2][LANES];
    for (int i = 0; i < LANES; i++)
        __builtin_memcpy(&rows[0][i], weight + i * columns, sizeof rows[0][i]);
    // Each time, rows i and i + 8 alternate in rows 2 i and 2 i + 1.
    UNROLL
    for (int time = 0; time < 4; time++) {
        const u32x16 *from = rows[time % 2];
        u32x16 *into = time == 3 ? to : rows[1 - time % 2];
        UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            into[2 * i] = __builtin_shufflevector(from[i], from[i + 8], 0, 16, 1, 17, 2, 18, 3, 19,
                                                  4, 20, 5, 21, 6, 22, 7, 23);
            into[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 8], 8, 24, 9, 25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    }
}

// Up to 32 rows of x times a panel of 16 or 32 (`is_wide`) outputs, of `count` tiles of columns.
// `stride` and `out_stride` are the bytes of a row of x and of out. Sums are added to unless
// `is_first`.
INLINE void multiply_panel(const uint16_t *x, size_t stride, int is_tall, Tile (*panel)[MAX_PANEL],
                           int is_wide, size_t count, int is_first, float *out, size_t out_stride) {
    const char *lower_x = (const char *)x + LANES * stride;
    char *lower = (char *)out + LANES * out_stride;
    _tile_zero(0), _tile_zero(1);
    if (is_tall) _tile_zero(2), _tile_zero(3);
    if (!is_first) {
        _tile_loadd(0, out, out_stride);
        if (is_wide) _tile_loadd(1, out + LANES, out_stride);
        if (is_tall) _tile_loadd(2, lower, out_stride);
        if (is_tall && is_wide) _tile_loadd(3, lower + TILE_BYTES, out_stride);
    }
    for (size_t i = 0; i < count; i++) {
        _tile_loadd(4, (const char *)x + i * TILE_BYTES, stride);
        _tile_loadd(6, panel[0][i], TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (is_wide) _tile_loadd(7, panel[1][i], TILE_BYTES);
        if (is_wide) _tile_dpbf16ps(1, 4, 7);
        if (!is_tall) continue;
        _tile_loadd(5, lower_x + i * TILE_BYTES, stride);
        _tile_dpbf16ps(2, 5, 6);
        if (is_wide) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, out_stride);
    if (is_wide) _tile_stored(1, out + LANES, out_stride);
    if (is_tall) _tile_stored(2, lower, out_stride);
    if (is_tall && is_wide) _tile_stored(3, lower + TILE_BYTES, out_stride);
}

// All rows of x times the outputs from `output` on, sixteen at a time. Returns the first output
// before `end` that is left.
INLINE size_t multiply_tiles(const uint16_t *x, size_t rows, const uint16_t *weight, size_t columns,
                             size_t output, size_t end, float *out, size_t outputs) {
    _Alignas(64) Tile panel[2][MAX_PANEL];
    size_t tiles = columns / TILE_COLUMNS, panels = (tiles + MAX_PANEL - 1) / MAX_PANEL;
    size_t each = panels ? (tiles + panels - 1) / panels : 0, shaped = 0;
    for (size_t wide; output + LANES <= end; output += wide) {
        wide = output + 2 * LANES <= end ? 2 * LANES : LANES;
        for (size_t first = 0, count; first < tiles; first += count) {
            count = least(each, tiles - first);
            for (size_t i = 0; i < wide / LANES; i++)
                for (size_t tile = 0; tile < count; tile++)
                    turn(panel[i][tile],
                         weight + (output + i * LANES) * columns + (first + tile) * TILE_COLUMNS,
                         columns);
            for (size_t row = 0, tall; row < rows; row += tall) {
                tall = least(2 * LANES, rows - row);
                if (tall != shaped)
                    shape_tiles(least(tall, LANES), tall - least(tall, LANES)), shaped = tall;
                multiply_panel(x + row * columns + first * TILE_COLUMNS, columns * sizeof *x,
                               tall > LANES, panel, wide > LANES, count, first == 0,
                               out + row * outputs + output, outputs * sizeof *out);
            }
        }
    }
    if (shaped) _tile_release();
    return output;
}

#endif
