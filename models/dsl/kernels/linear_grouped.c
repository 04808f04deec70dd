// Rows of f32 times a matrix of int8 in groups of 32 columns: op `linear_grouped`.
//
// Of the rows each group becomes a scale and two int8 parts, 16 bits in all. Their products with
// the weights are exact in i32, and are summed over the groups in f32, always in the same order: a
// row's result does not depend on the other rows.
#include "dot.h"

// PANEL groups of AT_ONCE rows take 38 KiB of stack: a worker has 128.
enum { QUADS = GROUP / QUAD, PARTS = 2, AT_ONCE = 8, PANEL = 64 };

// Some groups of some rows of x: x ~ scale * (q[0] + q[1] / 254).
typedef struct {
    int8_t q[PANEL][AT_ONCE][PARTS][GROUP];
    int32_t start[PANEL][AT_ONCE][PARTS];
    float scale[PANEL][AT_ONCE];
} Activations;

INLINE void quantise(Activations *to, size_t group, size_t row, const float *x) {
    typedef int8_t i8x16 __attribute__((vector_size(16)));
    f32x16 halves[2] = {load(x), load(x + LANES)}, sums[PARTS] = {};
    float top = largest(__builtin_elementwise_max(__builtin_elementwise_abs(halves[0]),
                                                  __builtin_elementwise_abs(halves[1])));
    if (top < 0x1p-100f) top = 0x1p-100f;
    for (int i = 0; i < 2; i++) {
        f32x16 scaled = halves[i] * (127.0f / top);
        f32x16 parts[PARTS] = {__builtin_elementwise_roundeven(scaled)};
        parts[1] = __builtin_elementwise_roundeven((scaled - parts[0]) * 254.0f);
        for (int part = 0; part < PARTS; part++) {
            i8x16 integers = __builtin_convertvector(parts[part], i8x16);
            __builtin_memcpy(&to->q[group][row][part][i * LANES], &integers, sizeof integers);
            sums[part] += parts[part];
        }
    }
    for (int part = 0; part < PARTS; part++)
        to->start[group][row][part] = DOT_START((int32_t)sum(sums[part]));
    to->scale[group][row] = top * (1.0f / 127.0f);
}

// Sixteen outputs of each of `rows` rows; they are added to, unless the panel is the first.
INLINE void multiply(const Activations *x, int rows, size_t groups, const int8_t *weight,
                     const _Float16 *scale, float *out, size_t stride, int first) {
    f32x16 sums[AT_ONCE];
    for (int row = 0; row < rows; row++) sums[row] = first ? (f32x16){} : load(out + row * stride);
    for (size_t group = 0; group < groups; group++) {
        f32x16 scales = widen(scale + group * ROWS);
        const int8_t *quads = weight + group * GROUP * ROWS;
#pragma clang loop unroll(full)
        for (int row = 0; row < rows; row++) {
            f32x16 parts[PARTS];
            for (int part = 0; part < PARTS; part++) {
                i32x16 dots = (i32x16){} + x->start[group][row][part];
                for (int quad = 0; quad < QUADS; quad++)
                    dots = dot_quads(dots, quads + quad * QUAD * ROWS,
                                     x->q[group][row][part] + quad * QUAD);
                parts[part] = __builtin_convertvector(dots, f32x16);
            }
            f32x16 dots = fma16(parts[1], (f32x16){} + 1.0f / 254.0f, parts[0]);
            sums[row] = fma16(dots, scales * x->scale[group][row], sums[row]);
        }
    }
    for (int row = 0; row < rows; row++) store(out + row * stride, sums[row]);
}

// x f32 (rows, columns), weight and scale of (outputs, columns), out f32 (rows, outputs); a
// workgroup computes `blocks` times sixteen outputs of each row.
int hearth_linear_grouped(const float *x, size_t x_at, const int8_t *weight, size_t weight_at,
                          const _Float16 *scale, size_t scale_at, float *out, size_t out_at,
                          size_t workgroup, size_t blocks, size_t rows, size_t outputs,
                          size_t columns) {
    Activations panel;
    size_t all = columns / GROUP, begin = workgroup * blocks, end = begin + blocks;
    if (end > outputs / ROWS) end = outputs / ROWS;
    for (size_t row = 0, count; row < rows; row += count) {
        size_t left = rows - row;
        count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (size_t group = 0; group < all; group += PANEL) {
            size_t groups = all - group < PANEL ? all - group : PANEL;
            for (size_t i = 0; i < groups; i++)
                for (size_t j = 0; j < count; j++)
                    quantise(&panel, i, j, x + x_at + (row + j) * columns + (group + i) * GROUP);
            for (size_t block = begin; block < end; block++) {
                const int8_t *w = weight + weight_at + (block * all + group) * GROUP * ROWS;
                const _Float16 *s = scale + scale_at + (block * all + group) * ROWS;
                float *to = out + out_at + row * outputs + block * ROWS;
                if (count == 8) multiply(&panel, 8, groups, w, s, to, outputs, group == 0);
                if (count == 4) multiply(&panel, 4, groups, w, s, to, outputs, group == 0);
                if (count == 2) multiply(&panel, 2, groups, w, s, to, outputs, group == 0);
                if (count == 1) multiply(&panel, 1, groups, w, s, to, outputs, group == 0);
            }
        }
    }
    return 0;
}
