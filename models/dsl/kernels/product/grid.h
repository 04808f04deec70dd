// Levels of the columns of a group from a grid, a table of entries of four or eight columns.
//
// A matrix has indices into the grid and extra bits of each row in a group: the upper bits of its
// indices, the multiplier of its scale, offsets of its levels. Each 64 bytes of
// indices have the indices of four entries of rows 0 to 3, then of rows 4 to 7, and so on.
#ifndef HEARTH_GRID_H
#define HEARTH_GRID_H

#include "isa/lookup.h"

// Rows of a block, which are LANES; columns of a group, and of a quad; quads of a group.
enum { ROWS = 16, GROUP = 32, QUAD = 4, QUADS = GROUP / QUAD };

// Four columns of each of sixteen rows, row after row.
typedef int8_t Quad __attribute__((vector_size(QUAD * ROWS)));
// The same, unsigned; or the bytes of a plane, which have bits of several quads.
typedef Numbers Bytes;

// Where the extra bits of a row have something of its entries, or bits of a number: the first one
// from bit `start` on, each next one `stride` bits later.
typedef struct {
    int start, stride;
} Bits;

// A grid of `count` entries of `columns` columns, 4 or 8, as grid_tables.h has them: the lower byte
// of each and then the upper ones, and with a byte for each level. A row has `extra_bytes` of extra
// bits in a group: SIGN_BYTES are its signs; the signs of eighth columns are free for other bits.
// `upper` are the bits of an index above the lowest eight, `multiplier` the bits of n in 2 n + 1.
// `offset` is a bit that is added to the levels of an entry, above their bits.
typedef struct {
    const uint8_t *bytes;
    const uint64_t *levels;
    int count, columns, extra_bytes;
    Bits upper, multiplier;
    int multiplier_bits;
    Bits offset;
    int has_offsets;
} Grid;

enum { SIGN_BYTES = 4 };

// The bytes of the indices of a group.
INLINE size_t index_bytes(const Grid *grid) { return (size_t)(GROUP / grid->columns * ROWS); }

// The extra bits of sixteen rows in a group.
INLINE u32x16 extra_bits(const Grid *grid, const uint8_t *extra, size_t group) {
    u32x16 bits;
    const uint8_t *from = extra + group * (size_t)(grid->extra_bytes * ROWS);
    if (grid->extra_bytes == 1) return widen_u8(from);
    if (grid->extra_bytes == 2) return widen_u16(from);
    __builtin_memcpy(&bits, from, sizeof bits);
    return bits;
}

INLINE u32x16 moved(u32x16 bits, int up) { return up < 0 ? bits >> -up : bits << up; }

// The multipliers of sixteen rows in a group.
INLINE f32x16 odd_multipliers(const Grid *grid, const uint8_t *extra, size_t group) {
    u32x16 bits = extra_bits(grid, extra, group), twice = {};
    UNROLL
    for (int i = 0; i < grid->multiplier_bits; i++) {
        int at = grid->multiplier.start + i * grid->multiplier.stride;
        twice |= moved(bits, i + 1 - at) & (2u << i);
    }
    return __builtin_convertvector((i32x16)(twice | 1), f32x16);
}

// The bit of each byte of signs that is of a quad: an entry of eight columns has bits e and e + 4.
INLINE int sign_bit(int quad) { return quad / 2 + quad % 2 * 4; }

// The signs of a group, whose eighth columns have those that make the number of signs of each eight
// columns even: byte c of a row is of columns c of its quads.
INLINE Bytes with_even_signs(u32x16 stored) {
    u32x16 signs = stored & 0x0FFFFFFF, sums = signs ^ signs >> 16;
    sums ^= sums >> 8;
    sums ^= sums >> 4;
    return (Bytes)(signs | sums << 28);
}

// Adds the signs of a group above levels of `bits` bits: of two bits, at bit 2 or 3.
INLINE void add_signs(Bytes quads[QUADS], Bytes signs, int bits) {
    UNROLL
    for (int i = 0; i < QUADS; i++) {
        int from = sign_bit(i), to = bits == 2 ? 2 + from % 2 : bits, up = to - from;
        quads[i] |= (up < 0 ? signs >> -up : signs << up) & (uint8_t)(1 << to);
    }
}

// Adds the offsets of a group above levels of two bits.
INLINE void add_offsets(Bytes quads[QUADS], const Grid *grid, u32x16 extra) {
    UNROLL
    for (int i = 0; i < QUADS; i++) {
        int at = grid->offset.start + i / 2 * grid->offset.stride;
        quads[i] |= (Bytes)((extra >> at & 1) * 0x04040404);
    }
}

// Vectors of bytes that are permuted within each 16.
#define FOUR_LANES(order) order(0), order(16), order(32), order(48)
#define FOURTH(a) a, a + 4, a + 8, a + 12
#define PAIR(a) a, a + 64
#define PAIRS(a) PAIR(a), PAIR(a + 1), PAIR(a + 2), PAIR(a + 3)
#define LOWER_PAIRS(a) PAIRS(a), PAIRS(a + 4)
#define UPPER_PAIRS(a) PAIRS(a + 8), PAIRS(a + 12)

// The order of a shuffle that gives each of four entries of each of four rows the byte of extra
// bits that has the upper bits of its index. UPPER_IN_n: a row has n bytes of extra bits.
#define FOUR_TIMES(four) four, four, four, four
#define LOW_OF_2(a) a, a + 2, a + 4, a + 6
#define UPPER_IN_2(a) LOW_OF_2(a / 2), LOW_OF_2(a / 2), LOW_OF_2(a / 2 + 1), LOW_OF_2(a / 2 + 1)
#define NEXT_4(a) a, a + 1, a + 2, a + 3
#define UPPER_IN_1(a) FOUR_TIMES(NEXT_4(a / 4))
#define UPPER_IN_4(a) FOUR_TIMES(FOURTH(a + 3))

// The bits above the lowest eight of the indices of four entries from `entry` on, in the order of
// the lowest eight. `extra` are the extra bits of sixteen rows.
INLINE Bytes upper_bits(const Grid *grid, const uint8_t *extra, int entry) {
    u32x16 shifts, mask = (u32x16){} + (uint32_t)(grid->count / 256 - 1) * 0x01010101u;
    Bytes rows = {}, by_entry;
    UNROLL
    for (int i = 0; i < ROWS; i++)
        shifts[i] = (uint32_t)(grid->upper.start + (entry + i % 4) * grid->upper.stride) % 8;
    if (grid->extra_bytes == 1) {
        __builtin_memcpy(&rows, extra, ROWS);
        by_entry = __builtin_shufflevector(rows, rows, FOUR_LANES(UPPER_IN_1));
    } else if (grid->extra_bytes == 2) {
        __builtin_memcpy(&rows, extra, 2 * ROWS);
        by_entry = __builtin_shufflevector(rows, rows, FOUR_LANES(UPPER_IN_2));
    } else {
        __builtin_memcpy(&rows, extra, 4 * ROWS);
        by_entry = __builtin_shufflevector(rows, rows, FOUR_LANES(UPPER_IN_4));
    }
    return (Bytes)((u32x16)by_entry >> shifts & mask);
}

// A byte of `a` and one of `b` in turn, of the lower or the upper eight bytes of each 16.
INLINE Bytes interleave(Bytes a, Bytes b, int is_upper) {
    if (is_upper) return __builtin_shufflevector(a, b, FOUR_LANES(UPPER_PAIRS));
    return __builtin_shufflevector(a, b, FOUR_LANES(LOWER_PAIRS));
}

#ifdef HAS_LOOK_UP_MANY
#define TWICE(a) a, a
#define TWICE_2(a) TWICE(a), TWICE(a + 1)
#define LOWER_TWICE(a) TWICE_2(a / 2), TWICE_2(a / 2 + 2)
#define UPPER_TWICE(a) TWICE_2(a / 2 + 4), TWICE_2(a / 2 + 6)

// Each 16 bits twice, of the lower or the upper eight bytes of each 16.
INLINE u16x32 repeat(u16x32 from, int is_upper) {
    if (is_upper) return __builtin_shufflevector(from, from, FOUR_LANES(UPPER_TWICE));
    return __builtin_shufflevector(from, from, FOUR_LANES(LOWER_TWICE));
}

// Shifts words of 16 bits down, in turn by `first` and by `second` bits.
INLINE Bytes shifted(u16x32 from, uint32_t first, uint32_t second) {
    return (Bytes)(from >> (u16x32)((u32x16){} + (second << 16 | first)));
}

// The levels of four entries. The upper two columns of a quad are above the lower two, where those
// of the second quad of an entry of eight columns are still higher.
INLINE void look_up_levels(Bytes *quads, const Grid *grid, Bytes index, Bytes upper) {
    Bytes even = look_up_many(index, upper, grid->bytes, grid->count);
    Bytes odd = look_up_many(index, upper, grid->bytes + grid->count, grid->count);
    UNROLL
    for (int entry = 0; entry < 4; entry++) {
        u16x32 twice = repeat((u16x32)interleave(even, odd, entry / 2), entry % 2);
        if (grid->columns == QUAD) {
            quads[entry] = shifted(twice, 0, 4) & 7;
        } else {
            quads[2 * entry] = shifted(twice, 0, 2) & 3;
            quads[2 * entry + 1] = shifted(twice, 4, 6) & 3;
        }
    }
}

#endif

#ifdef HAS_GATHER
#define BY_ENTRY(a) NEXT_4(a / 4), NEXT_4(a / 4 + 16), NEXT_4(a / 4 + 32), NEXT_4(a / 4 + 48)

// The levels of four entries.
INLINE void gather_levels(Bytes *quads, const Grid *grid, const uint8_t *index, Bytes upper) {
    uint8_t low[sizeof upper], high[sizeof upper];
    Bytes lowest;
    __builtin_memcpy(&lowest, index, sizeof lowest);
    lowest = __builtin_shufflevector(lowest, lowest, FOUR_LANES(BY_ENTRY));
    upper = __builtin_shufflevector(upper, upper, FOUR_LANES(BY_ENTRY));
    __builtin_memcpy(low, &lowest, sizeof low);
    __builtin_memcpy(high, &upper, sizeof high);
    int each = grid->columns / QUAD;
    UNROLL
    for (int i = 0; i < 4 * each; i++) {
        u32x16 numbers = widen_u8(low + i / each * ROWS);
        if (grid->count > 256) numbers |= widen_u8(high + i / each * ROWS) << 8;
        quads[i] = (Bytes)gather(numbers, grid->levels, each == 1 ? 1 : i % 2);
    }
}
#endif

// Copies levels from the table. The loop keeps bytes in memory: joined in registers, as the
// compiler would have them, they take three times as long. Four numbers of 16 bits are loaded at
// once, because loads of what was just stored are slow.
#define COPY_LOOP _Pragma("clang loop vectorize(disable) unroll(full)")
#if defined(__ARM_NEON)
// Numbers are loaded eight at once, since loads are what takes longest, and two entries of eight
// columns are loaded to a register of vectors.
#define NUMBER(i) eight_of(index, i) >> 8 * ((i) % 8) & 0xFF
#define HIDE(number)
#define KEEP(levels)
#else
#define NUMBER(i) index[i]
// Hides from the compiler where a number comes from: otherwise it would gather levels.
#define HIDE(number) __asm__("" : "+r"(number))
#define KEEP(levels) __asm__("" : "+m"(levels))
#endif
#define WIDE_NUMBER(i) four_of(wide, i) >> 16 * ((i) % 4) & 0xFFFF
// Where the index of a row of one of four entries is: as stored, and interleaved.
#define STORED_AT(entry, row) (row) / 4 * 16 + (entry) * 4 + (row) % 4
#define INTERLEAVED_AT(entry, row) (entry) / 2 * 32 + (row) / 4 * 8 + (entry) % 2 * 4 + (row) % 4
// The row whose levels are copied at a position: the quads of two rows that follow each other are
// in each 16 bytes, so that two vectors of 32 bytes become one of each quad.
#define COPIED_ROW(i) (i) / 8 * 8 + (i) % 4 / 2 * 4 + (i) % 8 / 4 * 2 + (i) % 2

#define COPY_PAIRS(number, at)                                                      \
    COPY_LOOP                                                                       \
    for (int i = 0; i < 2 * ROWS; i++) {                                            \
        int entry = i / (ROWS / 2), row = i % (ROWS / 2) * 2;                       \
        size_t first = number(at(entry, row)), second = number(at(entry, row + 1)); \
        HIDE(first);                                                                \
        HIDE(second);                                                               \
        pairs[i] = lower[2 * first + 1] | upper[second];                            \
    }                                                                               \
    __asm__("" : "+m"(pairs));
#define COPY_LEVELS(number, at)                                    \
    COPY_LOOP                                                      \
    for (int i = 0; i < 4 * ROWS; i++) {                           \
        size_t entry = number(at(i / ROWS, COPIED_ROW(i % ROWS))); \
        HIDE(entry);                                               \
        eight[i] = upper[entry];                                   \
    }                                                              \
    KEEP(eight);

// The eight bytes among which byte `i` is.
INLINE uint64_t eight_of(const uint8_t *bytes, int i) {
    uint64_t eight;
    __builtin_memcpy(&eight, bytes + i / 8 * 8, sizeof eight);
    return eight;
}

// The four numbers among which number `i` is.
INLINE uint64_t four_of(const uint16_t *numbers, int i) {
    uint64_t four;
    __builtin_memcpy(&four, numbers + i / 4 * 4, sizeof four);
    return four;
}

// The levels of four entries.
INLINE void copy_levels(Bytes *quads, const Grid *grid, const uint8_t *index, Bytes upper_index) {
    uint64_t pairs[2 * ROWS], eight[4 * ROWS];
    uint16_t wide[4 * ROWS];
    const uint32_t *lower = (const uint32_t *)grid->levels;
    const uint64_t *upper = grid->levels;
    if (grid->count > 256) {
        Bytes lowest;
        __builtin_memcpy(&lowest, index, sizeof lowest);
        for (int i = 0; i < 2; i++) {
            Bytes half = interleave(lowest, upper_index, i);
            __builtin_memcpy(&wide[i * 2 * ROWS], &half, sizeof half);
        }
        __asm__("" : "+m"(wide));
    }
    if (grid->columns == QUAD) {
        if (grid->count > 256) {
            COPY_PAIRS(WIDE_NUMBER, INTERLEAVED_AT)
        } else {
            COPY_PAIRS(NUMBER, STORED_AT)
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            __builtin_memcpy(&quads[i], &pairs[i * ROWS / 2], sizeof quads[i]);
        return;
    }
    if (grid->count > 256) {
        COPY_LEVELS(WIDE_NUMBER, INTERLEAVED_AT)
    } else {
        COPY_LEVELS(NUMBER, STORED_AT)
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        u32x16 halves[2];
        __builtin_memcpy(halves, &eight[i * ROWS], sizeof halves);
        quads[2 * i] = (Bytes)__builtin_shufflevector(halves[0], halves[1], 0, 2, 8, 10, 4, 6, 12,
                                                      14, 16, 18, 24, 26, 20, 22, 28, 30);
        quads[2 * i + 1] = (Bytes)__builtin_shufflevector(halves[0], halves[1], 1, 3, 9, 11, 5, 7,
                                                          13, 15, 17, 19, 25, 27, 21, 23, 29, 31);
    }
}

// The levels of a group, whose indices have `index` as their lowest bits.
INLINE void set_levels(Bytes quads[QUADS], const Grid *grid, const uint8_t *index,
                       const uint8_t *extra) {
    UNROLL
    for (int entry = 0; entry < GROUP / grid->columns; entry += 4) {
        Bytes upper = {}, *to = &quads[entry * grid->columns / QUAD];
        if (grid->count > 256) upper = upper_bits(grid, extra, entry);
        const uint8_t *from = index + entry * ROWS;
#ifdef HAS_LOOK_UP_MANY
        Bytes lowest;
        __builtin_memcpy(&lowest, from, sizeof lowest);
        if (grid->count <= MAX_LOOK_UP) {
            look_up_levels(to, grid, lowest, upper);
            continue;
        }
#endif
#ifdef HAS_GATHER
        gather_levels(to, grid, from, upper);
#else
        copy_levels(to, grid, from, upper);
#endif
    }
}

#endif
