// Rows of f32 as integers with scales, and the matrix with which they are multiplied.
//
// Each group of a row becomes a scale and one or two int8 parts: 8 bits, 16 bits, or 12 bits where
// weights have four. ACTIVATION_BITS 8 is one part for all weights.
#ifndef HEARTH_ACTIVATIONS_H
#define HEARTH_ACTIVATIONS_H

#include "isa/dot.h"

// ROUNDED is 1 in a kernel that rounds rows for a product, and in the kernel of that product
// (strips.h). With tiles, each workgroup rounds its rows.
#ifndef ROUNDED
#define ROUNDED 0
#endif
#define STRIPS (ROUNDED && !TILES)

// The rows of x that a tile holds, the rows that share STRIP groups of a grid, and the groups of a
// panel, which takes at most 53 KiB of stack: a worker has 128.
enum { TILE_ROWS = 16, PANEL_ROWS = 64 / PARTS, STRIP = 16 };
enum { CELLS = STRIPS ? STRIP : TILES && PARTS == 1 ? PANEL_ROWS * STRIP : 512 };

// The fewest rows that tiles multiply faster than vectors. Halves of a group are two products.
INLINE int min_tile_rows(const Matrix *matrix) {
    return matrix->halves ? TILE_ROWS : TILE_ROWS / 2;
}

// Some groups of some rows of x, `rows` for each group: x ~ scale * (q[0] + q[1] / steps), or
// x ~ scale * (q[0] * steps + q[1]) if the parts are joined (`is_joined`) or the matrix is wide
// (`is_wide`), or x ~ scale * q[0] if there is one part. A product of integers starts at `start`,
// and `total` is the sum of x, for each half of a group or once for the group. If parts are
// multiplied as pairs (`is_paired`), q has the int16 q[0] * steps + q[1]: columns 0 and 2 of each
// four, then 1 and 3.
typedef struct {
    // Rounded rows of another kernel have any alignment.
    _Alignas(STRIPS ? 1 : 64) int8_t q[CELLS][PARTS][GROUP];
    int32_t start[PARTS][2][CELLS];
    float scale[CELLS], total[2][CELLS];
} Activations;

// Whether the integers of the two parts are added before they are scaled, as `steps` times the
// first plus the second: so that `steps` times a weight is a byte, and a tile multiplies both at
// once.
INLINE int is_joined(const Matrix *matrix) { return PARTS == 2 && matrix->integers.bits == 4; }
// Whether integers have 12 bits. Tiles, and vectors without pairs, multiply the lower four alone.
INLINE int is_wide(const Matrix *matrix) { return matrix->integers.bits > 8; }
// The parts that are multiplied with a matrix.
INLINE int parts_of(const Matrix *matrix) { return matrix->one_part ? 1 : PARTS; }
// Whether vectors multiply activations of 16 bits with integers of 12 bits as pairs of int16. No
// sum overflows: 32 products are below 32 * 32385 * 2056 < 2^31.
INLINE int is_paired(const Matrix *matrix) { return HAS_PAIRS && PARTS == 2 && is_wide(matrix); }
// The steps of the second part that are one of the first.
INLINE int steps_of(const Matrix *matrix) { return is_joined(matrix) ? 16 : 254; }

// Groups of a row of x that are fetched ahead: another core may have written them, and rows are
// read side by side, which a CPU's own fetching does not foresee.
enum { SOON_READ = STRIPS ? 16 : 4 };

// The largest magnitude of each of four groups of x. Floats that are not negative have the order of
// their bits, and the maximum of integers takes one instruction in place of three. NaN is the
// largest.
INLINE f32x4 magnitudes(const float *const x[4]) {
    i32x16 tops[4];
    for (int i = 0; i < 4; i++)
        tops[i] = __builtin_elementwise_max((i32x16)__builtin_elementwise_abs(load(x[i])),
                                            (i32x16)__builtin_elementwise_abs(load(x[i] + LANES)));
    return __builtin_elementwise_max((f32x4)largest_integers4(tops), (f32x4){} + 0x1p-100f);
}

// Added to numbers below 2^22, it rounds them to the nearest integers, which are then the lowest
// bits of the sums: two instructions fewer than to round and to convert.
#define ROUNDER 0x1.8p23f

// Stores the lowest bytes of sixteen integers as a half of a part of a cell.
INLINE void store_half(Activations *to, size_t cell, int part, int half, i32x16 integers) {
    i8x16 bytes = __builtin_convertvector(integers, i8x16);
    __builtin_memcpy(&to->q[cell][part][half * LANES], &bytes, sizeof bytes);
}

// Stores a half of a cell as pairs of int16.
INLINE void store_pairs(Activations *to, size_t cell, int half, i32x16 integers) {
    typedef int16_t i16x16 __attribute__((vector_size(32)));
    i16x16 pairs = __builtin_convertvector(integers, i16x16);
    pairs =
        __builtin_shufflevector(pairs, pairs, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    __builtin_memcpy(&to->q[cell][half * (PARTS - 1)][0], &pairs, sizeof pairs);
}

// Four groups of x become the cells from `cell`, with joined parts: an integer of 12 bits, whose
// lowest four are the second part.
INLINE void quantize_joined(Activations *to, size_t cell, const float *const x[4],
                            const Matrix *matrix, int has_starts) {
    f32x16 sums[4];
    f32x4 top = magnitudes(x), inverse = 127.0f / top * 16.0f,
          scale = top * (1.0f / 127.0f / 16.0f);
    __builtin_memcpy(&to->scale[cell], &scale, sizeof scale);
    for (int i = 0; i < 4; i++) {
        f32x16 rounded[2];
        for (int half = 0; half < 2; half++) {
            f32x16 shifted = load(x[i] + half * LANES) * inverse[i] + ROUNDER;
            i32x16 integers = (i32x16)shifted;
            rounded[half] = shifted - ROUNDER;
            store_half(to, cell + i, 0, half, integers >> 4);
            store_half(to, cell + i, 1, half, integers & 15);
        }
        sums[i] = rounded[0] + rounded[1];
    }
    f32x4 sum = sums4(sums), total = sum * scale;
    i32x4 none = {}, start = __builtin_convertvector(sum, i32x4) * -matrix->zero;
    if (has_starts) __builtin_memcpy(&to->start[0][0][cell], &none, sizeof none);
    if (has_starts) __builtin_memcpy(&to->start[PARTS - 1][0][cell], &start, sizeof start);
    if (matrix->minimum) __builtin_memcpy(&to->total[0][cell], &total, sizeof total);
}

// Four groups of x become the cells from `cell`, with parts that are scaled separately.
INLINE void quantize_apart(Activations *to, size_t cell, const float *const x[4],
                           const Matrix *matrix, int has_starts) {
    f32x16 parts[MAX_PARTS][2][4];
    float steps = (float)steps_of(matrix);
    f32x4 top = magnitudes(x), inverse = 127.0f / top, scale = top * (1.0f / 127.0f),
          sums[MAX_PARTS][2] = {};
    int paired = has_starts && is_paired(matrix);
    if (is_wide(matrix) && PARTS == 2) scale *= 1.0f / steps;
    __builtin_memcpy(&to->scale[cell], &scale, sizeof scale);
    for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++) {
            f32x16 scaled = load(x[i] + half * LANES) * inverse[i];
            for (int part = 0; part < PARTS; part++) {
                f32x16 shifted = scaled + ROUNDER, rounded = shifted - ROUNDER;
                if (!paired) store_half(to, cell + i, part, half, (i32x16)shifted);
                parts[part][half][i] = rounded;
                scaled = (scaled - rounded) * steps;
            }
            if (!paired) continue;
            f32x16 whole = parts[0][half][i] * steps + parts[1][half][i];
            store_pairs(to, cell + i, half, (i32x16)(whole + ROUNDER));
            parts[0][half][i] = whole;
        }
    int bits = matrix->integers.bits;
    int dot_offset = bits < 8 || paired ? 0 : bits == 8 ? DOT_OFFSET : DOT_OFFSET * 16;
    int32_t offset = matrix->zero + dot_offset;
    int scales = matrix->halves ? 2 : 1;
    for (int part = 0; part < PARTS; part++) {
        for (int i = 0; i < 4 && !matrix->halves; i++) parts[part][0][i] += parts[part][1][i];
        for (int half = 0; half < scales; half++) sums[part][half] = sums4(parts[part][half]);
        for (int half = 0; half < scales && has_starts; half++) {
            i32x4 start = __builtin_convertvector(sums[part][half], i32x4) * -offset;
            __builtin_memcpy(&to->start[part][half][cell], &start, sizeof start);
        }
    }
    for (int half = 0; half < scales && matrix->minimum; half++) {
        f32x4 total = (sums[0][half] + sums[1][half] * (1.0f / steps)) * scale;
        __builtin_memcpy(&to->total[half][cell], &total, sizeof total);
    }
}

// Turns groups `begin` to `end` of `rows` rows of x into the cells from `first` on, a multiple of
// four: of the rows in `chosen`, or of the first rows.
INLINE void quantize_panel(Activations *to, size_t first, size_t rows, const size_t *chosen,
                           size_t begin, size_t end, const float *x, const Matrix *matrix,
                           int has_starts) {
    size_t cells = first + (end - begin) * rows, group = begin, row = 0;
    size_t stride = matrix->groups * GROUP, at = begin * GROUP;
    for (size_t cell = first; cell < cells; cell += 4) {
        const float *groups[4];
        for (int i = 0; i < 4; i++) {
            groups[i] = x + (chosen ? chosen[row] * stride + group * GROUP : at);
            fetch_lines(groups[i] + SOON_READ * GROUP, GROUP * sizeof(float));
            if (cell + i + 1 >= cells) continue;  // cells that are not there repeat the last one
            at += stride;
            if (++row == rows) row = 0, group++, at = group * GROUP;
        }
        if (is_joined(matrix))
            quantize_joined(to, cell, groups, matrix, has_starts);
        else
            quantize_apart(to, cell, groups, matrix, has_starts);
    }
}

// Sums of the multiplied parts as one f32 in the units of the group's scale.
INLINE f32x16 join(const i32x16 dots[MAX_PARTS], const Matrix *matrix) {
    int steps = steps_of(matrix);
    if (is_joined(matrix) || (PARTS == 2 && is_wide(matrix)))
        return __builtin_convertvector(dots[0] * steps + dots[1], f32x16);
    f32x16 first = __builtin_convertvector(dots[0], f32x16);
    if (parts_of(matrix) == 1) return first;
    return fma16(__builtin_convertvector(dots[1], f32x16), splat(1.0f / (float)steps), first);
}

#endif
