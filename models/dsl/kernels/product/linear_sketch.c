// Multiplies rows of f32 with the signs of a matrix: op `linear_sketch`.
//
// Rows are rounded to 8 bits for each super-block of four groups, so that its products are summed
// before they are scaled. A sign is multiplied where it is in half a byte: four sums have 1, 2, 4
// and 8 times the products of two quads of each group.
#include "product/product.h"

enum { SUPER_GROUPS = 4, PLACES = 4 };

// A rounded row: integers, and for each super-block their sum and their scale.
typedef struct {
    _Alignas(64) int8_t q[CELLS][GROUP];
    int32_t total[CELLS / SUPER_GROUPS];
    float scale[CELLS / SUPER_GROUPS];
} RoundedRow;

// Rounds `groups` groups of x as a super-block.
INLINE void round_super_block(RoundedRow *to, size_t super, const float *x, size_t groups) {
    f32x16 magnitudes = splat(0x1p-100f), sums = {};
    for (size_t at = 0; at < groups * GROUP; at += LANES)
        magnitudes = __builtin_elementwise_max(magnitudes, __builtin_elementwise_abs(load(x + at)));
    float top = largest(magnitudes), inverse = 127.0f / top;
    int8_t *q = to->q[super * SUPER_GROUPS];
    for (size_t at = 0; at < groups * GROUP; at += LANES) {
        f32x16 shifted = load(x + at) * inverse + ROUNDER;
        i8x16 bytes = __builtin_convertvector((i32x16)shifted, i8x16);
        __builtin_memcpy(q + at, &bytes, sizeof bytes);
        sums += shifted - ROUNDER;
    }
    to->total[super] = (int32_t)sum(sums);
    to->scale[super] = top * (1.0f / 127.0f);
}

// Adds the products of a group of x with bits: bit i of a byte is of quad i.
INLINE void dot_bits(i32x16 sums[PLACES], Bytes bits, const int8_t *x) {
#ifdef DOT_RUNS
    Quad quads[QUADS];
    i32x16 dots;
    int32_t start = 0;
    for (int i = 0; i < QUADS; i++) quads[i] = (Quad)(bits >> i & 1);
    dot_run(&dots, 1, (Run){0, QUADS, 2, (const int8_t *)quads, 0, 0}, x, &start);
    sums[0] += dots;
#else
    Bytes upper = moved_up(bits, -PLACES, 15);
    UNROLL
    for (int i = 0; i < PLACES; i++) {
        Quad first = (Quad)(bits & (uint8_t)(1 << i)), second = (Quad)(upper & (uint8_t)(1 << i));
        dot_small(&sums[i], 1, &first, 1, x + i * QUAD, PLACES);
        dot_small(&sums[i], 1, &second, 1, x + (PLACES + i) * QUAD, PLACES);
    }
#endif
}

// Adds the products of `count` groups from group `at` of a matrix on with x.
INLINE void dot_groups(i32x16 sums[PLACES], const uint8_t *signs, size_t at, size_t count,
                       const int8_t *x, const Integers *soon) {
    for (size_t i = 0; i < count; i++) {
        Bytes bits;
        fetch_group(signs, sizeof bits, at + i, soon);
        __builtin_memcpy(&bits, signs + (at + i) * sizeof bits, sizeof bits);
        dot_bits(sums, bits, x + i * GROUP);
    }
}

// x f32 (rows, columns), signs (outputs / 16, columns / 32, 1, 64), scale f16 (outputs / 16,
// columns / 128, 16), out f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs
// of `rows_each` rows.
int NAME(const float *x, size_t x_at, const uint8_t *signs, size_t signs_at, const _Float16 *scale,
         size_t scale_at, float *out, size_t out_at, size_t workgroup, size_t blocks,
         size_t rows_each, size_t rows, size_t outputs, size_t columns) {
    RoundedRow row;
    size_t groups = columns / GROUP, supers = (groups + SUPER_GROUPS - 1) / SUPER_GROUPS;
    Share share = share_of(workgroup, blocks, rows_each, rows, outputs);
    Integers soon = {.ahead = AHEAD, .last = share.end * groups - 1};
    signs += signs_at, scale += scale_at;
    x += x_at + share.row * columns, out += out_at + share.row * outputs;
    for (size_t left = share.rows; left; left--, x += columns, out += outputs) {
        for (size_t first = 0; first < groups; first += SUPER_GROUPS)
            round_super_block(&row, first / SUPER_GROUPS, x + first * GROUP,
                              least(SUPER_GROUPS, groups - first));
        for (size_t block = share.begin; block < share.end; block++) {
            f32x16 result = {};
            for (size_t super = 0; super < supers; super++) {
                i32x16 sums[PLACES] = {};
                size_t first = super * SUPER_GROUPS, count = least(SUPER_GROUPS, groups - first);
                size_t at = block * groups + first;
                if (count == SUPER_GROUPS)
                    dot_groups(sums, signs, at, SUPER_GROUPS, row.q[first], &soon);
                else
                    dot_groups(sums, signs, at, count, row.q[first], &soon);
                // A set bit is 1, and another one -1.
                i32x16 products = sums[0] + (sums[1] >> 1) + (sums[2] >> 2) + (sums[3] >> 3);
                i32x16 signed_sums = products * 2 - row.total[super];
                f32x16 factor = widen(scale + (block * supers + super) * ROWS) * row.scale[super];
                result = fma16(__builtin_convertvector(signed_sums, f32x16), factor, result);
            }
            store(out + block * ROWS, result);
        }
    }
    return 0;
}
