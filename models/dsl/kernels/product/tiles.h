// Eight or sixteen rows of activations times sixteen rows of a matrix by AMX, whose registers are
// tiles of up to 16 rows of 64 bytes.
//
// Quads of weights are the second operand of a tile product as they are: a tile row has four
// columns of each of sixteen rows. Sums are exact, so a result has the bits that the other
// instruction sets give. A product is stored while the next one is computed: two turns of
// registers. Joined parts are one product of twice the columns: both parts of x, times the weights
// that are multiplied by `steps`, and times the weights. One part alone needs no tiles for a
// second.
#ifndef HEARTH_TILES_H
#define HEARTH_TILES_H

#include "product/activations.h"

// The products of the parts of sixteen rows with sixteen rows of weights; if joined, only one.
typedef int32_t TileSums[MAX_PARTS][ROWS][LANES];

// Shapes the registers: 0 to 3 hold sums, 4 and 5 activations, 6 and 7 weights. The operand of
// LDTILECFG is described in Intel's SDM, volume 1, chapter 18.
INLINE void shape_tiles(const Matrix *matrix, int rows) {
    int quads = is_joined(matrix) ? MAX_PARTS * QUADS : matrix->halves ? QUADS / 2 : QUADS;
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int i = 0; i < 4; i++) shapes.rows[i] = (uint8_t)rows, shapes.bytes[i] = 4 * LANES;
    for (int i = 4; i < 6; i++)
        shapes.rows[i] = (uint8_t)rows, shapes.bytes[i] = (uint16_t)(quads * QUAD);
    for (int i = 6; i < 8; i++) shapes.rows[i] = (uint8_t)quads, shapes.bytes[i] = sizeof(Quad);
    _tile_loadconfig(&shapes);
}

// Starts the product of joined parts of sixteen rows of x with quads from `joined_quads`.
INLINE void start_joined(int turn, const int8_t *x, const Quad *quads, int is_signed) {
    if (turn) {
        _tile_loadd(5, x, PARTS * GROUP);
        _tile_loadd(7, quads, sizeof(Quad));
        _tile_zero(2);
        if (is_signed)
            _tile_dpbssd(2, 5, 7);
        else
            _tile_dpbsud(2, 5, 7);
    } else {
        _tile_loadd(4, x, PARTS * GROUP);
        _tile_loadd(6, quads, sizeof(Quad));
        _tile_zero(0);
        if (is_signed)
            _tile_dpbssd(0, 4, 6);
        else
            _tile_dpbsud(0, 4, 6);
    }
}

// Starts the product of some quads with the first `parts` parts of sixteen rows of x.
INLINE void start_tiles(int turn, const int8_t *x, const Quad *quads, int parts) {
    _tile_loadd(4, x, PARTS * GROUP);
    if (parts == 2) _tile_loadd(5, x + GROUP, PARTS * GROUP);
    if (turn) {
        _tile_loadd(7, quads, sizeof(Quad));
        _tile_zero(2);
        _tile_dpbssd(2, 4, 7);
        if (parts == 1) return;
        _tile_zero(3);
        _tile_dpbssd(3, 5, 7);
    } else {
        _tile_loadd(6, quads, sizeof(Quad));
        _tile_zero(0);
        _tile_dpbssd(0, 4, 6);
        if (parts == 1) return;
        _tile_zero(1);
        _tile_dpbssd(1, 5, 6);
    }
}

// Stores the product that was started in this turn: its parts, or all of it if there is one.
INLINE void store_tiles(int turn, TileSums to, int is_one) {
    if (turn) {
        _tile_stored(2, to[0], 4 * LANES);
        if (!is_one) _tile_stored(3, to[1], 4 * LANES);
    } else {
        _tile_stored(0, to[0], 4 * LANES);
        if (!is_one) _tile_stored(1, to[1], 4 * LANES);
    }
}

// The scaled parts of a product are added to the sums of each row. Of integers of 12 bits, the
// upper eight are multiplied first, then the lower four.
INLINE void add_tiles(f32x16 sums[TILE_ROWS], int rows, TileSums products[2], int last,
                      const float *x_scale, f32x16 scale, const Matrix *matrix) {
#pragma clang loop unroll(full)
    for (int row = 0; row < rows; row++) {
        i32x16 parts[MAX_PARTS];
        for (int part = 0; part < (is_joined(matrix) ? 1 : parts_of(matrix)); part++) {
            __builtin_memcpy(&parts[part], products[last][part][row], sizeof parts[part]);
            if (!is_wide(matrix)) continue;
            i32x16 upper;
            __builtin_memcpy(&upper, products[1 - last][part][row], sizeof upper);
            parts[part] += upper * 16;
        }
        f32x16 product =
            is_joined(matrix) ? __builtin_convertvector(parts[0], f32x16) : join(parts, matrix);
        sums[row] = fma16(product, scale * x_scale[row], sums[row]);
    }
}

// The quads of a group of four bits, times `steps` and then once more: signed unless `zero` is 0.
INLINE const Quad *joined_quads(Quad to[MAX_PARTS * QUADS], const Matrix *matrix, size_t group) {
    Plane plane = matrix->integers.planes[0];
    const uint8_t *low = plane.bytes + group * group_bytes(plane);
    fetch_group(plane.bytes, group_bytes(plane), group, &matrix->integers);
    uint8_t zero = (uint8_t)matrix->zero;
    for (int i = 0; i < QUADS / 2; i++) {
        Bytes two;
        __builtin_memcpy(&two, low + i * sizeof two, sizeof two);
        to[i] = (Quad)((two << 4) - (uint8_t)(zero << 4));
        to[i + QUADS / 2] = (Quad)((two & 0xF0) - (uint8_t)(zero << 4));
        to[i + QUADS] = (Quad)((two & 0x0F) - zero);
        to[i + QUADS * 3 / 2] = (Quad)((two >> 4) - zero);
    }
    return to;
}

// The quads of a group, signed. Quads of 8 bits are returned where they are; others are unpacked to
// `to`, with 12 bits also the lower four.
INLINE const Quad *signed_quads(Quad to[MAX_PARTS * QUADS], const Matrix *matrix, size_t group) {
    if (is_joined(matrix)) return joined_quads(to, matrix, group);
    if (is_wide(matrix)) {
        Bytes lower[QUADS];
        unpack_low(lower, matrix->integers, group);
        for (int i = 0; i < QUADS; i++) to[i] = (Quad)lower[i] - (int8_t)matrix->zero;
    }
    const int8_t *stored = stored_quads(matrix->integers);
    if (stored) {
        fetch_group(stored, GROUP * ROWS, group, &matrix->integers);
        return (const Quad *)(stored + group * GROUP * ROWS);
    }
    unpack(to, matrix->integers, group, 0);
    if (matrix->integers.bits == 8 || matrix->integers.values) return to;
    for (int i = 0; i < QUADS; i++) to[i] -= (int8_t)matrix->zero;
    return to;
}

// Groups of a block that all rows of a panel share: their quads, scales and minimums.
typedef struct {
    _Alignas(64) Quad quads[STRIP][QUADS];
    Factors factors[STRIP][2];
} Strip;

// Looks up groups `begin` to `end` of a block, at most STRIP.
INLINE void set_strip(Strip *to, const Matrix *matrix, size_t block, size_t begin, size_t end) {
    for (size_t group = begin; group < end; group++) {
        size_t at = block * matrix->groups + group;
        signed_quads(to->quads[group - begin], matrix, at);
        for (int i = 0; i < (matrix->halves ? 2 : 1); i++)
            to->factors[group - begin][i] = factors_of(matrix, block, group, i);
        fetch_factors(matrix, at);
    }
}

// What `multiply` computes, for eight or sixteen rows of x, whose cells are those from `first` on
// of every `cells`. The tiles are shaped for them. `strip` has the groups, or is 0.
//
// Step i is group i, or part i % 2 of group i / 2: one of its halves, or the upper or the lower
// bits of 12. Without a strip, a group is unpacked before its first step. A product is added in the
// step after its own.
INLINE void multiply_tiles(const Activations *x, int first, int rows, int cells,
                           const Matrix *matrix, const Strip *strip, size_t block, size_t begin,
                           size_t end, Cursor *fetches, float *out, size_t stride) {
    _Alignas(64) TileSums products[2];
    _Alignas(64) Quad unpacked[2][MAX_PARTS * QUADS];
    int joined = is_joined(matrix);
    size_t scales = matrix->halves ? 2 : 1, quads_each = QUADS / scales;
    size_t each = is_wide(matrix) ? 2 : scales;
    size_t first_group = block * matrix->groups;
    f32x16 sums[TILE_ROWS];
    Cursor cursor = {0};
    if (fetches) cursor = *fetches;
    for (int row = 0; row < rows; row++) sums[row] = begin ? load(out + row * stride) : (f32x16){};
    const Quad *quads,
        *next = strip ? strip->quads[0] : signed_quads(unpacked[0], matrix, first_group + begin);
    size_t steps = (end - begin) * each;
#pragma clang loop unroll_count(2)
    for (size_t step = 0; step <= steps; step++) {
        size_t group = begin + step / each, part = step % each, half = part % scales;
        const int8_t *q = x->q[(group - begin) * (size_t)cells + (size_t)first][0];
        if (part == 0) quads = next;
        if (part == 0 && group < end && fetches) cursor = fetch_some(cursor);
        if (part == each - 1 && group + 1 < end && strip) {
            next = strip->quads[group + 1 - begin];
        } else if (part == each - 1 && group + 1 < end) {
            next = signed_quads(unpacked[(group + 1 - begin) & 1], matrix, first_group + group + 1);
            fetch_factors(matrix, first_group + group);
        }
        if (group < end && joined)
            start_joined(step & 1, q, quads, matrix->zero);
        else if (group < end && part > half)
            start_tiles(step & 1, q, unpacked[(group - begin) & 1], parts_of(matrix));
        else if (group < end)
            start_tiles(step & 1, q + half * quads_each * QUAD, quads + half * quads_each,
                        parts_of(matrix));
        if (step == 0) continue;
        size_t before = step - 1, added = before / each;
        size_t cell = added * (size_t)cells + (size_t)first;
        store_tiles(before & 1, products[before & 1], joined || parts_of(matrix) == 1);
        if (is_wide(matrix) && before % each == 0) continue;  // the lower bits follow
        Factors factors = strip ? strip->factors[added][before % scales]
                                : factors_of(matrix, block, begin + added, before % scales);
        add_tiles(sums, rows, products, before & 1, x->scale + cell, factors.scale, matrix);
        if (!matrix->minimum) continue;
        const float *total = x->total[before % scales] + cell;
        for (int row = 0; row < rows; row++)
            sums[row] = fma16(factors.minimum, splat(total[row]), sums[row]);
    }
    for (int row = 0; row < rows; row++) store(out + row * stride, sums[row]);
    if (fetches) *fetches = cursor;
}

#endif
