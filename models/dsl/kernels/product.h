// Rows of f32 times sixteen rows of a matrix in groups, which the kernels of products share.
//
// Of the rows each group becomes a scale and one or two int8 parts, 8 or 16 bits. Their products
// with the weights are exact in i32, and are summed over the groups in f32, always in the same
// order: a row's result does not depend on the other rows.
#ifndef HEARTH_PRODUCT_H
#define HEARTH_PRODUCT_H

#include "dot.h"

// PANEL groups of AT_ONCE rows take 44 KiB of stack: a worker has 128.
enum { PARTS = 2, AT_ONCE = 8, PANEL = 64 };

// Some groups of some rows of x: x ~ scale * (q[0] + q[1] / 254). A product of integers starts at
// `start`, for each half of a group or once for the group; `total` is the sum of the group's x.
typedef struct {
    int8_t q[PANEL][AT_ONCE][PARTS][GROUP];
    int32_t start[PANEL][AT_ONCE][PARTS][2];
    float scale[PANEL][AT_ONCE], total[PANEL][AT_ONCE];
} Activations;

// A matrix of `groups` groups a row: integers of less than 8 bits less `zero`, times a scale for
// every group or for every half of a group, plus a minimum for every group if there are minimums.
typedef struct {
    Integers integers;
    const _Float16 *scale, *minimum;
    int zero, halves;
    size_t groups;
} Matrix;

INLINE void quantise(Activations *to, size_t group, size_t row, const float *x,
                     const Matrix *matrix) {
    typedef int8_t i8x16 __attribute__((vector_size(16)));
    f32x16 halves[2] = {load(x), load(x + LANES)}, parts[2][PARTS];
    float top = largest(__builtin_elementwise_max(__builtin_elementwise_abs(halves[0]),
                                                  __builtin_elementwise_abs(halves[1])));
    if (top < 0x1p-100f) top = 0x1p-100f;
    for (int i = 0; i < 2; i++) {
        f32x16 scaled = halves[i] * (127.0f / top);
        parts[i][0] = __builtin_elementwise_roundeven(scaled);
        parts[i][1] = __builtin_elementwise_roundeven((scaled - parts[i][0]) * 254.0f);
        for (int part = 0; part < PARTS; part++) {
            i8x16 integers = __builtin_convertvector(parts[i][part], i8x16);
            __builtin_memcpy(&to->q[group][row][part][i * LANES], &integers, sizeof integers);
        }
    }
    int offset = matrix->integers.bits < 8 ? matrix->zero : DOT_OFFSET;
    for (int part = 0; part < PARTS; part++) {
        int32_t *start = to->start[group][row][part];
        start[0] = -offset * (int32_t)sum(parts[0][part] + parts[1][part]);
        if (matrix->halves) {
            start[0] = -offset * (int32_t)sum(parts[0][part]);
            start[1] = -offset * (int32_t)sum(parts[1][part]);
        }
    }
    float scale = to->scale[group][row] = top * (1.0f / 127.0f);
    if (matrix->minimum) {
        f32x16 first = parts[0][0] + parts[1][0], second = parts[0][1] + parts[1][1];
        to->total[group][row] = (sum(first) + sum(second) * (1.0f / 254.0f)) * scale;
    }
}

// Groups `begin` to `end` of `rows` rows of x.
INLINE void quantise_panel(Activations *to, size_t rows, size_t begin, size_t end, const float *x,
                           const Matrix *matrix) {
    for (size_t group = begin; group < end; group++)
        for (size_t row = 0; row < rows; row++)
            quantise(to, group - begin, row, x + (row * matrix->groups + group) * GROUP, matrix);
}

// The exact sums of the products of some quads with a part of a group of x, as f32.
INLINE f32x16 dot(const Quad *quads, int count, const int8_t *x, int32_t start, int is_small) {
    i32x16 exact = (i32x16){} + start;
    for (int i = 0; i < count; i++)
        exact = is_small ? dot_small(exact, quads[i], x + i * QUAD)
                         : dot_quad(exact, quads[i], x + i * QUAD);
    return __builtin_convertvector(exact, f32x16);
}

// Sixteen outputs, those of a block of the matrix, of each of `rows` rows, over the groups `begin`
// to `end`; they are added to unless `begin` is 0.
INLINE void multiply(const Activations *x, int rows, int parts, const Matrix *matrix, size_t block,
                     size_t begin, size_t end, float *out, size_t stride) {
    int scales = matrix->halves ? 2 : 1, quads_each = QUADS / scales;
    int is_small = matrix->integers.bits < 8;
    f32x16 sums[AT_ONCE];
    for (int row = 0; row < rows; row++) sums[row] = begin ? load(out + row * stride) : (f32x16){};
    for (size_t group = begin; group < end; group++) {
        size_t at = block * matrix->groups + group, own = group - begin;
        f32x16 scale[2], minimum = {};
        for (int i = 0; i < scales; i++) scale[i] = widen(matrix->scale + (at * scales + i) * ROWS);
        if (matrix->minimum) minimum = widen(matrix->minimum + at * ROWS);
        if (is_small) fetch_group(matrix->scale + at * scales * ROWS, scales * ROWS * 2);
        if (matrix->minimum) fetch_group(matrix->minimum + at * ROWS, ROWS * 2);
        Quad quads[QUADS];
        unpack(quads, matrix->integers, at);
#pragma clang loop unroll(full)
        for (int row = 0; row < rows; row++) {
            for (int i = 0; i < scales; i++) {
                f32x16 dots[PARTS];
                for (int part = 0; part < parts; part++)
                    dots[part] = dot(quads + i * quads_each, quads_each,
                                     x->q[own][row][part] + i * quads_each * QUAD,
                                     x->start[own][row][part][i], is_small);
                if (parts == 2) dots[0] = fma16(dots[1], (f32x16){} + 1.0f / 254.0f, dots[0]);
                sums[row] = fma16(dots[0], scale[i] * x->scale[own][row], sums[row]);
            }
            if (matrix->minimum)
                sums[row] = fma16(minimum, (f32x16){} + x->total[own][row], sums[row]);
        }
    }
    for (int row = 0; row < rows; row++) store(out + row * stride, sums[row]);
}

// All rows of x, f32 (rows, columns), times the blocks `begin` to `end` of a matrix: out has
// `stride` floats a row.
INLINE void multiply_all(const float *x, size_t rows, int parts, const Matrix *matrix, size_t begin,
                         size_t end, float *out, size_t stride) {
    Activations panel;
    size_t all = matrix->groups;
    for (size_t row = 0, count; row < rows; row += count) {
        size_t left = rows - row;
        count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (size_t first = 0; first < all; first += PANEL) {
            size_t last = least(first + PANEL, all);
            quantise_panel(&panel, count, first, last, x + row * all * GROUP, matrix);
            for (size_t block = begin; block < end; block++) {
                float *to = out + row * stride + block * ROWS;
                if (count == 8) multiply(&panel, 8, parts, matrix, block, first, last, to, stride);
                if (count == 4) multiply(&panel, 4, parts, matrix, block, first, last, to, stride);
                if (count == 2) multiply(&panel, 2, parts, matrix, block, first, last, to, stride);
                if (count == 1) multiply(&panel, 1, parts, matrix, block, first, last, to, stride);
            }
        }
    }
}

#endif
