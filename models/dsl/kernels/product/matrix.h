// A matrix of integers, as models/dsl/matrix_format.py stores it.
//
// Knows how a group of columns becomes quads; nothing of what they are multiplied with.
//
//   block   sixteen rows of a matrix: the outputs that one pass computes
//   group   32 columns of a block; each row has a scale for a group, or for each half of one
//   quad    four columns of a group: 64 bytes, four of each row
//   super-block  two, four or eight groups that share a scale of each row, in place of these
//
//             columns  0  1  2  3 |  4  5  6  7 | ... | 28 29 30 31
//           row  0     a  a  a  a |  b  b  b  b |     |  h  h  h  h
//           row  1     a  a  a  a |  b  b  b  b |     |  h  h  h  h
//             ...         quad 0  |    quad 1   | ... |    quad 7
//           row 15     a  a  a  a |  b  b  b  b |     |  h  h  h  h
//
//   plane   some bits of all integers. Of a group it has, one after the other,
//             8 bits: eight quads
//             4 bits: four times 64 bytes, of quad i in the low nibbles, of quad i + 4 in the high
//             2 bits: twice 64 bytes, of quads 0 to 3 and 4 to 7, the first in the lowest bits
//             1 bit:  64 bytes, of quad i in bit i
//             digits in base 3: 64 bytes with five quads, 40 with three (models/dsl/base_three.py)
#ifndef HEARTH_MATRIX_H
#define HEARTH_MATRIX_H

#include "product/base_three.h"
#include "product/grid.h"

// A plane has `bits` bits of each integer, from bit `start` on. If `has_digits`, they are 0 to 2.
typedef struct {
    const uint8_t *bytes;
    int start, bits, has_digits;
} Plane;

// The bits of an integer are stored in at most two planes; `missing` is half of the range of bits
// that are not stored. Products read integers of `bits` bits: 2 to 7 are unsigned, 8 and 12 are
// signed; of 12, the second plane has the upper eight. If there are `values`, sixteen signed bytes,
// an integer of four bits is an index into them, and `bits` is 5, 7 or 8. If there is a grid, it
// has the lowest bits of integers of three or four, and a plane may have the highest.
//
// The group that comes `ahead` of one that is read is fetched, but none after `last`, which is 0 if
// groups are not read in order: into the second cache if `to_second`, else into the first.
typedef struct {
    int bits;
    Grid grid;
    const uint8_t *index, *extra;
    Plane planes[2];
    int missing;
    const int8_t *values;
    size_t ahead, last;
    int to_second;
} Integers;

// Where all groups of a block are read one after the other, the group that is fetched, or half as
// far of planes of 8 bits. A mapped file has small pages, at whose ends a CPU's own fetching stops;
// and a thread that multiplies many rows by one group is late for the next. Nothing is fetched
// after the call's last group: another thread reads it. Bytes are fetched into the first cache:
// two cores of a Zen 4 then read 49 to 61 GB/s, and 39 to 43 into the second.
#if defined(__x86_64__)
enum { AHEAD = 16 };
#else
enum { AHEAD = 32 };
#endif

INLINE void fetch_lines(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)from + at, 0, FIRST_CACHE);
}

INLINE void fetch_lines_to_second(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)from + at, 0, SECOND_CACHE);
}

// Fetches the bytes of a later group than `group` of an array that has `bytes` in each.
INLINE void fetch_group(const void *array, size_t bytes, size_t group, const Integers *of) {
    size_t ahead = bytes == GROUP * ROWS && of->ahead == AHEAD ? AHEAD / 2 : of->ahead;
    const char *from = (const char *)array + least(group + ahead, of->last) * bytes;
    if (of->last && of->to_second) fetch_lines_to_second(from, bytes);
    if (of->last && !of->to_second) fetch_lines(from, bytes);
}

// The bytes that a plane has in a group.
INLINE size_t group_bytes(Plane plane) {
    return plane.has_digits ? DIGIT_BYTES : (size_t)(GROUP * ROWS / 8 * plane.bits);
}

// The bits of `mask` of each byte, moved up. On x86, bytes are shifted in pairs: with shifts of
// bytes, compilers multiply by a bit matrix, which on Zen 4 waits for the pipes of all other
// products.
INLINE Bytes moved_up(Bytes bits, int up, uint8_t mask) {
#if defined(__x86_64__)
    u16x32 pairs = (u16x32)bits;
    bits = (Bytes)(up < 0 ? pairs >> -up : pairs << up);
#else
    bits = up < 0 ? bits >> -up : bits << up;
#endif
    return bits & mask;
}

// Adds the bits of a plane of 1, 2 or 4 bits to each quad of a group.
INLINE void add_plane(Bytes quads[QUADS], Plane plane, size_t group, const Integers *of) {
    int in_byte = 8 / plane.bits, mask = ((1 << plane.bits) - 1) << plane.start;
    fetch_group(plane.bytes, group_bytes(plane), group, of);
    if (plane.has_digits) {
        set_digits(quads, plane.bytes + group * group_bytes(plane));
        return;
    }
    for (int byte = 0; byte < plane.bits; byte++) {
        Bytes bits;
        const uint8_t *from = plane.bytes + group * group_bytes(plane);
        __builtin_memcpy(&bits, from + (size_t)byte * sizeof bits, sizeof bits);
        for (int i = 0; i < in_byte; i++) {
            // A byte of 4-bit planes has quads i and i + 4, of other planes neighboring quads.
            int quad = plane.bits == 4 ? byte + 4 * i : byte * in_byte + i;
            int up = plane.start - i * plane.bits;
            quads[quad] |= moved_up(bits, up, (uint8_t)mask);
        }
    }
}

// The integers of a group that a grid and signs have, as its quads.
INLINE void set_grid(Bytes quads[QUADS], const Integers *from, size_t group) {
    const Grid *grid = &from->grid;
    size_t indices = index_bytes(grid), extra = (size_t)(grid->extra_bytes * ROWS);
    fetch_group(from->index, indices, group, from);
    if (from->extra) fetch_group(from->extra, extra, group, from);
    u32x16 bits = from->extra ? extra_bits(grid, from->extra, group) : (u32x16){};
    set_levels(quads, grid, from->index + group * indices, from->extra + group * extra);
    if (grid->has_offsets) add_offsets(quads, grid, bits);
    if (!from->planes[0].bits) return;
    Bytes signs = with_even_signs(bits);
    if (grid->extra_bytes != SIGN_BYTES) {
        const uint8_t *stored = from->planes[0].bytes + group * sizeof signs;
        fetch_group(from->planes[0].bytes, sizeof signs, group, from);
        __builtin_memcpy(&signs, stored, sizeof signs);
    }
    add_signs(quads, signs, from->planes[0].start);
}

// Where the bytes of the quads are, if a plane has 8 bits; else 0.
INLINE const int8_t *stored_quads(Integers from) {
    if (from.planes[0].bits == 8) return (const int8_t *)from.planes[0].bytes;
    return from.planes[1].bits == 8 ? (const int8_t *)from.planes[1].bytes : 0;
}

// The quads of the lower four bits of a group of integers of 12 bits: 0 to 15.
INLINE void unpack_low(Bytes quads[QUADS], Integers from, size_t group) {
    for (int i = 0; i < QUADS; i++) quads[i] = (Bytes){};
    add_plane(quads, from.planes[0], group, &from);
}

// The quads of a group; of 12 bits, the upper eight. `offset` is added to values.
INLINE void unpack(Quad quads[QUADS], Integers from, size_t group, int offset) {
    const int8_t *stored = stored_quads(from);
    if (stored) {
        fetch_group(stored, GROUP * ROWS, group, &from);
        for (int i = 0; i < QUADS; i++)
            __builtin_memcpy(&quads[i], stored + group * GROUP * ROWS + i * sizeof(Quad),
                             sizeof(Quad));
        return;
    }
    Bytes bits[QUADS];
    if (from.grid.count) {
        set_grid(bits, &from, group);
    } else {
        for (int i = 0; i < QUADS; i++) bits[i] = (Bytes){};
        add_plane(bits, from.planes[0], group, &from);
    }
    if (from.planes[1].bits) add_plane(bits, from.planes[1], group, &from);
    for (int i = 0; i < QUADS; i++) {
        if (from.missing) bits[i] |= (uint8_t)from.missing;
        if (from.values) bits[i] = look_up(bits[i], from.values, offset);
        quads[i] = (Quad)bits[i];
    }
}

// A matrix of `groups` groups a row: integers less `zero`, times a scale for every group or for
// every half of a group (`halves`), divided by `steps`, plus a minimum for each scale if there are
// minimums. A scale is an f16 or an f32, or one byte, the exponent of a power of two. If
// `super_groups` is not 0, this many groups, a super-block, share the scale and the minimum. If
// `multiplier_bits` is not 0, a group or a half has integers that multiply them: of 8 bits,
// for the scales of sixteen rows, then for their minimums, or of 4 bits, in the low and high
// nibbles. Without minimums, nibbles are of the halves of a group; each number n stands for
// 2 n + 1. If `has_floats`, multipliers of 8 bits are floats E4M3 without a sign. If `one_part`,
// only the first part of activations is multiplied; there are no minimums then.
typedef struct {
    Integers integers;
    const void *scale;
    const _Float16 *minimum;
    const int8_t *multiplier;
    int zero, halves, steps, super_groups, multiplier_bits, has_floats, one_part;
    size_t groups, scale_size;
} Matrix;

// The scales and minimums of sixteen rows.
typedef struct {
    f32x16 scale, minimum;
} Factors;

// The scales of a row.
INLINE size_t scales_of_row(const Matrix *matrix) {
    size_t super = (size_t)matrix->super_groups;
    return super ? (matrix->groups + super - 1) / super : matrix->groups * (matrix->halves ? 2 : 1);
}

// The bytes of a scale of sixteen rows.
INLINE size_t scale_bytes(const Matrix *matrix) { return ROWS * matrix->scale_size; }

// The bytes of the multipliers of a group.
INLINE size_t multiplier_bytes(const Matrix *matrix) {
    int factors = (matrix->minimum ? 2 : 1) * (matrix->halves ? 2 : 1);
    return (size_t)(factors * matrix->multiplier_bits / 8 * ROWS);
}

// The scales of a group, or a half of it, by the integers that multiply them.
INLINE Factors multiplied(Factors factors, const Matrix *matrix, size_t group, int half) {
    const int8_t *from = matrix->multiplier + group * multiplier_bytes(matrix);
    const Integers *integers = &matrix->integers;
    int bits = matrix->multiplier_bits, has_minimum = matrix->minimum != 0;
    if (integers->grid.multiplier_bits)
        factors.scale *= odd_multipliers(&integers->grid, integers->extra, group);
    if (bits == 4 && !has_minimum) factors.scale *= widen_nibbles(from, 4 * half) * 2 + 1;
    if (bits == 4 && has_minimum) {
        from += half * ROWS;
        factors.scale *= widen_nibbles(from, 0);
        factors.minimum *= widen_nibbles(from, 4);
    }
    if (bits == 8) {
        from += half * (has_minimum ? 2 : 1) * ROWS;
        factors.scale *= matrix->has_floats ? widen_e4m3((const uint8_t *)from) : widen_i8(from);
        if (has_minimum) factors.minimum *= widen_i8(from + ROWS);
    }
    return factors;
}

// The scales and minimums of a group of a block, or of a half of it.
INLINE Factors factors_of(const Matrix *matrix, size_t block, size_t group, int half) {
    size_t part = (block * matrix->groups + group) * (matrix->halves ? 2 : 1) + half, at = part;
    int super = matrix->super_groups;
    if (super) at = block * scales_of_row(matrix) + group / (size_t)super;
    Factors factors = {};
    if (matrix->scale_size == 1)
        factors.scale = widen_exponents((const uint8_t *)matrix->scale + at * ROWS);
    else if (matrix->scale_size == sizeof(float))
        factors.scale = load((const float *)matrix->scale + at * ROWS);
    else
        factors.scale = widen((const _Float16 *)matrix->scale + at * ROWS);
    factors.scale *= 1.0f / (float)matrix->steps;
    if (matrix->minimum) factors.minimum = widen(matrix->minimum + at * ROWS);
    return multiplied(factors, matrix, block * matrix->groups + group, half);
}

// Fetches the scales and multipliers of a block, but no minimums.
INLINE void fetch_block_factors(const Matrix *matrix, size_t block) {
    size_t bytes = scales_of_row(matrix) * scale_bytes(matrix);
    fetch_lines((const char *)matrix->scale + block * bytes, bytes);
    if (!matrix->multiplier_bits) return;
    bytes = matrix->groups * multiplier_bytes(matrix);
    fetch_lines(matrix->multiplier + block * bytes, bytes);
}

// Fetches what `factors_of` reads for a later group than `at`.
INLINE void fetch_factors(const Matrix *matrix, size_t at) {
    size_t halves = matrix->halves ? 2 : 1;
    const Integers *of = &matrix->integers;
    if (matrix->multiplier_bits) fetch_group(matrix->multiplier, multiplier_bytes(matrix), at, of);
    if (matrix->super_groups) return;
    fetch_group(matrix->scale, halves * scale_bytes(matrix), at, of);
    if (matrix->minimum) fetch_group(matrix->minimum, halves * ROWS * sizeof(_Float16), at, of);
}

// Fetches what is stored of a later group than `at`, without scales of super-blocks.
INLINE void fetch_all(const Matrix *matrix, size_t at) {
    const Integers *of = &matrix->integers;
    for (int i = 0; i < 2; i++) {
        Plane plane = of->planes[i];
        if (plane.bits) fetch_group(plane.bytes, group_bytes(plane), at, of);
    }
    if (of->grid.count) fetch_group(of->index, index_bytes(&of->grid), at, of);
    if (of->extra) fetch_group(of->extra, (size_t)(of->grid.extra_bytes * ROWS), at, of);
    fetch_factors(matrix, at);
}

// A variant of a kernel for a format of matrices defines, as models/dsl/kernel_sources.py does:
//
//   BITS            bits of an integer, as products take it
//   GRID            a Grid, of zeros if there is none; GRIDS: its arrays, 2 with extra bits
//   EXTRA           where extra bits are: NONE, APART, or SIGNS, beside the signs in plane0
//   PLANES          0 to 2; PLANE0 and PLANE1 are the rest of each Plane: 0, 4, 0
//   MISSING, ZERO   half the range of the bits that no plane has; what stands for 0
//   VALUES          the values that integers number, or 0
//   HALVES, MINIMUM whether each half of a group has a scale; whether each scale has a minimum
//   STEPS           the steps of an integer that equal one scale
//   SCALE           the type of scales: uint8_t has exponents of two
//   SUPER_GROUPS    groups that share a scale; 0 if each has its own
//   MULTIPLIER_BITS bits of the integers that multiply the scales of super-blocks: 0, 4 or 8
//   MULTIPLIER_FLOATS  whether these are floats
//
// MATRIX_ARRAYS are the arguments of a function for the arrays of a matrix, MATRIX(columns) is the
// matrix that they are.
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define ARRAY(type, name) const type *name, size_t name##_at
#define GRID_ARRAYS_0
#define GRID_ARRAYS_1 ARRAY(uint8_t, index),
#define GRID_ARRAYS_2 GRID_ARRAYS_1 ARRAY(uint8_t, extra),
#define PLANE_ARRAYS_0
#define PLANE_ARRAYS_1 ARRAY(uint8_t, plane0),
#define PLANE_ARRAYS_2 PLANE_ARRAYS_1 ARRAY(uint8_t, plane1),
#define MINIMUM_ARRAY_0
#define MINIMUM_ARRAY_1 , ARRAY(_Float16, minimum)
#define MULTIPLIER_ARRAY_0
#define MULTIPLIER_ARRAY_4 , ARRAY(int8_t, multiplier)
#define MULTIPLIER_ARRAY_8 MULTIPLIER_ARRAY_4
#define MATRIX_ARRAYS           \
    JOIN(GRID_ARRAYS_, GRIDS)   \
    JOIN(PLANE_ARRAYS_, PLANES) \
    ARRAY(SCALE, scale) JOIN(MINIMUM_ARRAY_, MINIMUM) JOIN(MULTIPLIER_ARRAY_, MULTIPLIER_BITS)
#define INDEX_OF_0 0
#define INDEX_OF_1 index + index_at
#define INDEX_OF_2 INDEX_OF_1
#define EXTRA_OF_NONE 0
#define EXTRA_OF_APART extra + extra_at
#define EXTRA_OF_SIGNS plane0 + plane0_at
#define PLANES_OF_0 \
    {               \
    }
#define PLANES_OF_1                    \
    {                                  \
        {                              \
            plane0 + plane0_at, PLANE0 \
        }                              \
    }
#define PLANES_OF_2                                                  \
    {                                                                \
        {plane0 + plane0_at, PLANE0}, { plane1 + plane1_at, PLANE1 } \
    }
#define MINIMUM_OF_0 0
#define MINIMUM_OF_1 minimum + minimum_at
#define MULTIPLIER_OF_0 0
#define MULTIPLIER_OF_4 multiplier + multiplier_at
#define MULTIPLIER_OF_8 MULTIPLIER_OF_4
#define MATRIX(columns)                                   \
    {.integers = {.bits = BITS,                           \
                  .grid = GRID,                           \
                  .index = JOIN(INDEX_OF_, GRIDS),        \
                  .extra = JOIN(EXTRA_OF_, EXTRA),        \
                  .planes = JOIN(PLANES_OF_, PLANES),     \
                  .missing = MISSING,                     \
                  .values = VALUES},                      \
     .scale = scale + scale_at,                           \
     .minimum = JOIN(MINIMUM_OF_, MINIMUM),               \
     .multiplier = JOIN(MULTIPLIER_OF_, MULTIPLIER_BITS), \
     .zero = ZERO,                                        \
     .halves = HALVES,                                    \
     .steps = STEPS,                                      \
     .super_groups = SUPER_GROUPS,                        \
     .multiplier_bits = MULTIPLIER_BITS,                  \
     .has_floats = MULTIPLIER_FLOATS,                     \
     .groups = (columns) / GROUP,                         \
     .scale_size = sizeof(SCALE)}

#endif
