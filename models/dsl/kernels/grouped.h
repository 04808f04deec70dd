// A matrix of integers in groups, as models/dsl/packing.py stores it.
//
// Knows how a group of columns becomes quads; nothing of what they are multiplied with.
#ifndef HEARTH_GROUPED_H
#define HEARTH_GROUPED_H

#include "vector.h"

// Sixteen rows, which are LANES; columns of a group, and of a quad; quads of a group.
enum { ROWS = 16, GROUP = 32, QUAD = 4, QUADS = GROUP / QUAD };

// Four columns of each of sixteen rows, row after row.
typedef int8_t Quad __attribute__((vector_size(QUAD * ROWS)));
// Two quads' upper or lower halves: quad i in the low four bits of byte vector i, quad i + 4 in the
// high ones.
typedef uint8_t Halves __attribute__((vector_size(QUAD * ROWS)));

// Where the integers of a matrix are. Those of 8 bits are signed, and whole or in halves, of which
// the lower may be left out. Those of 4 to 6 bits are unsigned: four bits in `low`, others in
// `high`. Those of 12 bits are signed: the upper eight in `whole`, four in `low`.
typedef struct {
    int bits;
    const int8_t *whole;
    const uint8_t *upper, *lower;
    const uint8_t *low, *high;
    int is_scattered;  // whether other groups than the next ones are read next
} Integers;

// Bytes that are fetched ahead, and groups that are fetched ahead of arrays with few bytes in a
// group. A mapped file has small pages, at whose ends a CPU's own fetching stops; and one that
// multiplies many rows with a group comes late to the next. Measured on Zen 4.
#if defined(__x86_64__)
enum { AHEAD = 4096, GROUPS_AHEAD = 16 };
#else
enum { AHEAD = 8192, GROUPS_AHEAD = 32 };
#endif

// The integer that stands for 0. Those of 12 bits count from the middle of their lower four, so
// that the upper eight alone are the nearest multiples of 16.
INLINE int zero_of(int bits, int has_minimum) {
    if (has_minimum || bits == 8) return 0;
    return bits == 12 ? 8 : 1 << (bits - 1);
}

INLINE void fetch_lines(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)from + at, 0, NEAREST);
}

INLINE void fetch(const void *from, size_t bytes) {
    fetch_lines((const char *)from + AHEAD, bytes);
}

// Fetches the bytes of a later group of an array that has `bytes` in each.
INLINE void fetch_group(const void *from, size_t bytes) {
    fetch_lines((const char *)from + GROUPS_AHEAD * bytes, bytes);
}

// The quads of a group's lower four bits: 0 to 15.
INLINE void unpack_low(Halves quads[QUADS], Integers from, size_t group) {
    const uint8_t *low = from.low + group * GROUP * ROWS / 2;
    if (!from.is_scattered) fetch_group(low, GROUP * ROWS / 2);
    for (int i = 0; i < QUADS / 2; i++) {
        Halves two;
        __builtin_memcpy(&two, low + i * sizeof two, sizeof two);
        quads[i] = two & 0x0F, quads[i + QUADS / 2] = two >> 4;
    }
}

// The quads of a group of integers of 4 to 6 bits: 0 to 63.
INLINE void unpack_small(Quad quads[QUADS], Integers from, size_t group) {
    Halves whole[QUADS];
    unpack_low(whole, from, group);
    // A byte of `high` has one bit of each of the eight quads, or two bits of each of four.
    int more = from.bits - 4, in_byte = more ? 8 / more : QUADS, count = QUADS / in_byte;
    const uint8_t *high = more ? from.high + group * sizeof(Halves) * count : 0;
    if (more) fetch_group(high, count * sizeof(Halves));
    for (int i = 0; i < QUADS && more; i++) {
        Halves plane;
        __builtin_memcpy(&plane, high + i / in_byte * sizeof plane, sizeof plane);
        int up = 4 - i % in_byte * more, mask = ((1 << more) - 1) << 4;
        whole[i] |= (up < 0 ? plane >> -up : plane << up) & (uint8_t)mask;
    }
    for (int i = 0; i < QUADS; i++) quads[i] = (Quad)whole[i];
}

// The quads of the group that has this number: of 12 bits, those of the upper eight. Without the
// lower halves they are the middle of what they may be.
INLINE void unpack(Quad quads[QUADS], Integers from, size_t group) {
    if (from.bits < 8) {
        unpack_small(quads, from, group);
        return;
    }
    if (from.whole) {
        const int8_t *at = from.whole + group * GROUP * ROWS;
        if (!from.is_scattered) fetch(at, GROUP * ROWS);
        for (int i = 0; i < QUADS; i++)
            __builtin_memcpy(&quads[i], at + i * sizeof(Quad), sizeof(Quad));
        return;
    }
    const uint8_t *upper = from.upper + group * GROUP * ROWS / 2;
    if (!from.is_scattered) fetch(upper, GROUP * ROWS / 2);
    for (int i = 0; i < QUADS / 2; i++) {
        Halves two, low;
        __builtin_memcpy(&two, upper + i * sizeof two, sizeof two);
        Halves first = two << 4, second = two & 0xF0;
        if (from.lower) {
            const uint8_t *lower = from.lower + group * GROUP * ROWS / 2;
            __builtin_memcpy(&low, lower + i * sizeof low, sizeof low);
            first |= low & 0x0F, second |= low >> 4;
        } else {
            first |= 0x08, second |= 0x08;
        }
        quads[i] = (Quad)first, quads[i + QUADS / 2] = (Quad)second;
    }
}

#endif
