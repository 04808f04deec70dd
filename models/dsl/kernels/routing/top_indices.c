// The indices of the largest elements of rows: op `top_indices`.
#include "isa/vector.h"

// The most elements of a row, whose order is kept on the stack.
enum { MAX_EXTENT = 4096 };

// Integers in the order of sixteen floats: 0 and -0 are equal, and NaN is above infinity, or below
// -infinity if its sign is set. None of them is INT32_MIN, but for a NaN that no instruction makes.
INLINE i32x16 ordered(f32x16 x) {
    i32x16 bits = (i32x16)(x + 0.0f);
    return bits ^ (bits >> 31 & INT32_MAX);
}

// Lanes of `a` where a mask of all ones or zeros has ones, of `b` elsewhere.
INLINE i32x16 choose_integers(i32x16 mask, i32x16 a, i32x16 b) { return (a & mask) | (b & ~mask); }

// `count` indices of a row of `extent` elements, the largest first, of equal ones the first.
INLINE void find_largest(const float *row, size_t extent, int32_t *to, size_t count) {
    i32x16 order[MAX_EXTENT / LANES], lanes, none = (i32x16){} + INT32_MIN;
    size_t vectors = (extent + LANES - 1) / LANES;
    float last[LANES];
    for (int i = 0; i < LANES; i++) {
        size_t at = (vectors - 1) * LANES + (size_t)i;
        last[i] = at < extent ? row[at] : 0.0f;
        lanes[i] = i;
    }
    for (size_t i = 0; i + 1 < vectors; i++) order[i] = ordered(load(row + i * LANES));
    i32x16 is_there = lanes < (int32_t)(extent - (vectors - 1) * LANES);
    order[vectors - 1] = choose_integers(is_there, ordered(load(last)), none);
    for (size_t found = 0; found < count; found++) {
        i32x16 best = order[0], index = lanes;
        for (size_t i = 1; i < vectors; i++) {
            i32x16 larger = order[i] > best;
            best = choose_integers(larger, order[i], best);
            index = choose_integers(larger, lanes + (int32_t)(i * LANES), index);
        }
        i32x16 is_largest = best == (i32x16){} + __builtin_reduce_max(best);
        index = choose_integers(is_largest, index, (i32x16){} + INT32_MAX);
        size_t first = least((size_t)__builtin_reduce_min(index), extent - 1);
        to[found] = (int32_t)first;
        i32x16 *found_in = &order[first / LANES];
        *found_in = choose_integers(lanes == (int32_t)(first % LANES), none, *found_in);
    }
}

// x f32 (rows, extent), out i32 (rows, count). A workgroup has `share` rows.
int hearth_top_indices(const float *x, size_t x_at, int32_t *out, size_t out_at, size_t workgroup,
                       size_t share, size_t rows, size_t extent, size_t count) {
    size_t end = least(workgroup * share + share, rows);
    for (size_t row = workgroup * share; row < end; row++)
        find_largest(x + x_at + row * extent, extent, out + out_at + row * count, count);
    return 0;
}
