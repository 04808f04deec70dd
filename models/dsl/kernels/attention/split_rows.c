// Prepares keys and values for tiles. A variant for a dtype of caches defines NAME, Value and
// load_value. CPUs without tiles read keys and values as they are.
#include "isa/bf16.h"
#if BF16_TILES
#include "attention/split_rows.h"
#include "isa/transpose.h"

INLINE void store_parts(uint16_t *to, f32x16 x) {
    u16x16 parts = __builtin_convertvector(rounded(x) >> 16, u16x16);
    __builtin_memcpy(to, &parts, sizeof parts);
}

INLINE void store_lanes(uint16_t *to, f32x16 pairs) { __builtin_memcpy(to, &pairs, sizeof pairs); }

// Where a group's part of a block begins, in bf16.
typedef struct {
    uint16_t *to;
    size_t groups, group_parts, width, count;  // rows of the block that exist
} Target;

// Rows are read from their first column to their last one, as the CPU fetches them.
INLINE void split_keys(const Target *target, const Value *key) {
    size_t columns = key_columns(target->width), stride = target->groups * target->width;
    for (size_t k = 0; k < BLOCK; k++)
        for (size_t group = 0; group < target->groups; group++) {
            uint16_t *to = target->to + group * target->group_parts + k * columns;
            for (size_t d = 0; d < columns; d += LANES) {
                const Value *from = key + k * stride + group * target->width + d;
                int exists = k < target->count && d < target->width;
                f32x16 x = exists ? load_value(from) : (f32x16){};
                store_parts(to + d, x);
                store_parts(to + BLOCK * columns + d, remainder_of(x));
            }
        }
}

// Sixteen columns of TILE_KEYS rows; `count` rows exist. Fetches later columns.
INLINE void split_tile(uint16_t *to, const Value *value, size_t stride, size_t count) {
    enum { AHEAD = 8 * LANES };
    f32x16 upper[LANES], lower[LANES];
    for (size_t i = 0; i < LANES; i++) {
        f32x16 x[2];
        for (size_t j = 0; j < 2; j++) {
            const Value *from = value + (2 * i + j) * stride;
            x[j] = 2 * i + j < count ? load_value(from) : (f32x16){};
            __builtin_prefetch(from + AHEAD, 0, NEAREST);
        }
        upper[i] = pair(x[0], x[1]);
        lower[i] = pair(remainder_of(x[0]), remainder_of(x[1]));
    }
    transpose16(upper), transpose16(lower);
    for (size_t i = 0; i < LANES; i++) {
        store_lanes(to + i * TILE_KEYS, upper[i]);
        store_lanes(to + TILE_PARTS + i * TILE_KEYS, lower[i]);
    }
}

INLINE void split_values(const Target *target, const Value *value) {
    size_t width = target->width, stride = target->groups * width;
    for (size_t k = 0; k < BLOCK; k += TILE_KEYS)
        for (size_t group = 0; group < target->groups; group++)
            for (size_t d = 0; d < width; d += LANES)
                split_tile(target->to + group * target->group_parts + key_parts(width) +
                               2 * (k * width + d * TILE_KEYS),
                           value + k * stride + group * width + d, stride,
                           target->count > k ? target->count - k : 0);
}
#endif

// Arguments of full_attention.c; `parts` is its scratch. A workgroup prepares a block of rows.
int NAME(const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value,
         size_t value_at, const int32_t *last, size_t last_at, float *parts, size_t parts_at,
         size_t workgroup, size_t groups, size_t width, size_t rows) {
    (void)query, (void)query_at;
#if BF16_TILES
    size_t blocks = (rows + BLOCK - 1) / BLOCK, each = block_parts(width);
    size_t begin = workgroup * BLOCK, end = least((size_t)last[last_at] + 1, rows);
    if (begin >= end) return 0;
    uint16_t *to = (uint16_t *)(parts + parts_at) + workgroup * each;
    const Target target = {to, groups, blocks * each, width, end - begin};
    split_keys(&target, key + key_at + begin * groups * width);
    split_values(&target, value + value_at + begin * groups * width);
#else
    (void)key, (void)key_at, (void)value, (void)value_at, (void)last, (void)last_at, (void)parts;
    (void)parts_at, (void)workgroup, (void)groups, (void)width, (void)rows;
#endif
    return 0;
}
